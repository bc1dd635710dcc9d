//go:build e2e

package network

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"salvor/boot/media"
	"salvor/boot/ramdisk"
	"salvor/lab/odd"
	"salvor/networkdata"
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
modprobe -a virtio_pci virtio_net virtio_blk vfat isofs nls_ascii nls_cp437 nls_iso8859_1 nls_utf8 ipv6 af_packet bonding 8021q
for m in llc stp bridge veth; do insmod "$(find /usr/lib/modules -name $m.ko)"; done
salvor-agent run 2>&1
SALVOR_TEST_GUEST=1 /network.test -test.run '^TestInGuest$' -test.v 2>&1
echo "guest ends with status $?"
SALVOR_TEST_GUEST=1 /network.test -test.run '^TestOddInGuest$' -test.v -test.timeout 0 2>&1
echo "odd data end with status $?"
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
	checkLargeSectors(t)
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

const largeSectorData = `{"links":[],"networks":[],"services":[]}`

// checkLargeSectors reads the config drives on disks with sectors of 4096 bytes: FAT, as the agent writes it, is mounted by Linux; an ISO 9660, as other
// deployers write it, is not, and is read nonetheless.
func checkLargeSectors(t *testing.T) {
	t.Helper()
	kinds := map[string]bool{}
	for _, name := range []string{"vdb", "vdc"} {
		if size := string(must.Get(os.ReadFile("/sys/block/" + name + "/queue/logical_block_size"))(t)); size != "4096\n" {
			t.Errorf("%s has sectors of %q bytes", name, size)
		}
		kind := driveKind("/dev/" + name)
		text, err := readDrive("/dev/"+name, kind)
		if err != nil || string(text) != largeSectorData {
			t.Errorf("%s (%s): %q, %v", name, kind, text, err)
		}
		at := t.TempDir()
		mounted := unix.Mount("/dev/"+name, at, kind, unix.MS_RDONLY, "")
		if mounted == nil {
			_ = unix.Unmount(at, 0)
		}
		if kinds[kind] = true; (mounted == nil) != (kind == "vfat") {
			t.Errorf("Linux mounts %s (%s): %v", name, kind, mounted)
		}
	}
	if !kinds["vfat"] || !kinds[kindISO] {
		t.Errorf("the drives are %v", kinds)
	}
}

// writeLargeSectorDrives writes both forms of a config drive, for disks with sectors of 4096 bytes.
func writeLargeSectorDrives(t *testing.T, dir string) {
	t.Helper()
	iso := must.Get(media.ConfigDrive(map[string][]byte{driveFile: []byte(largeSectorData)}))(t)
	volume := must.Get(media.DataFAT(driveLabel, must.Get(media.ISOFiles(iso))(t), 4096))(t)
	for name, content := range map[string][]byte{"fat4096": must.Get(io.ReadAll(volume))(t), "iso4096": iso} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		must.OK(t, os.Truncate(filepath.Join(dir, name), int64(len(content)+1<<20)&^4095))
	}
}

