package netboot

import (
	"salvor/driver"
	"salvor/metal"
)

var _ driver.BMCNeeds = (*Boot)(nil)

// CheckBMC wants a boot device that leads to the network. A BMC that has no HTTP boot is set to boot from the network at large.
func (b *Boot) CheckBMC(n *metal.Node, bmc metal.BMC) error {
	if b.method == metal.BootHTTP && b.url != nil && bmc.NeedsTarget(n, "uefihttp") == nil {
		return nil
	}
	return bmc.NeedsTarget(n, "pxe")
}
