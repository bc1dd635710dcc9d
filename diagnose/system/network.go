package system

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
	maxNetworkFiles = 512
	maxNetworkLinks = 2000
)

// networkLink is what one network manager is told about an interface.
type networkLink struct {
	// name is that of the interface; it may be a pattern of path.Match, and is empty where mac alone says which one is meant.
	name, mac string
	// virtual: the manager makes the interface itself, as a bond, a bridge or a VLAN.
	virtual bool
	// lower: the link is named because another one lies on it.
	lower bool
	// active: it is brought up at boot. optional: the boot goes on without it.
	active, optional bool
	// other conditions decide which interface is meant, so that nobody can tell from here.
	unclear bool

	dhcp bool
	// asksServer: the address comes from a DHCP client, and not from the kernel or a router.
	asksServer bool
	addresses  []netip.Prefix
	gateways   []networkGateway
	file       string
	line       int
}

// networkGateway is the next hop of a default route.
type networkGateway struct {
	address netip.Addr
	line    int
	onLink  bool // the route says that it is reachable without an address in its network
}

// networkProblem is a line because of which a manager refuses its configuration.
type networkProblem struct {
	file       string
	line       int
	text       string // the end of a sentence
	confidence float64
}

// networkManager is one of the programs that configure interfaces, with what it is told.
type networkManager struct {
	name     string
	unit     string // that starts it, as systemd names it
	enabled  bool
	links    []networkLink
	problems []networkProblem
	// configuresAll: it uses DHCP on every interface that its files do not name.
	configuresAll bool
	// partial: not all of its files were read.
	partial bool
	// ignoredStatic: a file that the manager ignores has a static address.
	ignoredStatic bool
}

// network is the configuration of all managers that are installed.
type network struct {
	managers []networkManager
	// other is a program that configures interfaces and that is not examined; empty where none starts.
	other string
	// known: whether services start by themselves can be told.
	known bool
}

// otherManagers configure interfaces and are not examined.
var otherManagers = strings.Fields("dhcpcd connman dhclient ifplugd netctl net.eth0 vyos-router iwd")

func readNetwork(s *diagnose.System) *network {
	tree := s.Files
	n := &network{}
	_, n.known = serviceEnabled(tree, "networking")
	for _, name := range otherManagers {
		if on, _ := serviceEnabled(tree, name); on {
			n.other = name
		}
	}
	for _, wanted := range []string{"netctl@*.service", "dhcpcd@*.service", "dhclient@*.service"} {
		for _, folder := range tree.Match("/etc/systemd/system", "*.wants") {
			if found := tree.Match(folder, wanted); len(found) > 0 {
				n.other = path.Base(found[0])
			}
		}
	}
	for _, m := range []*networkManager{readIfupdown(tree), readNetplan(tree), readNetworkManager(tree), readNetworkd(tree), readIfcfg(tree)} {
		if m != nil {
			m.links = m.links[:min(len(m.links), maxNetworkLinks)]
			if m.enabled && m.partial {
				tree.NoteGap("the configuration of "+m.name, "a part of it was not read, or is not understood")
			}
			n.managers = append(n.managers, *m)
		}
	}
	return n
}

// predictableNames says whether the system gives its interfaces names of systemd's policy, so that eth0 is none of them.
func predictableNames(tree *diagnose.Tree) bool {
	if managerOf(tree) != systemdManager || !tree.Exists("/usr/lib/systemd/network/99-default.link") && !tree.Exists("/lib/systemd/network/99-default.link") {
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

// namesOf lists the names that an interface may have in the system: those of its policy, and those that files give it.
func namesOf(s *diagnose.System, n *network, nic diagnose.NIC, predictable bool) []string {
	var out []string
	for _, name := range nic.Names {
		if predictable && len(nic.Names) > 1 && kernelName.MatchString(name) {
			continue
		}
		out = append(out, name)
	}
	for _, given := range givenNames(s.Files) {
		if given.mac == nic.MAC && given.name != "" {
			out = append(out, given.name)
		}
	}
	for _, m := range n.managers {
		for _, l := range m.links {
			if l.mac == nic.MAC && l.name != "" && !strings.ContainsAny(l.name, "*?[") {
				out = append(out, l.name)
			}
		}
	}
	return out
}

// givenName is a name that a rule of udev or a .link file gives to the interface of an address.
type givenName struct {
	mac, name string
	file      string
	line      int
}

var (
	ruleAddress = regexp.MustCompile(`ATTRS?\{address\}=="([0-9a-fA-F:*?]+)"`)
	ruleName    = regexp.MustCompile(`\bNAME:?="([^"]+)"`)
)

// givenNames reads udev's rules, .link files and the tables of older programs.
func givenNames(tree *diagnose.Tree) []givenName {
	var out []givenName
	for _, file := range tree.Match("/etc/udev/rules.d", "*.rules") {
		for i, line := range tree.Lines(file) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") || len(out) > maxNetworkLinks {
				continue
			}
			address, name := ruleAddress.FindStringSubmatch(line), ruleName.FindStringSubmatch(line)
			if address != nil && name != nil {
				out = append(out, givenName{strings.ToLower(address[1]), name[1], file, i + 1})
			}
		}
	}
	for _, folder := range []string{"/etc/systemd/network", "/usr/lib/systemd/network"} {
		for _, file := range tree.Match(folder, "*.link") {
			given := givenName{file: file}
			for _, l := range unitSettings(tree.Lines(file)) {
				switch {
				case l.Section == "Match" && (l.Key == "MACAddress" || l.Key == "PermanentMACAddress"):
					given.mac = normalMAC(l.Value)
				case l.Section == "Link" && l.Key == "Name":
					given.name, given.line = l.Value, l.Line
				}
			}
			if given.mac != "" && given.name != "" {
				out = append(out, given)
			}
		}
	}
	for _, file := range []string{"/etc/iftab", "/etc/mactab"} {
		for i, line := range tree.Lines(file) {
			if fields := strings.Fields(line); len(fields) >= 2 && fields[0][0] != '#' {
				out = append(out, givenName{normalMAC(fields[len(fields)-1]), fields[0], file, i + 1})
			}
		}
	}
	return out
}

var macPattern = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)

// normalMAC writes an address in lower case with colons; empty for what is none.
func normalMAC(text string) string {
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

// isVirtualName says whether a name is that of a virtual interface, or of a VLAN or an alias of another one.
func isVirtualName(name string) bool {
	return virtualNames.MatchString(name) || strings.ContainsAny(name, ".:@")
}

// parsePrefix understands 192.0.2.1/24 and, with a mask of its own, 192.0.2.1 and 255.255.255.0.
func parsePrefix(address, mask string) (netip.Prefix, bool) {
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

// matches says whether a link means an interface with these names.
func (l *networkLink) matches(mac string, names []string) bool {
	if l.mac != "" && l.mac != mac {
		return false
	}
	if l.name == "" || (l.mac == mac && mac != "") {
		return l.mac != "" || l.unclear
	}
	return slices.ContainsFunc(names, func(n string) bool {
		ok, _ := path.Match(l.name, n)
		return ok
	})
}