func checkLinks(t *testing.T) {
	t.Helper()
	links := must.Get(dumped(netlink.LinkList))(t)
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

// guestCases are public reports about bonds, VLANs and mtus, as changed lines of a base. named is a part of what the agent must tell; empty: nothing.
var guestCases = []oddCase{
	{"a member is not there", "bond with a VLAN", gone, lines("links[1].ethernet_mac_address", gone)},
	{"the member whose MAC the bond has is not there", "bond with a VLAN", gone, lines("links[0].ethernet_mac_address", gone)},
	{"no member is there", "bond with a VLAN", "vlan7", lines("links[0].ethernet_mac_address", gone, "links[1].ethernet_mac_address", "52:54:00:99:99:98")},
	{"a member has no link", "bond of three", "gone", lines("links[0].bond_links[1]", "gone")},
	{"a bond with the MAC of its second member", "bond of three", "", nil},
	{"a mode of the wrong spelling", "Metal3 with a bond", "", lines("links[3].bond_mode", "802.1ad")},
	{"a mode that is not known", "bond of three", "fast", lines("links[0].bond_mode", "fast")},
	{"a VLAN with a larger mtu than its NIC, which names none", "VLANs of a NIC", "", nil},
	{"a VLAN with a larger mtu than its NIC names", "VLANs of a NIC", "mtu 9000", lines("links[4].mtu", 9000.0)},
	{"a VLAN whose NIC is not there", "VLANs of a NIC", "v103", lines("links[1].ethernet_mac_address", gone)},
	{"an mtu that no device has", "bond with a VLAN", "65536", lines("links[4].mtu", 65536.0)},
	{"jumbo frames of the members alone", "bond of three", "", lines("links[1].mtu", 9000.0, "links[2].mtu", 9000.0, "links[3].mtu", 9000.0)},
	{"members with two mtus", "bond of three", "mtu", lines("links[1].mtu", 9000.0, "links[2].mtu", 1400.0)},
	{"a mask that is none above a bond", "Metal3 with a bond", "255.0.255.0", lines("networks[0].netmask", "255.0.255.0")},
	{"each network is on a link that is not there", "bond of three", networkdata.AllLeftOut, lines("networks[0].link", "gone", "networks[1].link", "gone")},
	{"each network is on a link that is not there, beside a VLAN", "bond with a VLAN", networkdata.AllLeftOut, lines("networks[0].link", "gone", "networks[1].link", "gone", "networks[2].link", "gone")},
	{"each network is on a NIC that is not there, beside a bond", "bond of three", networkdata.AllLeftOut, append(lines("networks[0].link", "far", "networks[1].link", "far"),
		odd.LineChange{Path: []any{"links"}, Do: odd.Append, Value: map[string]any{"id": "far", "type": "phy", "ethernet_mac_address": gone}})},
	{"no network", "bond of three", "", lines("networks", nil)},
	{"networks of a type that is not known", "bond of three", "set as it stands", lines("networks[0].type", "fast", "networks[1].type", "fast")},
	{"a route on the link of a VLAN", "Metal3 with a bond", "", lines("networks[1].routes[0].network", "10.9.0.0", "networks[1].routes[0].netmask", "255.255.0.0", "networks[1].routes[0].gateway", "0.0.0.0")},
}

// TestOddInGuest is what runs inside, after TestInGuest.
func TestOddInGuest(t *testing.T) {
	if os.Getenv(inGuest) == "" {
		return
	}
	runOddCases(t, guestCases)
	stacked := slices.DeleteFunc(slices.Clone(odd.NetworkBases), func(b odd.NetworkBase) bool { return !b.Stacked })
	runOddNetworks(t, stacked, must.Get(strconv.Atoi(os.Getenv("SALVOR_INPUTS")))(t), 4)
}

// TestGuest boots the ramdisk's kernel once. make odd has it run 1100 odd inputs with bonds and VLANs, other runs 40.
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
	cables(t, filepath.Join(dir, "cables.cpio"))
	writeLargeSectorDrives(t, dir)
	sh(t, "sh", "-ec", `cd "$1"
		(cd over && find . | cpio -o -H newc --quiet) > over.cpio
		cat over.cpio cables.cpio `+ramdisk.FileInitramfs+` > both
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
	if !strings.Contains(console, "odd data end with status 0") || !strings.Contains(console, "--- PASS: TestOddInGuest") {
		t.Errorf("console:\n%s", console)
	}
	for line := range strings.Lines(console) {
		if strings.Contains(line, "things asked for") || strings.Contains(line, "SALVOR_SEED=") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// cables writes an archive with the kernel's modules for cables between namespaces, which no ramdisk needs.
func cables(t *testing.T, file string) {
	t.Helper()
	source := must.Get(ramdisk.Open(t.Context(), "", ramdisk.Cloud, nil))(t)
	defer source.Close()
	tree := ramdisk.NewTree()
	must.OK(t, source.AddModules(tree, []string{"veth", "bridge"}))
	f := must.Get(os.Create(file))(t)
	defer f.Close()
	must.OK(t, tree.Archive(f))
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
	inputs, limit := "40", 4*time.Minute
	if os.Getenv("SALVOR_SWEEP") == "whole" {
		inputs, limit = "1100", 60*time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	args := []string{"-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "512", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", filepath.Join(dir, ramdisk.FileKernel), "-initrd", filepath.Join(dir, "both"),
		"-append", "console=ttyS0 quiet panic=-1 rdinit=/test-init SALVOR_INPUTS=" + cmp.Or(os.Getenv("SALVOR_INPUTS"), inputs) + // kernel parameters that become variables of init
			" SALVOR_SEED=" + strconv.FormatUint(oddSeed(t), 10),
	}
	for i, name := range []string{"drive", "fat4096", "iso4096"} { // the order of slots is that of the names vda, vdb and vdc
		device := fmt.Sprintf("virtio-blk-pci,addr=%d,drive=%s", 0x10+i, name)
		if name != "drive" {
			device += ",logical_block_size=4096,physical_block_size=4096"
		}
		args = append(args, "-drive", "if=none,format=raw,readonly=on,id="+name+",file="+filepath.Join(dir, name), "-device", device)
	}
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
