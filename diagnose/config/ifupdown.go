package config

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
)

const InterfacesPath = "/etc/network/interfaces"

// Ifupdown collects what /etc/network/interfaces and its included files say.
type Ifupdown struct {
	NetworkManager
	Tree *diagnose.Tree
	// Read and sourced are the files and patterns that have been followed.
	Read, Sourced map[string]bool
	auto          map[string]bool // interfaces of auto and allow-auto
	hotplug       map[string]bool
	stanza        *NetworkLink // that the next option belongs to
	begun         bool         // a stanza of any kind
	strict        bool         // the syntax is that of Debian's ifupdown
	mask          string
	static        bool
	rawRoute      bool // a command adds routes or addresses
}

// HasOtherIfup says whether the system has ifupdown2 or ifupdown-ng, whose ifup is more lenient than that of Debian's ifupdown: it takes other
// words, and goes on where a hook fails.
func HasOtherIfup(tree *diagnose.Tree) bool {
	return FirstExisting(tree, "/usr/share/ifupdown2", "/etc/network/ifupdown2", "/usr/share/ifupdown-ng", "/usr/libexec/ifupdown-ng", "/usr/lib/ifupdown-ng") != ""
}

// ReadIfupdown reads the configuration of ifupdown; nil where it is not installed.
func ReadIfupdown(tree *diagnose.Tree) *NetworkManager {
	busybox := tree.Exists("/etc/init.d/networking") && tree.Exists("/etc/runlevels")
	if FirstExisting(tree, "/usr/sbin/ifup", "/sbin/ifup") == "" && UnitFile(tree, "networking.service") == "" && !busybox || !tree.Exists(InterfacesPath) {
		return nil
	}
	if tree.Exists("/etc/sysconfig/network-scripts") || tree.Exists("/etc/sysconfig/network/config") { // ifup of RHEL and SUSE
		return nil
	}
	p := &Ifupdown{Tree: tree, Read: map[string]bool{}, Sourced: map[string]bool{}, auto: map[string]bool{}, hotplug: map[string]bool{}, NetworkManager: NetworkManager{Name: "ifupdown", Unit: "networking.service"}}
	p.strict = !HasOtherIfup(tree) && !busybox
	p.Enabled, _ = ServiceEnabled(tree, "networking")
	p.Include(InterfacesPath)
	for i := range p.Links {
		l := &p.Links[i]
		l.Active = p.auto[l.Name] || p.hotplug[l.Name]
		l.Optional = !p.auto[l.Name]
	}
	// Interfaces that appear are configured by a rule of udev, whether or not the service is enabled.
	hotplug := FirstExisting(tree, "/usr/lib/udev/ifupdown-hotplug", "/lib/udev/ifupdown-hotplug") != "" && len(p.hotplug) > 0
	p.Enabled = p.Enabled || hotplug && UnitMask(tree, "networking.service") == ""
	return &p.NetworkManager
}

func (p *Ifupdown) Include(file string) {
	if p.Read[file] {
		return // ifupdown reads the file again, and finds nothing new there
	}
	if len(p.Read) == MaxNetworkFiles {
		p.Partial = true
		return
	}
	p.Read[file] = true
	lines := p.Tree.Lines(file)
	if !p.Tree.Exists(file) {
		return
	}
	for i := 0; i < len(lines); i++ {
		line, at := strings.TrimSpace(lines[i]), i+1
		if strings.HasPrefix(line, "#") {
			continue
		}
		line, i = JoinLines(lines, i, strings.TrimSpace)
		if fields := strings.Fields(line); len(fields) > 0 {
			p.line(file, at, fields)
		}
	}
	p.endStanza()
}

func (p *Ifupdown) endStanza() {
	if l := p.stanza; l != nil {
		if p.static && len(l.Addresses) == 0 && !l.Virtual && p.strict {
			p.Problems = append(p.Problems, NetworkProblem{l.File, l.Line, "the static interface " + l.Name + " has no address", 0.85})
		}
		for i := range l.Gateways {
			l.Gateways[i].OnLink = l.Gateways[i].OnLink || p.rawRoute
		}
		p.Links = append(p.Links, *l)
	}
	p.stanza, p.mask, p.static, p.rawRoute = nil, "", false, false
}

func (p *Ifupdown) refuse(file string, line int, confidence float64, text string) {
	if p.strict {
		p.Problems = append(p.Problems, NetworkProblem{file, line, text, confidence})
	}
}

