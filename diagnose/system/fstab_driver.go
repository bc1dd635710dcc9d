package system

import (
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// mountDrivers are the modules of file systems by the types of /etc/fstab. A type that is not listed may need another module, or none.
var mountDrivers = map[string]string{"vfat": "vfat", "ext4": "ext4", "xfs": "xfs", "btrfs": "btrfs", "f2fs": "f2fs", "exfat": "exfat", "ntfs3": "ntfs3", "jfs": "jfs", "squashfs": "squashfs"}

// lookMountDrivers finds entries of /etc/fstab whose file system the kernel cannot load, because a file forbids its module or because the kernel
// has none. A blacklist does not count: mount asks for a file system by its own name.
func lookMountDrivers(s *diagnose.System) []diagnose.Finding {
	b := readBootedModules(s)
	e := defaultEntry(loadEntries(s))
	if e == nil {
		return nil
	}
	var out []diagnose.Finding
	table, blocks := readMountTable(s), map[string]*driverBlock{}
	for i := range table.entries {
		m := &table.entries[i]
		module := mountDrivers[m.Type]
		if module == "" || config.FirstExisting(s.Files, "/sbin/mount."+m.Type, "/usr/sbin/mount."+m.Type) != "" || m.Target == "/" || m.Fields < 3 || !m.IsWaitedFor() || len(table.devices[i]) != 1 || b != nil && b.builtin[module] {
			continue
		}
		if root := config.RootDevice(s); root != nil && root.FS == m.Type { // the root has loaded the module, or a rule about the root names it
			continue
		}
		f := diagnose.Finding{ID: "fstab-driver-unavailable", Stage: m.Stage(), Severity: m.MountSeverity(s), Confidence: 0.85, Evidence: []diagnose.Evidence{m.Evidence()}}
		block, done := blocks[module]
		if !done {
			block = blockOf(s, e, module)
			blocks[module] = block
		}
		isForbidden := block != nil && (strings.HasPrefix(strings.TrimSpace(block.text), "install") || strings.HasPrefix(block.text, "module_blacklist="))
		switch {
		case isForbidden:
			f.Title = fmt.Sprintf("Line %d of /etc/fstab mounts %s as %s, whose module line %d of %s keeps from loading.", m.Line, m.Place(), m.Type, block.line, block.file)
			f.Evidence = append(f.Evidence, config.FileEvidence(block.file, block.line, block.text))
			f.ByHand = "Remove the line that forbids the module, or add the option nofail to the line of /etc/fstab."
		case b != nil && !b.foreign && b.files[module] == "" && len(b.files) > minModules:
			f.Title = fmt.Sprintf("Line %d of /etc/fstab mounts %s as %s, for which the kernel %s has no module.", m.Line, m.Place(), m.Type, b.release)
			f.Evidence = append(f.Evidence, config.FileEvidence(b.folder+"/modules.dep", 0, "it does not list "+module))
			f.ByHand = "Install the package that brings the module, or boot a kernel that has it."
		default:
			continue
		}
		if isBlocking(f.Severity) && !m.IsEssential() {
			f.Repair = addNofail(m)
		}
		if !slices.ContainsFunc(out, func(other diagnose.Finding) bool { return other.Title == f.Title }) {
			out = append(out, f)
		}
	}
	return out
}

// minModules is how many modules a list has at least that tells what a kernel lacks. Kernels with fewer have most file systems built in.
const minModules = 100
