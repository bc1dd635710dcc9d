package efi

import (
	"path/filepath"
	"strings"

	"salvor/agent/disk"
	"salvor/problem"
)

// SetOrder makes the boot order of the firmware below root. Numbers without an entry are problem.Invalid.
func SetOrder(root string, order []uint16) error {
	if !Booted(root) {
		return problem.Unsupportedf("this machine was not booted by UEFI")
	}
	v := efivarsDir(filepath.Join("/", root, "sys/firmware/efi/efivars"))
	for _, n := range order {
		if _, err := v.read(bootName(n)); err != nil {
			return problem.Invalidf("the firmware has no entry %s: %w", bootName(n), err)
		}
	}
	if len(order) == 0 {
		return problem.Invalidf("an empty boot order boots nothing")
	}
	return v.write("BootOrder", orderBytes(order))
}

// SetEntry writes the boot entry with that number for a loader (\EFI\debian\shimx64.efi) on the partition with that PARTUUID, and leaves the
// boot order as it is.
func SetEntry(root string, number uint16, name, partUUID, loader string) error {
	if !Booted(root) {
		return problem.Unsupportedf("this machine was not booted by UEFI")
	}
	path, err := pathOnPartition(root, partUUID, loader)
	if err != nil {
		return err
	}
	v := efivarsDir(filepath.Join("/", root, "sys/firmware/efi/efivars"))
	return v.write(bootName(number), encodeLoadOption(cleanLabel(name), path))
}

// pathOnPartition is the device path of a file on the one partition of this machine with that PARTUUID.
func pathOnPartition(root, partUUID, loader string) ([]byte, error) {
	found, err := disk.List(root)
	if err != nil {
		return nil, err
	}
	var path []byte
	for _, f := range found {
		d, err := disk.OpenRead(root, f.Name)
		if err != nil {
			continue
		}
		table, err := disk.ReadTable(d, d.Size(), d.Sector())
		if err == nil {
			for _, p := range table.Partitions {
				if p.ID == "" || !strings.EqualFold(p.ID, partUUID) {
					continue
				}
				if path != nil {
					_ = d.Close()
					return nil, problem.Conflictf("several partitions have the PARTUUID %s", partUUID)
				}
				if path, err = devicePath(table, p, d.Sector(), loader); err != nil {
					_ = d.Close()
					return nil, err
				}
			}
		}
		_ = d.Close()
	}
	if path == nil {
		return nil, problem.NotFoundf("no partition has the PARTUUID %s", partUUID)
	}
	return path, nil
}
