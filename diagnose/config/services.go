package config

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// UnitFile returns the path of a unit of systemd; empty where there is none.
func UnitFile(tree *diagnose.Tree, unit string) string {
	return diagnose.Once(tree, "unit "+unit, func() string { return findUnit(tree, unit) })
}

func findUnit(tree *diagnose.Tree, unit string) string {
	for _, folder := range UnitFolders {
		if _, err := tree.Lstat(path.Join(folder, unit)); err == nil {
			return path.Join(folder, unit)
		}
	}
	return ""
}

// UnitMask returns the link to /dev/null, or the empty file, that keeps systemd from starting a unit; empty without one.
func UnitMask(tree *diagnose.Tree, unit string) string {
	if !IsMasked(tree, unit) {
		return ""
	}
	return path.Join("/etc/systemd/system", unit)
}

// unitWanted returns the link by which a target or another unit starts a unit; empty where none does.
func unitWanted(tree *diagnose.Tree, unit string) string {
	for _, wants := range diagnose.Once(tree, "wants", func() []string { return wantFolders(tree) }) {
		if _, err := tree.Lstat(path.Join(wants, unit)); err == nil {
			return path.Join(wants, unit)
		}
	}
	return ""
}

// wantFolders are the folders whose links start units, such as multi-user.target.wants.
func wantFolders(tree *diagnose.Tree) []string {
	var out []string
	for _, folder := range UnitFolders {
		for _, pattern := range []string{"*.wants", "*.requires"} {
			out = append(out, tree.Match(folder, pattern)...)
		}
	}
	return out
}

// UnitLink is a link by which a unit starts another one, such as multi-user.target.wants/ssh.service.
type UnitLink struct {
	By, Unit string // the units' names
	Path     string // of the link
	Required bool   // the unit By fails where the other one fails
}

// maxUnitLinks bounds the links that are read of a system.
const maxUnitLinks = 4096

// UnitLinks are the links by which units start others that are not masked, in the order of their folders.
func UnitLinks(tree *diagnose.Tree) []UnitLink {
	return diagnose.Once(tree, "unit links", func() []UnitLink {
		var out []UnitLink
		for _, folder := range wantFolders(tree) {
			kind := path.Ext(folder)
			for _, link := range tree.Match(folder, "*") {
				if len(out) < maxUnitLinks && UnitMask(tree, path.Base(link)) == "" {
					out = append(out, UnitLink{By: strings.TrimSuffix(path.Base(folder), kind), Unit: path.Base(link), Path: link, Required: kind == ".requires"})
				}
			}
		}
		return out
	})
}

// UnitEnabled says whether systemd starts one of the units.
func UnitEnabled(tree *diagnose.Tree, units ...string) bool {
	for _, unit := range units {
		if UnitFile(tree, unit) != "" && UnitMask(tree, unit) == "" && unitWanted(tree, unit) != "" {
			return true
		}
	}
	return false
}

// serviceManager is what starts the services of a system.
type serviceManager string

// Service managers; the empty one is none that is known.
const (
	SystemdManager serviceManager = "systemd"
	OpenrcManager  serviceManager = "openrc"
	SysvManager    serviceManager = "sysvinit"
)

// ManagerOf tells which one a system has.
func ManagerOf(tree *diagnose.Tree) serviceManager {
	switch {
	case UsesSystemd(tree):
		return SystemdManager
	case tree.Exists("/etc/runlevels") && (tree.Exists("/sbin/openrc") || tree.Exists("/usr/sbin/openrc")):
		return OpenrcManager
	case tree.Exists("/etc/inittab") && tree.Exists("/etc/init.d") && tree.Exists("/etc/rc2.d"):
		return SysvManager
	}
	return ""
}

