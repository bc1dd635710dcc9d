package system

import (
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// This file exports what package repair/system asks about a system, so that a repair decides as the rule that proposed it.

// UnitFile returns the path of a unit of systemd; empty where there is none.
func UnitFile(t *diagnose.Tree, unit string) string { return unitFile(t, unit) }

// RunsShell says whether a shell exists and may be executed.
func RunsShell(t *diagnose.Tree, shell string) bool { return shellRuns(t, shell) }

// IsMountable says whether a line of /etc/fstab may be corrected to a type that a probe found.
func IsMountable(kind string) bool { return mountableTypes[kind] }

// WaitOptions are the options of fstab(5) with which a boot goes on without a device.
func WaitOptions(t *diagnose.Tree) []string {
	if usesSystemd(t) {
		return []string{"nofail", "x-systemd.device-timeout=10s"}
	}
	return []string{"nofail"} // the mount of busybox gives other options to the kernel
}

// CorrectOption returns the option of a line of /etc/fstab that its file system refuses, and the known one that was probably meant; both are
// empty where none is.
func CorrectOption(line string) (bad, like string) {
	entries := parseFstab([]string{line})
	if len(entries) != 1 {
		return "", ""
	}
	return invalidOption(&entries[0])
}

// Account is a line of /etc/passwd.
type Account struct {
	Name, Home, Shell string
	UID, GID          uint32
	Line              int // from 1
}

func exportAccount(a *account) Account {
	return Account{Name: a.name, Home: a.home, Shell: a.shell, UID: a.uid, GID: a.gid, Line: a.line}
}

// Accounts lists the valid lines of /etc/passwd.
func Accounts(t *diagnose.Tree) []Account {
	all, _ := parsePasswd(t.Lines(passwdPath))
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
			if slices.Contains(f.fix, path) {
				return exportAccount(&l.accounts[i].account), true
			}
		}
	}
	return Account{}, false
}

// PackagedSSHDConfig is where Debian's package of sshd keeps the configuration that it installs.
const PackagedSSHDConfig = "/usr/share/openssh/sshd_config"

// KeyHolders lists the accounts that have a key with which sshd would let them in.
func KeyHolders(s *diagnose.System) []Account {
	l := readLogins(s)
	var out []Account
	for i := range l.accounts {
		if hasUsableKey(&l.accounts[i]) {
			out = append(out, exportAccount(&l.accounts[i].account))
		}
	}
	return out
}

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
	groups, _ := parseGroups(s.Files.Lines(groupPath))
	var out []DeniedLogin
	for i := range l.accounts {
		a := &l.accounts[i]
		if a.denied.keyword == "" || !a.mayBeLetIn() {
			continue
		}
		d := DeniedLogin{Account: exportAccount(&a.account), Keyword: a.denied.keyword, File: a.denied.file, Setting: a.denied.line}
		for _, g := range groups {
			if g.gid == a.gid {
				d.Group = g.name
			}
		}
		out = append(out, d)
	}
	return out
}

// SSHPorts are the TCP ports on which sshd listens, the first one that of its configuration.
func SSHPorts(s *diagnose.System) []int { return sshPorts(s.Files, readSSHDConfig(s.Files)) }

