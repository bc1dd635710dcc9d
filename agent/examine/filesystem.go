package examine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
)

const (
	maxMounts   = 64               // that exist at one time
	checkBudget = 60 * time.Second // of all checks of file systems together
	maxVolumes  = 200              // subvolumes of a btrfs that are listed
)

// fileSystem is how a file system is mounted and checked.
type fileSystem struct {
	kernel  string // the name that mount(2) knows
	options string
	// check is the command without its device; damaged says whether its exit status and output mean damage.
	check   []string
	damaged func(exit int, out string) bool
	// checkNeedsMount: the checker calls a journal damage that no mount has replayed.
	checkNeedsMount bool
}

// An ext4 that wants the kernel to panic over its errors does not get its way.
var extended = fileSystem{kernel: "ext4", options: "errors=remount-ro", check: []string{"e2fsck", "-fn"}, damaged: func(exit int, _ string) bool { return exit&4 != 0 }}

// fileSystems are those that are mounted, by blkid's names.
var fileSystems = map[string]fileSystem{
	"ext2": extended, "ext3": extended, "ext4": extended,
	// Two disks may hold copies of one file system.
	"xfs":     {kernel: "xfs", options: "nouuid", check: []string{"xfs_repair", "-n"}, damaged: func(exit int, _ string) bool { return exit == 1 }, checkNeedsMount: true},
	"btrfs":   {kernel: "btrfs", check: []string{"btrfs", "check", "--readonly"}, damaged: func(exit int, _ string) bool { return exit == 1 }},
	"vfat":    {kernel: "vfat", check: []string{"fsck.fat", "-n"}, damaged: fatDamaged},
	"iso9660": {kernel: "iso9660"},
}

// fatHarmless are lines of fsck.fat about a volume that was not unmounted, which every crash leaves, about counters that are only hints, about room that
// no file uses, and about its own tables of character sets.
var fatHarmless = regexp.MustCompile(`^(fsck\.fat .*|.*[Dd]irty bit.*|There are differences between boot sector and its backup.*|This is mostly harmless.*|\s*(\d+:\w\w/\w\w,?\s*)+|\s*Not automatically fixing this\.|` +
	`Cannot initialize conversion .*|Using internal CP\d+ conversion table|Reclaimed \d+ unused clusters? .*|` +
	`Free cluster summary (wrong|uninitialized).*|\s*Auto-?(correcting|setting)\.|Leaving filesystem unchanged\.|.*: \d+ files, \d+/\d+ clusters|Warning: .*|\s*)$`)

// fatDamaged says whether fsck.fat found more than a volume that was not unmounted.
func fatDamaged(exit int, out string) bool {
	if exit != 1 {
		return false
	}
	for line := range strings.Lines(out) {
		if !fatHarmless.MatchString(strings.TrimRight(line, "\r\n")) {
			return true
		}
	}
	return false
}

// checkFailed are texts of xfs_repair and btrfs check about what they could not read or had no room for. They exit with 1 then, as for damage.
var checkFailed = regexp.MustCompile(`(?i)(cannot|can't|couldn't|could not|failed to) open|devi(ce|d) .*missing|missing .*device|external log|(allocate|enough|out of|insufficient) memory|memory available|malloc`)

// doubt says why what a checker calls damage may be none; empty without a reason.
func (fs fileSystem) doubt(mounted bool, out string) string {
	if line := checkFailed.FindString(out); line != "" && (fs.kernel == "xfs" || fs.kernel == "btrfs") {
		return fmt.Sprintf("%s says %q", fs.check[0], line)
	}
	if fs.checkNeedsMount && !mounted {
		return "it does not mount, so its journal is not replayed"
	}
	return ""
}

// noFileSystem are contents that hold no files by themselves.
var noFileSystem = []string{"swap", "swsuspend", "linux_raid_member", "LVM2_member", "crypto_LUKS"}

// newFeature is what kernels say of a file system that is newer than they are.
var newFeature = regexp.MustCompile(`(?i)(unsupported|unknown|unrecognized)[a-z -]*(optional |incompat[a-z]* |compat[a-z]* )?features?|superblock has unknown`)

