package system

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// Kinds of boot loaders that entries come from.
const (
	byGRUB        = "GRUB"
	bySystemdBoot = "systemd-boot"
	byExtlinux    = "extlinux"
)

// loadEntry is one choice of a boot loader's menu.
type loadEntry struct {
	Loader    string
	Title, ID string
	// File and Line say where the entry is written, as the system names the file.
	File string
	Line int
	// Kernel and Initrds; Kernel.Path is empty for entries that load something else, such as the loader of another system.
	Kernel  bootFile
	Initrds []bootFile
	// Options is the kernel's command line.
	Options     []string
	OptionsLine int
	IsDefault   bool
}

// bootFile is a file that a loader reads.
type bootFile struct {
	// Tree and Path lead to the file; Shown is how a person of the system names it.
	Tree        *diagnose.Tree
	Path, Shown string
	// Found: it exists. Unknown: the file system that holds it was not examined, so nothing is known.
	Found, Unknown bool
}

// treeOf returns the tree that holds a device's files and the folder in it, or nil where its files were not read.
func treeOf(s *diagnose.System, d *diagnose.Device) (*diagnose.Tree, string) {
	switch {
	case d == nil:
	case d.MountedAt != "" && s.Files != nil:
		return s.Files, d.MountedAt
	case d.Tree != nil:
		return d.Tree, "/"
	}
	return nil, ""
}

// bootHiddenOnce is isBootHidden, asked once for all files of a loader.
func bootHiddenOnce(s *diagnose.System) func() bool {
	return sync.OnceValue(func() bool { return isBootHidden(s) })
}

// findBootFile looks for a file that a loader names on a device; with nil, on the file systems that may be meant: /boot and the root. hidden says
// whether /boot was not mounted.
func findBootFile(s *diagnose.System, d *diagnose.Device, name string, hidden func() bool) bootFile {
	name = strings.ReplaceAll(name, `\`, "/")
	if strings.HasPrefix(name, "(") { // (hd0,gpt2)/vmlinuz: the device is counted by firmware
		if _, after, found := strings.Cut(name, ")"); found {
			name, d = after, nil
		}
	}
	name = path.Clean("/" + name)
	if strings.Contains(name, "$") {
		return bootFile{Path: name, Shown: name, Unknown: true}
	}
	var candidates []bootFile
	add := func(tree *diagnose.Tree, folder, name string) {
		if tree != nil {
			at := path.Join(folder, name)
			shown := at
			if tree != s.Files && d != nil {
				shown = path.Join("/", name) + " on " + d.Path
			}
			candidates = append(candidates, bootFile{Tree: tree, Path: at, Shown: shown})
		}
	}
	if d != nil {
		tree, folder := treeOf(s, d)
		if tree == nil {
			return bootFile{Path: name, Shown: name + " on " + d.Path, Unknown: true}
		}
		add(tree, folder, name)
		for _, subvolume := range append(slices.Clone(d.Subvolumes), d.Default) { // GRUB names files of btrfs from its top
			if rest, found := strings.CutPrefix(name, "/"+strings.Trim(subvolume, "/")+"/"); found && subvolume != "" {
				add(tree, folder, "/"+rest)
			}
		}
	} else {
		add(s.Files, "/boot", name)
		add(s.Files, "/", name)
		add(s.Files, "/boot/efi", name)
		add(s.Files, "/efi", name)
	}
	for _, c := range candidates {
		if found, ok := lookupFold(c.Tree, c.Path); ok {
			c.Path, c.Found = found, true
			return c
		}
	}
	if len(candidates) == 0 {
		return bootFile{Path: name, Shown: name, Unknown: true}
	}
	out := candidates[0]
	out.Unknown = d == nil && hidden()
	return out
}

// lookupFold finds a path; below an EFI system partition the case of letters does not count.
func lookupFold(t *diagnose.Tree, name string) (string, bool) {
	if t.Exists(name) {
		return name, true
	}
	if !strings.Contains(strings.ToLower(name), "/efi") && !strings.Contains(name, "/loader") {
		return name, false
	}
	return foldPath(t, name)
}

// foldPath finds a path whatever the case of its letters.
func foldPath(t *diagnose.Tree, name string) (string, bool) {
	at := "/"
	for _, element := range strings.Split(strings.Trim(name, "/"), "/") {
		if next := path.Join(at, element); t.Exists(next) {
			at = next
			continue
		}
		entries, err := t.ReadDir(at)
		if err != nil {
			return name, false
		}
		i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return strings.EqualFold(e.Name(), element) })
		if i < 0 {
			return name, false
		}
		at = path.Join(at, entries[i].Name())
	}
	return at, true
}

// isBootHidden: /boot is a file system of its own, and it was not mounted. What its folder holds then says nothing.
func isBootHidden(s *diagnose.System) bool {
	if s.Files == nil {
		return true
	}
	for _, e := range config.ParseFstab(config.TableLines(s, config.FstabPath)) {
		if (e.Target == "/boot" || e.Target == "/boot/efi" || e.Target == "/efi") && config.MountedAt(s, e.Target) == nil && !e.Has("noauto") {
			return true
		}
	}
	return false
}

// espDevices are the EFI system partitions.
func espDevices(s *diagnose.System) []*diagnose.Device {
	var out []*diagnose.Device
	for i := range s.Devices {
		if d := &s.Devices[i]; isESP(d) {
			out = append(out, d)
		}
	}
	return out
}

// isESP says whether a partition has the type of an EFI system partition.
func isESP(d *diagnose.Device) bool {
	return strings.EqualFold(d.PartType, espTypeGUID) || strings.EqualFold(d.PartType, "0xef")
}

const (
	espTypeGUID  = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
	bootTypeGUID = "bc13c2ff-59e6-4262-a352-b275fd6f7172" // XBOOTLDR
	biosTypeGUID = "21686148-6449-6e6f-744e-656564454649" // bios_grub
)

// loadEntries collects the entries of all loaders of the system, the default one marked. Loaders are asked in the order in which a system uses
// them; entries of one loader only are returned.
func loadEntries(s *diagnose.System) []loadEntry {
	if s.Files == nil {
		return collectEntries(s)
	}
	return diagnose.Once(s.Files, "entries", func() []loadEntry { return collectEntries(s) })
}

func collectEntries(s *diagnose.System) []loadEntry {
	for _, collect := range []func(*diagnose.System) []loadEntry{grubEntries, systemdBootEntries, extlinuxEntries} {
		if out := collect(s); len(out) > 0 {
			return out
		}
	}
	return nil
}

// defaultEntry is the entry that boots by itself.
func defaultEntry(entries []loadEntry) *loadEntry {
	for i := range entries {
		if entries[i].IsDefault {
			return &entries[i]
		}
	}
	return nil
}

// compareVersions orders names by the numbers in them: 6.1.10 follows 6.1.9.
func compareVersions(a, b string) int {
	isDigit := func(c byte) bool { return c >= '0' && c <= '9' }
	for a != "" && b != "" {
		if isDigit(a[0]) && isDigit(b[0]) {
			na, nb := 0, 0
			for na < len(a) && isDigit(a[na]) {
				na++
			}
			for nb < len(b) && isDigit(b[nb]) {
				nb++
			}
			x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if x != y {
				return strings.Compare(x, y)
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}
