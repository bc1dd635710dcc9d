package system

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
	rules "salvor/diagnose/system"
	"salvor/repair"
)

const (
	grubDefaultsPath = "/etc/default/grub"
	entryOrBuild     = "makes a whole entry of another kernel the default one by its id, or else builds the initramfs anew with the system's own tool"
	entryOnly        = "makes a whole entry of another kernel the default one by its id"
)

// removePreloads takes the libraries that the evidence names out of their lines of /etc/ld.so.preload.
func removePreloads(_ context.Context, c *repairCase) error {
	for _, e := range c.finding.Evidence {
		if e.Kind != diagnose.FromFile || e.Path != rules.PreloadPath || e.Line == 0 {
			continue
		}
		if err := c.editLine(e.Path, e.Line, func(line string) string { return rules.WithoutPreloads(line, []string{e.Text}) }); err != nil {
			return err
		}
	}
	return nil
}

// kernelRows choose a kernel, and correct what it is started with.
func kernelRows() []tableRow {
	boot, files := diagnose.ConsentBoot, diagnose.ConsentFiles
	builds := func(f diagnose.Finding) bool { return !rules.ProposesEntry(f) }
	// An entry that loads no initramfs gets one when the menu is written anew.
	lacksLine := func(f diagnose.Finding) bool { return builds(f) && strings.Contains(f.Title, "loads no initramfs") }
	return []tableRow{
		{finding: "network-driver-blocked", consent: boot, change: commentEvidence, initramfs: always, does: "makes the line a comment, and builds the initramfs anew"},
		{finding: "preload-library-broken", consent: diagnose.ConsentFiles, change: removePreloads, does: "takes the library out of the line; others in the line stay"},
		{finding: "root-driver-blocked", consent: boot, change: commentEvidence, initramfs: always, does: "makes the line a comment, and builds the initramfs anew"},
		{finding: "resume-device-missing", consent: boot, change: forgetResume, initramfs: func(f diagnose.Finding) bool { return !isArgument(f) },
			does: "writes `RESUME=none` and builds the initramfs anew, or removes the argument"},
		{finding: "grub-environment-invalid", consent: files, change: restoreEnvironment, does: "writes a new environment block with the settings that can be read"},
		{finding: "boot-entries-missing", consent: boot, change: writeEntries,
			does: "writes an entry for each kernel, with the arguments of /etc/kernel/cmdline, or else with the root and those of /etc/default/grub"},
		{finding: "kernel-missing", consent: boot, change: nameKernel, does: entryOnly + ", or else names the kernel that belongs to the entry"},
		{finding: "kernel-damaged", consent: boot, change: chooseEntry, does: entryOnly},
		{finding: "kernel-changed", consent: boot, change: chooseEntry, does: entryOnly},
		{finding: "secure-boot-unsigned", consent: boot, change: chooseEntry, does: entryOnly + ", whose kernel is signed"},
		{finding: "secure-boot-revoked", consent: boot, change: chooseEntry, does: entryOnly + ", whose kernel is signed and not revoked"},
		{finding: "root-subvolume-missing", consent: boot, change: correctRootSubvolume, does: entryOnly + ", or else names the subvolume that holds the system"},
		{finding: "dracut-argument-missing", consent: boot, change: chooseEntry, does: entryOnly},
		{finding: "root-argument-missing", consent: boot, change: correctRoot, does: "makes a whole entry of another kernel the default one by its id, or else writes the UUID of the root"},
		{finding: "kernel-argument-rescue", consent: boot, change: removeKernelArgument, does: "makes a whole entry of another kernel the default one by its id, or else removes the argument"},
		{finding: "kernel-argument-memory", consent: boot, change: removeKernelArgument, does: "makes a whole entry of another kernel the default one by its id, or else removes the argument"},
		{finding: "modules-missing", consent: boot, change: listModules, does: "makes a whole entry of another kernel the default one by its id, or else runs the system's own depmod"},
		{finding: "initramfs-missing", consent: boot, change: chooseOrBuild, initramfs: builds, menu: lacksLine, does: entryOrBuild},
		{finding: "initramfs-damaged", consent: boot, change: chooseOrBuild, initramfs: builds, does: entryOrBuild},
		{finding: "initramfs-lacks-driver", consent: boot, change: allowDriver, initramfs: builds,
			does: entryOrBuild + ", after `omit_drivers` of dracut leaves it out no more, or `MODULES=` of initramfs-tools"},
		{finding: "initramfs-lacks-tool", consent: boot, change: chooseOrBuild, initramfs: builds, does: entryOrBuild},
	}
}

// menuRows repair the menu of GRUB. A menu that is written anew is written last.
func menuRows() []tableRow {
	boot := diagnose.ConsentBoot
	const anew = "writes the menu anew with the system's own grub-mkconfig, without looking for other systems, unless a person wrote the menu"
	return []tableRow{
		{finding: "grub-config-missing", consent: boot, change: checkMenuTool, menu: always, does: anew},
		{finding: "grub-config-empty", consent: boot, change: checkMenuTool, menu: always, does: anew},
		{finding: "grub-config-invalid", consent: boot, change: checkMenuTool, menu: always, does: anew},
		{finding: "grub-search-missing", consent: boot, change: checkMenuTool, menu: always, does: anew},
		{finding: "extlinux-default-missing", consent: boot, change: chooseLabel, does: "makes the first whole entry the default one"},
		{finding: "grub-menu-waits", consent: boot, change: endWaiting, does: "writes a timeout of 5 seconds"},
		{finding: "grub-stub-search-missing", consent: boot, change: correctStub, does: "writes the UUID of the file system that holds /boot into the line of the stub"},
	}
}