// mountable are the devices with a file system that is mounted. Of a btrfs on several devices it is the first one.
func (x *examinationRun) mountable() []*device {
	var out []*device
	pools := map[string]bool{}
	for _, d := range x.devices {
		if _, ok := fileSystems[d.FS]; !ok || d.node == "" || d.NotExamined != "" {
			continue
		}
		if d.FS == "btrfs" && d.UUID != "" {
			if pools[d.UUID] {
				continue
			}
			pools[d.UUID] = true
		}
		out = append(out, d)
	}
	return out
}

// checkFileSystems replays each journal by a mount in the overlay, and then has the checker look.
func (x *examinationRun) checkFileSystems(ctx context.Context) {
	for _, d := range x.devices {
		if _, ok := fileSystems[d.FS]; !ok && d.FS != "" && d.node != "" && d.NotExamined == "" && !slices.Contains(noFileSystem, d.FS) {
			why := notAssembled[d.FS]
			if why == "" {
				why = fmt.Sprintf("a file system of type %s is not examined", d.FS)
			}
			d.NotExamined = diagnose.Excerpt(why)
			x.gap(d.Path, "%s", why)
		}
	}
	x.refuseExternalJournals()
	x.refuseUsedPools("/sys/fs/btrfs")
	until := time.Now().Add(checkBudget)
	for _, d := range x.mountable() {
		if x.timeIsOver(ctx) {
			return
		}
		place, err := x.mountDevice(ctx, d, "")
		if err == nil {
			if err := x.unmount(place); err != nil {
				x.gap(d.Path, "unmount it: %v", err)
				continue
			}
		}
		if fs := fileSystems[d.FS]; d.NotExamined == "" && fs.check != nil {
			x.check(ctx, d, fs, err == nil, until)
		}
	}
}

// refuseExternalJournals leaves out each ext file system whose journal is on another device: the kernel finds that device by its number and
// e2fsck by its UUID, so both may take a disk without an overlay.
func (x *examinationRun) refuseExternalJournals() {
	for _, d := range x.devices {
		if fileSystems[d.FS].kernel != extended.kernel || d.node == "" || d.NotExamined != "" {
			continue
		}
		block, err := readSuperblock(d.node)
		if err == nil && hasExternalJournal(block) {
			d.NotExamined = "the journal of its file system is on another device"
			x.gap(d.Path, "%s", d.NotExamined)
		}
	}
}

// refuseUsedPools leaves out what the kernel would mix up, because it knows each device of a btrfs by two UUIDs alone: copies of a device, and
// a btrfs whose UUID is mounted in the ramdisk already.
func (x *examinationRun) refuseUsedPools(mounted string) {
	first := map[[2]string]*device{}
	for _, d := range x.devices {
		if d.FS != "btrfs" || d.node == "" || d.NotExamined != "" {
			continue
		}
		key := [2]string{d.UUID, d.member}
		switch _, err := os.Stat(filepath.Join(mounted, d.UUID)); {
		case !uuidText.MatchString(d.UUID):
			d.NotExamined = "blkid names no UUID of its btrfs"
		case !errors.Is(err, os.ErrNotExist):
			d.NotExamined = "a btrfs with its UUID is mounted in this ramdisk"
		case first[key] != nil:
			d.NotExamined = diagnose.Excerpt("a copy of " + first[key].Path)
		default:
			first[key] = d
			continue
		}
		x.gap(d.Path, "%s", d.NotExamined)
	}
}

// readSuperblock reads the superblock of an ext file system.
func readSuperblock(node string) ([]byte, error) {
	f, err := os.Open(node)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 1024)
	_, err = f.ReadAt(b, 1024)
	return b, err
}

