package examine

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"salvor/diagnose"
	"salvor/test/must"
)

// TestToolsAreGivenOverlaysOnly: text of a stranger's disk never becomes an argument that names a device.
func TestToolsAreGivenOverlaysOnly(t *testing.T) {
	box := toolRunner{log: slog.New(slog.DiscardHandler)}
	for _, node := range []string{"/dev/mapper/vg-root", "/dev/disk/by-uuid/x", "/dev/sda1;reboot", "/dev/../etc/passwd", "/dev/mem", "/dev/md127/../sda", "/dev/vg/root"} {
		if _, err := box.run(t.Context(), nil, "blkid", "-p", node); err == nil || !strings.Contains(err.Error(), "no device of an overlay") {
			t.Errorf("%s: %v", node, err)
		}
	}
	for _, node := range []string{"/dev/loop1", "/dev/loop12p3", "/dev/dm-4", "/dev/md127", "/dev/nvme0n1", "/dev/sda", "/dev/vdaa", "/dev/mapper/salvor_sda"} {
		if !nodePath.MatchString(node) {
			t.Errorf("%s is refused", node)
		}
	}
	if _, err := box.run(t.Context(), nil, "sh", "-c", "true"); err == nil || !strings.Contains(err.Error(), "not in the table") {
		t.Errorf("a program that is in no table: %v", err)
	}
}

func TestBoundedOutput(t *testing.T) {
	out := &boundedOutput{most: 5}
	for range 3 {
		if n, err := out.Write([]byte("abc")); n != 3 || err != nil {
			t.Fatal(n, err)
		}
	}
	if out.String() != "abcab" || !out.cut {
		t.Errorf("%q %v", out.String(), out.cut)
	}
	out = &boundedOutput{most: 5}
	if n, err := io.Copy(out, io.LimitReader(strings.NewReader("abcabcabc"), 9)); n != 9 || err != nil || out.String() != "abcab" || !out.cut {
		t.Errorf("copied %d: %q %v %v", n, out.String(), out.cut, err)
	}
}

func TestKeysAreNotPrinted(t *testing.T) {
	r := Request{Keys: []Key{Key("opensesame")}, KeysByUUID: map[string][]Key{"a": {Key("opensesame")}}}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "request", r, "key", r.Keys[0])
	for _, text := range []string{fmt.Sprint(r), fmt.Sprintf("%+v %#v %x %q %s", r, r, r.Keys, r.Keys[0], r.Keys[0]), log.String()} {
		if strings.Contains(text, "opensesame") || strings.Contains(text, "6f70656e") || strings.Contains(text, "111 112 101") {
			t.Errorf("the key is in %s", text)
		}
	}
}

func TestAnswerFits(t *testing.T) {
	long := diagnose.Finding{ID: "x", Title: strings.Repeat("y", 300)}
	e := &diagnose.Examination{Systems: []diagnose.ExaminedSystem{{Root: "/dev/sda1", Findings: []diagnose.Finding{long}}, {Root: "/dev/sdb1"}}}
	for range 20_000 {
		e.Systems[1].Findings = append(e.Systems[1].Findings, long)
	}
	fitAnswer(e)
	if b := must.Get(json.Marshal(e))(t); len(b) > MaxAnswer || len(b) < MaxAnswer/8 {
		t.Errorf("%d bytes", len(b))
	}
	if len(e.Systems[0].Findings) != 1 || len(e.NotExamined) == 0 || e.NotExamined[0].What != "findings of /dev/sdb1" {
		t.Errorf("findings %d, gaps %+v", len(e.Systems[0].Findings), e.NotExamined)
	}
}

// TestAnswerHasHostKeys: what is found of a system has its public host keys, which make room where an answer is too long.
func TestAnswerHasHostKeys(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"
	tree := diagnose.NewTree(fstest.MapFS{"etc/ssh/ssh_host_ed25519_key.pub": {Data: []byte(key + " root@patient\n")}, "etc/ssh/ssh_host_ed25519_key": {Data: []byte(hostKey)}})
	found := newRun(Request{OnlyRead: true}, nil).judgeSystems(t.Context(), []*diagnose.System{{Root: "/dev/sda1", Files: tree}, {Root: "/dev/sdb1"}})
	if len(found[0].HostKeys) != 1 || found[0].HostKeys[0] != key || len(found[1].HostKeys) != 0 {
		t.Errorf("the systems have the host keys %q and %q, want %q and none", found[0].HostKeys, found[1].HostKeys, key)
	}
	e := &diagnose.Examination{Systems: []diagnose.ExaminedSystem{{HostKeys: []string{strings.Repeat("k", MaxAnswer)}}}}
	if fitAnswer(e); len(e.Systems[0].HostKeys) != 0 {
		t.Error("keys that fill an answer stay in it")
	}
}

// TestKeysOf: a key with a UUID is tried on that container alone, and before those for each.
func TestKeysOf(t *testing.T) {
	r := Request{Keys: []Key{Key("each")}, KeysByUUID: map[string][]Key{"aa": {Key("one")}}}
	if keys := r.keysOf("AA"); len(keys) != 2 || string(keys[0]) != "one" || string(keys[1]) != "each" {
		t.Errorf("%d keys for its container", len(keys))
	}
	if keys := r.keysOf("bb"); len(keys) != 1 || string(keys[0]) != "each" {
		t.Errorf("%d keys for another container", len(keys))
	}
}

// A report is read without the warnings that a tool prints amid it.
func TestOutputWithoutWarnings(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "lvm"), []byte("#!/bin/sh\necho '{'\necho '  WARNING: VG vg0 is missing a PV' >&2\necho '}'\n"), 0o755))
	t.Setenv("PATH", dir)
	said, err := toolRunner{log: slog.New(slog.DiscardHandler)}.run(t.Context(), nil, "lvm", "fullreport")
	if err != nil || said.output != "{\n}\n" || !strings.Contains(said.text, "WARNING") {
		t.Errorf("%+v %v", said, err)
	}
}
