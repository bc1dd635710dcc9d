package system

import (
	"context"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
	rules "salvor/diagnose/system"
)

const (
	passwdPath = "/etc/passwd"
	shadowPath = "/etc/shadow"
)

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// today is the day by the control plane's clock, as /etc/shadow counts it.
func (c *repairCase) today() string {
	return strconv.FormatInt(max(c.system.Now.Unix(), 0)/(24*60*60), 10)
}

// accountRows repair accounts, permissions, sudo, PAM, and last the labels of SELinux.
func accountRows() []tableRow {
	files := diagnose.ConsentFiles
	return []tableRow{
		{finding: "passwd-broken", consent: files, change: restoreRoot, does: "takes the line of root from /etc/passwd-"},
		{finding: "account-entry-broken", consent: files, change: restoreEntries, does: "takes the broken lines from the system's own backup of the file"},
		{finding: "shadow-missing", consent: files, change: restoreShadow, does: "takes the file from /etc/shadow-"},
		{finding: "nsswitch-module-missing", consent: files, change: addFilesService, does: "writes `files` before the other services of the line"},
		{finding: "shadow-entry-missing", consent: files, change: addShadowEntry, does: "adds an entry with a password that nothing matches"},
		{finding: "account-expired", consent: files, change: clearExpiry, does: "clears the days on which the account and its password expire, unless an administrator locked the account by them"},
		{finding: "password-must-change", consent: files, change: renewPassword, does: "sets the day of the last change to today"},
		{finding: "shell-missing", consent: files, change: correctShell, does: "writes a shell that exists in the place of a plain one, such as zsh; a shell that may limit the account stays"},
		{finding: "shell-not-listed", consent: files, change: listShell, does: "adds the shell to /etc/shells"},
		{finding: "home-missing", consent: files, change: makeHome, does: "makes an empty home"},
		{finding: "permissions-lost", consent: files, change: openPath, does: "lets others read and enter the path"},
		{finding: "permissions-open", consent: files, change: closePaths, does: "takes the right to write from everybody but the owner, and gives host keys the mode 0600"},
		{finding: "tmp-unusable", consent: files, change: openTemporary, does: "gives /tmp the mode 01777"},
		{finding: "ssh-key-permissions", consent: files, change: closeKeyChain, does: "takes the right to write the file of the keys, its folder and the home from everybody but the owner, and gives a file of root that the account cannot read to it"},
		{finding: "sudo-not-setuid", consent: files, change: restoreSudo, does: "gives the program to root with the mode 04755"},
		{finding: "sudoers-refused", consent: files, change: ownSudoers, does: "gives the file to root with the mode 0440, unless it belongs to another account"},
		{finding: "sudoers-invalid", consent: files, change: repeatComments, does: "makes the lines that sudo cannot parse comments"},
		{finding: "nologin-present", consent: files, change: removeEvidence, does: "removes /etc/nologin"},
		{finding: "access-conf-denies", consent: files, change: allowAccess, does: "allows root and the accounts with keys before the line that refuses everybody"},
		{finding: "pam-module-missing", consent: files, change: commentModule, does: "makes the line a comment, unless it asks for a password or a key, or another line jumps over it"},
	}
}

// removeEvidence removes the file that the finding is about.
func removeEvidence(_ context.Context, c *repairCase) error {
	return c.removeFile(c.firstEvidence().Path)
}

// backupLines are the lines of the system's own backup of a file, by the name that each begins with. Broken ones are left out.
func (c *repairCase) backupLines(file string) map[string]string {
	lines := c.system.Files.Lines(file + "-")
	broken, _ := config.BrokenAccountLines(file, lines)
	out := map[string]string{}
	for i, line := range lines {
		name, _, found := strings.Cut(line, ":")
		if found && name != "" && !slices.Contains(broken, i+1) && out[name] == "" {
			out[name] = line
		}
	}
	return out
}

// restoreRoot adds root's line. Other accounts that only the backup has may have been deleted on purpose.
func restoreRoot(_ context.Context, c *repairCase) error {
	backup := c.backupLines(passwdPath)
	if fields := strings.Split(backup["root"], ":"); len(fields) != 7 || fields[2] != "0" {
		return c.unsupported("%s- has no line for root either", passwdPath)
	}
	text, err := c.system.Files.Read(passwdPath)
	if err != nil || len(rules.Accounts(c.system.Files)) == 0 { // nothing to add to
		return c.copyBackup(passwdPath)
	}
	lines := splitText(string(text))
	for i, line := range lines {
		if strings.HasPrefix(line, "root:") { // a broken one
			_, end := cutEnd(line)
			lines[i] = backup["root"] + end
			return c.write(passwdPath, strings.Join(lines, ""))
		}
	}
	return c.write(passwdPath, backup["root"]+"\n"+string(text))
}

