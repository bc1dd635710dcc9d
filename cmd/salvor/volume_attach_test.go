package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/test/must"
)

// array is a storage system that notes what it was asked, and prints what it is told to.
func array(t *testing.T, prints string) (program string, asked func() string) {
	t.Helper()
	dir := t.TempDir()
	program, log := filepath.Join(dir, "array"), filepath.Join(dir, "log")
	must.OK(t, os.WriteFile(filepath.Join(dir, "prints"), []byte(prints), 0o600))
	script := "#!/bin/sh\necho \"$1 $(cat)\" >>" + log + "\n[ -s " + dir + "/prints ] || { echo the array is full >&2; exit 3; }\n[ \"$1\" != attach ] || cat " + dir + "/prints\n"
	must.OK(t, os.WriteFile(program, []byte(script), 0o700))
	return program, func() string { text, _ := os.ReadFile(log); return string(text) }
}

const madeVolume = `{"volume_type": "iscsi", "volume_id": "v1", "properties": {"target_iqn": "iqn.2026-01.x:v1"}}`

func volumeAPI(targets, created string) *fakeAPI {
	return &fakeAPI{answers: map[string][]string{
		"GET /v1/nodes/m1":            {`{"uuid": "u1", "name": "m1"}`},
		"GET /v1/volume/connectors":   {`{"connectors": [{"type": "iqn", "connector_id": "iqn.2026-01.x:m1"}]}`},
		"GET /v1/volume/targets":      strings.Split(targets, "\n"),
		"POST /v1/volume/targets":     {created},
		"DELETE /v1/volume/targets/t": {`204 `},
	}}
}

func TestAttachTakesTheNamesBothWays(t *testing.T) {
	program, asked := array(t, madeVolume)
	f := volumeAPI(`{"targets": []}`, `201 {"uuid": "t"}`)
	out, complaint, status := salvor(t, f, "", "volume", "attach", "m1", "--source", program)
	if status != 0 || out != "t\n" {
		t.Fatalf("%d %s %s", status, out, complaint)
	}
	want := `attach {"action":"attach","node":{"uuid":"u1","name":"m1"},"connectors":[{"type":"iqn","connector_id":"iqn.2026-01.x:m1"}],"boot_index":0}` + "\n"
	if asked() != want {
		t.Errorf("asked %s", asked())
	}
	if last := f.asked[len(f.asked)-1]; !strings.Contains(last, `"node_uuid":"u1"`) || !strings.Contains(last, `"salvor_source":"`+program) {
		t.Error(last)
	}
}

// Whatever fails, neither an export nor a target is left.
func TestFailedAttachLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		name, prints, targets, created, says string
		takenBack, deleted                   bool
	}{
		{"the array refuses", "", `{"targets": []}`, "", "the array is full", false, false},
		{"it prints nonsense", "nonsense", `{"targets": []}`, "", "printed no JSON", true, false},
		{"the API refuses", madeVolume, `{"targets": []}`, `409 {"error_message": "taken"}`, "409", true, false},
		{"the API made it and broke off", madeVolume, `{"targets": []}` + "\n" + `{"targets": [{"uuid": "t", "volume_id": "v1"}]}`, `503 {}`, "503", true, true},
		{"the index is taken", madeVolume, `{"targets": [{"uuid": "t", "volume_id": "other"}]}`, "", "boot index 0 already", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			program, asked := array(t, c.prints)
			f := volumeAPI(c.targets, c.created)
			_, complaint, status := salvor(t, f, "", "volume", "attach", "m1", "--source", program)
			if status != 1 || !strings.Contains(complaint, c.says) {
				t.Errorf("%d %s", status, complaint)
			}
			if got := strings.Contains(asked(), "detach "); got != c.takenBack {
				t.Errorf("asked %s", asked())
			}
			if got := strings.Contains(strings.Join(f.asked, "\n"), "DELETE /v1/volume/targets/t"); got != c.deleted {
				t.Errorf("API asked %v", f.asked)
			}
		})
	}
}

