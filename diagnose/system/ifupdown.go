package system

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
)

const interfacesPath = "/etc/network/interfaces"

// ifupdown collects what /etc/network/interfaces and its included files say.
type ifupdown struct {
	networkManager
	tree *diagnose.Tree
	// read and sourced are the files and patterns that have been followed.
	read, sourced map[string]bool
	auto          map[string]bool // interfaces of auto and allow-auto
	hotplug       map[string]bool
	stanza        *networkLink // that the next option belongs to
	begun         bool         // a stanza of any kind
	strict        bool         // the syntax is that of Debian's ifupdown
	mask          string
	static        bool
	rawRoute      bool // a command adds routes or addresses
}

// readIfupdown reads the configuration of ifupdown; nil where it is not installed.
func readIfupdown(tree *diagnose.Tree) *networkManager {
	busybox := tree.Exists("/etc/init.d/networking") && tree.Exists("/etc/runlevels")
	if firstExisting(tree, "/usr/sbin/ifup", "/sbin/ifup") == "" && !busybox || !tree.Exists(interfacesPath) {
		return nil
	}
	if tree.Exists("/etc/sysconfig/network-scripts") || tree.Exists("/etc/sysconfig/network/config") { // ifup of RHEL and SUSE
		return nil
	}
	p := &ifupdown{tree: tree, read: map[string]bool{}, sourced: map[string]bool{}, auto: map[string]bool{}, hotplug: map[string]bool{}, networkManager: networkManager{name: "ifupdown", unit: "networking.service"}}
	p.strict = firstExisting(tree, "/usr/share/ifupdown2", "/etc/network/ifupdown2", "/usr/share/ifupdown-ng", "/usr/libexec/ifupdown-ng", "/usr/lib/ifupdown-ng") == "" && !busybox
	p.enabled, _ = serviceEnabled(tree, "networking")
	p.include(interfacesPath)
	for i := range p.links {
		l := &p.links[i]
		l.active = p.auto[l.name] || p.hotplug[l.name]
		l.optional = !p.auto[l.name]
	}
	// Interfaces that appear are configured by a rule of udev, whether or not the service is enabled.
	hotplug := firstExisting(tree, "/usr/lib/udev/ifupdown-hotplug", "/lib/udev/ifupdown-hotplug") != "" && len(p.hotplug) > 0
	p.enabled = p.enabled || hotplug && unitMask(tree, "networking.service") == ""
	return &p.networkManager
}

func (p *ifupdown) include(file string) {
	if p.read[file] {
		return // ifupdown reads the file again, and finds nothing new there
	}
	if len(p.read) == maxNetworkFiles {
		p.partial = true
		return
	}
	p.read[file] = true
	lines := p.tree.Lines(file)
	if !p.tree.Exists(file) {
		return
	}
	for i := 0; i < len(lines); i++ {
		line, at := strings.TrimSpace(lines[i]), i+1
		if strings.HasPrefix(line, "#") {
			continue
		}
		line, i = joinLines(lines, i, strings.TrimSpace)
		if fields := strings.Fields(line); len(fields) > 0 {
			p.line(file, at, fields)
		}
	}
	p.endStanza()
}

func (p *ifupdown) endStanza() {
	if l := p.stanza; l != nil {
		if p.static && len(l.addresses) == 0 && !l.virtual && p.strict {
			p.problems = append(p.problems, networkProblem{l.file, l.line, "the static interface " + l.name + " has no address", 0.85})
		}
		for i := range l.gateways {
			l.gateways[i].onLink = l.gateways[i].onLink || p.rawRoute
		}
		p.links = append(p.links, *l)
	}
	p.stanza, p.mask, p.static, p.rawRoute = nil, "", false, false
}

func (p *ifupdown) refuse(file string, line int, confidence float64, text string) {
	if p.strict {
		p.problems = append(p.problems, networkProblem{file, line, text, confidence})
	}
}

