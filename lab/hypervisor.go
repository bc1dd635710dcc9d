package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"salvor/problem"
)

// This file makes VM hosts: each is a libvirt daemon in net, mount, pid and uts namespaces of its own inside the
// lab's. It has two network devices: one on the provisioning network, where it has an address and reaches a control
// plane, and one in its own bridge of the tenant network, where its guests are and it is not.

const (
	maxHosts       = 8
	firstHostOctet = 2 // on the provisioning network, below the machines
	libvirtSocket  = "run/libvirt/libvirt-sock"
	// holdFile keeps a host's libvirt daemon down while it is there.
	holdFile     = "run/hold-libvirtd"
	daemonPIDs   = "run/libvirtd.pid"
	hostLog      = "host.log"
	hostStart    = 30 * time.Second
	restartDelay = 200 * time.Millisecond
)

// hostFiles maps what a VM host runs to the Debian package that brings it.
var hostFiles = map[string]string{
	"/usr/sbin/libvirtd": "libvirt-daemon", "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so": "libvirt-daemon-driver-qemu",
	"/usr/bin/nsenter": "util-linux", "/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so": "qemu-block-extra",
}

// hostSpec is the fixed part of one VM host.
type hostSpec struct {
	Name  string
	UUID  string
	Octet int
}

func (h hostSpec) address() netip.Prefix {
	return netip.PrefixFrom(hostAddr(provisionNet, h.Octet), provisionNet.Prefix4.Bits())
}

// links are a host's network devices as the lab sees them, by the bridge that they are on.
func (h hostSpec) links() map[string]string {
	return map[string]string{provisionNet.Bridge: h.Name + "-prov", tenantNet.Bridge: h.Name + "-ten"}
}

// Names of the same devices inside the host.
const (
	hostManagement = "eth0"
	hostTenant     = "eth1"
)

func (s Spec) hostSpecs() []hostSpec {
	hosts := make([]hostSpec, s.Hosts)
	for i := range hosts {
		hosts[i] = hostSpec{Name: fmt.Sprintf("h%d", i+1), UUID: uuid.NewString(), Octet: firstHostOctet + i}
	}
	return hosts
}

// vmHost is a living host, seen from the lab.
type vmHost struct {
	spec    hostSpec
	process *os.Process
	ended   chan struct{} // closed when its first process has ended
}

// startHost starts a host's first process in new namespaces, gives it its network devices, and waits for its libvirt.
func (w *world) startHost(ctx context.Context, spec hostSpec) (*vmHost, error) {
	for _, dir := range []string{"run/libvirt", "lib", "log", "cache", "etc/qemu"} {
		if err := os.MkdirAll(filepath.Join(spec.Name, dir), 0o755); err != nil {
			return nil, fmt.Errorf("host %s: %w", spec.Name, err)
		}
	}
	if err := writeHostFiles(spec); err != nil {
		return nil, fmt.Errorf("host %s: %w", spec.Name, err)
	}
	output, err := os.OpenFile(filepath.Join(spec.Name, hostLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", spec.Name, err)
	}
	defer output.Close()
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", spec.Name, err)
	}
	program := append(append([]string{}, w.plan.Program...), hiddenHost, filepath.Join(dir, spec.Name), spec.address().String())
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("host %s: %w", spec.Name, err)
	}
	h := &vmHost{spec: spec, process: cmd.Process, ended: make(chan struct{})}
	go func() {
		defer close(h.ended)
		cmd.Wait()
	}()
	if err := h.connect(); err != nil {
		return nil, fmt.Errorf("host %s: %w", spec.Name, err)
	}
	return h, h.await(ctx)
}

// connect makes the host's network devices: a pair each, one end on the lab's bridge, the other inside.
func (h *vmHost) connect() error {
	for bridge, name := range h.spec.links() {
		inside := hostManagement
		if bridge == tenantNet.Bridge {
			inside = hostTenant
		}
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: inside, PeerNamespace: netlink.NsPid(h.process.Pid)}
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
		on, err := netlink.LinkByName(bridge)
		if err != nil {
			return fmt.Errorf("find %s: %w", bridge, err)
		}
		if err := netlink.LinkSetMaster(pair, on); err != nil {
			return fmt.Errorf("put %s on %s: %w", name, bridge, err)
		}
		if err := netlink.LinkSetUp(pair); err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	return nil
}