// copyBackup puts the system's own backup in the place of a file, with its owner and mode.
func (c *repairCase) copyBackup(file string) error {
	info, err := c.system.Files.Stat(file + "-")
	if err != nil {
		return c.unsupported("%s- cannot be read: %v", file, err)
	}
	text, err := c.readText(file + "-")
	if err != nil {
		return err
	}
	isNew := !c.exists(file)
	if err := c.write(file, text); err != nil || !isNew {
		return err
	}
	owner := diagnose.OwnerOf(info)
	if err := c.setOwner(file, owner.UID, owner.GID); err != nil {
		return err
	}
	return c.changeMode(file, func(fs.FileMode) fs.FileMode { return info.Mode() })
}

func restoreEntries(_ context.Context, c *repairCase) error {
	file := c.firstEvidence().Path
	text, err := c.readText(file)
	if err != nil {
		return err
	}
	broken, known := config.BrokenAccountLines(file, diagnose.SplitLines(text))
	if !known {
		return c.unsupported("%s is no file of accounts", file)
	}
	backup, lines := c.backupLines(file), splitText(text)
	for _, number := range broken {
		line, end := cutEnd(lines[number-1])
		name, _, _ := strings.Cut(line, ":")
		if backup[name] == "" {
			return c.unsupported("line %d of %s has no whole copy in %s-; correct it by hand", number, file, file)
		}
		lines[number-1] = backup[name] + end
	}
	return c.write(file, strings.Join(lines, ""))
}

func restoreShadow(_ context.Context, c *repairCase) error { return c.copyBackup(shadowPath) }

func addFilesService(_ context.Context, c *repairCase) error {
	at := c.firstEvidence()
	return c.editLine(at.Path, at.Line, func(line string) string {
		name, services, found := strings.Cut(line, ":")
		if !found {
			return line
		}
		blanks := services[:len(services)-len(strings.TrimLeft(services, " \t"))]
		if blanks == "" {
			blanks = " "
		}
		return name + ":" + blanks + "files " + strings.TrimLeft(services, " \t")
	})
}

// evidenceAccount is the account whose line of /etc/passwd the evidence names.
func (c *repairCase) evidenceAccount() (rules.Account, error) {
	for _, e := range c.finding.Evidence {
		for _, a := range rules.Accounts(c.system.Files) {
			if e.Path == passwdPath && e.Line == a.Line {
				return a, nil
			}
		}
	}
	return rules.Account{}, c.unsupported("its account is not in %s", passwdPath)
}

func addShadowEntry(_ context.Context, c *repairCase) error {
	a, err := c.evidenceAccount()
	if err != nil {
		return err
	}
	return c.editText(shadowPath, func(text string) string {
		lines := splitText(text)
		for i, line := range lines {
			if name, rest, _ := strings.Cut(line, ":"); name == a.Name && rest != "" { // a broken one
				_, end := cutEnd(line)
				lines[i] = a.Name + ":*:" + c.today() + ":0:99999:7:::" + end
				return strings.Join(lines, "")
			}
		}
		return appendLine(text, a.Name+":*:"+c.today()+":0:99999:7:::")
	})
}

func clearExpiry(_ context.Context, c *repairCase) error {
	return c.editLine(shadowPath, c.firstEvidence().Line, func(line string) string {
		for _, column := range []int{4, 6, 7} { // the most days of a password, those after it, and the last day of the account
			line = editColumn(line, column, "")
		}
		return line
	})
}

func renewPassword(_ context.Context, c *repairCase) error {
	return c.editLine(shadowPath, c.firstEvidence().Line, func(line string) string { return editColumn(line, 2, c.today()) })
}

func correctShell(_ context.Context, c *repairCase) error {
	a, err := c.evidenceAccount()
	if err != nil {
		return err
	}
	for _, shell := range []string{"/bin/bash", "/usr/bin/bash", "/bin/ash", "/bin/sh", "/usr/bin/sh"} {
		if rules.RunsShell(c.system.Files, shell) {
			return c.editLine(passwdPath, a.Line, func(line string) string { return editColumn(line, 6, shell) })
		}
	}
	return c.unsupported("the system has no shell")
}

func listShell(_ context.Context, c *repairCase) error {
	shell, found := strings.CutPrefix(c.firstEvidence().Text, "it has no line ")
	if !found || !strings.HasPrefix(shell, "/") || !rules.RunsShell(c.system.Files, shell) {
		return c.unsupported("its shell cannot be told, or does not run")
	}
	return c.editText(c.firstEvidence().Path, func(text string) string { return appendLine(text, shell) })
}

