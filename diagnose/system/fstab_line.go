package system

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
)

// builtinTypes are file systems that a kernel may have built in, or that a helper of util-linux or FUSE mounts.
var builtinTypes = strings.Fields(`auto none swap ignore tmpfs ramfs proc sysfs devpts devtmpfs mqueue hugetlbfs debugfs tracefs securityfs configfs pstore
	efivarfs bpf cgroup cgroup2 binfmt_misc fusectl fuse fuseblk overlay aufs bind squashfs erofs iso9660 udf ext2 ext3 ext4 xfs btrfs vfat msdos exfat ntfs ntfs3
	ntfs-3g f2fs jfs reiserfs nilfs2 bcachefs zfs zfsutil hfs hfsplus minix romfs cramfs ubifs jffs2 usbfs usbdevfs autofs rpc_pipefs nfsd apfs ecryptfs
	lxcfs virtiofs selinuxfs smackfs umsdos vboxsf prl_fs vmhgfs beegfs beegfs_nodev gpfs simfs rootfs`)

// lookMountLine finds entries that mount(8) refuses whatever the device holds.
func lookMountLine(s *diagnose.System, e *fstabLine, found []*diagnose.Device) *diagnose.Finding {
	finding := func(id, title string, confidence float64) *diagnose.Finding {
		f := &diagnose.Finding{ID: id, Stage: e.stage(), Severity: e.mountSeverity(s), Confidence: confidence, Title: title, Evidence: []diagnose.Evidence{e.evidence()}}
		if !e.isEssential() {
			f.Repair = &diagnose.Repair{
				Summary: fmt.Sprintf("Make line %d of /etc/fstab a comment.", e.Line), Consent: diagnose.ConsentFiles, Writes: []string{fstabPath},
				Loses: fmt.Sprintf("Nothing is mounted at %s until the line is right.", e.place()),
			}
		} else {
			f.ByHand = fmt.Sprintf("Correct line %d of /etc/fstab; its fields are device, mount point, type, options, dump and pass.", e.Line)
		}
		return f
	}
	switch {
	case e.Fields < 3:
		f := finding("fstab-line-invalid", fmt.Sprintf("Line %d of /etc/fstab has %d of the fields device, mount point and type.", e.Line, e.Fields), 0.95)
		if !e.isEssential() { // mount(8) and systemd leave out such a line
			f.Severity = diagnose.Degrades
		}
		return f
	case e.Target != "none" && e.Target != "swap" && !strings.HasPrefix(e.Target, "/") && !e.isSwap() && e.Type != "ignore":
		f := finding("fstab-line-invalid", fmt.Sprintf("Line %d of /etc/fstab mounts at %s, which is no absolute path.", e.Line, e.Target), 0.8)
		f.Severity = diagnose.Degrades
		return f
	case e.isBind(): // the kernel ignores the type, the device and the options of a file system that is mounted already
		return nil
	case !isKnownType(s, e.Type):
		return finding("fstab-type-unknown", fmt.Sprintf("Line %d of /etc/fstab mounts %s as the unknown file system %s.", e.Line, e.place(), e.Type), 0.95)
	}
	if len(found) == 1 && !e.has("loop") && !typeFits(e.Type, found[0].FS) {
		f := finding("fstab-type-wrong", fmt.Sprintf("Line %d of /etc/fstab mounts %s as %s, but %s holds %s.", e.Line, e.place(), e.Type, found[0].Path, found[0].FS), 0.9)
		f.Evidence = append(f.Evidence, deviceEvidence(found[0].Path, "its content is "+found[0].FS))
		if mountableTypes[found[0].FS] {
			f.Repair = &diagnose.Repair{
				Summary: fmt.Sprintf("Write the type %s into line %d of /etc/fstab.", found[0].FS, e.Line), Consent: diagnose.ConsentFiles, Writes: []string{fstabPath},
			}
			f.ByHand = ""
		}
		return f
	}
	if bad, like := invalidOption(e); bad != "" {
		f := finding("fstab-option-invalid", fmt.Sprintf("Line %d of /etc/fstab mounts %s with the option %s, which %s does not know.", e.Line, e.place(), bad, e.Type), 0.6)
		if like != "" {
			f.Confidence = 0.9
			f.Repair = &diagnose.Repair{
				Summary: fmt.Sprintf("Write %s instead of %s into line %d of /etc/fstab.", like, bad, e.Line), Consent: diagnose.ConsentFiles, Writes: []string{fstabPath},
			}
			f.ByHand = ""
		}
		return f
	}
	return nil
}

// mountableTypes are contents that a line of fstab may be corrected to.
var mountableTypes = map[string]bool{"ext2": true, "ext3": true, "ext4": true, "xfs": true, "btrfs": true, "vfat": true, "f2fs": true, "jfs": true}

// maxMountTypes bounds the types of one entry that are looked for.
const maxMountTypes = 8

