// Package netboot brings a machine into a ramdisk over its network: by iPXE, or by
// the HTTP client of UEFI firmware. It only tells the BMC where to boot from; who
// answers the machine's DHCP, TFTP and HTTP, and how the BMC is spoken to, it must not know.
package netboot

import (
	"context"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// SetDevice sets the boot device of a node, as driver.Management does.
type SetDevice func(context.Context, *metal.Node, rescue.Boot) error

// SetURL has the firmware of a node fetch this URL at its next boot.
type SetURL func(ctx context.Context, n *metal.Node, url string) error

// Boot is a boot interface of one boot method.
type Boot struct {
	files  driver.BootFiles
	method metal.BootMethod
	set    SetDevice
	url    SetURL
	// own brings the machine to iSCSI volumes without a script; nil where it cannot.
	own driver.VolumeBoot
}

var _ driver.Boot = (*Boot)(nil)

// IPXE boots by the machine's PXE ROM into our iPXE script.
func IPXE(files driver.BootFiles, set SetDevice) *Boot {
	return &Boot{files: files, method: metal.BootIPXE, set: set}
}

// HTTP boots by UEFI HTTP boot: an EFI image, or the CD image where the firmware enforces Secure Boot. With a nil url the BMC cannot be told
// the URL: the machine boots from its network and DHCP gives it.
func HTTP(files driver.BootFiles, set SetDevice, url SetURL) *Boot {
	return &Boot{files: files, method: metal.BootHTTP, set: set, url: url}
}

// Plan computes the boot plan. A machine that we cannot tell by a MAC is Invalid:
// nobody could answer it.
func (b *Boot) Plan(n *metal.Node, r driver.Ramdisk) (*metal.BootPlan, error) {
	if len(r.Ports) == 0 {
		return nil, problem.Invalidf("boot plan of node %s: it has no port with pxe_enabled, so its request cannot be told from others", n.ID)
	}
	if b.method == metal.BootHTTP && driver.BootMode(n) == "bios" {
		return nil, problem.Invalidf("boot plan of node %s: HTTP boot needs UEFI, but its boot_mode is bios", n.ID)
	}
	return b.files.Plan(n, r, b.method)
}

// PrepareRamdisk sets the network as the next boot's device.
func (b *Boot) PrepareRamdisk(ctx context.Context, n *metal.Node) error {
	if n.Plan == nil {
		return problem.Invalidf("prepare ramdisk of node %s: it has no boot plan", n.ID)
	}
	if b.method == metal.BootHTTP {
		// A URL in the BMC is for one boot; for every boot DHCP gives it.
		if b.url != nil && !n.Plan.Persistent {
			return b.url(ctx, n, n.Plan.FileURL(n.Plan.HTTPFile()))
		}
		return b.set(ctx, n, rescue.Boot{Device: "pxe", Mode: "uefi", Persistent: n.Plan.Persistent})
	}
	return b.set(ctx, n, rescue.Boot{Device: "pxe", Mode: driver.BootMode(n), Persistent: n.Plan.Persistent})
}

// CleanUpRamdisk removes the override.
func (b *Boot) CleanUpRamdisk(ctx context.Context, n *metal.Node) error {
	return b.set(ctx, n, rescue.Boot{})
}

// PrepareInstance sets the boot that was saved.
func (b *Boot) PrepareInstance(ctx context.Context, n *metal.Node, saved rescue.Boot) error {
	return b.set(ctx, n, saved)
}
