package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unicode/utf16"
)

// This file edits the variable store of OVMF (EDK II: VariableFormat.h, UEFI specification 3.1.3
// for load options), because that is how a real BMC hands an HTTP boot URI to its firmware: as a
// boot option of its own, named by BootNext.

// bootURIOption is the boot option that the lab writes; firmware numbers its own from 0 up.
const bootURIOption = "Boot7E57"

var (
	globalVariable = []byte{0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0x00, 0xe0, 0x98, 0x03, 0x2b, 0x8c}
	authenticated  = []byte{0x78, 0x2c, 0xf3, 0xaa, 0x7b, 0x94, 0x9a, 0x43, 0xa1, 0x80, 0x2e, 0x14, 0x4e, 0xc3, 0x77, 0x92}
)

const (
	fvSignatureAt    = 40
	fvHeaderLengthAt = 48
	storeHeaderSize  = 28
	varHeaderSize    = 60
	varStart         = 0x55aa
	varAdded         = 0x3f
	varDeletedMask   = 0xfd
	// non-volatile, boot service access, runtime access
	varAttributes = 7
)

var errVarStore = errors.New("not a UEFI variable store with authenticated variables")

// varStore is the part of a firmware volume that holds variables.
type varStore struct {
	data []byte // of the whole file
	from int    // first variable
	end  int    // of the store
}

func parseVarStore(data []byte) (*varStore, error) {
	if len(data) < 64 || string(data[fvSignatureAt:fvSignatureAt+4]) != "_FVH" {
		return nil, errVarStore
	}
	at := int(binary.LittleEndian.Uint16(data[fvHeaderLengthAt:]))
	if at+storeHeaderSize > len(data) || !bytes.Equal(data[at:at+16], authenticated) {
		return nil, errVarStore
	}
	size := int64(binary.LittleEndian.Uint32(data[at+16:]))
	if size < storeHeaderSize || int64(at)+size > int64(len(data)) {
		return nil, errVarStore
	}
	return &varStore{data: data, from: at + storeHeaderSize, end: at + int(size)}, nil
}

// walk calls see with the offset and name of each living variable, and returns where free space begins.
func (s *varStore) walk(see func(at int, name string)) (int, error) {
	at := s.from
	for at+varHeaderSize <= s.end && binary.LittleEndian.Uint16(s.data[at:]) == varStart {
		nameSize := int64(binary.LittleEndian.Uint32(s.data[at+36:]))
		dataSize := int64(binary.LittleEndian.Uint32(s.data[at+40:]))
		next := int64(at) + varHeaderSize + nameSize + dataSize
		next = (next + 3) &^ 3
		if next > int64(s.end) {
			return 0, errVarStore
		}
		if s.data[at+2] == varAdded && bytes.Equal(s.data[at+44:at+60], globalVariable) {
			see(at, fromUTF16(s.data[at+varHeaderSize:at+varHeaderSize+int(nameSize)]))
		}
		at = int(next)
	}
	return at, nil
}

// remove marks living variables of these names as deleted.
func (s *varStore) remove(names ...string) (changed bool, err error) {
	_, err = s.walk(func(at int, name string) {
		for _, n := range names {
			if n == name {
				s.data[at+2] &= varDeletedMask
				changed = true
			}
		}
	})
	return changed, err
}

// add appends a variable to the store.
func (s *varStore) add(name string, value []byte) error {
	free, err := s.walk(func(int, string) {})
	if err != nil {
		return err
	}
	encoded := toUTF16(name)
	v := make([]byte, varHeaderSize, varHeaderSize+len(encoded)+len(value)+3)
	binary.LittleEndian.PutUint16(v, varStart)
	v[2] = varAdded
	binary.LittleEndian.PutUint32(v[4:], varAttributes)
	binary.LittleEndian.PutUint32(v[36:], uint32(len(encoded)))
	binary.LittleEndian.PutUint32(v[40:], uint32(len(value)))
	copy(v[44:], globalVariable)
	v = append(append(v, encoded...), value...)
	for len(v)%4 != 0 {
		v = append(v, 0xff)
	}
	if free+len(v) > s.end {
		return fmt.Errorf("UEFI variable %s: store is full", name)
	}
	copy(s.data[free:], v)
	return nil
}

// loadOption is the value of a Boot#### variable with a short-form URI device path.
func loadOption(description, uri string) []byte {
	path := make([]byte, 4, len(uri)+8)
	path[0], path[1] = 3, 24 // messaging, URI
	binary.LittleEndian.PutUint16(path[2:], uint16(4+len(uri)))
	path = append(append(path, uri...), 0x7f, 0xff, 4, 0) // end of the entire path
	option := make([]byte, 6, 64+len(path))
	binary.LittleEndian.PutUint32(option, 1) // active
	binary.LittleEndian.PutUint16(option[4:], uint16(len(path)))
	return append(append(option, toUTF16(description)...), path...)
}

// AddUEFIVariable adds a global variable to a file of UEFI variables that no firmware uses at the time.
func AddUEFIVariable(file, name string, value []byte) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	store, err := parseVarStore(data)
	if err == nil {
		err = store.add(name, value)
	}
	if err != nil {
		return fmt.Errorf("add a variable to %s: %w", file, err)
	}
	return os.WriteFile(file, data, 0o600)
}

const maxBootURI = 2048

// setBootURI makes the machine's next start boot a URI by HTTP; an empty one takes an earlier wish back.
func setBootURI(file, uri string) error {
	if len(uri) > maxBootURI {
		return fmt.Errorf("boot URI of %d bytes: want %d or fewer", len(uri), maxBootURI)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	store, err := parseVarStore(data)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	changed, err := store.remove(bootURIOption, "BootNext")
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if uri != "" {
		changed = true
		if err := store.add(bootURIOption, loadOption("HTTP boot by BMC", uri)); err != nil {
			return err
		}
		if err := store.add("BootNext", []byte{0x57, 0x7e}); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	return os.WriteFile(file, data, 0o600)
}

func toUTF16(s string) []byte {
	var out []byte
	for _, c := range append(utf16.Encode([]rune(s)), 0) {
		out = binary.LittleEndian.AppendUint16(out, c)
	}
	return out
}

func fromUTF16(b []byte) string {
	var units []uint16
	for ; len(b) >= 2; b = b[2:] {
		u := binary.LittleEndian.Uint16(b)
		if u == 0 {
			break
		}
		units = append(units, u)
	}
	return string(utf16.Decode(units))
}
