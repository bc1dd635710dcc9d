// Package causes measures a diagnosis. It holds installed systems, the faults that are put on their disks, and the score of what a diagnosis says
// about them. Each fault states its cause. "make causes" builds the disks, examines them with the real ramdisk, and writes docs/causes.md. It takes
// hours, goes on where it was stopped, and is no part of CI.
//
// An author of faults must not read the rules in diagnose/system. The score is worth something only while nobody fits one to the other.
package causes

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
)

// The scripts that the machine runs which makes disks.
//
//go:embed testdata/build
var installScript string

//go:embed testdata/library
var scriptLibrary string

// Layout is a way in which a system is installed.
type Layout struct {
	Name   string
	Suite  string // of Debian
	UEFI   bool   // else BIOS
	FS     string // of the root: ext4, xfs, btrfs
	Stack  string // below the root: plain, mdraid-lvm, luks
	Loader string // grub, systemd-boot
	Init   string // systemd, sysvinit
	Images string // what makes the initramfs: initramfs-tools, dracut
	// BootPartition: /boot is a file system of its own.
	BootPartition bool
	// Signed: GRUB is the signed one, which reads a stub of its configuration on the ESP.
	Signed bool
	Disks  int
}

// Layouts lists all layouts. Cases rotate over them.
func Layouts() []Layout {
	return []Layout{
		{Name: "bios-ext4", Suite: "bookworm", FS: "ext4", Stack: "plain", Loader: "grub", Init: "systemd", Images: "initramfs-tools", Disks: 1},
		{Name: "uefi-ext4", Suite: "trixie", UEFI: true, FS: "ext4", Stack: "plain", Loader: "grub", Init: "systemd", Images: "dracut", Disks: 1},
		{Name: "uefi-lvm-raid", Suite: "bookworm", UEFI: true, FS: "ext4", Stack: "mdraid-lvm", Loader: "grub", Init: "systemd", Images: "initramfs-tools", Signed: true, Disks: 2},
		{Name: "uefi-luks", Suite: "trixie", UEFI: true, FS: "ext4", Stack: "luks", Loader: "systemd-boot", Init: "systemd", Images: "initramfs-tools", Disks: 1},
		{Name: "bios-xfs", Suite: "bookworm", FS: "xfs", Stack: "plain", Loader: "grub", Init: "sysvinit", Images: "initramfs-tools", BootPartition: true, Disks: 1},
		{Name: "bios-btrfs", Suite: "trixie", FS: "btrfs", Stack: "plain", Loader: "grub", Init: "systemd", Images: "dracut", Disks: 1},
	}
}

// Packages are what the layout installs beside what every layout has.
func (l Layout) Packages() []string {
	out := []string{l.Images}
	if l.Init == "sysvinit" {
		out = append(out, "sysvinit-core", "initscripts", "orphan-sysvinit-scripts")
	} else {
		out = append(out, "systemd-sysv")
	}
	if l.Loader == "systemd-boot" {
		out = append(out, "systemd-boot")
	}
	if l.Signed {
		out = append(out, "grub-efi-amd64-signed", "shim-signed")
	}
	if l.Images == "initramfs-tools" {
		out = append(out, "cryptsetup-initramfs")
	}
	return out
}

// UUIDs of what lies below roots. An initramfs is made before its disks are, and names them.
const (
	arrayUUID     = "3aaa0122:29827cfa:5331ad66:ca767371"
	containerUUID = "7c1f5d0a-6a3e-4d0c-9c55-0b6f0d1b7c11"
)

// Volumes are the lines of the file that names what lies below the root.
func (l Layout) Volumes() (file, lines string) {
	switch l.Stack {
	case "mdraid-lvm":
		return "/etc/mdadm/mdadm.conf", "HOMEHOST <system>\\nARRAY /dev/md/0 metadata=1.2 name=web:0 UUID=" + arrayUUID
	case "luks":
		return "/etc/crypttab", "crypt UUID=" + containerUUID + " none luks,initramfs"
	}
	return "", ""
}

