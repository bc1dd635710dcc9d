// Package network moves machines between networks: not at all (Noop), between Linux
// bridges of the conductor's own host (Bridge), or between networks of OpenStack
// Networking (Neutron, also as flat). It knows ports and names of networks, and must know neither what a rescue is nor who asked.
package network

import (
	"context"

	"salvor/driver"
	"salvor/metal"
)

// Noop leaves every port where it is: the networks are somebody else's care.
type Noop struct{}

var _ driver.Network = Noop{}

// Validate finds nothing missing.
func (Noop) Validate(*metal.Node, []*metal.Port, driver.Net) error { return nil }

// Attach does nothing.
func (Noop) Attach(context.Context, *metal.Node, []*metal.Port, driver.Net) error { return nil }

// Detach does nothing.
func (Noop) Detach(context.Context, *metal.Node, []*metal.Port, driver.Net) error { return nil }

// Moves is never true.
func (Noop) Moves(*metal.Node, []*metal.Port, driver.Net, driver.Net) bool { return false }
