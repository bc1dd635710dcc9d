package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ClosedFirewall is where a firewall drops what comes in, and has no rule that lets connections to sshd through.
type ClosedFirewall struct {
	Name, File string
	Line       int
	Text       string
	Repair     string
	// ByHand says what a person can do where no repair writes a rule; empty where one does.
	ByHand string
	// Drops is what a connection needs and the firewall drops, where that is no packet to the port of sshd: packets of ARP, or answers.
	Drops string
}

// harmlessAccept is what rules of iptables match that let through no new connection from elsewhere to a TCP port.
var harmlessAccept = regexp.MustCompile(`(?i)(?:^|\s)-i lo\b|-p\s+(icmp|ipv6-icmp|icmpv6|udp|gre|esp|ah|igmp|vrrp|sctp|1|2|17|47|50|51|58|89|112)(\s|$)`)

// connectionStates are the states that a rule of iptables matches.
var connectionStates = regexp.MustCompile(`--(?:ct)?state\s+(\S+)`)

// iptablesLetsIn says whether a rule that accepts may let a new connection to one of the ports through.
func iptablesLetsIn(line string, ports []int) bool {
	if strings.Contains(line, "!") { // all but what is named
		return true
	}
	if m := connectionStates.FindStringSubmatch(line); m != nil && !strings.Contains(strings.ToUpper(m[1]), "NEW") {
		return false
	}
	if m := iptablesPorts.FindStringSubmatch(line); m != nil {
		holds, sure := NamesPort(m[1], ports)
		return holds || !sure
	}
	return !harmlessAccept.MatchString(line)
}

var (
	nftChain = regexp.MustCompile(`(?i)^\s*chain\s+(\S+)\s*\{`)
	nftHead  = regexp.MustCompile(`(?i)\btype\s+\w+\s+hook\s+\w+\s+(device\s+\S+\s+)?priority\s+[^;]+;?|\bpolicy\s+\w+\s*;?`)
	nftPorts = regexp.MustCompile(`(?i)\b(?:tcp|th)\s+dport\s+(\{[^}]*\}|\S+)`)
	// A verdict that another chain, a set or a map decides.
	nftElsewhere = regexp.MustCompile(`(?i)\b(jump|goto|queue|set|map|vmap)\b|@`)
	portRange    = regexp.MustCompile(`^([0-9]+)(?:[-:]([0-9]+))?$`)
)

// NamesPort says whether a list of ports, ranges and names of services holds one of the ports; sure is false for what cannot be told.
func NamesPort(list string, ports []int) (holds, sure bool) {
	for _, item := range strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune("{}, \t\"", r) }) {
		m := portRange.FindStringSubmatch(item)
		switch {
		case item == "ssh":
			if slices.Contains(ports, 22) {
				return true, true
			}
		case m == nil:
			if strings.ContainsAny(item, "@$!=<>") || strings.Trim(item, "0123456789") != "" && !slices.Contains(knownServices, item) {
				return false, false
			}
		default:
			from, _ := strconv.Atoi(m[1])
			to := from
			if m[2] != "" {
				to, _ = strconv.Atoi(m[2])
			}
			if slices.ContainsFunc(ports, func(p int) bool { return p >= from && p <= to }) {
				return true, true
			}
		}
	}
	return false, true
}

// knownServices are names of ports that are not ssh.
var knownServices = strings.Fields("http https domain smtp submission imap imaps pop3 pop3s ntp ftp telnet mysql postgresql ldap ldaps snmp nfs sunrpc rsync mdns")

// nftBase is a chain of nftables with its rules.
type nftBase struct {
	key, family, hook string // hook is empty for a chain that others jump to
	policy            nftLine
	drops             bool // what no rule decides
	rules             []nftLine
}

// nftLine is a line of a file of nftables.
type nftLine struct {
	text string
	line int
}

const nftFamilies = `(?:(ip|ip6|inet|arp|bridge|netdev)\s+)?`

var (
	nftTable    = regexp.MustCompile(`(?i)^\s*(?:add\s+|create\s+)?table\s+` + nftFamilies + `([^\s{;]+)\s*(?:\{|$|;)`)
	nftAddChain = regexp.MustCompile(`(?i)^\s*(?:add|create)\s+chain\s+` + nftFamilies + `(\S+)\s+([^\s{;]+)\s*(\{.*)?$`)
	nftAddRule  = regexp.MustCompile(`(?i)^\s*(?:add|insert)\s+rule\s+` + nftFamilies + `(\S+)\s+(\S+)\s+(.*)$`)
	nftCommand  = regexp.MustCompile(`^\s*(?:/\S*/)?nft\s+((?:add|create|insert)\s.*)$`)
	nftHooks    = regexp.MustCompile(`(?i)\bhook\s+(\w+)\b`)
	nftDrops    = regexp.MustCompile(`(?i)\bpolicy\s+drop\b`)
)

