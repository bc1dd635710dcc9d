package system

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// bootedModules are the modules of the kernel that boots by itself.
type bootedModules struct {
	release string
	folder  string
	// files are the paths of modules.dep by the names of the modules, builtin the names of those in the kernel itself.
	files   map[string]string
	builtin map[string]bool
	// foreign: modules were added that the kernel's package did not bring, such as those of DKMS.
	foreign bool
	entry   *loadEntry
	checker *entryChecker
}

// readBootedModules reads the lists of modules; nil where the kernel or its lists are not known.
func readBootedModules(s *diagnose.System) *bootedModules {
	e := defaultEntry(loadEntries(s))
	if e == nil || e.Kernel.Path == "" || !e.Kernel.Found {
		return nil
	}
	b := &bootedModules{entry: e, checker: newEntryChecker(s), files: map[string]string{}, builtin: map[string]bool{}}
	if b.release = b.checker.kernel(e).Release; b.release == "" {
		b.release = config.ReleaseOfName(e.Kernel.Shown)
	}
	b.folder = "/lib/modules/" + b.release
	list := s.Files.Lines(b.folder + "/modules.dep")
	if b.release == "" || len(list) == 0 {
		return nil
	}
	for _, line := range list {
		file, _, _ := strings.Cut(line, ":")
		base, _, _ := strings.Cut(path.Base(file), ".ko")
		b.files[config.ModuleName(base)] = file
		for _, folder := range []string{"updates/", "extra/", "weak-updates/", "misc/"} {
			b.foreign = b.foreign || strings.HasPrefix(file, folder)
		}
	}
	builtin := s.Files.Lines(b.folder + "/modules.builtin")
	for _, line := range builtin {
		base, _, _ := strings.Cut(path.Base(line), ".ko")
		b.builtin[config.ModuleName(base)] = true
	}
	if len(builtin) == 0 {
		return nil // what is in the kernel itself cannot be told
	}
	return b
}

// inInitramfs says whether the initramfs holds a module, which loads from there before modprobe.d and /lib/modules of the root are read.
func (b *bootedModules) inInitramfs(module string) bool {
	for _, image := range b.entry.Initrds {
		if image.Found && b.checker.initramfs(image).Modules[module] {
			return true
		}
	}
	return false
}

// driverBlock is what keeps a module from loading for its device.
type driverBlock struct {
	module, text, file string
	line               int
}

// modprobeFiles are the files of modprobe.d that count: of two with one name, the stronger folder's.
func modprobeFiles(tree *diagnose.Tree) []string {
	var out []string
	done := map[string]bool{}
	for _, folder := range []string{"/etc/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"} {
		for _, file := range tree.Match(folder, "*.conf") {
			if !done[path.Base(file)] {
				done[path.Base(file)] = true
				out = append(out, file)
			}
		}
	}
	return out
}

// loadedByName says whether a list names the module itself, so that a blacklist does not keep it from loading.
func loadedByName(tree *diagnose.Tree, module string) bool {
	files := []string{"/etc/modules"}
	for _, folder := range []string{"/etc/modules-load.d", "/usr/lib/modules-load.d"} {
		files = append(files, tree.Match(folder, "*.conf")...)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		return slices.ContainsFunc(tree.Lines(file), func(line string) bool {
			fields := strings.Fields(line)
			return len(fields) > 0 && config.ModuleName(fields[0]) == module
		})
	})
}

// blockOf returns the line of modprobe.d, or the argument of the kernel, that keeps a module from loading; nil where none does.
func blockOf(s *diagnose.System, e *loadEntry, module string) *driverBlock {
	for _, file := range modprobeFiles(s.Files) {
		for i, text := range s.Files.Lines(file) {
			fields := strings.Fields(text)
			if len(fields) < 2 || config.ModuleName(fields[1]) != module {
				continue
			}
			off := fields[0] == "install" && len(fields) > 2 && (strings.HasSuffix(fields[2], "/true") || strings.HasSuffix(fields[2], "/false"))
			if off || fields[0] == "blacklist" && !loadedByName(s.Files, module) {
				return &driverBlock{module, text, file, i + 1}
			}
		}
	}
	for _, option := range e.Options {
		name, value, _ := strings.Cut(option, "=")
		if !slices.Contains([]string{"modprobe.blacklist", "module_blacklist", "rd.driver.blacklist"}, name) || name == "modprobe.blacklist" && loadedByName(s.Files, module) {
			continue
		}
		if slices.ContainsFunc(strings.Split(value, ","), func(m string) bool { return config.ModuleName(m) == module }) {
			return &driverBlock{module, option, e.File, max(e.OptionsLine, e.Line)}
		}
	}
	return nil
}

// lookNetworkDrivers finds network interfaces whose driver the system does not load or does not have.
func lookNetworkDrivers(s *diagnose.System) []diagnose.Finding {
	if len(s.NICs) == 0 {
		return nil
	}
	b := readBootedModules(s)
	if b == nil {
		return nil
	}
	var out []diagnose.Finding
	driven, connected := 0, false // interfaces with a driver, and whether one of them has a link
	for i := range s.NICs {
		nic := &s.NICs[i]
		f := b.lookDriver(s, nic)
		if f == nil {
			driven++
			connected = connected || nic.Carrier
			continue
		}
		if !slices.ContainsFunc(out, func(other diagnose.Finding) bool { return other.Title == f.Title }) {
			out = append(out, *f)
		}
	}
	for i := range out {
		if driven > 0 && (connected || !slices.ContainsFunc(s.NICs, func(nic diagnose.NIC) bool { return nic.Carrier })) {
			out[i].Severity = diagnose.Degrades // another interface comes up
		}
	}
	return out
}

