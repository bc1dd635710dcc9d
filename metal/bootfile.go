package metal

import "strings"

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