func makeHome(_ context.Context, c *repairCase) error {
	a, err := c.evidenceAccount()
	if err != nil {
		return err
	}
	if err := c.editor.Mkdir(a.Home); err != nil {
		return err
	}
	c.reload()
	if err := c.setOwner(a.Home, a.UID, a.GID); err != nil {
		return err
	}
	return c.setMode(a.Home, 0o700)
}

func openPath(_ context.Context, c *repairCase) error {
	name := c.firstEvidence().Path
	return c.changeMode(name, func(mode fs.FileMode) fs.FileMode {
		info, err := c.system.Files.Stat(name)
		switch {
		case name == "/home":
			return mode | 0o001
		case err == nil && info.IsDir():
			return mode | 0o005
		}
		return mode | 0o004
	})
}

func closePaths(_ context.Context, c *repairCase) error {
	for _, e := range c.finding.Evidence {
		closed := fs.FileMode(0o022)
		if strings.Contains(e.Text, "sshd wants 0600") {
			closed = 0o177
		}
		if err := c.changeMode(e.Path, func(mode fs.FileMode) fs.FileMode { return mode &^ closed }); err != nil {
			return err
		}
	}
	return nil
}

func openTemporary(_ context.Context, c *repairCase) error { return c.setMode("/tmp", 0o1777) }

// closeKeyChain changes the paths that sshd complains of, and none beside or above them.
func closeKeyChain(_ context.Context, c *repairCase) error {
	a, found := rules.KeyOwner(c.system, c.firstEvidence().Path)
	if !found {
		return c.unsupported("the account that %s belongs to cannot be told", c.firstEvidence().Path)
	}
	for _, e := range c.finding.Evidence {
		if err := c.closeForOwner(e.Path, a); err != nil {
			return err
		}
	}
	return nil
}

func (c *repairCase) closeForOwner(name string, a rules.Account) error {
	info, err := c.system.Files.Stat(name)
	if err != nil {
		return c.unsupported("%s cannot be examined: %v", name, err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return c.unsupported("%s is no regular file", name)
	}
	if info.Mode().IsRegular() && diagnose.OwnerOf(info).Links > 1 { // its other name may be that of a file that only root shall read
		return c.unsupported("%s has another name, by a hard link; give the account a file of its own", name)
	}
	if owner := diagnose.OwnerOf(info).UID; owner != 0 && owner != a.UID {
		return c.unsupported("%s belongs to the user id %d", name, owner)
	} else if owner == 0 && a.UID != 0 && info.Mode().IsRegular() && info.Mode()&0o044 == 0 { // the account cannot read it
		if err := c.setOwner(name, a.UID, a.GID); err != nil {
			return err
		}
	}
	return c.changeMode(name, func(mode fs.FileMode) fs.FileMode { return mode &^ 0o022 })
}

func restoreSudo(_ context.Context, c *repairCase) error {
	name := c.firstEvidence().Path
	if err := c.setOwner(name, 0, 0); err != nil {
		return err
	}
	return c.setMode(name, 0o4755)
}

func ownSudoers(_ context.Context, c *repairCase) error {
	name := c.firstEvidence().Path
	info, err := c.system.Files.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return c.unsupported("%s is no regular file", name)
	}
	if err := c.setOwner(name, 0, 0); err != nil {
		return err
	}
	return c.setMode(name, 0o440)
}

func allowAccess(_ context.Context, c *repairCase) error {
	at, names := c.firstEvidence(), rules.NamesForAccess(c.system)
	return c.editText(at.Path, func(text string) string {
		return insertBefore(text, at.Line, "+ : "+strings.Join(names, " ")+" : ALL")
	})
}

// commentModule leaves a module out. Lines before it may jump over a number of lines, and would then jump elsewhere.
func commentModule(ctx context.Context, c *repairCase) error {
	at := c.firstEvidence()
	for i, line := range c.system.Files.Lines(at.Path) {
		open, end := strings.IndexByte(line, '['), strings.IndexByte(line, ']')
		if i+1 >= at.Line || open < 0 || end < open || strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, action := range strings.Fields(line[open+1 : end]) {
			if _, jump, found := strings.Cut(action, "="); found && jump != "" && strings.Trim(jump, "0123456789") == "" {
				return c.unsupported("line %d of %s jumps over lines, so that none may be left out; install the package of the module", i+1, at.Path)
			}
		}
	}
	return commentEvidence(ctx, c)
}
