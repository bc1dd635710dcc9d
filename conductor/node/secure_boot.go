package node

import (
	"context"
	"strings"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// The capability secure_boot:true of instance_info asks for Secure Boot for the deployed system, as in Ironic: the deployment switches it
// on before the system starts, and the deletion of the instance switches off what the deployment switched on.

// secureBootMark in driver_internal_info tells that a deployment switched Secure Boot on.
const secureBootMark = "salvor_secure_boot_set"

// wantsSecureBoot tells whether the instance asks for Secure Boot. Upper and lower case are the same, as in Ironic.
func wantsSecureBoot(n *metal.Node) bool {
	return strings.EqualFold(metal.Capability(n.InstanceInfo["capabilities"], "secure_boot"), "true")
}

// secureBootSwitch is what switches Secure Boot on and off.
func secureBootSwitch(m *managedNode) (driver.BootModes, error) {
	return requireInterface[driver.BootModes](m, "management", "a switch for Secure Boot")
}

// checkSecureBoot tells why a deployment could not switch Secure Boot on.
func checkSecureBoot(m *managedNode) error {
	if !wantsSecureBoot(m.node) {
		return nil
	}
	const instead = "remove secure_boot from instance_info/capabilities"
	_, err := secureBootSwitch(m)
	switch {
	case err != nil:
		return problem.Invalidf("node %s: its instance asks for Secure Boot, which its management interface cannot switch on: %s", m.node.ID, instead)
	case driver.BootMode(m.node) == "bios":
		return problem.Invalidf("node %s: its instance asks for Secure Boot, and its boot mode is bios: set boot_mode:uefi in its capabilities, or %s", m.node.ID, instead)
	case m.node.SecureBoot == nil && !metal.BMCOf(m.node).ReadAt.IsZero():
		return problem.Invalidf("node %s: its instance asks for Secure Boot, and its BMC shows no switch for it: %s", m.node.ID, instead)
	}
	return nil
}

// secureBoot is the part of the conductor that switches Secure Boot.
type secureBoot struct{ *Conductor }

// withSecureBootOn has the firmware enforce Secure Boot where the instance asks for it, before do prepares the start of the system. Where
// it does not ask, what a former deployment switched on is switched off.
func (c secureBoot) withSecureBootOn(do nodeAction) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if !wantsSecureBoot(m.node) {
			return c.withSecureBootOff(do)(ctx, r, m)
		}
		d, err := secureBootSwitch(m)
		if err != nil {
			return job.From(err)
		}
		on, err := d.SecureBoot(ctx, m.node)
		if err != nil {
			return job.From(err)
		}
		if !on {
			// The mark comes first, so that an operation that is cut off here leaves nothing on for good.
			if err := c.steps().storeFacts(ctx, r, m, func(n *metal.Node) { markInternal(n, secureBootMark, true) }); err != nil {
				return job.From(err)
			}
			if err := d.SetSecureBoot(ctx, m.node, true); err != nil {
				return job.From(err)
			}
		}
		if err := c.steps().storeFacts(ctx, r, m, func(n *metal.Node) { n.SecureBoot = new(true) }); err != nil {
			return job.From(err)
		}
		return do(ctx, r, m)
	}
}

// withSecureBootOff takes back what the deployment of the instance has switched on, and does do.
func (c secureBoot) withSecureBootOff(do nodeAction) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if m.node.InternalInfo[secureBootMark] == nil {
			return do(ctx, r, m)
		}
		d, err := secureBootSwitch(m)
		if err == nil {
			err = d.SetSecureBoot(ctx, m.node, false)
		}
		if problem.Is(err, problem.Unsupported) {
			driver.Note(ctx, "Secure Boot stays on: %v", err)
		} else if err != nil {
			return job.From(err)
		}
		off := err == nil
		err = c.steps().storeFacts(ctx, r, m, func(n *metal.Node) {
			if markInternal(n, secureBootMark, false); off {
				n.SecureBoot = new(false)
			}
		})
		if err != nil {
			return job.From(err)
		}
		return do(ctx, r, m)
	}
}
