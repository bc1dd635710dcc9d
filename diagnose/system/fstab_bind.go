package system

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// bindMakesSource is the first release of systemd that makes the missing source of a bind mount as an empty folder (mount_enter_mounting).
const bindMakesSource = 233

// systemdRelease is the release of the system's systemd, by the name of its shared library; 0 where no name tells.
func systemdRelease(tree *diagnose.Tree) int {
	for _, folder := range append([]string{"/usr/lib/systemd", "/lib/systemd"}, tree.Match("/usr/lib", "*-linux-*")...) {
		for _, at := range []string{folder, path.Join(folder, "systemd")} {
			for _, name := range tree.Match(at, "libsystemd-shared-*.so") {
				number := strings.TrimPrefix(path.Base(name), "libsystemd-shared-")
				end := strings.IndexFunc(number, func(r rune) bool { return r < '0' || r > '9' })
				if n, err := strconv.Atoi(number[:max(end, 0)]); err == nil {
					return n
				}
			}
		}
	}
	return 0
}

// madeAtBoot are folders that each boot makes and fills, so that what is missing below them on the disk says nothing.
var madeAtBoot = []string{"/run", "/proc", "/sys", "/dev", "/tmp", "/var/run"}

// isMadeAtBoot says whether a path is one of the folders that each boot makes, or lies below one.
func isMadeAtBoot(name string) bool {
	return slices.ContainsFunc(madeAtBoot, func(folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") })
}

// lookBindSources finds entries that show a folder elsewhere which does not exist.
func lookBindSources(s *diagnose.System) []diagnose.Finding {
	var out []diagnose.Finding
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		source := path.Clean(e.Source)
		if e.Fields < 3 || !e.IsBind() || e.Has("remount", "move") || !path.IsAbs(source) || isMadeAtBoot(source) {
			continue
		}
		if _, err := s.Files.Stat(source); !config.IsNotExist(err) || mountMayHold(s, source) {
			continue
		}
		f := diagnose.Finding{
			ID: "fstab-bind-source-missing", Stage: e.Stage(), Severity: e.MountSeverity(s), Confidence: 0.85,
			Title:    fmt.Sprintf("Line %d of /etc/fstab shows %s at %s, and %s does not exist.", e.Line, source, e.Target, source),
			Evidence: []diagnose.Evidence{e.Evidence(), config.FileEvidence(source, 0, "it does not exist")},
			ByHand:   fmt.Sprintf("Mount or restore what belongs at %s; without it, what uses %s starts with an empty folder.", source, e.Target),
		}
		if config.UsesSystemd(s.Files) && systemdRelease(s.Files) >= bindMakesSource && isBlocking(f.Severity) {
			f.Severity = diagnose.Degrades
			f.Title = fmt.Sprintf("Line %d of /etc/fstab shows %s at %s, and %s does not exist, so that systemd makes an empty folder there.", e.Line, source, e.Target, source)
		}
		if isBlocking(f.Severity) && !e.IsEssential() {
			f.Repair = addNofail(&e)
		}
		out = append(out, f)
	}
	return out
}

// addNofail is the repair that adds nofail to a line of /etc/fstab.
func addNofail(e *config.FstabLine) *diagnose.Repair {
	return mayLose(repairFiles(fmt.Sprintf("Add nofail to the options of line %d of /etc/fstab, so that the boot goes on without it.", e.Line), config.FstabPath), losesMount(e.Target))
}

// losesMount says what may be lost where the boot goes on without what belongs at a place.
func losesMount(place string) string {
	return fmt.Sprintf("Programs that store data below %s start with the empty folder of another file system, and write there.", place)
}

// lookMissingFstab finds a system that never makes its root writable: the kernel mounts the root read-only, and systemd mounts it again by the
// line of /etc/fstab for it.
func lookMissingFstab(s *diagnose.System) []diagnose.Finding {
	root, e := config.RootDevice(s), defaultEntry(loadEntries(s))
	if root == nil || e == nil || e.Kernel.Path == "" || e.Loader == bySystemdBoot || !config.UsesSystemd(s.Files) || !config.MountableTypes[root.FS] {
		return nil // systemd-boot tells systemd of the root, which is then mounted for writing
	}
	for _, option := range e.Options {
		if name, _, _ := strings.Cut(option, "="); slices.Contains([]string{"rw", "ostree", "overlayroot", "systemd.volatile", "nfsroot", "rd.live.image", "boot"}, name) {
			return nil
		}
	}
	_, err := s.Files.Lstat(config.FstabPath)
	if !config.IsNotExist(err) && (err != nil || len(config.ParseFstab(config.TableLines(s, config.FstabPath))) > 0) {
		return nil // a file with entries names the root, or somebody chose otherwise
	}
	text := "it does not exist"
	if err == nil {
		text = "it has no entry"
	}
	if config.UnitEnabled(s.Files, "-.mount") || config.UnitFile(s.Files, "-.mount") != "" {
		return nil
	}
	f := diagnose.Finding{
		ID: "fstab-missing", Stage: diagnose.Target, Severity: diagnose.Degrades, Confidence: 0.85,
		Title:    "The file /etc/fstab does not name the root, so that it stays read-only and nothing else is mounted: " + text + ".",
		Evidence: []diagnose.Evidence{config.FileEvidence(config.FstabPath, 0, text), config.FileEvidence(e.File, max(e.OptionsLine, e.Line), "the kernel is not told to mount the root for writing")},
		ByHand:   fmt.Sprintf("Restore /etc/fstab from a backup, or write at least: UUID=%s / %s defaults 0 1.", root.UUID, root.FS),
	}
	if RootLine(s) != "" {
		f.Repair = mayLose(repairFiles("Write a line for the root into /etc/fstab.", config.FstabPath), "The root is mounted for writing, which someone may have kept it from on purpose. Other file systems that /etc/fstab named stay unmounted, so that programs write into empty folders.")
	}
	return []diagnose.Finding{f}
}

// RootLine is the line of /etc/fstab that mounts the root for writing. The line is empty where the root needs more than its device, such as a
// subvolume, and where /etc/fstab is a link.
func RootLine(s *diagnose.System) string {
	root := config.RootDevice(s)
	if info, err := s.Files.Lstat(config.FstabPath); root == nil || root.UUID == "" || err == nil && !info.Mode().IsRegular() || !slices.Contains([]string{"ext2", "ext3", "ext4", "xfs"}, root.FS) {
		return ""
	}
	return fmt.Sprintf("UUID=%s / %s defaults 0 1", root.UUID, root.FS)
}
