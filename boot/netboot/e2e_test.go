//go:build e2e

package netboot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"salvor/boot/ramdisk"
	"salvor/metal"
	"salvor/test/must"
	"salvor/test/program"
)

// These tests boot QEMU over a bridge. TestMain gives them user and network namespaces
// of their own: they touch no network of the machine, and need root only where
// /dev/net/tun is not open to all.

// inside names the folder for the guest's files; it is set within the namespaces.
const inside = "SALVOR_NETBOOT_E2E"

// soak tells that there is time for what other tests go by as well.
var soak = os.Getenv("SALVOR_SOAK") != ""

func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "set loopback up:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	dir, err := os.MkdirTemp("", "netboot-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cmd.Env = append(os.Environ(), inside+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	err = cmd.Run()
	os.RemoveAll(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e tests in their namespaces:", err)
		os.Exit(1)
	}
}

const (
	bridge    = "br-boot"
	tap       = "tap-boot"
	bootLimit = 2 * time.Minute // measured: 5 to 17 s on two idle cores
)

var bootNet = Range{Network: netip.MustParsePrefix("10.77.0.0/24"), From: netip.MustParseAddr("10.77.0.50"), To: netip.MustParseAddr("10.77.0.99")}

// guestInit tells on the serial line how far the machine came, and asks to renew its
// address every second.
const guestInit = `#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec >/dev/ttyS0 2>&1
echo "E2E-up $(cut -d' ' -f1 /proc/uptime) $(cat /proc/cmdline)"
modprobe virtio_pci; modprobe virtio_net
ip link set eth0 up
udhcpc -i eth0 -t 20 -T 1 -f -s /etc/lease &
while sleep 1; do kill -USR1 $!; done
`

const guestLease = `#!/bin/sh
case $1 in bound|renew) ip addr replace $ip/24 dev eth0;; deconfig) ip addr flush dev eth0;; esac
echo "E2E-$1 $ip file=$boot_file"
`

var guestOnce = sync.OnceValues(func() (string, error) {
	dir := os.Getenv(inside)
	ctx := context.Background()
	src, err := ramdisk.Open(ctx, "", ramdisk.Cloud, nil)
	if err != nil {
		return dir, err
	}
	defer src.Close()
	tree := ramdisk.NewTree()
	if err := src.AddBusybox(ctx, tree); err != nil {
		return dir, err
	}
	if err := src.AddModules(tree, []string{"virtio_pci", "virtio_net"}); err != nil {
		return dir, err
	}
	tree.File("init", 0o755, []byte(guestInit))
	tree.File("etc/lease", 0o755, []byte(guestLease))
	var packed bytes.Buffer
	if err := tree.Initramfs(&packed, ramdisk.LZ4); err != nil {
		return dir, err
	}
	if err := src.WriteParts(ctx, dir); err != nil {
		return dir, err
	}
	return dir, os.WriteFile(filepath.Join(dir, "ramdisk"), packed.Bytes(), 0o600)
})

// world is a bridge with our server on it.
type world struct {
	*plans
	dir    string
	serial string
	start  time.Time

	mu       sync.Mutex
	progress []string
}

func newWorld(t *testing.T, method metal.BootMethod, mode Mode) *world {
	t.Helper()
	guest := must.Get(guestOnce())(t)
	makeBridge(t)
	w := &world{plans: &plans{node: testNode()}, dir: t.TempDir()}
	w.serial = filepath.Join(w.dir, "serial.log")
	p := w.node.Plan
	p.Method, p.Kernel, p.Ramdisk = method, filepath.Join(guest, "kernel"), filepath.Join(guest, "ramdisk")
	p.Params = []string{"console=ttyS0,115200n8", "quiet", "panic=-1"}

	l := must.Get(net.Listen("tcp4", "10.77.0.1:0"))(t)
	p.URL = "http://" + l.Addr().String()
	c := Interface{Name: bridge, Mode: mode, Advertise: true}
	if mode == Authoritative {
		c.Ranges = []Range{bootNet}
	}
	var said program.Buffer
	s := must.Get(New(Config{
		Plans: w.plans, Token: testTokenOf, Roots: []string{guest},
		Interfaces: []Interface{c}, RecordProgress: w.recordProgress, Log: slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &said), nil)),
	}))(t)
	hs := &http.Server{Handler: s.Handler(), WriteTimeout: 10 * time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = hs.Serve(l) })
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); hs.Close(); wg.Wait() })
	program.Until(t, "the boot server listens", time.Minute, program.If(func() bool { return strings.Contains(said.String(), "boot server listens") }))
	return w
}

func (w *world) recordProgress(_ *metal.Node, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress = append(w.progress, fmt.Sprintf("%.1f s %s", time.Since(w.start).Seconds(), what))
}

