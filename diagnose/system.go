package diagnose

import (
	"encoding/json"
	"io"
	"time"
)

// System is an installed operating system as its own boot would see it: the tree of its files, and the devices of its machine. The rules read
// it and change nothing.
type System struct {
	// Files is the tree below its root, with its other file systems mounted at their places. nil: no root was found, and the rules that
	// need one are not asked.
	Files *Tree
	// RuleTime bounds the time of one rule; 0: 20 s.
	RuleTime time.Duration
	// Root is the path of the device of its root file system; empty without one.
	Root string
	// RootDevice is Root by the name that the agent gave it; crypttab may give an opened container another one.
	RootDevice string
	// RootSubvolume is the path of the btrfs subvolume that holds the root; empty for the top of a btrfs and for other file systems.
	RootSubvolume string
	// Release is what its os-release says.
	Release Release
	// Devices are all block devices of the machine, parents before children.
	Devices []Device
	// Checks are what the checkers of file systems answered, read-only on overlays.
	Checks []Check
	Arrays []Array
	Groups []VolumeGroup
	Disks  []DiskHealth

	Firmware FirmwareState
	NICs     []NIC
	// NetworkData is the OpenStack network_data.json that the control plane knows for the machine; may be empty.
	NetworkData json.RawMessage
	// Memory of the machine in bytes; Corrected and Uncorrected are the memory errors that the kernel counted since the ramdisk's boot.
	Memory                 int64
	Corrected, Uncorrected int64
	// KernelArch is the architecture of the machine in Go's words: amd64, arm64.
	KernelArch string
	// Now is the time by the control plane's clock, Clock by the machine's own when that was asked.
	Now, Clock time.Time
	// Gaps lists what was not examined; a rule does not call missing what lies in a gap.
	Gaps []Gap
	// Asker runs the system's own checkers; nil where none may run. Asked lists what ran.
	Asker Asker
	Asked []Answer
}

// Release is read from /etc/os-release.
type Release struct {
	ID      string // debian, ubuntu, rhel, fedora, alpine, ...
	Like    []string
	Version string
	Pretty  string
}

// DeviceKind says what a block device is.
type DeviceKind string

// Kinds of devices.
const (
	DiskDevice      DeviceKind = "disk"
	PartitionDevice DeviceKind = "partition"
	ArrayDevice     DeviceKind = "array"  // of mdraid
	VolumeDevice    DeviceKind = "volume" // of LVM
	CryptDevice     DeviceKind = "crypt"  // an opened LUKS container
)

// Device is a block device of the machine.
type Device struct {
	// Path names it as the ramdisk's kernel names the disk itself, not its overlay: /dev/sda2, /dev/md0, /dev/mapper/vg-root.
	Path    string
	Kind    DeviceKind
	Parents []string // paths of the devices that it lies on
	Size    int64    // bytes
	Serial  string
	WWN     string
	// What a probe of its content found; FS is blkid's TYPE (ext4, crypto_LUKS, LVM2_member, linux_raid_member, swap, ...), empty where nothing was.
	FS, UUID, Label string
	// Of a partition. Type is the GUID or, in an MBR, the number as 0x83.
	PartUUID, PartLabel, PartType string
	PartNumber                    int
	PartStart                     int64 // bytes
	// Table is gpt or dos on a device with a partition table.
	Table string
	// MountedAt is its place in the system, such as / or /boot; empty where it is not mounted there.
	MountedAt string
	// Space of a mounted file system.
	Space *Space
	// Content reads through the overlay. It may be nil.
	Content io.ReaderAt
	// Subvolumes are the paths of a btrfs's subvolumes, Default the path of its default one.
	Subvolumes []string
	Default    string
	// Tree of a file system that was mounted by itself, such as an EFI system partition; may be nil.
	Tree *Tree
	// Places are the folders of an installed system, such as /boot, for which the file system holds the usual files. Known only where the file system was
	// mounted by itself.
	Places []string
	// NotExamined says why its content was not read; empty where it was.
	NotExamined string
	// MountError is what the kernel said when it did not mount the file system, with the overlay below it.
	MountError string
	// Drivers are the kernel's drivers between a disk and its bus, such as nvme, ahci or virtio_blk; empty where they are not known.
	Drivers []string
}

// Space is how full a file system is. Sizes are in bytes. Free counts what root may use too.
type Space struct {
	Size, Free    int64
	Inodes        uint64 // 0: the file system makes them as needed
	InodesFree    uint64
	MetadataFull  bool // btrfs: no room for metadata and nothing left to allocate
	ReadOnlyFlags bool // the superblock says that errors were found
}

