package config

import (
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"salvor/diagnose"
)

// readNetworkd reads the .network files of systemd-networkd; nil where it is not installed.
func readNetworkd(tree *diagnose.Tree) *NetworkManager {
	if UnitFile(tree, "systemd-networkd.service") == "" {
		return nil
	}
	m := &NetworkManager{Name: "systemd-networkd", Unit: "systemd-networkd.service"}
	m.Enabled, _ = ServiceEnabled(tree, "systemd-networkd")
	files := map[string]string{}
	for _, folder := range []string{"/usr/lib/systemd/network", "/lib/systemd/network", "/etc/systemd/network"} {
		for _, file := range tree.Match(folder, "*.network") {
			files[path.Base(file)] = file
		}
	}
	reader := findNetworkdReader(tree)
	for _, base := range slices.Sorted(maps.Keys(files))[:min(len(files), MaxNetworkFiles)] {
		lines, all := tree.Lines(files[base]), []string{files[base]}
		for _, drop := range tree.Match("/etc/systemd/network/"+base+".d", "*.conf") {
			lines, all = append(lines, tree.Lines(drop)...), append(all, drop)
		}
		if closed := m.refuseClosed(tree, reader, all); closed {
			for _, l := range ParseNetworkFile(lines) {
				m.IgnoredStatic = m.IgnoredStatic || len(l.Addresses) > 0
			}
			continue
		}
		for _, l := range ParseNetworkFile(lines) {
			l.File = files[base]
			if l.HeldBy != nil {
				l.HeldBy.File = files[base]
			}
			m.Links = append(m.Links, l)
		}
	}
	m.refuseClosed(tree, reader, tree.Match("/etc/systemd/network", "*.netdev"))
	return m
}

// networkdReader is the account as which systemd-networkd runs, with the groups of the system.
type networkdReader struct {
	Account
	groups []UserGroup
}

// findNetworkdReader returns the account of systemd-networkd; nil for root, or where the account is not known.
func findNetworkdReader(tree *diagnose.Tree) *networkdReader {
	name := ""
	for _, l := range UnitLines(tree, "systemd-networkd.service") {
		if l.Section == "Service" && l.Key == "User" {
			name = l.Value
		}
	}
	accounts, _ := ParsePasswd(tree.Lines(PasswdPath))
	for i := range accounts {
		if accounts[i].Name == name && accounts[i].UID != 0 {
			groups, _ := ParseGroups(tree.Lines(GroupPath))
			return &networkdReader{accounts[i], groups}
		}
	}
	return nil
}

// refuseClosed notes files that an account may not read after a boot, and says whether there is one.
func (m *NetworkManager) refuseClosed(tree *diagnose.Tree, reader *networkdReader, files []string) bool {
	closed := false
	for _, file := range files {
		if reader == nil || len(m.Problems) >= MaxNetworkFiles {
			break
		}
		if at, mode := closedTo(tree, file, reader); at != "" {
			closed = true
			m.Problems = append(m.Problems, NetworkProblem{file, 0, fmt.Sprintf("the service runs as %s, who may not read it, because %s has the mode %s", reader.Name, at, mode), 0.93})
		}
	}
	return closed
}

// closedTo returns the file, or the folder above it, that keeps an account from a file, and its mode; empty where the account may read the file. Links
// to other places, such as /dev/null, count as open.
func closedTo(tree *diagnose.Tree, file string, a *networkdReader) (at, mode string) {
	place, err := tree.Resolve(file)
	if err != nil {
		return "", ""
	}
	for at, bit := place, fs.FileMode(0o4); ; at, bit = path.Dir(at), 0o1 {
		info, _, err := StatAtBoot(tree, at)
		if err != nil {
			return "", ""
		}
		owner := diagnose.OwnerOf(info)
		isMember := owner.GID == a.GID || slices.ContainsFunc(a.groups, func(g UserGroup) bool { return g.GID == owner.GID && slices.Contains(g.Members, a.Name) })
		switch {
		case owner.UID == a.UID:
			bit <<= 6
		case isMember:
			bit <<= 3
		}
		if info.Mode()&bit == 0 {
			return at, ModeText(info)
		}
		if at == "/" {
			return "", ""
		}
	}
}

// networkFile is a .network file while it is read.
type networkFile struct {
	link        NetworkLink
	names, macs []string
	matched     bool
	ethernet    bool           // it is about interfaces of the type ether
	via         NetworkGateway // of the route that is being read
	elsewhere   bool           // that route is no default one
}

