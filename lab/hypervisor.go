package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"salvor/problem"
)

// This file makes VM hosts: each is a libvirt daemon in net, mount, pid and uts namespaces of its own inside the
// lab's, behind a Redfish BMC. It has three network devices: one on the provisioning network, where it has an address
// and reaches a control plane, one on the storage network, and one in its own bridge of the tenant network, where its
// guests are and it is not.

const (
	maxHosts       = 8
	firstHostOctet = 2 // on each network, below the machines
	libvirtSocket  = "run/libvirt/libvirt-sock"
	hostStart      = 30 * time.Second
	// sharedDir is a directory that all hosts see alike.
	sharedDir = "shared"

	emulator     = "/usr/bin/" + qemuProgram
	emulatorFile = "emulator"
)

// hostFiles maps what a VM host runs to the Debian package that brings it.
var hostFiles = map[string]string{
	"/usr/sbin/libvirtd": "libvirt-daemon", "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so": "libvirt-daemon-driver-qemu",
	"/usr/bin/nsenter": "util-linux", "/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so": "qemu-block-extra",
}

// emulatorScript takes QEMU's locks off disks: the hosts of a lab share one kernel, whose locks would protect a disk
// as those of two real machines do not. It starts the real program by taking itself away from over it.
const emulatorScript = `#!/bin/bash
args=()
for arg; do
	case $arg in
	'{"driver":"file",'*) arg='{"driver":"file","locking":"off",'${arg#'{"driver":"file",'} ;;
	esac
	args+=("$arg")
done
exec unshare --mount sh -c 'umount "$0" && exec "$0" "$@"' ` + emulator + ` "${args[@]}"
`

// hostSpec is the fixed part of one VM host.
type hostSpec struct {
	Name     string
	UUID     string
	MAC      string
	Octet    int
	User     string
	Password string
}

func (h hostSpec) on(n labNetwork) netip.Prefix {
	return netip.PrefixFrom(hostAddr(n, h.Octet), n.Prefix4.Bits())
}

// hostLink is one network device of a host: its names on both ends, and the lab's bridge that it is on.
type hostLink struct{ bridge, outside, inside string }

// Names of the devices inside the host.
const (
	hostManagement = "eth0"
	hostTenant     = "eth1"
	hostStorage    = "eth2"
)

func (h hostSpec) links() []hostLink {
	return []hostLink{
		{provisionNet.Bridge, h.Name + "-prov", hostManagement},
		{tenantNet.Bridge, h.Name + "-ten", hostTenant},
		{storageNet.Bridge, h.Name + "-store", hostStorage},
	}
}

func (s Spec) hostSpecs() []hostSpec {
	hosts := make([]hostSpec, s.Hosts)
	password := randomHex(8)
	for i := range hosts {
		hosts[i] = hostSpec{
			Name: fmt.Sprintf("h%d", i+1), UUID: uuid.NewString(), MAC: fmt.Sprintf("52:54:00:5a:48:%02x", i+1), Octet: firstHostOctet + i,
			User: "admin", Password: password,
		}
	}
	return hosts
}

// machine is the host as its BMC's service sees it.
func (h hostSpec) machine() machineSpec {
	return machineSpec{Name: h.Name, UUID: h.UUID, MAC: h.MAC, Octet: h.Octet, BMC: Redfish, Firmware: BIOS, Memory: 2048, User: h.User, Password: h.Password}
}

// vmHost is a VM host, seen from the lab. It is a Chassis, and a Drive and a FirmwareSwitch that do nothing.
type vmHost struct {
	spec    hostSpec
	dir     string // absolute
	program []string
	noLocks bool
	kvm     bool
	log     *slog.Logger
	freezer *cgroupFreezer // nil: this system has none
	chassis *faultyChassis
	bmc     bmcServer

	change sync.Mutex // held over each change of power or of faults; taken before mu

	mu          sync.Mutex
	life        *hostLife // nil: off
	cut, frozen bool
}