// chooseEntry makes a whole entry the default one.
func chooseEntry(_ context.Context, c *repairCase) error {
	e, found := rules.WholeEntry(c.system)
	if !found {
		return c.unsupported("no other entry is whole")
	}
	if strings.ContainsAny(e.ID, "\"'$`\\\n") || e.ID == "" {
		return c.unsupported("the id %q of the whole entry cannot be written", e.ID)
	}
	if !e.Mounted {
		return c.unsupported("the file system that holds %s is not mounted in the system", e.File)
	}
	switch e.Loader {
	case "GRUB":
		return c.chooseGRUB(e.ID)
	case "systemd-boot":
		id := e.ID
		if !strings.HasSuffix(id, ".efi") {
			id += ".conf"
		}
		return c.setWord(path.Join(path.Dir(path.Dir(e.File)), "loader.conf"), "default", id)
	}
	return c.setWord(e.File, "DEFAULT", e.ID)
}

// chooseLabel makes a whole entry of extlinux's menu the default one.
func chooseLabel(_ context.Context, c *repairCase) error {
	file := c.firstEvidence().Path
	label := rules.WholeLabel(c.system, file)
	if label == "" {
		return c.unsupported("%s has no entry that is whole", file)
	}
	return c.setWord(file, "DEFAULT", label)
}

func writeEntries(_ context.Context, c *repairCase) error {
	loader := "GRUB"
	if c.firstEvidence().Kind == diagnose.FromDevice {
		loader = "systemd-boot"
	}
	for _, e := range rules.MissingEntryFiles(c.system, loader) {
		if err := c.writeWithFolder(e.Path, e.Text); err != nil {
			return err
		}
	}
	return nil
}

// nameKernel makes another entry the default one, or lets the entry of the finding name its kernel.
func nameKernel(ctx context.Context, c *repairCase) error {
	if rules.ProposesEntry(c.finding) {
		return chooseEntry(ctx, c)
	}
	file := c.finding.Repair.Writes[0]
	return c.setWord(file, "linux", rules.KernelOfEntryFile(c.system, file))
}

// setWord sets a keyword of a configuration such as loader.conf, and adds its line where there is none.
func (c *repairCase) setWord(file, keyword, value string) error {
	text, err := c.readOptional(file)
	if err != nil {
		return err
	}
	found := false
	text = editLines(text, func(line string) string {
		if fields := strings.Fields(line); len(fields) > 0 && strings.EqualFold(fields[0], keyword) {
			found = true
			return fields[0] + " " + value
		}
		return line
	})
	if !found {
		text = appendLine(text, keyword+" "+value)
	}
	return c.write(file, text)
}

// defaultLine is a line of grub.cfg that sets the default to a fixed value.
var defaultLine = regexp.MustCompile(`^(\s*set\s+default=)["']?([^"'$]*)["']?(\s*)$`)

// chooseGRUB sets the default of GRUB: in its environment block where it asks there, otherwise in its menu and in the file that it is made from.
func (c *repairCase) chooseGRUB(id string) error {
	file, _ := rules.GrubMenu(c.system)
	if rules.GrubTakesSaved(c.system) {
		return c.setEnvironment(path.Join(path.Dir(file), "grubenv"), "saved_entry", id)
	}
	if err := c.changed(file, func(text string) string {
		return editLines(text, func(line string) string {
			if m := defaultLine.FindStringSubmatch(line); m != nil {
				return m[1] + `"` + id + `"` + m[3]
			}
			return line
		})
	}); err != nil {
		return err
	}
	return c.setDefaults("GRUB_DEFAULT", `"`+id+`"`, true)
}

// setDefaults sets a variable of /etc/default/grub, if the system has the file. add: also where no line sets it.
func (c *repairCase) setDefaults(name, value string, add bool) error {
	if !c.system.Files.Exists(grubDefaultsPath) {
		return nil
	}
	return c.editText(grubDefaultsPath, func(text string) string {
		found := false
		text = editLines(text, func(line string) string {
			if strings.HasPrefix(strings.TrimPrefix(strings.TrimSpace(line), "export "), name+"=") {
				found = true
				return name + "=" + value
			}
			return line
		})
		if !found && add {
			text = appendLine(text, name+"="+value)
		}
		return text
	})
}

const (
	environmentHeader = "# GRUB Environment Block\n"
	environmentSize   = 1024
)

