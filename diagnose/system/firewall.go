package system

import (
	"encoding/xml"
	"fmt"
	"path"
	"regexp"
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
	for _, look := range []func(*diagnose.Tree, []int) *config.ClosedFirewall{closedNftables, closedIptables, closedUFW, closedFirewalld, closedByCommands} {
		f := look(tree, ports)
		if f == nil || slices.ContainsFunc(out, func(other diagnose.Finding) bool { return other.Evidence[0].Path == f.File }) {
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
		if f.Drops != "" {
			finding.Title = fmt.Sprintf("The firewall %s drops %s, by %s.", f.Name, f.Drops, place(f.File, f.Line))
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

// rulesFile is a file of rules that a command loads: nft -f FILE, or iptables-restore FILE.
var rulesFile = regexp.MustCompile(`(?:^|[\s;'"/-])(?:(nft)\s+(?:-[cnos]\s+)*-f\s+|iptables(?:-nft|-legacy)?-restore\s+(?:-[nw]\s+|--\w+\s+)*<?\s*)(/[^\s;'"]+)`)

// loadsRules is what a unit says that loads rules itself, or by a script.
var loadsRules = regexp.MustCompile(`nft|iptables|\.sh\b`)

// startedCommands are the command lines that a boot carries out for certain: those of enabled units, and those of an executable rc.local outside of blocks.
func startedCommands(tree *diagnose.Tree) (commands []string, scripts []string) {
	if config.ManagerOf(tree) != config.SystemdManager {
		return nil, nil
	}
	const local = "/etc/rc.local"
	if info, err := tree.Stat(local); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && config.UnitMask(tree, "rc-local.service") == "" {
		scripts = append(scripts, local)
	}
	for _, link := range startedUnits(tree) {
		unit := link.Unit
		text, err := tree.Read(config.UnitFile(tree, unit))
		if err != nil || !loadsRules.Match(text) {
			continue
		}
		lines := config.UnitLines(tree, unit)
		if hasCondition(lines) || len(settingList(lines, "Service", "ExecCondition")) > 0 {
			continue
		}
		for _, key := range []string{"ExecStartPre", "ExecStart", "ExecStartPost"} {
			for _, l := range settingList(lines, "Service", key) {
				commands = append(commands, l.Value)
				if words := config.ParseCommand(l, nil).Words; len(words) == 1 && strings.HasSuffix(words[0], ".sh") {
					scripts = append(scripts, words[0])
				}
			}
		}
	}
	return commands, scripts
}

// hasBlocks says whether a script has lines that a condition or a function may keep from running, or that end the script.
func hasBlocks(lines []string) bool {
	return slices.ContainsFunc(lines, func(line string) bool {
		fields := strings.Fields(line)
		return len(fields) > 0 && (slices.Contains([]string{"if", "for", "while", "until", "case", "exec", "return", "function"}, fields[0]) || strings.Contains(line, "()") ||
			!strings.HasPrefix(fields[0], "#") && (strings.Contains(line, "&&") || strings.Contains(line, "||")))
	})
}

// maxRuleFiles bounds the files of rules that are read because a command loads them.
const maxRuleFiles = 16

// closedByCommands looks at rules that enabled units or rc.local load, from files or by commands.
func closedByCommands(tree *diagnose.Tree, ports []int) *config.ClosedFirewall {
	commands, scripts := startedCommands(tree)
	for _, script := range scripts[:min(len(scripts), 16)] {
		lines := tree.Lines(script)
		if hasBlocks(lines) {
			continue
		}
		for _, f := range []*config.ClosedFirewall{config.ParseNftables(lines, script, ports), config.ParseIptablesScript(lines, script, ports)} {
			if f != nil {
				f.ByHand = "Ask who is responsible for the firewall; then correct the commands of the script."
				return f
			}
		}
		for _, line := range lines {
			if !strings.HasPrefix(strings.TrimSpace(line), "#") {
				commands = append(commands, line)
			}
		}
	}
	read := map[string]bool{}
	for _, command := range commands {
		m := rulesFile.FindStringSubmatch(command)
		if m == nil || strings.ContainsAny(m[2], "$*?%") || read[m[0]] || len(read) >= maxRuleFiles {
			continue
		}
		read[m[0]] = true
		look := config.ParseIptables
		if m[1] == "nft" {
			look = config.ParseNftables
		}
		if f := look(tree.Lines(m[2]), m[2], ports); f != nil {
			f.ByHand = "Ask who is responsible for the firewall before a port is opened in the file."
			return f
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