// Variables are what the scripts on disks read about the layout.
func (l Layout) Variables() string {
	firmware, boot := "bios", ""
	if l.UEFI {
		firmware = "uefi"
	}
	if l.BootPartition {
		boot = "partition"
	}
	return fmt.Sprintf("FIRMWARE=%s\nFS=%s\nSTACK=%s\nLOADER=%s\nINIT=%s\nBOOT=%s\nARRAY_UUID=%s\nCONTAINER_UUID=%s\n", firmware, l.FS, l.Stack, l.Loader, l.Init, boot, arrayUUID, containerUUID)
}

// Digest names the content of the layout's image.
func (l Layout) Digest() string { return digestOf(installScript, l.Suite, l.Variables(), l.Packages()) }

func digestOf(parts ...any) string {
	sum := sha256.Sum256([]byte(fmt.Sprint(parts...)))
	return hex.EncodeToString(sum[:6])
}

// Kind says what a case is for.
type Kind string

// Kinds of cases.
const (
	Single   Kind = "one fault"
	Double   Kind = "two faults"
	NearMiss Kind = "near miss"
	Healthy  Kind = "healthy"
)

// Effect says what a fault does to its machine.
type Effect string

const (
	// Blocks: the machine does not boot, or nobody can log in as the administrators of the corpus do: root by its key, over ssh.
	Blocks Effect = "blocks"
	// Harms: the machine boots and takes that login, and yet something is wrong that its owner has to know.
	Harms Effect = "harms"
)

// Fault is a script that breaks a system, with the truth about it.
type Fault struct {
	Name string
	// Cause is the number of the cause in the project's catalogue of causes.
	Cause  int
	Effect Effect
	// IDs are the findings that name this cause; any of them counts as right.
	IDs []string
	// Script runs with the system mounted below $R; Offline runs with nothing mounted, on the devices.
	Script, Offline string
	// Hardware is what the machine that examines has of the fault.
	Hardware Hardware
	// Network is the network_data that the control plane knows for the machine; empty: none.
	Network string
	// On says on which layouts the fault exists; nil: on each.
	On func(Layout) bool
}

// Hardware is how the machine that examines differs from the one that the system was installed on.
type Hardware struct {
	// OtherFirmware: it starts by BIOS and not by UEFI, or the other way round.
	OtherFirmware bool
	// Clock is the time of its real-time clock at its start; zero: now.
	Clock time.Time
	// Without is the number of a disk that is not there, from 1; 0: all are.
	Without int
	// BadSector: the task prints "causes: unreadable SECTOR", and that sector of the first disk cannot be read.
	BadSector bool
}

// ByUEFI says by which firmware the machine starts.
func (h Hardware) ByUEFI(l Layout) bool { return l.UEFI != h.OtherFirmware }

// Case is one machine to examine.
type Case struct {
	Name   string
	Kind   Kind
	Layout Layout
	Faults []Fault
	// Script changes a system that stays healthy.
	Script string
	// Cut: the power is cut after the change, so that journals are dirty.
	Cut bool
	// InUse: the system itself runs, and its power is cut then.
	InUse bool
}

// Hardware is that of the case's faults.
func (c Case) Hardware() Hardware {
	for _, f := range c.Faults {
		if f.Hardware != (Hardware{}) {
			return f.Hardware
		}
	}
	return Hardware{}
}

// Network is what the control plane knows for the case's machine.
func (c Case) Network() string {
	for _, f := range c.Faults {
		if f.Network != "" {
			return f.Network
		}
	}
	return ""
}