// nftKey names a chain by the family, the table and the name of the chain. The family is ip where none is given.
func nftKey(family, table, chain string) string {
	return FirstText(strings.ToLower(family), "ip") + " " + table + " " + chain
}

// declare reads the hook and the policy of a chain.
func (c *nftBase) declare(line string, number int) {
	if m := nftHooks.FindStringSubmatch(line); m != nil {
		c.hook, c.policy, c.drops = strings.ToLower(m[1]), nftLine{strings.TrimSpace(line), number}, nftDrops.MatchString(line)
	}
}

// maxNftChains bounds the chains of one file.
const maxNftChains = 1000

// nftBases reads the chains of a file, which has blocks or commands, or of a script with commands of nft. known is false where the file includes others, or
// adds rules to chains that it does not declare.
func nftBases(lines []string) (chains []*nftBase, known bool) {
	family, table, depth := "", "", 0
	var chain *nftBase
	find := func(key string) *nftBase {
		if i := slices.IndexFunc(chains, func(c *nftBase) bool { return c.key == key }); i >= 0 {
			return chains[i]
		}
		return nil
	}
	for i, text := range lines {
		if len(chains) > maxNftChains {
			return nil, false
		}
		line, _, _ := strings.Cut(text, "#")
		if m := nftCommand.FindStringSubmatch(line); m != nil { // of a script
			line = strings.NewReplacer(`\`, "", `"`, "", "'", "").Replace(m[1])
			if strings.Contains(line, "$") {
				return nil, false
			}
		}
		if strings.Contains(line, "include") && strings.Contains(line, `"`) {
			return nil, false
		}
		if m := nftAddChain.FindStringSubmatch(line); m != nil {
			key := nftKey(m[1], m[2], m[3])
			c := find(key)
			if c == nil {
				c = &nftBase{key: key, family: FirstText(strings.ToLower(m[1]), "ip")}
				chains = append(chains, c)
			}
			c.declare(m[4], i+1)
			continue
		}
		if m := nftAddRule.FindStringSubmatch(line); m != nil {
			c := find(nftKey(m[1], m[2], m[3]))
			if c == nil {
				return nil, false
			}
			at := len(c.rules)
			if strings.Contains(strings.ToLower(line[:strings.Index(line, m[4])]), "insert") {
				at = 0
			}
			c.rules = slices.Insert(c.rules, at, nftLine{m[4], i + 1})
			continue
		}
		if m := nftTable.FindStringSubmatch(line); m != nil {
			family, table = FirstText(strings.ToLower(m[1]), "ip"), m[2]
		}
		if m := nftChain.FindStringSubmatch(line); m != nil {
			key := nftKey(family, table, m[1])
			if chain, depth = find(key), 0; chain == nil {
				chain = &nftBase{key: key, family: FirstText(family, "ip")}
				chains = append(chains, chain)
			}
		}
		if chain == nil {
			continue
		}
		chain.declare(line, i+1)
		depth += strings.Count(line, "{") - strings.Count(line, "}")
		for _, rule := range splitRules(nftHead.ReplaceAllString(nftChain.ReplaceAllString(line, ""), "")) {
			if strings.Trim(rule, " \t}") != "" {
				chain.rules = append(chain.rules, nftLine{rule, i + 1})
			}
		}
		if depth <= 0 && strings.Contains(line, "}") {
			chain = nil
		}
	}
	return chains, true
}

// ParseNftables finds a chain that refuses each new connection to the ports, or what comes with one: packets of ARP, or the answers of the machine. A packet
// has to pass every chain of its hooks. Whatever is not understood counts as a rule that lets the packet through.
func ParseNftables(lines []string, file string, ports []int) *ClosedFirewall {
	chains, known := nftBases(lines)
	if !known {
		return nil
	}
	for i := range chains {
		at, byHand := chains[i].refuses(ports)
		if at == nil {
			continue
		}
		f := &ClosedFirewall{Name: "nftables", File: file, Line: at.line, Text: at.text, ByHand: byHand}
		switch {
		case chains[i].family == "arp":
			f.Drops = "the packets of ARP, without which no neighbour finds the machine"
		case chains[i].hook == "output":
			f.Drops = "what the machine answers"
		}
		return f
	}
	return nil
}

// refuses returns the line by which a chain refuses the packets of every connection to the ports; nil where one may pass. byHand is what a person can do
// where no repair writes a rule.
func (c *nftBase) refuses(ports []int) (at *nftLine, byHand string) {
	if c.hook == "ingress" && strings.Contains(c.policy.text, "device") {
		return nil, "" // it has the packets of one interface
	}
	letsIn := nftRuleLetsIn
	isInput := c.family == "ip" || c.family == "inet" // what keeps IPv6 out leaves IPv4
	switch {
	case isInput && c.hook == "input":
	case isInput && c.hook == "prerouting" || (c.family == "netdev" || c.family == "inet") && c.hook == "ingress":
		byHand = refusedByHand
	case isInput && c.hook == "output":
		letsIn, byHand = nftRuleLetsOut, refusedByHand
	case c.family == "arp" && (c.hook == "input" || c.hook == "output"):
		letsIn, byHand = func(rule string, _ []int) bool { return nftPasses.MatchString(nftComment.ReplaceAllString(rule, "")) }, "Ask who is responsible for the firewall; then let the packets of ARP through."
	default:
		return nil, ""
	}
	if c.drops {
		for _, rule := range c.rules {
			if letsIn(rule.text, ports) {
				return nil, ""
			}
		}
		return &c.policy, byHand
	}
	for i := range c.rules {
		rule := &c.rules[i]
		m := nftRefusal.FindStringSubmatch(nftComment.ReplaceAllString(rule.text, ""))
		switch {
		case letsIn(rule.text, ports), nftReturns.MatchString(rule.text):
			return nil, ""
		case m != nil && (m[1] == "" || namesAll(m[1], ports) && (c.hook == "input" || c.hook == "prerouting")):
			return &nftLine{strings.TrimSpace(rule.text), rule.line}, refusedByHand
		}
	}
	return nil, ""
}

// nftPasses is a verdict that lets a packet through, or that something else decides.
var nftPasses = regexp.MustCompile(`(?i)\b(accept|jump|goto|queue|vmap|dup|fwd|return)\b|@`)

// nftReturns is a verdict that leaves a chain, whose policy then decides.
var nftReturns = regexp.MustCompile(`(?i)\breturn\b`)

// nftNoAnswer is what packets match that are no answer to a connection from elsewhere: new connections of the machine, other protocols, the loopback
// interface.
var nftNoAnswer = regexp.MustCompile(`(?i)\b(?:oif|oifname)\s+"?lo"?\b|\bct\s+state\s+(?:\{\s*)?(?:new|related|invalid)\b(?:\s*\})?\s*(?:[^,\s]|$)|\b(?:tcp|udp|th)\s+dport\b`)

// nftRuleLetsOut says whether a rule may let the answers to a connection from elsewhere through.
func nftRuleLetsOut(rule string, _ []int) bool {
	rule = nftComment.ReplaceAllString(rule, "")
	if !nftPasses.MatchString(rule) || nftOther.MatchString(rule) || nftNoAnswer.MatchString(rule) && !strings.Contains(rule, "established") {
		return false
	}
	for _, m := range nftMatch.FindAllStringSubmatch(rule, -1) {
		if field := strings.Join(strings.Fields(strings.ToLower(m[1])), " "); field != "ct state" && isHarmlessMatch(field, m[2]) {
			return false
		}
	}
	return true
}

// splitRules splits a line at the semicolons outside of braces and quotation marks: tcp dport { 22, 80 } accept; drop.
func splitRules(line string) []string {
	var out []string
	depth, begin, quoted := 0, 0, false
	for i, c := range line {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == ';' && depth <= 0:
			out, begin = append(out, line[begin:i]), i+1
		}
	}
	return append(out, line[begin:])
}

