package lab

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"

	"github.com/google/uuid"

	"salvor/lab/odd"
	"salvor/lab/personality"
	"salvor/problem"
)

// BMCType is the protocol that a machine's BMC speaks.
type BMCType string

// Firmware is what a machine runs before any disk or network.
type Firmware string

// DiskKind is what lies on a machine's disk when the lab starts.
type DiskKind string

const (
	Redfish BMCType = "redfish"
	IPMI    BMCType = "ipmi"

	BIOS Firmware = "bios"
	UEFI Firmware = "uefi"

	// TenantDisk holds a small system whose root password nobody knows.
	TenantDisk DiskKind = "tenant"
	// BlankDisk holds nothing; such machines try the network after their disk.
	BlankDisk DiskKind = "blank"
)

// Limits of a lab: each machine has its own last octet in the lab's networks.
const (
	maxMachines = 40
	minMemory   = 128
	firstOctet  = 11
)

// Spec says what a lab is made of. The zero value of a field means its default.
type Spec struct {
	Name     string `json:"name"`     // "default"; labs with different names live side by side
	Machines int    `json:"machines"` // 1, or none in a lab with Hosts
	// Hosts is how many VM hosts there are, each a libvirt daemon in namespaces of its own; only for root.
	Hosts int `json:"hosts,omitempty"`
	// NoDiskLocks has their QEMUs take no locks on files: nothing but who uses them protects shared disks then.
	NoDiskLocks bool    `json:"no_disk_locks,omitempty"`
	BMC         BMCType `json:"bmc"` // redfish
	// Like has the machines' BMCs behave like those of others; empty: like the lab's own. It decides about BMC.
	Like personality.Name `json:"like,omitempty"`
	// Odd are the oddities of the machines' Redfish BMCs, each as odd.BMCOddity prints it. They begin when a client has logged in once.
	Odd      []string `json:"odd,omitempty"`
	Firmware Firmware `json:"firmware"` // bios
	Memory   int      `json:"memory"`   // MiB per machine, 512
	Disk     DiskKind `json:"disk"`     // tenant
	Accel    string   `json:"accel"`    // tcg
	// SOL has BMCs that speak Redfish speak IPMI too, with Serial over LAN, as most real ones do.
	SOL bool `json:"sol,omitempty"`
	// Initiator gives the machines an adapter that boots from iSCSI by itself, set up through their Redfish BMC.
	Initiator bool   `json:"initiator"`
	StateDir  string `json:"-"` // as of DefaultStateDir

	// Program is the command that the lab re-executes for its own hidden parts; what Hidden
	// takes is appended. Default: this executable with the argument "lab".
	Program []string `json:"program"`
	// Leashed ends the lab when the process that called Up ends, however that happens.
	Leashed bool `json:"leashed"`
}

// DefaultStateDir is where salvor keeps its state: /var/lib/salvor for root, else under XDG_STATE_HOME.
func DefaultStateDir() string {
	if os.Getuid() == 0 {
		return "/var/lib/salvor"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "salvor")
	}
	return filepath.Join(os.Getenv("HOME"), ".local", "state", "salvor")
}

