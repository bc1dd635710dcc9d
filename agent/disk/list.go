package disk

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	wire "salvor/wire/agent"
)

// Found is a disk as sysfs shows it.
type Found struct {
	wire.Disk
	ReadOnly bool
}

// notDisks are kernel names of what is no disk of the machine.
var notDisks = []string{"loop", "ram", "zram", "sr", "fd", "md", "dm-", "nbd", "mtdblock", "drbd", "rbd"}

// virtualMedia are models by which BMCs show an image as a disk.
var virtualMedia = []string{"virtual hdisk", "virtual floppy", "virtual cd", "virtual media", "virtual disc", "vflash"}

// List gives the disks below root/sys, ordered by name. Removable ones, virtual media
// and what the kernel makes up of others are left out.
func List(root string) ([]Found, error) {
	top := filepath.Join("/", root, "sys/block")
	entries, err := os.ReadDir(top)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, e := range entries {
		name := e.Name()
		if slices.ContainsFunc(notDisks, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		s := sysDisk{dir: filepath.Join(top, name), name: name}
		if f := s.read(); f.Size > 0 && s.number("removable") == 0 && !isVirtualMedia(f.Disk) && s.number("hidden") == 0 {
			found = append(found, f)
		}
	}
	return found, nil
}

func isVirtualMedia(d wire.Disk) bool {
	model := strings.ToLower(d.Model)
	return slices.ContainsFunc(virtualMedia, func(v string) bool { return strings.Contains(model, v) })
}

// sysDisk is one folder of /sys/block.
type sysDisk struct{ dir, name string }

func (s sysDisk) text(path string) string {
	b, err := os.ReadFile(filepath.Join(s.dir, path))
	if err != nil || len(b) > 4096 {
		return ""
	}
	return strings.TrimSpace(strings.Trim(strings.ToValidUTF8(string(b), ""), "\x00"))
}

func (s sysDisk) number(path string) int64 {
	n, _ := strconv.ParseInt(s.text(path), 10, 64)
	return n
}

func (s sysDisk) read() Found {
	d := wire.Disk{
		Name: "/dev/" + strings.ReplaceAll(s.name, "!", "/"), Model: s.text("device/model"), Size: s.number("size") * 512,
		Rotational: s.number("queue/rotational") != 0, Vendor: present(s.text("device/vendor")), Serial: present(s.serial()),
		LogicalSectors: s.number("queue/logical_block_size"), PhysicalSectors: s.number("queue/physical_block_size"),
		HCTL: present(s.hctl()), ByPath: present(s.byPath()),
	}
	s.worldWideNames(&d)
	return Found{Disk: d, ReadOnly: s.number("ro") != 0}
}

// serial is where the kernel keeps it: virtio in the disk's own folder, NVMe with the
// device, SCSI and ATA as page 0x80 with a header of 4 bytes.
func (s sysDisk) serial() string {
	for _, path := range []string{"serial", "device/serial"} {
		if text := s.text(path); text != "" {
			return text
		}
	}
	page, err := os.ReadFile(filepath.Join(s.dir, "device/vpd_pg80"))
	if err != nil || len(page) < 4 {
		return ""
	}
	n := min(int(page[2])<<8|int(page[3]), len(page)-4)
	return strings.TrimSpace(strings.ToValidUTF8(string(page[4:4+n]), ""))
}

// worldWideNames follows udev: an NAA name of 16 digits is all of it, one of 32 has the
// vendor's extension behind it; NVMe names are taken whole.
func (s sysDisk) worldWideNames(d *wire.Disk) {
	name := strings.ToLower(s.text("device/wwid"))
	if name == "" {
		name = strings.ToLower(s.text("wwid"))
	}
	digits, naa := strings.CutPrefix(name, "naa.")
	switch {
	case naa && len(digits) > 16:
		d.WWN, d.WWNVendorExtension, d.WWNWithExtension = present("0x"+digits[:16]), present("0x"+digits[16:]), present("0x"+digits)
	case naa:
		d.WWN, d.WWNWithExtension = present("0x"+digits), present("0x"+digits)
	case strings.HasPrefix(name, "eui.") || strings.HasPrefix(name, "nvme."):
		d.WWN, d.WWNWithExtension = present(name), present(name)
	}
}

var address = regexp.MustCompile(`^\d+:\d+:\d+:\d+$`)

func (s sysDisk) hctl() string {
	target, err := os.Readlink(filepath.Join(s.dir, "device"))
	if base := filepath.Base(target); err == nil && address.MatchString(base) {
		return base
	}
	return ""
}

var (
	pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	ataPort    = regexp.MustCompile(`^ata(\d+)$`)
)

// byPath names the disk as udev's path_id does, for the buses that servers have.
func (s sysDisk) byPath() string {
	real, err := filepath.EvalSymlinks(filepath.Join(s.dir, "device"))
	if err != nil {
		return ""
	}
	pci, port, scsi := "", "", ""
	for _, part := range strings.Split(real, "/") {
		switch {
		case pciAddress.MatchString(part):
			pci = part
		case ataPort.MatchString(part):
			port = ataPort.FindStringSubmatch(part)[1]
		case address.MatchString(part):
			scsi = part
		}
	}
	if pci == "" {
		return ""
	}
	path := "/dev/disk/by-path/pci-" + pci
	switch {
	case strings.HasPrefix(s.name, "nvme"):
		return path + "-nvme-" + s.text("nsid")
	case port != "":
		return path + "-ata-" + s.ataPort(real, port)
	case scsi != "":
		return path + "-scsi-0:" + strings.SplitN(scsi, ":", 2)[1]
	}
	return path
}

// ataPort counts ports from 1 in each controller, as udev does; the kernel counts on.
func (s sysDisk) ataPort(real, port string) string {
	at := strings.Index(real, "/ata"+port+"/")
	if at < 0 {
		return port
	}
	b, err := os.ReadFile(filepath.Join(real[:at], "ata"+port, "ata_port", "ata"+port, "port_no"))
	if err != nil {
		return port
	}
	return strings.TrimSpace(string(b))
}

// Partitions of the kernel: start and length in bytes, by /sys/block/NAME.
func kernelPartitions(root, name string) [][2]int64 {
	short := strings.ReplaceAll(strings.TrimPrefix(name, "/dev/"), "/", "!")
	top := filepath.Join("/", root, "sys/block", short)
	entries, err := os.ReadDir(top)
	if err != nil {
		return nil
	}
	var out [][2]int64
	for _, e := range entries {
		s := sysDisk{dir: filepath.Join(top, e.Name())}
		if strings.HasPrefix(e.Name(), short) && s.number("partition") > 0 {
			out = append(out, [2]int64{s.number("start") * 512, s.number("size") * 512})
		}
	}
	return out
}

func present(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