var (
	// nftMatch is an expression that compares a field of a packet with a value, a list of values or an anonymous set.
	nftMatch = regexp.MustCompile(`(?i)\b(iif|iifname|ct\s+state|meta\s+l4proto|l4proto|ip\s+protocol|ip6\s+nexthdr)\s+(\{[^}]*\}|"[^"]*"|[^\s,]+(?:\s*,\s*[^\s,]+)*)`)
	// nftOther are headers of protocols other than TCP, by which a rule matches packets of those only.
	nftOther = regexp.MustCompile(`(?i)\b(icmp|icmpv6|igmp|udp|udplite|sctp|dccp|esp|ah)\s+(type|code|dport|sport|spi|length|mtu|checksum|group)\b`)
	// nftMap is a verdict map with its entries: ip protocol vmap { tcp : jump services, icmp : accept }.
	nftMap     = regexp.MustCompile(`(?i)\b(iif|iifname|ct\s+state|meta\s+l4proto|l4proto|ip\s+protocol|ip6\s+nexthdr|tcp\s+dport|th\s+dport)\s+vmap\s+\{([^}]*)\}`)
	nftVerdict = regexp.MustCompile(`(?i)\b(accept|jump|goto|queue|continue)\b`)
	nftComment = regexp.MustCompile(`(?i)\b(comment|prefix)\s+"[^"]*"`)
)

