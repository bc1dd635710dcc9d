package agent

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/metal"
	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
)

var anySum = strings.Repeat("0a", 32)

func imageNode(source string) *metal.Node {
	return &metal.Node{ID: "n1", InstanceInfo: metal.Object{"image_source": source, "image_disk_format": "raw", "image_checksum": anySum}}
}

// TestLocalImages: only files of the named directories are given to machines, whatever links say.
func TestLocalImages(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(dir, "a.raw"), filepath.Join(other, "b.raw")} {
		must.OK(t, os.WriteFile(path, []byte("x"), 0o600))
	}
	must.OK(t, os.Symlink(filepath.Join(other, "b.raw"), filepath.Join(dir, "link.raw")))
	d := Direct{Formats: []string{"raw", "qcow2"}, Dirs: []string{dir}}
	for source, want := range map[string]string{"http://images/a.raw": "", "file://" + dir + "/a.raw": dir + "/a.raw"} {
		if got, err := d.LocalImage(imageNode(source)); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", source, got, err, want)
		}
	}
	for _, source := range []string{"file://" + other + "/b.raw", "file://" + dir + "/link.raw", "file://" + dir + "/../../etc/shadow"} {
		if _, err := d.LocalImage(imageNode(source)); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", source, err)
		}
	}
	if _, err := (Direct{Formats: d.Formats}).LocalImage(imageNode("file://" + dir + "/a.raw")); !problem.Is(err, problem.Invalid) {
		t.Errorf("without directories: %v", err)
	}
}

// TestPrepare: a file of ours is fetched under the boot's own path, and the checksum goes with it.
func TestPrepare(t *testing.T) {
	dir := t.TempDir()
	d := Direct{Formats: []string{"raw", "gpt"}, Dirs: []string{dir}}
	n := imageNode("file://" + dir + "/a.raw")
	if _, err := d.Prepare(n, nil); !problem.Is(err, problem.Conflict) {
		t.Errorf("without a boot that serves it: %v", err)
	}
	n.Plan = &metal.BootPlan{URL: "http://10.0.0.1:6386", Path: "abc", Image: dir + "/a.raw"}
	n.InstanceInfo["image_disk_format"] = "gpt"
	p := must.Get(d.Prepare(n, json.RawMessage(`"http://drives/1"`)))(t)
	i := p.ImageInfo
	if i.URLs[0] != "http://10.0.0.1:6386/boot/abc/image" || i.Checksum != anySum || i.DiskFormat != "raw" || !i.StreamRaw || i.NodeUUID != "n1" || p.ConfigDrive != "http://drives/1" {
		t.Errorf("%+v", p)
	}
}

// TestPrepareOfGlance: the agent is given what Glance said when the boot was planned, whatever instance_info says.
func TestPrepareOfGlance(t *testing.T) {
	const id = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
	d := Direct{Formats: []string{"raw", "qcow2"}}
	n := imageNode(id)
	if file, err := d.LocalImage(n); file != "" || err != nil {
		t.Errorf("%q, %v", file, err)
	}
	n.Plan = &metal.BootPlan{URL: "http://10.0.0.1:6386", Path: "abc"}
	if _, err := d.Prepare(n, nil); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), id) {
		t.Errorf("without a boot that serves it: %v", err)
	}
	n.Plan.System = &metal.Image{Source: "glance://" + id, Format: "qcow2", Algorithm: "sha512", Sum: strings.Repeat("0b", 64), Size: 5}
	i := must.Get(d.Prepare(n, nil))(t).ImageInfo
	if i.URLs[0] != "http://10.0.0.1:6386/boot/abc/image" || i.HashAlgo != "sha512" || i.HashValue != strings.Repeat("0b", 64) || i.Checksum != "" || i.DiskFormat != "qcow2" || i.StreamRaw || !strings.HasPrefix(i.ID, id+"@") {
		t.Errorf("%+v", i)
	}
	n.InstanceInfo["image_source"] = "glance://1a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
	if _, err := d.Prepare(n, nil); !problem.Is(err, problem.Conflict) {
		t.Errorf("another image than planned: %v", err)
	}
}

// TestConfigDrive: an object becomes an image that other tools read.
func TestConfigDrive(t *testing.T) {
	text, err := configDrive("n1", json.RawMessage(`{"meta_data": {"name": "web"}, "user_data": "#cloud-config\n", "network_data": {"links": []}, "vendor_data": {"a": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	image, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if label := strings.TrimRight(string(image[16*2048+40:16*2048+72]), " \x00"); label != "config-2" {
		t.Errorf("label %q", label)
	}
	path := filepath.Join(t.TempDir(), "drive.iso")
	must.OK(t, os.WriteFile(path, image, 0o600))
	out := debian.ExtractISO(t, path)
	for name, want := range map[string]string{
		"meta_data.json": `{"name":"web","uuid":"n1"}`, "user_data": "#cloud-config\n", "network_data.json": `{"links": []}`, "vendor_data2.json": `{"a": 1}`,
	} {
		got, err := os.ReadFile(filepath.Join(out, "openstack/latest", name))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if left, _ := filepath.Glob("/dev/shm/config-drive-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, bad := range []string{`7`, `"` + strings.Repeat("a", maxDrive+1) + `"`} {
		if _, err := configDrive("n1", json.RawMessage(bad)); !problem.Is(err, problem.Invalid) {
			t.Errorf("%.20s: %v", bad, err)
		}
	}
	if text, err := configDrive("n1", nil); text != "" || err != nil {
		t.Errorf("none: %q, %v", text, err)
	}
}
