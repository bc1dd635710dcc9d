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

// checkInitramfs looks at what an entry loads besides its kernel.
func (c *entryChecker) checkInitramfs(e *loadEntry, release string, finding findingMaker) []diagnose.Finding {
	rebuild := func(f diagnose.Finding) diagnose.Finding {
		if len(initramfsCommand(c.s, e, release)) > 0 {
			f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Build the initramfs of kernel %s anew with the system's own tool, and put it in place of the old one.", release),
				Consent: diagnose.ConsentBoot, Writes: []string{e.initramfs()}}
		} else {
			f.ByHand = "Build the initramfs anew, or choose another entry of the menu."
		}
		return f
	}
	joined := &config.InitramfsContent{Names: map[string]bool{}, Modules: map[string]bool{}}
	var unified *config.InitramfsContent
	if len(e.Initrds) == 0 && !c.shallow {
		unified = c.unifiedInitramfs(e)
	}
	if unified != nil {
		joined.Add(unified)
	}
	if len(e.Initrds) == 0 && unified == nil {
		if root := rootArgument(e.Options); needsInitramfs(root) && c.kernel(e).Format != "PE" {
			f := rebuild(finding("initramfs-missing", diagnose.Initramfs, 0.85,
				fmt.Sprintf("Line %d of %s loads no initramfs, and the kernel alone does not find root=%s.", e.Line, e.File, root)))
			if f.Repair != nil && e.Loader == byGRUB { // the menu gets the line when it is written anew
				file, _ := grubConfigPath(c.s)
				if f.Repair.Loses = losesOf(regenerateGrub(c.s, file)); regenerateGrub(c.s, file) == nil {
					f.Repair, f.ByHand = nil, "Build the initramfs anew, and name it in the entry."
				}
			}
			return []diagnose.Finding{f}
		}
		return nil
	}
	for _, image := range e.Initrds {
		switch {
		case image.Unknown:
			return nil
		case !image.Found:
			return []diagnose.Finding{rebuild(finding("initramfs-missing", diagnose.Initramfs, 0.95,
				fmt.Sprintf("Line %d of %s loads the initramfs %s, which does not exist.", e.Line, e.File, image.Shown)))}
		}
		if c.shallow {
			continue
		}
		content := c.initramfs(image)
		if content.Damage != "" {
			return []diagnose.Finding{rebuild(finding("initramfs-damaged", diagnose.Initramfs, 0.95,
				fmt.Sprintf("The initramfs %s is damaged: %s.", image.Shown, content.Damage), config.FileEvidence(image.Shown, 0, content.Damage)))}
		}
		joined.Add(content)
	}
	if c.shallow {
		return nil
	}
	shown := e.initramfs()
	if joined.NotExamined != "" {
		f := finding("initramfs-not-examined", diagnose.Initramfs, 0.9, fmt.Sprintf("The content of the initramfs %s was not examined: %s.", shown, joined.NotExamined))
		f.Severity = diagnose.Info
		c.s.Files.NoteGap(shown, joined.NotExamined)
		return []diagnose.Finding{f}
	}
	if !joined.Names["init"] && !joined.Names["sbin/init"] {
		return []diagnose.Finding{rebuild(finding("initramfs-damaged", diagnose.Initramfs, 0.9, fmt.Sprintf("The initramfs %s holds no /init.", shown), config.FileEvidence(shown, 0, "no entry of its archives is named init")))}
	}
	return c.checkModules(e, joined, release, finding, rebuild)
}

// initramfs is the last image that an entry loads: microcode comes before.
func (e *loadEntry) initramfs() string {
	if len(e.Initrds) == 0 {
		return e.Kernel.Shown
	}
	return e.Initrds[len(e.Initrds)-1].Shown
}

// needsInitramfs: the kernel itself knows numbers, names of disks and PARTUUID only.
func needsInitramfs(root string) bool {
	return strings.HasPrefix(root, "UUID=") || strings.HasPrefix(root, "LABEL=") || strings.HasPrefix(root, "/dev/mapper/") || strings.HasPrefix(root, "/dev/disk/")
}

