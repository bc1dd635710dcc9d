package config

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v2"

	"salvor/diagnose"
)

// Bounds of a YAML file.
const (
	MaxYAML        = 256 << 10 // bytes
	MaxNetplanKeys = 1000      // keys whose line is looked up
)

// ReadNetplan reads the configuration of netplan; nil where it is not installed or has no file.
func ReadNetplan(tree *diagnose.Tree) *NetworkManager {
	if FirstExisting(tree, "/usr/sbin/netplan", "/usr/lib/systemd/system-generators/netplan", "/lib/systemd/system-generators/netplan", "/usr/lib/netplan/generate", "/usr/libexec/netplan/generate") == "" {
		return nil
	}
	files := map[string]string{} // by base name: those of the administrator win
	for _, folder := range []string{"/usr/lib/netplan", "/lib/netplan", "/etc/netplan"} {
		for _, file := range tree.Match(folder, "*.yaml") {
			files[path.Base(file)] = file
		}
	}
	if len(files) == 0 {
		return nil
	}
	p := &Netplan{NetworkManager: NetworkManager{Name: "netplan", Unit: "systemd-networkd.service", Enabled: true}, Merged: map[string]map[string]*NetplanLink{}}
	size := 0
	for _, base := range slices.Sorted(maps.Keys(files))[:min(len(files), MaxNetworkFiles)] {
		text, err := tree.Read(files[base])
		if size += len(text); err != nil || size > MaxYAML {
			p.Partial = true
			continue
		}
		p.Parse(files[base], string(text))
	}
	p.finish()
	if p.renderer == "NetworkManager" {
		p.Unit = "NetworkManager.service"
	}
	p.Enabled = UnitMask(tree, p.Unit) == ""
	return &p.NetworkManager
}

// Netplan is what the files of netplan say together.
type Netplan struct {
	NetworkManager
	renderer string
	Merged   map[string]map[string]*NetplanLink // kind, id
}

type NetplanLink struct {
	NetworkLink
	id       string
	settings map[string]any
	members  []string
	// activation is the line that sets activation-mode.
	activation NetworkProblem
}

var yamlLine = regexp.MustCompile(`line ([0-9]+)`)

// netplanKinds are the keys below network: that hold interfaces.
var netplanKinds = strings.Fields("ethernets wifis bonds bridges vlans vrfs tunnels dummy-devices virtual-ethernets modems nm-devices")

// NetplanKeys are the keys of an interface of hardware.
var NetplanKeys = strings.Fields(`match set-name wakeonlan emit-lldp receive-checksum-offload transmit-checksum-offload tcp-segmentation-offload tcp6-segmentation-offload
	generic-segmentation-offload generic-receive-offload large-receive-offload openvswitch renderer dhcp4 dhcp6 ipv6-mtu ipv6-privacy link-local ignore-carrier critical dhcp-identifier
	dhcp4-overrides dhcp6-overrides accept-ra addresses ipv6-address-generation ipv6-address-token gateway4 gateway6 nameservers macaddress mtu optional
	optional-addresses activation-mode routes routing-policy neigh-suppress link virtual-function-count embedded-switch-mode delay-virtual-functions-rebind infiniband-mode
	auth networkmanager ra-overrides regulatory-domain hairpin port-mac-learning`)

func (p *Netplan) Parse(file, text string) {
	refuse := func(line int, confidence float64, format string, args ...any) {
		p.Problems = append(p.Problems, NetworkProblem{file, line, fmt.Sprintf(format, args...), confidence})
	}
	if strings.TrimSpace(text) == "" {
		return
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if blank := line[:len(line)-len(strings.TrimLeft(line, " \t"))]; strings.Contains(blank, "\t") && strings.TrimSpace(line) != "" && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			refuse(i+1, 0.95, "a tab stands before the text, which YAML refuses")
			return
		}
	}
	var document map[string]any
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		refuse(LineOfYAMLError(err), 0.95, "it is no valid YAML")
		return
	}
	top, ok := document["network"].(map[any]any)
	if !ok {
		if document["network"] != nil || len(document) > 0 {
			refuse(0, 0.85, "it has no mapping network:")
		}
		return
	}
	if r, ok := top["renderer"].(string); ok {
		p.renderer = r
	}
	keys := 0
	isFull := func() bool {
		keys++
		p.Partial = p.Partial || keys > MaxNetplanKeys
		return keys > MaxNetplanKeys
	}
	for key, value := range top {
		if isFull() {
			return
		}
		kind, _ := key.(string)
		if !slices.Contains(netplanKinds, kind) {
			if near := Nearest(kind, netplanKinds); near != "" {
				refuse(lineOfKey(lines, kind), 0.93, "netplan knows no key %q; %s is near", kind, near)
			}
			continue
		}
		interfaces, _ := value.(map[any]any)
		for id, settings := range interfaces {
			if isFull() {
				return
			}
			name := fmt.Sprint(id)
			if kind == "ethernets" && name == "renderer" {
				continue
			}
			values, _ := settings.(map[any]any)
			p.merge(kind, name, file, lineOfKey(lines, name), values)
			if mode := values["activation-mode"]; mode != nil {
				if mode == false { // YAML takes the word off for it
					mode = "off"
				}
				p.Merged[kind][name].activation = NetworkProblem{File: file, Line: lineOfKey(lines, "activation-mode"), Text: fmt.Sprintf("activation-mode: %v", mode)}
			}
			if kind != "ethernets" {
				continue
			}
			for key := range values {
				if isFull() {
					return
				}
				if k := fmt.Sprint(key); !slices.Contains(NetplanKeys, k) {
					if near := Nearest(k, NetplanKeys); near != "" {
						refuse(lineOfKey(lines, k), 0.93, "netplan knows no key %q; %s is near", k, near)
					}
				}
			}
		}
	}
}