// isKnownType says whether something on the system can mount a type, or whether that cannot be excluded. A name such as "none" is looked up
// before the prefix "no", by which a list of types excludes one.
func isKnownType(s *diagnose.System, kind string) bool {
	if strings.Count(kind, ",") >= maxMountTypes {
		return true
	}
	for one := range strings.SplitSeq(kind, ",") {
		excluded, isExcluded := strings.CutPrefix(one, "no")
		if isMounted(s, one) || isExcluded && isMounted(s, excluded) {
			return true
		}
	}
	return false
}

// isMounted says whether a kernel, a helper of mount(8) or a module of the system mounts one type.
func isMounted(s *diagnose.System, kind string) bool {
	base, _, _ := strings.Cut(kind, ".") // fuse.sshfs
	if slices.Contains(builtinTypes, kind) || slices.Contains(networkTypes, kind) || base == "fuse" || base == "fuseblk" {
		return true
	}
	for _, folder := range []string{"/sbin", "/usr/sbin", "/bin", "/usr/bin", "/usr/local/sbin"} {
		if s.Files.Exists(folder + "/mount." + kind) {
			return true
		}
	}
	for _, modules := range s.Files.Match("/lib/modules", "*") {
		if s.Files.Exists(modules+"/kernel/fs/"+kind) || s.Files.Exists(modules+"/kernel/fs/"+kind+".ko") {
			return true
		}
	}
	return false
}

// typeFits says whether a file system of a type in fstab can be what a probe found. What the probe does not name fits.
func typeFits(want, found string) bool {
	if found == "" || want == found {
		return true
	}
	if group := typeGroup(want); group != "" && group == typeGroup(found) {
		return true
	}
	switch want {
	case "auto":
		return mountableTypes[found] || typeGroup(found) != "" || !isContainer(found)
	case "ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "swap":
		return !mountableTypes[found] && typeGroup(found) == "" && !isContainer(found)
	}
	return strings.Contains(want, ",") || !mountableTypes[found]
}

// isContainer: content that is never mounted itself.
func isContainer(kind string) bool {
	return slices.Contains([]string{"crypto_LUKS", "LVM2_member", "linux_raid_member", "swap"}, kind)
}

func typeGroup(kind string) string {
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

// invalidOption returns the first option that a file system refuses, and the known one that it was probably meant to be.
func invalidOption(e *fstabLine) (bad, like string) {
	group := typeGroup(e.Type)
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

// lookMountDuplicates finds two entries for one place.
func lookMountDuplicates(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	all := parseFstab(tableLines(s, fstabPath))
	for i := range all {
		e := &all[i]
		if !strings.HasPrefix(e.Target, "/") || e.isSwap() || e.has("noauto") || e.Fields < 3 {
			continue
		}
		at := slices.IndexFunc(all[:i], func(other fstabLine) bool {
			return other.Target == e.Target && !other.isSwap() && !other.has("noauto") && other.Fields >= 3
		})
		if at < 0 {
			continue
		}
		f := diagnose.Finding{
			ID: "fstab-duplicate", Stage: e.stage(), Severity: diagnose.Degrades, Confidence: 0.7,
			Title:    fmt.Sprintf("Lines %d and %d of /etc/fstab both mount something at %s.", all[at].Line, e.Line, e.Target),
			Evidence: []diagnose.Evidence{all[at].evidence(), e.evidence()},
			ByHand:   "Remove the line that is not meant.",
		}
		if all[at].Source == e.Source {
			f.Severity = diagnose.Info
		}
		out = append(out, f)
	}
	return out
}

// lookRootReadOnly finds a root that fstab leaves read-only, unless the system was made for that.
func lookRootReadOnly(s *diagnose.System) []diagnose.Finding {
	all := parseFstab(tableLines(s, fstabPath))
	for i := range all {
		e := &all[i]
		if e.Target != "/" || !slices.Contains(e.Options, "ro") || slices.Contains(e.Options, "rw") {
			continue
		}
		f := diagnose.Finding{
			ID: "fstab-root-read-only", Stage: diagnose.Target, Severity: diagnose.Degrades, Confidence: 0.85,
			Title:    fmt.Sprintf("Line %d of /etc/fstab leaves the root file system read-only.", e.Line),
			Evidence: []diagnose.Evidence{e.evidence()},
			Repair: &diagnose.Repair{
				Summary: fmt.Sprintf("Remove the option ro from line %d of /etc/fstab.", e.Line), Consent: diagnose.ConsentFiles, Writes: []string{fstabPath},
			},
		}
		// Systems that are meant to have a root without writes put /var elsewhere.
		if slices.ContainsFunc(all, func(other fstabLine) bool {
			return other.Target == "/var" || strings.HasPrefix(other.Target, "/var/") || other.Type == "overlay"
		}) {
			f.Severity, f.Repair = diagnose.Info, nil
		}
		return []diagnose.Finding{f}
	}
	return nil
}
