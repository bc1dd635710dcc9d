package diagnose

import (
	"slices"
	"strings"
)

// Coverage says how much of what belongs to a stage was examined.
type Coverage string

// Kinds of coverage.
const (
	Examined    Coverage = "examined"
	Partly      Coverage = "partly"
	NotExamined Coverage = "not-examined"
)

// Rung is one stage of the boot in a verdict: how much of it was examined.
type Rung struct {
	Stage    Stage    `json:"stage"`
	Coverage Coverage `json:"coverage"`
	// Gap names what was not examined; empty where all was. The entry of that name in not_examined says why, to those who may read it.
	Gap string `json:"gap,omitempty"`
}

// gapStages are the stages that a gap concerns, by the beginning of the gap's name. The first row that fits counts. A gap that fits no row concerns
// stagesOfDisks.
var gapStages = []struct {
	prefix string
	stages []Stage
}{
	{"event log", []Stage{Power, Firmware}}, {"bmc", []Stage{Power, Firmware}}, {"boot device", []Stage{Firmware}}, {"power", []Stage{Power}}, {"inventory", []Stage{Firmware}}, {"console", nil}, {"sshd at", nil}, {askedGap, nil},
	{"/boot/grub", []Stage{Loader}}, {"/boot/loader", []Stage{Loader}}, {"/boot/efi", []Stage{Loader}}, {"the core image of GRUB", []Stage{Loader}}, {"/efi", []Stage{Loader}},
	{"/boot/init", []Stage{Initramfs}}, {"/boot/vmlinuz", []Stage{Kernel}}, {"/boot", []Stage{Loader, Kernel, Initramfs}}, {"/lib/modules", []Stage{Kernel, Initramfs}}, {"/usr/lib/modules", []Stage{Kernel, Initramfs}},
	{"/etc/fstab", []Stage{Root, Target}}, {"/etc/crypttab", []Stage{Root, Target}}, {"/etc/systemd/network", []Stage{Network}}, {"/etc/systemd", []Stage{Target}}, {"/etc/network", []Stage{Network}}, {"/etc/netplan", []Stage{Network}},
	{"/etc/NetworkManager", []Stage{Network}}, {"/etc/sysconfig/network", []Stage{Network}}, {"the configuration of sshd", []Stage{SSHD, Login}}, {"the configuration of ", []Stage{Network}},
	{"/etc/nftables", []Stage{Network}}, {"/etc/iptables", []Stage{Network}}, {"/etc/firewalld", []Stage{Network}}, {"/etc/ufw", []Stage{Network}},
	{"/etc/ssh", []Stage{SSHD, Login}}, {"/etc/pam.d", []Stage{Login}}, {"/etc/passwd", []Stage{Login}}, {"/etc/shadow", []Stage{Login}}, {"/etc/group", []Stage{Login}}, {"/etc/sudoers", []Stage{Login}},
	{"/home", []Stage{Login}}, {"/root", []Stage{Login}}, {"/var/log", []Stage{Kernel, Target}}, {"/var/lib/dpkg", []Stage{Init}}, {"/var/lib/rpm", []Stage{Init}},
}

// askedGap begins the gaps about programs of the system. The rules have examined the same files, so no stage lacks anything.
const askedGap = "the checkers of the system"

// stagesOfDisks are the stages about which the files on the disks tell.
func stagesOfDisks() []Stage {
	return slices.DeleteFunc(Stages(), func(s Stage) bool { return s == Power || s == Firmware })
}

// stagesOfGap are the stages that a gap concerns.
func stagesOfGap(g Gap) []Stage {
	for _, row := range gapStages {
		if strings.HasPrefix(strings.ToLower(g.What), strings.ToLower(row.prefix)) {
			return row.stages
		}
	}
	return stagesOfDisks()
}

// ladder says for each stage how much of it was examined.
func (r *Report) ladder() []Rung {
	looked := r.ExaminedIn > 0 && len(r.Systems) > 0
	var out []Rung
	for _, stage := range Stages() {
		rung := Rung{Stage: stage, Coverage: Examined}
		ofDisks := slices.Contains(stagesOfDisks(), stage)
		switch {
		case ofDisks && !looked:
			rung.Coverage, rung.Gap = NotExamined, r.gapOfDisks()
		case !ofDisks && !slices.ContainsFunc(r.Observed, func(o Observation) bool { return o.Name == "power" }) && !looked:
			rung.Coverage, rung.Gap = NotExamined, "the firmware and the BMC"
		default:
			for _, g := range r.NotExamined {
				if slices.Contains(stagesOfGap(g), stage) {
					rung.Coverage, rung.Gap = Partly, Excerpt(g.What)
					break
				}
			}
		}
		out = append(out, rung)
	}
	return out
}

// gapOfDisks names what kept the systems on the disks from being examined.
func (r *Report) gapOfDisks() string {
	for _, g := range r.NotExamined {
		if g.What == disks || strings.HasPrefix(g.What, "/dev/") {
			return Excerpt(g.What)
		}
	}
	if r.ExaminedIn > 0 {
		return "no installed system was found on the disks"
	}
	return disks
}
