//go:build e2e

package network

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"salvor/boot/ramdisk"
	"salvor/test/must"
)

// What a namespace on the developer's kernel cannot show is shown in a machine with
// the ramdisk's own kernel: bonds and VLANs, whose modules the kernel loads by the
// ramdisk's modprobe, a config drive that is really mounted, and an agent that takes
// the root of an initramfs for its own.
const inGuest = "SALVOR_TEST_GUEST"

const guestInit = `#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mkdir -p /tmp /run/salvor
modprobe -a virtio_pci virtio_net virtio_blk vfat nls_ascii nls_cp437 nls_iso8859_1 nls_utf8 ipv6 af_packet
salvor-agent run 2>&1
SALVOR_TEST_GUEST=1 /network.test -test.run '^TestInGuest$' -test.v 2>&1
echo "guest ends with status $?"
poweroff -f
`

const guestData = `{"links":[
 {"id":"e0","type":"phy","ethernet_mac_address":"52:54:00:aa:00:01"},{"id":"e1","type":"phy","ethernet_mac_address":"52:54:00:aa:00:02"},
 {"id":"e2","type":"phy","ethernet_mac_address":"52:54:00:aa:00:03"},
 {"id":"b","type":"bond","bond_links":["e0","e1"],"bond_mode":"balance-xor","bond_xmit_hash_policy":"layer3+4","ethernet_mac_address":"52:54:00:aa:00:01"},
 {"id":"v","type":"vlan","vlan_link":"b","vlan_id":7,"mtu":1400}],
"networks":[
 {"id":"a","type":"ipv4","link":"v","ip_address":"10.79.0.5","netmask":"255.255.255.0","routes":[{"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"10.79.0.1"}]},
 {"id":"c","type":"ipv6","link":"b","ip_address":"2001:db8::5/64","gateway":"2001:db8::1"},
 {"id":"d","type":"ipv4_dhcp","link":"e2"}],
"services":[{"type":"dns","address":"192.0.2.53"}]}`

// TestInGuest is what runs inside.
func TestInGuest(t *testing.T) {
	if os.Getenv(inGuest) == "" {
		return
	}
	text, err := configDrive()
	if err != nil || string(text) != guestData {
		t.Fatalf("config drive: %q, %v", text, err)
	}
	for round := range 2 { // init runs it again after a failure
		must.OK(t, WritePlan("/", Plan{Move: MoveYes, SSHInterfaces: []string{"52:54:00:aa:00:02", "52:54:00:aa:00:03"}}))
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		s := &Setup{Root: "/", Log: slog.New(slog.NewTextHandler(os.Stdout, nil))}
		err = s.Run(ctx)
		cancel()
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		listen, err := os.ReadFile("/" + ListenFile)
		lines := strings.Fields(string(listen))
		slices.Sort(lines)
		if err != nil || !slices.Equal(lines, []string{"10.0.2.15", "10.79.0.5", "2001:db8::5"}) {
			t.Errorf("round %d: ssh listens on %q, %v", round, lines, err)
		}
		checkLinks(t)
	}
	resolver, err := os.ReadFile("/etc/resolv.conf")
	if err != nil || !strings.HasPrefix(string(resolver), "nameserver 192.0.2.53\n") {
		t.Errorf("resolv.conf: %q, %v", resolver, err)
	}
}

func checkLinks(t *testing.T) {
	t.Helper()
	links := must.Get(netlink.LinkList())(t)
	members, found := 0, map[string]bool{}
	for _, link := range links {
		found[link.Type()] = true
		switch l := link.(type) {
		case *netlink.Bond:
			if l.Name == "bond0" {
				continue // the kernel's module makes it by itself
			}
			if l.Mode != netlink.BOND_MODE_BALANCE_XOR || l.Miimon != 100 || l.XmitHashPolicy != netlink.BOND_XMIT_HASH_POLICY_LAYER3_4 {
				t.Errorf("bond %+v", l)
			}
		case *netlink.Vlan:
			if l.VlanId != 7 || l.MTU != 1400 {
				t.Errorf("vlan %+v", l)
			}
		}
		if link.Attrs().Slave != nil {
			members++
		}
	}
	if members != 2 || !found["bond"] || !found["vlan"] {
		t.Errorf("%d members of a bond among %v", members, found)
	}
}

func TestGuest(t *testing.T) {
	if os.Getenv(inGuest) != "" {
		return
	}
	for tool, of := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "cpio": "cpio", "mcopy": "mtools"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing: install %s", tool, of)
		}
	}
	dir := t.TempDir()
	goBuild(t, "build", "-o", filepath.Join(dir, "salvor-agent"), "salvor/cmd/salvor-agent")
	must.OK(t, os.Mkdir(filepath.Join(dir, "over"), 0o755))
	goBuild(t, "test", "-c", "-tags", "e2e", "-o", filepath.Join(dir, "over/network.test"), ".")
	must.Get(ramdisk.Build(t.Context(), ramdisk.Options{Out: dir, Agent: filepath.Join(dir, "salvor-agent")}))(t)
	// A plain archive before the compressed one adds its files to it.
	must.OK(t, os.WriteFile(filepath.Join(dir, "over/test-init"), []byte(guestInit), 0o755))
	must.OK(t, os.WriteFile(filepath.Join(dir, "network_data.json"), []byte(guestData), 0o644))
	sh(t, "sh", "-ec", `cd "$1"
		(cd over && find . | cpio -o -H newc --quiet) > over.cpio
		cat over.cpio `+ramdisk.FileInitramfs+` > both
		mformat -C -i drive -f 1440 -v config-2 ::
		mmd -i drive ::openstack ::openstack/latest
		mcopy -i drive network_data.json ::openstack/latest/`, "sh", dir)
	console := boot(t, dir)
	if !strings.Contains(console, "ipa-api-url is missing") {
		t.Error("the agent does not take the initramfs for its own")
	}
	if !strings.Contains(console, "guest ends with status 0") || !strings.Contains(console, "--- PASS: TestInGuest") {
		t.Errorf("console:\n%s", console)
	}
}

func goBuild(t *testing.T, args ...string) {
	t.Helper()
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v: %s", args, err, out)
	}
}

// boot runs the machine to its end and gives what it said.
func boot(t *testing.T, dir string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	args := []string{"-machine", "q35,accel=tcg", "-cpu", "max", "-m", "512", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", filepath.Join(dir, ramdisk.FileKernel), "-initrd", filepath.Join(dir, "both"),
		"-append", "console=ttyS0 quiet panic=-1 rdinit=/test-init",
		"-drive", "if=virtio,format=raw,readonly=on,file=" + filepath.Join(dir, "drive")}
	for i, mac := range []string{"52:54:00:aa:00:01", "52:54:00:aa:00:02", "52:54:00:aa:00:03"} {
		backend := fmt.Sprintf("hubport,hubid=%d,id=n%d", i, i)
		if i == 2 {
			backend = "user,restrict=on,id=n2"
		}
		args = append(args, "-netdev", backend, "-device", fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=%s,romfile=", i, mac))
	}
	var output bytes.Buffer
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	qemu.Stdout, qemu.Stderr = &output, &output
	if err := qemu.Run(); err != nil {
		t.Fatalf("qemu: %v: %s", err, output.String())
	}
	return output.String()
}