func (p *Ifupdown) line(file string, at int, fields []string) {
	keyword := fields[0]
	switch {
	case keyword == "auto" || keyword == "allow-auto":
		p.endStanza()
		p.begun = false
		for _, name := range fields[1:] {
			p.auto[name] = true
		}
	case strings.HasPrefix(keyword, "allow-") || keyword == "no-auto-down" || keyword == "no-scripts":
		p.endStanza()
		p.begun = false
		for _, name := range fields[1:] {
			p.hotplug[name] = p.hotplug[name] || keyword == "allow-hotplug"
		}
	case keyword == "source" || keyword == "source-directory":
		p.endStanza()
		p.begun = false
		p.source(keyword, fields[1:])
	case keyword == "iface":
		p.endStanza()
		p.begun = true
		p.iface(file, at, fields[1:])
	case keyword == "mapping" || keyword == "template" || keyword == "rename":
		p.endStanza()
		p.begun = true
	case p.stanza != nil:
		p.option(file, at, fields)
	case !p.begun:
		p.refuse(file, at, 0.93, fmt.Sprintf("%q stands outside of an interface", keyword))
	}
}

// UnreadStanza is an interface of the machine that a file of /etc/network/interfaces.d configures.
type UnreadStanza struct {
	Name, File string
	Line       int
}

// SourceLine is the line that /etc/network/interfaces lacks where it reads no file of /etc/network/interfaces.d, and one configures an interface of
// the machine; empty where there is no such file.
func SourceLine(s *diagnose.System) string {
	line, _ := FindUnreadStanza(s)
	return line
}

// FindUnreadStanza is SourceLine with the stanza that is not read.
func FindUnreadStanza(s *diagnose.System) (line string, stanza UnreadStanza) {
	const folder = "/etc/network/interfaces.d"
	m := ReadIfupdown(s.Files)
	if m == nil || !m.Enabled || m.Partial {
		return "", stanza
	}
	n := &Network{Managers: []NetworkManager{*m}}
	p := &Ifupdown{Tree: s.Files, Read: map[string]bool{}, Sourced: map[string]bool{}, auto: map[string]bool{}, hotplug: map[string]bool{}}
	for _, file := range s.Files.Match(folder, "*") {
		if plainFile.MatchString(path.Base(file)) {
			p.Include(file)
		}
	}
	predictable := PredictableNames(s.Files)
	for i := range p.Links[:min(len(p.Links), MaxNetworkLinks)] {
		l := &p.Links[i]
		if l.Virtual || l.Name == "lo" || !p.auto[l.Name] && !p.hotplug[l.Name] || !l.DHCP && len(l.Addresses) == 0 {
			continue
		}
		for _, nic := range s.NICs {
			if l.Matches(nic.MAC, NamesOf(s, n, nic, predictable)) {
				return "source " + folder + "/*", UnreadStanza{l.Name, l.File, l.Line}
			}
		}
	}
	return "", stanza
}

// StanzasOf are the interfaces of /etc/network/interfaces and its included files, whether or not ifupdown is installed.
func StanzasOf(tree *diagnose.Tree) []NetworkLink {
	p := &Ifupdown{Tree: tree, Read: map[string]bool{}, Sourced: map[string]bool{}, auto: map[string]bool{}, hotplug: map[string]bool{}}
	p.Include(InterfacesPath)
	return p.Links[:min(len(p.Links), MaxNetworkLinks)]
}

var plainFile = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func (p *Ifupdown) source(keyword string, patterns []string) {
	for _, pattern := range patterns {
		if !path.IsAbs(pattern) {
			pattern = path.Join("/etc/network", pattern)
		}
		// A source may name each file again. The bound comes before the folder is listed, because a list costs more than a file.
		if key := keyword + " " + pattern; p.Sourced[key] || len(p.Sourced) == MaxNetworkFiles {
			p.Partial = p.Partial || !p.Sourced[key]
			continue
		} else {
			p.Sourced[key] = true
		}
		folder, name := path.Split(pattern)
		if strings.ContainsAny(folder, "*?[$`{") || strings.ContainsAny(name, "$`{") {
			p.Partial = true
			continue
		}
		found := []string{pattern}
		if info, err := p.Tree.Stat(pattern); err == nil && info.IsDir() {
			found = p.Tree.Match(pattern, "*")
		} else if strings.ContainsAny(name, "*?[") {
			found = p.Tree.Match(folder, name)
		}
		for _, file := range found {
			if info, err := p.Tree.Stat(file); err != nil || !info.Mode().IsRegular() || strings.HasPrefix(path.Base(file), ".") {
				continue
			}
			if keyword == "source" || plainFile.MatchString(path.Base(file)) {
				p.Include(file)
			}
		}
	}
}

var (
	interfaceFamilies = strings.Fields("inet inet6 ipx can ax25 x25 wpan meta link")
	interfaceMethods  = map[string][]string{
		"inet":  strings.Fields("loopback static manual dhcp bootp tunnel ppp wvdial ipv4ll none"),
		"inet6": strings.Fields("auto loopback static manual dhcp v4tunnel 6to4 none tunnel"),
	}
)

