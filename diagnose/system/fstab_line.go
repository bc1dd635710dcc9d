package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// builtinTypes are file systems that a kernel may have built in, or that a helper of util-linux or FUSE mounts.
var builtinTypes = strings.Fields(`auto none swap ignore tmpfs ramfs proc sysfs devpts devtmpfs mqueue hugetlbfs debugfs tracefs securityfs configfs pstore
	efivarfs bpf cgroup cgroup2 binfmt_misc fusectl fuse fuseblk overlay aufs bind squashfs erofs iso9660 udf ext2 ext3 ext4 xfs btrfs vfat msdos exfat ntfs ntfs3
	ntfs-3g f2fs jfs reiserfs nilfs2 bcachefs zfs zfsutil hfs hfsplus minix romfs cramfs ubifs jffs2 usbfs usbdevfs autofs rpc_pipefs nfsd apfs ecryptfs
	lxcfs virtiofs selinuxfs smackfs umsdos vboxsf prl_fs vmhgfs beegfs beegfs_nodev gpfs simfs rootfs`)

// lookMountLine finds entries that mount(8) refuses whatever the device holds.
func lookMountLine(s *diagnose.System, e *config.FstabLine, found []*diagnose.Device) *diagnose.Finding {
	finding := func(id, title string, confidence float64) *diagnose.Finding {
		f := &diagnose.Finding{ID: id, Stage: e.Stage(), Severity: e.MountSeverity(s), Confidence: confidence, Title: title, Evidence: []diagnose.Evidence{e.Evidence()}}
		if !e.IsEssential() {
			f.Repair = &diagnose.Repair{
				Summary: fmt.Sprintf("Make line %d of /etc/fstab a comment.", e.Line), Consent: diagnose.ConsentFiles, Writes: []string{config.FstabPath},
				Loses: fmt.Sprintf("Nothing is mounted at %s until the line is right.", e.Place()),
			}
			if e.IsSwap() {
				f.Repair.Loses = "The system has less swap space until the line is right."
			}
		} else {
			f.ByHand = fmt.Sprintf("Correct line %d of /etc/fstab; its fields are device, mount point, type, options, dump and pass.", e.Line)
		}
		return f
	}
	switch {
	case e.Fields < 3:
		f := finding("fstab-line-invalid", fmt.Sprintf("Line %d of /etc/fstab has %d of the fields device, mount point and type.", e.Line, e.Fields), 0.95)
		if !e.IsEssential() { // mount(8) and systemd leave out such a line
			f.Severity = diagnose.Degrades
		}
		return f
	case e.Target != "none" && e.Target != "swap" && !strings.HasPrefix(e.Target, "/") && !e.IsSwap() && e.Type != "ignore":
		f := finding("fstab-line-invalid", fmt.Sprintf("Line %d of /etc/fstab mounts at %s, which is no absolute path.", e.Line, e.Target), 0.8)
		f.Severity = diagnose.Degrades
		return f
	case e.IsBind(): // the kernel ignores the type, the device and the options of a file system that is mounted already
		return nil
	case !isKnownType(s, e.Type):
		return finding("fstab-type-unknown", fmt.Sprintf("Line %d of /etc/fstab mounts %s as the unknown file system %s.", e.Line, e.Place(), e.Type), 0.95)
	}
	if len(found) == 1 && !e.Has("loop") && !typeFits(e.Type, found[0].FS) {
		f := finding("fstab-type-wrong", fmt.Sprintf("Line %d of /etc/fstab mounts %s as %s, but %s holds %s.", e.Line, e.Place(), e.Type, found[0].Path, found[0].FS), 0.9)
		f.Evidence = append(f.Evidence, config.DeviceEvidence(found[0].Path, "its content is "+found[0].FS))
		if config.MountableTypes[found[0].FS] && !e.IsSwap() && !mayBeOther(s, e) {
			f.Repair = &diagnose.Repair{
				Summary: fmt.Sprintf(typeSummary+" %s into line %d of /etc/fstab.", found[0].FS, e.Line), Consent: diagnose.ConsentFiles, Writes: []string{config.FstabPath},
			}
			f.ByHand = ""
		}
		return f
	}
	if !e.Has("noauto") && path.IsAbs(e.Target) {
		if info, err := s.Files.Stat(e.Target); err == nil && !info.IsDir() && !e.IsSwap() && e.Type != "none" && e.Type != "ignore" {
			return finding("fstab-line-invalid", fmt.Sprintf("Line %d of /etc/fstab mounts at %s, which is no folder.", e.Line, e.Target), 0.9)
		}
		for _, option := range e.Options {
			unit, found := strings.CutPrefix(option, "x-systemd.requires=")
			if why := lostUnit(s.Files, unit); found && why != "" && config.UsesSystemd(s.Files) {
				f := finding("fstab-line-invalid", fmt.Sprintf("Line %d of /etc/fstab mounts %s only with the unit %s, which %s.", e.Line, e.Place(), unit, why), 0.85)
				f.Repair, f.ByHand = nil, fmt.Sprintf("Remove %s from the line, or install what brings the unit.", option)
				return f
			}
		}
	}
	if bad, like := config.InvalidOption(e); bad != "" {
		f := finding("fstab-option-invalid", fmt.Sprintf("Line %d of /etc/fstab mounts %s with the option %s, which %s does not know.", e.Line, e.Place(), bad, e.Type), 0.6)
		if like != "" {
			f.Confidence = 0.9
			f.Repair = &diagnose.Repair{
				Summary: fmt.Sprintf("Write %s instead of %s into line %d of /etc/fstab.", like, bad, e.Line), Consent: diagnose.ConsentFiles, Writes: []string{config.FstabPath},
			}
			f.ByHand = ""
		}
		return f
	}
	return nil
}

