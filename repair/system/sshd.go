package system

import (
	"context"
	"io/fs"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
	rules "salvor/diagnose/system"
	"salvor/repair"
)

const sshFolder = "/etc/ssh"

// sshdRows repair OpenSSH's server: configuration, service, host keys, and the other files without which sshd does not start.
func sshdRows() []tableRow {
	files := diagnose.ConsentFiles
	return []tableRow{
		{finding: "sshd-config-invalid", consent: files, change: correctSSHD,
			does: "makes the lines that sshd refuses comments, with the block of a `Match` line, or renames a file with ten or more of them to NAME" + DisabledEnding},
		{finding: "sshd-config-missing", consent: files, change: restoreSSHDConfig,
			does: "copies " + config.PackagedSSHDConfig + ", with `PasswordAuthentication no` where an account has a key"},
		{finding: "sshd-unit-invalid", consent: files, change: dropSetting, does: "makes the line of the drop-in a comment"},
		{finding: "sshd-masked", consent: files, change: enableService, does: "removes the mask and enables the unit"},
		{finding: "sshd-not-enabled", consent: files, change: enableService, does: "enables the service, or removes /etc/ssh/sshd_not_to_be_run"},
		{finding: "sshd-user-missing", consent: files, change: addSSHDUser, does: "adds the system user sshd"},
		{finding: "sshd-folder-unsafe", consent: files, change: makeSafeFolder, does: "makes the folder, gives it to root with the mode 0711"},
		{finding: "sshd-host-keys-open", consent: files, change: closeHostKeys, does: "gives the keys the mode 0600"},
		{finding: "sshd-host-keys-damaged", consent: files, change: makeHostKeys, does: "renames damaged keys to NAME" + DisabledEnding + " and makes new ones with the system's ssh-keygen"},
		{finding: "sshd-host-keys-missing", consent: files, change: makeHostKeys, does: "makes new keys with the system's ssh-keygen; keys that exist stay"},
		{finding: "sshd-listens-nowhere", consent: files, change: repeatComments, does: "makes the `ListenAddress` lines comments"},
		{finding: "sshd-users-denied", consent: files, change: allowUsers, does: "adds accounts with a key to AllowUsers or AllowGroups, or sets PermitRootLogin to prohibit-password"},
	}
}

// maxRounds bounds how often a rule is asked again, because a finding names ten lines at most.
const maxRounds = 20

// repeatComments makes lines comments until the rule names no more.
func repeatComments(ctx context.Context, c *repairCase) error {
	return c.untilGone(func() error { return commentEvidence(ctx, c) })
}

// untilGone repeats an edit of what the evidence names, and asks the rule again after each edit, until the rule finds nothing.
func (c *repairCase) untilGone(edit func() error) error {
	for range maxRounds {
		if err := edit(); err != nil {
			return err
		}
		found := findingsWith(c.system, c.finding.ID)
		if len(found) == 0 {
			return nil
		}
		c.finding = found[0]
	}
	return c.unsupported("%s holds more wrong lines than salvor changes; correct it by hand", c.firstEvidence().Path)
}

