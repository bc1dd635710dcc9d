package system

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"salvor/diagnose"
	rules "salvor/diagnose/system"
	"salvor/repair"
)

const (
	grubDefaultsPath = "/etc/default/grub"
	entryOrBuild     = "makes a whole entry of another kernel the default one by its id, or else builds the initramfs anew with the system's own tool"
	entryOnly        = "makes a whole entry of another kernel the default one by its id"
)

// kernelRows choose a kernel, and correct what it is started with.
func kernelRows() []tableRow {
	boot, files := diagnose.ConsentBoot, diagnose.ConsentFiles
	builds := func(f diagnose.Finding) bool { return !rules.ProposesEntry(f) }
	// An entry that loads no initramfs gets one when the menu is written anew.
	lacksLine := func(f diagnose.Finding) bool { return builds(f) && strings.Contains(f.Title, "loads no initramfs") }
	return []tableRow{
		{finding: "root-driver-blocked", consent: boot, change: commentEvidence, initramfs: always, does: "makes the line a comment, and builds the initramfs anew"},
		{finding: "resume-device-missing", consent: boot, change: forgetResume, initramfs: always, does: "writes `RESUME=none`, and builds the initramfs anew"},
		{finding: "grub-environment-invalid", consent: files, change: restoreEnvironment, does: "writes a new environment block with the settings that can be read"},
		{finding: "kernel-missing", consent: boot, change: chooseEntry, does: entryOnly},
		{finding: "kernel-damaged", consent: boot, change: chooseEntry, does: entryOnly},
		{finding: "kernel-changed", consent: boot, change: chooseEntry, does: entryOnly},
		{finding: "secure-boot-unsigned", consent: boot, change: chooseEntry, does: entryOnly + ", whose kernel is signed"},
		{finding: "secure-boot-revoked", consent: boot, change: chooseEntry, does: entryOnly + ", whose kernel is signed and not revoked"},
		{finding: "root-subvolume-missing", consent: boot, change: chooseEntry, does: entryOnly},
		{finding: "dracut-argument-missing", consent: boot, change: chooseEntry, does: entryOnly},
		{finding: "root-argument-missing", consent: boot, change: correctRoot, does: "makes a whole entry of another kernel the default one by its id, or else writes the UUID of the root"},
		{finding: "kernel-argument-rescue", consent: boot, change: removeKernelArgument, does: "makes a whole entry of another kernel the default one by its id, or else removes the argument"},
		{finding: "kernel-argument-memory", consent: boot, change: removeKernelArgument, does: "makes a whole entry of another kernel the default one by its id, or else removes the argument"},
		{finding: "modules-missing", consent: boot, change: listModules, does: "makes a whole entry of another kernel the default one by its id, or else runs the system's own depmod"},
		{finding: "initramfs-missing", consent: boot, change: chooseOrBuild, initramfs: builds, menu: lacksLine, does: entryOrBuild},
		{finding: "initramfs-damaged", consent: boot, change: chooseOrBuild, initramfs: builds, does: entryOrBuild},
		{finding: "initramfs-lacks-driver", consent: boot, change: chooseOrBuild, initramfs: builds, does: entryOrBuild},
		{finding: "initramfs-lacks-tool", consent: boot, change: chooseOrBuild, initramfs: builds, does: entryOrBuild},
	}
}

