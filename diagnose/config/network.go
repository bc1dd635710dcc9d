package config

import (
	"bytes"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
)

// Bounds of a network configuration.
const (
	MaxNetworkFiles = 512
	MaxNetworkLinks = 2000
)

// NetworkLink is what one network manager is told about an interface.
type NetworkLink struct {
	// Name is that of the interface; it may be a pattern of path.Match, and is empty where mac alone says which one is meant.
	Name, MAC string
	// Virtual: the manager makes the interface itself, as a bond, a bridge or a VLAN.
	Virtual bool
	// Lower: the link is named because another one lies on it.
	Lower bool
	// Active: it is brought up at boot. optional: the boot goes on without it.
	Active, Optional bool
	// Other conditions decide which interface is meant, so that nobody can tell from here.
	Unclear bool

	DHCP bool
	// AsksServer: the address comes from a DHCP client, and not from the kernel or a router.
	AsksServer bool
	Addresses  []netip.Prefix
	Gateways   []NetworkGateway
	File       string
	Line       int
	// HeldBy is the line that keeps the interface from coming up at boot, with the setting as its text; nil without one.
	HeldBy *NetworkProblem
	// PreUp are the commands that ifup runs before it sets an address, without names.
	PreUp []SettingLine
}

// NetworkGateway is the next hop of a default route.
type NetworkGateway struct {
	Address netip.Addr
	Line    int
	OnLink  bool // the route says that it is reachable without an address in its network
}

// NetworkProblem is a line because of which a manager refuses its configuration.
type NetworkProblem struct {
	File       string
	Line       int
	Text       string // the end of a sentence
	Confidence float64
}

// NetworkManager is one of the programs that configure interfaces, with what it is told.
type NetworkManager struct {
	Name     string
	Unit     string // that starts it, as systemd names it
	Enabled  bool
	Links    []NetworkLink
	Problems []NetworkProblem
	// ConfiguresAll: it uses DHCP on every interface that its files do not name.
	ConfiguresAll bool
	// Inactive are connections that the manager does not bring up at boot, although it would use DHCP on their interfaces without them.
	Inactive []NetworkLink
	// Partial: not all of its files were read.
	Partial bool
	// IgnoredStatic: a file that the manager ignores has a static address.
	IgnoredStatic bool
	// Off is the line by which the manager keeps all interfaces down; nil without one.
	Off *NetworkProblem
	// LeavesToIfupdown: the manager leaves the interfaces of /etc/network/interfaces to ifupdown.
	LeavesToIfupdown bool
}

// Network is the configuration of all managers that are installed.
type Network struct {
	Managers []NetworkManager
	// Other is a program that configures interfaces and that is not examined; empty where none starts.
	Other string
	// Known: whether services start by themselves can be told.
	Known bool
}

// otherManagers configure interfaces and are not examined.
var otherManagers = strings.Fields("dhcpcd connman dhclient ifplugd netctl net.eth0 vyos-router iwd")

func ReadNetwork(s *diagnose.System) *Network {
	tree := s.Files
	n := &Network{}
	_, n.Known = ServiceEnabled(tree, "networking")
	for _, name := range otherManagers {
		if on, _ := ServiceEnabled(tree, name); on {
			n.Other = name
		}
	}
	for _, wanted := range []string{"netctl@*.service", "dhcpcd@*.service", "dhclient@*.service"} {
		for _, folder := range tree.Match("/etc/systemd/system", "*.wants") {
			if found := tree.Match(folder, wanted); len(found) > 0 {
				n.Other = path.Base(found[0])
			}
		}
	}
	for _, m := range []*NetworkManager{ReadIfupdown(tree), ReadNetplan(tree), readNetworkManager(tree), readNetworkd(tree), readIfcfg(tree)} {
		if m != nil {
			m.Links = m.Links[:min(len(m.Links), MaxNetworkLinks)]
			if m.Enabled && m.Partial {
				tree.NoteGap("the configuration of "+m.Name, "a part of it was not read, or is not understood")
			}
			n.Managers = append(n.Managers, *m)
		}
	}
	n.leaveToNetplan()
	return n
}

// leaveToNetplan tells NetworkManager about the connections that netplan writes for it: it makes none of its own for their interfaces.
func (n *Network) leaveToNetplan() {
	at := slices.IndexFunc(n.Managers, func(m NetworkManager) bool { return m.Name == "NetworkManager" })
	for _, m := range n.Managers {
		if at < 0 || m.Name != "netplan" || m.Unit != n.Managers[at].Unit {
			continue
		}
		for _, l := range m.Links {
			if !l.Active && !l.Virtual && !l.Unclear {
				n.Managers[at].Inactive = append(n.Managers[at].Inactive, l)
			}
		}
	}
}