// checkModules looks for what the root needs and the initramfs lacks, and for the modules of the kernel.
func (c *entryChecker) checkModules(e *loadEntry, content *config.InitramfsContent, release string, finding findingMaker, rebuild func(diagnose.Finding) diagnose.Finding) []diagnose.Finding {
	var out []diagnose.Finding
	folder := "/lib/modules/" + release
	modular := content.Names["usr"+folder] || content.Names[strings.TrimPrefix(folder, "/")] || content.HasBelow("usr"+folder+"/") || content.HasBelow(strings.TrimPrefix(folder, "/")+"/")
	switch {
	case release != "" && !modular && len(content.Modules) > 0:
		return c.foreignModules(e, content, release, finding, rebuild)
	case release == "" || !modular || len(content.Modules) == 0:
		return nil
	case !config.IsFolder(c.s.Files, folder):
		f := finding("modules-missing", diagnose.Init, 0.85, fmt.Sprintf("The folder %s does not exist, so that kernel %s lacks its modules after the initramfs.", folder, release),
			config.FileEvidence(folder, 0, "it does not exist"))
		f.ByHand = "Choose the entry of a kernel whose modules are there, or install the package of the kernel again."
		return append(out, f)
	case len(c.s.Files.Lines(folder+"/modules.dep")) == 0:
		f := finding("modules-missing", diagnose.Init, 0.8, fmt.Sprintf("The file %s/modules.dep is missing or empty, so that no module of kernel %s loads.", folder, release),
			config.FileEvidence(folder+"/modules.dep", 0, "it is missing or empty"))
		f.ByHand = "Run depmod for the kernel, from the system in a rescue."
		f.Repair = &diagnose.Repair{Summary: "Run the system's own depmod for kernel " + release + ".", Consent: diagnose.ConsentBoot, Writes: []string{folder + "/modules.dep"}}
		return append(out, f)
	}
	available := moduleNames(c.s.Files.Lines(folder + "/modules.dep"))
	for _, module := range rootModules(c.s) {
		if available[module] && !content.Modules[module] {
			f := rebuild(finding("initramfs-lacks-driver", diagnose.Initramfs, 0.8,
				fmt.Sprintf("The initramfs %s lacks the module %s, which the root on %s needs.", e.initramfs(), module, c.s.Root),
				config.FileEvidence(folder+"/modules.dep", 0, module+" is a module of the kernel")))
			if change, lines := driverOmissions(c.s, module); change != "" {
				f.Evidence = append(f.Evidence, lines...)
				if f.Repair != nil {
					f.Repair.Summary = change + ", and b" + strings.TrimPrefix(f.Repair.Summary, "B")
					for _, at := range lines {
						f.Repair.Writes = append(f.Repair.Writes, at.Path)
					}
				}
			}
			out = append(out, f)
		}
	}
	for _, d := range config.Ancestors(c.s, c.s.Root) {
		tools := map[diagnose.DeviceKind][]string{diagnose.VolumeDevice: {"lvm", "lvm.static"}, diagnose.CryptDevice: {"cryptsetup", "systemd-cryptsetup"},
			diagnose.ArrayDevice: {"mdadm", "mdadm-env"}}[d.Kind]
		if d.Kind == diagnose.CryptDevice && content.OpensNothing {
			out = append(out, rebuild(finding("initramfs-lacks-tool", diagnose.Initramfs, 0.8,
				fmt.Sprintf("The initramfs %s names no encrypted container to open, and the root lies in %s.", e.initramfs(), d.Path), config.FileEvidence(e.initramfs(), 0, "its cryptroot/crypttab is empty"))))
			continue
		}
		if len(tools) == 0 || content.Has(tools...) {
			continue
		}
		f := rebuild(finding("initramfs-lacks-tool", diagnose.Initramfs, 0.8,
			fmt.Sprintf("The initramfs %s lacks %s, which assembles %s below the root.", e.initramfs(), tools[0], d.Path), config.DeviceEvidence(d.Path, "a device of the kind "+string(d.Kind))))
		out = append(out, f)
	}
	return out
}

// foreignModules finds an initramfs whose modules are all of other kernels, of which none loads, where the root needs a module.
func (c *entryChecker) foreignModules(e *loadEntry, content *config.InitramfsContent, release string, finding findingMaker, rebuild func(diagnose.Finding) diagnose.Finding) []diagnose.Finding {
	var others []string
	for name := range content.Names {
		if m := moduleFolder.FindStringSubmatch(name); m != nil && !slices.Contains(others, m[1]) && len(others) < 8 {
			others = append(others, m[1])
		}
	}
	available := moduleNames(c.s.Files.Lines("/lib/modules/" + release + "/modules.dep"))
	needed := slices.DeleteFunc(rootModules(c.s), func(module string) bool { return !available[module] })
	if len(others) == 0 || len(needed) == 0 {
		return nil
	}
	slices.Sort(others)
	return []diagnose.Finding{rebuild(finding("initramfs-lacks-driver", diagnose.Initramfs, 0.9,
		fmt.Sprintf("The initramfs %s holds modules of the kernel %s, and the kernel %s loads none of them, which the root on %s needs.", e.initramfs(), strings.Join(others, " and "), release, c.s.Root),
		config.FileEvidence(e.initramfs(), 0, "it has no folder lib/modules/"+release),
		config.FileEvidence("/lib/modules/"+release+"/modules.dep", 0, strings.Join(needed, ", ")+" are modules of the kernel")))}
}

