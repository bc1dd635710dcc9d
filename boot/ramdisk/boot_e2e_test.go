//go:build e2e

package ramdisk

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"salvor/boot/media"
	"salvor/test/debian"
	"salvor/test/must"
)

// bootLimit is ten times what a boot takes on an idle machine.
const bootLimit = 120 * time.Second

// repairLimit is ten times what a boot, an examination and a repair take together.
const repairLimit = 8 * time.Minute

// built is the ramdisk under test; one build serves all boots.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "salvor-ramdisk-test-")
	if err != nil {
		return "", err
	}
	return dir, build(dir, Options{Arch: AMD64, Profile: Profile(os.Getenv("SALVOR_TEST_PROFILE")), Compression: Compression(os.Getenv("SALVOR_TEST_COMPRESSION"))})
})

// build makes an agent and a ramdisk of it in dir/out.
func build(dir string, o Options) error {
	o.Out, o.Agent = filepath.Join(dir, "out"), filepath.Join(dir, "salvor-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", o.Agent, "salvor/cmd/salvor-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+string(o.Arch))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build salvor-agent: %w\n%s", err, out)
	}
	_, err := Build(context.Background(), o)
	return err
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := built(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func products(t *testing.T) string {
	t.Helper()
	dir := must.Get(built())(t)
	return filepath.Join(dir, "out")
}

func openImage(t *testing.T, name string) *media.Image { return openImageIn(t, products(t), name) }

func openImageIn(t *testing.T, dir, name string) *media.Image {
	t.Helper()
	m := must.Get(ReadManifest(dir))(t)
	f := must.Get(os.Open(filepath.Join(dir, name)))(t)
	t.Cleanup(func() { f.Close() })
	image := must.Get(media.NewImage(f, m.Files[name].Layout()))(t)
	return image
}

// uefi is OVMF with variables of its own.
func uefi(t *testing.T) []string { return ovmf(t, "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd") }

// secureUEFI has Microsoft's keys and enforces Secure Boot.
func secureUEFI(t *testing.T) []string {
	return append(ovmf(t, "OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.ms.fd"),
		"-machine", "smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on", "-global", "ICH9-LPC.disable_s3=1")
}

func ovmf(t *testing.T, code, variables string) []string {
	t.Helper()
	debian.File(t, "/usr/share/OVMF/"+variables, "ovmf")
	return firmware(t, "/usr/share/OVMF/"+code, "/usr/share/OVMF/"+variables)
}

func firmware(t *testing.T, code, variables string) []string {
	t.Helper()
	vars := must.Get(os.ReadFile(variables))(t)
	file := filepath.Join(t.TempDir(), "vars.fd")
	must.OK(t, os.WriteFile(file, vars, 0o600))
	return []string{"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=" + code,
		"-drive", "if=pflash,unit=1,format=raw,file=" + file}
}

// bootCase is one way in which a machine comes to the ramdisk.
type bootCase struct {
	name string
	nic  string
	args func(t *testing.T, c *controller) []string
}

var bootCases = []bootCase{
	{name: "kernel and initramfs", args: func(t *testing.T, c *controller) []string {
		return []string{"-kernel", filepath.Join(c.dir, FileKernel), "-initrd", filepath.Join(c.dir, FileInitramfs), "-append", c.params}
	}},
	{name: "ISO by UEFI with Secure Boot", args: func(t *testing.T, c *controller) []string { return append(secureUEFI(t), cd(c)...) }},
	{name: "ISO by BIOS", args: func(t *testing.T, c *controller) []string { return cd(c) }},
	{name: "ISO by UEFI", args: func(t *testing.T, c *controller) []string { return append(uefi(t), cd(c)...) }},
	{name: "UKI by UEFI", args: func(t *testing.T, c *controller) []string {
		opened := must.Get(openImage(t, FileUKI).Open(c.params))(t)
		raw := make([]byte, opened.Size())
		must.Get(opened.ReadAt(raw, 0))(t)
		file := filepath.Join(t.TempDir(), "rescue.efi")
		must.OK(t, os.WriteFile(file, raw, 0o600))
		return append(uefi(t), "-kernel", file)
	}},
	{name: "iPXE", nic: "bootindex=0", args: func(*testing.T, *controller) []string { return nil }},
}

// cd is a drive whose medium QEMU reads by HTTP ranges, as a BMC does.
func cd(c *controller) []string {
	return []string{"-drive", "if=none,id=cd,format=raw,readonly=on,media=cdrom,file=" + c.server.URL + "/rescue.iso",
		"-device", "ide-cd,drive=cd,bootindex=0"}
}

// TestRescueByEveryRoad boots the real agent and proves what a rescued machine is:
// the password opens ssh, nothing else listens, the agent is gone.
func TestRescueByEveryRoad(t *testing.T) {
	// The rescues of the demo and of test/crash go by the other roads; make soak goes by all of them here too.
	chosen := bootCases[:2]
	if os.Getenv("SALVOR_SOAK") != "" {
		chosen = bootCases
	}
	for _, r := range chosen {
		t.Run(r.name, func(t *testing.T) {
			c := newController(t, products(t), openImage(t, FileISO))
			if strings.HasPrefix(r.name, "ISO ") {
				// The longest parameters that are allowed reach the kernel whole.
				c.params += " filler=" + strings.Repeat("x", media.MaxParams-len(c.params)-len(" filler= last=1")) + " last=1"
			}
			began := time.Now()
			m := boot(t, c, r)
			m.waitFor(t, c, "ssh started on 10.0.2.15")
			listening := time.Since(began)
			if out, err := m.ssh("sesame", "id -u"); err != nil || strings.TrimSpace(out) != "0" {
				t.Fatalf("ssh: %v: %s\n%s", err, out, m.console())
			}
			t.Logf("after power on: ssh listens %.1f s, a command by ssh is done %.1f s", listening.Seconds(), time.Since(began).Seconds())
			for _, line := range m.stages() {
				t.Log(line)
			}
			m.check(t, c)
			if strings.HasSuffix(r.name, "Secure Boot") {
				if out, err := m.ssh("sesame", "dmesg"); err != nil || !strings.Contains(out, "Secure boot enabled") {
					t.Errorf("the firmware did not enforce Secure Boot: %v\n%s", err, out)
				}
			}
		})
	}
}

// check is done once ssh works.
func (m *machine) check(t *testing.T, c *controller) {
	t.Helper()
	out, err := m.ssh("sesame", "cat /proc/net/tcp /proc/net/tcp6; echo ==; busybox ps; echo ==; cat /etc/shadow; echo ==; cat /proc/cmdline; modprobe ext4 && modprobe isofs && echo modules fine")
	if err != nil {
		t.Fatalf("ssh: %v: %s", err, out)
	}
	parts := strings.Split(out, "==\n")
	listening := regexp.MustCompile(`(?m)^ *\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:0000 0A`).FindAllStringSubmatch(parts[0], -1)
	if len(listening) == 0 {
		t.Errorf("no port listens:\n%s", parts[0])
	}
	for _, l := range listening {
		if l[1] != "0016" && l[1] != "270F" { // the agent's, during the rescue
			t.Errorf("another port than ssh's and the agent's listens: %s", l[0])
		}
	}
	if strings.Count(parts[1], "salvor-agent") != strings.Count(parts[1], "salvor-agent session") || strings.Count(parts[1], "udhcpc ") != 1 {
		t.Errorf("want no agent but that of the session, and one DHCP client, the one that keeps the tenant's lease:\n%s", parts[1])
	}
	if !strings.Contains(parts[2], "root:*:") || !strings.Contains(parts[2], "rescue:$5$") {
		t.Errorf("accounts:\n%s", parts[2])
	}
	if !strings.Contains(parts[3], c.params[len(c.params)-10:]) || !strings.Contains(parts[3], "modules fine") {
		t.Errorf("command line or modules:\n%s", parts[3])
	}
	// The disk of a broken machine is entered, mended, and left clean.
	const mend = "salvor-chroot /dev/vda /bin/busybox sh -c 'cat /etc/marker; ls /proc/self/stat /dev/null; echo mended >/etc/marker'"
	out, err = m.ssh("sesame", mend+"; grep -c vda /proc/mounts; mount -t ext4 -o ro /dev/vda /mnt && cat /mnt/etc/marker")
	if err != nil || !strings.HasPrefix(out, "broken\n") || !strings.HasSuffix(out, "\n0\nmended\n") {
		t.Errorf("salvor-chroot: %v\n%s", err, out)
	}
	if out, err := m.ssh("wrong", "true"); err == nil {
		t.Errorf("a wrong password opened ssh: %s", out)
	}
	if text := c.lastFailure(); text != "" {
		t.Errorf("the control plane saw: %s", text)
	}
}

// disk is an ext4 file system of a small system without a partition table.
func disk(t *testing.T) string {
	t.Helper()
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	for _, d := range []string{"etc", "bin", "proc", "sys", "dev", "run", ".disk", "boot/grub"} {
		must.OK(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	// A signed GRUB that finds no configuration on its own medium searches all disks for .disk/info and takes the configuration beside it.
	must.OK(t, os.WriteFile(filepath.Join(root, ".disk/info"), []byte("another system\n"), 0o644))
	must.OK(t, os.WriteFile(filepath.Join(root, "boot/grub/grub.cfg"), []byte("echo the configuration of the disk\nhalt\n"), 0o644))
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("%v (package busybox-static)", err)
	}
	must.OK(t, os.WriteFile(filepath.Join(root, "bin/busybox"), busybox, 0o755))
	must.OK(t, os.WriteFile(filepath.Join(root, "etc/marker"), []byte("broken\n"), 0o644))
	if out, err := exec.Command("/sbin/mke2fs", "-q", "-t", "ext4", "-d", root, file, "16M").CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v (package e2fsprogs): %s", err, out)
	}
	return file
}

// memory in MiB that the profile needs.
func memory() string {
	if os.Getenv("SALVOR_TEST_PROFILE") == string(Full) {
		return "1536"
	}
	return "512"
}

type machine struct {
	serial string
	port   int
	exited chan struct{}
}

// TestRescueARM64 builds the ramdisk for arm64 and rescues a machine by virtual media.
func TestRescueARM64(t *testing.T) {
	program := debian.Program(t, "qemu-system-aarch64", "qemu-system-arm")
	debian.File(t, "/usr/share/AAVMF/AAVMF_CODE.fd", "qemu-efi-aarch64")
	dir := t.TempDir()
	must.OK(t, build(dir, Options{Arch: ARM64}))
	dir = filepath.Join(dir, "out")
	c := newController(t, dir, openImageIn(t, dir, FileISO))
	c.params = strings.ReplaceAll(c.params, "ttyS0", "ttyAMA0")
	m := newMachine(t)
	began := time.Now()
	args := append(firmware(t, "/usr/share/AAVMF/AAVMF_CODE.fd", "/usr/share/AAVMF/AAVMF_VARS.fd"),
		"-machine", "virt,accel=tcg", "-cpu", "cortex-a57", "-m", "768", "-device", "virtio-net-pci,netdev=n0,romfile=", "-netdev", m.network(c),
		"-device", "virtio-scsi-pci", "-drive", "if=none,id=cd,format=raw,readonly=on,media=cdrom,file="+c.server.URL+"/rescue.iso", "-device", "scsi-cd,drive=cd,bootindex=0")
	m.start(t, program, args)
	m.waitFor(t, c, "ssh started on 10.0.2.15")
	out, err := m.ssh("sesame", "uname -m; id -u; modprobe ext4 && modprobe isofs && echo modules fine")
	t.Logf("after power on: a command by ssh is done %.1f s", time.Since(began).Seconds())
	if err != nil || out != "aarch64\n0\nmodules fine\n" {
		t.Errorf("ssh: %v: %s", err, out)
	}
	if out, err := m.ssh("wrong", "true"); err == nil {
		t.Errorf("a wrong password opened ssh: %s", out)
	}
	if text := c.lastFailure(); text != "" {
		t.Errorf("the control plane saw: %s", text)
	}
}

func newMachine(t *testing.T) *machine {
	return &machine{serial: filepath.Join(t.TempDir(), "serial"), port: freePort(t), exited: make(chan struct{})}
}

// network is QEMU's user network; it forwards to ssh and to the agent.
func (m *machine) network(c *controller) string {
	return fmt.Sprintf("user,id=n0,bootfile=%s,hostfwd=tcp:127.0.0.1:%d-:22,hostfwd=tcp:127.0.0.1:%d-:9999", c.guestURL("/boot.ipxe"), m.port, c.agentPort)
}

func boot(t *testing.T, c *controller, r bootCase) *machine {
	t.Helper()
	m := newMachine(t)
	nic := "virtio-net-pci,netdev=n0," + r.nic
	if r.nic == "" {
		nic = "virtio-net-pci,netdev=n0,romfile="
	}
	args := []string{"-machine", "q35,accel=tcg", "-cpu", "max", "-m", memory(), "-device", nic, "-netdev", m.network(c)}
	// With a place in the boot order the firmware shows the disk to GRUB.
	args = append(args, "-drive", "if=none,id=disk,format=raw,file="+disk(t), "-device", "virtio-blk-pci,drive=disk,bootindex=9")
	m.start(t, debian.Program(t, "qemu-system-x86_64", "qemu-system-x86"), append(args, r.args(t, c)...))
	return m
}

// start runs QEMU until the test ends.
func (m *machine) start(t *testing.T, program string, args []string) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"-nodefaults", "-display", "none", "-no-reboot", "-serial", "file:" + m.serial}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// A test that runs into its time limit must not leave a machine behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.OK(t, cmd.Start())
	go func() {
		cmd.Wait()
		close(m.exited)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-m.exited
		if t.Failed() {
			t.Logf("qemu: %s\nconsole:\n%s", stderr.String(), m.console())
		}
	})
}

func (m *machine) console() string {
	b, _ := os.ReadFile(m.serial)
	return string(b)
}

func (m *machine) stages() []string {
	return regexp.MustCompile(`salvor: \[[0-9.]+\].*`).FindAllString(m.console(), -1)
}

func (m *machine) waitFor(t *testing.T, c *controller, text string) {
	t.Helper()
	m.waitLong(t, c, text, bootLimit)
}

// waitLong is waitFor with a bound of its own.
func (m *machine) waitLong(t *testing.T, c *controller, text string, bound time.Duration) {
	t.Helper()
	limit := time.After(bound)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(m.console(), text) {
		select {
		case <-tick.C:
			if failure := c.lastFailure(); failure != "" {
				t.Fatalf("before %q the control plane saw: %s", text, failure)
			}
		case <-m.exited:
			t.Fatalf("qemu ended before %q", text)
		case <-limit:
			t.Fatalf("no %q within %v", text, bound)
		}
	}
}

func (m *machine) ssh(password, command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bootLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sshpass", "-e", "ssh", "-p", strconv.Itoa(m.port), "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "PreferredAuthentications=password", "rescue@127.0.0.1", command)
	cmd.Env = append(os.Environ(), "SSHPASS="+password)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
