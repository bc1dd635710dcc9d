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

const resumePath = "/etc/initramfs-tools/conf.d/resume"

func argumentRules() []diagnose.Rule {
	return []diagnose.Rule{
		{IDs: []string{"root-argument-missing", "root-subvolume-missing", "root-type-wrong", "dracut-argument-missing", "kernel-argument-rescue", "kernel-argument-memory"}, Files: true, Look: lookArguments},
		{IDs: []string{"resume-device-missing"}, Files: true, Look: lookResume},
		{IDs: []string{"serial-console-unused"}, Files: true, Look: lookSerialConsole},
		{IDs: []string{"hugepages-too-many"}, Files: true, Look: lookHugepages},
		{IDs: []string{"kernel-limit-starves"}, Files: true, Look: lookKernelLimits},
		{IDs: []string{"root-driver-blocked"}, Files: true, Look: lookBlockedDrivers},
	}
}

// argument returns the last value of an argument of a command line.
func argument(options []string, name string) (string, bool) {
	for _, o := range slices.Backward(options) {
		if value, found := strings.CutPrefix(o, name+"="); found {
			return value, true
		}
	}
	return "", false
}

func rootArgument(options []string) string {
	root, _ := argument(options, "root")
	return root
}

// lookArguments judges the command line of the default entry.
func lookArguments(s *diagnose.System) []diagnose.Finding {
	entries := loadEntries(s)
	e := defaultEntry(entries)
	if e == nil {
		return nil
	}
	out := argumentFindings(s, e)
	if len(out) == 0 {
		return nil
	}
	if other := newEntryChecker(s).wholeEntry(entries, e); other != nil && !e.IsSourced {
		proposeEntry(out, other)
	}
	return out
}

// argumentFindings says what of an entry's command line keeps it from booting.
func argumentFindings(s *diagnose.System, e *loadEntry) []diagnose.Finding {
	line := e.OptionsLine
	if line == 0 {
		line = e.Line
	}
	finding := func(id string, confidence float64, title, text string) diagnose.Finding {
		f := diagnose.Finding{ID: id, Stage: diagnose.Root, Severity: diagnose.BlocksBoot, Confidence: confidence, Title: title,
			Evidence: []diagnose.Evidence{config.FileEvidence(e.File, line, text)}}
		if len(config.HidesDevices(s)) > 0 {
			f.Confidence = min(f.Confidence, 0.4)
		}
		return f
	}
	var out []diagnose.Finding
	root := rootArgument(e.Options)
	if name := config.ParseDeviceName(root); name.Tag != "" && !strings.Contains(name.Value, "$") && !strings.Contains(name.Value, "/PARTNROFF") && !isMadeByKernel(root) {
		found := config.FindDevices(s, name)
		if len(found) == 0 && !config.IsUncertainName(s, name) && !(name.Tag == "path" && isCryptName(s, name.Value)) {
			f := finding("root-argument-missing", 0.97, fmt.Sprintf("Line %d of %s names the root %s, which no device of the machine has.", line, e.File, root), "root="+root)
			if name.Kernel {
				f.Confidence = min(f.Confidence, 0.7)
			}
			proposeRoot(s, e, line, root, &f)
			out = append(out, f)
		}
		if f := subvolumeFinding(s, e, found, finding); f != nil {
			out = append(out, *f)
		}
	}
	if root == "" && needsRootArgument(s, e) {
		f := finding("root-argument-missing", 0.88, fmt.Sprintf("Line %d of %s names no root, and the initramfs of this system asks for the argument root=.", line, e.File), strings.Join(e.Options, " "))
		f.ByHand = "Write root=UUID= and the UUID of the root into the command line of the boot loader."
		out = append(out, f)
	}
	if f := rootTypeFinding(s, e, finding); f != nil {
		out = append(out, *f)
	}
	if f := rootOptionFinding(s, e, finding); f != nil {
		out = append(out, *f)
	}
	return slices.Concat(out, dracutFindings(s, e, finding), plainArgumentFindings(s, e, line), lostFileFindings(s, e, line))
}

// isMadeByKernel says whether a root is a disk in memory or a file system of the network, which the kernel makes itself.
func isMadeByKernel(root string) bool {
	return strings.HasPrefix(root, "/dev/ram") || root == "/dev/nfs"
}

