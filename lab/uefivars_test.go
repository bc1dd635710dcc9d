package lab

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"salvor/test/debian"
	"salvor/test/must"
)

// emptyStore is a firmware volume with an empty store, laid out as OVMF's.
func emptyStore(size int) []byte {
	data := bytes.Repeat([]byte{0xff}, 72+storeHeaderSize+size)
	copy(data[fvSignatureAt:], "_FVH")
	binary.LittleEndian.PutUint16(data[fvHeaderLengthAt:], 72)
	copy(data[72:], authenticated)
	binary.LittleEndian.PutUint32(data[72+16:], uint32(storeHeaderSize+size))
	return data
}

func names(t *testing.T, data []byte) []string {
	t.Helper()
	s := must.Get(parseVarStore(data))(t)
	var all []string
	must.Get(s.walk(func(_ int, name string) { all = append(all, name) }))(t)
	return all
}

func TestSetBootURI(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vars.fd")
	write := func(data []byte) {
		t.Helper()
		must.OK(t, os.WriteFile(file, data, 0o600))
	}
	read := func() []byte {
		t.Helper()
		data := must.Get(os.ReadFile(file))(t)
		return data
	}
	write(emptyStore(4096))
	for range 3 { // each boot by URI adds its own and takes back the last one
		must.OK(t, setBootURI(file, "http://10.77.0.1/boot.efi"))
		if got := names(t, read()); len(got) != 2 || got[0] != bootURIOption || got[1] != "BootNext" {
			t.Fatalf("variables %v", got)
		}
	}
	if !bytes.Contains(read(), []byte("http://10.77.0.1/boot.efi\x7f\xff\x04\x00")) {
		t.Error("no URI device path")
	}
	if err := setBootURI(file, ""); err != nil || len(names(t, read())) != 0 {
		t.Errorf("taken back: %v %v", names(t, read()), err)
	}
	write(emptyStore(64))
	if err := setBootURI(file, "http://10.77.0.1/boot.efi"); err == nil {
		t.Error("a full store took a variable")
	}
	write([]byte("no store"))
	if err := setBootURI(file, "http://10.77.0.1/boot.efi"); err == nil {
		t.Error("rubbish took a variable")
	}
}

// The template that machines start from must be of the kind that this file knows.
func TestOVMFTemplate(t *testing.T) {
	debian.File(t, ovmfVars, "ovmf")
	data, err := os.ReadFile(ovmfVars)
	if err != nil {
		t.Fatalf("Debian package ovmf is missing: %v", err)
	}
	names(t, data)
}

func FuzzVarStore(f *testing.F) {
	f.Add(emptyStore(256))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseVarStore(data)
		if err != nil {
			return
		}
		s.remove("BootNext")
		s.add("BootNext", []byte{1, 0})
	})
}