func makeBridge(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
	must(netlink.LinkAdd(br))
	t.Cleanup(func() { _ = netlink.LinkDel(br) })
	// The netlink library cannot say it; without it the first 15 seconds are lost.
	if out, err := exec.Command("ip", "link", "set", bridge, "type", "bridge", "forward_delay", "0").CombinedOutput(); err != nil {
		t.Fatalf("%v (package iproute2): %s", err, out)
	}
	addr, err := netlink.ParseAddr("10.77.0.1/24")
	must(err)
	must(netlink.AddrAdd(br, addr))
	tuntap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: tap}, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI}
	if err := netlink.LinkAdd(tuntap); err != nil {
		t.Fatalf("make a tap by /dev/net/tun: %v", err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(tuntap) })
	must(netlink.LinkSetMaster(tuntap, br))
	must(netlink.LinkSetUp(tuntap))
	must(netlink.LinkSetUp(br))
	// Router advertisements are sent from the link-local address.
	ll := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("fe80::1"), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD}
	must(netlink.AddrAdd(br, ll))
}

// qemu starts a machine; it ends with the test.
func (w *world) qemu(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{
		"-machine", "q35,accel=tcg", "-cpu", "max", "-m", "512", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:" + w.serial, "-device", "virtio-rng-pci", "-netdev", "tap,id=n,ifname=" + tap + ",script=no,downscript=no",
	}, args...)
	cmd := exec.Command("qemu-system-x86_64", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	w.start = time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (package qemu-system-x86)", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(w.serial)
			t.Logf("QEMU: %s\nserial: %.4000s", out.Bytes(), text)
		}
	})
}

func (w *world) uefi(t *testing.T, pxe string) []string {
	return w.ovmf(t, pxe, "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd")
}

// secureUEFI has Microsoft's keys and enforces Secure Boot. It boots by HTTP.
func (w *world) secureUEFI(t *testing.T) []string {
	return append(w.ovmf(t, "n", "OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.ms.fd"),
		"-machine", "smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on", "-global", "ICH9-LPC.disable_s3=1")
}

func (w *world) ovmf(t *testing.T, pxe, code, variables string) []string {
	t.Helper()
	vars, err := os.ReadFile("/usr/share/OVMF/" + variables)
	if err != nil {
		t.Fatalf("%v (package ovmf)", err)
	}
	own := filepath.Join(w.dir, "vars.fd")
	must.OK(t, os.WriteFile(own, vars, 0o600))
	return []string{
		"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=/usr/share/OVMF/" + code, "-drive", "if=pflash,unit=1,format=raw,file=" + own,
		"-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=" + pxe, "-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n",
		"-fw_cfg", "name=opt/org.tianocore/IPv6Support,string=n",
		"-device", "virtio-net-pci,netdev=n,mac=" + testMAC + ",romfile=,bootindex=0",
	}
}

// await waits until the serial line says something.
func (w *world) await(t *testing.T, text string) string {
	t.Helper()
	for end := time.Now().Add(bootLimit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		out, _ := os.ReadFile(w.serial)
		if i := bytes.Index(out, []byte(text)); i >= 0 {
			line, _, whole := strings.Cut(string(out[i:]), "\n")
			if whole {
				t.Logf("%5.1f s %s", time.Since(w.start).Seconds(), strings.TrimSpace(line))
				return line
			}
		}
	}
	t.Fatalf("%q did not appear in %s; seen: %s", text, bootLimit, w.progress)
	return ""
}

// boots proves that the machine runs its own ramdisk, leases a plain address, and loses
// it when its plan ends.
func (w *world) boots(t *testing.T) {
	t.Helper()
	if up := w.await(t, "E2E-up "); !strings.Contains(up, "ipa-agent-token="+testToken) {
		t.Errorf("parameters: %s", up)
	}
	if bound := w.await(t, "E2E-bound "); !strings.HasSuffix(strings.TrimSpace(bound), "file=") {
		t.Errorf("the ramdisk was given a boot file: %s", bound)
	}
	w.await(t, "E2E-renew ")
	w.plans.mu.Lock()
	ended := w.node.Clone()
	ended.BootNumber++
	w.node = ended
	w.plans.mu.Unlock()
	w.await(t, "E2E-nak ")
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("seen: %s", strings.Join(w.progress, ", "))
}

// TestBootsByEveryFirmware is for make soak: test/crash rescues whole machines by these boot methods.
func TestBootsByEveryFirmware(t *testing.T) {
	if !soak {
		return
	}
	t.Run("BIOS iPXE", bootsByIPXE)
	t.Run("UEFI HTTP", bootsByHTTP)
}

func bootsByIPXE(t *testing.T) {
	w := newWorld(t, metal.BootIPXE, Authoritative)
	w.qemu(t, "-device", "virtio-net-pci,netdev=n,mac="+testMAC+",bootindex=0")
	w.boots(t)
}