// otherProtocols are values of a protocol that no connection to sshd has.
var otherProtocols = strings.Fields("icmp icmpv6 ipv6-icmp igmp udp udplite sctp dccp gre esp ah vrrp ospf ospfigp pim ipip 1 2 17 47 50 51 58 89 112")

// isHarmlessMatch says whether a field with one of these values keeps a new TCP connection from elsewhere out of a rule.
func isHarmlessMatch(field, values string) bool {
	items := strings.FieldsFunc(values, func(r rune) bool { return strings.ContainsRune("{}, \t\"", r) })
	var harmless []string
	switch field = strings.Join(strings.Fields(strings.ToLower(field)), " "); field {
	case "iif", "iifname":
		harmless = []string{"lo"}
	case "ct state":
		harmless = []string{"established", "related", "invalid"}
	case "tcp dport", "th dport":
		return false
	default:
		harmless = otherProtocols
	}
	return len(items) > 0 && !slices.ContainsFunc(items, func(item string) bool { return !slices.Contains(harmless, strings.ToLower(item)) })
}

// nftRuleLetsIn judges one rule: what it matches, then the verdict.
func nftRuleLetsIn(rule string, ports []int) bool {
	rule = nftComment.ReplaceAllString(rule, "")
	if nftOther.MatchString(rule) {
		return false
	}
	for _, m := range nftMap.FindAllStringSubmatch(rule, -1) {
		for entry := range strings.SplitSeq(m[2], ",") {
			key, verdict, _ := strings.Cut(entry, ":")
			if !nftVerdict.MatchString(verdict) || isHarmlessMatch(m[1], key) {
				continue
			}
			if holds, sure := NamesPort(key, ports); strings.Contains(strings.ToLower(m[1]), "dport") && sure && !holds {
				continue
			}
			return true
		}
	}
	rule = nftMap.ReplaceAllString(rule, "")
	for _, m := range nftMatch.FindAllStringSubmatch(rule, -1) {
		if isHarmlessMatch(m[1], m[2]) {
			return false
		}
	}
	if nftElsewhere.MatchString(rule) {
		return true
	}
	if !strings.Contains(rule, "accept") {
		return false
	}
	if m := nftPorts.FindStringSubmatch(rule); m != nil {
		holds, sure := NamesPort(m[1], ports)
		return holds || !sure
	}
	return true
}

// refusedByHand is what a person can do about a rule that refuses ssh by its port: somebody wrote it on purpose.
const refusedByHand = "Ask who is responsible for the firewall; then remove the rule, or accept the networks that may connect before it."

// iptablesRefusal is a rule that refuses connections to ports from everywhere, without another condition than that they are new.
var iptablesRefusal = regexp.MustCompile(`^-A INPUT -p tcp(?: -m (?:tcp|multiport))? --d(?:port|ports|estination-ports?) (\S+)(?: -m (?:state|conntrack) --(?:ct)?state NEW)?(?: -m comment --comment (?:"[^"]*"|\S+))? -j (?:DROP|REJECT)(?: --reject-with \S+)?$`)

// nftRefusal is a rule of nftables that refuses new connections to ports, or all that arrive at it, from everywhere.
var nftRefusal = regexp.MustCompile(`(?i)^\s*(?:(?:tcp|th)\s+dport\s+(\{[^}]*\}|\S+)\s+)?(?:ct\s+state\s+new\s+)?(?:counter\s+(?:packets\s+\d+\s+bytes\s+\d+\s+)?)?(?:drop|reject(?:\s+with\s+[\w -]+)?)\s*\}?\s*$`)

// namesAll says whether a list of ports holds each of the ports.
func namesAll(list string, ports []int) bool {
	for _, port := range ports {
		if holds, sure := NamesPort(list, []int{port}); !holds || !sure {
			return false
		}
	}
	return true
}

var iptablesPorts = regexp.MustCompile(`--(?:dport|dports|destination-port|destination-ports)\s+(\S+)`)

