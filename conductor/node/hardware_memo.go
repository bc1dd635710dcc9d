package node

import (
	"context"
	"slices"
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
// as it was known: an operation does not fail for it. Where kinds of interface are given, no other is asked.
func (c *Conductor) noteHardware(ctx context.Context, m *managedNode, kinds ...string) (change func(*metal.Node), writes []func(job.Tx) error) {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	n := m.node
	edits := []func(*metal.Node){
		queryInterface(m, kinds, "power", func(d driver.PowerAndHealth) (func(*metal.Node), error) {
			_, health, err := d.ReadPowerAndHealth(ctx, n)
			return func(n *metal.Node) { n.Health = health }, err
		}),
		queryInterface(m, kinds, "management", func(d driver.BootModes) (func(*metal.Node), error) {
			mode, err := d.BootMode(ctx, n)
			return func(n *metal.Node) { n.BootMode = mode }, err
		}),
		queryInterface(m, kinds, "management", func(d driver.BootModes) (func(*metal.Node), error) {
			on, err := d.SecureBoot(ctx, n)
			return func(n *metal.Node) { n.SecureBoot = &on }, err
		}),
		queryInterface(m, kinds, "management", func(d driver.BMCDescriber) (func(*metal.Node), error) {
			b, err := d.DescribeBMC(ctx, n)
			if len(kinds) > 0 { // only manage forgets that the BMC lacks a licence
				b.MediaUnlicensedAt = metal.BMCOf(n).MediaUnlicensedAt
			}
			return func(n *metal.Node) { metal.KeepBMC(n, b) }, err
		}),
		queryInterface(m, kinds, "raid", func(d driver.RAID) (func(*metal.Node), error) {
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
		queryInterface(m, kinds, "bios", func(d driver.BIOS) (func(job.Tx) error, error) {
			settings, err := d.BIOSSettings(ctx, n)
			return func(tx job.Tx) error { return c.Nodes.KeepBIOSSettings(write, tx, n.ID, settings) }, err
		}),
		queryInterface(m, kinds, "firmware", func(d driver.Firmware) (func(job.Tx) error, error) {
			components, err := d.Components(ctx, n)
			return func(tx job.Tx) error { return c.Nodes.KeepFirmware(write, tx, n.ID, components) }, err
		}),
	}
	return change, writes
}

// readAgain are the kinds of interface whose facts are read again after a step of a kind, because the step changes them.
var readAgain = map[string][]string{"bios": {"bios", "management"}, "raid": {"raid"}, "firmware": {"firmware", "bios", "management"}}

// rereadHardware gives what stores the facts that a step has changed, so that clients which wait for their change see it when the
// operation ends; nil if it changes none.
func (c stepOperations) rereadHardware(ctx context.Context, m *managedNode, s plannedStep) func(job.Tx) error {
	kinds := readAgain[s.Interface]
	if s.Step.Step == driver.UpdateFirmware {
		kinds = readAgain["firmware"]
	}
	if s.By != byDriver || len(kinds) == 0 {
		return nil
	}
	change, writes := c.noteHardware(ctx, m, kinds...)
	return func(tx job.Tx) error {
		for _, write := range append(writes, c.edit(ctx, m.node.ID, change)) {
			if write == nil {
				continue
			}
			if err := write(tx); err != nil {
				return err
			}
		}
		return nil
	}
}

// queryInterface asks an interface of the machine that is an A; nil where there is none, it is of no kind that is asked, or it did not
// answer.
func queryInterface[A, W any](m *managedNode, kinds []string, kind string, ask func(A) (W, error)) W {
	var nothing W
	if len(kinds) > 0 && !slices.Contains(kinds, kind) {
		return nothing
	}
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
