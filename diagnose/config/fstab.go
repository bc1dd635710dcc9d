package config

import (
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
)

const FstabPath = "/etc/fstab"

// FstabLine is one entry of /etc/fstab, in the fields of fstab(5). Octal escapes are decoded.
type FstabLine struct {
	Source, Target, Type string
	Options              []string
	Pass                 int
	Line                 int // from 1
	Text                 string
	Fields               int // how many the line has
}

// MaxTableLines bounds the entries that are read of /etc/fstab and /etc/crypttab.
const MaxTableLines = 1000

// TableLines returns the lines of a file such as /etc/fstab that end in its first MaxSmallFile bytes. Rules read such a file once for each of its
// entries.
func TableLines(s *diagnose.System, name string) []string {
	b, _, err := s.Files.ReadHead(name, MaxSmallFile)
	if err != nil || len(b) == 0 {
		return nil
	}
	return diagnose.SplitLines(string(b))
}

// ParseFstab returns the entries, MaxTableLines at most. One with fewer than three fields is returned with what it has.
func ParseFstab(lines []string) []FstabLine {
	var out []FstabLine
	for i, text := range lines {
		fields := strings.Fields(text)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(out) >= MaxTableLines {
			break
		}
		at := slices.IndexFunc(fields, func(f string) bool { return f[0] == '#' })
		if at >= 4 { // what follows the options may be a comment
			fields = fields[:at]
		}
		e := FstabLine{Line: i + 1, Text: text, Fields: len(fields)}
		get := func(n int) string {
			if n < len(fields) {
				return diagnose.UnescapeOctal(fields[n])
			}
			return ""
		}
		e.Source, e.Target, e.Type = get(0), get(1), get(2)
		e.Options = strings.Split(get(3), ",")
		e.Pass, _ = strconv.Atoi(get(5))
		out = append(out, e)
	}
	return out
}

// Has says whether one of the options is set, with or without a value.
func (e *FstabLine) Has(options ...string) bool {
	return slices.ContainsFunc(e.Options, func(o string) bool {
		name, _, _ := strings.Cut(o, "=")
		return slices.Contains(options, name)
	})
}

// IsBind says whether the entry shows or changes what is mounted elsewhere, and mounts no file system of its own: mount(8) ignores the type
// of such an entry, which is "none" by custom.
func (e *FstabLine) IsBind() bool {
	return e.Has("bind", "rbind") || e.Type == "bind" || e.Type == "rbind" ||
		e.Type == "none" && e.Has("move", "remount", "shared", "rshared", "private", "rprivate", "slave", "rslave", "unbindable", "runbindable")
}

// Option returns the value of an option.
func (e *FstabLine) Option(name string) (string, bool) {
	for _, o := range e.Options {
		if value, found := strings.CutPrefix(o, name+"="); found {
			return value, true
		}
	}
	return "", false
}

// IsWaitedFor: the boot waits for the mount and fails without it.
func (e *FstabLine) IsWaitedFor() bool {
	return !e.Has("noauto", "nofail", "x-systemd.automount", "x-initrd.attach")
}

func (e *FstabLine) IsSwap() bool { return e.Type == "swap" }

// IsNetwork: the file system or its device comes over a network.
func (e *FstabLine) IsNetwork() bool {
	return e.Has("_netdev") || slices.Contains(NetworkTypes, e.Type) || strings.HasPrefix(e.Source, "//") ||
		(strings.Contains(e.Source, ":/") && !strings.HasPrefix(e.Source, "/"))
}

var NetworkTypes = []string{"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "afs", "9p", "ncpfs", "gfs", "gfs2",
	"ocfs2", "lustre", "davfs", "fuse.ceph"}

func (e *FstabLine) Evidence() diagnose.Evidence { return FileEvidence(FstabPath, e.Line, e.Text) }

// Place says where the entry is mounted, for a title.
func (e *FstabLine) Place() string {
	if e.IsSwap() {
		return "swap space"
	}
	return e.Target
}

// Stage of a failure of this mount: the initramfs mounts / and /usr, the init system the rest.
func (e *FstabLine) Stage() diagnose.Stage {
	if e.Target == "/" || e.Target == "/usr" {
		return diagnose.Root
	}
	return diagnose.Target
}

// MountSeverity is what a failure of this mount does to the boot.
func (e *FstabLine) MountSeverity(s *diagnose.System) diagnose.Severity {
	switch {
	case e.Has("noauto", "x-systemd.automount"):
		return diagnose.Info
	case !e.IsWaitedFor():
		return diagnose.Info
	case e.IsSwap() || e.IsNetwork(): // neither is required by local-fs.target
		return diagnose.Degrades
	case e.Target == "/" || e.Target == "/usr" || UsesSystemd(s.Files) || e.Pass != 0:
		return diagnose.BlocksBoot
	}
	return diagnose.Degrades
}

// IsEssential: the system does not work without what is below the mount point, so it is never mounted with nofail.
func (e *FstabLine) IsEssential() bool {
	return slices.Contains([]string{"/", "/usr", "/var", "/boot", "/etc"}, e.Target)
}

// MountableTypes are contents that a line of fstab may be corrected to.
var MountableTypes = map[string]bool{"ext2": true, "ext3": true, "ext4": true, "xfs": true, "btrfs": true, "vfat": true, "f2fs": true, "jfs": true}

// IsContainer: content that is never mounted itself.
func IsContainer(kind string) bool {
	return slices.Contains([]string{"crypto_LUKS", "LVM2_member", "linux_raid_member", "swap"}, kind)
}

