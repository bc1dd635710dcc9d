package system_test

import (
	"slices"
	"strings"
	"testing"

	"salvor/diagnose"
	rules "salvor/diagnose/system"
	"salvor/repair/repairtest"
)

// damagedSystem is the case of that name, and its finding before any repair.
func damagedSystem(t *testing.T, name string) (*repairtest.Editor, diagnose.Finding) {
	t.Helper()
	for _, tc := range rules.DamagedSystems() {
		if tc.Name != name {
			continue
		}
		s, files := tc.Make(t)
		e := repairtest.New(s, files)
		e.Programs = fakePrograms
		found := examine(t, e)
		at := slices.IndexFunc(found, func(f diagnose.Finding) bool { return f.ID == tc.ID })
		if at < 0 {
			t.Fatalf("%s: want the finding %s, got %+v", name, tc.ID, found)
		}
		return e, found[at]
	}
	t.Fatalf("want a case %q, got none", name)
	return nil, diagnose.Finding{}
}

// TestSocketKeepsItsAddress: systemd refuses a socket without an address, so no mend takes the last ListenStream= from one.
func TestSocketKeepsItsAddress(t *testing.T) {
	const file = "etc/systemd/system/ssh.socket.d/listen.conf"
	e, f := damagedSystem(t, "debian-bios/sshd-listens-nowhere/a socket on an address that is not there")
	err := mend(t, e, f)
	text := string(e.Snapshot()[file].Data)
	if !slices.Contains(strings.Split(text, "\n"), "ListenStream=198.51.100.5:22") {
		t.Errorf("after the mend (error %v): want the address of the socket in %s, got %q", err, file, text)
	}
	if f.Repair != nil || !strings.Contains(f.ByHand, "ListenStream=") {
		t.Errorf("want no repair, and help that names ListenStream=, got %+v, %q", f.Repair, f.ByHand)
	}
}

// TestPreloadsOfOneLine: of several libraries in a line of /etc/ld.so.preload, a mend takes out the broken ones only.
func TestPreloadsOfOneLine(t *testing.T) {
	e, f := damagedSystem(t, "debian-bios/preload-library-broken/beside a whole library")
	if err := mend(t, e, f); err != nil {
		t.Fatal(err)
	}
	const want = "# agent\n/usr/local/lib/libgood.so # keep\n"
	if text := string(e.Snapshot()["etc/ld.so.preload"].Data); text != want {
		t.Errorf("want %q, got %q", want, text)
	}
}

// TestLoaderOfAnotherSystem: a core image that was not installed with the modules of a system may start another system, so that no mend writes over
// this core image.
func TestLoaderOfAnotherSystem(t *testing.T) {
	for _, name := range []string{"grub-modules-foreign/another core image", "grub-module-missing/normal is gone, and another core image starts"} {
		e, f := damagedSystem(t, "debian-bios/"+name)
		err := mend(t, e, f)
		if len(e.Blocks)+len(e.Runs) > 0 || err == nil {
			t.Errorf("%s: want a refusal and no change, got %v, %d ranges of blocks, and the programs %+v", name, err, len(e.Blocks), e.Runs)
		}
		if f.Repair != nil || !strings.Contains(f.ByHand, "another installed system") {
			t.Errorf("%s: want no repair, and help that warns of another system, got %+v, %q", name, f.Repair, f.ByHand)
		}
	}
}