// menuRows repair the menu of GRUB. A menu that is written anew is written last.
func menuRows() []tableRow {
	boot := diagnose.ConsentBoot
	const anew = "writes the menu anew with the system's own grub-mkconfig, without looking for other systems"
	return []tableRow{
		{finding: "grub-config-missing", consent: boot, change: checkMenuTool, menu: always, does: anew},
		{finding: "grub-config-empty", consent: boot, change: checkMenuTool, menu: always, does: anew},
		{finding: "grub-config-invalid", consent: boot, change: checkMenuTool, menu: always, does: anew},
		{finding: "grub-search-missing", consent: boot, change: checkMenuTool, menu: always, does: anew},
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

func forgetResume(_ context.Context, c *repairCase) error {
	at := c.firstEvidence()
	return c.editLine(at.Path, at.Line, func(string) string { return "RESUME=none" })
}

// replaceArgument replaces an argument of a kernel command line where it stands by itself. An empty one removes it.
func replaceArgument(text, from, to string) string {
	if from == "" {
		return text
	}
	const blanks = " \t\"'"
	lines := splitText(text)
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for at := 0; ; {
			next := strings.Index(line[at:], from)
			if next < 0 {
				break
			}
			start := at + next
			end := start + len(from)
			before := start > 0 && strings.IndexByte(blanks, line[start-1]) >= 0
			after := end == len(line) || strings.IndexByte(blanks+"\r\n", line[end]) >= 0
			if at = end; !before || !after {
				continue
			}
			if to == "" && line[start-1] != '"' && line[start-1] != '\'' { // with the blank before it
				start--
			}
			line = line[:start] + to + line[end:]
			at = start + len(to)
		}
		lines[i] = line
	}
	return strings.Join(lines, "")
}

// commandLineFiles are the files that hold kernel command lines, those from which a loader's configuration is made among them.
func (c *repairCase) commandLineFiles(file string) []string {
	out := []string{file, grubDefaultsPath, "/etc/kernel/cmdline"}
	if strings.HasSuffix(file, ".conf") && path.Base(path.Dir(file)) == "entries" {
		out = append(out, c.system.Files.Match(path.Dir(file), "*.conf")...)
		for _, block := range []string{"/boot/grub/grubenv", "/boot/grub2/grubenv"} {
			if c.system.Files.Exists(block) {
				out = append(out, block)
			}
		}
	}
	out = append(out, c.system.Files.Match("/etc/default/grub.d", "*.cfg")...)
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(name string) bool {
		info, err := c.system.Files.Stat(name)
		return err != nil || !info.Mode().IsRegular() || info.Size() > diagnose.MaxFile
	})
}

// replaceInEnvironment is replaceArgument for the values of an environment block.
func replaceInEnvironment(text, from, to string) string {
	return editLines(text, func(line string) string {
		if name, value, found := strings.Cut(line, "="); found && !strings.HasPrefix(line, "#") {
			return name + "=" + strings.TrimPrefix(replaceArgument(" "+value, from, to), " ")
		}
		return line
	})
}

// editArgument changes an argument in all files that hold command lines.
func (c *repairCase) editArgument(from, to string) error {
	e, found := rules.DefaultEntry(c.system)
	if !found || !e.Mounted {
		return c.unsupported("the file system that holds the entry of the kernel is not mounted in the system")
	}
	edited := false
	for _, file := range c.commandLineFiles(e.File) {
		text, err := c.readText(file)
		if err != nil {
			return err
		}
		after := replaceArgument(text, from, to)
		if path.Base(file) == "grubenv" {
			after = environmentBlock(replaceInEnvironment(text, from, to), "", "")
			if after == "" {
				return c.unsupported("the settings of %s do not fit into an environment block", file)
			}
		}
		if after == text {
			continue
		}
		edited = true
		if err := c.write(file, after); err != nil {
			return err
		}
	}
	if !edited {
		return c.unsupported("the argument %s was not found where it can be changed", from)
	}
	return nil
}

func correctRoot(ctx context.Context, c *repairCase) error {
	if rules.ProposesEntry(c.finding) {
		return chooseEntry(ctx, c)
	}
	from, d := c.firstEvidence().Text, c.evidenceDevice()
	if !strings.HasPrefix(from, "root=") || d == nil || d.UUID == "" {
		return c.unsupported("the root cannot be told")
	}
	return c.editArgument(from, "root=UUID="+d.UUID)
}

func removeKernelArgument(ctx context.Context, c *repairCase) error {
	if rules.ProposesEntry(c.finding) {
		return chooseEntry(ctx, c)
	}
	return c.editArgument(c.firstEvidence().Text, "")
}

