//go:build e2e

package vm

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"salvor/metal"
	"salvor/test/machine"
	"salvor/test/must"
)

// TestDiagnoseServer has a real helper guest examine the disk of a server that is off, and a real rescue system that of one in rescue. The report names
// the cause, no byte of the disk changes, and the server starts afterwards.
func TestDiagnoseServer(t *testing.T) {
	w := newWorld(t, 1, machine.Ramdisk(t, "--profile", "diagnose"))
	w.CLI("network", "create", "lan", "--bridge", "br-tenant", "--cidr", "10.78.0.0/24", "--first", "10.78.0.100", "--last", "10.78.0.199")
	w.CLI("flavor", "create", "small", "--ram", "768", "--disk", "0", "--vcpus", "1")
	w.CLI("image", "create", "broken", "--file", brokenSystem(w))
	w.CLI("server", "create", "web1", "--flavor", "small", "--image", "broken", "--network", "lan")
	w.Await("created", w.status("ACTIVE"))
	w.CLI("server", "stop", "web1")
	w.Await("stopped", w.status("SHUTOFF"))
	disks := must.Get(filepath.Glob(filepath.Join(w.Dir, "h1", "disks", "*-vda")))(t)
	if len(disks) != 1 {
		t.Fatalf("the disks of the host are %q", disks)
	}
	before := fileSum(t, disks[0])
	diagnose := func() *metal.Diagnosis {
		began := time.Now()
		d := &metal.Diagnosis{}
		must.OK(t, json.Unmarshal([]byte(w.CLI("diagnose", "web1", "--wait", "-f", "json")), d))
		t.Logf("from request to report %.1f s; the examination took %.1f s", time.Since(began).Seconds(), d.Report.ExaminedIn)
		if d.Report.Verdict.Finding != "fstab-device-missing" || len(d.Report.Disks) != 1 || d.Report.Disks[0].Written != 0 || len(d.Report.Systems) != 1 {
			t.Errorf("the report is %+v", d.Report)
		}
		return d
	}
	for range 2 { // the host fetches the ramdisk for the first
		d := diagnose()
		if symptoms := d.Report.Symptoms(); len(symptoms) != 1 || symptoms[0].ID != "console-emergency-mode" || !slices.Equal(d.Report.Verdict.Consequences, []string{"console-emergency-mode"}) {
			t.Errorf("the console shows %+v", symptoms)
		}
	}
	if fileSum(t, disks[0]) != before {
		t.Error("an examination changed the disk")
	}
	if all := w.guests(); len(all) != 1 || !all[0].Ours {
		t.Errorf("the guests are %+v", all)
	}
	// In a rescue, the rescue system examines the disk.
	must.Get(w.TryCLI("open-sesame\n", "server", "rescue", "web1", "--password-file", "-"))(t)
	w.Await("rescued", w.status("RESCUE"))
	diagnose()
	if fileSum(t, disks[0]) != before {
		t.Error("the rescue system changed the disk")
	}
	w.CLI("server", "unrescue", "web1")
	w.Await("started", w.status("ACTIVE"))
}

// consoleText is what the boot sector of the disk writes on the serial line.
const consoleText = "Linux version 6.1.0\r\nYou are in emergency mode.\r\n"

// speakingSector is a boot sector that writes consoleText to COM1 and halts.
func speakingSector() []byte {
	code := []byte{
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xbe, 0x16, 0x7c, // mov si, the text
		0xfc,             // cld
		0xba, 0xf8, 0x03, // mov dx, COM1
		0xac,       // next: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x03, // jz halt
		0xee,       // out dx, al
		0xeb, 0xf8, // jmp next
		0xf4,       // halt: hlt
		0xeb, 0xfd, // jmp halt
	}
	sector := append(append(code, consoleText...), make([]byte, 512)...)[:512]
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

// brokenSystem makes a disk with an installed system whose fstab names a device that is gone. Its boot sector says so on the serial line.
func brokenSystem(w *world) string {
	w.Helper()
	tree, file := filepath.Join(w.Dir, "tree"), filepath.Join(w.Dir, "broken.img")
	for _, dir := range []string{"etc", "sbin", "boot", "home", "data"} {
		must.OK(w, os.MkdirAll(filepath.Join(tree, dir), 0o755))
	}
	for name, text := range map[string]string{
		"etc/os-release": "PRETTY_NAME=\"Broken\"\nID=debian\n", "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "sbin/init": "#!/bin/sh\n",
		"etc/fstab": "LABEL=plain / ext4 defaults 0 1\nUUID=11111111-2222-3333-4444-555555555555 /data ext4 defaults 0 2\n",
	} {
		must.OK(w, os.WriteFile(filepath.Join(tree, name), []byte(text), 0o755))
	}
	if out, err := exec.CommandContext(w.Context(), "mke2fs", "-q", "-t", "ext4", "-L", "plain", "-d", tree, file, "48M").CombinedOutput(); err != nil {
		w.Fatalf("mke2fs (package e2fsprogs): %v: %s", err, out)
	}
	f := must.Get(os.OpenFile(file, os.O_WRONLY, 0))(w)
	defer f.Close()
	must.Get(f.Write(speakingSector()))(w)
	return file
}

func fileSum(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	f := must.Get(os.Open(path))(t)
	defer f.Close()
	h := sha256.New()
	must.Get(io.Copy(h, f))(t)
	return [sha256.Size]byte(h.Sum(nil))
}
