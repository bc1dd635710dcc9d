package system

import (
	"context"
	"path"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
	rules "salvor/diagnose/system"
)

// systemRows repair what the init system needs to reach its default target.
func systemRows() []tableRow {
	files := diagnose.ConsentFiles
	return []tableRow{
		{finding: "usr-link-missing", consent: files, change: restoreUsrLink, does: "makes the link, such as /lib to usr/lib"},
		{finding: "root-folder-missing", consent: files, change: makeRootFolders, does: "makes the folders"},
		{finding: "init-missing", consent: files, change: restoreInit, does: "makes the link to systemd"},
		{finding: "init-not-executable", consent: files, change: executeInit, does: "gives the program the mode 0755"},
		{finding: "machine-id-invalid", consent: files, change: emptyMachineID, does: "empties /etc/machine-id, so that the next boot writes a new id"},
		{finding: "sh-missing", consent: files, change: restoreShell, does: "makes /bin/sh a link to the shell that the distribution has there: dash, bash or busybox"},
		{finding: "inittab-invalid", consent: files, change: setRunLevel, does: "makes 2 the default run level on Debian, and 3 on other systems"},
		{finding: "manager-setting-invalid", consent: files, change: dropSetting, does: "makes the line a comment"},
		{finding: "unit-masked", consent: files, change: removeEvidence, does: "removes the mask"},
		{finding: "unit-waits-at-boot", consent: files, change: dropStart, does: "removes the link by which the unit starts"},
		{finding: "shutdown-at-boot", consent: files, change: dropStart, does: "removes the link by which the unit starts, or makes the line a comment"},
		{finding: "default-target-missing", consent: files, change: restoreTarget, does: "lets default.target lead to multi-user.target"},
		{finding: "default-target-rescue", consent: files, change: restoreTarget, does: "lets default.target lead to multi-user.target"},
		{finding: "default-target-masked", consent: files, change: restoreTarget, does: "lets default.target lead to multi-user.target"},
		{finding: "kernel-limit-starves", consent: files, change: commentEvidence, does: "makes the line a comment"},
		{finding: "hugepages-too-many", consent: files, change: commentEvidence, does: "makes the line a comment"},
		{finding: "selinux-config-invalid", consent: files, change: permitSELinux, does: "writes `SELINUX=permissive`"},
		{finding: "selinux-policy-missing", consent: files, change: choosePolicy, does: "names the only policy that is there"},
	}
}

// labelRows label files for SELinux, after all other changes.
func labelRows() []tableRow {
	const does = "makes /.autorelabel: the next boot labels all files and starts once more"
	return []tableRow{
		{finding: "selinux-unlabelled", consent: diagnose.ConsentFiles, change: relabel, does: does},
		{finding: "selinux-keys-unlabelled", consent: diagnose.ConsentFiles, change: relabel, does: does},
	}
}

func restoreUsrLink(_ context.Context, c *repairCase) error {
	name := c.firstEvidence().Path
	return c.makeLink(name, "usr"+name)
}

func restoreInit(_ context.Context, c *repairCase) error {
	name := c.firstEvidence().Path
	for _, target := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd"} {
		if info, err := c.system.Files.Stat(target); err == nil && info.Mode().IsRegular() && info.Size() > 0 && target != name {
			return c.makeLink(name, target)
		}
	}
	return c.unsupported("the program of systemd does not exist; install its package again")
}

func makeRootFolders(_ context.Context, c *repairCase) error {
	for _, e := range c.finding.Evidence {
		if err := c.editor.Mkdir(e.Path); err != nil {
			return err
		}
	}
	c.reload()
	return nil
}

func restoreShell(_ context.Context, c *repairCase) error {
	shell := rules.ShellFor(c.system)
	if shell == "" {
		return c.unsupported("the system has no other shell; install the package of its shell again")
	}
	return c.makeLink(c.firstEvidence().Path, path.Base(shell))
}

func setRunLevel(_ context.Context, c *repairCase) error {
	at := c.firstEvidence()
	return c.editLine(at.Path, at.Line, func(line string) string { return editColumn(line, 1, rules.RunLevel(c.system)) })
}

// dropSetting makes the line of the first evidence a comment, or removes the masks that the repair names. A unit with a second fault is not repaired,
// because a comment for each fault would take away settings that nobody has consented to.
func dropSetting(ctx context.Context, c *repairCase) error {
	before := len(findingsWith(c.system, c.finding.ID))
	if err := dropStart(ctx, c); err != nil {
		return err
	}
	if left := findingsWith(c.system, c.finding.ID); len(left) >= before {
		return c.unsupported("another fault remains: %s", left[0].Title)
	}
	return nil
}

// dropStart makes the line of the first evidence a comment, or removes the links that the repair names.
func dropStart(_ context.Context, c *repairCase) error {
	at, names := c.firstEvidence(), c.finding.Repair.Writes
	if names[0] == at.Path && at.Line > 0 {
		return c.editText(at.Path, func(text string) string { return commentLines(text, at.Line) })
	}
	for _, name := range names {
		if err := c.removeFile(name); err != nil {
			return err
		}
	}
	return nil
}

func executeInit(_ context.Context, c *repairCase) error {
	place, err := c.system.Files.Resolve(c.firstEvidence().Path)
	if err != nil {
		return c.unsupported("%s cannot be examined: %v", c.firstEvidence().Path, err)
	}
	return c.setMode(place, 0o755)
}

func emptyMachineID(_ context.Context, c *repairCase) error {
	return c.write(c.firstEvidence().Path, "")
}

func restoreTarget(_ context.Context, c *repairCase) error {
	unit := config.UnitFile(c.system.Files, "multi-user.target")
	if unit == "" || path.Dir(unit) == "/etc/systemd/system" {
		return c.unsupported("the system has no multi-user.target")
	}
	return c.makeLink("/etc/systemd/system/default.target", unit)
}

func permitSELinux(_ context.Context, c *repairCase) error {
	at := c.firstEvidence()
	return c.editLine(at.Path, at.Line, func(string) string { return "SELINUX=permissive" })
}

func choosePolicy(_ context.Context, c *repairCase) error {
	file := c.firstEvidence().Path
	var whole []string
	for _, folder := range c.system.Files.Match(path.Dir(file), "*") {
		if len(c.system.Files.Match(folder+"/policy", "policy.*")) > 0 {
			whole = append(whole, path.Base(folder))
		}
	}
	if len(whole) != 1 {
		return c.unsupported("%d policies are there", len(whole))
	}
	return c.changed(file, func(text string) string {
		return editLines(text, func(line string) string {
			if strings.HasPrefix(strings.TrimSpace(line), "SELINUXTYPE=") {
				return "SELINUXTYPE=" + whole[0]
			}
			return line
		})
	})
}

func relabel(_ context.Context, c *repairCase) error { return c.write("/.autorelabel", "") }
