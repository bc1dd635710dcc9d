package system

import (
	"context"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
	rules "salvor/diagnose/system"
)

// networkRows repair the configuration of interfaces, and firewalls that let nobody in.
func networkRows() []tableRow {
	files := diagnose.ConsentFiles
	return []tableRow{
		{finding: "network-unit-invalid", consent: files, change: dropSetting, does: "removes the mask, or makes the line of the drop-in a comment"},
		{finding: "network-none-enabled", consent: files, change: enableService, does: "enables the service that configures the network, and removes its mask"},
		{finding: "network-config-invalid", consent: files, change: correctNetwork,
			does: "gives connections of NetworkManager to root with the mode 0600; corrects the method of a stanza of ifupdown, or makes the line a comment"},
		{finding: "network-interface-missing", consent: files, change: correctInterface, does: "names the only interface that nothing configures in the place of the one that is not there"},
		{finding: "network-mac-changed", consent: files, change: correctInterface, does: "writes the address of the only interface that nothing configures"},
		{finding: "network-nothing-configured", consent: files, change: configureOnly, does: "adds the line `source` that the file has lost, or configures the only interface with DHCP"},
		{finding: "network-gateway-unreachable", consent: files, change: correctGateway, does: "writes the gateway of network_data"},
		{finding: "network-address-differs", consent: files, change: correctAddress, does: "writes the address and the gateway of network_data"},
		{finding: "firewall-blocks-ssh", consent: files, change: openFirewall, does: "adds one rule that accepts connections to the port of sshd; no rule is removed"},
	}
}