// moduleFolder is the folder of a kernel's modules in an initramfs.
var moduleFolder = regexp.MustCompile(`^(?:usr/)?lib/modules/([^/]+)(?:/|$)`)

// driverOmissions are the lines by which the tool that builds the initramfs leaves a module out, and how they are changed. Both are empty where no line leaves it out.
func driverOmissions(s *diagnose.System, module string) (change string, lines []diagnose.Evidence) {
	if config.FirstExisting(s.Files, "/usr/sbin/update-initramfs", "/sbin/update-initramfs") != "" {
		file, line, value := ModuleChoice(s)
		switch value {
		case "dep":
			return fmt.Sprintf("Set MODULES=most in line %d of %s", line, file), []diagnose.Evidence{config.FileEvidence(file, line, "MODULES=dep")}
		case "list":
			return "Add " + module + " to " + config.InitramfsModulesPath, []diagnose.Evidence{config.FileEvidence(file, line, "MODULES=list")}
		}
		return "", nil
	}
	for _, file := range append([]string{"/etc/dracut.conf"}, s.Files.Match("/etc/dracut.conf.d", "*.conf")...) {
		for i, line := range s.Files.Lines(file) {
			if config.AllowDrivers(line, []string{module}) != line {
				lines = append(lines, config.FileEvidence(file, i+1, line))
			}
		}
	}
	if len(lines) > 0 {
		change = "Remove " + module + " from omit_drivers of dracut"
	}
	return change, lines
}

// ModuleChoice is which modules initramfs-tools takes: most, dep, list or another word, and the last line that says so, whose number counts from 1.
func ModuleChoice(s *diagnose.System) (file string, line int, value string) {
	for _, name := range append([]string{"/etc/initramfs-tools/initramfs.conf"}, s.Files.Match("/etc/initramfs-tools/conf.d", "*")...) {
		if set, found := config.LastSetting(config.ShellSettings(s.Files.Lines(name)), "MODULES"); found {
			file, line, value = name, set.Line, set.Value
		}
	}
	return file, line, value
}

// RootModules are the modules that the root of a system needs, as far as can be told.
func RootModules(s *diagnose.System) []string { return rootModules(s) }

// moduleNames are the modules that a modules.dep lists.
func moduleNames(lines []string) map[string]bool {
	out := map[string]bool{}
	for _, line := range lines {
		name, _, _ := strings.Cut(line, ":")
		base, _, _ := strings.Cut(path.Base(name), ".ko")
		out[config.ModuleName(base)] = true
	}
	return out
}

// rootModules are the drivers and the file system that the root needs, as far as the names of devices and what the ramdisk's kernel uses tell.
func rootModules(s *diagnose.System) []string {
	root := config.RootDevice(s)
	if root == nil {
		return nil
	}
	var out []string
	if config.MountableTypes[root.FS] && root.FS != "ext2" && root.FS != "ext3" {
		out = append(out, root.FS)
	}
	for _, d := range config.Ancestors(s, s.Root) {
		switch {
		case d.Kind == diagnose.CryptDevice:
			out = append(out, "dm_crypt")
		case d.Kind == diagnose.VolumeDevice:
			out = append(out, "dm_mod")
		case d.Kind == diagnose.DiskDevice && strings.HasPrefix(d.Path, "/dev/vd"):
			out = append(out, "virtio_blk")
		case d.Kind == diagnose.DiskDevice && strings.HasPrefix(d.Path, "/dev/nvme"):
			out = append(out, "nvme")
		}
		for _, a := range s.Arrays {
			if a.Path == d.Path {
				if level := map[string]string{"raid0": "raid0", "raid1": "raid1", "raid10": "raid10", "raid4": "raid456", "raid5": "raid456", "raid6": "raid456"}[a.Level]; level != "" {
					out = append(out, level)
				}
			}
		}
		for _, driver := range d.Drivers {
			out = append(out, config.ModuleName(driver))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// initramfs walks through an image.
func (c *entryChecker) initramfs(image bootFile) *config.InitramfsContent {
	if content, done := c.images[image.Shown]; done {
		return content
	}
	content := &config.InitramfsContent{NotExamined: "it could not be read"}
	if len(c.images) >= maxReadImages {
		content.NotExamined = "more images are loaded than are examined"
	} else if f, err := config.OpenReadAt(image.Tree, image.Path); err == nil {
		content = config.WalkInitramfs(f)
		_ = f.Close()
	}
	c.images[image.Shown] = content
	return content
}