// typeSummary begins the summary of a repair that writes the type which a device has.
const typeSummary = "Write the type"

// WritesType says whether the repair of a finding writes the type which a device has.
func WritesType(f diagnose.Finding) bool {
	return f.Repair != nil && strings.HasPrefix(f.Repair.Summary, typeSummary)
}

// mayBeOther says whether an entry may mean another device than the one that has the name now: the kernel numbers the disks of a machine as it finds them.
func mayBeOther(s *diagnose.System, e *config.FstabLine) bool {
	disks := 0
	for i := range s.Devices {
		if s.Devices[i].Kind == diagnose.DiskDevice {
			disks++
		}
	}
	return disks > 1 && config.ParseDeviceName(e.Source).Kernel
}

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
	if slices.Contains(builtinTypes, kind) || slices.Contains(config.NetworkTypes, kind) || base == "fuse" || base == "fuseblk" {
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
	if group := config.TypeGroup(want); group != "" && group == config.TypeGroup(found) {
		return true
	}
	switch want {
	case "auto":
		return config.MountableTypes[found] || config.TypeGroup(found) != "" || !config.IsContainer(found)
	case "ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "swap":
		return !config.MountableTypes[found] && config.TypeGroup(found) == "" && !config.IsContainer(found)
	}
	return strings.Contains(want, ",") || !config.MountableTypes[found]
}

// lookMountDuplicates finds two entries for one place.
func lookMountDuplicates(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	all := config.ParseFstab(config.TableLines(s, config.FstabPath))
	for i := range all {
		e := &all[i]
		if !strings.HasPrefix(e.Target, "/") || e.IsSwap() || e.Has("noauto") || e.Fields < 3 {
			continue
		}
		at := slices.IndexFunc(all[:i], func(other config.FstabLine) bool {
			return other.Target == e.Target && !other.IsSwap() && !other.Has("noauto") && other.Fields >= 3
		})
		if at < 0 {
			continue
		}
		f := diagnose.Finding{
			ID: "fstab-duplicate", Stage: e.Stage(), Severity: diagnose.Degrades, Confidence: 0.7,
			Title:    fmt.Sprintf("Lines %d and %d of /etc/fstab both mount something at %s.", all[at].Line, e.Line, e.Target),
			Evidence: []diagnose.Evidence{all[at].Evidence(), e.Evidence()},
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
	all := config.ParseFstab(config.TableLines(s, config.FstabPath))
	for i := range all {
		e := &all[i]
		if e.Target != "/" || !slices.Contains(e.Options, "ro") || slices.Contains(e.Options, "rw") {
			continue
		}
		f := diagnose.Finding{
			ID: "fstab-root-read-only", Stage: diagnose.Target, Severity: diagnose.Degrades, Confidence: 0.85,
			Title:    fmt.Sprintf("Line %d of /etc/fstab leaves the root file system read-only.", e.Line),
			Evidence: []diagnose.Evidence{e.Evidence()},
			Repair: &diagnose.Repair{
				Summary: fmt.Sprintf("Remove the option ro from line %d of /etc/fstab.", e.Line), Consent: diagnose.ConsentFiles, Writes: []string{config.FstabPath},
			},
		}
		f.Repair.Loses = "The system writes to its root again. Someone may have made it read-only on purpose, such as to spare a memory card."
		// Systems that are meant to have a root without writes put /var elsewhere.
		if slices.ContainsFunc(all, func(other config.FstabLine) bool {
			return other.Target == "/var" || strings.HasPrefix(other.Target, "/var/") || other.Type == "overlay"
		}) || isMadeReadOnly(s.Files) {
			f.Severity, f.Repair = diagnose.Info, nil
		}
		return []diagnose.Finding{f}
	}
	return nil
}

// isMadeReadOnly says whether a tool of the system makes the root read-only: readonly-root of Red Hat, or overlayroot of Ubuntu.
func isMadeReadOnly(tree *diagnose.Tree) bool {
	readOnly, _ := config.LastSetting(config.ShellSettings(tree.Lines("/etc/sysconfig/readonly-root")), "READONLY")
	overlay, _ := config.LastSetting(config.ShellSettings(tree.Lines("/etc/overlayroot.conf")), "overlayroot")
	return strings.EqualFold(readOnly.Value, "yes") || overlay.Value != "" && overlay.Value != "disabled"
}