// PredictableNames says whether the system gives its interfaces names of systemd's policy, so that eth0 is none of them.
func PredictableNames(tree *diagnose.Tree) bool {
	if ManagerOf(tree) != SystemdManager || !tree.Exists("/usr/lib/systemd/network/99-default.link") && !tree.Exists("/lib/systemd/network/99-default.link") {
		return false
	}
	for _, name := range []string{"/etc/systemd/network/99-default.link", "/etc/systemd/network/73-usb-net-by-mac.link", "/etc/udev/rules.d/80-net-setup-link.rules", "/etc/udev/rules.d/80-net-name-slot.rules"} {
		if _, err := tree.Lstat(name); err == nil && !strings.Contains(name, "73-usb") {
			return false
		}
	}
	files := []string{"/etc/default/grub", "/boot/grub/grub.cfg", "/boot/grub2/grub.cfg", "/boot/grub2/grubenv", "/etc/kernel/cmdline", "/boot/extlinux.conf", "/boot/extlinux/extlinux.conf", "/boot/cmdline.txt"}
	for _, folder := range []string{"/boot/loader/entries", "/boot/efi/loader/entries", "/efi/loader/entries", "/etc/cmdline.d", "/etc/default/grub.d"} {
		files = append(files, tree.Match(folder, "*.c*")...)
	}
	some := false
	for _, name := range files {
		text, err := tree.Read(name)
		if err != nil {
			continue
		}
		some = true
		if bytes.Contains(text, []byte("net.ifnames=0")) {
			return false
		}
	}
	return some
}

var kernelName = regexp.MustCompile(`^(eth|wlan|usb|ib)[0-9]+$`)

// NamesOf lists the names that an interface may have in the system: those of its policy, and those that files give it.
func NamesOf(s *diagnose.System, n *Network, nic diagnose.NIC, predictable bool) []string {
	var out []string
	for _, name := range nic.Names {
		if predictable && len(nic.Names) > 1 && kernelName.MatchString(name) {
			continue
		}
		out = append(out, name)
	}
	for _, given := range GivenNames(s.Files) {
		if given.MAC == nic.MAC && given.Name != "" {
			out = append(out, given.Name)
		}
	}
	for _, m := range n.Managers {
		for _, l := range m.Links {
			if l.MAC == nic.MAC && l.Name != "" && !strings.ContainsAny(l.Name, "*?[") {
				out = append(out, l.Name)
			}
		}
	}
	return out
}

// GivenName is a name that a rule of udev or a .link file gives to the interface of an address.
type GivenName struct {
	MAC, Name string
	File      string
	Line      int
}

var (
	ruleAddress = regexp.MustCompile(`ATTRS?\{address\}=="([0-9a-fA-F:*?]+)"`)
	ruleName    = regexp.MustCompile(`\bNAME:?="([^"]+)"`)
)

// GivenNames reads udev's rules, .link files and the tables of older programs.
func GivenNames(tree *diagnose.Tree) []GivenName {
	var out []GivenName
	for _, file := range tree.Match("/etc/udev/rules.d", "*.rules") {
		for i, line := range tree.Lines(file) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") || len(out) > MaxNetworkLinks {
				continue
			}
			address, name := ruleAddress.FindStringSubmatch(line), ruleName.FindStringSubmatch(line)
			if address != nil && name != nil {
				out = append(out, GivenName{strings.ToLower(address[1]), name[1], file, i + 1})
			}
		}
	}
	for _, folder := range []string{"/etc/systemd/network", "/usr/lib/systemd/network"} {
		for _, file := range tree.Match(folder, "*.link") {
			given := GivenName{File: file}
			for _, l := range UnitSettings(tree.Lines(file)) {
				switch {
				case l.Section == "Match" && (l.Key == "MACAddress" || l.Key == "PermanentMACAddress"):
					given.MAC = NormalMAC(l.Value)
				case l.Section == "Link" && l.Key == "Name":
					given.Name, given.Line = l.Value, l.Line
				}
			}
			if given.MAC != "" && given.Name != "" {
				out = append(out, given)
			}
		}
	}
	for _, file := range []string{"/etc/iftab", "/etc/mactab"} {
		for i, line := range tree.Lines(file) {
			if fields := strings.Fields(line); len(fields) >= 2 && fields[0][0] != '#' {
				out = append(out, GivenName{NormalMAC(fields[len(fields)-1]), fields[0], file, i + 1})
			}
		}
	}
	return out
}

