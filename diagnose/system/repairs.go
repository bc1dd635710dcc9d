package system

import (
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// This file exports what package repair/system asks about a system, so that a repair decides as the rule that proposed it.

// RunsShell says whether a shell exists and may be executed.
func RunsShell(t *diagnose.Tree, shell string) bool { return shellRuns(t, shell) }

// Account is a line of /etc/passwd.
type Account struct {
	Name, Home, Shell string
	UID, GID          uint32
	Line              int // from 1
}

func exportAccount(a *config.Account) Account {
	return Account{Name: a.Name, Home: a.Home, Shell: a.Shell, UID: a.UID, GID: a.GID, Line: a.Line}
}

// Accounts lists the valid lines of /etc/passwd.
func Accounts(t *diagnose.Tree) []Account {
	all, _ := config.ParsePasswd(t.Lines(config.PasswdPath))
	out := make([]Account, len(all))
	for i := range all {
		out[i] = exportAccount(&all[i])
	}
	return out
}

// KeyOwner returns the account whose keys sshd ignores because of a path's owner or mode.
func KeyOwner(s *diagnose.System, path string) (Account, bool) {
	l := readLogins(s)
	for i := range l.accounts {
		for _, f := range l.accounts[i].keys {
			if slices.Contains(f.Fix, path) {
				return exportAccount(&l.accounts[i].Account), true
			}
		}
	}
	return Account{}, false
}

// KeyHolders lists the accounts that have a key with which sshd would let them in.
func KeyHolders(s *diagnose.System) []Account {
	l := readLogins(s)
	var out []Account
	for i := range l.accounts {
		if hasUsableKey(&l.accounts[i]) {
			out = append(out, exportAccount(&l.accounts[i].Account))
		}
	}
	return out
}

// NamesForAccess are the accounts that a rule of access.conf may let in: root, and those with a usable key.
func NamesForAccess(s *diagnose.System) []string { return readLogins(s).allowedNames() }

// DeniedLogin is a setting of sshd that keeps an account out which has a key or a password.
type DeniedLogin struct {
	Account
	Group   string // of the account; empty where it has no name
	Keyword string // lower case
	File    string
	Setting int // its line, from 1
}

// DeniedLogins lists the accounts that sshd's settings keep out.
func DeniedLogins(s *diagnose.System) []DeniedLogin {
	l := readLogins(s)
	groups, _ := config.ParseGroups(s.Files.Lines(config.GroupPath))
	var out []DeniedLogin
	for i := range l.accounts {
		a := &l.accounts[i]
		if a.denied.Keyword == "" || !a.mayBeLetIn() {
			continue
		}
		d := DeniedLogin{Account: exportAccount(&a.Account), Keyword: a.denied.Keyword, File: a.denied.File, Setting: a.denied.Line}
		for _, g := range groups {
			if g.GID == a.GID {
				d.Group = g.Name
			}
		}
		out = append(out, d)
	}
	return out
}

// SSHPorts are the TCP ports on which sshd listens, the first one that of its configuration.
func SSHPorts(s *diagnose.System) []int { return sshPorts(s.Files, config.ReadSSHDConfig(s.Files)) }

// InterfaceChange corrects a configuration that names an interface which the machine does not have.
type InterfaceChange struct {
	File string
	Line int // from 1, or 0
	// From and To are names, or addresses where ByAddress is set.
	From, To  string
	ByAddress bool
}

// InterfaceChanges lists the corrections that can be told: those for the one interface of the machine that nothing configures.
func InterfaceChanges(s *diagnose.System) []InterfaceChange {
	n := config.ReadNetwork(s)
	c := cover(s, n)
	mac, one := onlyUncovered(s, &c)
	if !one {
		return nil
	}
	var out []InterfaceChange
	for i := range n.Managers {
		m := &n.Managers[i]
		for j := range m.Links {
			l := &m.Links[j]
			f := c.missing(s, n, m, l)
			if !m.Enabled || f == nil || f.Repair == nil {
				continue
			}
			change := InterfaceChange{File: l.File, Line: l.Line, From: l.Name, To: config.FirstText(c.names[mac]...)}
			if l.MAC != "" {
				change = InterfaceChange{File: l.File, Line: l.Line, From: l.MAC, To: mac, ByAddress: true}
			}
			if change.From != "" && change.To != "" {
				out = append(out, change)
			}
		}
	}
	return out
}

// InterfaceName is the name by which the system knows the machine's interface of an address; empty where it has none.
func InterfaceName(s *diagnose.System, mac string) string {
	n := config.ReadNetwork(s)
	predictable := config.PredictableNames(s.Files)
	for _, nic := range s.NICs {
		if nic.MAC == mac {
			return config.FirstText(config.NamesOf(s, n, nic, predictable)...)
		}
	}
	return ""
}

// WantedNetworks reads the static networks of the system's network_data.
func WantedNetworks(s *diagnose.System) []WantedNetwork { return wantedNetworks(s.NetworkData) }

// BootEntry is a choice of a boot loader's menu.
type BootEntry struct {
	// Loader is GRUB, systemd-boot or extlinux.
	Loader, ID string
	// File and OptionsLine say where its command line is written.
	File        string
	OptionsLine int // from 1, or 0
	// Kernel is the release of its kernel, and Initramfs the path of its last image; empty where they are not known.
	Kernel, Initramfs string
	// Mounted says whether File lies in the system's own tree, and not on a file system that was mounted by itself.
	Mounted bool
}

func exportEntry(s *diagnose.System, c *entryChecker, e *loadEntry) BootEntry {
	out := BootEntry{Loader: e.Loader, ID: e.ID, File: e.File, OptionsLine: e.OptionsLine, Mounted: e.Kernel.Tree == s.Files, Kernel: c.release(e)}
	if n := len(e.Initrds); n > 0 && e.Initrds[n-1].Tree == s.Files && !e.Initrds[n-1].Unknown {
		out.Initramfs = e.Initrds[n-1].Path
	}
	return out
}

// release is the release of an entry's kernel; empty where it is not known.
func (c *entryChecker) release(e *loadEntry) string {
	if e.Kernel.Found {
		if k := c.kernel(e); k.Release != "" {
			return k.Release
		}
	}
	return config.ReleaseOfName(e.Kernel.Shown)
}

// DefaultEntry is the entry that boots by itself.
func DefaultEntry(s *diagnose.System) (BootEntry, bool) {
	e := defaultEntry(loadEntries(s))
	if e == nil {
		return BootEntry{}, false
	}
	return exportEntry(s, newEntryChecker(s), e), true
}

// WholeEntry is the first entry beside the default one that boots another kernel, as far as can be seen.
func WholeEntry(s *diagnose.System) (BootEntry, bool) {
	entries := loadEntries(s)
	first, c := defaultEntry(entries), newEntryChecker(s)
	if first == nil {
		return BootEntry{}, false
	}
	e := c.wholeEntry(entries, first)
	if e == nil {
		return BootEntry{}, false
	}
	return exportEntry(s, c, e), true
}

// ProposesEntry says whether the repair of a finding makes another entry the default one.
func ProposesEntry(f diagnose.Finding) bool {
	return f.Repair != nil && strings.HasPrefix(f.Repair.Summary, entrySummary)
}

// InitramfsCommand is the command of the system that builds the initramfs of the default entry; nil where none is known.
func InitramfsCommand(s *diagnose.System) []string {
	e := defaultEntry(loadEntries(s))
	if e == nil {
		return nil
	}
	return initramfsCommand(s, e, newEntryChecker(s).release(e))
}

// InitramfsCopy is where the loader starts a copy of the initramfs that InitramfsCommand builds; both are empty where it starts that itself.
func InitramfsCopy(s *diagnose.System) (from, to string) {
	e, found := DefaultEntry(s)
	command := InitramfsCommand(s)
	if !found || len(command) == 0 || path.Base(command[0]) != "update-initramfs" || e.Initramfs == "/boot/initrd.img-"+e.Kernel {
		return "", ""
	}
	return "/boot/initrd.img-" + e.Kernel, e.Initramfs
}

// initramfsCommand is the command that builds an entry's initramfs: the image that the entry names, or that it would have.
func initramfsCommand(s *diagnose.System, e *loadEntry, release string) []string {
	if release == "" || strings.ContainsAny(release, "/ ") || !config.IsFolder(s.Files, "/lib/modules/"+release) {
		return nil
	}
	image := "/boot/initrd.img-" + release
	switch n := len(e.Initrds); {
	case n > 0 && (e.Initrds[n-1].Tree != s.Files || e.Initrds[n-1].Unknown), n == 0 && (e.Kernel.Tree != s.Files || strings.HasSuffix(e.Kernel.Path, ".efi")):
		return nil
	case n > 0:
		image = e.Initrds[n-1].Path
	}
	// For a copy on the EFI system partition, kernel-install, which update-initramfs calls, would otherwise take the arguments of the ramdisk.
	if tool := config.FirstExisting(s.Files, "/usr/sbin/update-initramfs", "/sbin/update-initramfs"); tool != "" &&
		(image == "/boot/initrd.img-"+release || e.Loader == bySystemdBoot && rootArgument(kernelCommandLine(s)) != "") {
		return []string{tool, "-c", "-k", release}
	}
	if tool := config.FirstExisting(s.Files, "/usr/bin/dracut", "/usr/sbin/dracut", "/sbin/dracut"); tool != "" {
		return []string{tool, "--force", "--no-hostonly", image, release} // of what the ramdisk's kernel sees, it would leave out too much
	}
	if tool := config.FirstExisting(s.Files, "/usr/bin/mkinitcpio"); tool != "" {
		return []string{tool, "-k", release, "-g", image}
	}
	if tool := config.FirstExisting(s.Files, "/sbin/mkinitfs", "/usr/sbin/mkinitfs"); tool != "" {
		return []string{tool, "-o", image, release}
	}
	return nil
}

// GrubMenu returns the path of GRUB's menu and the program that writes it anew; the program is empty where none is known.
func GrubMenu(s *diagnose.System) (file, tool string) {
	file, _ = grubConfigPath(s)
	return file, menuTool(s, file)
}

// menuTool is the program that writes a grub.cfg. A configuration on the EFI system partition is never written anew.
func menuTool(s *diagnose.System, file string) string {
	if !strings.HasPrefix(file, "/boot/grub") || strings.Contains(file, "/efi/") {
		return ""
	}
	if strings.Contains(file, "grub2") {
		return config.FirstExisting(s.Files, "/usr/sbin/grub2-mkconfig", "/sbin/grub2-mkconfig")
	}
	return config.FirstExisting(s.Files, "/usr/sbin/grub-mkconfig", "/sbin/grub-mkconfig")
}

// GrubInstaller is the program that installs GRUB for a BIOS; empty where the system has none.
func GrubInstaller(s *diagnose.System) string {
	if s.Files.Exists("/boot/grub/i386-pc") || s.Files.Exists("/usr/lib/grub/i386-pc") {
		return config.FirstExisting(s.Files, "/usr/sbin/grub-install", "/usr/sbin/grub2-install", "/sbin/grub2-install")
	}
	if s.Files.Exists("/boot/grub2/i386-pc") {
		return config.FirstExisting(s.Files, "/usr/sbin/grub2-install", "/sbin/grub2-install", "/usr/sbin/grub-install")
	}
	return ""
}

// GrubTakesSaved says whether the default of GRUB's menu is what its environment block stores.
func GrubTakesSaved(s *diagnose.System) bool {
	file, found := grubConfigPath(s)
	text, err := s.Files.Read(file)
	if !found || err != nil {
		return false
	}
	saved := false
	for _, set := range grubSettings(config.ParseGrub(string(text))) {
		if set.Name == "default" && !strings.Contains(set.Value, "next_entry") {
			saved = strings.Contains(set.Value, "saved_entry")
		}
	}
	return saved
}

// BootDevice is the device that holds /boot; nil where it is not known.
func BootDevice(s *diagnose.System) *diagnose.Device { return deviceOfBoot(s) }

// FirmwareEntry is the boot entry that the firmware has to start. isNew: it does not have the entry, or has it switched off.
func FirmwareEntry(s *diagnose.System) (entry diagnose.BootEntry, isNew, found bool) {
	for _, e := range diskEntries(s) {
		switch {
		case e.startsAnother(s):
		case e.works():
			return e.entry, false, true
		case e.device != nil && e.missing == "" && e.damaged == "" && !e.entry.Active:
			return e.entry, true, true
		}
	}
	for _, l := range installedLoaders(s) {
		if l.device.PartUUID != "" {
			return diagnose.BootEntry{Name: s.Release.ID, PartUUID: strings.ToLower(l.device.PartUUID), Path: l.path}, true, true
		}
	}
	return diagnose.BootEntry{}, false, false
}