// LineOfYAMLError is the line that an error of the YAML library names; 0 without one. Its text may quote the file and is not shown.
func LineOfYAMLError(err error) int {
	line := 0
	if found := yamlLine.FindStringSubmatch(err.Error()); found != nil {
		line, _ = strconv.Atoi(found[1])
	}
	return line
}

// Nearest returns a known key that was probably meant, or nothing.
func Nearest(key string, known []string) string {
	if len(key) > 64 {
		return ""
	}
	for _, k := range known {
		if len(k) > 3 && editDistance(strings.ToLower(key), k) <= 1 {
			return k
		}
	}
	return ""
}

// lineOfKey returns the first line on which a key stands; 0 where none does.
func lineOfKey(lines []string, key string) int {
	for i, line := range lines {
		line = strings.TrimLeft(line, " \"'-{")
		if rest, found := strings.CutPrefix(line, key); found && strings.HasPrefix(strings.TrimLeft(rest, "\"' "), ":") {
			return i + 1
		}
	}
	return 0
}

func (p *Netplan) merge(kind, id, file string, line int, values map[any]any) {
	if p.Merged[kind] == nil {
		p.Merged[kind] = map[string]*NetplanLink{}
	}
	l := p.Merged[kind][id]
	if l == nil {
		l = &NetplanLink{id: id, NetworkLink: NetworkLink{File: file, Line: line}, settings: map[string]any{}}
		p.Merged[kind][id] = l
	}
	for key, value := range values {
		l.settings[fmt.Sprint(key)] = value
	}
}

// finish turns the merged settings into links.
func (p *Netplan) finish() {
	ids := map[string]bool{}
	for _, kind := range netplanKinds {
		for id := range p.Merged[kind] {
			ids[id] = true
		}
	}
	for _, kind := range netplanKinds {
		for _, id := range slices.Sorted(maps.Keys(p.Merged[kind])) {
			l := p.Merged[kind][id]
			l.Active, l.Virtual = true, kind != "ethernets" && kind != "wifis" && kind != "modems" && kind != "nm-devices"
			l.read()
			switch kind {
			case "ethernets", "wifis":
				l.readMatch()
			case "modems", "nm-devices":
				l.Unclear = true
			default:
				l.Name = l.id
				for _, member := range l.members {
					if !ids[member] {
						p.Problems = append(p.Problems, NetworkProblem{l.File, l.Line, fmt.Sprintf("%s refers to the interface %s, which no file defines", l.id, member), 0.9})
					}
				}
			}
			p.Links = append(p.Links, l.NetworkLink)
		}
	}
}

func (l *NetplanLink) readMatch() {
	l.Name = l.id
	match, ok := l.settings["match"].(map[any]any)
	if !ok {
		return
	}
	l.Name = ""
	for key, value := range match {
		switch text := fmt.Sprint(value); fmt.Sprint(key) {
		case "macaddress":
			l.MAC = NormalMAC(text)
			l.Unclear = l.Unclear || l.MAC == ""
		case "name":
			l.Name = text
		default:
			l.Unclear = true
		}
	}
	if l.Name == "" && l.MAC == "" {
		l.Unclear = true
	}
	if name, ok := l.settings["set-name"].(string); ok && l.MAC != "" && l.Name == "" {
		l.Name = name
	}
}

func (l *NetplanLink) read() {
	isTrue := func(key string) bool {
		v := strings.ToLower(fmt.Sprint(l.settings[key]))
		return v == "true" || v == "yes" || v == "on"
	}
	l.DHCP = isTrue("dhcp4") || isTrue("dhcp6") || isTrue("accept-ra")
	l.Optional = isTrue("optional")
	if mode := fmt.Sprint(l.settings["activation-mode"]); mode == "manual" || mode == "off" || mode == "false" { // YAML takes off for false
		l.Active, l.HeldBy = false, &l.activation
	}
	list := func(key string) []any {
		out, _ := l.settings[key].([]any)
		return out[:min(len(out), 256)]
	}
	for _, a := range list("addresses") {
		text := fmt.Sprint(a)
		if m, ok := a.(map[any]any); ok {
			for key := range m {
				text = fmt.Sprint(key)
			}
		}
		if prefix, ok := ParsePrefix(text, ""); ok {
			l.Addresses = append(l.Addresses, prefix)
		}
	}
	for _, key := range []string{"gateway4", "gateway6"} {
		if a, err := netip.ParseAddr(fmt.Sprint(l.settings[key])); err == nil {
			l.Gateways = append(l.Gateways, NetworkGateway{Address: a})
		}
	}
	for _, r := range list("routes") {
		route, _ := r.(map[any]any)
		to, via := fmt.Sprint(route["to"]), fmt.Sprint(route["via"])
		if a, err := netip.ParseAddr(via); err == nil && (to == "default" || to == "0.0.0.0/0" || to == "::/0") {
			onLink := strings.ToLower(fmt.Sprint(route["on-link"])) == "true"
			l.Gateways = append(l.Gateways, NetworkGateway{Address: a, OnLink: onLink})
		} else if route["scope"] != nil || via == "<nil>" {
			for i := range l.Gateways { // a route to the gateway itself
				l.Gateways[i].OnLink = true
			}
		}
	}
	for _, m := range list("interfaces") {
		l.members = append(l.members, fmt.Sprint(m))
	}
	if link, ok := l.settings["link"].(string); ok {
		l.members = append(l.members, link)
	}
}
