package metal

import (
	"context"
	"strings"
	"time"

	"salvor/job"
)

// The files that a boot plan offers, each under FileURL of its name.
const (
	BootScript  = "boot.ipxe" // iPXE script
	BootKernel  = "kernel"
	BootRamdisk = "ramdisk"
	BootISO     = "boot.iso" // CD image for BIOS and UEFI, with the node's parameters; or the plan's own ISO image, where it is a file
	BootFailed  = "failed"   // no file: where a boot script says what went wrong
	BootEFI     = "boot.efi" // unified kernel image for UEFI, with the node's parameters
	BootImage   = "image"    // the system image that the ramdisk writes, where it is a file of the conductor
	BootShim    = "shim"     // the signed boot loaders of a plan with Secure Boot, for sites
	BootGRUB    = "grub"

	BootConfigDrive = "config-drive.img" // the config drive of the instance, an ISO 9660 image
)

// FilePrefix is where boot files lie on our listeners.
const FilePrefix = "/boot/"

// HTTPFile is what UEFI HTTP boot fetches. The unified kernel image is not signed: where the firmware enforces Secure Boot it gets the
// CD image, which it makes a RAM disk of, and the signed boot loaders on it.
func (p *BootPlan) HTTPFile() string {
	if p.SecureBoot {
		return BootISO
	}
	return BootEFI
}

// FileURL gives the URL of a file of this plan. Under an empty base it is an absolute path.
func (p *BootPlan) FileURL(name string) string { return p.URL + FilePrefix + p.Path + "/" + name }

// IsURL tells a URL, which machines fetch by themselves, from the other references of a plan: paths of files and images of Glance.
func IsURL(ref string) bool {
	scheme, _, ok := strings.Cut(ref, "://")
	return ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

// ISOURL gives the URL of the CD image that a plan for virtual media shows the machine.
func (p *BootPlan) ISOURL() string {
	if IsURL(p.ISO) {
		return p.ISO
	}
	return p.FileURL(BootISO)
}

// FirmwareFiles are the files without any of which the firmware of the machine, or iPXE in its place, does not start what the plan boots.
func (p *BootPlan) FirmwareFiles() []string {
	switch {
	case p.Volumes:
		return []string{BootScript}
	case p.Method == BootMedia:
		return []string{BootISO}
	case p.Method == BootHTTP:
		return []string{p.HTTPFile()}
	}
	return []string{BootScript, BootKernel, BootRamdisk}
}

// BootRefusal is a boot file that a machine asked for and did not get.
type BootRefusal struct {
	File string
	Why  string
	At   time.Time
	// Final tells that asking again does not help, and that the machine does not boot without the file.
	Final bool
}

// String says what was refused and why.
func (r *BootRefusal) String() string {
	return "the machine asked for its boot file " + r.File + " and did not get it: " + r.Why
}

// refusalEvery bounds how often the word of a refused boot file is written: a BMC asks for its virtual CD again and again.
const refusalEvery = 10 * time.Second

// RecordBootRefusal keeps with the boot plan that a boot file was refused, notes it in the history, and wakes the operation that waits for
// the machine. A refusal of another boot changes nothing.
func (s *Nodes) RecordBootRefusal(ctx context.Context, nodeID string, boot int64, r BootRefusal) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, nodeID)
		if err != nil {
			return err
		}
		if n.Plan == nil || n.Plan.BootNumber != boot || n.BootNumber != boot {
			return nil
		}
		r.At = s.now()
		known := n.Plan.Refusal
		if known != nil && (known.Final && !r.Final || known.Final == r.Final && r.At.Sub(known.At) < refusalEvery) {
			return nil
		}
		isNew := known == nil || known.File != r.File || known.Why != r.Why || known.Final != r.Final
		plan := *n.Plan
		plan.Refusal, n.Plan = &r, &plan
		if isNew && n.ProvisionState.Info().Stable { // no operation tells of it
			n.LastError = bootFailed + r.String()
		}
		if err := s.store.SaveNode(tx, n); err != nil || !isNew {
			return err
		}
		if err := s.jobs.Append(tx, job.Event{Subject: job.Node(n.ID), At: r.At, Type: "boot", Text: r.String(), Severity: "error"}); err != nil {
			return err
		}
		return s.jobs.Signal(tx, job.Node(n.ID))
	})
}

// bootRefusal is the refusal of a file of the node's present boot, unless the file was fetched since; nil: there is none.
func (s *StatusInput) bootRefusal() *BootRefusal {
	n := s.Node
	if n.Plan == nil || n.Plan.BootNumber != n.BootNumber || n.Plan.Refusal == nil {
		return nil
	}
	r := n.Plan.Refusal
	if s.Contact.BootWord == FetchWord+r.File && s.Contact.BootAt.After(r.At) || s.Contact.AgentBoot == n.BootNumber {
		return nil
	}
	return r
}