// lookDriver judges one interface; nil where its driver loads, or where that cannot be told.
func (b *bootedModules) lookDriver(s *diagnose.System, nic *diagnose.NIC) *diagnose.Finding {
	module := config.ModuleName(nic.Driver)
	if module == "" || b.builtin[module] {
		return nil
	}
	device := config.DeviceEvidence(config.FirstText(append(slices.Clone(nic.Names), nic.MAC)...), "the ramdisk drives the interface "+nic.MAC+" by "+nic.Driver)
	f := &diagnose.Finding{Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.85, Explains: append([]string{"network-interface-missing"}, networkConsequences...)}
	file, has := b.files[module]
	block := blockOf(s, b.entry, module)
	switch {
	case block != nil:
		f.ID = "network-driver-blocked"
		f.Title = fmt.Sprintf("Line %d of %s keeps the module %s from loading, which drives the network interface %s.", block.line, block.file, module, nic.MAC)
		f.Evidence = []diagnose.Evidence{config.FileEvidence(block.file, block.line, block.text), device}
		f.ByHand = "Remove the line, and build the initramfs anew, which holds a copy of it."
		if strings.Contains(block.file, "modprobe.d") {
			f.Repair = &diagnose.Repair{Summary: fmt.Sprintf("Make line %d of %s a comment, and build the initramfs anew.", block.line, block.file), Consent: diagnose.ConsentBoot, Writes: []string{block.file},
				Loses: fmt.Sprintf("The system itself uses the interface %s. Someone may have kept it for guests on purpose.", nic.MAC)}
		}
	case !has:
		f.ID = "network-driver-missing"
		f.Title = fmt.Sprintf("The kernel %s has no module %s, which drives the network interface %s.", b.release, module, nic.MAC)
		f.Evidence = []diagnose.Evidence{config.FileEvidence(b.folder+"/modules.dep", 0, "it does not list "+module), device}
		f.ByHand = "Install the package that brings the module, or boot a kernel that has it."
	case fs.ValidPath(file) && !s.Files.Exists(path.Join(b.folder, file)):
		f.ID = "network-driver-missing"
		f.Title = fmt.Sprintf("The file of the module %s does not exist for the kernel %s, and it drives the network interface %s.", module, b.release, nic.MAC)
		f.Evidence = []diagnose.Evidence{config.FileEvidence(path.Join(b.folder, file), 0, "it does not exist, though modules.dep lists it"), device}
		f.ByHand = "Install the package of the kernel again, or boot a kernel that has the module."
	default:
		return nil
	}
	switch {
	case b.foreign: // another module may drive the same card
		f.Confidence = 0.4
	case b.inInitramfs(module) && (block == nil || block.file != b.entry.File): // the command line holds in the initramfs too
		f.Severity, f.Explains = diagnose.Degrades, nil
		f.Title = appendToSentence(f.Title, "; the initramfs still loads its own copy, until someone builds it anew")
	}
	return f
}

// dhcpClients are the programs by which ifupdown asks for an address.
var dhcpClients = []string{"/sbin/dhclient", "/usr/sbin/dhclient", "/sbin/dhclient3", "/sbin/udhcpc", "/usr/sbin/udhcpc", "/bin/udhcpc", "/usr/bin/udhcpc", "/sbin/dhcpcd", "/usr/sbin/dhcpcd",
	"/bin/dhcpcd", "/usr/bin/dhcpcd", "/sbin/pump", "/usr/sbin/pump", "/usr/sbin/dhcpcd-bin", "/usr/libexec/ifupdown-ng/dhcp"}

// findDHCPClient finds interfaces that ifupdown is to configure by DHCP on a system without any client for it.
func findDHCPClient(s *diagnose.System, n *config.Network) []diagnose.Finding {
	if n.Other != "" || config.FirstExisting(s.Files, dhcpClients...) != "" {
		return nil
	}
	var asks *config.NetworkLink
	for i := range n.Managers {
		m := &n.Managers[i]
		if !m.Enabled {
			continue
		}
		if m.Name != "ifupdown" && (m.ConfiguresAll || len(m.Links) > 0 || m.Partial) || m.Name == "ifupdown" && m.Partial {
			return nil // another program may configure the interface
		}
		for j := range m.Links {
			l := &m.Links[j]
			switch {
			case !l.Active || l.Name == "lo":
			case l.AsksServer && asks == nil:
				asks = l
			case !l.AsksServer && len(l.Addresses) > 0:
				return nil // the machine is reached there
			}
		}
	}
	if asks == nil {
		return nil
	}
	return []diagnose.Finding{{
		ID: "network-dhcp-client-missing", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.88, Explains: []string{"sshd-listens-nowhere"},
		Title:    fmt.Sprintf("The file %s configures %s by DHCP, and the system has no DHCP client.", place(asks.File, asks.Line), asks.Name),
		Evidence: []diagnose.Evidence{config.FileEvidence(asks.File, asks.Line, "iface "+asks.Name+" asks a DHCP server"), config.FileEvidence("/sbin/dhclient", 0, "it does not exist, nor do dhcpcd and udhcpc")},
		ByHand:   "Install isc-dhcp-client, dhcpcd-base or udhcpc, or write a static address.",
	}}
}
