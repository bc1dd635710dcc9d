package metal

import (
	"strings"
	"testing"

	"salvor/problem"
)

// TestImageOf: what is missing or wrong is refused with words that name it.
func TestImageOf(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	permitted := []string{"raw", "gpt", "qcow2", "iso"}
	with := func(more Object) *Node {
		n := &Node{InstanceInfo: Object{"image_source": "http://images/a.qcow2", "image_os_hash_algo": "sha256", "image_os_hash_value": sum}}
		for k, v := range more {
			n.InstanceInfo[k] = v
		}
		return n
	}
	for _, good := range []Object{
		nil, {"image_disk_format": "qcow2"}, {"image_source": "file:///images/a.raw", "image_disk_format": "raw"},
		{"image_os_hash_value": "https://images/SHA256SUMS"}, {"image_os_hash_algo": nil, "image_os_hash_value": nil, "image_checksum": strings.Repeat("f", 128)},
		{"root_device": map[string]any{"serial": "x"}}, {"capabilities": "boot_option:local,boot_mode:uefi"}, {"kernel": "k", "ramdisk": "r", "image_type": "whole-disk"},
	} {
		if img, err := ImageOf(with(good), permitted); err != nil || img.Sum == "" {
			t.Errorf("%v: %+v, %v", good, img, err)
		}
	}
	for _, c := range []struct {
		bad  Object
		says string
	}{
		{Object{"image_source": nil}, "image_source"},
		{Object{"image_source": "glance://debian-12"}, "the UUID of an image of Glance"},
		{Object{"image_source": "ftp://images/a"}, "http, https or file"},
		{Object{"image_source": "file://host/a"}, "http, https or file"},
		{Object{"image_os_hash_value": nil}, "together"},
		{Object{"image_os_hash_algo": nil, "image_os_hash_value": nil}, "lacks a checksum"},
		{Object{"image_os_hash_algo": "md5"}, "sha256 or sha512"},
		{Object{"image_os_hash_algo": "sha512"}, "no usable checksum"},
		{Object{"image_os_hash_algo": nil, "image_os_hash_value": nil, "image_checksum": strings.Repeat("0", 32)}, "no usable checksum"},
		{Object{"image_os_hash_value": "file:///etc/shadow"}, "http, https"},
		{Object{"image_disk_format": "vmdk"}, "not permitted"},
		{Object{"image_disk_format": "iso"}, "not permitted"},
		{Object{"image_type": "partition"}, "whole-disk"},
		{Object{"kernel": "k", "ramdisk": "r"}, "partition image"},
		{Object{"root_device": "sda"}, "object of hints"},
		{Object{"root_device": map[string]any{"colour": "red"}}, "not known"},
		{Object{"capabilities": map[string]any{"boot_option": "netboot"}}, "boot_option"},
		{Object{"capabilities": "boot_mode:open"}, "neither bios nor uefi"},
	} {
		if _, err := ImageOf(with(c.bad), permitted); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v; want words with %q", c.bad, err, c.says)
		}
	}
	if _, err := ImageOf(with(Object{"image_disk_format": "qcow2"}), []string{"raw"}); err == nil {
		t.Error("a format that is not permitted here is taken")
	}
}

// Nova writes the capabilities of a flavor as JSON in a text.
func TestCapability(t *testing.T) {
	for _, c := range []struct {
		from any
		want string
	}{
		{`{"boot_mode": "uefi"}`, "uefi"}, {` {"boot_mode":"floppy","x":1}`, "floppy"}, {"a:b, boot_mode:uefi", "uefi"}, {map[string]any{"boot_mode": "bios"}, "bios"},
		{map[string]any{"boot_mode": true}, "true"}, {`{"boot_mode": {"a": 1}}`, ""}, {`["boot_mode"]`, ""}, {`{"boot_mode"`, ""}, {nil, ""}, {7.0, ""},
	} {
		if got := Capability(c.from, "boot_mode"); got != c.want {
			t.Errorf("%v: %q, want %q", c.from, got, c.want)
		}
	}
	for _, option := range []string{`{"boot_option": "netboot"}`, `{"boot_mode": "floppy"}`} {
		if err := checkPlacement(&Node{InstanceInfo: Object{"capabilities": option}}); err == nil {
			t.Errorf("%s is taken", option)
		}
	}
}

// TestSetCapability keeps the others, whichever form they have.
func TestSetCapability(t *testing.T) {
	for _, c := range []struct {
		from any
		want string
	}{
		{nil, "boot_mode:uefi"}, {"boot_mode:bios,a:b", "a:b,boot_mode:uefi"}, {map[string]any{"boot_mode": "bios", "x": "1", "a": "2"}, "a:2,x:1,boot_mode:uefi"}, {"rubbish", "boot_mode:uefi"}, {map[string]any{"secure_boot": false, "n": 2.0, "x": nil}, "n:2,secure_boot:false,boot_mode:uefi"},
		{`{"boot_mode": "bios", "a": "2"}`, "a:2,boot_mode:uefi"},
	} {
		if got := SetCapability(c.from, "boot_mode", "uefi"); got != c.want || Capability(got, "boot_mode") != "uefi" {
			t.Errorf("%v: %q, want %q", c.from, got, c.want)
		}
	}
}

// FuzzImage: no record brings it down, and what is taken has a source and a checksum.
func FuzzImage(f *testing.F) {
	f.Add("http://i/a", "raw", strings.Repeat("a", 64), "boot_mode:uefi")
	f.Add("file:///a", "", "https://x/sum", "")
	f.Add("::", "qcow2", "%zz://", ",:,")
	f.Fuzz(func(t *testing.T, source, format, sum, capabilities string) {
		n := &Node{InstanceInfo: Object{"image_source": source, "image_disk_format": format, "image_checksum": sum, "capabilities": capabilities}}
		img, err := ImageOf(n, []string{"raw", "qcow2"})
		if err == nil && (img.Source == "" || img.Sum == "" || img.Format == "gpt") {
			t.Errorf("taken: %+v", img)
		}
	})
}
