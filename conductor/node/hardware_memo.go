package node

import (
	"context"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
)

// noteTime bounds what a look at all settings of a machine may take; some controllers take their time over each.
const noteTime = 45 * time.Second

// noteHardware reads what the machine's controller tells beside power: settings and
// versions of the firmware, how it boots, its volumes and its health. It gives the change
// of the node and, to come after it, the writes that keep it. What cannot be read stays
// as it was known: an operation does not fail for it.
func (c *Conductor) noteHardware(ctx context.Context, m *managedNode) (change func(*metal.Node), writes []func(job.Tx) error) {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	n := m.node
	edits := []func(*metal.Node){
		queryInterface(m, "power", func(d driver.PowerAndHealth) (func(*metal.Node), error) {
			_, health, err := d.ReadPowerAndHealth(ctx, n)
			return func(n *metal.Node) { n.Health = health }, err
		}),
		queryInterface(m, "management", func(d driver.BootModes) (func(*metal.Node), error) {
			mode, err := d.BootMode(ctx, n)
			return func(n *metal.Node) { n.BootMode = mode }, err
		}),
		queryInterface(m, "management", func(d driver.BootModes) (func(*metal.Node), error) {
			on, err := d.SecureBoot(ctx, n)
			return func(n *metal.Node) { n.SecureBoot = &on }, err
		}),
		queryInterface(m, "management", func(d driver.BMCDescriber) (func(*metal.Node), error) {
			b, err := d.DescribeBMC(ctx, n)
			return func(n *metal.Node) { metal.KeepBMC(n, b) }, err
		}),
		queryInterface(m, "raid", func(d driver.RAID) (func(*metal.Node), error) {
			config, err := d.RAIDConfig(ctx, n)
			return func(n *metal.Node) { n.RAIDConfig = config }, err
		}),
	}
	change = func(n *metal.Node) {
		for _, edit := range edits {
			if edit != nil {
				edit(n)
			}
		}
	}
	// The transaction outlives the time of the looks.
	write := context.WithoutCancel(ctx)
	writes = []func(job.Tx) error{
		queryInterface(m, "bios", func(d driver.BIOS) (func(job.Tx) error, error) {
			settings, err := d.BIOSSettings(ctx, n)
			return func(tx job.Tx) error { return c.Nodes.KeepBIOSSettings(write, tx, n.ID, settings) }, err
		}),
		queryInterface(m, "firmware", func(d driver.Firmware) (func(job.Tx) error, error) {
			components, err := d.Components(ctx, n)
			return func(tx job.Tx) error { return c.Nodes.KeepFirmware(write, tx, n.ID, components) }, err
		}),
	}
	return change, writes
}

// queryInterface asks an interface of the machine that is an A; nil where there is none, or it did not answer.
func queryInterface[A, W any](m *managedNode, kind string, ask func(A) (W, error)) W {
	var nothing W
	a, err := requireInterface[A](m, kind, kind)
	if err != nil {
		return nothing
	}
	w, err := ask(a)
	if err != nil {
		return nothing
	}
	return w
}