// Task is the script that puts the case on its disks.
func (c Case) Task() string {
	var b strings.Builder
	b.WriteString(". /causes/library\nassemble\n")
	scripts, offline := []string{c.Script}, ""
	for _, f := range c.Faults {
		scripts = append(scripts, f.Script)
		if f.Offline != "" {
			offline += f.Offline + "\n"
		}
	}
	if text := strings.TrimSpace(strings.Join(scripts, "\n")); text != "" || c.Cut {
		b.WriteString("enter\n" + text + "\n")
		if c.endsByCut() {
			b.WriteString("date >$R/var/log/last-write\nsync\necho changed >>$R/var/log/last-write\nsync\n")
			return b.String()
		}
		b.WriteString("leave\n")
	}
	b.WriteString(offline + "disassemble\nsync\n")
	return b.String()
}

// Digest names the content of the case's disks.
func (c Case) Digest() string {
	h := c.Hardware()
	parts := []any{c.Layout.Name, c.Layout.Digest(), scriptLibrary, c.Task(), c.InUse, h.Without}
	if h != (Hardware{}) {
		parts = append(parts, h.OtherFirmware, h.Clock.Unix(), h.BadSector)
	}
	if n := c.Network(); n != "" {
		parts = append(parts, n)
	}
	return digestOf(parts...)
}

// changesDisks says whether the case has other disks than its layout's image, when its machine is switched off.
func (c Case) changesDisks() bool {
	return c.Script != "" || c.Cut || slices.ContainsFunc(c.Faults, func(f Fault) bool { return f.Script+f.Offline != "" })
}

// endsByCut says whether the case's disks are taken from a system that is mounted, as a power cut leaves them.
func (c Case) endsByCut() bool {
	return c.Cut && !slices.ContainsFunc(c.Faults, func(f Fault) bool { return f.Offline != "" })
}

// Cases lists the whole corpus: each fault on one layout, the pairs, the near misses and the healthy systems. The name of a case decides on its
// layout, so that a fault more moves no other case to another layout.
func Cases() []Case {
	layouts := Layouts()
	return casesOn(func(name string, fits func(Layout) bool) []Layout {
		h := fnv.New32a()
		_, _ = h.Write([]byte(name))
		for next := h.Sum32() >> 1; ; next++ {
			if l := layouts[next%uint32(len(layouts))]; fits(l) {
				return []Layout{l}
			}
		}
	})
}

// CasesOn lists the cases of one layout: all that fit it.
func CasesOn(l Layout) []Case {
	return casesOn(func(_ string, fits func(Layout) bool) []Layout {
		if fits(l) {
			return []Layout{l}
		}
		return nil
	})
}

// casesOn makes the cases on those of the layouts that choose gives for each.
func casesOn(choose func(name string, fits func(Layout) bool) []Layout) []Case {
	var out []Case
	add := func(c Case, fits ...func(Layout) bool) {
		for _, l := range choose(c.Name, func(l Layout) bool {
			return !slices.ContainsFunc(fits, func(on func(Layout) bool) bool { return on != nil && !on(l) })
		}) {
			c.Layout = l
			out = append(out, c)
		}
	}
	for i, f := range Faults() {
		add(Case{Name: f.Name, Kind: Single, Faults: []Fault{f}, Cut: i%2 == 1 && f.Script+f.Offline != ""}, f.On)
	}
	for _, pair := range pairedFaults() {
		a, b := faultNamed(pair[0]), faultNamed(pair[1])
		add(Case{Name: a.Name + "+" + b.Name, Kind: Double, Faults: []Fault{a, b}, Cut: true}, a.On, b.On)
	}
	for _, m := range nearMisses() {
		m.Kind = NearMiss
		add(m.Case, m.on)
	}
	for _, l := range Layouts() {
		here := func(other Layout) bool { return other.Name == l.Name }
		add(Case{Name: "clean", Kind: Healthy}, here)
		add(Case{Name: "cut-in-use", Kind: Healthy, InUse: true}, here)
	}
	for i, h := range healthyVariants() {
		h.Kind, h.Cut = Healthy, i%2 == 0
		add(h.Case, h.on)
	}
	for i := range out {
		out[i].Name += "@" + out[i].Layout.Name
	}
	return out
}

func faultNamed(name string) Fault {
	all := Faults()
	i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		panic("no fault is named " + name)
	}
	return all[i]
}