func (p *ifupdown) line(file string, at int, fields []string) {
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

// unreadStanza is an interface of the machine that a file of /etc/network/interfaces.d configures.
type unreadStanza struct {
	name, file string
	line       int
}

// SourceLine is the line that /etc/network/interfaces lacks where it reads no file of /etc/network/interfaces.d, and one configures an interface of
// the machine; empty where there is no such file.
func SourceLine(s *diagnose.System) string {
	line, _ := findUnreadStanza(s)
	return line
}

// findUnreadStanza is SourceLine with the stanza that is not read.
func findUnreadStanza(s *diagnose.System) (line string, stanza unreadStanza) {
	const folder = "/etc/network/interfaces.d"
	m := readIfupdown(s.Files)
	if m == nil || !m.enabled || m.partial {
		return "", stanza
	}
	n := &network{managers: []networkManager{*m}}
	p := &ifupdown{tree: s.Files, read: map[string]bool{}, sourced: map[string]bool{}, auto: map[string]bool{}, hotplug: map[string]bool{}}
	for _, file := range s.Files.Match(folder, "*") {
		if plainFile.MatchString(path.Base(file)) {
			p.include(file)
		}
	}
	predictable := predictableNames(s.Files)
	for i := range p.links[:min(len(p.links), maxNetworkLinks)] {
		l := &p.links[i]
		if l.virtual || l.name == "lo" || !p.auto[l.name] && !p.hotplug[l.name] || !l.dhcp && len(l.addresses) == 0 {
			continue
		}
		for _, nic := range s.NICs {
			if l.matches(nic.MAC, namesOf(s, n, nic, predictable)) {
				return "source " + folder + "/*", unreadStanza{l.name, l.file, l.line}
			}
		}
	}
	return "", stanza
}

var plainFile = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func (p *ifupdown) source(keyword string, patterns []string) {
	for _, pattern := range patterns {
		if !path.IsAbs(pattern) {
			pattern = path.Join("/etc/network", pattern)
		}
		// A source may name each file again. The bound comes before the folder is listed, because a list costs more than a file.
		if key := keyword + " " + pattern; p.sourced[key] || len(p.sourced) == maxNetworkFiles {
			p.partial = p.partial || !p.sourced[key]
			continue
		} else {
			p.sourced[key] = true
		}
		folder, name := path.Split(pattern)
		if strings.ContainsAny(folder, "*?[$`{") || strings.ContainsAny(name, "$`{") {
			p.partial = true
			continue
		}
		found := []string{pattern}
		if info, err := p.tree.Stat(pattern); err == nil && info.IsDir() {
			found = p.tree.Match(pattern, "*")
		} else if strings.ContainsAny(name, "*?[") {
			found = p.tree.Match(folder, name)
		}
		for _, file := range found {
			if info, err := p.tree.Stat(file); err != nil || !info.Mode().IsRegular() || strings.HasPrefix(path.Base(file), ".") {
				continue
			}
			if keyword == "source" || plainFile.MatchString(path.Base(file)) {
				p.include(file)
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

func (p *ifupdown) iface(file string, at int, fields []string) {
	if len(fields) == 0 || (len(fields) < 3 && p.strict && !slices.Contains(fields, "inherits")) {
		p.refuse(file, at, 0.93, "the line has no family or no method")
		return
	}
	l := &networkLink{name: fields[0], file: file, line: at, virtual: isVirtualName(fields[0])}
	p.stanza = l
	if base, _, isVLAN := strings.Cut(fields[0], "."); isVLAN && !isVirtualName(base) {
		p.links = append(p.links, networkLink{name: base, lower: true, file: file, line: at})
	}
	if slices.Contains(fields[1:], "inherits") { // the family, the method and the options may be those of another stanza
		p.partial = true
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
	l.dhcp = method == "dhcp" || method == "auto" || method == "bootp"
	l.asksServer = method == "dhcp"
	p.static = method == "static"
	l.virtual = l.virtual || slices.Contains([]string{"tunnel", "ppp", "wvdial", "v4tunnel", "6to4"}, method)
}

func (p *ifupdown) option(file string, at int, fields []string) {
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
		if prefix, ok := parsePrefix(value, p.mask); ok {
			l.addresses = append(l.addresses, prefix)
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
			l.addresses = append(l.addresses, netip.PrefixFrom(a, bits))
		} else {
			p.static = false
			p.refuse(file, at, 0.7, fmt.Sprintf("%q is no address", value))
		}
	case key == "netmask":
		p.mask = value
		for i, a := range l.addresses {
			if prefix, ok := parsePrefix(a.Addr().String(), value); ok {
				l.addresses[i] = prefix
			}
		}
	case key == "gateway":
		if a, err := netip.ParseAddr(value); err == nil {
			l.gateways = append(l.gateways, networkGateway{address: a, line: at})
		}
	case key == "pointopoint" || key == "scope":
		p.rawRoute = true
	case key == "bond-slaves" || key == "bridge-ports":
		l.virtual = true
		for _, name := range fields[1:] {
			if name == "regex" || name == "all" || name == "none" {
				break
			}
			if !isVirtualName(name) {
				p.links = append(p.links, networkLink{name: name, lower: true, file: file, line: at})
			}
		}
	case key == "vlan-raw-device":
		l.virtual = true
		if value != "" && !isVirtualName(value) {
			p.links = append(p.links, networkLink{name: value, lower: true, file: file, line: at})
		}
	case strings.HasPrefix(key, "bond-") && key != "bond-master", strings.HasPrefix(key, "bridge-"), strings.HasPrefix(key, "vlan-"), strings.HasPrefix(key, "ovs-"),
		strings.HasPrefix(key, "wireguard-"), strings.HasPrefix(key, "batman-"), key == "link-type", strings.HasPrefix(key, "vxlan-"), strings.HasPrefix(key, "tunnel-"):
		l.virtual = true
	case key == "pre-up" || key == "up" || key == "post-up" || key == "use":
		command := strings.Join(fields, " ")
		for _, makes := range []string{"link add", "brctl addbr", "vconfig", "tunctl", "openvpn", "ip tunnel", "tuntap", "iw dev", "modprobe"} {
			l.virtual = l.virtual || strings.Contains(command, makes)
		}
		p.rawRoute = p.rawRoute || strings.Contains(command, "route") || strings.Contains(command, "addr")
	}
}