// proposeRoot writes the UUID of the root that was found.
func proposeRoot(s *diagnose.System, e *loadEntry, line int, root string, f *diagnose.Finding) {
	d := config.RootDevice(s)
	if d == nil || d.UUID == "" || !isEditable(s, e) || !strings.Contains(root, "UUID=") && !strings.HasPrefix(root, "/dev/") {
		f.ByHand = "Write the device of the root into the command line of the boot loader."
		return
	}
	f.Evidence = append(f.Evidence, config.DeviceEvidence(d.Path, "the root of this system, with UUID "+d.UUID))
	f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Write root=UUID=%s in place of root=%s into line %d of %s, and into the file that the loader's configuration is made from.", d.UUID, root, line, e.File),
		Consent: diagnose.ConsentBoot, Writes: []string{e.File}}
}

// isEditable says whether the command line of an entry lies in a text file of the system's own tree.
func isEditable(s *diagnose.System, e *loadEntry) bool {
	return !strings.HasSuffix(e.File, ".efi") && e.Kernel.Tree == s.Files
}

// usesInitramfsTools says whether an entry boots by an initramfs of initramfs-tools, whose own program follows the command line.
func usesInitramfsTools(s *diagnose.System, e *loadEntry) bool {
	return len(e.Initrds) > 0 && config.FirstExisting(s.Files, "/usr/sbin/update-initramfs", "/sbin/update-initramfs") != "" && config.FirstExisting(s.Files, "/usr/bin/dracut", "/usr/sbin/dracut") == ""
}

// needsRootArgument says whether an entry boots by an initramfs of initramfs-tools, which finds no root by itself.
func needsRootArgument(s *diagnose.System, e *loadEntry) bool {
	if !usesInitramfsTools(s, e) {
		return false
	}
	for _, o := range e.Options {
		name, _, _ := strings.Cut(o, "=")
		if strings.Contains(o, "$") || slices.Contains([]string{"root", "boot", "nfsroot", "zfs", "bootfs", "BOOT", "rauc.slot", "overlayroot"}, name) {
			return false
		}
	}
	for _, line := range s.Files.Lines("/etc/initramfs-tools/initramfs.conf") {
		if strings.HasPrefix(strings.TrimSpace(line), "ROOT=") || strings.HasPrefix(strings.TrimSpace(line), "BOOT=nfs") {
			return false
		}
	}
	return true
}

// rootTypeFinding looks at rootfstype=, as which the initramfs or the kernel mounts the root.
func rootTypeFinding(s *diagnose.System, e *loadEntry, finding argumentFinding) *diagnose.Finding {
	kinds, set := argument(e.Options, "rootfstype")
	root := config.RootDevice(s)
	if !set || kinds == "" || root == nil || root.FS == "" || !config.MountableTypes[root.FS] {
		return nil
	}
	if slices.ContainsFunc(strings.Split(kinds, ","), func(kind string) bool { return kind == "auto" || typeFits(kind, root.FS) }) {
		return nil
	}
	f := finding("root-type-wrong", 0.9, fmt.Sprintf("The file %s has the root mounted as %s, and %s holds %s.", e.File, kinds, root.Path, root.FS), "rootfstype="+kinds)
	f.Evidence = append(f.Evidence, config.DeviceEvidence(root.Path, "its content is "+root.FS))
	f.ByHand = "Write rootfstype=" + root.FS + " into the command line of the boot loader, or remove the argument."
	return &f
}

// rootOptionFinding looks at rootflags=, the options with which the initramfs or the kernel mounts the root.
func rootOptionFinding(s *diagnose.System, e *loadEntry, finding argumentFinding) *diagnose.Finding {
	flags, set := argument(e.Options, "rootflags")
	root := config.RootDevice(s)
	if !set || root == nil || !config.MountableTypes[root.FS] || strings.Contains(flags, "$") {
		return nil
	}
	bad, like := config.InvalidOption(&config.FstabLine{Type: root.FS, Options: strings.Split(flags, ","), Fields: 4})
	if bad == "" {
		return nil
	}
	f := finding("root-type-wrong", 0.9, fmt.Sprintf("The file %s has the root mounted with the option %s, which the %s on %s does not know.", e.File, bad, root.FS, root.Path), "rootflags="+flags)
	f.Evidence = append(f.Evidence, config.DeviceEvidence(root.Path, "its content is "+root.FS))
	f.ByHand = "Remove " + bad + " from rootflags= in the command line of the boot loader."
	if like != "" {
		f.ByHand = "Write " + like + " in place of " + bad + " into rootflags= in the command line of the boot loader."
	}
	return &f
}

