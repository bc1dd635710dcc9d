package node

import (
	"context"
	"encoding/json"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// check is the first action of an operation that works on a machine: what cannot succeed fails while the machine is as it was.
func (c *Conductor) check(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	op, err := operationOf(r)
	if err != nil {
		return job.Fail(err)
	}
	if op.HasSteps {
		asked, _, err := c.steps().requestedSteps(ctx, m.node.ID)
		if err != nil {
			return job.From(err)
		}
		op.Steps = []metal.StepList{{Steps: asked, DisableRamdisk: op.DisableRamdisk}}
	}
	c.rereadBMC(ctx, r, m, bmcFresh)
	found, err := c.Nodes.Check(ctx, m.node, op, c)
	if err == nil && len(found) > 0 && c.rereadBMC(ctx, r, m, time.Minute) {
		found, err = c.Nodes.Check(ctx, m.node, op, c)
	}
	if err != nil {
		return job.From(err)
	}
	if len(found) > 0 {
		return job.Fail(problem.Invalidf("%s", metal.ReasonTexts(found)))
	}
	return job.Done()
}

// bmcFresh is how long a description of a BMC is believed.
const bmcFresh = 24 * time.Hour

// rereadBMC reads anew what the BMC offers if that was read longer ago. A BMC that does not tell keeps its description.
func (c *Conductor) rereadBMC(ctx context.Context, r *job.Run, m *managedNode, age time.Duration) bool {
	known := metal.BMCOf(m.node)
	if r.Kind == "unrescue" || !known.ReadAt.IsZero() && c.Now().Sub(known.ReadAt) < age {
		return false
	}
	describes, err := requireInterface[driver.BMCDescriber](m, "management", "describe")
	if err != nil {
		return false
	}
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	b, err := describes.DescribeBMC(bounded, m.node)
	if err != nil {
		r.Log.Warn("read what the BMC offers", "error", err)
		return false
	}
	b.MediaUnlicensedAt = known.MediaUnlicensedAt // drives are there without a licence too
	secure := queryInterface(m, nil, "management", func(d driver.BootModes) (*bool, error) {
		on, err := d.SecureBoot(bounded, m.node)
		return &on, err
	})
	keep := func(n *metal.Node) {
		metal.KeepBMC(n, b)
		if secure != nil { // it is set in the firmware's own menus too
			n.SecureBoot = secure
		}
	}
	if err := c.steps().commit(ctx, r, m, c.edit(ctx, m.node.ID, keep)); err != nil {
		r.Log.Warn("keep what the BMC offers", "error", err)
		return false
	}
	m.facts = factsOf(m.node)
	return true
}

// checkAction opens a list. Jobs of the release before begin without it.
func (c *Conductor) checkAction() job.Action {
	return job.Action{Name: "check", Do: c.withNode(c.check), NoUndo: checksOnly, Deadline: c.readDeadline(), Checks: true, Since: 2}
}

func operationOf(r *job.Run) (metal.Operation, error) {
	args, err := argsOf[metal.ProvisionArgs](r)
	return metal.Operation{Kind: r.Kind, HasSteps: args.HasSteps, DisableRamdisk: args.DisableRamdisk}, err
}

// argsOf reads what was asked of a job; a job that another one inserts may have no arguments.
func argsOf[A any](r *job.Run) (args A, err error) {
	if len(r.Args) > 0 {
		if err = json.Unmarshal(r.Args, &args); err != nil {
			err = problem.Invalidf("%s: %w", r.Kind, err)
		}
	}
	return args, err
}

// cleansByRamdisk tells whether a cleaning boots a ramdisk: one that was asked for by its steps, one unasked by the node's and
// the configured choice.
func (c *Conductor) cleansByRamdisk(m *managedNode, op metal.Operation) bool {
	if op.Kind == "clean" {
		return m.heedsAgents() && !op.DisableRamdisk && op.HasSteps
	}
	yes, _ := c.cleansUnasked(context.Background(), nil, m)
	return yes
}

// rescueRamdisk is what a rescue boots: the node's own choice, or the configured one.
func (c *Conductor) rescueRamdisk(m *managedNode) driver.Ramdisk {
	return m.configuredRamdisk("rescue", c.RescueByArch, Images{c.RescueKernel, c.RescueRamdisk}, !c.PasswordInLookup)
}

// deployRamdisk is what deploys, cleans, serves and inspects the node.
func (c *Conductor) deployRamdisk(m *managedNode) driver.Ramdisk {
	return m.configuredRamdisk("deploy", c.DeployByArch, Images{c.DeployKernel, c.DeployRamdisk}, !c.PasswordInLookup)
}

// configuredRamdisk is the one for a use that driver_info names, else the configured one for the node's architecture, else the other.
func (m *managedNode) configuredRamdisk(use string, byArch map[string]Images, other Images, carryToken bool) driver.Ramdisk {
	n := m.node
	chosen := Images{n.Info(use + "_kernel"), n.Info(use + "_ramdisk")}
	if chosen == (Images{}) {
		arch, _ := n.Properties["cpu_arch"].(string)
		var ok bool
		if chosen, ok = byArch[arch]; !ok {
			chosen = other
		}
	}
	return driver.Ramdisk{Kernel: chosen.Kernel, Image: chosen.Ramdisk, ISO: n.Info(use + "_iso"), CarryToken: carryToken, Ports: m.bootPorts()}
}