// ServiceEnabled says whether a service starts by itself. names are without the ending of a unit; known is false where the manager is unknown
// or enables its services at the first boot.
func ServiceEnabled(tree *diagnose.Tree, names ...string) (enabled, known bool) {
	switch ManagerOf(tree) {
	case SystemdManager:
		for _, name := range names {
			if UnitEnabled(tree, name+".service", name+".socket") {
				return true, true
			}
			// Services without a unit are started by their script.
			if UnitFile(tree, name+".service") == "" && len(startLinks(tree, name)) > 0 {
				return true, true
			}
		}
		return false, !FirstBoot(tree)
	case OpenrcManager:
		for _, name := range names {
			for _, level := range tree.Match("/etc/runlevels", "*") {
				if _, err := tree.Lstat(path.Join(level, name)); err == nil {
					return true, true
				}
			}
		}
		return false, true
	case SysvManager:
		for _, name := range names {
			if len(startLinks(tree, name)) > 0 {
				return true, true
			}
		}
		return false, true
	}
	return false, false
}

// startLinks are the links that start a script of /etc/init.d in the run levels 2 to 5, or before them.
func startLinks(tree *diagnose.Tree, name string) []string {
	all := diagnose.Once(tree, "start links", func() []string {
		var out []string
		for _, root := range []string{"/etc", "/etc/rc.d", "/etc/init.d"} {
			for _, level := range []string{"rcS.d", "rc2.d", "rc3.d", "rc4.d", "rc5.d"} {
				out = append(out, tree.Match(path.Join(root, level), "S[0-9][0-9]*")...)
			}
		}
		return out
	})
	var out []string
	for _, link := range all {
		if path.Base(link)[3:] == name {
			out = append(out, link)
		}
	}
	return out
}

// FirstBoot says whether systemd will take the next boot for the first one and enable what its presets say. An empty file means another boot.
func FirstBoot(tree *diagnose.Tree) bool {
	text, err := tree.Read("/etc/machine-id")
	return err != nil || strings.TrimSpace(string(text)) == "uninitialized"
}

// OnlyAtFirstBoot says whether systemd starts a unit at the first boot alone, as Debian 13 does with what makes host keys.
func OnlyAtFirstBoot(tree *diagnose.Tree, unit string) bool {
	files := []string{UnitFile(tree, unit)}
	for _, folder := range slices.Backward(UnitFolders) { // the strongest comes last
		files = append(files, tree.Match(path.Join(folder, unit+".d"), "*.conf")...)
	}
	only := false
	for _, file := range files {
		for _, l := range UnitSettings(tree.Lines(file)) {
			if l.Section == "Unit" && l.Key == "ConditionFirstBoot" { // an empty one takes the former back
				only = slices.Contains([]string{"yes", "true", "on", "1"}, l.Value)
			}
		}
	}
	return only
}

// FirstExisting returns the first of the paths that exists; empty where none does.
func FirstExisting(tree *diagnose.Tree, names ...string) string {
	for _, name := range names {
		if tree.Exists(name) {
			return name
		}
	}
	return ""
}

// CloudInitEnabled says whether cloud-init is there and nothing switches it off.
func CloudInitEnabled(tree *diagnose.Tree) bool {
	return FirstExisting(tree, "/usr/bin/cloud-init", "/usr/local/bin/cloud-init") != "" && !tree.Exists("/etc/cloud/cloud-init.disabled")
}

// CloudInitWillRun says whether the next boot is the first one for cloud-init, which then makes users, keys and the network.
func CloudInitWillRun(tree *diagnose.Tree) bool {
	_, err := tree.Lstat("/var/lib/cloud/instance")
	return CloudInitEnabled(tree) && IsNotExist(err)
}

// UnitFolders are where systemd looks for units, the strongest first; /run is empty on a machine that is off.
var UnitFolders = []string{"/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// IsMasked says whether /etc masks a unit: a link to /dev/null or an empty file.
func IsMasked(t *diagnose.Tree, name string) bool {
	at := path.Join("/etc/systemd/system", name)
	info, err := t.Lstat(at)
	if err != nil {
		return false
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := t.ReadLink(at)
		return err == nil && target == "/dev/null"
	}
	return info.Mode().IsRegular() && info.Size() == 0
}
