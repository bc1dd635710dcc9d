package efi

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"salvor/diagnose"
)

// maxBootEntries bounds what is read of a firmware's boot entries.
const maxBootEntries = 512

// State reads what the firmware has stored about booting. What cannot be read is left out.
func State(root string) diagnose.FirmwareState {
	s := diagnose.FirmwareState{UEFI: Booted(root)}
	if !s.UEFI {
		return s
	}
	v := efivarsDir(filepath.Join("/", root, "sys/firmware/efi/efivars"))
	list, _ := v.entries()
	for _, e := range list[:min(len(list), maxBootEntries)] {
		b, err := v.read(bootName(e.number))
		if err != nil || len(b) < 4 {
			continue
		}
		entry := diagnose.BootEntry{Number: e.number, Name: diagnose.Excerpt(e.label), Active: binary.LittleEndian.Uint32(b)&active != 0}
		entry.PartUUID, entry.Path = parseDevicePath(e.path)
		s.Entries = append(s.Entries, entry)
	}
	s.Order, _ = v.order()
	if b, err := v.read("BootCurrent"); err == nil && len(b) >= 2 {
		s.Current = binary.LittleEndian.Uint16(b)
	}
	if b, err := v.read("BootNext"); err == nil && len(b) >= 2 {
		next := binary.LittleEndian.Uint16(b)
		s.Next = &next
	}
	if b, err := os.ReadFile(v.file("SecureBoot")); err == nil && len(b) == 5 {
		s.SecureBoot = b[4] == 1
	}
	v.readPolicy(&s)
	s.Crashes = v.crashes()
	return s
}

// parseDevicePath reads the partition and the file that a device path names. The id of a partition of an MBR is as in PARTUUID: signature
// and number.
func parseDevicePath(b []byte) (partition, file string) {
	for len(b) >= 4 {
		n := int(binary.LittleEndian.Uint16(b[2:]))
		if n < 4 || n > len(b) || b[0] == 0x7f {
			return partition, file
		}
		node := b[4:n]
		switch {
		case b[0] == 4 && b[1] == 1 && len(node) >= 38:
			switch node[37] {
			case 2:
				g := node[20:36]
				partition = fmt.Sprintf("%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(g), binary.LittleEndian.Uint16(g[4:]), binary.LittleEndian.Uint16(g[6:]), g[8:10], g[10:16])
			case 1:
				partition = fmt.Sprintf("%08x-%02x", binary.LittleEndian.Uint32(node[20:]), binary.LittleEndian.Uint32(node))
			}
		case b[0] == 4 && b[1] == 4:
			// A long path may be cut into several nodes.
			part := strings.TrimRight(decodeUTF16(node), "\x00")
			if file != "" && !strings.HasSuffix(file, `\`) && !strings.HasPrefix(part, `\`) {
				file += `\`
			}
			file += part
		}
		b = b[n:]
	}
	return partition, file
}