type argumentFinding func(id string, confidence float64, title, text string) diagnose.Finding

// subvolumeFinding looks at rootflags=subvol=.
func subvolumeFinding(s *diagnose.System, e *loadEntry, found []*diagnose.Device, finding argumentFinding) *diagnose.Finding {
	flags, ok := argument(e.Options, "rootflags")
	if !ok || len(found) != 1 || len(found[0].Subvolumes) == 0 {
		return nil
	}
	for flag := range strings.SplitSeq(flags, ",") {
		want, isSubvolume := strings.CutPrefix(flag, "subvol=")
		want = strings.Trim(want, "/")
		if !isSubvolume || want == "" || slices.ContainsFunc(found[0].Subvolumes, func(v string) bool { return strings.Trim(v, "/") == want }) {
			continue
		}
		f := finding("root-subvolume-missing", 0.97, fmt.Sprintf("The file %s names the root's subvolume %s, which %s does not have.", e.File, want, found[0].Path), "rootflags="+flags)
		f.Evidence = append(f.Evidence, config.DeviceEvidence(found[0].Path, "its subvolumes: "+strings.Join(found[0].Subvolumes[:min(len(found[0].Subvolumes), 12)], ", ")))
		if rootSubvolume := plainSubvolume(s.RootSubvolume); rootSubvolume != "" && found[0].Path == s.Root && isEditable(s, e) {
			f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Name the subvolume %s, which holds this system, in %s and in the file that the loader's configuration is made from.", rootSubvolume, e.File),
				Consent: diagnose.ConsentBoot, Writes: []string{e.File}}
			return &f
		}
		f.ByHand = "Write an existing subvolume into rootflags=subvol= of the command line; `btrfs subvolume list` shows them."
		return &f
	}
	return nil
}

// dracutFindings looks at the volumes, arrays and containers that dracut waits for.
func dracutFindings(s *diagnose.System, e *loadEntry, finding argumentFinding) []diagnose.Finding {
	var out []diagnose.Finding
	for _, o := range e.Options {
		name, value, _ := strings.Cut(o, "=")
		value = strings.Trim(value, `"`)
		missing := false
		switch name {
		case "rd.lvm.lv":
			group, volume, found := strings.Cut(value, "/")
			missing = found && len(s.Groups) > 0 && !slices.ContainsFunc(s.Groups, func(g diagnose.VolumeGroup) bool {
				return g.Name == group && slices.ContainsFunc(g.Volumes, func(v diagnose.LogicalVolume) bool { return v.Name == volume })
			})
		case "rd.md.uuid":
			clean := func(id string) string { return strings.ToLower(strings.NewReplacer(":", "", "-", "").Replace(id)) }
			missing = len(s.Arrays) > 0 && !slices.ContainsFunc(s.Arrays, func(a diagnose.Array) bool { return clean(a.UUID) == clean(value) })
		case "rd.luks.uuid":
			value = strings.TrimPrefix(value, "luks-")
			missing = !slices.ContainsFunc(s.Devices, func(d diagnose.Device) bool {
				return d.FS == "crypto_LUKS" && strings.HasPrefix(strings.ToLower(d.UUID), strings.ToLower(value))
			})
		}
		if missing && value != "" {
			f := finding("dracut-argument-missing", 0.85, fmt.Sprintf("The file %s makes the initramfs wait for %s, which the machine does not have.", e.File, o), o)
			f.ByHand = "Remove the argument from the command line of the boot loader, or correct it."
			out = append(out, f)
		}
	}
	return out
}