// Check is what a checker of a file system answered.
type Check struct {
	Device  string
	Command []string
	Exit    int
	Output  string // at most 16 KiB
	// Damaged: the exit status says that the file system is not consistent after its journal was replayed.
	Damaged bool
}

// Array is an mdraid array.
type Array struct {
	Path, Name, UUID, Level string
	// Wanted and Present count its member devices.
	Wanted, Present int
	// Started is false where too few members were found.
	Started bool
	Members []ArrayMember
}

// ArrayMember is one device of an array.
type ArrayMember struct {
	Path   string
	Events uint64
	Role   string // active, spare, faulty
}

// VolumeGroup is a group of LVM.
type VolumeGroup struct {
	Name, UUID string
	// Missing lists the UUIDs of physical volumes that are not there.
	Missing    []string
	Size, Free int64 // bytes
	Volumes    []LogicalVolume
}

// LogicalVolume is a volume of a group; the percentages are 0 for what is no pool and no snapshot.
type LogicalVolume struct {
	Name, Path                   string
	Health                       string // lv_health_status of lvs
	DataPercent, MetadataPercent float64
}

// DiskHealth is what a disk says about itself.
type DiskHealth struct {
	Path, Model, Serial string
	// Failing: the disk predicts its own failure, or could not read what it was asked.
	Failing bool
	// Reasons are sentences, such as "it has 12 sectors that cannot be read".
	Reasons []string
	// Command and Exit of smartctl or nvme. Command is empty where only the kernel of the ramdisk gave the reasons.
	Command []string
	Exit    int
}

// FirmwareState is what the firmware has stored about booting.
type FirmwareState struct {
	// UEFI: the ramdisk was booted by UEFI; the rest is only known then.
	UEFI       bool
	Entries    []BootEntry
	Order      []uint16
	Current    uint16
	Next       *uint16
	SecureBoot bool
	// Revoked and Enrolled are SHA-256 digests of programs that the firmware or shim refuses or accepts whatever signature they have, in lower
	// case hex: those of the variables dbx and MokListXRT, and of db and MokListRT.
	Revoked, Enrolled []string
	// SBATLevel is what shim requires of the generations of boot loaders: lines of component and generation, as in the variable SbatLevelRT.
	// Empty: the ramdisk was not booted by a shim.
	SBATLevel string
	// ShimUnchecked: an owner has had shim start programs without a signature.
	ShimUnchecked bool
	// Crashes are what a kernel that died stored in the variables of the firmware, in no order.
	Crashes []CrashRecord
}

// CrashRecord is the end of a kernel's log, as efi-pstore stores it.
type CrashRecord struct {
	At   time.Time
	Text string // at most 64 KiB
}

// BootEntry is a Boot#### variable.
type BootEntry struct {
	Number uint16
	Name   string
	Active bool
	// PartUUID of the partition that holds Path, lower case; empty for entries that name no partition.
	PartUUID string
	// Path of the loader with backslashes, such as \EFI\debian\shimx64.efi.
	Path string
}

// NIC is a network interface with hardware behind it.
type NIC struct {
	MAC    string // lower case, with colons
	Driver string // the module, or without one the driver, that the ramdisk has for the interface
	// Names are those that systemd's udev would give it, in the order of its default policy: onboard, slot, path; then the kernel's.
	Names   []string
	Carrier bool
}

// Rule finds one thing, under one or several ids.
type Rule struct {
	// IDs lists the ids of all findings that Look makes.
	IDs []string
	// Files: the rule reads the tree and is not asked without one.
	Files bool
	// Supports lists ids of other rules. Where one of them was found, the evidence of this rule is added to that finding, and this rule adds none.
	Supports []string
	Look     func(*System) []Finding
}

// Run asks all rules about a system. A rule that fails badly, or takes too long, is a gap, because the disks of strangers decide what it reads. A file that could not be
// read is a gap too, and no finding is based on it.
func Run(rules []Rule, s *System) ([]Finding, []Gap) {
	var findings []Finding
	var gaps []Gap
	if s.Files != nil {
		s.Files.memo.begin()
		defer s.Files.memo.end()
	}
	for _, rule := range rules {
		if rule.Files && s.Files == nil {
			continue
		}
		found, gap := askRule(rule, s)
		findings = append(findings, found...)
		if gap != nil {
			gaps = append(gaps, *gap)
		}
	}
	findings = joinWitnesses(rules, findings)
	findings, unread := dropUnread(s.Files, findings)
	scrub(s.Files, findings)
	return findings, append(gaps, unread...)
}
