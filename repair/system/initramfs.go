package system

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"salvor/diagnose"
	rules "salvor/diagnose/system"
	"salvor/repair"
)

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

// initramfsCommand is the command that builds the initramfs of the default entry.
func (c *repairCase) initramfsCommand() ([]string, error) {
	command := rules.InitramfsCommand(c.system)
	if command == nil {
		return nil, c.unsupported("the tool that builds the initramfs is not known; build it by hand")
	}
	if file, _, choice := rules.ModuleChoice(c.system); choice == "dep" && path.Base(command[0]) == "update-initramfs" {
		return nil, c.unsupported("%s has MODULES=dep, and with it update-initramfs leaves out drivers that it cannot see from the rescue system; build the initramfs by hand", file)
	}
	return command, nil
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
	from, to := rules.InitramfsCopy(c.system)
	if to != "" {
		for _, d := range c.system.Devices { // the tool itself may make the copy, and the entry that names it
			if !slices.Contains([]string{"", "/"}, d.MountedAt) && strings.HasPrefix(to, d.MountedAt+"/") {
				changes = append(changes, d.MountedAt)
			}
		}
	}
	if err := c.run(ctx, repair.Program{Command: command, Changes: changes, Devices: c.bootDevices(), Limit: buildLimit}); err != nil || to == "" {
		return err
	}
	program := c.firstProgram("/usr/bin/cp", "/bin/cp")
	if program == "" {
		return c.unsupported("the system has no cp, which copies the initramfs to %s", to)
	}
	return c.run(ctx, repair.Program{Command: []string{program, from, to}, Changes: []string{path.Dir(to)}})
}
