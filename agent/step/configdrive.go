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
	"salvor/problem"
)

const (
	// driveSize is that of the partition, and the bound of its content, as in Ironic.
	driveSize = 64 << 20
	driveName = "config-2"
	// maxDriveText is driveSize in base64 with room for the ends of its lines.
	maxDriveText = driveSize/3*4 + driveSize/32
	isoVolume    = 16 * 2048
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
