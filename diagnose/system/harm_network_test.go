package system

import (
	"encoding/json"
	"testing"

	"salvor/diagnose"
)

// networkSituations are about addresses and filters that somebody chose.
func networkSituations() []Situation {
	const interfaces, lo = "/etc/network/interfaces", "auto lo\niface lo inet loopback\n"
	nft := func(rules string) func(*testing.T, machine) {
		return func(_ *testing.T, m machine) {
			m.link("/etc/systemd/system/sysinit.target.wants/nftables.service", "/usr/lib/systemd/system/nftables.service")
			m.write("/usr/lib/systemd/system/nftables.service", "[Unit]\n[Service]\nExecStart=/usr/sbin/nft -f /etc/nftables.conf\n")
			m.write("/etc/nftables.conf", "#!/usr/sbin/nft -f\nflush ruleset\ntable inet filter {\n\tchain input {\n\t\ttype filter hook input priority 0; policy drop;\n\t\tiif lo accept\n"+rules+"\t}\n}\n")
		}
	}
	iptables := func(rules string) func(*testing.T, machine) {
		return func(_ *testing.T, m machine) {
			m.link("/etc/systemd/system/multi-user.target.wants/netfilter-persistent.service", "/usr/lib/systemd/system/netfilter-persistent.service")
			m.write("/usr/lib/systemd/system/netfilter-persistent.service", "[Unit]\n[Service]\nExecStart=/usr/sbin/netfilter-persistent start\n")
			m.write("/etc/iptables/rules.v4", "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\n"+rules+"COMMIT\n")
		}
	}
	const narrow = "the firewall lets ssh in from where it is meant to come"
	return []Situation{
		{Name: "a firewall with a map of verdicts", layout: "debian-bios", Why: narrow, change: nft("\t\tip protocol vmap { tcp : jump services, icmp : accept }\n")},
		{Name: "a firewall with a set of networks", layout: "debian-bios", Why: narrow, change: nft("\t\tip saddr @admins tcp dport 22 accept\n\t\ttcp dport { 80, 443 } accept\n")},
		{Name: "a firewall that lets ssh in by a VPN only", layout: "debian-bios", Why: narrow, change: nft("\t\tudp dport 51820 accept\n\t\tiifname \"wg0\" tcp dport 22 accept\n")},
		{Name: "a firewall of iptables with a source", layout: "debian-bios", Why: narrow, change: iptables("-A INPUT -s 10.0.0.0/8 -p tcp -m tcp --dport 22 -j ACCEPT\n")},
		{Name: "a firewall of iptables with a set", layout: "debian-bios", Why: narrow, change: iptables("-A INPUT -p tcp -m set --match-set admins src -j ACCEPT\n")},
		{Name: "a firewall that lets ssh in by IPsec only", layout: "debian-bios", Why: narrow, change: iptables("-A INPUT -p esp -j ACCEPT\n-A INPUT -m policy --dir in --pol ipsec -j ACCEPT\n")},
		{Name: "a firewall refuses ssh by its port", layout: "debian-bios", Finds: []string{"firewall-blocks-ssh"}, Why: "somebody wrote the rule on purpose",
			change: func(t *testing.T, m machine) {
				iptables("-A INPUT -p tcp -m tcp --dport 22 -j DROP\n")(t, m)
				m.edit("/etc/iptables/rules.v4", ":INPUT DROP", ":INPUT ACCEPT")
			}},
		{Name: "a firewall that is closed on purpose", layout: "debian-bios", Finds: []string{"firewall-blocks-ssh"}, Touches: []string{"/etc/nftables.conf"},
			Loses: map[string]string{"firewall-blocks-ssh": "every network"}, Why: "nobody reached the port before", change: nft("\t\ttcp dport { 80, 443 } accept\n")},
		{Name: "a static address whose file is not read", layout: "debian-bios", Finds: []string{"network-nothing-configured"}, Touches: []string{interfaces}, Never: []string{"dhcp"}, Why: "the address is there, and DHCP would give another one",
			change: func(_ *testing.T, m machine) {
				m.write(interfaces, lo)
				m.write("/etc/network/interfaces.d/enp1s0", "auto enp1s0\niface enp1s0 inet static\n  address 192.0.2.7/24\n  gateway 192.0.2.1\n")
			}},
		{Name: "a static address that is lost", layout: "debian-bios", Finds: []string{"network-nothing-configured"}, Touches: []string{interfaces},
			Loses: map[string]string{"network-nothing-configured": "static address"}, Why: "DHCP gives another address, or none", change: func(_ *testing.T, m machine) { m.write(interfaces, lo) }},
		{Name: "an address that network_data does not know", layout: "debian-bios", Finds: []string{"network-address-differs"}, Touches: []string{interfaces},
			Loses: map[string]string{"network-address-differs": "198.51.100.7"}, Why: "somebody may have moved the machine, and another machine may have the old address now",
			change: func(_ *testing.T, m machine) {
				m.write(interfaces, lo+"auto enp1s0\niface enp1s0 inet static\n  address 198.51.100.7/24\n  gateway 198.51.100.1\n")
				m.NetworkData = json.RawMessage(`{"links":[{"id":"a","ethernet_mac_address":"52:54:00:12:34:56"}],"networks":[{"link":"a","type":"ipv4","ip_address":"192.0.2.7",` +
					`"netmask":"255.255.255.0","routes":[{"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"192.0.2.1"}]}]}`)
			}},
		{Name: "the interface of a storage network is gone, and a new one is there", layout: "debian-bios", Finds: []string{"network-interface-missing"}, Touches: []string{interfaces},
			Loses: map[string]string{"network-interface-missing": "enp2s0"}, Why: "the new interface may be connected to another network",
			change: func(_ *testing.T, m machine) {
				m.add(interfaces, "auto enp9s0\niface enp9s0 inet static\n  address 10.1.0.7/24\n")
				m.NICs = append(m.NICs, diagnose.NIC{MAC: "52:54:00:12:34:57", Driver: "virtio_net", Names: []string{"enp2s0", "eth1"}})
			}},
		{Name: "two interfaces are gone, and one is there", layout: "debian-bios", Finds: []string{"network-interface-missing"}, Why: "nobody knows which of the two it is",
			change: func(_ *testing.T, m machine) {
				m.write(interfaces, lo+"auto eno1\niface eno1 inet static\n  address 10.1.0.7/24\nauto eno2\niface eno2 inet static\n  address 192.0.2.7/24\n  gateway 192.0.2.1\n")
			}},
		{Name: "a copy of a machine keeps the address of the original", layout: "debian-bios", Finds: []string{"network-mac-changed"}, Touches: []string{"/etc/systemd/network/10-lan.network"},
			Loses: map[string]string{"network-mac-changed": "192.0.2.7"}, Why: "two machines with one address disturb each other",
			change: func(_ *testing.T, m machine) {
				m.remove("/etc/network/interfaces")
				m.link("/etc/systemd/system/multi-user.target.wants/systemd-networkd.service", "/usr/lib/systemd/system/systemd-networkd.service")
				m.write("/etc/systemd/network/10-lan.network", "[Match]\nMACAddress=52:54:00:aa:bb:cc\n[Network]\nAddress=192.0.2.7/24\nGateway=192.0.2.1\n")
			}},
		{Name: "a stanza that loads the firewall", layout: "debian-bios", Finds: []string{"network-config-invalid"}, Touches: []string{interfaces},
			Loses: map[string]string{"network-config-invalid": "firewall"}, Why: "the network would come up without the rules",
			change: func(_ *testing.T, m machine) {
				m.add(interfaces, "\nauto dmz0\niface dmz0 inett static\n  address 192.0.2.99/24\n  pre-up iptables-restore < /etc/iptables.rules\n")
			}},
		{Name: "a connection that another account owns", layout: "rhel-lvm", Finds: []string{"network-config-invalid"}, Touches: []string{"/etc/NetworkManager/system-connections/enp1s0.nmconnection"},
			Loses: map[string]string{"network-config-invalid": "another account"}, Why: "the account may have written routes and servers of names there",
			change: func(_ *testing.T, m machine) {
				m.owner("/etc/NetworkManager/system-connections/enp1s0.nmconnection", 1000, 1000)
			}},
		{Name: "the network is made by a script", layout: "debian-bios", Finds: []string{"network-none-enabled"}, Touches: []string{"/etc/systemd/system/multi-user.target.wants/networking.service"},
			Loses: map[string]string{"network-none-enabled": "script"}, Why: "two programs would configure one interface",
			change: func(_ *testing.T, m machine) {
				m.remove("/etc/systemd/system/multi-user.target.wants/networking.service")
				m.writeMode("/etc/rc.local", "#!/bin/sh\nip address add 192.0.2.7/24 dev enp1s0\n", 0o755)
			}},
		{Name: "an interface is kept for guests", layout: "debian-bios/network-driver-blocked/one of two", Finds: []string{"network-driver-blocked"},
			Touches: []string{"/etc/modprobe.d/x.conf", "/boot/initrd.img-" + debian12, "runs /usr/sbin/update-initramfs"}, Loses: map[string]string{"network-driver-blocked": "guests"},
			Why: "a host of VMs gives whole interfaces to its guests"},
	}
}