// BrokenAccountLines lists the lines of a file such as /etc/passwd, from 1, that the C library skips, and whether the file is one of those that
// are known.
func BrokenAccountLines(file string, lines []string) (broken []int, known bool) {
	var entries []brokenEntry
	switch file {
	case passwdPath:
		_, entries = parsePasswd(lines)
	case shadowPath:
		_, entries = parseShadow(lines)
	case groupPath:
		_, entries = parseGroups(lines)
	default:
		return nil, false
	}
	for _, e := range entries {
		broken = append(broken, e.line)
	}
	return broken, true
}

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
	n := readNetwork(s)
	c := cover(s, n)
	mac, one := onlyUncovered(s, &c)
	if !one {
		return nil
	}
	var out []InterfaceChange
	for i := range n.managers {
		m := &n.managers[i]
		for j := range m.links {
			l := &m.links[j]
			f := c.missing(s, n, m, l)
			if !m.enabled || f == nil || f.Repair == nil {
				continue
			}
			change := InterfaceChange{File: l.file, Line: l.line, From: l.name, To: firstText(c.names[mac]...)}
			if l.mac != "" {
				change = InterfaceChange{File: l.file, Line: l.line, From: l.mac, To: mac, ByAddress: true}
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
	n := readNetwork(s)
	predictable := predictableNames(s.Files)
	for _, nic := range s.NICs {
		if nic.MAC == mac {
			return firstText(namesOf(s, n, nic, predictable)...)
		}
	}
	return ""
}

// WantedNetworks reads the static networks of the system's network_data.
func WantedNetworks(s *diagnose.System) []WantedNetwork { return wantedNetworks(s.NetworkData) }

// CorrectMethod returns the method of ifupdown that is near to what a stanza names; empty where none is, or several are.
func CorrectMethod(family, method string) string {
	if slices.Contains(interfaceMethods[family], method) {
		return method
	}
	out := ""
	for _, m := range interfaceMethods[family] {
		if editDistance(method, m) <= 1 || len(m) > 4 && editDistance(method, m) <= 2 {
			if out != "" && out != m {
				return ""
			}
			out = m
		}
	}
	return out
}

// IsStanzaStart says whether a line of /etc/network/interfaces ends the stanza before it.
func IsStanzaStart(line string) bool {
	fields := strings.Fields(line)
	return len(fields) > 0 && (slices.Contains([]string{"auto", "iface", "mapping", "source", "source-directory", "template", "rename", "no-auto-down", "no-scripts"}, fields[0]) ||
		strings.HasPrefix(fields[0], "allow-"))
}

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
	return releaseOfName(e.Kernel.Shown)
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
	if release == "" || strings.ContainsAny(release, "/ ") || !isFolder(s.Files, "/lib/modules/"+release) {
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
	if tool := firstExisting(s.Files, "/usr/sbin/update-initramfs", "/sbin/update-initramfs"); tool != "" &&
		(image == "/boot/initrd.img-"+release || e.Loader == bySystemdBoot && rootArgument(kernelCommandLine(s)) != "") {
		return []string{tool, "-c", "-k", release}
	}
	if tool := firstExisting(s.Files, "/usr/bin/dracut", "/usr/sbin/dracut", "/sbin/dracut"); tool != "" {
		return []string{tool, "--force", "--no-hostonly", image, release} // of what the ramdisk's kernel sees, it would leave out too much
	}
	if tool := firstExisting(s.Files, "/usr/bin/mkinitcpio"); tool != "" {
		return []string{tool, "-k", release, "-g", image}
	}
	if tool := firstExisting(s.Files, "/sbin/mkinitfs", "/usr/sbin/mkinitfs"); tool != "" {
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
		return firstExisting(s.Files, "/usr/sbin/grub2-mkconfig", "/sbin/grub2-mkconfig")
	}
	return firstExisting(s.Files, "/usr/sbin/grub-mkconfig", "/sbin/grub-mkconfig")
}

// GrubInstaller is the program that installs GRUB for a BIOS; empty where the system has none.
func GrubInstaller(s *diagnose.System) string {
	if s.Files.Exists("/boot/grub/i386-pc") || s.Files.Exists("/usr/lib/grub/i386-pc") {
		return firstExisting(s.Files, "/usr/sbin/grub-install", "/usr/sbin/grub2-install", "/sbin/grub2-install")
	}
	if s.Files.Exists("/boot/grub2/i386-pc") {
		return firstExisting(s.Files, "/usr/sbin/grub2-install", "/sbin/grub2-install", "/usr/sbin/grub-install")
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
	for _, set := range grubSettings(parseGrub(string(text))) {
		if set.Name == "default" && !strings.Contains(set.Value, "next_entry") {
			saved = strings.Contains(set.Value, "saved_entry")
		}
	}
	return saved
}

// GrubSearch returns what a search command on a line of a grub.cfg looks for: UUID or LABEL, and its value; both are empty where it looks for neither.
func GrubSearch(line string) (tag, value string) {
	for _, c := range parseGrub(line + "\n").Commands {
		if name, ok := searchTarget(c.Words); ok {
			return name.Tag, name.Value
		}
	}
	return "", ""
}

// BootDevice is the device that holds /boot; nil where it is not known.
func BootDevice(s *diagnose.System) *diagnose.Device { return deviceOfBoot(s) }

// FirmwareEntry is the boot entry that the firmware has to start. isNew: it does not have the entry, or has it switched off.
func FirmwareEntry(s *diagnose.System) (entry diagnose.BootEntry, isNew, found bool) {
	for _, e := range diskEntries(s) {
		switch {
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
