package system

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strings"

	"salvor/diagnose"
)

const sectorSize = 512

// partitionOf is a partition of a fixture.
func partitionOf(path, parent string, number int, start, size int64, partType, partUUID string) diagnose.Device {
	return diagnose.Device{Path: path, Kind: diagnose.PartitionDevice, Parents: []string{parent}, PartNumber: number, PartStart: start, Size: size,
		PartType: partType, PartUUID: partUUID}
}

// holding sets what a probe found on a device, and where it is mounted.
func holding(d diagnose.Device, kind, uuid, label, place string) diagnose.Device {
	d.FS, d.UUID, d.Label, d.MountedAt = kind, uuid, label, place
	if place != "" {
		d.Space = &diagnose.Space{Size: d.Size, Free: d.Size / 2, Inodes: 1 << 20, InodesFree: 1 << 19}
		if kind == "vfat" || kind == "btrfs" {
			d.Space.Inodes, d.Space.InodesFree = 0, 0
		}
	}
	return d
}

// grubMBR is the boot sector of GRUB whose core image begins at a sector, without a partition table.
func grubMBR(core uint64) []byte {
	b := make([]byte, sectorSize)
	copy(b, "\xeb\x63\x90")
	binary.LittleEndian.PutUint16(b[0x5a:], 0x8000)
	binary.LittleEndian.PutUint64(b[0x5c:], core)
	copy(b[0x180:], "GRUB \x00Geom\x00Hard Disk\x00Read\x00 Error\r\n\x00")
	b[510], b[511] = 0x55, 0xaa
	return b
}

// putMBR writes the entries of an MBR: start and length in sectors, and the type.
func putMBR(b []byte, entries ...[3]uint32) {
	for i, e := range entries {
		at := b[446+16*i:]
		at[4] = byte(e[2])
		binary.LittleEndian.PutUint32(at[8:], e[0])
		binary.LittleEndian.PutUint32(at[12:], e[1])
	}
	b[510], b[511] = 0x55, 0xaa
}

// guidBytes are the bytes of a GUID in a GPT.
func guidBytes(text string) []byte {
	raw, _ := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	for _, swap := range [][2]int{{0, 3}, {1, 2}, {4, 5}, {6, 7}} {
		raw[swap[0]], raw[swap[1]] = raw[swap[1]], raw[swap[0]]
	}
	return raw
}

// gptDisk is a disk with both copies of a GPT of those partitions.
func gptDisk(size int64, partitions ...diagnose.Device) *sparseDisk {
	le := binary.LittleEndian
	entries := make([]byte, 128*128)
	for _, p := range partitions {
		e := entries[128*(p.PartNumber-1):]
		copy(e, guidBytes(p.PartType))
		copy(e[16:], guidBytes(p.PartUUID))
		le.PutUint64(e[32:], uint64(p.PartStart/sectorSize))
		le.PutUint64(e[40:], uint64((p.PartStart+p.Size)/sectorSize-1))
	}
	last := uint64(size/sectorSize - 1)
	header := func(own, other, table uint64) []byte {
		b := make([]byte, sectorSize)
		copy(b, "EFI PART\x00\x00\x01\x00")
		le.PutUint32(b[12:], 92)
		le.PutUint64(b[24:], own)
		le.PutUint64(b[32:], other)
		le.PutUint64(b[40:], 34)
		le.PutUint64(b[48:], last-33)
		copy(b[56:], guidBytes("8f1d6c1c-4b64-4c1f-9d0b-3c65c0a0a001"))
		le.PutUint64(b[72:], table)
		le.PutUint32(b[80:], 128)
		le.PutUint32(b[84:], 128)
		le.PutUint32(b[88:], crc32.ChecksumIEEE(entries))
		le.PutUint32(b[16:], crc32.ChecksumIEEE(b[:92]))
		return b
	}
	mbr := make([]byte, sectorSize)
	putMBR(mbr, [3]uint32{1, uint32(min(last, 0xffffffff)), 0xee})
	return newDisk(size).put(0, mbr).put(sectorSize, header(1, last, 2)).put(2*sectorSize, entries).
		put(int64(last-32)*sectorSize, entries).put(int64(last)*sectorSize, header(last, 1, last-32))
}

// withContent gives a device something to read.
func withContent(d diagnose.Device, content *sparseDisk) diagnose.Device {
	d.Content = content
	return d
}

// ext4Disk is a file system of ext4 with a superblock and its first backup, for blocks of 4 KiB.
func ext4Disk(size int64, uuid string) *sparseDisk {
	d := newDisk(size)
	for i, at := range []int64{1024, 32768 * 4096} {
		b := make([]byte, 1024)
		le := binary.LittleEndian
		le.PutUint32(b[4:], uint32(size/4096)) // blocks
		le.PutUint32(b[0x18:], 2)              // 4 KiB
		le.PutUint32(b[0x20:], 32768)          // blocks of a group
		le.PutUint16(b[0x38:], 0xef53)
		le.PutUint16(b[0x3a:], 1) // clean
		le.PutUint16(b[0x5a:], uint16(i))
		raw, _ := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
		copy(b[0x68:], raw)
		d.put(at, b)
	}
	return d
}

// swapDisk is swap space without an image of a suspended system.
func swapDisk(size int64) *sparseDisk {
	return newDisk(size).put(4086, []byte("SWAPSPACE2"))
}
