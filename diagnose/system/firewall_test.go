package system

import (
	"strings"
	"testing"
	"testing/fstest"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func init() {
	blocks, degrades, info := diagnose.BlocksAccess, diagnose.Degrades, diagnose.Info
	enable := func(m machine, unit string) {
		m.write("/usr/lib/systemd/system/"+unit, "[Service]\n")
		m.link("/etc/systemd/system/sysinit.target.wants/"+unit, "/usr/lib/systemd/system/"+unit)
	}
	nft := func(rules string) func(machine) {
		return func(m machine) {
			enable(m, "nftables.service")
			m.write("/etc/nftables.conf", "#!/usr/sbin/nft -f\nflush ruleset\ntable inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n"+
				"\t\tiif lo accept\n\t\tct state established,related accept\n\t\tip protocol icmp accept\n"+rules+"\t}\n\tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n")
		}
	}
	iptables := func(rules string) func(machine) {
		return func(m machine) {
			enable(m, "netfilter-persistent.service")
			m.write("/etc/iptables/rules.v4", "*nat\n:INPUT ACCEPT [0:0]\nCOMMIT\n*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\n"+
				"-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -p icmp -j ACCEPT\n"+rules+"COMMIT\n")
		}
	}
	ufw := func(rules string) func(machine) {
		return func(m machine) {
			enable(m, "ufw.service")
			m.write("/etc/ufw/ufw.conf", "ENABLED=yes\nLOGLEVEL=low\n")
			m.write("/etc/default/ufw", "IPV6=yes\nDEFAULT_INPUT_POLICY=\"DROP\"\n")
			m.write("/etc/ufw/user.rules", "*filter\n"+rules+"COMMIT\n")
		}
	}
	firewalld := func(zone string) func(machine) {
		return func(m machine) {
			enable(m, "firewalld.service")
			m.write("/etc/firewalld/firewalld.conf", "# comment\nDefaultZone=public\n")
			m.write("/etc/firewalld/zones/public.xml", "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<zone>\n  <short>Public</short>\n"+zone+"</zone>\n")
		}
	}
	addAccessCases("debian-bios", []accessCase{
		{"nftables", nft("\t\ttcp dport { 80, 443 } accept\n"), "firewall-blocks-ssh", blocks, "nftables drops what comes in, by /etc/nftables.conf, line 5", 5},
		{"nftables, another port", func(m machine) {
			nft("\t\ttcp dport 22 accept\n")(m)
			m.add("/etc/ssh/sshd_config", "Port 2222\n")
		}, "firewall-blocks-ssh", blocks, "port 2222", 5},
		{"nftables, a rule that refuses the port", func(m machine) {
			enable(m, "nftables.service")
			m.write("/etc/nftables.conf", "table inet f {\n chain i {\n  type filter hook input priority 0; policy accept;\n  iif lo accept\n  tcp dport { 22, 23 } counter drop\n }\n}\n")
		}, "firewall-blocks-ssh", blocks, "line 5", 5},
		{"nftables, a drop at the end", func(m machine) {
			enable(m, "nftables.service")
			m.write("/etc/nftables.conf", "table inet f {\n chain i {\n  type filter hook input priority 0;\n  ct state established accept\n  tcp dport 80 accept\n  reject with icmp type port-unreachable\n }\n}\n")
		}, "firewall-blocks-ssh", blocks, "line 6", 6},
		{"near miss: nftables, the port is accepted before", func(m machine) {
			enable(m, "nftables.service")
			m.write("/etc/nftables.conf", "table inet f {\n chain i {\n  type filter hook input priority 0; policy accept;\n  ip saddr 10.0.0.0/8 tcp dport 22 accept\n  tcp dport 22 drop\n }\n}\n")
		}, "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, others are refused", func(m machine) {
			enable(m, "nftables.service")
			m.write("/etc/nftables.conf", "table inet f {\n chain i {\n  type filter hook input priority 0; policy accept;\n  ip saddr 203.0.113.5 drop\n  tcp dport 23 drop\n  ct state invalid drop\n }\n}\n")
		}, "firewall-blocks-ssh", nearMiss, "", 0},
		{"iptables, a rule that refuses the port", func(m machine) {
			enable(m, "netfilter-persistent.service")
			m.write("/etc/iptables/rules.v4", "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\n-A INPUT -p tcp -m tcp --dport 22 -j DROP\nCOMMIT\n")
		}, "firewall-blocks-ssh", blocks, "line 4", 4},
		{"near miss: iptables, too many connections are refused", func(m machine) {
			enable(m, "netfilter-persistent.service")
			m.write("/etc/iptables/rules.v4", "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -m recent --update --seconds 60 --hitcount 4 --name DEFAULT --rsource -j DROP\n-A INPUT -s 203.0.113.5/32 -p tcp -m tcp --dport 22 -j DROP\nCOMMIT\n")
		}, "firewall-blocks-ssh", nearMiss, "", 0},
		{"ufw, a rule that refuses the port", func(m machine) {
			ufw("### tuple ### deny tcp 22 0.0.0.0/0 any 0.0.0.0/0 in\n-A ufw-user-input -p tcp --dport 22 -j DROP\n")(m)
			m.write("/etc/default/ufw", "DEFAULT_INPUT_POLICY=\"ACCEPT\"\n")
		}, "firewall-blocks-ssh", blocks, "line 2", 2},
		{"near miss: ufw refuses one network", func(m machine) {
			ufw("### tuple ### deny tcp 22 0.0.0.0/0 any 203.0.113.0/24 in\n### tuple ### deny tcp 23 0.0.0.0/0 any 0.0.0.0/0 in\n")(m)
			m.write("/etc/default/ufw", "DEFAULT_INPUT_POLICY=\"ACCEPT\"\n")
		}, "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables with ssh", nft("\t\ttcp dport { ssh, http } ct state new accept\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, range", nft("\t\tip saddr 192.0.2.0/24 tcp dport 20-30 accept\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, chain of its own", nft("\t\tjump services\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, set", nft("\t\ttcp dport @open accept\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables on one line", func(m machine) {
			enable(m, "nftables.service")
			m.write("/etc/nftables.conf", "table inet f { chain i { type filter hook input priority filter; policy drop; tcp dport 22 accept; } }\n")
		}, "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: a chain on one line, with other protocols", func(m machine) {
			enable(m, "nftables.service")
			m.write("/etc/nftables.conf", "table inet f {\n  chain i { type filter hook input priority filter; policy drop; ct state established accept; tcp dport 22 accept; udp dport 53 accept; }\n}\n")
		}, "firewall-blocks-ssh", nearMiss, "", 0},
		{"a chain on one line, with other protocols alone", func(m machine) {
			enable(m, "nftables.service")
			m.write("/etc/nftables.conf", "table inet f {\n  chain i { type filter hook input priority filter; policy drop; ct state established accept; tcp dport { 80, 443 } accept; udp dport 53 accept; }\n}\n")
		}, "firewall-blocks-ssh", blocks, "nftables drops what comes in, by /etc/nftables.conf, line 2", 2},
		{"near miss: nftables, states with blanks between", nft("\t\tct state established, related, new tcp dport 22 accept\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, added rules", func(m machine) {
			nft("")(m)
			m.add("/etc/nftables.conf", "add rule inet filter input tcp dport 22 accept\n")
		}, "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, a map of verdicts", nft("\t\tip protocol vmap { tcp : jump services, icmp : accept }\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, a map of ports", nft("\t\ttcp dport vmap { 22 : accept, 80 : drop }\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, a map by name", nft("\t\ttcp dport vmap @services\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, protocols with TCP", nft("\t\tmeta l4proto { icmp, tcp } accept\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, states with new", nft("\t\tct state { established, related, new } accept\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, states by a map", nft("\t\tct state vmap { established : accept, new : jump fresh }\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, interfaces by a map", nft("\t\tiifname vmap { \"lo\" : accept, \"enp1s0\" : jump lan }\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, all but an interface", nft("\t\tiifname != \"lo\" accept\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, interfaces with lo", nft("\t\tiifname { \"lo\", \"enp1s0\" } accept\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, a comment that names icmp", nft("\t\tip saddr 192.0.2.0/24 accept comment \"no icmp type here\"\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables, two rules on a line", nft("\t\ticmp type echo-request accept; tcp dport 22 accept\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"nftables, maps of other things", nft("\t\tct state vmap { established : accept, related : accept, invalid : drop }\n\t\tip protocol vmap { icmp : accept, tcp : drop }\n" +
			"\t\tmeta l4proto { icmp, ipv6-icmp } accept\n\t\tudp dport { 53, 123 } accept\n\t\ttcp dport vmap { 80 : accept, 443 : jump web }\n"), "firewall-blocks-ssh", blocks, "nftables", 5},
		{"near miss: nftables from a network", nft("\t\tip saddr 192.0.2.0/24 accept\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nftables not enabled", func(m machine) {
			nft("")(m)
			m.remove("/etc/systemd/system/sysinit.target.wants/nftables.service")
		}, "firewall-blocks-ssh", nearMiss, "", 0},
		{"iptables", iptables("-A INPUT -p tcp -m tcp --dport 80 -j ACCEPT\n"), "firewall-blocks-ssh", blocks, "/etc/iptables/rules.v4, line 5", 5},
		{"iptables, refused at the end", func(m machine) {
			iptables("-A INPUT -p tcp -m multiport --dports 80,443 -j ACCEPT\n-A INPUT -j REJECT --reject-with icmp-host-prohibited\n")(m)
			m.edit("/etc/iptables/rules.v4", ":INPUT DROP", ":INPUT ACCEPT")
		}, "firewall-blocks-ssh", blocks, "line 12", 12},
		{"near miss: iptables with ssh", iptables("-A INPUT -p tcp -m state --state NEW -m tcp --dport 22 -j ACCEPT\n-A INPUT -j DROP\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: iptables, states with NEW", iptables("-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED,NEW -j ACCEPT\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: iptables, all but lo", iptables("-A INPUT ! -i lo -j ACCEPT\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: iptables, all but icmp", iptables("-A INPUT ! -p icmp -j ACCEPT\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: iptables, a comment that names udp", iptables("-A INPUT -p tcp -m comment --comment \"no udp\" -j ACCEPT\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: iptables, chain of its own", iptables("-A INPUT -j f2b-sshd\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"ufw", ufw("### tuple ### allow tcp 80 0.0.0.0/0 any 0.0.0.0/0 in\n"), "firewall-blocks-ssh", blocks, "ufw", 2},
		{"near miss: ufw with ssh", ufw("### tuple ### limit tcp 22 0.0.0.0/0 any 0.0.0.0/0 in\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: ufw from a network", ufw("### tuple ### allow any any 0.0.0.0/0 any 192.0.2.0/24 in\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"firewalld", firewalld("  <service name=\"dhcpv6-client\"/>\n  <port protocol=\"tcp\" port=\"443\"/>\n"), "firewall-blocks-ssh", blocks, "firewalld", 0},
		{"near miss: firewalld with ssh", firewalld("  <service name=\"ssh\"/>\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: firewalld, range", firewalld("  <port protocol=\"tcp\" port=\"1-1024\"/>\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: firewalld, rich rule", firewalld("  <rule family=\"ipv4\"><source address=\"192.0.2.0/24\"/><accept/></rule>\n"), "firewall-blocks-ssh", nearMiss, "", 0},
	})

	cloud := func(change func(machine)) func(machine) {
		return func(m machine) {
			m.program("/usr/bin/cloud-init", "#!/usr/bin/python3\n")
			m.write("/etc/cloud/cloud.cfg", "users:\n  - default\ndatasource_list: [ NoCloud, None ]\n")
			m.link("/var/lib/cloud/instance", "/var/lib/cloud/instances/i-0001")
			m.write("/var/lib/cloud/data/instance-id", "i-0001\n")
			m.write("/var/lib/cloud/seed/nocloud/meta-data", "instance-id: i-0001\nlocal-hostname: web-7\n")
			change(m)
		}
	}
	addAccessCases("debian-bios", []accessCase{
		{"no YAML", cloud(func(m machine) { m.write("/etc/cloud/cloud.cfg.d/90.cfg", "# ours\na: [\nb: }\n") }), "cloud-init-config-invalid", degrades, "/etc/cloud/cloud.cfg.d/90.cfg", 0},
		{"near miss: comment only", cloud(func(m machine) { m.write("/etc/cloud/cloud.cfg.d/90.cfg", "#cloud-config\n# nothing\n") }), "cloud-init-config-invalid", nearMiss, "", 0},
		{"another instance", cloud(func(m machine) { m.edit("/var/lib/cloud/seed/nocloud/meta-data", "i-0001", "i-0002") }), "cloud-init-new-instance", degrades, "meta-data", 0},
		{"another drive", cloud(func(m machine) {
			m.remove("/var/lib/cloud/seed")
			m.Devices = append(m.Devices, diagnose.Device{Path: "/dev/sr0", Kind: diagnose.DiskDevice, FS: "iso9660", Label: "config-2",
				Tree: diagnose.NewTree(fstest.MapFS{"openstack/latest/meta_data.json": {Data: []byte(`{"uuid": "5f2b", "name": "web-7"}`)}})})
		}), "cloud-init-new-instance", degrades, "/dev/sr0", 0},
		{"near miss: the same instance", cloud(func(machine) {}), "cloud-init-new-instance", nearMiss, "", 0},
		{"near miss: switched off", cloud(func(m machine) {
			m.edit("/var/lib/cloud/seed/nocloud/meta-data", "i-0001", "i-0002")
			m.write("/etc/cloud/cloud-init.disabled", "")
		}), "cloud-init-new-instance", nearMiss, "", 0},
		{"disabled before it ran", cloud(func(m machine) {
			m.remove("/var/lib/cloud")
			m.write("/etc/cloud/cloud-init.disabled", "")
		}), "cloud-init-disabled", info, "never ran", 0},
		{"near miss: will run", cloud(func(m machine) { m.remove("/var/lib/cloud") }), "cloud-init-disabled", nearMiss, "", 0},
	})
}

func FuzzFirewalls(f *testing.F) {
	f.Add("table inet f {\nchain i {\ntype filter hook input priority 0; policy drop;\ntcp dport {1-3,ssh} accept\n}\n}")
	f.Add("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 1:2 -j ACCEPT\n-A INPUT -j\n")
	f.Add("### tuple ### allow tcp 80,443 a b c in\n<zone target=\"DROP\"><port port=\"a-b\"/></zone>")
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(text, "\n")
		for _, c := range []*config.ClosedFirewall{config.ParseNftables(lines, "/a", []int{22}), config.ParseIptables(lines, "/a", []int{22})} {
			if c != nil && (c.Line < 1 || c.Line > len(lines)) {
				t.Errorf("%+v", c)
			}
		}
		config.ParseUFW(lines, []int{22})
		firewalldLetsIn(diagnose.NewTree(fstest.MapFS{}), []byte(text), []int{22})
		yamlFault(text)
	})
}