// await waits until libvirt listens.
func (h *vmHost) await(ctx context.Context) error {
	deadline := time.Now().Add(hostStart)
	for {
		conn, err := net.Dial("unix", filepath.Join(h.spec.Name, libvirtSocket))
		if err == nil {
			return conn.Close()
		}
		over := time.Now().After(deadline)
		select {
		case <-h.ended:
			over = true
		default:
		}
		if over {
			return fmt.Errorf("host %s: libvirt does not listen: %w: %s", h.spec.Name, err, lastWords(filepath.Join(h.spec.Name, hostLog)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lastWords is the end of a log.
func lastWords(path string) []byte {
	const enough = 1000
	text, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-enough):]
}

func writeHostFiles(spec hostSpec) error {
	for name, text := range map[string]string{
		"etc/libvirtd.conf": "auth_unix_rw = \"none\"\nunix_sock_group = \"root\"\nlog_outputs = \"3:stderr\"\nhost_uuid = \"" + spec.UUID + "\"\n",
		// All of it is root's inside the lab: nothing to relabel, no cgroups, no daemon beside libvirtd.
		"etc/qemu.conf": `user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
`,
	} {
		if err := os.WriteFile(filepath.Join(spec.Name, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (h *vmHost) status() HostStatus {
	return HostStatus{
		Name: h.spec.Name, UUID: h.spec.UUID, PID: h.process.Pid, Address: h.spec.address().Addr().String(), Bridge: tenantNet.Bridge,
		Dir: h.spec.Name, Socket: filepath.Join(h.spec.Name, libvirtSocket),
	}
}

// runHost is pid 1 of a host: its directories, its network, its libvirt daemon, which it starts again whenever that
// ends, as a service manager would. It reaps what is left to it, guests too.
func runHost(dir, address string) error {
	if err := setupHost(dir, address); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	for {
		if _, err := os.Stat("/" + holdFile); err == nil {
			reap(0)
			time.Sleep(restartDelay)
			continue
		}
		// Of one that was killed; a living daemon locks it.
		os.Remove("/" + daemonPIDs)
		pid, err := syscall.ForkExec("/usr/sbin/libvirtd", []string{"libvirtd"}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
		if err != nil {
			return fmt.Errorf("start libvirtd: %w", err)
		}
		log.Info("libvirtd started", "pid", pid)
		if err := reap(pid); err != nil {
			return err
		}
		log.Info("libvirtd ended")
		time.Sleep(restartDelay)
	}
}

// reap waits for children until the one with this pid ends; with 0 it only takes those that have ended.
func reap(until int) error {
	options := 0
	if until == 0 {
		options = syscall.WNOHANG
	}
	for {
		pid, err := syscall.Wait4(-1, nil, options, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD) && until == 0:
			return nil
		case err != nil:
			return fmt.Errorf("wait for libvirtd: %w", err)
		case pid == until || pid == 0:
			return nil
		}
	}
}

// setupHost makes the mounts and the network of the namespaces that it runs in.
func setupHost(dir, address string) error {
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
		if err := unix.Mount(filepath.Join(dir, from), to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", to, err)
		}
	}
	for name, line := range map[string]string{"passwd": libvirtUser + ":x:64055:64055::/nonexistent:/usr/sbin/nologin\n", "group": libvirtUser + ":x:64055:\n"} {
		if err := addAccount(dir, name, line); err != nil {
			return fmt.Errorf("account of %s: %w", libvirtUser, err)
		}
	}
	return setupHostNetwork(address)
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
	return unix.Mount(path, "/etc/"+name, "", unix.MS_BIND, "")
}

func setupHostNetwork(address string) error {
	prefix, err := netip.ParsePrefix(address)
	if err != nil {
		return fmt.Errorf("address of the host: %w", err)
	}
	deadline := time.Now().Add(hostStart)
	for _, name := range []string{hostManagement, hostTenant} {
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
	if err := addBridge(network{Bridge: tenantNet.Bridge}); err != nil {
		return fmt.Errorf("make bridge %s: %w", tenantNet.Bridge, err)
	}
	bridge, err := netlink.LinkByName(tenantNet.Bridge)
	if err != nil {
		return err
	}
	for _, name := range []string{"lo", hostManagement, hostTenant} {
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
	return addAddress(hostManagement, prefix)
}

// Enter is what goes before a program that is to run inside a host, given to Lab.Command or Lab.Exec.
func (h HostStatus) Enter() []string {
	return []string{"nsenter", "-t", strconv.Itoa(h.PID), "-m", "-u", "-n", "-p", "--"}
}

// Host finds one of the lab's VM hosts by its name. NotFound: it has none of that name.
func (l *Lab) Host(ctx context.Context, name string) (HostStatus, error) {
	s, err := l.Status(ctx)
	if err != nil {
		return HostStatus{}, err
	}
	for _, h := range s.Hosts {
		if h.Name == name {
			return h, nil
		}
	}
	return HostStatus{}, problem.NotFoundf("lab %s has no host %q", s.Name, name)
}

// KillLibvirt ends a host's libvirt daemon by force; guests go on. The host starts it again at once, or with hold only
// after a call without it.
func (l *Lab) KillLibvirt(ctx context.Context, name string, hold bool) error {
	h, err := l.Host(ctx, name)
	if err != nil {
		return err
	}
	script := "rm -f /" + holdFile
	if hold {
		script = "touch /" + holdFile
	}
	args := append(h.Enter(), "sh", "-c", script+"; [ ! -s /"+daemonPIDs+" ] || kill -9 $(cat /"+daemonPIDs+") 2>/dev/null || true")
	if out, err := l.Command(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("kill libvirt of %s: %w: %s", name, err, out)
	}
	return nil
}
