package conductor

import (
	"context"
	"maps"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/metal"
)

// inspect reads what the machine is made of into properties, and makes ports for NICs that have none.
func (c *Conductor) inspect() job.Definition {
	return job.Definition{
		Kind: "inspect", Version: 1, Class: job.Operation, Failed: c.failed, Stuck: c.stuck,
		Actions: []job.Action{
			{Name: "inspect", Do: c.act(c.readHardware), NoUndo: "reading changes nothing", Deadline: c.bmcDeadline()},
		},
	}
}

func (c *Conductor) readHardware(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	if m.inspect == nil {
		return job.Fail(m.lacks("inspect"))
	}
	began := c.Now()
	found, macs, err := m.inspect.Inspect(ctx, m.node)
	if err != nil {
		return job.From(err)
	}
	known := map[string]bool{}
	for _, p := range m.ports {
		known[p.Address] = true
	}
	var fresh []string
	for _, mac := range macs {
		if mac, err := metal.ParseMAC(mac); err == nil && !known[mac] {
			known[mac] = true
			fresh = append(fresh, mac)
		}
	}
	return job.Done(c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) {
		properties := maps.Clone(n.Properties)
		if properties == nil {
			properties = metal.Object{}
		}
		maps.Copy(properties, found)
		n.Properties, n.InspectionStart, n.InspectionEnd, n.LastError = properties, began, c.Now(), ""
	}), func(tx job.Tx) error {
		for _, mac := range fresh {
			p := &metal.Port{Record: metal.Record{ID: uuid.NewString(), CreatedAt: c.Now()}, NodeID: m.node.ID, Address: mac, PXEEnabled: true}
			if err := c.Store.InsertPort(tx, p); err != nil {
				return err
			}
		}
		return nil
	})
}
