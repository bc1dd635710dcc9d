package network

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/boot/media"
	"salvor/problem"
)

const (
	driveLabel  = "config-2"
	driveFile   = "openstack/latest/network_data.json"
	maxData     = 1 << 20
	maxDrive    = 64 << 20 // of a config drive, as in Ironic
	kindISO     = "iso9660"
	volumeID    = 0x8028 // of the primary volume descriptor of ISO 9660
	probeLength = volumeID + 32
)

// ConfigDrive reads network_data.json from the disk that has the machine's config drive. NotFound: there is none.
func ConfigDrive() ([]byte, error) { return configDrive() }

// configDrive reads network_data.json from the partition that the cloud put it on.
// The disk belongs to somebody else: it is mounted read-only, nothing of it is run.
func configDrive() ([]byte, error) {
	entries, err := os.ReadDir("/sys/class/block")
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	err = problem.NotFoundf("no disk has a partition labelled %s", driveLabel)
	for _, entry := range entries {
		device := filepath.Join("/dev", entry.Name())
		kind := driveKind(device)
		if kind == "" {
			continue
		}
		var text []byte
		if text, err = readDrive(device, kind); err == nil {
			return text, nil
		}
	}
	return nil, err
}

// driveKind is the file system of a config drive, empty for anything else.
func driveKind(device string) string {
	file, err := os.Open(device)
	if err != nil {
		return ""
	}
	defer file.Close()
	head := make([]byte, probeLength)
	n, err := io.ReadFull(file, head)
	if err != nil && n < 512 {
		return ""
	}
	return detectFilesystem(head[:n])
}

// detectFilesystem looks at the first bytes of a file system.
func detectFilesystem(head []byte) string {
	if len(head) >= probeLength && string(head[0x8001:0x8006]) == "CD001" && isLabel(head[volumeID:probeLength]) {
		return kindISO
	}
	if len(head) < 512 || head[510] != 0x55 || head[511] != 0xaa {
		return ""
	}
	// The label of FAT12/16 and of FAT32.
	if (string(head[0x36:0x39]) == "FAT" && isLabel(head[0x2b:0x36])) || (string(head[0x52:0x55]) == "FAT" && isLabel(head[0x47:0x52])) {
		return "vfat"
	}
	return ""
}

// readISO reads the file out of an ISO 9660 image without the kernel's help.
func readISO(device string) ([]byte, error) {
	file, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	image, err := io.ReadAll(io.LimitReader(file, maxDrive))
	if err != nil {
		return nil, err
	}
	return media.ReadISOFile(image, driveFile, maxData)
}

func isLabel(b []byte) bool {
	return strings.EqualFold(strings.TrimRight(string(b), " \x00"), driveLabel)
}

func readDrive(device, kind string) ([]byte, error) {
	at, err := os.MkdirTemp("", "config-2-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(at)
	if err := unix.Mount(device, at, kind, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		if kind == kindISO { // Linux mounts none from sectors of 4096 bytes, as other deployers and former agents wrote them
			if text, err := readISO(device); err == nil {
				return text, nil
			}
		}
		return nil, problem.Unavailablef("mount config drive %s (%s): %w", device, kind, err)
	}
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	// A link on the drive must not lead out of it.
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.Open(driveFile)
	if err != nil {
		return nil, problem.NotFoundf("config drive %s: %w", device, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxData+1))
	if err != nil {
		return nil, problem.Unavailablef("config drive %s: %w", device, err)
	}
	if len(text) > maxData {
		return nil, problem.Invalidf("config drive %s: %s is longer than %d bytes", device, driveFile, maxData)
	}
	return text, nil
}