// hasExternalJournal says whether an ext superblock is one of a journal device or names a journal outside of its file system.
func hasExternalJournal(block []byte) bool {
	if len(block) < 0xe8 || binary.LittleEndian.Uint16(block[0x38:]) != 0xef53 {
		return false
	}
	const hasJournal, journalDevice = 0x4, 0x8 // features, one compatible and one incompatible
	if binary.LittleEndian.Uint32(block[0x60:])&journalDevice != 0 {
		return true
	}
	// e2fsck looks for the device though the feature is not set, if there is a number or a UUID of one.
	named := binary.LittleEndian.Uint32(block[0x5c:])&hasJournal != 0 || binary.LittleEndian.Uint32(block[0xe4:]) != 0 || !bytes.Equal(block[0xd0:0xe0], make([]byte, 16))
	return named && binary.LittleEndian.Uint32(block[0xe0:]) == 0
}

func (x *examinationRun) check(ctx context.Context, d *device, fs fileSystem, mounted bool, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	args := append(slices.Clone(fs.check[1:]), d.node)
	said, err := x.tools.run(ctx, nil, fs.check[0], args...)
	if err != nil {
		x.gap(d.Path, "its file system is not checked fully: %v", err)
		return
	}
	if newFeature.MatchString(said.text) {
		x.gap(d.Path, "its file system is not checked: %s knows not all of its features", fs.check[0])
		return
	}
	damaged := fs.damaged(said.exit, said.text)
	if why := fs.doubt(mounted, said.text); damaged && why != "" {
		x.gap(d.Path, "its file system is not checked: %s", why)
		return
	}
	x.checks = append(x.checks, diagnose.Check{
		Device: d.Path, Command: append(slices.Clone(fs.check), d.Path), Exit: said.exit,
		Output: strings.ToValidUTF8(strings.ReplaceAll(said.text, d.node, d.Path), "?"), Damaged: damaged,
	})
}

// space asks how full a file system is.
func (x *examinationRun) space(d *device, place string) *diagnose.Space {
	var s unix.Statfs_t
	if err := unix.Statfs(place, &s); err != nil {
		return nil
	}
	out := &diagnose.Space{Size: int64(s.Blocks) * s.Bsize, Free: int64(s.Bfree) * s.Bsize, Inodes: s.Files, InodesFree: s.Ffree}
	switch d.FS {
	case "ext2", "ext3", "ext4":
		out.ReadOnlyFlags = extHasErrors(d.node)
		out.Free = max(0, out.Free-reservedClusters("/", d.node)*s.Bsize)
	case "btrfs":
		out.MetadataFull = metadataFull("/", d.UUID)
		out.Free = int64(s.Bavail) * s.Bsize // what is free in all counts room for metadata, which no file can have
	case "vfat", "iso9660":
		out.Inodes, out.InodesFree = 0, 0
	}
	return out
}

// reservedClusters are those of a mounted ext4 that the kernel keeps for itself. They count as free, and not even root can fill them.
func reservedClusters(root, node string) int64 {
	return max(0, sysNumber(filepath.Join(root, "sys/fs/ext4", filepath.Base(node), "reserved_clusters")))
}

// extHasErrors reads the state of an ext superblock: EXT4_ERROR_FS.
func extHasErrors(node string) bool {
	b, err := readSuperblock(node)
	if err != nil {
		return false
	}
	return binary.LittleEndian.Uint16(b[56:]) == 0xef53 && binary.LittleEndian.Uint16(b[58:])&2 != 0
}

// metadataFull reads from sysfs whether a mounted btrfs has neither room for metadata nor space that it could allocate for it.
func metadataFull(root, uuid string) bool {
	if !uuidText.MatchString(uuid) {
		return false
	}
	top := filepath.Join(root, "sys/fs/btrfs", uuid)
	total, used := sysNumber(filepath.Join(top, "allocation/metadata/total_bytes")), sysNumber(filepath.Join(top, "allocation/metadata/bytes_used"))
	if total == 0 {
		return false
	}
	var size, allocated int64
	devices, _ := filepath.Glob(filepath.Join(top, "devices/*/size"))
	for _, d := range devices {
		size += sysNumber(d) * 512
	}
	for _, kind := range []string{"data", "metadata", "system"} {
		allocated += sysNumber(filepath.Join(top, "allocation", kind, "disk_total"))
	}
	reserve := sysNumber(filepath.Join(top, "allocation/global_rsv_size"))
	return size-allocated < 16<<20 && total-used <= reserve
}
