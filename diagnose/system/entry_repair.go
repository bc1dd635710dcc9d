package system

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
)

const kernelCommandLinePath = "/etc/kernel/cmdline"

// EntryFile is a file of the Boot Loader Specification that a kernel of the system should have.
type EntryFile struct {
	Path   string // in the system
	Kernel string // as the entry names it
	Text   string
	entry  loadEntry
}

// EntryFiles are those that are not there, of all kernels that boot as far as can be seen: by the place in which systemd-boot, or GRUB with blscfg,
// looks for them. There are none where the arguments of the kernels are not known.
func EntryFiles(s *diagnose.System, loader string) []EntryFile {
	c := newEntryChecker(s)
	files := entryFiles(s)
	return slices.DeleteFunc(files[:min(len(files), maxCheckedEntries)], func(f EntryFile) bool {
		return f.entry.Loader != loader || s.Files.Exists(f.Path) ||
			slices.ContainsFunc(c.check(&f.entry), func(g diagnose.Finding) bool { return g.Severity == diagnose.BlocksBoot })
	})
}

// KernelOfEntryFile is the kernel that a file of the Boot Loader Specification should name; empty where it is not known.
func KernelOfEntryFile(s *diagnose.System, file string) string {
	for _, e := range entryFiles(s) {
		if e.Path == file {
			return e.Kernel
		}
	}
	return ""
}

// entryFiles are those of all kernels whose initramfs and modules are there.
func entryFiles(s *diagnose.System) []EntryFile {
	options := entryOptions(s)
	if options == "" {
		return nil
	}
	out := grubEntryFiles(s, options)
	for _, d := range espDevices(s) {
		tree, folder := treeOf(s, d)
		if tree == nil || tree != s.Files || len(tree.Match(path.Join(folder, "EFI/systemd"), "systemd-boot*.efi")) == 0 {
			continue
		}
		for _, token := range boundedNames(tree.Match(folder, "*")) {
			for _, kernel := range boundedNames(tree.Match(token, "*")) {
				name := strings.TrimPrefix(kernel, strings.TrimSuffix(folder, "/"))
				out = append(out, entryFile(s, bySystemdBoot, path.Join(folder, "loader/entries"), path.Base(token), path.Base(kernel), options,
					path.Join(name, "linux"), name, path.Join(kernel, "linux"), tree.Match(kernel, "initrd*"))...)
			}
		}
	}
	return out
}

func boundedNames(names []string) []string { return names[:min(len(names), maxSmallFiles)] }

// plainToken begins the name of an entry file: the id of the machine, or that of its distribution.
var plainToken = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// grubEntryFiles are those of the kernels in /boot.
func grubEntryFiles(s *diagnose.System, options string) []EntryFile {
	boot, menu := deviceOfBoot(s), ""
	if file, found := grubConfigPath(s); found {
		text, _ := s.Files.Read(file)
		menu = string(text)
	}
	if boot == nil || isBootHidden(s) || !slices.ContainsFunc(parseGrub(menu).Commands, func(c grubCommand) bool { return c.Words[0] == "blscfg" }) {
		return nil
	}
	prefix := "/"
	if boot.Path == s.Root {
		prefix = "/boot"
		if boot.FS == "btrfs" { // GRUB may name its files from the top
			return nil
		}
	}
	token := strings.TrimSpace(strings.Join(s.Files.Lines("/etc/machine-id"), ""))
	if len(token) != 32 || !plainToken.MatchString(token) {
		token = s.Release.ID
	}
	var out []EntryFile
	for _, kernel := range boundedNames(s.Files.Match("/boot", "vmlinuz-*")) {
		release := releaseOfName(kernel)
		var images []string
		for _, name := range []string{"/boot/initramfs-" + release + ".img", "/boot/initrd.img-" + release, "/boot/initrd-" + release} {
			if s.Files.Exists(name) {
				images = append(images, name)
			}
		}
		out = append(out, entryFile(s, byGRUB, "/boot/loader/entries", token, release, options, path.Join(prefix, path.Base(kernel)), prefix, kernel, images)...)
	}
	return out
}

// entryFile is the entry of one kernel, whose image the loader finds in a folder; none where a part of it is not there.
func entryFile(s *diagnose.System, loader, entries, token, release, options, kernel, folder, kernelPath string, images []string) []EntryFile {
	if len(images) != 1 || !plainToken.MatchString(token) || !plainToken.MatchString(release) || !s.Files.Exists(kernelPath) || !isFolder(s.Files, "/lib/modules/"+release) {
		return nil
	}
	found := func(name string) bootFile { return bootFile{Tree: s.Files, Path: name, Shown: name, Found: true} }
	e := EntryFile{Path: path.Join(entries, token+"-"+release+".conf"), Kernel: kernel}
	e.entry = loadEntry{Loader: loader, File: e.Path, ID: token + "-" + release, Kernel: found(kernelPath), Initrds: []bootFile{found(images[0])}, Options: splitArguments(options)}
	title := strings.Map(func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}, s.Release.Pretty)
	e.Text = fmt.Sprintf("title %s (%s)\nversion %s\nsort-key %s\noptions %s\nlinux %s\ninitrd %s\n", title, release, release, s.Release.ID, options, kernel,
		path.Join(folder, path.Base(images[0])))
	return []EntryFile{e}
}

// entryOptions are the arguments of a kernel in a new entry: those of /etc/kernel/cmdline, or else the root of the system with what
// /etc/default/grub adds. Empty where neither names a root that is there.
func entryOptions(s *diagnose.System) string {
	words := kernelCommandLine(s)
	if name := parseDeviceName(rootArgument(words)); name.Tag != "" && (len(findDevices(s, name)) == 1 || name.Tag == "path" && isCryptName(s, name.Value)) {
		return strings.Join(words, " ")
	}
	d := rootDevice(s)
	set, found := lastSetting(shellSettings(s.Files.Lines("/etc/default/grub")), "GRUB_CMDLINE_LINUX")
	if d == nil || d.UUID == "" || !found || strings.ContainsAny(set.Value, "$`\\") {
		return ""
	}
	words = []string{"root=UUID=" + d.UUID, "ro"}
	if s.RootSubvolume != "" {
		if plainSubvolume(s.RootSubvolume) == "" {
			return ""
		}
		words = append(words, "rootflags=subvol="+s.RootSubvolume)
	}
	return strings.TrimSpace(strings.Join(words, " ") + " " + set.Value)
}

// kernelCommandLine are the arguments that kernel-install writes into entries.
func kernelCommandLine(s *diagnose.System) []string {
	var out []string
	for _, line := range s.Files.Lines(kernelCommandLinePath) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			out = append(out, strings.Fields(line)...)
		}
	}
	return out
}

// proposeEntries proposes to write the entries of all kernels for a loader.
func proposeEntries(s *diagnose.System, loader string, f *diagnose.Finding) {
	f.ByHand = "Write the entries anew with `kernel-install add` for each kernel."
	files := EntryFiles(s, loader)
	if len(files) == 0 {
		return
	}
	f.Repair, f.ByHand = &diagnose.Repair{Summary: fmt.Sprintf("Write a boot entry for each kernel that is whole (%d).", len(files)), Consent: diagnose.ConsentBoot}, ""
	for _, e := range files {
		f.Repair.Writes = append(f.Repair.Writes, e.Path)
	}
}