// ParseIptables reads the output of iptables-save.
func ParseIptables(lines []string, file string, ports []int) *ClosedFirewall {
	table := ""
	var closed *ClosedFirewall
	for i, line := range lines {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case table != "filter":
		case strings.HasPrefix(line, ":INPUT DROP"):
			closed = &ClosedFirewall{Name: "iptables", File: file, Line: i + 1, Text: line}
		case strings.HasPrefix(line, "-A INPUT ") || strings.HasPrefix(line, "-I INPUT "):
			fields := strings.Fields(line)
			at := slices.Index(fields, "-j")
			if at < 0 || at+1 >= len(fields) {
				if slices.Contains(fields, "-g") {
					return nil
				}
				continue
			}
			target := fields[at+1]
			switch target {
			case "LOG", "NFLOG", "MARK", "CONNMARK":
			case "DROP", "REJECT":
				if m := iptablesRefusal.FindStringSubmatch(line); closed == nil && m != nil && namesAll(m[1], ports) {
					return &ClosedFirewall{Name: "iptables", File: file, Line: i + 1, Text: line, ByHand: refusedByHand}
				}
				if at == 2 { // without a condition
					if closed == nil {
						closed = &ClosedFirewall{Name: "iptables", File: file, Line: i + 1, Text: line}
					}
					return closed
				}
			case "ACCEPT":
				if iptablesLetsIn(line, ports) {
					return nil
				}
			default: // a chain of its own
				return nil
			}
		}
	}
	return closed
}

// iptablesCommand is a command of iptables that changes the table filter.
var iptablesCommand = regexp.MustCompile(`^\s*(?:/\S*/)?iptables(?:-nft|-legacy)?\s+(?:-w\s+|--wait\s+)*(-[PAI])\s+(INPUT)\s+(.*)$`)

// ParseIptablesScript reads the commands of a script that sets rules of iptables outside of blocks.
func ParseIptablesScript(lines []string, file string, ports []int) *ClosedFirewall {
	out := make([]string, len(lines))
	some := false
	for i, line := range lines {
		m := iptablesCommand.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "#"):
		case strings.Contains(line, "$") && strings.Contains(line, "INPUT"):
			return nil // a variable decides
		case m == nil && strings.Contains(line, "iptables") && (strings.Contains(line, "INPUT") || strings.Contains(line, "-restore")):
			return nil // a command in another form decides
		case m == nil:
		case m[1] == "-I" && strings.Contains(m[3], "ACCEPT") && iptablesLetsIn("-A INPUT "+strings.TrimSpace(m[3]), ports):
			return nil
		case m[1] == "-P":
			out[i], some = ":INPUT "+strings.TrimSpace(m[3]), true
		default:
			out[i], some = m[1]+" INPUT "+strings.TrimSpace(m[3]), true
		}
	}
	if !some || len(out[0]) > 0 {
		return nil
	}
	out[0] = "*filter" // the first line names the shell
	return ParseIptables(out, file, ports)
}

// UFWRefuses returns the line of a rule of the user that refuses connections to all of the ports from everywhere, before a rule that may let one
// through; 0 without one.
func UFWRefuses(lines []string, ports []int) int {
	for i, line := range lines {
		rest, found := strings.CutPrefix(line, "### tuple ### ")
		f := strings.Fields(rest)
		if !found || len(f) < 7 || strings.HasPrefix(f[len(f)-1], "out") || f[1] == "udp" {
			continue
		}
		action, _, _ := strings.Cut(f[0], "_")
		everywhere := strings.HasPrefix(f[3], "0.0.0.0/0") && f[4] == "any" && strings.HasPrefix(f[5], "0.0.0.0/0") && f[6] == "in"
		holds, sure := NamesPort(f[2], ports)
		switch {
		case action == "allow" || action == "limit":
			if f[2] == "any" || holds || !sure {
				return 0
			}
		case (action == "deny" || action == "reject") && everywhere && (f[2] == "any" || namesAll(f[2], ports)):
			return i + 1
		}
	}
	return 0
}

// ParseUFW says whether a rule of the user may let connections to the ports through.
func ParseUFW(lines []string, ports []int) bool {
	for _, line := range lines {
		rest, found := strings.CutPrefix(line, "### tuple ### ")
		if !found {
			continue
		}
		// action protocol ports destination source-ports source [applications] direction
		f := strings.Fields(rest)
		if len(f) < 6 {
			return true
		}
		action, _, _ := strings.Cut(f[0], "_")
		if (action != "allow" && action != "limit") || strings.HasPrefix(f[len(f)-1], "out") || f[1] == "udp" {
			continue
		}
		if holds, sure := NamesPort(f[2], ports); f[2] == "any" || holds || !sure {
			return true
		}
	}
	return false
}
