package system

import (
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// byNetworkd lets systemd-networkd configure the network in the place of ifupdown, as its own user.
func byNetworkd(files map[string]string) func(machine) {
	return func(m machine) {
		m.remove("/etc/systemd/system/multi-user.target.wants/networking.service")
		m.remove("/etc/network/interfaces")
		m.edit("/usr/lib/systemd/system/systemd-networkd.service", "[Service]\n", "[Service]\nUser=systemd-network\n")
		m.add("/etc/passwd", "systemd-network:x:998:998::/:/usr/sbin/nologin\n")
		m.add("/etc/group", "systemd-network:x:998:\n")
		m.link("/etc/systemd/system/multi-user.target.wants/systemd-networkd.service", "/usr/lib/systemd/system/systemd-networkd.service")
		for name, text := range files {
			m.write("/etc/systemd/network/"+name, text)
		}
	}
}

// byNetworkManager lets netplan configure the network by NetworkManager.
func byNetworkManager(m machine) {
	m.edit("/etc/netplan/50-cloud-init.yaml", "network:\n", "network:\n    renderer: NetworkManager\n")
	m.remove("/etc/systemd/system/multi-user.target.wants/systemd-networkd.service")
	m.link("/etc/systemd/system/multi-user.target.wants/NetworkManager.service", "/usr/lib/systemd/system/NetworkManager.service")
	m.write("/etc/NetworkManager/NetworkManager.conf", "[main]\nplugins=ifupdown,keyfile\n\n[ifupdown]\nmanaged=false\n")
}

func init() {
	blocks, degrades := diagnose.BlocksAccess, diagnose.Degrades
	const fixed = "[Match]\nName=enp1s0\n\n[Network]\nAddress=192.0.2.10/24\nGateway=192.0.2.1\n"
	hook := func(text string) func(machine) {
		return func(m machine) { m.program("/etc/network/if-pre-up.d/iptables", text) }
	}
	nft := func(text string) func(machine) {
		return func(m machine) {
			enableUnit(m, "nftables.service")
			m.write("/etc/nftables.conf", text)
		}
	}
	local := func(text string) func(machine) {
		return func(m machine) { m.program("/etc/rc.local", text) }
	}
	const open = "table inet filter {\n  chain input {\n    type filter hook input priority 0; policy drop;\n    ct state established,related accept\n    tcp dport 22 accept\n  }\n"
	addAccessCases("debian-bios", []accessCase{
		// systemd-networkd
		{"a file that the service may not read", func(m machine) {
			byNetworkd(map[string]string{"10-lan.network": fixed})(m)
			m.mode("/etc/systemd/network/10-lan.network", 0o600)
		}, "network-config-invalid", blocks, "/etc/systemd/network/10-lan.network has the mode 0600", 0},
		{"a drop-in that the service may not read", func(m machine) {
			byNetworkd(map[string]string{"10-lan.network": fixed, "10-lan.network.d/dns.conf": "[Network]\nDNS=192.0.2.53\n"})(m)
			m.mode("/etc/systemd/network/10-lan.network.d/dns.conf", 0o640)
		}, "network-config-invalid", blocks, "dns.conf has the mode 0640", 0},
		{"near miss: a file of its group", func(m machine) {
			byNetworkd(map[string]string{"10-lan.network": fixed})(m)
			m.mode("/etc/systemd/network/10-lan.network", 0o640)
			m.owner("/etc/systemd/network/10-lan.network", 0, 998)
		}, "network-config-invalid", nearMiss, "", 0},
		{"a file before the one with the address", byNetworkd(map[string]string{"10-lan.network": fixed, "05-dhcp.network": "[Match]\nType=ether\n\n[Network]\nDHCP=yes\n"}),
			"network-address-differs", degrades, "05-dhcp.network is the first", 2},
		{"a file before the one with an address that network_data does not have", func(m machine) {
			byNetworkd(map[string]string{"10-lan.network": fixed, "05-dhcp.network": "[Match]\nName=en*\n\n[Network]\nDHCP=yes\n"})(m)
			m.NetworkData = []byte(`{"links":[{"id":"a","ethernet_mac_address":"52:54:00:12:34:56"}],"networks":[{"link":"a","type":"ipv4","ip_address":"192.0.2.77","netmask":"255.255.255.0"}]}`)
		}, "network-address-differs", degrades, "05-dhcp.network is the first", 2},
		{"near miss: a file behind the one with the address", byNetworkd(map[string]string{"10-lan.network": fixed, "80-dhcp.network": "[Match]\nType=ether\n\n[Network]\nDHCP=yes\n"}),
			"network-address-differs", nearMiss, "", 0},
		{"near miss: a file before it for other interfaces", byNetworkd(map[string]string{"10-lan.network": fixed, "05-wlan.network": "[Match]\nType=wlan\n\n[Network]\nDHCP=yes\n"}),
			"network-address-differs", nearMiss, "", 0},
		{"a first file without an address", byNetworkd(map[string]string{"10-lan.network": fixed, "05-none.network": "[Match]\nName=en*\n\n[Link]\nUnmanaged=yes\n"}),
			"network-address-differs", blocks, "05-none.network is the first", 2},

		// Hooks of ifup
		{"a hook whose program is gone", hook("#!/bin/sh\nset -e\n/usr/sbin/iptables-restore </etc/iptables.up.rules\n"), "network-config-invalid", blocks, "/etc/network/if-pre-up.d/iptables, line 3", 3},
		{"a hook whose last command is gone", hook("#!/bin/sh -u\n/usr/local/sbin/firewall up\n"), "network-config-invalid", blocks, "line 2", 2},
		{"a hook whose interpreter is gone", hook("#!/usr/bin/perl\nprint 1;\n"), "network-config-invalid", blocks, "interpreter /usr/bin/perl", 1},
		{"a command of the interface that is gone", func(m machine) {
			m.add("/etc/network/interfaces", "  pre-up /usr/sbin/iptables-restore < /etc/iptables.rules\n")
		},
			"network-config-invalid", blocks, "/usr/sbin/iptables-restore does not exist", 0},
		{"a command of the interface that reads a file that is gone", func(m machine) {
			m.program("/usr/sbin/iptables-restore", elfFile(elfAMD64, ""))
			m.add("/etc/network/interfaces", "  pre-up iptables-restore < /etc/iptables.rules\n")
		}, "network-config-invalid", blocks, "/etc/iptables.rules, which it reads", 0},
		{"near miss: a hook that allows for it", hook("#!/bin/sh\nset -e\n[ -x /usr/sbin/iptables-restore ] || exit 0\n/usr/sbin/iptables-restore </etc/iptables.up.rules\n"), "network-config-invalid", nearMiss, "", 0},
		{"near miss: a hook with folders of its own", hook("#!/bin/sh -e\nPATH=/opt/firewall/bin:$PATH\nfirewall up\n"), "network-config-invalid", nearMiss, "", 0},
		{"near miss: a hook that ends well", hook("#!/bin/sh\n/usr/local/sbin/firewall up\nexit 0\n"), "network-config-invalid", nearMiss, "", 0},
		{"near miss: a hook that nobody runs", func(m machine) {
			m.write("/etc/network/if-pre-up.d/iptables", "#!/bin/sh -e\n/usr/local/sbin/firewall up\n")
			m.program("/etc/network/if-pre-up.d/iptables.sh", "#!/bin/sh -e\n/usr/local/sbin/firewall up\n")
		}, "network-config-invalid", nearMiss, "", 0},
		{"near miss: a command of the interface that may fail", func(m machine) { m.add("/etc/network/interfaces", "  pre-up /usr/local/sbin/firewall up || true\n") }, "network-config-invalid", nearMiss, "", 0},

		{"no shell for ifup", func(m machine) { m.remove("/usr/bin/sh") }, "sh-missing", blocks, "/bin/sh does not start", 0},
		{"no shell, and the network needs none", func(m machine) {
			byNetworkd(map[string]string{"10-lan.network": fixed})(m)
			m.link("/usr/bin/sh", "dash")
		}, "sh-missing", degrades, "the file does not exist", 0},
		{"near miss: another shell", func(m machine) {
			m.program("/usr/bin/dash", elfFile(elfAMD64, "/lib64/ld-linux-x86-64.so.2"))
			m.link("/usr/bin/sh", "dash")
		}, "sh-missing", nearMiss, "", 0},

		// Chains beside input
		{"ARP", nft(open + "}\ntable arp filter {\n  chain input {\n    type filter hook input priority 0; policy drop;\n  }\n}\n"), "firewall-blocks-ssh", blocks, "drops the packets of ARP", 10},
		{"answers", nft(open + "  chain output {\n    type filter hook output priority 0; policy drop;\n    oif lo accept\n    udp dport 53 accept\n    ct state new tcp dport { 80, 443 } accept\n  }\n}\n"),
			"firewall-blocks-ssh", blocks, "drops what the machine answers", 8},
		{"packets before input", nft(open + "  chain early {\n    type filter hook prerouting priority -300; policy accept;\n    tcp dport { 22, 80 } drop\n  }\n}\n"), "firewall-blocks-ssh", blocks, "/etc/nftables.conf, line 9", 9},
		{"near miss: all packets of one device", nft("table netdev filter {\n  chain in {\n    type filter hook ingress device enp1s0 priority 0; policy drop;\n  }\n}\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: a chain in two blocks", nft("table inet filter {\n  chain input {\n    type filter hook input priority 0; policy drop;\n  }\n}\ntable inet filter {\n  chain input {\n    tcp dport 22 accept\n  }\n}\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: a rule that leaves the chain", nft("table inet filter {\n  chain input {\n    type filter hook input priority 0; policy accept;\n    iifname \"enp1s0\" return\n    drop\n  }\n}\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"a second chain of input", nft(open + "  chain late {\n    type filter hook input priority 10; policy drop;\n    tcp dport 443 accept\n  }\n}\n"), "firewall-blocks-ssh", blocks, "/etc/nftables.conf, line 8", 8},
		{"near miss: ARP that a rule lets in", nft(open + "}\ntable arp filter {\n  chain input {\n    type filter hook input priority 0; policy drop;\n    arp operation { request, reply } accept\n  }\n}\n"),
			"firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: answers that a rule lets out", nft(open + "  chain output {\n    type filter hook output priority 0; policy drop;\n    ct state established,related accept\n    oif lo accept\n  }\n}\n"),
			"firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: answers of one port", nft(open + "  chain output {\n    type filter hook output priority 0; policy drop;\n    tcp sport 22 accept\n  }\n}\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: nothing of IPv6, and nothing is forwarded", nft("table ip6 filter {\n  chain input {\n    type filter hook input priority 0; policy drop;\n  }\n}\ntable inet x {\n  chain forward {\n    type filter hook forward priority 0; policy drop;\n  }\n}\n"),
			"firewall-blocks-ssh", nearMiss, "", 0},

		// Rules that scripts and units load
		{"commands of rc.local", local("#!/bin/sh -e\nnft add table inet office\nnft add chain inet office input \"{ type filter hook input priority 0 ; policy drop ; }\"\nnft add rule inet office input iif lo accept\nexit 0\n"),
			"firewall-blocks-ssh", blocks, "/etc/rc.local, line 3", 3},
		{"commands of iptables in rc.local", local("#!/bin/sh\n# office\niptables -P INPUT DROP\n/usr/sbin/iptables -A INPUT -i lo -j ACCEPT\niptables -A INPUT -p tcp --dport 443 -j ACCEPT\n"),
			"firewall-blocks-ssh", blocks, "/etc/rc.local, line 3", 3},
		{"a file that a unit loads", func(m machine) {
			m.write("/etc/firewall.rules", "*filter\n:INPUT DROP [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n")
			m.write("/etc/systemd/system/rules.service", "[Service]\nType=oneshot\nExecStart=/bin/sh -c \"/usr/sbin/iptables-restore < /etc/firewall.rules\"\n")
			m.link("/etc/systemd/system/multi-user.target.wants/rules.service", "/etc/systemd/system/rules.service")
		}, "firewall-blocks-ssh", blocks, "/etc/firewall.rules, line 2", 2},
		{"a file that rc.local loads", func(m machine) {
			m.write("/etc/office.nft", "table inet filter {\n  chain input {\n    type filter hook input priority 0; policy drop;\n  }\n}\n")
			m.program("/etc/rc.local", "#!/bin/sh\nnft -f /etc/office.nft\nexit 0\n")
		}, "firewall-blocks-ssh", blocks, "/etc/office.nft, line 3", 3},
		{"near miss: a script that lets ssh in", local("#!/bin/sh\niptables -P INPUT DROP\niptables -A INPUT -p tcp --dport 22 -j ACCEPT\nnft add table inet x\nnft add chain inet x y '{ type filter hook input priority 0 ; policy drop ; }'\nnft add rule inet x y tcp dport 22 accept\n"),
			"firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: a script that is not executable", func(m machine) { m.write("/etc/rc.local", "#!/bin/sh\niptables -P INPUT DROP\n") }, "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: commands with a condition", local("#!/bin/sh\nif [ -e /etc/closed ]; then\n  iptables -P INPUT DROP\nfi\n"), "firewall-blocks-ssh", nearMiss, "", 0},
		{"near miss: a unit that nobody starts", func(m machine) {
			m.write("/etc/firewall.rules", "*filter\n:INPUT DROP [0:0]\nCOMMIT\n")
			m.write("/etc/systemd/system/rules.service", "[Service]\nExecStart=/usr/sbin/iptables-restore /etc/firewall.rules\n")
		}, "firewall-blocks-ssh", nearMiss, "", 0},
	})

	const state = "/var/lib/NetworkManager/NetworkManager.state"
	manager := func(change func(machine)) func(machine) {
		return func(m machine) {
			byNetworkManager(m)
			change(m)
		}
	}
	typeDBus := func(m machine) {
		m.write("/usr/lib/systemd/system/dbus.socket", "[Socket]\nListenStream=/run/dbus/system_bus_socket\n")
		m.edit("/usr/lib/systemd/system/NetworkManager.service", "[Service]\n", "[Service]\nType=dbus\n")
	}
	addAccessCases("ubuntu-netplan", []accessCase{
		{"a state that keeps all down", manager(func(m machine) { m.write(state, "[main]\nNetworkingEnabled=false\nWirelessEnabled=true\n") }), "network-nothing-configured", blocks, state + ", line 2", 2},
		{"an interface that is left to ifupdown", manager(func(m machine) {
			m.write("/etc/network/interfaces", "auto lo\niface lo inet loopback\n\niface enp1s0 inet dhcp\n")
		}),
			"network-nothing-configured", blocks, "/etc/network/interfaces, line 4", 4},
		{"a mode that waits for a person", manager(func(m machine) {
			m.write("/etc/netplan/90-maintenance.yaml", "network:\n  version: 2\n  ethernets:\n    enp1s0:\n      activation-mode: manual\n")
		}), "network-nothing-configured", blocks, "/etc/netplan/90-maintenance.yaml, line 5 says activation-mode: manual", 5},
		{"a mode that waits for a person, without NetworkManager", func(m machine) {
			m.write("/etc/netplan/90-maintenance.yaml", "network:\n  version: 2\n  ethernets:\n    enp1s0:\n      activation-mode: off\n")
		}, "network-nothing-configured", blocks, "/etc/netplan/90-maintenance.yaml, line 5 says activation-mode: off", 5},
		{"near miss: a state that keeps the radio down", manager(func(m machine) { m.write(state, "[main]\nNetworkingEnabled=true\nWirelessEnabled=false\n") }), "network-nothing-configured", nearMiss, "", 0},
		{"near miss: a state of a manager that does not start", func(m machine) { m.write(state, "[main]\nNetworkingEnabled=false\n") }, "network-nothing-configured", nearMiss, "", 0},
		{"near miss: interfaces that NetworkManager takes over", manager(func(m machine) {
			m.edit("/etc/NetworkManager/NetworkManager.conf", "managed=false", "managed=true")
			m.write("/etc/network/interfaces", "iface enp1s0 inet dhcp\n")
		}), "network-nothing-configured", nearMiss, "", 0},
		{"near miss: another interface that is left to ifupdown", manager(func(m machine) {
			m.write("/etc/network/interfaces", "auto lo\niface lo inet loopback\niface enp9s0 inet dhcp\n")
		}),
			"network-nothing-configured", nearMiss, "", 0},
		{"a masked bus", manager(func(m machine) {
			typeDBus(m)
			m.link("/etc/systemd/system/dbus.socket", "/dev/null")
			m.link("/etc/systemd/system/dbus.service", "/dev/null")
		}), "network-unit-invalid", blocks, "dbus.socket does not start", 0},
		{"near miss: a bus", manager(typeDBus), "network-unit-invalid", nearMiss, "", 0},
	})
	for _, argument := range strings.Fields("module_blacklist modprobe.blacklist") {
		ruleCases = append(ruleCases, ruleCase{argument + " holds in the initramfs too", "debian-bios", "network-driver-blocked", blocks, func(t *testing.T, in *installed) {
			in.write("/boot/initrd.img-"+debian12, debianInitramfs(debian12, "usr/lib/modules/"+debian12+"/kernel/drivers/net/virtio_net.ko"))
			in.replace(t, "/boot/grub/grub.cfg", " ro  quiet", " ro  quiet "+argument+"=virtio_net")
		}})
	}
}

// A chain of another hook, or of a table that holds neither IPv4 nor ARP, refuses nothing that a connection needs.
func TestNftablesWithoutChains(t *testing.T) {
	for _, text := range []string{"", "flush ruleset\n", "table inet x {\n}\n", "chain\n", "table inet x { chain y { policy drop; } }\n"} {
		if f := config.ParseNftables(diagnose.SplitLines(text), "/x", []int{22}); f != nil {
			t.Errorf("%q is closed by %+v", text, f)
		}
	}
}