func listModules(ctx context.Context, c *repairCase) error {
	if rules.ProposesEntry(c.finding) {
		return chooseEntry(ctx, c)
	}
	folder := path.Dir(c.firstEvidence().Path)
	program := c.firstProgram("/usr/sbin/depmod", "/sbin/depmod", "/usr/bin/depmod")
	if program == "" {
		return c.unsupported("the system has no depmod; install its package kmod")
	}
	return c.run(ctx, repair.Program{Command: []string{program, path.Base(folder)}, Changes: []string{folder}})
}

// chooseOrBuild makes another entry the default one, because that changes less; otherwise Finish builds the initramfs.
func chooseOrBuild(ctx context.Context, c *repairCase) error {
	if rules.ProposesEntry(c.finding) {
		return chooseEntry(ctx, c)
	}
	_, err := c.initramfsCommand()
	return err
}

// initramfsCommand is the command that builds the initramfs of the default entry.
func (c *repairCase) initramfsCommand() ([]string, error) {
	command := rules.InitramfsCommand(c.system)
	if command == nil {
		return nil, c.unsupported("the tool that builds the initramfs is not known; build it by hand")
	}
	if file := dependentModules(c.system); file != "" && path.Base(command[0]) == "update-initramfs" {
		return nil, c.unsupported("%s has MODULES=dep, and with it update-initramfs leaves out drivers that it cannot see from the rescue system; build the initramfs by hand", file)
	}
	return command, nil
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
		tag, value := rules.GrubSearch(line)
		to := map[string]string{"UUID": boot.UUID, "LABEL": boot.Label}[tag]
		if to == "" || strings.ContainsAny(to, " \t\"'$\\") {
			return line
		}
		return strings.Replace(line, value, to, 1)
	})
}

// Finish builds the initramfs of the default entry and writes the menu of GRUB anew, where the mends of these findings ask for it: each once, and the
// menu last. It is called once, after all mends, with the findings whose mends returned no error.
func Finish(ctx context.Context, e repair.Editor, mended []diagnose.Finding) error {
	var initramfs, menu []string
	for _, row := range allRows() {
		for _, f := range mended {
			if row.finding == f.ID && row.initramfs != nil && row.initramfs(f) {
				initramfs = append(initramfs, f.ID)
			}
			if row.finding == f.ID && row.menu != nil && row.menu(f) {
				menu = append(menu, f.ID)
			}
		}
	}
	if len(initramfs) > 0 {
		if err := buildInitramfs(ctx, &repairCase{editor: e, system: e.System(), finding: diagnose.Finding{ID: initramfs[0]}}); err != nil {
			return err
		}
	}
	if len(menu) > 0 {
		return writeMenu(ctx, &repairCase{editor: e, system: e.System(), finding: diagnose.Finding{ID: menu[0]}})
	}
	return nil
}

// buildLimit bounds the time of one build; emulated machines need minutes.
const buildLimit = 15 * time.Minute

func buildInitramfs(ctx context.Context, c *repairCase) error {
	command, err := c.initramfsCommand()
	if err != nil {
		return err
	}
	changes := []string{"/boot", "/var/lib/initramfs-tools"}
	if e, found := rules.DefaultEntry(c.system); found && e.Initramfs != "" && !strings.HasPrefix(e.Initramfs, "/boot/") {
		changes = append(changes, path.Dir(e.Initramfs))
	}
	return c.run(ctx, repair.Program{Command: command, Changes: changes, Devices: c.bootDevices(), Limit: buildLimit})
}

// dependentModules is the file that has initramfs-tools choose the modules of the machine that it runs on; empty: none does.
func dependentModules(s *diagnose.System) string {
	files := []string{"/etc/initramfs-tools/initramfs.conf"}
	for _, file := range append(files, s.Files.Match("/etc/initramfs-tools/conf.d", "*")...) {
		for _, line := range s.Files.Lines(file) {
			if strings.Trim(strings.ReplaceAll(strings.TrimSpace(line), `"`, ""), " ") == "MODULES=dep" {
				return file
			}
		}
	}
	return ""
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