func correctSSHD(_ context.Context, c *repairCase) error {
	return c.untilGone(func() error {
		for file, lines := range c.evidenceLines() {
			var err error
			if len(lines) >= rules.ManyWrongLines && path.Dir(file) != sshFolder {
				err = c.disableFile(file)
			} else {
				err = c.editText(file, func(text string) string { return commentSSHD(text, lines...) })
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// restoreSSHDConfig copies the configuration that the package brings. Nobody knows whether the lost one took passwords, so accounts with keys
// keep the copy from taking them. The line follows the files that are included: what they say holds.
func restoreSSHDConfig(_ context.Context, c *repairCase) error {
	const file = sshFolder + "/sshd_config"
	if c.exists(file) {
		return nil
	}
	text, err := c.readText(config.PackagedSSHDConfig)
	if err != nil {
		return err
	}
	if len(rules.KeyHolders(c.system)) > 0 {
		included := 0 // the last line that includes files
		for i, line := range splitText(text) {
			if fields := strings.Fields(line); len(fields) > 0 && strings.EqualFold(fields[0], "include") {
				included = i + 1
			}
		}
		text = insertBefore(text, included+1, "PasswordAuthentication no")
	}
	return c.writePrivate(file, text, 0o644)
}

// commentSSHD turns lines of sshd's configuration into comments. With a Match line go the lines of its block: they would hold for everybody.
func commentSSHD(text string, numbers ...int) string {
	lines := splitText(text)
	isMatch := func(line string) bool {
		spans := fieldSpans(strings.NewReplacer("=", " ", `"`, " ").Replace(line))
		return len(spans) > 0 && strings.EqualFold(line[spans[0][0]:spans[0][1]], "match")
	}
	for _, number := range numbers {
		if number < 1 || number > len(lines) {
			continue
		}
		last := number
		if isMatch(lines[number-1]) {
			for last < len(lines) && !isMatch(lines[last]) {
				last++
			}
		}
		for i := number - 1; i < last; i++ {
			line, end := cutEnd(lines[i])
			if strings.TrimSpace(line) != "" {
				lines[i] = "# " + strings.TrimPrefix(line, "# ") + end
			}
		}
	}
	return strings.Join(lines, "")
}

// enableService makes the links by which a service starts, and removes what keeps it from that.
func enableService(_ context.Context, c *repairCase) error {
	for _, name := range c.finding.Repair.Writes {
		var err error
		switch folder, base := path.Dir(name), path.Base(name); {
		case name == sshFolder+"/sshd_not_to_be_run" || folder == "/etc/systemd/system": // a mask
			err = c.removeFile(name)
		case strings.HasSuffix(folder, ".wants"):
			unit := config.UnitFile(c.system.Files, base)
			if unit == "" {
				return c.unsupported("the unit %s does not exist", base)
			}
			err = c.makeLink(name, unit)
		case strings.HasPrefix(folder, "/etc/runlevels/"):
			err = c.makeLink(name, "/etc/init.d/"+base)
		case strings.HasPrefix(folder, "/etc/rc") && len(base) > 3 && base[0] == 'S':
			err = c.makeLink(name, "../init.d/"+base[3:])
		default:
			return c.unsupported("salvor does not know what belongs at %s", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func addSSHDUser(_ context.Context, c *repairCase) error {
	used := map[uint32]bool{}
	for _, a := range rules.Accounts(c.system.Files) {
		used[a.UID] = true
	}
	uid := uint32(0)
	for id := uint32(999); id >= 100 && uid == 0; id-- {
		if !used[id] {
			uid = id
		}
	}
	if uid == 0 {
		return c.unsupported("no user id from 100 to 999 is free; add the user by hand")
	}
	gid := "65534"
	for _, name := range []string{"sshd", "nogroup", "nobody"} {
		if at := slices.IndexFunc(c.system.Files.Lines("/etc/group"), func(l string) bool { return strings.HasPrefix(l, name+":") }); at >= 0 {
			if fields := strings.Split(c.system.Files.Lines("/etc/group")[at], ":"); len(fields) >= 3 && strings.Trim(fields[2], "0123456789") == "" && fields[2] != "" {
				gid = fields[2]
				break
			}
		}
	}
	shell := c.firstProgram("/usr/sbin/nologin", "/sbin/nologin", "/bin/false", "/usr/bin/false")
	if shell == "" {
		shell = "/sbin/nologin"
	}
	entry := strings.Join([]string{"sshd", "x", decimal(uint64(uid)), gid, "", "/run/sshd", shell}, ":")
	if err := c.editText(passwdPath, func(text string) string { return appendLine(text, entry) }); err != nil {
		return err
	}
	if !c.system.Files.Exists(shadowPath) {
		return nil
	}
	return c.editText(shadowPath, func(text string) string {
		if strings.HasPrefix(text, "sshd:") || strings.Contains(text, "\nsshd:") {
			return text
		}
		return appendLine(text, "sshd:!:"+c.today()+"::::::")
	})
}

func makeSafeFolder(_ context.Context, c *repairCase) error {
	name := c.firstEvidence().Path
	info, err := c.system.Files.Stat(name)
	if err == nil && !info.IsDir() {
		if err := c.disableFile(name); err != nil {
			return err
		}
	}
	if !c.exists(name) {
		if err := c.editor.Mkdir(name); err != nil {
			return err
		}
		c.reload()
	}
	if err := c.setOwner(name, 0, 0); err != nil {
		return err
	}
	return c.setMode(name, 0o711)
}

func closeHostKeys(_ context.Context, c *repairCase) error {
	for _, e := range c.finding.Evidence {
		if err := c.changeMode(e.Path, func(mode fs.FileMode) fs.FileMode { return mode &^ 0o177 }); err != nil {
			return err
		}
	}
	return nil
}

// makeHostKeys lets the system make the keys that are missing. ssh-keygen -A makes those of its default names only.
func makeHostKeys(ctx context.Context, c *repairCase) error {
	program := c.firstProgram("/usr/bin/ssh-keygen", "/bin/ssh-keygen", "/usr/local/bin/ssh-keygen")
	if program == "" {
		return c.unsupported("the system has no ssh-keygen; install its ssh client")
	}
	var others []string
	for _, e := range c.finding.Evidence {
		if c.exists(e.Path) {
			if err := c.disableFile(e.Path); err != nil {
				return err
			}
		}
		if path.Dir(e.Path) != sshFolder || !slices.Contains([]string{"ssh_host_rsa_key", "ssh_host_ecdsa_key", "ssh_host_ed25519_key"}, path.Base(e.Path)) {
			others = append(others, e.Path)
		}
	}
	if len(others) < len(c.finding.Evidence) {
		if err := c.run(ctx, repair.Program{Command: []string{program, "-A"}, Changes: []string{sshFolder}}); err != nil {
			return err
		}
	}
	for _, name := range others {
		kind := "ed25519"
		for _, k := range []string{"rsa", "ecdsa"} {
			if strings.Contains(path.Base(name), k) {
				kind = k
			}
		}
		if err := c.run(ctx, repair.Program{Command: []string{program, "-q", "-t", kind, "-N", "", "-f", name}, Changes: []string{path.Dir(name)}}); err != nil {
			return err
		}
	}
	return nil
}

// allowUsers lets the accounts in that have a key or a password and that a setting of sshd keeps out.
func allowUsers(_ context.Context, c *repairCase) error {
	for _, d := range rules.DeniedLogins(c.system) {
		name := d.Name
		switch d.Keyword {
		case "permitrootlogin":
			if err := c.editLine(d.File, d.Setting, func(string) string { return "PermitRootLogin prohibit-password" }); err != nil {
				return err
			}
			continue
		case "allowgroups":
			name = d.Group
		case "allowusers":
		default:
			return c.unsupported("line %d of %s refuses %s by name; change it by hand if that is not meant", d.Setting, d.File, d.Name)
		}
		if name == "" || strings.ContainsAny(name, " \t#\"'\\*?!@") {
			return c.unsupported("the name of %s or of its group cannot be written into line %d of %s", d.Name, d.Setting, d.File)
		}
		if err := c.editLine(d.File, d.Setting, func(line string) string {
			text, comment := line, ""
			if at := strings.Index(line, " #"); at >= 0 {
				text, comment = line[:at], line[at:]
			}
			if slices.Contains(strings.Fields(text), name) {
				return line
			}
			return strings.TrimRight(text, " \t") + " " + name + comment
		}); err != nil {
			return err
		}
	}
	return nil
}
