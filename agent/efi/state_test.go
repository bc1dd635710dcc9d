package efi

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"salvor/agent/disk"
	"salvor/diagnose"
	"salvor/test/must"
)

// TestState reads what devicePath and encodeLoadOption write, and variables that are broken.
func TestState(t *testing.T) {
	if s := State(t.TempDir()); s.UEFI {
		t.Errorf("a machine without UEFI: %+v", s)
	}
	root := t.TempDir()
	dir := filepath.Join(root, "sys/firmware/efi/efivars")
	must.OK(t, os.MkdirAll(dir, 0o755))
	set := func(name string, content []byte) {
		must.OK(t, os.WriteFile(filepath.Join(dir, name+global), append(binary.LittleEndian.AppendUint32(nil, attributes), content...), 0o644))
	}
	esp := disk.Partition{Number: 1, Start: 1 << 20, Length: 100 << 20, ID: "bc1b1a6a-d7da-944a-bdb3-4ee44b93e5a5"}
	gpt := must.Get(devicePath(&disk.Table{Label: disk.GPT}, esp, 512, `\EFI\debian\shimx64.efi`))(t)
	mbr := must.Get(devicePath(&disk.Table{Label: disk.MBR, DiskID: "0x7d11b4c2"}, esp, 512, `\EFI\BOOT\BOOTX64.EFI`))(t)
	set("Boot0001", encodeLoadOption("debian", gpt))
	inactive := encodeLoadOption("old\x1b[2J", mbr)
	inactive[0] = 0
	set("Boot0002", inactive)
	set("Boot0003", []byte{1, 0, 0})
	set("BootOrder", []byte{2, 0, 1, 0, 9})
	set("BootCurrent", []byte{1, 0})
	set("BootNext", []byte{2, 0})
	set("SecureBoot", []byte{1})
	next := uint16(2)
	want := diagnose.FirmwareState{UEFI: true, Order: []uint16{2, 1}, Current: 1, Next: &next, SecureBoot: true, Entries: []diagnose.BootEntry{
		{Number: 1, Name: "debian", Active: true, PartUUID: esp.ID, Path: `\EFI\debian\shimx64.efi`},
		{Number: 2, Name: "old?[2J", PartUUID: "7d11b4c2-01", Path: `\EFI\BOOT\BOOTX64.EFI`},
	}}
	if got := State(root); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for _, path := range [][]byte{nil, {4}, {4, 1, 42, 0}, {4, 4, 255, 255, 1}, {4, 4, 0, 0}} {
		if partition, file := parseDevicePath(path); partition != "" || file != "" {
			t.Errorf("%v: %q %q", path, partition, file)
		}
	}
}

// signatureList is an EFI_SIGNATURE_LIST of digests.
func signatureList(kind []byte, digests ...string) []byte {
	le := binary.LittleEndian
	out := le.AppendUint32(append([]byte(nil), kind...), uint32(28+48*len(digests)))
	out = le.AppendUint32(le.AppendUint32(out, 0), 48)
	for _, d := range digests {
		raw, _ := hex.DecodeString(d)
		out = append(append(out, make([]byte, 16)...), raw...)
	}
	return out
}

// TestPolicy reads lists of digests, of which other kinds and broken ones are passed over, and what shim mirrors.
func TestPolicy(t *testing.T) {
	root := t.TempDir()
	v := efivarsDir(root)
	set := func(name string, content []byte) {
		must.OK(t, os.WriteFile(filepath.Join(root, name), append([]byte{6, 0, 0, 0}, content...), 0o644))
	}
	one, two := strings.Repeat("a1", 32), strings.Repeat("b2", 32)
	other := signatureList(make([]byte, 16), one)
	set("dbx"+imageSecurity, slices.Concat(other, signatureList(sha256Type, one, two), []byte{1, 2, 3}))
	set("db"+imageSecurity, signatureList(sha256Type, two)[:40])
	set("MokListRT"+shimLock, signatureList(sha256Type, two))
	set("SbatLevelRT"+shimLock, []byte("sbat,1,2023012900\nshim,2\n\x00"))
	set("MokSBStateRT"+shimLock, []byte{1})
	var s diagnose.FirmwareState
	v.readPolicy(&s)
	want := diagnose.FirmwareState{Revoked: []string{one, two}, Enrolled: []string{two}, SBATLevel: "sbat,1,2023012900\nshim,2\n", ShimUnchecked: true}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v", s)
	}
}

// TestCrashes joins the parts of a kernel's log, the end of which is part 1, and bounds what a variable decompresses to.
func TestCrashes(t *testing.T) {
	root := t.TempDir()
	set := func(name string, content []byte) {
		must.OK(t, os.WriteFile(filepath.Join(root, name+crashVendor), append([]byte{7, 0, 0, 0}, content...), 0o644))
	}
	deflated := func(text string) []byte {
		var b bytes.Buffer
		w := must.Get(flate.NewWriter(&b, flate.BestSpeed))(t)
		must.Get(w.Write([]byte(text)))(t)
		must.OK(t, w.Close())
		return b.Bytes()
	}
	set("dump-type0-1-1-1700000000-C", deflated("Panic#1 Part1\n<0>[    1.5] Kernel panic - not syncing: b\n"))
	set("dump-type0-2-1-1700000000-C", deflated("Panic#1 Part2\n<4>[    1.4] a\n"))
	set("dump-type0-1-2-1700000100-D", []byte("Oops#1 Part1\nplain\n\x00\x00"))
	set("dump-type0-1-3-1700000200-C", deflated(strings.Repeat("bomb", 1<<20)))
	set("dump-type7-1-4-1700000300-D", []byte("no log of a kernel"))
	set("dump-type0-x-5-1700000400-D", []byte("no number"))
	got := efivarsDir(root).crashes()
	if len(got) != 3 || len(got[0].Text) != maxCrashText || got[1].Text != "Oops#1 Part1\nplain\n" || got[2].At.Unix() != 1700000000 ||
		got[2].Text != "Panic#1 Part2\n<4>[    1.4] a\nPanic#1 Part1\n<0>[    1.5] Kernel panic - not syncing: b\n" {
		t.Errorf("%d: %.300q", len(got), got)
	}
}

func FuzzDigests(f *testing.F) {
	f.Add(signatureList(sha256Type, strings.Repeat("a1", 32)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := parseDigests(b); len(got) > maxDigests || 48*len(got) > len(b) {
			t.Errorf("%d digests of %d bytes", len(got), len(b))
		}
	})
}
