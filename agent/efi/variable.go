package efi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf16"

	"golang.org/x/sys/unix"

	"salvor/agent/disk"
	"salvor/problem"
)

const (
	global = "-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	// attributes: kept, seen by boot services, seen by the system.
	attributes = 7
	active     = 1
	immutable  = 0x10 // FS_IMMUTABLE_FL, which the kernel sets on what it does not know
	maxVar     = 64 << 10
)

// efivarsDir is the folder of efivarfs.
type efivarsDir string

// bootEntry is a stored Boot#### variable.
type bootEntry struct {
	number uint16
	label  string
	path   []byte
}

func bootName(n uint16) string { return fmt.Sprintf("Boot%04X", n) }

// entries lists all Boot#### variables; those that cannot be understood have no label.
func (v efivarsDir) entries() ([]bootEntry, error) {
	files, err := os.ReadDir(string(v))
	if err != nil {
		return nil, problem.Unavailablef("the firmware's variables cannot be read: %w", err)
	}
	var out []bootEntry
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), global)
		hex, isBoot := strings.CutPrefix(name, "Boot")
		n, err := strconv.ParseUint(hex, 16, 16)
		if !ok || !isBoot || len(hex) != 4 || err != nil {
			continue
		}
		e := bootEntry{number: uint16(n)}
		if b, err := v.read(name); err == nil {
			e.label, e.path = parseOption(b)
		}
		out = append(out, e)
	}
	return out, nil
}

func (v efivarsDir) order() ([]uint16, error) {
	b, err := v.read("BootOrder")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the firmware's boot order: %w", err)
	}
	var out []uint16
	for ; len(b) >= 2; b = b[2:] {
		out = append(out, binary.LittleEndian.Uint16(b))
	}
	return out, nil
}

func orderBytes(order []uint16) []byte {
	var b []byte
	for _, n := range order {
		b = binary.LittleEndian.AppendUint16(b, n)
	}
	return b
}

func (v efivarsDir) file(name string) string { return filepath.Join(string(v), name+global) }

// read gives a variable without its attributes.
func (v efivarsDir) read(name string) ([]byte, error) { return v.readFile(name + global) }

// readFile gives a variable by the name of its file, without its attributes.
func (v efivarsDir) readFile(name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(string(v), name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxVar+1))
	if err != nil {
		return nil, err
	}
	if len(b) < 4 || len(b) > maxVar {
		return nil, problem.Invalidf("variable %s has %d bytes", name, len(b))
	}
	return b[4:], nil
}

// write replaces a variable: efivarfs takes attributes and content in one write.
func (v efivarsDir) write(name string, content []byte) error {
	v.unlock(name)
	f, err := os.OpenFile(v.file(name), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("write firmware variable %s: %w", name, err)
	}
	b := append(binary.LittleEndian.AppendUint32(nil, attributes), content...)
	_, err = f.Write(b)
	_ = f.Truncate(int64(len(b))) // efivarfs sets the length by itself
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write firmware variable %s: %w", name, err)
	}
	got, err := v.read(name)
	if err != nil || string(got) != string(content) {
		return problem.Unavailablef("firmware variable %s does not read as it was written: %v", name, err)
	}
	return nil
}

func (v efivarsDir) remove(n uint16) error {
	v.unlock(bootName(n))
	if err := os.Remove(v.file(bootName(n))); err != nil {
		return fmt.Errorf("remove firmware variable %s: %w", bootName(n), err)
	}
	return nil
}

// unlock takes the immutable flag away; a failure shows when the variable is changed.
func (v efivarsDir) unlock(name string) {
	f, err := os.Open(v.file(name))
	if err != nil {
		return
	}
	defer f.Close()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil && flags&immutable != 0 {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags&^immutable))
	}
}

// encodeLoadOption is an EFI_LOAD_OPTION.
func encodeLoadOption(label string, path []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, active)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(path)))
	return append(append(b, encodeUTF16(label)...), path...)
}

func parseOption(b []byte) (string, []byte) {
	if len(b) < 6 {
		return "", nil
	}
	n := int(binary.LittleEndian.Uint16(b[4:]))
	for i := 6; i+1 < len(b); i += 2 {
		if b[i] == 0 && b[i+1] == 0 {
			rest := b[i+2:]
			return decodeUTF16(b[6:i]), rest[:min(n, len(rest))]
		}
	}
	return "", nil
}

func encodeUTF16(text string) []byte {
	var b []byte
	for _, u := range utf16.Encode([]rune(text + "\x00")) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return b
}

// devicePath names the partition by its own id, so that firmware finds it on whatever
// port the disk is, then the file, then the end.
func devicePath(table *disk.Table, esp disk.Partition, sector int64, file string) ([]byte, error) {
	hd := []byte{4, 1, 42, 0}
	hd = binary.LittleEndian.AppendUint32(hd, uint32(esp.Number))
	hd = binary.LittleEndian.AppendUint64(hd, uint64(esp.Start/sector))
	hd = binary.LittleEndian.AppendUint64(hd, uint64(esp.Length/sector))
	var id [16]byte
	format := byte(2)
	switch table.Label {
	case disk.GPT:
		var err error
		if id, err = disk.GUIDBytes(esp.ID); err != nil {
			return nil, err
		}
	default:
		format = 1
		n, err := strconv.ParseUint(strings.TrimPrefix(table.DiskID, "0x"), 16, 32)
		if err != nil {
			return nil, problem.Invalidf("the disk has no signature")
		}
		binary.LittleEndian.PutUint32(id[:], uint32(n))
	}
	hd = append(append(hd, id[:]...), format, format)
	name := encodeUTF16(file)
	path := binary.LittleEndian.AppendUint16([]byte{4, 4}, uint16(4+len(name)))
	return append(append(append(hd, path...), name...), 0x7f, 0xff, 4, 0), nil
}
