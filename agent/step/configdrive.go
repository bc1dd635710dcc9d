package step

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"io"
	"strings"

	"salvor/agent/disk"
	"salvor/agent/image"
	"salvor/boot/media"
	"salvor/problem"
)

const (
	// driveSize is that of the partition, and the bound of its content, as in Ironic.
	driveSize = 64 << 20
	driveName = "config-2"
	// maxDriveText is driveSize in base64 with room for the ends of its lines.
	maxDriveText = driveSize/3*4 + driveSize/32
	isoSector    = 2048
	isoVolume    = 16 * isoSector
)

// readDrive gives the content of a config drive: nil if there is none.
func readDrive(ctx context.Context, w image.Writer, text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	if strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") {
		b, err := w.Fetch(ctx, "config drive", text, maxDriveText)
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	return unpackDrive(text)
}

// unpackDrive reads base64 of gzip of an image.
func unpackDrive(text string) ([]byte, error) {
	packed, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil, problem.Invalidf("config drive: not base64: %w", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, problem.Invalidf("config drive: its base64 holds no gzip: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(z, driveSize+1))
	switch {
	case err != nil:
		return nil, problem.Invalidf("config drive: its gzip is broken: %w", err)
	case len(content) > driveSize:
		return nil, problem.Invalidf("config drive: larger than %d MiB", driveSize>>20)
	case len(content) == 0:
		return nil, problem.Invalidf("config drive: empty")
	}
	return content, nil
}

// mountable gives a config drive in a form that Linux mounts from a disk with sectors of a size in bytes. Linux mounts no ISO 9660 from sectors of more
// than 2048 bytes, so there the files become a FAT volume with such sectors and the same label.
func mountable(content []byte, sector int64) ([]byte, error) {
	if content == nil || sector <= isoSector {
		return content, nil
	}
	if isISO := len(content) > isoVolume+isoSector && string(content[isoVolume+1:isoVolume+6]) == "CD001"; !isISO {
		if own := fatSector(content); own != 0 && own < sector {
			return nil, problem.Invalidf("config drive: its FAT volume has sectors of %d bytes, which Linux cannot mount from the disk's sectors of %d: give an ISO 9660 image, or the files", own, sector)
		}
		return content, nil
	}
	files, err := media.ISOFiles(content)
	if err != nil {
		return nil, problem.Invalidf("config drive: the disk has sectors of %d bytes, so the files of the ISO 9660 image must become a FAT volume: %w", sector, err)
	}
	volume, err := media.DataFAT(driveName, files, sector)
	if err != nil {
		return nil, problem.Invalidf("config drive: the disk has sectors of %d bytes, from which Linux mounts FAT only: %w", sector, err)
	}
	out := make([]byte, volume.Size())
	_, err = io.ReadFull(volume, out)
	return out, err
}

// fatSector is the size of the sectors of a FAT volume in bytes; 0: it is none.
func fatSector(content []byte) int64 {
	if len(content) < 512 || content[510] != 0x55 || content[511] != 0xaa || string(content[0x36:0x39]) != "FAT" && string(content[0x52:0x55]) != "FAT" {
		return 0
	}
	return int64(content[11]) | int64(content[12])<<8
}

// writeDrive puts it into the partition that the image keeps for it, or into a new one
// at the end of the disk, and reads it back.
func writeDrive(d *disk.Device, table *disk.Table, content []byte) error {
	at, ok := existingDrive(d, table)
	if ok && at.Length < int64(len(content)) {
		return problem.Invalidf("config drive: %d bytes do not fit into the image's partition %d of %d", len(content), at.Number, at.Length)
	}
	if !ok {
		var err error
		if at, err = table.Add(d, driveSize, driveName); err != nil {
			return problem.New(problem.KindOf(err), "config drive: %w", err)
		}
	}
	if err := d.Zero(at.Start, at.Length); err != nil {
		return err
	}
	if _, err := d.WriteAt(content, at.Start); err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		return err
	}
	back := make([]byte, len(content))
	if _, err := d.ReadAt(back, at.Start); err != nil {
		return err
	}
	if !bytes.Equal(back, content) {
		return problem.Unavailablef("config drive: the disk does not read as it was written")
	}
	return nil
}

// existingDrive knows one by the partition's name or by the label of its ISO 9660.
func existingDrive(r io.ReaderAt, table *disk.Table) (disk.Partition, bool) {
	for _, p := range table.Partitions {
		if p.Name == driveName {
			return p, true
		}
		b := make([]byte, 72)
		if p.Length > isoVolume+2048 {
			if _, err := r.ReadAt(b, p.Start+isoVolume); err == nil && string(b[1:6]) == "CD001" && strings.TrimSpace(string(b[40:])) == driveName {
				return p, true
			}
		}
	}
	return disk.Partition{}, false
}