func TypeGroup(kind string) string {
	switch kind {
	case "ext2", "ext3", "ext4":
		return "ext"
	case "vfat", "msdos", "umsdos":
		return "fat"
	case "ntfs", "ntfs3", "ntfs-3g":
		return "ntfs"
	case "swap", "swsuspend", "swap_suspend":
		return "swap"
	}
	return ""
}

// Options of mount(8), and those that only systemd, dracut or other tools read.
var mountOptions = strings.Fields(`defaults auto noauto user nouser users group owner exec noexec suid nosuid dev nodev ro rw sync async dirsync atime noatime
	diratime nodiratime relatime norelatime strictatime nostrictatime lazytime nolazytime iversion noiversion mand nomand silent loud remount bind rbind move
	nofail _netdev _rnetdev comment context fscontext defcontext rootcontext seclabel nosymfollow symfollow loop offset sizelimit encryption pri discard quota
	noquota usrquota grpquota prjquota uquota gquota pquota usrjquota grpjquota jqfmt noswap fsc sw helper uhelper shared private slave unbindable rshared rprivate
	rslave runbindable errors nofailure umask fmask dmask uid gid mode size nr_inodes`)

// Options of file systems, from the kernel's documentation of each.
var typeOptions = map[string][]string{
	"ext": strings.Fields(`acl noacl user_xattr nouser_xattr barrier nobarrier bsddf minixdf grpid bsdgroups nogrpid sysvgroups resgid resuid sb data commit
		journal_dev journal_path journal_checksum nojournal_checksum journal_async_commit delalloc nodelalloc noload norecovery stripe max_batch_time min_batch_time
		journal_ioprio auto_da_alloc noauto_da_alloc nodiscard init_itable noinit_itable inode_readahead_blks max_dir_size_kb i_version dax nombcache
		no_mbcache block_validity noblock_validity dioread_lock dioread_nolock nodioread_nolock check nocheck debug oldalloc orlov abort test_dummy_encryption
		inlinecrypt prefetch_block_bitmaps no_prefetch_block_bitmaps mb_optimize_scan nowarn_on_error warn_on_error bh nobh nouid32 extents reservation noreservation
		xip debug_want_extra_isize journal extent mballoc nomballoc`),
	"xfs": strings.Fields(`allocsize attr2 noattr2 barrier nobarrier dax filestreams grpid bsdgroups nogrpid sysvgroups ikeep noikeep inode32 inode64 largeio
		nolargeio logbufs logbsize logdev rtdev noalign norecovery nouuid osyncisdsync sunit swidth swalloc wsync nodiscard uqnoenforce gqnoenforce pqnoenforce
		qnoenforce max_atomic_write lifetime nolifetime biosize`),
	"btrfs": strings.Fields(`acl noacl autodefrag noautodefrag barrier nobarrier check_int check_int_data check_int_print_mask clear_cache commit compress
		compress-force datacow nodatacow datasum nodatasum degraded device nodiscard enospc_debug noenospc_debug fatal_errors flushoncommit noflushoncommit
		fragment nologreplay max_inline metadata_ratio norecovery rescan_uuid_tree rescue skip_balance space_cache nospace_cache ssd ssd_spread nossd nossd_spread
		subvol subvolid subvolrootid thread_pool treelog notreelog usebackuproot recovery user_subvol_rm_allowed inode_cache noinode_cache ref_verify
		ignorebadroots ignoredatacsums alloc_start`),
	"fat": strings.Fields(`allow_utime codepage iocharset utf8 noutf8 check nocase quiet showexec debug sys_immutable flush usefree tz nfs rodir shortname
		uni_xlate nonumtail nodots dotsOK posix time_offset blocksize conv dos1xfloppy noextend cvf_format cvf_options fat sys_immutable`),
}

// InvalidOption returns the first option that a file system refuses, and the known one that it was probably meant to be.
func InvalidOption(e *FstabLine) (bad, like string) {
	group := TypeGroup(e.Type)
	if e.Type == "xfs" || e.Type == "btrfs" {
		group = e.Type
	}
	own, known := typeOptions[group]
	for _, o := range e.Options {
		name, _, _ := strings.Cut(o, "=")
		if name == "" || strings.HasPrefix(name, "x-") || strings.HasPrefix(name, "X-") || slices.Contains(mountOptions, name) || slices.Contains(own, name) {
			continue
		}
		if _, err := strconv.Atoi(name); err == nil && known && e.Fields >= 4 {
			return name, ""
		}
		for _, option := range slices.Concat(mountOptions, own) {
			if len(name) >= 5 && len(option) >= 5 && isTypo(name, option) {
				return name, option
			}
		}
		if known {
			return name, ""
		}
	}
	return "", ""
}

// isTypo says whether one letter was left out, added, changed, or swapped with its neighbour.
func isTypo(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 || a == b {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) < len(b) {
		return a[i:] == b[i+1:]
	}
	if a[i+1:] == b[i+1:] {
		return true
	}
	return i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}

// IsMountable says whether a line of /etc/fstab may be corrected to a type that a probe found.
func IsMountable(kind string) bool { return MountableTypes[kind] }

// WaitOptions are the options of fstab(5) with which a boot goes on without a device.
func WaitOptions(t *diagnose.Tree) []string {
	if UsesSystemd(t) {
		return []string{"nofail", "x-systemd.device-timeout=10s"}
	}
	return []string{"nofail"} // the mount of busybox gives other options to the kernel
}

// CorrectOption returns the option of a line of /etc/fstab that its file system refuses, and the known one that was probably meant; both are
// empty where none is.
func CorrectOption(line string) (bad, like string) {
	entries := ParseFstab([]string{line})
	if len(entries) != 1 {
		return "", ""
	}
	return InvalidOption(&entries[0])
}
