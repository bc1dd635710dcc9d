package metal

// The files that a boot plan offers, each under FileURL of its name.
const (
	BootScript  = "boot.ipxe" // iPXE script
	BootKernel  = "kernel"
	BootRamdisk = "ramdisk"
	BootISO     = "boot.iso" // CD image for BIOS and UEFI, with the node's parameters
	BootFailed  = "failed"   // no file: where a boot script says what went wrong
	BootEFI     = "boot.efi" // unified kernel image for UEFI, with the node's parameters
	BootImage   = "image"    // the system image that the ramdisk writes, where it is a file of the conductor
)

// FilePrefix is where boot files lie on our listeners.
const FilePrefix = "/boot/"

// FileURL gives the URL of a file of this plan. Under an empty base it is an absolute path.
func (p *BootPlan) FileURL(name string) string { return p.URL + FilePrefix + p.Path + "/" + name }