// LinkName is the name that a .link file of the administrator gives to the interface of an address, and that udev uses alone: the first file about
// the interface counts, and a rule of udev that names the interface goes before it. nil where none does, or where other conditions decide.
func LinkName(tree *diagnose.Tree, mac string) *GivenName {
	const folder = "/etc/systemd/network"
	for _, given := range GivenNames(tree) {
		if given.MAC == mac && path.Dir(given.File) != folder {
			return nil
		}
	}
	for _, file := range tree.Match(folder, "*.link") {
		given, only := GivenName{File: file}, true
		for _, l := range UnitSettings(tree.Lines(file)) {
			switch {
			case l.Section == "Match" && (l.Key == "MACAddress" || l.Key == "PermanentMACAddress"):
				given.MAC = NormalMAC(l.Value)
			case l.Section == "Match":
				only = false
			case l.Section == "Link" && l.Key == "Name":
				given.Name, given.Line = l.Value, l.Line
			case l.Section == "Link" && (l.Key == "NamePolicy" || l.Key == "AlternativeName" || l.Key == "AlternativeNamesPolicy"):
				only = false
			}
		}
		switch {
		case !only:
			return nil
		case given.MAC == mac && given.Name != "":
			return &given
		}
	}
	return nil
}

// IsKernelInterface says whether a name is one that the kernel itself gives to interfaces, such as eth0.
func IsKernelInterface(name string) bool { return kernelName.MatchString(name) }

var macPattern = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)

// NormalMAC writes an address in lower case with colons; empty for what is none.
func NormalMAC(text string) string {
	text = strings.ToLower(strings.Trim(strings.TrimSpace(text), `"'`))
	text = strings.ReplaceAll(text, "-", ":")
	if len(text) == 14 && strings.Count(text, ".") == 2 { // 5254.0012.3456
		plain := strings.ReplaceAll(text, ".", "")
		var parts []string
		for i := 0; i+2 <= len(plain); i += 2 {
			parts = append(parts, plain[i:i+2])
		}
		text = strings.Join(parts, ":")
	}
	if !macPattern.MatchString(text) {
		return ""
	}
	return text
}

// virtualNames are those of interfaces that no hardware lies behind.
var virtualNames = regexp.MustCompile(`^(lo|bond|br|virbr|vmbr|docker|veth|tap|tun|wg|dummy|ppp|vlan|team|ovs|vxlan|gre|sit|ip6tnl|macvlan|ifb|lxc|lxd|cni|flannel|cali|nlmon|teql|zt|wwan|can|he-)`)

// IsVirtualName says whether a name is that of a virtual interface, or of a VLAN or an alias of another one.
func IsVirtualName(name string) bool {
	return virtualNames.MatchString(name) || strings.ContainsAny(name, ".:@")
}

// ParsePrefix understands 192.0.2.1/24 and, with a mask of its own, 192.0.2.1 and 255.255.255.0.
func ParsePrefix(address, mask string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(address); err == nil {
		return p, true
	}
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}, false
	}
	if mask == "" {
		return netip.Prefix{}, false
	}
	if p, err := netip.ParsePrefix(address + "/" + mask); err == nil {
		return p, true
	}
	m, err := netip.ParseAddr(mask)
	if err != nil || !m.Is4() || !a.Is4() {
		return netip.Prefix{}, false
	}
	bits, ended := 0, false
	for _, b := range m.As4() {
		for i := 7; i >= 0; i-- {
			set := b>>i&1 == 1
			if set && ended {
				return netip.Prefix{}, false
			}
			if set {
				bits++
			} else {
				ended = true
			}
		}
	}
	return netip.PrefixFrom(a, bits), true
}

// Matches says whether a link means an interface with these names.
func (l *NetworkLink) Matches(mac string, names []string) bool {
	if l.MAC != "" && l.MAC != mac {
		return false
	}
	if l.Name == "" || (l.MAC == mac && mac != "") {
		return l.MAC != "" || l.Unclear
	}
	return slices.ContainsFunc(names, func(n string) bool {
		ok, _ := path.Match(l.Name, n)
		return ok
	})
}
