package system

import (
	"encoding/xml"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// firewallRules are about filters of packets that drop connections to sshd.
func firewallRules() []diagnose.Rule {
	return []diagnose.Rule{{IDs: []string{"firewall-blocks-ssh"}, Files: true, Look: findFirewalls}}
}

func findFirewalls(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	if sshdProgram(tree) == "" {
		return nil
	}
	sshd := config.ReadSSHDConfig(tree)
	if sshd.Partial {
		return nil
	}
	ports := sshPorts(tree, sshd)
	var out []diagnose.Finding
	for _, look := range []func(*diagnose.Tree, []int) *config.ClosedFirewall{closedNftables, closedIptables, closedUFW, closedFirewalld} {
		f := look(tree, ports)
		if f == nil {
			continue
		}
		finding := diagnose.Finding{
			ID: "firewall-blocks-ssh", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.8,
			Title:    fmt.Sprintf("The firewall %s drops what comes in, by %s, and lets nothing through to port %d of sshd.", f.Name, place(f.File, f.Line), ports[0]),
			Evidence: []diagnose.Evidence{config.FileEvidence(f.File, f.Line, f.Text)},
			Repair: mayLose(repairFiles(fmt.Sprintf("Add one rule that accepts connections to TCP port %d.", ports[0]), config.FirstText(f.Repair, f.File)),
				fmt.Sprintf("The port %d is open to every network. Someone may have closed it on purpose.", ports[0])),
			ByHand: "Ask who is responsible for the firewall before a port is opened.",
		}
		if f.ByHand != "" {
			finding.Repair, finding.ByHand = nil, f.ByHand
		}
		out = append(out, finding)
	}
	return out
}

// sshPorts are the ports of sshd; those of its socket where systemd listens in its place.
func sshPorts(tree *diagnose.Tree, sshd *config.SSHDConfig) []int {
	ports := sshd.Ports()
	for _, name := range []string{"ssh.socket", "sshd.socket"} {
		if config.ManagerOf(tree) != config.SystemdManager || !config.UnitEnabled(tree, name) {
			continue
		}
		lines := tree.Lines(config.UnitFile(tree, name))
		for _, drop := range tree.Match("/etc/systemd/system/"+name+".d", "*.conf") {
			lines = append(lines, tree.Lines(drop)...)
		}
		for _, l := range config.UnitSettings(lines) {
			at := strings.LastIndexByte(l.Value, ':')
			if n, err := strconv.Atoi(l.Value[at+1:]); l.Key == "ListenStream" && err == nil {
				ports = append(ports, n)
			}
		}
	}
	return ports
}

// closedNftables looks at /etc/nftables.conf where its unit is enabled.
func closedNftables(tree *diagnose.Tree, ports []int) *config.ClosedFirewall {
	if on, _ := config.ServiceEnabled(tree, "nftables"); !on {
		return nil
	}
	for _, file := range []string{"/etc/nftables.conf", "/etc/sysconfig/nftables.conf", "/etc/nftables.nft"} {
		if tree.Exists(file) {
			return config.ParseNftables(tree.Lines(file), file, ports)
		}
	}
	return nil
}

// closedIptables looks at the rules that iptables-persistent or RHEL's service loads.
func closedIptables(tree *diagnose.Tree, ports []int) *config.ClosedFirewall {
	for _, place := range []struct{ file, service string }{{"/etc/iptables/rules.v4", "netfilter-persistent"}, {"/etc/sysconfig/iptables", "iptables"}, {"/etc/iptables/iptables.rules", "iptables"}, {"/etc/iptables/rules-save", "iptables"}} {
		if on, _ := config.ServiceEnabled(tree, place.service); on && tree.Exists(place.file) {
			if f := config.ParseIptables(tree.Lines(place.file), place.file, ports); f != nil {
				return f
			}
		}
	}
	return nil
}

// closedUFW looks at ufw where it is enabled.
func closedUFW(tree *diagnose.Tree, ports []int) *config.ClosedFirewall {
	enabled, _ := config.LastSetting(config.ShellSettings(tree.Lines("/etc/ufw/ufw.conf")), "ENABLED")
	policy, _ := config.LastSetting(config.ShellSettings(tree.Lines("/etc/default/ufw")), "DEFAULT_INPUT_POLICY")
	if on, _ := config.ServiceEnabled(tree, "ufw"); !on || !strings.EqualFold(enabled.Value, "yes") || policy.Line == 0 {
		return nil
	}
	file := config.FirstExisting(tree, "/etc/ufw/user.rules", "/lib/ufw/user.rules", "/var/lib/ufw/user.rules")
	if file == "" {
		return nil
	}
	if strings.EqualFold(policy.Value, "ACCEPT") {
		lines := tree.Lines(file)
		if line := config.UFWRefuses(lines, ports); line > 0 {
			return &config.ClosedFirewall{Name: "ufw", File: file, Line: line, Text: lines[line-1], ByHand: "Ask who is responsible for the firewall; then remove the rule with ufw delete."}
		}
		return nil
	}
	if config.ParseUFW(tree.Lines(file), ports) {
		return nil
	}
	return &config.ClosedFirewall{Name: "ufw", File: "/etc/default/ufw", Line: policy.Line, Text: "DEFAULT_INPUT_POLICY=" + policy.Value, Repair: file}
}

// firewalldZone is a zone of firewalld as its file says.
type firewalldZone struct {
	Target   string `xml:"target,attr"`
	Services []struct {
		Name string `xml:"name,attr"`
	} `xml:"service"`
	Ports []struct {
		Port     string `xml:"port,attr"`
		Protocol string `xml:"protocol,attr"`
	} `xml:"port"`
	Rules []struct{} `xml:"rule"`
	Other []struct{} `xml:"forward-port"`
}

// closedFirewalld looks at firewalld's zones where its unit is enabled.
func closedFirewalld(tree *diagnose.Tree, ports []int) *config.ClosedFirewall {
	if on, _ := config.ServiceEnabled(tree, "firewalld"); !on {
		return nil
	}
	zone := "public"
	for _, line := range tree.Lines("/etc/firewalld/firewalld.conf") {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "DefaultZone="); found {
			zone = strings.TrimSpace(value)
		}
	}
	if strings.Contains(zone, "/") || len(tree.Match("/etc/firewalld/policies", "*.xml")) > 0 || tree.Exists("/etc/firewalld/direct.xml") {
		return nil
	}
	// Interfaces may be bound to any zone that somebody changed, so all of them have to be closed.
	files := tree.Match("/etc/firewalld/zones", "*.xml")
	own := path.Join("/etc/firewalld/zones", zone+".xml")
	if !slices.Contains(files, own) {
		if slices.Contains([]string{"drop", "block"}, zone) && len(files) == 0 { // these two let in no service, unless a file changes them
			return &config.ClosedFirewall{Name: "firewalld", File: "/etc/firewalld/firewalld.conf", Text: "DefaultZone=" + zone + ", a zone that lets no service in",
				ByHand: "Ask who is responsible for the firewall; then firewall-offline-cmd --zone=" + zone + " --add-service=ssh lets ssh in."}
		}
		vendor := config.FirstExisting(tree, "/usr/lib/firewalld/zones/"+zone+".xml", "/usr/share/firewalld/zones/"+zone+".xml")
		if vendor == "" {
			return nil
		}
		files, own = append(files, vendor), vendor
	}
	for _, file := range files[:min(len(files), 100)] {
		text, err := tree.Read(file)
		if err != nil || len(text) > config.MaxYAML || firewalldLetsIn(tree, text, ports) {
			return nil
		}
	}
	return &config.ClosedFirewall{Name: "firewalld", File: own, Text: "the zone " + zone + " has neither the service ssh nor the port", Repair: path.Join("/etc/firewalld/zones", zone+".xml")}
}

// firewalldLetsIn says whether a zone may let connections to the ports through.
func firewalldLetsIn(tree *diagnose.Tree, text []byte, ports []int) bool {
	var zone firewalldZone
	if xml.Unmarshal(text, &zone) != nil || zone.Target == "ACCEPT" || len(zone.Rules) > 0 || len(zone.Other) > 0 {
		return true
	}
	for _, s := range zone.Services {
		own := "/etc/firewalld/services/" + path.Base(s.Name) + ".xml"
		if tree.Exists(own) || (s.Name == "ssh" && slices.Contains(ports, 22)) {
			return true
		}
		if s.Name != "ssh" && strings.Contains(s.Name, "ssh") {
			return true
		}
	}
	for _, p := range zone.Ports {
		if holds, sure := config.NamesPort(p.Port, ports); p.Protocol != "udp" && (holds || !sure) {
			return true
		}
	}
	return false
}