func (p *Ifupdown) iface(file string, at int, fields []string) {
	if len(fields) == 0 || (len(fields) < 3 && p.strict && !slices.Contains(fields, "inherits")) {
		p.refuse(file, at, 0.93, "the line has no family or no method")
		return
	}
	l := &NetworkLink{Name: fields[0], File: file, Line: at, Virtual: IsVirtualName(fields[0])}
	p.stanza = l
	if base, _, isVLAN := strings.Cut(fields[0], "."); isVLAN && !IsVirtualName(base) {
		p.Links = append(p.Links, NetworkLink{Name: base, Lower: true, File: file, Line: at})
	}
	if slices.Contains(fields[1:], "inherits") { // the family, the method and the options may be those of another stanza
		p.Partial = true
		return
	}
	if len(fields) < 3 {
		return
	}
	family, method := fields[1], fields[2]
	if !slices.Contains(interfaceFamilies, family) {
		p.refuse(file, at, 0.93, fmt.Sprintf("%q is no family of addresses", family))
		return
	}
	if methods := interfaceMethods[family]; methods != nil && !slices.Contains(methods, method) {
		p.refuse(file, at, 0.93, fmt.Sprintf("%q is no method of %s", method, family))
		return
	}
	l.DHCP = method == "dhcp" || method == "auto" || method == "bootp"
	l.AsksServer = method == "dhcp"
	p.static = method == "static"
	l.Virtual = l.Virtual || slices.Contains([]string{"tunnel", "ppp", "wvdial", "v4tunnel", "6to4"}, method)
}

func (p *Ifupdown) option(file string, at int, fields []string) {
	if len(fields) == 1 && p.strict {
		p.static = p.static && fields[0] != "address" // one problem for one line
		p.refuse(file, at, 0.93, fmt.Sprintf("the option %q has no value", fields[0]))
		return
	}
	l, value := p.stanza, ""
	if len(fields) > 1 {
		value = fields[1]
	}
	switch key := strings.ReplaceAll(fields[0], "_", "-"); {
	case key == "address":
		if prefix, ok := ParsePrefix(value, p.mask); ok {
			l.Addresses = append(l.Addresses, prefix)
		} else if a, err := netip.ParseAddr(value); err == nil {
			bits := 8 // the class decides without a mask; the mask may follow
			switch {
			case a.Is6():
				bits = 64
			case a.As4()[0] >= 192:
				bits = 24
			case a.As4()[0] >= 128:
				bits = 16
			}
			l.Addresses = append(l.Addresses, netip.PrefixFrom(a, bits))
		} else {
			p.static = false
			p.refuse(file, at, 0.7, fmt.Sprintf("%q is no address", value))
		}
	case key == "netmask":
		p.mask = value
		for i, a := range l.Addresses {
			if prefix, ok := ParsePrefix(a.Addr().String(), value); ok {
				l.Addresses[i] = prefix
			}
		}
	case key == "gateway":
		if a, err := netip.ParseAddr(value); err == nil {
			l.Gateways = append(l.Gateways, NetworkGateway{Address: a, Line: at})
		}
	case key == "pointopoint" || key == "scope":
		p.rawRoute = true
	case key == "bond-slaves" || key == "bridge-ports":
		l.Virtual = true
		for _, name := range fields[1:] {
			if name == "regex" || name == "all" || name == "none" {
				break
			}
			if !IsVirtualName(name) {
				p.Links = append(p.Links, NetworkLink{Name: name, Lower: true, File: file, Line: at})
			}
		}
	case key == "vlan-raw-device":
		l.Virtual = true
		if value != "" && !IsVirtualName(value) {
			p.Links = append(p.Links, NetworkLink{Name: value, Lower: true, File: file, Line: at})
		}
	case strings.HasPrefix(key, "bond-") && key != "bond-master", strings.HasPrefix(key, "bridge-"), strings.HasPrefix(key, "vlan-"), strings.HasPrefix(key, "ovs-"),
		strings.HasPrefix(key, "wireguard-"), strings.HasPrefix(key, "batman-"), key == "link-type", strings.HasPrefix(key, "vxlan-"), strings.HasPrefix(key, "tunnel-"):
		l.Virtual = true
	case key == "pre-up" || key == "up" || key == "post-up" || key == "use":
		command := strings.Join(fields, " ")
		if key == "pre-up" && len(l.PreUp) < MaxSmallFiles {
			l.PreUp = append(l.PreUp, SettingLine{Value: strings.Join(fields[1:], " "), Line: at})
		}
		for _, makes := range []string{"link add", "brctl addbr", "vconfig", "tunctl", "openvpn", "ip tunnel", "tuntap", "iw dev", "modprobe"} {
			l.Virtual = l.Virtual || strings.Contains(command, makes)
		}
		p.rawRoute = p.rawRoute || strings.Contains(command, "route") || strings.Contains(command, "addr")
	}
}

// IsStanzaStart says whether a line of /etc/network/interfaces ends the stanza before it.
func IsStanzaStart(line string) bool {
	fields := strings.Fields(line)
	return len(fields) > 0 && (slices.Contains([]string{"auto", "iface", "mapping", "source", "source-directory", "template", "rename", "no-auto-down", "no-scripts"}, fields[0]) ||
		strings.HasPrefix(fields[0], "allow-"))
}

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
