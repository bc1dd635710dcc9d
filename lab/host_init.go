package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// This file is pid 1 of a VM host: its directories, its network, and the programs that it starts, and starts again
// whenever they end, as a service manager would.

const (
	// holdFile keeps a host's libvirt daemon down while it is there.
	holdFile     = "run/hold-libvirtd"
	daemonPIDs   = "run/libvirtd.pid"
	hostLog      = "host.log"
	bootFile     = "boot.json"
	bootIDFile   = "boot_id"
	serviceFile  = "service.json"
	serviceLog   = "service.log"
	restartDelay = 200 * time.Millisecond
	// stopDelay is what programs are given at a shutdown to end by themselves.
	stopDelay = 5 * time.Second
)

// hostBoot is what a life of a host begins with.
type hostBoot struct {
	Management netip.Prefix `json:"management"`
	Storage    netip.Prefix `json:"storage"`
	BootID     string       `json:"boot_id"`
	NoLocks    bool         `json:"no_locks,omitempty"`
	KVM        bool         `json:"kvm,omitempty"` // libvirt sees the machine's /dev/kvm
}

// hostService is what a host starts beside libvirt.
type hostService struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
}

// serviceUnit is a program that is kept running.
type serviceUnit struct {
	name string
	// wants gives the command to run now, empty for none.
	wants func() hostService
	// output is where it writes; empty: where pid 1 does.
	output string
	pid    int
	runs   hostService
	next   time.Time // not before
}

// runHost is pid 1 of a host. It reaps what is left to it, guests too.
func runHost(dir string) error {
	var boot hostBoot
	text, err := os.ReadFile(filepath.Join(dir, bootFile))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &boot); err != nil {
		return fmt.Errorf("read %s: %w", bootFile, err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM)
	if err := setupHost(dir, boot); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	units := []*serviceUnit{
		{name: "libvirtd", wants: wantsLibvirt},
		{name: "service", wants: func() hostService { return wantsService(dir) }, output: filepath.Join(dir, serviceLog)},
	}
	turn := time.NewTicker(restartDelay)
	defer turn.Stop()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				log.Info("shutdown")
				stopUnits(units)
				return nil // and the kernel ends all that is left
			}
		case <-turn.C:
		}
		reapChildren(units, log)
		for _, u := range units {
			if err := u.tend(log); err != nil {
				return err
			}
		}
	}
}

func wantsLibvirt() hostService {
	if _, err := os.Stat("/" + holdFile); err == nil {
		return hostService{}
	}
	return hostService{Args: []string{"/usr/sbin/libvirtd"}, Env: os.Environ()}
}

// unstartedGuest is the state of a guest that libvirt stored before it started the QEMU.
var unstartedGuest = regexp.MustCompile(`<domstatus [^>]*pid='0'`)

// forgetUnstarted removes the states of such guests, as docs/hosts.md tells operators to: a daemon that was killed at that moment would keep their
// guests locked for ever, which would end a test once in many.
func forgetUnstarted(folder string) {
	states, _ := filepath.Glob(filepath.Join(folder, "*.xml"))
	for _, state := range states {
		if text, err := os.ReadFile(state); err == nil && unstartedGuest.Match(text) {
			os.Remove(state)
		}
	}
}

// wantsService reads what the lab was told to run here; what cannot be read is half written.
func wantsService(dir string) hostService {
	var s hostService
	text, err := os.ReadFile(filepath.Join(dir, serviceFile))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return hostService{}
	}
	return s
}

// tend starts the unit if it should run and does not, and ends a service that was told to be another one. A libvirt
// daemon that is held was killed by whoever holds it.
func (u *serviceUnit) tend(log *slog.Logger) error {
	want := u.wants()
	if u.pid != 0 {
		if u.output != "" && !(slices.Equal(want.Args, u.runs.Args) && slices.Equal(want.Env, u.runs.Env)) {
			_ = syscall.Kill(-u.pid, syscall.SIGKILL)
		}
		return nil
	}
	if len(want.Args) == 0 || time.Now().Before(u.next) {
		return nil
	}
	if u.output == "" {
		os.Remove("/" + daemonPIDs) // of one that was killed; a living daemon locks it
		forgetUnstarted("/run/libvirt/qemu")
	}
	output := os.Stderr
	if u.output != "" {
		var err error
		if output, err = os.OpenFile(u.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return fmt.Errorf("start %s: %w", u.name, err)
		}
		defer output.Close()
	}
	program, err := exec.LookPath(want.Args[0])
	if err == nil {
		u.pid, err = syscall.ForkExec(program, want.Args, &syscall.ProcAttr{
			Dir: "/", Env: want.Env, Files: []uintptr{0, output.Fd(), output.Fd()}, Sys: &syscall.SysProcAttr{Setpgid: u.output != ""},
		})
	}
	if err != nil {
		u.pid, u.next = 0, time.Now().Add(time.Second)
		log.Warn("start", "unit", u.name, "err", err)
		return nil
	}
	u.runs = want
	log.Info("started", "unit", u.name, "pid", u.pid)
	return nil
}