// plainArgumentFindings looks at arguments that need no device.
func plainArgumentFindings(s *diagnose.System, e *loadEntry, line int) []diagnose.Finding {
	var out []diagnose.Finding
	for _, o := range e.Options {
		name, value, _ := strings.Cut(o, "=")
		loses := ""
		f := argumentToRemove(s, e, line, o)
		instead, stage := detour(s, e, o)
		switch {
		case instead != "":
			f.ID, f.Stage, f.Title = "kernel-argument-rescue", stage, fmt.Sprintf("Line %d of %s starts %s instead of the system, by the argument %s.", line, e.File, instead, o)
			loses = losesRescue
		case name == "mem" && tooLittleMemory(value):
			f.ID, f.Stage, f.Title = "kernel-argument-memory", diagnose.Kernel, fmt.Sprintf("Line %d of %s leaves the system too little memory, by the argument %s.", line, e.File, o)
		case (name == "hugepages" || name == "vm.nr_hugepages") && tooManyHugepages(s, e.Options, value):
			f.ID, f.Stage, f.Title = "kernel-argument-memory", diagnose.Kernel, fmt.Sprintf("Line %d of %s takes all memory for huge pages, by the argument %s.", line, e.File, o)
			loses = losesHugepages
		default:
			continue
		}
		if f.Repair != nil {
			f.Repair.Loses = loses
		}
		out = append(out, f)
	}
	return out
}

// losesRescue says what may be lost where the system starts instead of a shell for rescue.
const losesRescue = "All services start. Someone may have kept them from starting on purpose, such as a member of a cluster."

// argumentToRemove is a finding without id, stage and title about an argument without which the entry boots.
func argumentToRemove(s *diagnose.System, e *loadEntry, line int, o string) diagnose.Finding {
	f := diagnose.Finding{Severity: diagnose.BlocksBoot, Confidence: 0.9, Evidence: []diagnose.Evidence{config.FileEvidence(e.File, line, o)},
		Repair: &diagnose.Repair{Summary: fmt.Sprintf("Remove %s from line %d of %s, and from the file that the loader's configuration is made from.", o, line, e.File),
			Consent: diagnose.ConsentBoot, Writes: []string{e.File}}}
	if !isEditable(s, e) {
		f.Repair, f.ByHand = nil, fmt.Sprintf("Remove %s from the command line of the boot loader.", o)
	}
	return f
}

const rescueShell = "a shell for rescue"

// shells are programs that wait for commands where a boot starts one of them as its first program.
var shells = []string{"sh", "bash", "dash", "ash"}

// breakStages are the places at which initramfs-tools, asked by break=, starts a shell.
var breakStages = strings.Fields("top modules premount mount mountroot bottom init")

// detour says what an argument starts in place of the system, and at which stage of the boot; empty where the argument leaves the boot as it is.
func detour(s *diagnose.System, e *loadEntry, o string) (instead string, stage diagnose.Stage) {
	name, value, hasValue := strings.Cut(o, "=")
	switch {
	case slices.Contains([]string{"single", "emergency", "rescue", "1", "-b", "S"}, o) || name == "systemd.unit" && slices.Contains(rescueTargets, value):
		return rescueShell, diagnose.Target
	case name == "systemd.unit" && strings.HasSuffix(value, ".target") && !strings.ContainsAny(value, "@$/") && config.UsesSystemd(s.Files) && !unitExists(s.Files, value):
		return rescueShell, diagnose.Target // systemd starts rescue.target in place of a unit that is not there
	case name == "rd.break":
		return rescueShell, diagnose.Initramfs
	case name == "break" && usesInitramfsTools(s, e) && (!hasValue || slices.ContainsFunc(strings.Split(value, ","), func(at string) bool { return slices.Contains(breakStages, at) })):
		return rescueShell, diagnose.Initramfs
	case name == "rdinit" && slices.Contains(shells, path.Base(value)):
		return rescueShell, diagnose.Initramfs
	case name == "init" && slices.Contains(shells, path.Base(value)):
		return rescueShell, diagnose.Init
	case name == "systemd.run" && value != "" && config.UsesSystemd(s.Files):
		return "one command", diagnose.Target
	}
	return "", ""
}

