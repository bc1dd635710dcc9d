package system

import (
	"encoding/json"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func init() {
	blocks, degrades, info := diagnose.BlocksAccess, diagnose.Degrades, diagnose.Info
	const interfaces, netplanFile = "/etc/network/interfaces", "/etc/netplan/50-cloud-init.yaml"
	lo := "auto lo\niface lo inet loopback\n"
	text := func(path, text string) func(machine) { return func(m machine) { m.write(path, text) } }
	static := func(address, gateway string) string {
		return lo + "auto enp1s0\niface enp1s0 inet static\n  address " + address + "\n  gateway " + gateway + "\n"
	}
	data := func(address, gateway string) json.RawMessage {
		return json.RawMessage(`{"links":[{"id":"a","ethernet_mac_address":"52:54:00:12:34:56"}],"networks":[{"link":"a","type":"ipv4","ip_address":"` + address +
			`","netmask":"255.255.255.0","routes":[{"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"` + gateway + `"}]}]}`)
	}
	second := func(m machine) {
		m.NICs = append(m.NICs, diagnose.NIC{MAC: "52:54:00:12:34:57", Names: []string{"enp2s0", "eth1"}})
	}
	addAccessCases("debian-bios", []accessCase{
		{"another name", text(interfaces, lo+"auto enp9s0\niface enp9s0 inet dhcp\n"), "network-interface-missing", blocks, "interface enp9s0 in /etc/network/interfaces, line 4", 4},
		{"eth0 with names of udev", func(m machine) {
			m.write("/usr/lib/systemd/network/99-default.link", "[Match]\nOriginalName=*\n[Link]\nNamePolicy=keep kernel database onboard slot path\n")
			m.write(interfaces, lo+"auto eth0\niface eth0 inet dhcp\n")
		}, "network-interface-missing", blocks, "eth0", 4},
		{"stale rule of udev", func(m machine) {
			m.write("/etc/udev/rules.d/70-persistent-net.rules", "# disk\nSUBSYSTEM==\"net\", ACTION==\"add\", ATTR{address}==\"52:54:00:99:99:99\", NAME=\"lan0\"\n")
			m.write(interfaces, lo+"auto lan0\niface lan0 inet dhcp\n")
		}, "network-interface-missing", blocks, "/etc/udev/rules.d/70-persistent-net.rules, line 2", 4},
		{"one of two", func(m machine) { m.add(interfaces, "auto enp9s0\niface enp9s0 inet dhcp\n") }, "network-interface-missing", degrades, "enp9s0", 9},
		{"slave of a bond", text(interfaces, lo+"auto bond0\niface bond0 inet dhcp\n  bond-slaves enp8s0 enp9s0\n"), "network-interface-missing", blocks, "enp8s0", 5},
		{"below a VLAN", text(interfaces, lo+"auto enp9s0.100\niface enp9s0.100 inet dhcp\n"), "network-interface-missing", blocks, "enp9s0", 4},
		{"near miss: eth0 without names of udev", func(m machine) {
			m.write("/usr/lib/systemd/network/99-default.link", "[Match]\nOriginalName=*\n[Link]\nNamePolicy=keep kernel database onboard slot path\n")
			m.edit("/etc/default/grub", `GRUB_CMDLINE_LINUX=""`, `GRUB_CMDLINE_LINUX="net.ifnames=0 biosdevname=0"`)
			m.write(interfaces, lo+"auto eth0\niface eth0 inet dhcp\n")
		}, "network-interface-missing", nearMiss, "", 0},
		{"near miss: hot-plugged and absent", func(m machine) { m.add(interfaces, "allow-hotplug usb0\niface usb0 inet dhcp\n") }, "network-interface-missing", nearMiss, "", 0},
		{"near miss: named by a rule", func(m machine) {
			m.write("/etc/systemd/network/10-lan.link", "[Match]\nMACAddress=52:54:00:12:34:56\n[Link]\nName=lan0\n")
			m.write(interfaces, lo+"auto lan0\niface lan0 inet dhcp\n")
		}, "network-interface-missing", nearMiss, "", 0},
		{"near miss: bridge and tunnel", func(m machine) {
			m.write(interfaces, lo+"auto vmbr0\niface vmbr0 inet static\n  address 192.0.2.7/24\n  gateway 192.0.2.1\n  bridge-ports enp1s0\n  bridge-stp off\n"+
				"iface enp1s0 inet manual\nauto office\niface office inet static\n  address 10.0.0.1/24\n  pre-up ip link add office type wireguard\n")
		}, "network-interface-missing", nearMiss, "", 0},

		{"loopback only", text(interfaces, lo), "network-nothing-configured", blocks, "ifupdown", 0},
		{"near miss: NetworkManager beside", func(m machine) {
			m.write(interfaces, lo)
			m.link("/etc/systemd/system/multi-user.target.wants/NetworkManager.service", "/usr/lib/systemd/system/NetworkManager.service")
		}, "network-nothing-configured", nearMiss, "", 0},

		{"no method", text(interfaces, lo+"auto enp1s0\niface enp1s0 inet\n"), "network-config-invalid", blocks, "line 4", 4},
		{"an option without a value", text(interfaces, lo+"auto enp1s0\niface enp1s0 inet dhcp\n\tdhcp\n"), "network-config-invalid", blocks, `"dhcp" has no value`, 5},
		{"near miss: a stanza that inherits", text(interfaces, lo+"iface base inet static\n  address 192.0.2.7/24\nauto enp1s0\niface enp1s0 inherits base\niface enp1s0 inet6 static inherits base\n"),
			"network-config-invalid", nearMiss, "", 0},
		{"misspelt method", text(interfaces, lo+"auto enp1s0\niface enp1s0 inet dchp\n"), "network-config-invalid", blocks, `"dchp"`, 4},
		{"outside", text(interfaces, "addres 192.0.2.1\n"+lo+"auto enp1s0\niface enp1s0 inet dhcp\n"), "network-config-invalid", blocks, `"addres"`, 1},
		{"in an included file", func(m machine) { m.write("/etc/network/interfaces.d/lan", "iface enp2s0 inet6 dchp\n") }, "network-config-invalid", blocks, "/etc/network/interfaces.d/lan", 1},
		{"near miss: much syntax", func(m machine) {
			m.write("/etc/network/interfaces.d/lan", "# lan\nno-auto-down enp1s0\nmapping enp1s0\n  script /usr/sbin/which\n  map home\niface home inet \\\n  manual\n  up ip link set $IFACE up\n")
		}, "network-config-invalid", nearMiss, "", 0},

		{"not enabled", func(m machine) { m.remove("/etc/systemd/system/multi-user.target.wants/networking.service") }, "network-none-enabled", blocks, "networking.service", 0},
		{"masked", func(m machine) { m.link("/etc/systemd/system/networking.service", "/dev/null") }, "network-none-enabled", blocks, "masked", 0},
		{"near miss: hotplug of udev", func(m machine) {
			m.remove("/etc/systemd/system/multi-user.target.wants/networking.service")
			m.program("/usr/lib/udev/ifupdown-hotplug", "#!/bin/sh\n")
		}, "network-none-enabled", nearMiss, "", 0},
		{"near miss: nothing was ever configured", func(m machine) {
			m.remove("/etc/systemd/system/multi-user.target.wants/networking.service")
			m.remove(interfaces)
			m.remove("/usr/lib/systemd/system/NetworkManager.service")
			m.write("/usr/lib/systemd/network/80-container-host0.network", "[Match]\nVirtualization=container\nName=host0\n[Network]\nDHCP=yes\n")
		}, "network-none-enabled", nearMiss, "", 0},
		{"near miss: dhcpcd", func(m machine) {
			m.remove("/etc/systemd/system/multi-user.target.wants/networking.service")
			m.write("/usr/lib/systemd/system/dhcpcd.service", "[Service]\n")
			m.link("/etc/systemd/system/multi-user.target.wants/dhcpcd.service", "/usr/lib/systemd/system/dhcpcd.service")
		}, "network-none-enabled", nearMiss, "", 0},

		{"gateway elsewhere", text(interfaces, static("192.0.2.7/24", "203.0.113.1")), "network-gateway-unreachable", blocks, "203.0.113.1 in /etc/network/interfaces, line 6", 6},
		{"gateway elsewhere, mask by itself", text(interfaces, static("192.0.2.7\n  netmask 255.255.255.240", "192.0.2.17")), "network-gateway-unreachable", blocks, "192.0.2.17", 7},
		{"gateway that network_data corrects", func(m machine) {
			m.write(interfaces, static("192.0.2.7/24", "203.0.113.1"))
			m.NetworkData = data("192.0.2.7", "192.0.2.1")
		}, "network-gateway-unreachable", blocks, "203.0.113.1", 6},
		{"near miss: a route to the gateway", text(interfaces, static("192.0.2.7/24", "203.0.113.1")+"  pre-up ip route add 203.0.113.1 dev enp1s0\n"), "network-gateway-unreachable", nearMiss, "", 0},
		{"near miss: single address", text(interfaces, static("192.0.2.7/32", "203.0.113.1")), "network-gateway-unreachable", nearMiss, "", 0},
		{"near miss: right", func(m machine) {
			m.write(interfaces, static("192.0.2.7/24", "192.0.2.1"))
			m.NetworkData = data("192.0.2.7", "192.0.2.1")
		}, "network-gateway-unreachable", nearMiss, "", 0},
		{"another address", func(m machine) {
			m.write(interfaces, static("198.51.100.7/24", "198.51.100.1"))
			m.NetworkData = data("192.0.2.7", "192.0.2.1")
		}, "network-address-differs", blocks, "network_data says 192.0.2.7/24", 4},
		{"another address of the same network", func(m machine) {
			m.write(interfaces, static("192.0.2.8/24", "192.0.2.1"))
			m.NetworkData = data("192.0.2.7", "192.0.2.1")
		}, "network-address-differs", info, "192.0.2.7/24", 4},
		{"near miss: DHCP", func(m machine) { m.NetworkData = data("192.0.2.7", "192.0.2.1") }, "network-address-differs", nearMiss, "", 0},

		{"two managers", func(m machine) {
			m.link("/etc/systemd/system/multi-user.target.wants/systemd-networkd.service", "/usr/lib/systemd/system/systemd-networkd.service")
			m.write("/etc/systemd/network/10-lan.network", "[Match]\nName=enp1s0\n[Network]\nDHCP=yes\n")
		}, "network-managers-conflict", degrades, "ifupdown and by systemd-networkd", 0},
		{"near miss: one for each", func(m machine) {
			second(m)
			m.link("/etc/systemd/system/multi-user.target.wants/systemd-networkd.service", "/usr/lib/systemd/system/systemd-networkd.service")
			m.write("/etc/systemd/network/10-lan.network", "[Match]\nName=enp2s0\n[Network]\nDHCP=yes\n")
		}, "network-managers-conflict", nearMiss, "", 0},
	})

	networkd := func(text string) func(machine) {
		return func(m machine) {
			m.remove("/etc/netplan")
			m.write("/usr/lib/systemd/network/80-container-host0.network", "[Match]\nKind=veth\nName=host0\nVirtualization=container\n[Network]\nDHCP=yes\n")
			m.write("/etc/systemd/network/10-lan.network", text)
		}
	}
	addAccessCases("ubuntu-netplan", []accessCase{
		{"netplan: address of another machine", func(m machine) { m.edit(netplanFile, "52:54:00:12:34:56", "52:54:00:aa:bb:cc") }, "network-mac-changed", blocks, "52:54:00:aa:bb:cc", 4},
		{"netplan: another name", text(netplanFile, "network:\n  version: 2\n  ethernets:\n    enp9s0:\n      dhcp4: true\n"), "network-interface-missing", blocks, "line 4", 4},
		{"near miss: netplan by driver", text(netplanFile, "network:\n  version: 2\n  ethernets:\n    all:\n      match: {driver: virtio_net}\n      dhcp4: true\n    x:\n      match: {name: 'en*'}\n      dhcp4: true\n"), "network-mac-changed", nearMiss, "", 0},
		{"near miss: netplan optional and absent", func(m machine) {
			m.add(netplanFile, "        enp9s0:\n            optional: true\n            dhcp4: true\n")
		}, "network-interface-missing", nearMiss, "", 0},
		{"tab in YAML", text(netplanFile, "network:\n  version: 2\n\tethernets: {}\n"), "network-config-invalid", blocks, "tab", 3},
		{"no YAML", text(netplanFile, "network:\n  ethernets:\n    enp1s0:\n      dhcp4: true\n     addresses: [\n"), "network-config-invalid", blocks, "YAML", 0},
		{"misspelt key", text(netplanFile, "network:\n  version: 2\n  ethernets:\n    enp1s0:\n      dchp4: true\n"), "network-config-invalid", blocks, "dhcp4 is near", 5},
		{"bond of what is not defined", text(netplanFile, "network:\n  version: 2\n  ethernets:\n    enp1s0: {dhcp4: true}\n  bonds:\n    bond0:\n      interfaces: [enp1s0, enp2s0]\n"), "network-config-invalid", blocks, "enp2s0", 6},
		{"netplan: gateway elsewhere", text(netplanFile, "network:\n  version: 2\n  ethernets:\n    enp1s0:\n      addresses: [192.0.2.7/24]\n      routes:\n      - to: default\n        via: 203.0.113.1\n"), "network-gateway-unreachable", blocks, "203.0.113.1", 4},
		{"near miss: netplan on-link", text(netplanFile, "network:\n  version: 2\n  ethernets:\n    enp1s0:\n      addresses: [192.0.2.7/24]\n      routes:\n      - to: default\n        via: 203.0.113.1\n        on-link: true\n"), "network-gateway-unreachable", nearMiss, "", 0},
		{"netplan: networkd is masked", func(m machine) { m.link("/etc/systemd/system/systemd-networkd.service", "/dev/null") }, "network-none-enabled", blocks, "masked", 0},
		{"near miss: two files of netplan", func(m machine) {
			m.write("/etc/netplan/60-more.yaml", "network:\n  version: 2\n  renderer: networkd\n  bridges:\n    br0:\n      interfaces: [enp1s0]\n      dhcp4: true\n")
		}, "network-config-invalid", nearMiss, "", 0},

		{"networkd: another name", networkd("[Match]\nName=enp9s0\n[Network]\nDHCP=yes\n"), "network-interface-missing", blocks, "line 2", 2},
		{"networkd: another address", networkd("[Match]\nMACAddress=52:54:00:aa:bb:cc\n[Network]\nDHCP=yes\n"), "network-mac-changed", blocks, "line 2", 2},
		{"networkd: nothing", networkd("[Match]\nName=wg0\n[Network]\nAddress=10.0.0.1/24\n"), "network-nothing-configured", blocks, "systemd-networkd", 0},
		{"near miss: networkd by pattern", networkd("[Match]\nName=en* eth*\n[Network]\nAddress=192.0.2.7/24\nGateway=192.0.2.1\n"), "network-interface-missing", nearMiss, "", 0},
		{"near miss: networkd by type", networkd("[Match]\nType=ether\n[Network]\nDHCP=yes\n"), "network-nothing-configured", nearMiss, "", 0},
		{"near miss: networkd on-link", networkd("[Match]\nName=enp1s0\n[Network]\nAddress=192.0.2.7/24\n[Route]\nGateway=203.0.113.1\nGatewayOnLink=yes\n"), "network-gateway-unreachable", nearMiss, "", 0},
	})

	const keyfile = "/etc/NetworkManager/system-connections/enp1s0.nmconnection"
	addAccessCases("rhel-lvm", []accessCase{
		{"NetworkManager: static on another name", text(keyfile, "[connection]\nid=a\ntype=ethernet\ninterface-name=enp9s0\n[ipv4]\nmethod=manual\naddress1=192.0.2.7/24,192.0.2.1\n"), "network-interface-missing", blocks, "line 4", 4},
		{"NetworkManager: DHCP on another name", func(m machine) { m.edit(keyfile, "interface-name=enp1s0", "interface-name=enp9s0") }, "network-interface-missing", info, "enp9s0", 5},
		{"NetworkManager: address of another machine", func(m machine) {
			m.write("/etc/NetworkManager/conf.d/00-server.conf", "[main]\nno-auto-default=*\nignore-carrier=*\n")
			m.write(keyfile, "[connection]\nid=a\ntype=ethernet\n[ethernet]\nmac-address=52:54:00:AA:BB:CC\n[ipv4]\nmethod=auto\n")
		}, "network-mac-changed", blocks, "52:54:00:aa:bb:cc", 5},
		{"NetworkManager: open file", func(m machine) {
			m.write("/etc/NetworkManager/conf.d/00-server.conf", "[main]\nno-auto-default=*\n")
			m.mode(keyfile, 0o644)
		}, "network-config-invalid", blocks, "0644", 0},
		{"near miss: NetworkManager by address", text(keyfile, "[connection]\nid=a\ntype=ethernet\n[ethernet]\nmac-address=52:54:00:12:34:56\n[ipv4]\nmethod=auto\n"), "network-mac-changed", nearMiss, "", 0},
		{"NetworkManager: member of a bond", func(m machine) {
			m.write(keyfile, "[connection]\nid=bond0\ntype=bond\ninterface-name=bond0\n[ipv4]\nmethod=auto\n")
			m.writeMode("/etc/NetworkManager/system-connections/member.nmconnection", "[connection]\nid=member\ntype=ethernet\ninterface-name=enp9s0\nmaster=bond0\nslave-type=bond\n", 0o600)
		}, "network-interface-missing", blocks, "enp9s0", 4},
		{"near miss: bond of NetworkManager", func(m machine) {
			m.write(keyfile, "[connection]\nid=bond0\ntype=bond\ninterface-name=bond0\n[ipv4]\nmethod=auto\n")
		}, "network-interface-missing", nearMiss, "", 0},
		{"not enabled", func(m machine) { m.remove("/etc/systemd/system/multi-user.target.wants/NetworkManager.service") }, "network-none-enabled", blocks, "NetworkManager.service", 0},
		{"ifcfg: address of another machine", func(m machine) {
			m.write("/etc/NetworkManager/conf.d/00-server.conf", "[main]\nno-auto-default=*\n")
			m.remove(keyfile)
			m.write("/etc/sysconfig/network-scripts/ifcfg-eth0", "TYPE=Ethernet\nDEVICE=eth0\nHWADDR=52:54:00:AA:BB:CC\nONBOOT=yes\nBOOTPROTO=dhcp\n")
		}, "network-mac-changed", blocks, "52:54:00:aa:bb:cc", 2},
		{"near miss: ifcfg", func(m machine) {
			m.remove(keyfile)
			m.write("/etc/sysconfig/network-scripts/ifcfg-enp1s0", "TYPE=Ethernet\nDEVICE=enp1s0\nONBOOT=yes\nBOOTPROTO=none\nIPADDR=192.0.2.7\nPREFIX=24\nGATEWAY=192.0.2.1\n")
			m.write("/etc/sysconfig/network-scripts/ifcfg-enp9s0", "DEVICE=enp9s0\nONBOOT=no\n")
		}, "network-interface-missing", nearMiss, "", 0},
	})
	addAccessCases("rhel-lvm", []accessCase{
		{"NetworkManager was given another one", func(m machine) {
			m.add("/etc/ssh/sshd_config", "ListenAddress 192.0.2.99\n")
			m.write("/var/lib/NetworkManager/internal-0a-enp1s0.lease", "ADDRESS=192.0.2.7\n")
		}, "sshd-listens-nowhere", blocks, "192.0.2.99", 0},
		{"near miss: NetworkManager was given it", func(m machine) {
			m.add("/etc/ssh/sshd_config", "ListenAddress 2001:db8::99\n")
			m.write("/var/lib/NetworkManager/internal-0a-enp1s0.lease", "# This is private data. Do not parse.\nADDRESS=2001:db8::99\n")
		}, "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: NetworkManager may be given it", func(m machine) { m.add("/etc/ssh/sshd_config", "ListenAddress 192.0.2.99\n") }, "sshd-listens-nowhere", nearMiss, "", 0},
	})
	wicked := func(name, text string) func(machine) {
		return func(m machine) {
			m.remove("/etc/systemd/system/multi-user.target.wants/NetworkManager.service")
			m.write("/usr/lib/systemd/system/wicked.service", "[Service]\n")
			m.link("/etc/systemd/system/multi-user.target.wants/wicked.service", "/usr/lib/systemd/system/wicked.service")
			m.remove("/etc/sysconfig/network")
			m.write("/etc/sysconfig/network/config", "NETCONFIG=yes\n")
			m.write("/etc/sysconfig/network/ifcfg-"+name, text)
		}
	}
	addAccessCases("suse-btrfs", []accessCase{
		{"wicked: another name", wicked("eth9", "BOOTPROTO='dhcp'\nSTARTMODE='auto'\n"), "network-interface-missing", blocks, "eth9", 0},
		{"near miss: wicked", wicked("eth0", "BOOTPROTO='static'\nIPADDR='192.0.2.7/24'\nSTARTMODE='auto'\n"), "network-interface-missing", nearMiss, "", 0},
	})
	listen := func(address, sshd string) func(machine) {
		return func(m machine) {
			m.write(interfaces, sshd)
			m.add("/etc/ssh/sshd_config", "ListenAddress "+address+"\n")
		}
	}
	byDHCP := lo + "auto enp1s0\niface enp1s0 inet dhcp\n"
	leased := func(file, leases string) func(machine) {
		return func(m machine) {
			listen("192.0.2.99", byDHCP)(m)
			m.write("/usr/sbin/dhclient", "")
			m.write(file, leases)
		}
	}
	addAccessCases("debian-bios", []accessCase{
		{"address of another machine", listen("192.0.2.99", static("192.0.2.7/24", "192.0.2.1")), "sshd-listens-nowhere", blocks, "192.0.2.99", 8},
		{"address that network_data does not have", func(m machine) {
			m.add("/etc/ssh/sshd_config", "ListenAddress 192.0.2.99\n")
			m.NetworkData = data("192.0.2.7", "192.0.2.1")
		}, "sshd-listens-nowhere", blocks, "192.0.2.99", 8},
		{"near miss: its own address", listen("192.0.2.7:22", static("192.0.2.7/24", "192.0.2.1")), "sshd-listens-nowhere", nearMiss, "", 0},
		{"DHCP, which may give it", listen("192.0.2.99", byDHCP), "sshd-listens-nowhere", info, "192.0.2.99 only, by /etc/ssh/sshd_config, line 8, and the machine has this address only if DHCP gives it", 8},
		{"DHCP, which gave another one", leased("/var/lib/dhcp/dhclient.enp1s0.leases", "lease {\n  interface \"enp1s0\";\n  fixed-address 192.0.2.7;\n}\n"), "sshd-listens-nowhere", blocks, "no lease of the machine", 8},
		{"near miss: DHCP may give it", listen("192.0.2.99", byDHCP), "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: DHCP gave it", leased("/var/lib/dhcp/dhclient.enp1s0.leases", "lease {\n  fixed-address 192.0.2.7;\n}\nlease {\n  fixed-address 192.0.2.99;\n}\n"), "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: an old lease of NetworkManager", leased("/var/lib/NetworkManager/internal-0a-enp1s0.lease", "ADDRESS=192.0.2.7\n"), "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: an old lease of dhclient", func(m machine) { // ifupdown uses dhcpcd now
			leased("/var/lib/dhcp/dhclient.enp1s0.leases", "lease {\n  fixed-address 192.0.2.7;\n}\n")(m)
			m.remove("/usr/sbin/dhclient")
			m.program("/usr/sbin/dhcpcd", "\x7fELF")
		}, "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: WireGuard", func(m machine) {
			listen("10.8.0.1", static("192.0.2.7/24", "192.0.2.1"))(m)
			m.write("/etc/wireguard/wg0.conf", "[Interface]\nAddress = 10.8.0.1/24\n")
		}, "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: Tailscale", func(m machine) {
			listen("100.64.0.1", static("192.0.2.7/24", "192.0.2.1"))(m)
			m.write("/usr/sbin/tailscaled", "")
		}, "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: OpenVPN", func(m machine) {
			listen("10.8.0.1", static("192.0.2.7/24", "192.0.2.1"))(m)
			m.write("/usr/sbin/openvpn", "")
		}, "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: DHCP beside a network of network_data", func(m machine) {
			second(m)
			listen("192.0.2.99", byDHCP+"auto enp2s0\niface enp2s0 inet dhcp\n")(m)
			m.NetworkData = data("192.0.2.7", "192.0.2.1")
		}, "sshd-listens-nowhere", nearMiss, "", 0},
		{"DHCP, and network_data has another one", func(m machine) {
			listen("192.0.2.99", byDHCP)(m)
			m.NetworkData = data("192.0.2.7", "192.0.2.1")
		}, "sshd-listens-nowhere", blocks, "192.0.2.99", 8},
		{"near miss: all addresses", listen("0.0.0.0", static("192.0.2.7/24", "192.0.2.1")), "sshd-listens-nowhere", nearMiss, "", 0},
	})
	addAccessCases("alpine-openrc", []accessCase{
		{"another name", func(m machine) { m.write(interfaces, lo+"auto eth9\niface eth9 inet dhcp\n") }, "network-interface-missing", blocks, "eth9", 4},
		{"not enabled", func(m machine) { m.remove("/etc/runlevels/boot/networking") }, "network-none-enabled", blocks, "run level", 0},
		{"sshd not enabled", func(m machine) { m.remove("/etc/runlevels/default/sshd") }, "sshd-not-enabled", blocks, "sshd", 0},
		{"near miss: short stanzas", func(m machine) { m.write(interfaces, "auto lo\niface lo\nauto eth0\niface eth0\n  use dhcp\n") }, "network-config-invalid", nearMiss, "", 0},
	})
}

// A gateway that network_data corrects is more certain, and can be repaired.
func TestNetworkDataConfirms(t *testing.T) {
	m := machine{debianBIOS()}
	m.write(config.InterfacesPath, "auto enp1s0\niface enp1s0 inet static\n  address 192.0.2.7/24\n  gateway 203.0.113.1\n")
	m.NetworkData = json.RawMessage(`{"links":[{"id":"a","ethernet_mac_address":"52:54:00:12:34:56"}],"networks":[{"link":"a","type":"ipv4","ip_address":"192.0.2.7","netmask":"255.255.255.0",` +
		`"routes":[{"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"192.0.2.1"}]}]}`)
	for _, f := range findingsOf(t, m.installed) {
		if f.ID == "network-gateway-unreachable" {
			if f.Confidence < 0.9 || f.Repair == nil || !strings.Contains(f.Repair.Summary, "192.0.2.1") {
				t.Errorf("%+v", f)
			}
			return
		}
	}
	t.Error("not found")
}

func FuzzNetworkFiles(f *testing.F) {
	f.Add("auto lo\niface lo inet loopback\nsource *\niface a.1 inet static\n address 1.2.3.4\n gateway 1.2.3.5\n")
	f.Add("network:\n  ethernets:\n    a: {match: {name: 'en*'}, routes: [{to: default, via: 1.2.3.4}]}\n")
	f.Add("[Match]\nName=!a b\n[Route]\nGateway=1.2.3.4\n[Route]\nGateway=::1\nGatewayOnLink=yes\n")
	f.Add("DEVICE=eth0\nHWADDR=aabb.ccdd.eeff\nIPADDR0=1.2.3.4\nNETMASK0=255.0.255.0\n")
	f.Add(`{"networks":[{"link":"a","ip_address":"1.2.3.4","netmask":"255.255.255.0"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		in := newInstalled()
		in.writeAll(map[string]string{"/usr/sbin/ifup": "", config.InterfacesPath: text, "/usr/sbin/netplan": "", "/etc/netplan/a.yaml": text})
		tree := diagnose.NewTree(in.files)
		lines := strings.Split(text, "\n")
		for _, m := range []*config.NetworkManager{config.ReadIfupdown(tree), config.ReadNetplan(tree)} {
			if m == nil {
				t.Fatal("not read")
			}
			for _, l := range m.Links {
				l.Matches("52:54:00:12:34:56", []string{"eth0"})
			}
		}
		if len(config.ParseNetworkFile(lines)) > 64*64 {
			t.Error("too many links")
		}
		config.ParseKeyfile(lines)
		config.ParseIfcfg(lines, "eth0", true)
		config.ParseIfcfg(lines, "eth0", false)
		wantedNetworks(json.RawMessage(text))
	})
}
