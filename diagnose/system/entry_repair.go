package system

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// EntryFile is a file of the Boot Loader Specification that a kernel of the system should have.
type EntryFile struct {
	Path string // in the system
	// Release is that of the kernel, and Kernel its path as the entry names it.
	Release, Kernel string
	Text            string
	entry           loadEntry
}

// MissingEntryFiles returns the entry files that are not there, of all kernels that boot as far as can be seen, the newest first. loader says where they
// belong: to GRUB with blscfg, or to systemd-boot. There are none where the arguments of the kernels are not known.
func MissingEntryFiles(s *diagnose.System, loader string) []EntryFile {
	c := newEntryChecker(s)
	files := slices.DeleteFunc(entryFiles(s), func(f EntryFile) bool { return f.entry.Loader != loader || s.Files.Exists(f.Path) })
	slices.SortStableFunc(files, func(a, b EntryFile) int { return compareVersions(b.Release, a.Release) })
	return slices.DeleteFunc(files[:min(len(files), maxCheckedEntries)], func(f EntryFile) bool {
		return len(argumentFindings(s, &f.entry)) > 0 || slices.ContainsFunc(c.check(&f.entry), func(g diagnose.Finding) bool { return g.Severity == diagnose.BlocksBoot })
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

func boundedNames(names []string) []string { return names[:min(len(names), config.MaxSmallFiles)] }

// plainToken is a part of the name of an entry file: the id of the machine or of its distribution, and the release of a kernel such as 6.12.57+deb13-amd64.
var plainToken = regexp.MustCompile(`^[A-Za-z0-9._+~-]+$`)

// grubEntryFiles are those of the kernels in /boot.
func grubEntryFiles(s *diagnose.System, options string) []EntryFile {
	boot, menu := deviceOfBoot(s), ""
	if file, found := grubConfigPath(s); found {
		text, _ := s.Files.Read(file)
		menu = string(text)
	}
	if boot == nil || isBootHidden(s) || !slices.ContainsFunc(config.ParseGrub(menu).Commands, func(c config.GrubCommand) bool { return c.Words[0] == "blscfg" }) {
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
		release := config.ReleaseOfName(kernel)
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
	if len(images) != 1 || !plainToken.MatchString(token) || !plainToken.MatchString(release) || !s.Files.Exists(kernelPath) || !config.IsFolder(s.Files, "/lib/modules/"+release) {
		return nil
	}
	found := func(name string) bootFile { return bootFile{Tree: s.Files, Path: name, Shown: name, Found: true} }
	e := EntryFile{Path: path.Join(entries, token+"-"+release+".conf"), Release: release, Kernel: kernel}
	e.entry = loadEntry{Loader: loader, File: e.Path, ID: token + "-" + release, Kernel: found(kernelPath), Initrds: []bootFile{found(images[0])}, Options: config.SplitArguments(options)}
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
	name := config.ParseDeviceName(rootArgument(words))
	found := config.FindDevices(s, name)
	if name.Tag != "" && (len(found) == 1 && found[0].Path == s.Root || len(found) == 0 && name.Tag == "path" && isCryptName(s, name.Value)) {
		return strings.Join(words, " ")
	}
	d := config.RootDevice(s)
	set, isSet := config.LastSetting(config.ShellSettings(s.Files.Lines("/etc/default/grub")), "GRUB_CMDLINE_LINUX")
	if d == nil || d.UUID == "" || !isSet || strings.ContainsAny(set.Value, "$`\\") {
		return ""
	}
	words = []string{"root=UUID=" + d.UUID, "ro"}
	if s.RootSubvolume != "" {
		if plainSubvolume(s.RootSubvolume) == "" {
			return ""
		}
		words = append(words, "rootflags=subvol="+s.RootSubvolume)
	}
	for _, word := range strings.Fields(set.Value) {
		// A swap space that is gone would keep the boot waiting.
		if device, isResume := strings.CutPrefix(word, "resume="); !isResume || len(config.FindDevices(s, config.ParseDeviceName(device))) > 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// kernelCommandLine are the arguments that kernel-install writes into entries.
func kernelCommandLine(s *diagnose.System) []string {
	var out []string
	for _, line := range s.Files.Lines(config.KernelCommandLinePath) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			out = append(out, strings.Fields(line)...)
		}
	}
	return out
}

// proposeEntries proposes to write the entries of all kernels for a loader.
func proposeEntries(s *diagnose.System, loader string, f *diagnose.Finding) {
	f.ByHand = "Write the entries anew with `kernel-install add` for each kernel."
	files := MissingEntryFiles(s, loader)
	if len(files) == 0 {
		return
	}
	var releases, paths []string
	for _, e := range files {
		releases, paths = append(releases, e.Release), append(paths, e.Path)
	}
	f.Repair, f.ByHand = &diagnose.Repair{Summary: "Write boot entries for the kernels " + strings.Join(releases, ", ") + ".", Consent: diagnose.ConsentBoot, Writes: paths}, ""
}