var environmentLine = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=[^\x00-\x1f\x7f]*$`)

// environmentBlock is an environment block of GRUB with the settings of a text and one more. It is empty where they do not fit.
func environmentBlock(text, name, value string) string {
	var out strings.Builder
	out.WriteString(environmentHeader)
	for _, line := range diagnose.SplitLines(text) {
		if key, _, _ := strings.Cut(line, "="); environmentLine.MatchString(line) && key != name {
			out.WriteString(line + "\n")
		}
	}
	if name != "" {
		out.WriteString(name + "=" + value + "\n")
	}
	if out.Len() > environmentSize {
		return ""
	}
	return out.String() + strings.Repeat("#", environmentSize-out.Len())
}

func (c *repairCase) setEnvironment(file, name, value string) error {
	text, err := c.readOptional(file)
	if err != nil {
		return err
	}
	block := environmentBlock(text, name, value)
	if block == "" {
		return c.unsupported("the settings of %s do not fit into an environment block", file)
	}
	return c.write(file, block)
}

func restoreEnvironment(_ context.Context, c *repairCase) error {
	return c.setEnvironment(c.firstEvidence().Path, "", "")
}

// chooseOrBuild makes another entry the default one, because that changes less; otherwise Finish builds the initramfs.
func chooseOrBuild(ctx context.Context, c *repairCase) error {
	if rules.ProposesEntry(c.finding) {
		return chooseEntry(ctx, c)
	}
	_, err := c.initramfsCommand()
	return err
}

// allowDriver is chooseOrBuild after a change of the lines that leave the driver out.
func allowDriver(ctx context.Context, c *repairCase) error {
	if rules.ProposesEntry(c.finding) {
		return chooseEntry(ctx, c)
	}
	modules := rules.RootModules(c.system)
	for _, at := range c.finding.Evidence {
		var err error
		switch {
		case at.Text == "MODULES=dep":
			err = c.editLine(at.Path, at.Line, func(string) string { return "MODULES=most" })
		case at.Text == "MODULES=list":
			err = c.addModules(modules)
		case strings.HasPrefix(at.Path, "/etc/dracut"):
			err = c.editLine(at.Path, at.Line, func(line string) string { return config.AllowDrivers(line, modules) })
		}
		if err != nil {
			return err
		}
	}
	return chooseOrBuild(ctx, c)
}

// addModules adds modules to those that initramfs-tools takes.
func (c *repairCase) addModules(modules []string) error {
	text, err := c.readOptional(config.InitramfsModulesPath)
	if err != nil {
		return err
	}
	before := diagnose.SplitLines(text)
	for _, m := range modules {
		if !slices.Contains(before, m) {
			text = appendLine(text, m)
		}
	}
	return c.write(config.InitramfsModulesPath, text)
}

func checkMenuTool(_ context.Context, c *repairCase) error {
	if file, tool := rules.GrubMenu(c.system); tool == "" {
		return c.unsupported("the tool that writes %s is not known; write it by hand", file)
	}
	return nil
}

// endlessTimeout is a line of grub.cfg that waits for a key.
var endlessTimeout = regexp.MustCompile(`^(\s*set\s+timeout=)["']?-1["']?(\s*)$`)

func endWaiting(_ context.Context, c *repairCase) error {
	if err := c.changed(c.firstEvidence().Path, func(text string) string {
		return editLines(text, func(line string) string {
			if m := endlessTimeout.FindStringSubmatch(line); m != nil {
				return m[1] + "5" + m[2]
			}
			return line
		})
	}); err != nil {
		return err
	}
	for _, name := range []string{"GRUB_TIMEOUT", "GRUB_RECORDFAIL_TIMEOUT"} {
		for _, line := range c.system.Files.Lines(grubDefaultsPath) {
			if value, found := strings.CutPrefix(strings.TrimSpace(line), name+"="); found && strings.Trim(value, `"'`) == "-1" {
				if err := c.setDefaults(name, "5", false); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// correctStub changes what one line of the configuration on the EFI system partition looks for. The rest of it stays.
func correctStub(_ context.Context, c *repairCase) error {
	at, boot := c.firstEvidence(), rules.BootDevice(c.system)
	if boot == nil {
		return c.unsupported("the file system that holds /boot is not known")
	}
	return c.editLine(at.Path, at.Line, func(line string) string {
		tag, value := config.GrubSearch(line)
		to := map[string]string{"UUID": boot.UUID, "LABEL": boot.Label}[tag]
		if to == "" || strings.ContainsAny(to, " \t\"'$\\") {
			return line
		}
		return strings.Replace(line, value, to, 1)
	})
}

func writeMenu(ctx context.Context, c *repairCase) error {
	file, tool := rules.GrubMenu(c.system)
	if tool == "" {
		return c.unsupported("the tool that writes %s is not known; write it by hand", file)
	}
	makeMenu := repair.Program{
		Command: []string{tool, "-o", file}, Environment: []string{"GRUB_DISABLE_OS_PROBER=true"}, Changes: []string{path.Dir(file)}, Devices: c.bootDevices(), Limit: buildLimit,
	}
	if err := c.run(ctx, makeMenu); err != nil {
		return err
	}
	if check := c.firstProgram("/usr/bin/grub-script-check", "/usr/bin/grub2-script-check"); check != "" {
		return c.run(ctx, repair.Program{Command: []string{check, file}})
	}
	return nil
}