var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// withDefaults fills the empty fields and refuses a Spec that cannot work.
func (s Spec) withDefaults() (Spec, error) {
	setDefault(&s.Name, "default")
	if s.Hosts == 0 {
		setDefault(&s.Machines, 1)
	}
	if err := s.Like.Check(); err != nil {
		return s, err
	}
	setDefault(&s.BMC, protocolOf(s.Like))
	setDefault(&s.Firmware, BIOS)
	setDefault(&s.Memory, 512)
	setDefault(&s.Disk, TenantDisk)
	setDefault(&s.Accel, "tcg")
	setDefault(&s.StateDir, DefaultStateDir())
	switch {
	case !nameRule.MatchString(s.Name):
		return s, problem.Invalidf("lab name %q: want up to 32 of a-z, 0-9 and -", s.Name)
	case s.Machines < 0 || s.Machines > maxMachines || s.Machines+s.Hosts == 0:
		return s, problem.Invalidf("lab machines %d: want 1 to %d", s.Machines, maxMachines)
	case s.Hosts < 0 || s.Hosts > maxHosts:
		return s, problem.Invalidf("lab hosts %d: want up to %d", s.Hosts, maxHosts)
	case s.Hosts > 0 && os.Getuid() != 0:
		return s, problem.Forbiddenf("lab hosts: only root can run libvirt daemons; run it with sudo")
	case s.BMC != Redfish && s.BMC != IPMI:
		return s, problem.Invalidf("lab bmc %q: want redfish or ipmi", s.BMC)
	case s.Like != "" && s.BMC != protocolOf(s.Like):
		return s, problem.Invalidf("lab bmc %q: BMCs like %s speak %s; leave bmc out", s.BMC, s.Like, protocolOf(s.Like))
	case len(s.Odd) > 0 && s.BMC != Redfish:
		return s, problem.Invalidf("lab bmc %q: only Redfish BMCs can be odd; leave bmc or odd out", s.BMC)
	case s.Firmware != BIOS && s.Firmware != UEFI:
		return s, problem.Invalidf("lab firmware %q: want bios or uefi", s.Firmware)
	case s.Disk != TenantDisk && s.Disk != BlankDisk:
		return s, problem.Invalidf("lab disk %q: want tenant or blank", s.Disk)
	case s.Accel != "tcg" && s.Accel != "kvm":
		return s, problem.Invalidf("lab accel %q: want tcg or kvm", s.Accel)
	case s.Memory < minMemory:
		return s, problem.Invalidf("lab memory %d MiB: want %d or more", s.Memory, minMemory)
	}
	for _, text := range s.Odd {
		if _, err := odd.ParseBMCOddity(text); err != nil {
			return s, err
		}
	}
	if len(s.Program) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return s, fmt.Errorf("find own program: %w", err)
		}
		s.Program = []string{exe, "lab"}
	}
	dir, err := filepath.Abs(s.StateDir)
	if err != nil {
		return s, fmt.Errorf("resolve state directory %q: %w", s.StateDir, err)
	}
	s.StateDir = dir
	return s, nil
}

// protocolOf is what BMCs like others speak; redfish for none.
func protocolOf(like personality.Name) BMCType {
	if like == "" || like.IsRedfish() {
		return Redfish
	}
	return IPMI
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// labDir is the directory of one lab; its cache of kernels and boot files is shared by all.
func labDir(stateDir, name string) string { return filepath.Join(stateDir, "lab", name) }
func cacheDir(stateDir string) string     { return filepath.Join(stateDir, "lab", "cache") }

// machineSpec is the fixed part of one machine: all that is decided before it first runs.
type machineSpec struct {
	Name  string
	UUID  string
	MAC   string
	Tap   string
	Octet int
	// SOL: the BMC reads the serial line.
	SOL      bool
	BMC      BMCType
	Like     personality.Name
	Odd      []string
	Firmware Firmware
	Memory   int
	Disk     DiskKind
	Accel    string
	User     string
	Password string
	// Initiator: the NIC has an iSCSI initiator of its own.
	Initiator bool
}

func (m machineSpec) tenantAddress() netip.Addr { return hostAddr(tenantNet, m.Octet) }
func (m machineSpec) bmcAddress() netip.Addr    { return hostAddr(bmcNet, m.Octet) }

func hostAddr(n labNetwork, octet int) netip.Addr {
	a := n.Prefix4.Addr().As4()
	a[3] = byte(octet)
	return netip.AddrFrom4(a)
}

// machineSpecs lays out the machines m1, m2, ... of a lab. Credentials are fresh for each lab.
func (s Spec) machineSpecs() []machineSpec {
	password := make([]byte, 8)
	rand.Read(password)
	machines := make([]machineSpec, s.Machines)
	for i := range machines {
		name := fmt.Sprintf("m%d", i+1)
		machines[i] = machineSpec{
			Name: name, UUID: uuid.NewString(), MAC: fmt.Sprintf("52:54:00:5a:4c:%02x", i+1), Tap: "tap-" + name,
			Octet: firstOctet + i, BMC: s.BMC, Like: s.Like, Odd: s.Odd, Firmware: s.Firmware, Memory: s.Memory, Disk: s.Disk, Accel: s.Accel,
			Initiator: s.Initiator && s.BMC == Redfish, SOL: s.BMC == IPMI && !s.Like.UsesPyghmi() || s.BMC == Redfish && s.SOL,
			User: "admin", Password: hex.EncodeToString(password),
		}
	}
	return machines
}