// reapChildren takes all children that have ended.
func reapChildren(units []*serviceUnit, log *slog.Logger) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		for _, u := range units {
			if u.pid == pid {
				log.Info("ended", "unit", u.name, "pid", pid, "status", exitStatus(status))
				u.pid, u.next = 0, time.Now().Add(restartDelay)
			}
		}
	}
}

// stopUnits ends the units in order, the last first.
func stopUnits(units []*serviceUnit) {
	for _, u := range slices.Backward(units) {
		if u.pid == 0 {
			continue
		}
		_ = syscall.Kill(u.pid, syscall.SIGTERM)
		for end := time.Now().Add(stopDelay); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if pid, err := syscall.Wait4(u.pid, nil, syscall.WNOHANG, nil); pid == u.pid || err != nil {
				break
			}
		}
	}
}

// setupHost makes the mounts and the network of the namespaces that it runs in.
func setupHost(dir string, boot hostBoot) error {
	if err := setupMounts(); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if err := unix.Sethostname([]byte(filepath.Base(dir))); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	for from, to := range map[string]string{
		"run": "/run", "lib": "/var/lib/libvirt", "log": "/var/log/libvirt", "cache": "/var/cache/libvirt", "etc": "/etc/libvirt",
	} {
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := bindMount(filepath.Join(dir, from), to); err != nil {
			return err
		}
	}
	if err := bindMount(filepath.Join(dir, bootIDFile), "/proc/sys/kernel/random/boot_id"); err != nil {
		return err
	}
	if boot.NoLocks {
		if err := bindMount(filepath.Join(dir, emulatorFile), emulator); err != nil {
			return err
		}
	}
	if err := hideKVM(dir, boot); err != nil {
		return err
	}
	for name, line := range map[string]string{"passwd": libvirtUser + ":x:64055:64055::/nonexistent:/usr/sbin/nologin\n", "group": libvirtUser + ":x:64055:\n"} {
		if err := addAccount(dir, name, line); err != nil {
			return fmt.Errorf("account of %s: %w", libvirtUser, err)
		}
	}
	return setupHostNetwork(boot)
}

// hideKVM puts a file that nobody can write over /dev/kvm. Otherwise libvirt tries KVM in each QEMU that it asks what it can do, and a KVM that is
// there and does not work could keep it waiting without end. A file that it could write would have it ask before each start again.
func hideKVM(dir string, boot hostBoot) error {
	const kvm = "/dev/kvm"
	if _, err := os.Stat(kvm); boot.KVM || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := bindMount(filepath.Join(dir, bootFile), kvm); err != nil {
		return err
	}
	if err := unix.Mount("", kvm, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", kvm, err)
	}
	return nil
}

func bindMount(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", to, err)
	}
	return nil
}

// libvirtUser must be known to a libvirt daemon of Debian's, even to one that is told to run guests as root. The
// account is brought by a package that would start a daemon of its own.
const libvirtUser = "libvirt-qemu"

// addAccount puts a copy of a file of accounts with one line more over it.
func addAccount(dir, name, line string) error {
	text, err := os.ReadFile("/etc/" + name)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, append(append(text, '\n'), line...), 0o644); err != nil {
		return err
	}
	return bindMount(path, "/etc/"+name)
}

func setupHostNetwork(boot hostBoot) error {
	if err := awaitLinks(hostManagement, hostTenant, hostStorage); err != nil {
		return err
	}
	if err := addBridge(labNetwork{Bridge: tenantNet.Bridge}); err != nil {
		return fmt.Errorf("make bridge %s: %w", tenantNet.Bridge, err)
	}
	bridge, err := netlink.LinkByName(tenantNet.Bridge)
	if err != nil {
		return err
	}
	for _, name := range []string{"lo", hostManagement, hostTenant, hostStorage} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		if name == hostTenant {
			if err := netlink.LinkSetMaster(link, bridge); err != nil {
				return fmt.Errorf("put %s on %s: %w", name, tenantNet.Bridge, err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	if err := addAddress(hostManagement, boot.Management); err != nil {
		return err
	}
	return addAddress(hostStorage, boot.Storage)
}

func awaitLinks(names ...string) error {
	deadline := time.Now().Add(hostStart)
	for _, name := range names {
		for {
			_, err := netlink.LinkByName(name)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("wait for %s: %w", name, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}