// lostFileFindings looks at arguments that name files of the initramfs which the initramfs does not hold.
func lostFileFindings(s *diagnose.System, e *loadEntry, line int) []diagnose.Finding {
	first, hasFirst := argument(e.Options, "rdinit")
	script, hasScript := argument(e.Options, "boot")
	hasFirst = hasFirst && path.IsAbs(first) && needsInitramfs(rootArgument(e.Options))
	hasScript = hasScript && script != "local" && script != "nfs" && script != "" && !strings.ContainsAny(script, "/$") && usesInitramfsTools(s, e)
	if !hasFirst && !hasScript {
		return nil
	}
	content := newEntryChecker(s).joinedInitramfs(e)
	if content == nil || content.Damage != "" || content.NotExamined != "" {
		return nil
	}
	var out []diagnose.Finding
	lost := func(o, name, effect string) {
		f := argumentToRemove(s, e, line, o)
		f.ID, f.Stage = "kernel-argument-rescue", diagnose.Initramfs
		f.Title = fmt.Sprintf("Line %d of %s names the file %s of the initramfs by the argument %s, and %s does not hold the file, so that %s.", line, e.File, name, o, e.initramfs(), effect)
		f.Evidence = append(f.Evidence, config.FileEvidence(e.initramfs(), 0, "it holds no "+name))
		out = append(out, f)
	}
	if name := strings.Trim(path.Clean(first), "/"); hasFirst && !content.Names[name] && !content.Names["usr/"+name] {
		lost("rdinit="+first, "/"+name, "the kernel looks for the root without the initramfs")
	}
	if name := "scripts/" + script; hasScript && content.HasBelow("scripts/") && !content.Names[name] && !content.HasBelow(name+"/") {
		lost("boot="+script, "/"+name, "the initramfs ends")
	}
	return out
}

// parseBytes reads 512M or 0x1000.
func parseBytes(text string) (int64, bool) {
	shift := map[byte]uint{'k': 10, 'm': 20, 'g': 30, 't': 40}
	text = strings.ToLower(text)
	unit := uint(0)
	if text != "" && shift[text[len(text)-1]] > 0 {
		unit, text = shift[text[len(text)-1]], text[:len(text)-1]
	}
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0, false
	}
	return n << unit, n<<unit>>unit == n
}

func tooLittleMemory(value string) bool {
	n, ok := parseBytes(value)
	return ok && n < 256<<20
}

// tooManyHugepages: the pages would take more than nine tenths of the memory.
func tooManyHugepages(s *diagnose.System, options []string, count string) bool {
	size := int64(2 << 20)
	if text, ok := argument(options, "hugepagesz"); ok {
		if n, ok := parseBytes(text); ok && n > 0 {
			size = n
		}
	}
	n, err := strconv.ParseInt(count, 10, 64)
	return err == nil && s.Memory > 0 && n > s.Memory/10*9/size
}

// lookBlockedDrivers finds modprobe.d files that keep the root's drivers from loading.
func lookBlockedDrivers(s *diagnose.System) []diagnose.Finding {
	needed := rootModules(s)
	var out []diagnose.Finding
	for _, folder := range []string{"/etc/modprobe.d", "/usr/lib/modprobe.d"} {
		for _, file := range s.Files.Match(folder, "*.conf") {
			for i, text := range s.Files.Lines(file) {
				fields := strings.Fields(text)
				if len(fields) < 2 || !slices.Contains(needed, config.ModuleName(fields[1])) {
					continue
				}
				isFalse := fields[0] == "install" && len(fields) > 2 && (strings.HasSuffix(fields[2], "/true") || strings.HasSuffix(fields[2], "/false"))
				// A blacklisted file system loads all the same, because mount asks for it by its own name.
				if !isFalse && !(fields[0] == "blacklist" && !config.MountableTypes[fields[1]]) {
					continue
				}
				out = append(out, diagnose.Finding{
					ID: "root-driver-blocked", Stage: diagnose.Initramfs, Severity: diagnose.BlocksBoot, Confidence: 0.75,
					Title:    fmt.Sprintf("Line %d of %s keeps the module %s from loading, which the root on %s needs.", i+1, file, fields[1], s.Root),
					Evidence: []diagnose.Evidence{config.FileEvidence(file, i+1, text)},
					Repair: &diagnose.Repair{Summary: fmt.Sprintf("Make line %d of %s a comment, and build the initramfs anew.", i+1, file), Consent: diagnose.ConsentBoot,
						Writes: []string{file}},
				})
			}
		}
	}
	e := defaultEntry(loadEntries(s))
	if e == nil {
		return out
	}
	for _, option := range e.Options { // modules that are loaded by their own names stay available to a boot by modprobe.blacklist
		name, value, _ := strings.Cut(option, "=")
		if name != "modprobe.blacklist" && name != "module_blacklist" && name != "rd.driver.blacklist" {
			continue
		}
		for module := range strings.SplitSeq(value, ",") {
			if module = config.ModuleName(module); !slices.Contains(needed, module) || name != "module_blacklist" && config.MountableTypes[module] {
				continue
			}
			line := max(e.OptionsLine, e.Line)
			out = append(out, diagnose.Finding{
				ID: "root-driver-blocked", Stage: diagnose.Initramfs, Severity: diagnose.BlocksBoot, Confidence: 0.8,
				Title:    fmt.Sprintf("Line %d of %s keeps the module %s from loading, which the root on %s needs.", line, e.File, module, s.Root),
				Evidence: []diagnose.Evidence{config.FileEvidence(e.File, line, option)},
				ByHand:   "Remove " + option + " from the command line of the boot loader.",
			})
		}
	}
	return out
}