// ParseNetworkFile reads one .network file: a link for each name that it matches. A masked or empty one has none.
func ParseNetworkFile(lines []string) []NetworkLink {
	f := networkFile{link: NetworkLink{Active: true}}
	section := ""
	for _, s := range UnitSettings(lines) {
		if s.Section != section || (s.Section == "Route" && s.Key == "Gateway" && f.via.Address.IsValid()) {
			f.endRoute()
			section = s.Section
		}
		if s.Section == "Match" {
			f.match(s)
		} else {
			f.set(s)
		}
	}
	f.endRoute()
	if !f.matched {
		return nil
	}
	if len(f.names) == 0 && len(f.macs) == 0 && f.ethernet {
		f.names = []string{"*"}
	}
	if len(f.names) == 0 {
		f.names = []string{""}
	}
	if len(f.macs) == 0 {
		f.macs = []string{""}
	}
	var out []NetworkLink
	for _, name := range f.names[:min(len(f.names), 64)] {
		for _, mac := range f.macs[:min(len(f.macs), 64)] {
			l := f.link
			l.Name, l.MAC = name, mac
			l.Virtual = l.Virtual || (name != "" && IsVirtualName(name))
			if strings.HasPrefix(name, "!") {
				l.Name, l.Unclear = "", true
			}
			// Of several names or addresses, only some have to be there.
			l.Optional = l.Optional || len(f.names) > 1 || len(f.macs) > 1
			l.Unclear = l.Unclear || name == "" && mac == ""
			out = append(out, l)
		}
	}
	return out
}

func (f *networkFile) endRoute() {
	if f.via.Address.IsValid() && !f.elsewhere {
		f.link.Gateways = append(f.link.Gateways, f.via)
	}
	f.via, f.elsewhere = NetworkGateway{}, false
}

// match reads a line of [Match].
func (f *networkFile) match(s sectionLine) {
	f.matched = true
	values := strings.Fields(s.Value)
	switch s.Key {
	case "Name":
		f.names, f.link.Line = append(f.names, values...), s.Line
	case "MACAddress", "PermanentMACAddress":
		for _, text := range values {
			f.macs = append(f.macs, NormalMAC(text))
		}
		if f.link.Line == 0 {
			f.link.Line = s.Line
		}
	case "Type":
		f.ethernet = slices.Contains(values, "ether")
		f.link.Virtual = f.link.Virtual || !f.ethernet
		if f.link.Line == 0 {
			f.link.Line = s.Line
		}
	case "Kind":
		f.link.Virtual = f.link.Virtual || !strings.HasPrefix(s.Value, "!")
	default:
		f.link.Unclear = true
	}
}

// set reads a line of another section.
func (f *networkFile) set(s sectionLine) {
	l := &f.link
	no := strings.EqualFold(s.Value, "no") || strings.EqualFold(s.Value, "false")
	yes := strings.EqualFold(s.Value, "yes") || strings.EqualFold(s.Value, "true")
	switch s.Section + "." + s.Key {
	case "Network.DHCP":
		l.DHCP = !no
	case "Network.Address", "Address.Address":
		if prefix, ok := ParsePrefix(s.Value, ""); ok {
			l.Addresses = append(l.Addresses, prefix)
		}
	case "Network.Gateway":
		if a, err := netip.ParseAddr(s.Value); err == nil {
			l.Gateways = append(l.Gateways, NetworkGateway{Address: a, Line: s.Line})
		}
	case "Route.Gateway":
		f.via.Address, _ = netip.ParseAddr(s.Value)
		f.via.Line = s.Line
	case "Route.GatewayOnLink", "Route.GatewayOnlink":
		f.via.OnLink = yes
	case "Route.Destination":
		f.elsewhere = s.Value != "0.0.0.0/0" && s.Value != "::/0"
	case "Link.RequiredForOnline":
		l.Optional = no
	case "Link.Unmanaged":
		l.hold(yes, s)
	case "Link.ActivationPolicy":
		l.hold(s.Value == "manual" || s.Value == "down" || s.Value == "always-down", s)
	}
}

// hold notes a setting that keeps an interface from coming up.
func (l *NetworkLink) hold(down bool, s sectionLine) {
	if down {
		l.Active, l.HeldBy = false, &NetworkProblem{Line: s.Line, Text: s.Key + "=" + s.Value}
	}
}