// newHost makes a host's files and BMC; it is off.
func (w *runningLab) newHost(spec hostSpec) (*vmHost, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", spec.Name, err)
	}
	h := &vmHost{spec: spec, dir: filepath.Join(dir, spec.Name), program: w.plan.Program, noLocks: w.plan.NoDiskLocks, kvm: w.plan.Accel == "kvm", log: w.log.With("host", spec.Name)}
	for _, sub := range []string{"lib", "log", "cache", "etc/qemu"} {
		if err := os.MkdirAll(filepath.Join(spec.Name, sub), 0o755); err != nil {
			return nil, fmt.Errorf("host %s: %w", spec.Name, err)
		}
	}
	if err := writeHostFiles(spec); err != nil {
		return nil, fmt.Errorf("host %s: %w", spec.Name, err)
	}
	if h.freezer, err = newFreezer(dir, spec.Name); err != nil {
		h.log.Warn("it cannot be frozen", "err", err)
	}
	h.chassis = newFaulty(h)
	h.bmc = newHTTPBMC(netip.AddrPortFrom(hostAddr(bmcNet, spec.Octet), redfishPort), newRedfishBMC(spec.machine(), h.chassis, h, h, w.log))
	return h, nil
}

// startHosts powers them all on, and waits for their libvirt daemons.
func (w *runningLab) startHosts(ctx context.Context) error {
	if len(w.hosts) == 0 {
		return nil
	}
	if err := os.MkdirAll(sharedDir, 0o755); err != nil {
		return fmt.Errorf("make the shared directory: %w", err)
	}
	for _, h := range w.hosts {
		if err := h.Do(ctx, ActionOn); err != nil {
			return err
		}
	}
	for _, h := range w.hosts {
		if err := h.await(ctx); err != nil {
			return err
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
		if time.Now().After(deadline) || h.living() == nil {
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
		emulatorFile: emulatorScript,
	} {
		mode := os.FileMode(0o600)
		if name == emulatorFile {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(spec.Name, name), []byte(text), mode); err != nil {
			return err
		}
	}
	return nil
}

// writeBoot leaves what the next life begins with.
func (h *vmHost) writeBoot(id string) error {
	text, err := json.Marshal(hostBoot{Management: h.spec.on(provisionNet), Storage: h.spec.on(storageNet), BootID: id, NoLocks: h.noLocks, KVM: h.kvm})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(h.spec.Name, bootFile), text, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(h.spec.Name, bootIDFile), []byte(id+"\n"), 0o444)
}

func (h *vmHost) status() HostStatus {
	s := HostStatus{
		Name: h.spec.Name, UUID: h.spec.UUID, Address: h.spec.on(provisionNet).Addr().String(), StorageAddress: h.spec.on(storageNet).Addr().String(),
		Bridge: tenantNet.Bridge, Dir: h.spec.Name, Socket: filepath.Join(h.spec.Name, libvirtSocket), ServiceLog: filepath.Join(h.spec.Name, serviceLog),
		BMC:      "http://" + net.JoinHostPort(hostAddr(bmcNet, h.spec.Octet).String(), fmt.Sprint(redfishPort)),
		SystemID: "/redfish/v1/Systems/" + h.spec.Name, User: h.spec.User, Password: h.spec.Password,
		Power: PowerOff, Fault: h.chassis.current().String(),
	}
	if life := h.living(); life != nil {
		s.Power, s.PID, s.BootID = PowerOn, life.process.Pid, life.boot
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Cut, s.Frozen = h.cut, h.frozen
	return s
}

func (w *runningLab) hostVerb(ctx context.Context, name string, verb HostVerb) error {
	for _, h := range w.hosts {
		if h.spec.Name == name {
			return h.do(ctx, verb)
		}
	}
	return problem.NotFoundf("lab %s has no host %q", w.plan.Name, name)
}
