package system

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// leaseFolders are where the DHCP client of a network manager keeps its leases. A manager whose client keeps none that can be read is not listed.
func leaseFolders(tree *diagnose.Tree, manager string) []string {
	hasClient := config.FirstExisting(tree, "/sbin/dhclient", "/usr/sbin/dhclient") != ""
	switch {
	case manager == "NetworkManager":
		return []string{"/var/lib/NetworkManager"}
	case manager == "ifupdown" && hasClient: // otherwise it uses udhcpc or dhcpcd, and the leases are old
		return []string{"/var/lib/dhcp", "/var/lib/dhclient"}
	case manager == "ifcfg" && hasClient:
		return []string{"/var/lib/dhclient"}
	}
	return nil
}

// leasedAddresses are those that DHCP gave the machine, as far as the client of a manager wrote them to the disk, each with the file.
func leasedAddresses(tree *diagnose.Tree, manager string) map[netip.Addr]diagnose.Evidence {
	out := map[netip.Addr]diagnose.Evidence{}
	for _, folder := range leaseFolders(tree, manager) {
		for _, pattern := range []string{"*.lease", "*.leases"} {
			files := tree.Match(folder, pattern)
			for _, file := range files[:min(len(files), config.MaxNetworkFiles)] {
				for i, line := range tree.Lines(file) {
					fields := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t=;{", r) })
					if len(fields) < 2 || !slices.Contains([]string{"fixed-address", "iaaddr", "ADDRESS"}, fields[0]) {
						continue
					}
					if a, err := netip.ParseAddr(fields[1]); err == nil && len(out) < config.MaxNetworkLinks {
						// Without its line: a repair makes the lines of the evidence comments.
						out[a] = config.FileEvidence(file, 0, fmt.Sprintf("line %d: a lease of the address %s", i+1, a))
					}
				}
			}
		}
	}
	return out
}

// hasLaterAddresses says whether a program is there that gives the machine addresses after its network is up: a cluster or a VPN.
func hasLaterAddresses(tree *diagnose.Tree) bool {
	return config.FirstExisting(tree, "/usr/sbin/keepalived", "/usr/sbin/pacemakerd", "/usr/sbin/corosync", "/usr/sbin/tailscaled", "/usr/sbin/openvpn") != "" ||
		len(tree.Match("/etc/wireguard", "*.conf")) > 0
}

// knownAddresses are the addresses that a machine can have, as far as its disk and network_data say.
type knownAddresses struct {
	all    map[netip.Addr]bool
	leases map[netip.Addr]diagnose.Evidence
	// dhcp: some interface is given its address. allLeased: each manager that asks for one has a lease on the disk.
	dhcp, allLeased bool
	// allWanted: network_data has a static network for each interface of the machine.
	allWanted bool
}

func collectAddresses(s *diagnose.System, n *config.Network, c coverage) *knownAddresses {
	k := &knownAddresses{all: map[netip.Addr]bool{}, leases: map[netip.Addr]diagnose.Evidence{}, allLeased: true}
	for _, m := range n.Managers {
		asks := m.Enabled && m.ConfiguresAll && c.automatic
		for _, l := range m.Links {
			if !m.Enabled || !l.Active || l.Virtual && l.Name == "lo" {
				continue
			}
			asks = asks || l.DHCP
			for _, p := range l.Addresses {
				k.all[p.Addr()] = true
			}
		}
		if !asks {
			continue
		}
		leases := leasedAddresses(s.Files, m.Name)
		k.dhcp, k.allLeased = true, k.allLeased && len(leases) > 0
		for a, at := range leases {
			k.all[a], k.leases[a] = true, at
		}
	}
	wanted := wantedNetworks(s.NetworkData)
	for _, w := range wanted {
		k.all[w.Prefix.Addr()] = true
	}
	k.allWanted = len(wanted) > 0 && !slices.ContainsFunc(s.NICs, func(nic diagnose.NIC) bool {
		return !slices.ContainsFunc(wanted, func(w WantedNetwork) bool { return w.MAC == nic.MAC })
	})
	return k
}

// listenPlace is an address that sshd, or systemd in its place, listens on.
type listenPlace struct {
	address, text, file string
	line                int
	isOption            bool // of sshd's command line
}

// listensOn are the addresses of sshd's socket where systemd listens in the place of sshd, which bySocket says, otherwise those of sshd's
// configuration. The list is empty where sshd needs no address of the machine, as with FreeBind.
func listensOn(tree *diagnose.Tree, sshd *config.SSHDConfig) (out []listenPlace, bySocket bool) {
	for _, socket := range []string{"ssh.socket", "sshd.socket"} {
		if config.ManagerOf(tree) != config.SystemdManager || !config.UnitEnabled(tree, socket) {
			continue
		}
		lines := config.UnitLines(tree, socket)
		if slices.Contains([]string{"yes", "true", "on", "1"}, strings.ToLower(lastOf(lines, "Socket", "FreeBind"))) {
			return nil, true
		}
		for _, l := range settingList(lines, "Socket", "ListenStream") {
			if !strings.Contains(l.Value, ":") && !strings.Contains(l.Value, ".") { // a port of all addresses
				return nil, true
			}
			out = append(out, listenPlace{l.Value, "ListenStream=" + l.Value, l.File, l.Line, false})
		}
		return out, true
	}
	for _, at := range sshd.All("listenaddress") {
		out = append(out, listenPlace{at.Args[0], "ListenAddress " + at.Args[0], at.File, at.Line, at.Option})
	}
	return out, false
}

// forwarders are programs that pass connections on to a sshd that listens on the loopback interface.
var forwarders = strings.Fields("tor sslh cloudflared haproxy stunnel4 stunnel autossh ngrok frpc nginx tailscaled")

// findLoopbackOnly is a finding where sshd listens on addresses of the loopback interface alone.
func findLoopbackOnly(s *diagnose.System, set []listenPlace) []diagnose.Finding {
	f := diagnose.Finding{ID: "sshd-listens-nowhere", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.85}
	for _, at := range set[:min(len(set), 32)] {
		host, _, _ := config.SplitListen(at.address)
		if a, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !a.IsLoopback()) {
			return nil
		}
		f.Evidence = append(f.Evidence, config.FileEvidence(at.file, at.line, at.text))
	}
	for _, name := range forwarders {
		if config.FirstExisting(s.Files, "/usr/bin/"+name, "/usr/sbin/"+name, "/usr/local/bin/"+name) != "" {
			return nil
		}
	}
	f.Title = fmt.Sprintf("The server sshd listens on %s only, by %s, which no other machine reaches.", set[0].address, place(set[0].file, set[0].line))
	f.ByHand = "Write an address of the network, or remove the line, so that sshd listens on all addresses."
	return []diagnose.Finding{f}
}