func TestDetachKnowsItsOwn(t *testing.T) {
	program, asked := array(t, madeVolume)
	f := volumeAPI(`{"targets": [{"uuid": "t", "volume_id": "v1", "volume_type": "iscsi", "extra": {"salvor_source": "`+program+`"}}]}`, "")
	if _, complaint, status := salvor(t, f, "", "volume", "detach", "m1", "--source", program); status != 0 || !strings.HasPrefix(asked(), "detach ") {
		t.Errorf("%d %s; asked %s", status, complaint, asked())
	}
	f = volumeAPI(`{"targets": [{"uuid": "t", "volume_id": "v1", "extra": {}}]}`, "")
	if _, complaint, status := salvor(t, f, "", "volume", "detach", "m1", "--source", program); status != 1 || !strings.Contains(complaint, "was not made by") {
		t.Errorf("%d %s", status, complaint)
	}
}

// TestDetachAtTgtKnowsItsName: an export that attach did not name is neither taken away nor forgotten.
func TestDetachAtTgtKnowsItsName(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	script := "#!/bin/sh\necho \"$*\" >>" + log + "\ncase \"$*\" in *target*show) echo Target 3: iqn.2026-01.org.salvor:v1; echo Target 4: iqn.2026-01.org.other:v9;; esac\n"
	must.OK(t, os.WriteFile(filepath.Join(dir, "tgtadm"), []byte(script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for iqn, want := range map[string]string{"iqn.2026-01.org.salvor:v1": "--op delete --force --tid 3", "iqn.2026-01.org.other:v9": "", "iqn.2026-01.org.salvor:v2": "", "": ""} {
		_ = os.Remove(log)
		f := volumeAPI(`{"targets": [{"uuid": "t", "volume_id": "v1", "volume_type": "iscsi", "properties": {"target_iqn": "`+iqn+`"}, "extra": {"salvor_source": "tgt"}}]}`, "")
		_, complaint, status := salvor(t, f, "", "volume", "detach", "m1", "--source", "tgt")
		text, _ := os.ReadFile(log)
		forgotten := strings.Contains(strings.Join(f.asked, "\n"), "DELETE ")
		if want != "" && (status != 0 || !strings.Contains(string(text), want) || !forgotten) {
			t.Errorf("%s: %d %s; tgtadm %s", iqn, status, complaint, text)
		}
		if want == "" && (status != 1 || len(text) != 0 || forgotten || !strings.Contains(complaint, "--iqn-prefix")) {
			t.Errorf("%s: %d %s; tgtadm %s; asked %v", iqn, status, complaint, text, f.asked)
		}
	}
}

// TestAttachAtTgtRefusesAShownFile: the file may be a server's volume already, by another target with its own list of initiators.
func TestAttachAtTgtRefusesAShownFile(t *testing.T) {
	dir := t.TempDir()
	log, disk, link := filepath.Join(dir, "log"), filepath.Join(dir, "a disk.img"), filepath.Join(dir, "link")
	script := "#!/bin/sh\necho \"$*\" >>" + log + "\ncase \"$*\" in *target*show) echo Target 3: iqn.2026-11.org.salvor.volume:v1; echo '            Backing store path: " + disk + "';; esac\n"
	must.OK(t, os.WriteFile(filepath.Join(dir, "tgtadm"), []byte(script), 0o700))
	must.OK(t, os.WriteFile(disk, nil, 0o600))
	must.OK(t, os.Symlink(disk, link))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, backing := range []string{disk, link} {
		_, complaint, status := salvor(t, volumeAPI(`{"targets": []}`, ""), "", "volume", "attach", "m1", "--source", "tgt", "--backing", backing, "--portal", "192.0.2.1:3260")
		text, _ := os.ReadFile(log)
		if status != 1 || !strings.Contains(complaint, "--backing "+backing+" is the backing store of another target") || strings.Contains(string(text), "--op new") {
			t.Errorf("%s: %d %s; tgtadm %s", backing, status, complaint, text)
		}
	}
}