// Real BIOS firmware knows no iPXE and loads undionly.kpxe by TFTP. No such firmware
// runs in QEMU, so an iPXE without its own DHCP answer loads it in its place.
func TestBIOSBootsByUNDIOnly(t *testing.T) {
	w := newWorld(t, metal.BootIPXE, Authoritative)
	first := filepath.Join(w.dir, "first.ipxe")
	write(t, first, "#!ipxe\ndhcp && chain tftp://10.77.0.1/"+w.node.Plan.Path+"/undionly.kpxe\n")
	w.qemu(t, "-device", "virtio-net-pci,netdev=n,romfile=,mac="+testMAC, "-kernel", "/usr/lib/ipxe/ipxe.lkrn", "-initrd", first)
	w.boots(t)
}

// addressServer is another DHCP server on the network, which knows nothing to boot.
func addressServer(t *testing.T) {
	t.Helper()
	const own, peer = "veth-dhcp", "veth-peer"
	for _, cmd := range []string{
		"ip link add " + own + " type veth peer name " + peer,
		"ip link set " + peer + " master " + bridge + " up",
		"ip address add 10.77.0.2/24 dev " + own + " noprefixroute",
		"ip link set " + own + " up",
	} {
		words := strings.Fields(cmd)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s (package iproute2)", cmd, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", own).Run() })
	// Each address answers for itself: both interfaces are this machine's.
	must.OK(t, os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0))
	s, err := New(Config{Plans: &plans{}, Interfaces: []Interface{{Name: own, Mode: Authoritative, Ranges: []Range{bootNet}, Guests: true}}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func TestProxyBoots(t *testing.T) {
	roads := map[string]struct {
		road metal.BootMethod
		file string
		args func(*testing.T, *world) []string
	}{
		"BIOS iPXE": {metal.BootIPXE, metal.BootScript, func(*testing.T, *world) []string {
			return []string{"-device", "virtio-net-pci,netdev=n,mac=" + testMAC + ",bootindex=0"}
		}},
		"UEFI PXE":  {metal.BootIPXE, metal.BootScript, func(t *testing.T, w *world) []string { return w.uefi(t, "y") }},
		"UEFI HTTP": {metal.BootHTTP, metal.BootEFI, func(t *testing.T, w *world) []string { return w.uefi(t, "n") }},
		"UEFI HTTP with Secure Boot": {metal.BootHTTP, metal.BootISO, func(t *testing.T, w *world) []string {
			w.node.Plan.SecureBoot = true
			return w.secureUEFI(t)
		}},
	}
	if !soak { // TestSecureBootRefusesUKI has the UKI fetched
		delete(roads, "UEFI PXE")
		delete(roads, "UEFI HTTP")
	}
	for name, c := range roads {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.road, Proxy)
			addressServer(t)
			w.qemu(t, c.args(t, w)...)
			w.await(t, "E2E-up ")
			w.await(t, "E2E-bound ")
			w.mu.Lock()
			defer w.mu.Unlock()
			seen := strings.Join(w.progress, ", ")
			t.Logf("seen: %s", seen)
			if !strings.Contains(seen, "fetching "+c.file) {
				t.Errorf("%s was not fetched", c.file)
			}
		})
	}
}

// TestSecureBootRefusesUKI: firmware that enforces Secure Boot does not start the unified kernel image, which is not signed.
func TestSecureBootRefusesUKI(t *testing.T) {
	w := newWorld(t, metal.BootHTTP, Authoritative)
	w.qemu(t, w.secureUEFI(t)...)
	w.await(t, "Access Denied")
	w.mu.Lock()
	defer w.mu.Unlock()
	if seen := strings.Join(w.progress, ", "); !strings.Contains(seen, "fetching "+metal.BootEFI) {
		t.Errorf("the image was not fetched: %s", seen)
	}
}

// A bridge that is removed and made again is served again.
func TestInterfaceRemade(t *testing.T) {
	w := newWorld(t, metal.BootIPXE, Authoritative)
	for _, name := range []string{tap, bridge} {
		l := must.Get(netlink.LinkByName(name))(t)
		must.OK(t, netlink.LinkDel(l))
	}
	makeBridge(t)
	w.qemu(t, "-device", "virtio-net-pci,netdev=n,mac="+testMAC+",bootindex=0")
	w.boots(t)
}

func TestUEFIBootsBySNPOnly(t *testing.T) {
	w := newWorld(t, metal.BootIPXE, Authoritative)
	w.qemu(t, w.uefi(t, "y")...)
	w.boots(t)
}

func bootsByHTTP(t *testing.T) {
	w := newWorld(t, metal.BootHTTP, Authoritative)
	w.qemu(t, w.uefi(t, "n")...)
	w.boots(t)
}