func correctNetwork(_ context.Context, c *repairCase) error {
	if strings.HasPrefix(c.firstEvidence().Path, "/etc/NetworkManager/") {
		for _, e := range c.finding.Evidence {
			if err := c.setOwner(e.Path, 0, 0); err != nil {
				return err
			}
			if err := c.setMode(e.Path, 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	for file, lines := range c.evidenceLines() {
		if err := c.editText(file, func(text string) string { return correctStanzas(text, lines...) }); err != nil {
			return err
		}
	}
	return nil
}

// correctStanzas corrects lines of /etc/network/interfaces. A stanza that cannot be corrected becomes a comment with all of its options, which would
// otherwise belong to the stanza before it.
func correctStanzas(text string, numbers ...int) string {
	for _, number := range numbers {
		lines := splitText(text)
		if number < 1 || number > len(lines) {
			continue
		}
		line, _ := cutEnd(lines[number-1])
		last := number
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "iface" {
			for last < len(lines) && !config.IsStanzaStart(lines[last]) {
				last++
			}
			if corrected := correctStanza(fields, lines[number:last]); corrected != "" {
				blanks := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
				text = replaceLine(text, number, func(string) string { return blanks + corrected })
				text = commentLines(text, optionsWithoutValue(lines, number, last)...)
				continue
			}
		}
		var block []int
		for i := number; i <= last; i++ {
			block = append(block, i)
		}
		text = commentLines(text, block...)
	}
	return text
}

// methodAlone is the method that stands on a line of its own below a stanza's first line; empty where none does.
func methodAlone(family string, options []string) string {
	for _, o := range options {
		if fields := strings.Fields(o); len(fields) == 1 && config.CorrectMethod(family, fields[0]) == fields[0] {
			return fields[0]
		}
	}
	return ""
}

// optionsWithoutValue are the numbers of those lines from first+1 to last that are an option without a value. ifupdown refuses a whole file for one.
func optionsWithoutValue(lines []string, first, last int) []int {
	var out []int
	for number := first + 1; number <= last; number++ {
		fields := strings.Fields(lines[number-1])
		before, _ := cutEnd(lines[number-2])
		if len(fields) == 1 && !strings.HasPrefix(fields[0], "#") && !strings.HasSuffix(fields[0], `\`) && !strings.HasSuffix(before, `\`) {
			out = append(out, number)
		}
	}
	return out
}

// correctStanza is the first line of a stanza with the family and the method that were probably meant; empty where they cannot be told.
func correctStanza(fields, options []string) string {
	if len(fields) < 2 || len(fields) > 4 {
		return ""
	}
	has := func(keyword string) bool {
		return slices.ContainsFunc(options, func(o string) bool { f := strings.Fields(o); return len(f) > 1 && f[0] == keyword })
	}
	family, method := "inet", ""
	if len(fields) > 2 {
		family = fields[2]
	}
	alone := methodAlone(family, options)
	switch {
	case family != "inet" && family != "inet6":
		return ""
	case len(fields) > 3:
		method = config.CorrectMethod(family, fields[3])
	case alone != "":
		method = alone
	case has("address"):
		method = "static"
	case family == "inet":
		method = "dhcp"
	default:
		method = "auto"
	}
	if method == "" || method == "static" && !has("address") {
		return ""
	}
	return strings.Join([]string{"iface", fields[1], family, method}, " ")
}

func correctInterface(_ context.Context, c *repairCase) error {
	at := c.firstEvidence()
	changes := rules.InterfaceChanges(c.system)
	i := slices.IndexFunc(changes, func(n rules.InterfaceChange) bool {
		return n.File == at.Path && n.Line == at.Line && strings.Contains(c.finding.Title+at.Text, n.From)
	})
	if i < 0 {
		return c.unsupported("the interface that is meant cannot be told; write its name or address into %s", at.Path)
	}
	change := changes[i]
	folder, base := path.Split(change.File)
	if rest, found := strings.CutPrefix(base, "ifcfg-"); found && rest == change.From && folder == "/etc/sysconfig/network/" { // wicked names interfaces by their files
		if c.exists(folder + "ifcfg-" + change.To) {
			return c.unsupported("%sifcfg-%s exists", folder, change.To)
		}
		if err := c.editor.Rename(change.File, "ifcfg-"+change.To); err != nil {
			return err
		}
		c.reload()
		change.File = folder + "ifcfg-" + change.To
	}
	others := []string{change.File}
	if strings.HasPrefix(change.File, "/etc/network/") { // its stanzas and its `auto` line may lie in several files
		others = append(others, "/etc/network/interfaces")
		others = append(others, c.system.Files.Match("/etc/network/interfaces.d", "*")...)
		slices.Sort(others)
		others = slices.Compact(others)
	}
	for _, file := range others {
		if info, err := c.system.Files.Stat(file); err != nil || !info.Mode().IsRegular() || strings.HasSuffix(file, DisabledEnding) {
			continue
		}
		if err := c.editText(file, func(text string) string { return replaceName(text, change.From, change.To, change.ByAddress) }); err != nil {
			return err
		}
	}
	return nil
}

// configureOnly lets the manager of the network use DHCP on the only interface.
func configureOnly(_ context.Context, c *repairCase) error {
	if len(c.system.NICs) != 1 || len(c.finding.Repair.Writes) != 1 {
		return c.unsupported("the machine has %d interfaces; configure the right one by hand", len(c.system.NICs))
	}
	file, mac := c.finding.Repair.Writes[0], c.system.NICs[0].MAC
	name := rules.InterfaceName(c.system, mac)
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return c.unsupported("the name of the interface %s is not known", mac)
	}
	if line := config.SourceLine(c.system); line != "" && file == "/etc/network/interfaces" {
		return c.editText(file, func(text string) string { return appendLine(text, line) })
	}
	if file == "/etc/network/interfaces" {
		return c.editText(file, func(text string) string {
			return appendLine(appendLine(text, "auto "+name), "iface "+name+" inet dhcp")
		})
	}
	if c.exists(file) {
		return c.unsupported("%s exists; correct it by hand", file)
	}
	switch path.Ext(file) {
	case ".yaml":
		return c.writePrivate(file, "network:\n  version: 2\n  ethernets:\n    "+name+":\n      match:\n        macaddress: \""+mac+"\"\n      dhcp4: true\n", 0o600)
	case ".network":
		return c.write(file, "[Match]\nMACAddress="+mac+"\n\n[Network]\nDHCP=yes\n")
	case ".nmconnection":
		return c.writePrivate(file, "[connection]\nid=salvor\ntype=ethernet\n\n[ethernet]\nmac-address="+strings.ToUpper(mac)+"\n\n[ipv4]\nmethod=auto\n\n[ipv6]\nmethod=auto\n", 0o600)
	}
	return c.unsupported("salvor does not know the form of %s", file)
}

// evidenceAddress is the address behind a prefix in the evidence.
func (c *repairCase) evidenceAddress(prefix string) (netip.Addr, bool) {
	for _, e := range c.finding.Evidence {
		if text, found := strings.CutPrefix(e.Text, prefix); found {
			if a, err := netip.ParseAddr(text); err == nil {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

func correctGateway(_ context.Context, c *repairCase) error {
	from, ok1 := c.evidenceAddress("the gateway is ")
	to, ok2 := c.evidenceAddress("network_data says that the gateway is ")
	if !ok1 || !ok2 {
		return c.unsupported("the gateway cannot be told")
	}
	at := c.firstEvidence()
	return c.changed(at.Path, func(text string) string { return replaceAddress(text, from, to) })
}

// changed edits a file and fails where nothing changes.
func (c *repairCase) changed(file string, change func(string) string) error {
	text, err := c.readText(file)
	if err != nil {
		return err
	}
	after := change(text)
	if after == text {
		return c.unsupported("%s does not hold what was to be changed; correct it by hand", file)
	}
	return c.write(file, after)
}

var (
	addressText = regexp.MustCompile(`[0-9A-Fa-f:.]*[0-9A-Fa-f][0-9A-Fa-f:.]*`)
	gatewayLine = regexp.MustCompile(`(?i)gateway|\bvia\b`)
)

// replaceAddress replaces an address outside of comments, however it is written.
func replaceAddress(text string, from, to netip.Addr) string {
	return mapAddresses(text, func(string) bool { return true }, func(a netip.Addr) (netip.Addr, bool) { return to, a == from })
}

// mapAddresses changes addresses of lines that are no comments.
func mapAddresses(text string, selects func(line string) bool, change func(netip.Addr) (netip.Addr, bool)) string {
	lines := splitText(text)
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "#") || !selects(line) {
			continue
		}
		lines[i] = addressText.ReplaceAllStringFunc(line, func(found string) string {
			word := strings.Trim(found, ".")
			if a, err := netip.ParseAddr(word); err == nil {
				if to, ok := change(a); ok {
					return strings.Replace(found, word, to.String(), 1)
				}
			}
			return found
		})
	}
	return strings.Join(lines, "")
}

// correctAddress writes the address of network_data, and its gateway where the former one lies in the former network.
func correctAddress(_ context.Context, c *repairCase) error {
	at := c.firstEvidence()
	text, ok := strings.CutPrefix(at.Text, "the address is ")
	from, err := netip.ParsePrefix(text)
	if !ok || err != nil {
		return c.unsupported("the address cannot be told")
	}
	var wanted *rules.WantedNetwork
	networks := rules.WantedNetworks(c.system)
	for i := range networks {
		w := &networks[i]
		if slices.ContainsFunc(c.finding.Evidence, func(e diagnose.Evidence) bool {
			return e.Text == "network_data gives "+w.Prefix.String()+" to the interface "+w.MAC
		}) {
			wanted = w
		}
	}
	if wanted == nil {
		return c.unsupported("the address of network_data cannot be told")
	}
	return c.changed(at.Path, func(text string) string { return moveNetwork(text, from, wanted) })
}

// moveNetwork changes an address and the gateways in its network. The length of its prefix changes where it stands behind the address; a mask of its
// own has to be right already.
func moveNetwork(text string, from netip.Prefix, to *rules.WantedNetwork) string {
	withPrefix := regexp.MustCompile(`(^|[^0-9A-Fa-f:.])` + regexp.QuoteMeta(from.String()) + `($|[^0-9])`)
	lines, found := splitText(text), false
	for i, line := range lines {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") && withPrefix.MatchString(line) {
			lines[i], found = withPrefix.ReplaceAllString(line, "${1}"+to.Prefix.String()+"${2}"), true
		}
	}
	out := strings.Join(lines, "")
	if !found {
		if from.Bits() != to.Prefix.Bits() {
			return text
		}
		if out = replaceAddress(text, from.Addr(), to.Prefix.Addr()); out == text {
			return text
		}
	}
	i := slices.IndexFunc(to.Gateways, func(g netip.Addr) bool { return g.Is4() == from.Addr().Is4() })
	if i < 0 {
		return out
	}
	return mapAddresses(out, gatewayLine.MatchString, func(a netip.Addr) (netip.Addr, bool) {
		return to.Gateways[i], from.Masked().Contains(a) && a != to.Prefix.Addr()
	})
}

// openFirewall adds a rule for the port of sshd to the file that the rule named.
func openFirewall(_ context.Context, c *repairCase) error {
	at, ports := c.firstEvidence(), rules.SSHPorts(c.system)
	if len(ports) == 0 || len(c.finding.Repair.Writes) != 1 {
		return c.unsupported("the port of sshd cannot be told")
	}
	port, file := ports[0], c.finding.Repair.Writes[0]
	switch {
	case strings.HasPrefix(file, "/etc/firewalld/zones/"):
		return c.openZone(at.Path, file, port)
	case path.Base(file) == "user.rules":
		return c.changed(file, func(text string) string { return insertUFW(text, port) })
	case strings.Contains(path.Base(file), "nft"):
		return c.changed(file, func(text string) string { return insertNftables(text, at.Line, port) })
	}
	return c.changed(file, func(text string) string { return insertIptables(text, port) })
}

// openZone writes a zone of firewalld below /etc, where the system's own one is copied to.
func (c *repairCase) openZone(from, file string, port int) error {
	text, err := c.readText(from)
	if err != nil {
		return err
	}
	accepts := "<service name=\"ssh\"/>"
	if port != 22 {
		accepts = fmt.Sprintf("<port port=\"%d\" protocol=\"tcp\"/>", port)
	}
	at := strings.LastIndex(text, "</zone>")
	if at < 0 {
		return c.unsupported("%s does not end in </zone>", from)
	}
	after := text[:at] + "  " + accepts + "\n" + text[at:]
	if c.exists(file) {
		return c.write(file, after)
	}
	return c.writeWithFolder(file, after)
}

// insertNftables adds a rule behind the line that sets the policy of a chain.
func insertNftables(text string, number, port int) string {
	rule := fmt.Sprintf("tcp dport %d accept", port)
	lines := splitText(text)
	if number < 1 || number > len(lines) {
		return text
	}
	line, end := cutEnd(lines[number-1])
	head, comment, _ := strings.Cut(line, "#")
	if at := strings.LastIndexByte(head, '}'); at >= 0 { // the chain ends on this line
		separator := " "
		if !strings.HasSuffix(strings.TrimSpace(head[:at]), ";") {
			separator = "; "
		}
		lines[number-1] = strings.TrimRight(head[:at], " \t") + separator + rule + "; " + head[at:]
		if comment != "" {
			lines[number-1] += "#" + comment
		}
		lines[number-1] += end
		return strings.Join(lines, "")
	}
	blanks := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	if strings.Contains(head, "{") {
		blanks += "\t"
	}
	return insertBefore(text, number+1, blanks+rule)
}

// insertIptables adds a rule before all others of the table filter.
func insertIptables(text string, port int) string {
	table := ""
	for i, line := range splitText(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line
		case table == "*filter" && (strings.HasPrefix(line, "-") || line == "COMMIT"):
			return insertBefore(text, i+1, fmt.Sprintf("-A INPUT -p tcp -m tcp --dport %d -j ACCEPT", port))
		}
	}
	return text
}

// insertUFW adds a rule as ufw writes its own, behind the others.
func insertUFW(text string, port int) string {
	rule := fmt.Sprintf("### tuple ### allow tcp %d 0.0.0.0/0 any 0.0.0.0/0 in\n-A ufw-user-input -p tcp --dport %d -j ACCEPT\n", port, port)
	for i, line := range splitText(text) {
		if line = strings.TrimSpace(line); line == "### END RULES ###" || line == "COMMIT" {
			return insertBefore(text, i+1, rule)
		}
	}
	return text
}