// lookResume finds a device for a suspended system that is not there: the initramfs waits for it.
func lookResume(s *diagnose.System) []diagnose.Finding {
	type source struct {
		file, value string
		line        int
		isEditable  bool
	}
	var sources []source
	if set, found := config.LastSetting(config.ShellSettings(s.Files.Lines(resumePath)), "RESUME"); found {
		sources = append(sources, source{resumePath, set.Value, set.Line, true})
	}
	if e := defaultEntry(loadEntries(s)); e != nil {
		if value, found := argument(e.Options, "resume"); found && !slices.Contains(e.Options, "noresume") {
			sources = append(sources, source{e.File, value, max(e.OptionsLine, e.Line), isEditable(s, e)})
		}
	}
	var out []diagnose.Finding
	for _, from := range sources {
		name := config.ParseDeviceName(from.value)
		if name.Tag == "" || len(config.FindDevices(s, name)) > 0 || isCryptName(s, name.Value) || config.IsUncertainName(s, name) {
			continue
		}
		f := diagnose.Finding{
			ID: "resume-device-missing", Stage: diagnose.Initramfs, Severity: diagnose.Degrades, Confidence: 0.9,
			Title:    fmt.Sprintf("Line %d of %s makes the boot wait for the swap space %s, which no device of the machine has.", from.line, from.file, from.value),
			Evidence: []diagnose.Evidence{config.FileEvidence(from.file, from.line, from.value)},
			ByHand:   "Remove the resume argument from the command line of the boot loader.",
		}
		switch {
		case len(config.HidesDevices(s)) > 0 || name.Kernel: // it may well be there
			f.Confidence = 0.4
		case from.file == resumePath:
			f.Repair, f.ByHand = &diagnose.Repair{Summary: "Write RESUME=none into " + resumePath + ", and build the initramfs anew.", Consent: diagnose.ConsentBoot,
				Writes: []string{resumePath}}, ""
		case from.isEditable:
			f.Evidence[0].Text = "resume=" + from.value
			f.Repair, f.ByHand = &diagnose.Repair{Summary: fmt.Sprintf("Remove resume=%s from %s, and from the file that the loader's configuration is made from.", from.value, from.file),
				Consent: diagnose.ConsentBoot, Writes: []string{from.file}}, ""
		}
		out = append(out, f)
	}
	return out
}

// lookSerialConsole: without console=ttyS0, a serial console shows nothing behind the loader.
func lookSerialConsole(s *diagnose.System) []diagnose.Finding {
	e := defaultEntry(loadEntries(s))
	if e == nil || e.Kernel.Path == "" || e.OptionsLine == 0 {
		return nil
	}
	for _, o := range e.Options {
		value, found := strings.CutPrefix(o, "console=")
		if found && !strings.HasPrefix(value, "tty0") && !strings.HasPrefix(value, "tty1") {
			return nil
		}
	}
	return []diagnose.Finding{{
		ID: "serial-console-unused", Stage: diagnose.Kernel, Severity: diagnose.Info, Confidence: 0.9,
		Title:    fmt.Sprintf("Line %d of %s names no serial console, so that the serial console shows nothing behind the loader.", e.OptionsLine, e.File),
		Evidence: []diagnose.Evidence{config.FileEvidence(e.File, e.OptionsLine, "no console= of a serial port")},
	}}
}