// findListenAddresses is a finding where sshd is bound to addresses of which the machine gets none.
func findListenAddresses(s *diagnose.System, n *config.Network, c coverage) []diagnose.Finding {
	sshd := config.ReadSSHDConfig(s.Files)
	set, bySocket := listensOn(s.Files, sshd)
	if len(set) == 0 || sshd.Partial || sshdProgram(s.Files) == "" || hasLaterAddresses(s.Files) {
		return nil
	}
	if f := findLoopbackOnly(s, set); f != nil {
		return f
	}
	known := collectAddresses(s, n, c)
	f := diagnose.Finding{ID: "sshd-listens-nowhere", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Confidence: 0.85}
	lacks := "the machine has no such address"
	switch {
	case known.allWanted && (known.dhcp || c.unclear):
		f.Confidence = 0.75
	case c.unclear || len(known.all) == 0 && !known.dhcp:
		return nil
	case known.dhcp && known.allLeased:
		f.Confidence, lacks = 0.7, "no configuration and no lease of the machine has such an address"
	case known.dhcp: // the server may give that address, as it may have done before
		f.Severity, f.Confidence, lacks = diagnose.Info, 0.5, "the machine has this address only if DHCP gives it"
	}
	for _, at := range set[:min(len(set), 32)] {
		host, _, _ := config.SplitListen(at.address)
		a, err := netip.ParseAddr(host)
		if err != nil || a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || known.all[a] {
			return nil
		}
		f.Evidence = append(f.Evidence, config.FileEvidence(at.file, at.line, at.text))
	}
	if f.Severity != diagnose.Info {
		f.Repair = mayLose(repairFiles("Comment the addresses out, so that sshd listens on all that the machine has.", paths(f.Evidence)...),
			fmt.Sprintf("The server sshd listens on all addresses, those of public networks among them, and no longer on %s alone.", set[0].address))
		for _, a := range slices.SortedFunc(maps.Keys(known.leases), netip.Addr.Compare)[:min(len(known.leases), 8)] {
			f.Evidence = append(f.Evidence, known.leases[a])
		}
	}
	f.Title = fmt.Sprintf("The server sshd listens on %s only, by %s, and %s.", set[0].address, place(set[0].file, set[0].line), lacks)
	f.ByHand = "Write an address that the machine has, or remove the line."
	if slices.ContainsFunc(set, func(at listenPlace) bool { return at.isOption }) {
		f.Repair = nil
	}
	if bySocket { // systemd refuses a socket without an address, so to take the lines away would harm
		f.Repair, f.ByHand = nil, "Write ListenStream= with an address that the machine has, or with a port alone, such as 22, for all addresses."
	}
	return []diagnose.Finding{f}
}
