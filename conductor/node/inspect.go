package node

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/google/uuid"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/wire/agent"
)

// inspect finds out what the machine is made of: from its BMC, or by a ramdisk that looks and calls back.
func (c inspectOperations) inspect() job.Definition {
	const reading = "reading changes nothing"
	return job.Definition{
		Kind: "inspect", Version: 2, Class: job.Operation, GiveUp: c.giveUp, Failed: c.failed, Stuck: c.stuck, NoDeadline: "the time that its ramdisk may be silent is bounded",
		Actions: []job.Action{
			c.checkAction(),
			{Name: "inspect", Do: c.withNode(c.readHardware), NoUndo: reading, Checks: true, Deadline: c.bmcDeadline()},
			{Name: "power off", Do: c.withNode(ifRamdisk(c.noteFound(c.keepOff))), Undo: c.withNode(ifRamdisk(c.restorePower)), Deadline: c.bmcDeadline()},
			{Name: "join the inspection network", Do: c.withNode(ifRamdisk(c.attach(driver.Inspection))), Undo: c.withNode(ifRamdisk(c.detach(driver.Inspection))), Deadline: networkDeadline, Elsewhere: true},
			{Name: "plan the boot", Do: c.withNode(ifRamdisk(c.planInspection)), NoUndo: "voided with the ramdisk"},
			{Name: "prepare the ramdisk", Do: c.withNode(ifRamdisk(c.prepareRamdisk)), Undo: c.withNode(ifRamdisk(c.cleanUpRamdisk)), Deadline: c.bmcDeadline()},
			{Name: "start the ramdisk", Do: c.withNode(ifRamdisk(c.turnOn)), Undo: c.withNode(ifRamdisk(c.stopRamdisk)), Deadline: c.bmcDeadline()},
			{Name: "await the findings", Do: c.withNode(ifRamdisk(c.awaitFindings)), NoUndo: "waiting changes nothing"},
			{Name: "take the findings", Do: c.withNode(ifRamdisk(c.takeFindings)), NoUndo: "what was found stays true"},
			{Name: "stop the ramdisk", Do: c.withNode(ifRamdisk(c.keepOff)), NoUndo: reading, Deadline: c.bmcDeadline()},
			{Name: "clean up after the ramdisk", Do: c.withNode(ifRamdisk(c.cleanUpRamdisk)), NoUndo: reading, Deadline: c.bmcDeadline()},
			{Name: "leave the inspection network", Do: c.withNode(ifRamdisk(c.detach(driver.Inspection))), NoUndo: reading, Deadline: networkDeadline, Elsewhere: true},
			{Name: "believe it", Do: c.withNode(c.finishInspect), NoUndo: reading},
		},
	}
}

// foundNote is when the findings were stored that the node had before this inspection.
const foundNote = "found before"

// readHardware reads by the BMC, or settles that a ramdisk has to look.
func (c inspectOperations) readHardware(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.inspect == nil {
		return job.Fail(m.lacks("inspect"))
	}
	if looks, ok := m.inspect.(driver.RamdiskInspect); ok && looks.CallsBack() {
		return c.chooseRamdisk(ctx, r, m)
	}
	began := c.Now()
	found, err := m.inspect.Inspect(ctx, m.node)
	if err != nil {
		return job.From(err)
	}
	r.Note(ramdiskMemo, byHand)
	known := map[string]bool{}
	for _, p := range m.ports {
		known[p.Address] = true
	}
	var fresh []string
	for _, mac := range found.MACs {
		if mac, err := metal.ParseMAC(mac); err == nil && !known[mac] {
			known[mac] = true
			fresh = append(fresh, mac)
		}
	}
	return job.Done(c.edit(ctx, m.node.ID, func(n *metal.Node) {
		properties := maps.Clone(n.Properties)
		if properties == nil {
			properties = metal.Object{}
		}
		maps.Copy(properties, found.Properties)
		n.Properties, n.InspectionStart = properties, began
	}), c.saveInventory(m.node.ID, found.Inventory), c.addPorts(ctx, r, fresh, true))
}

// saveInventory stores what the BMC told as the inventory of the node, beside which there is nothing.
func (c inspectOperations) saveInventory(nodeID string, found *agent.Inventory) func(job.Tx) error {
	return func(tx job.Tx) error {
		if found == nil {
			return nil
		}
		body, err := json.Marshal(found)
		if err != nil {
			return err
		}
		for kind, body := range map[metal.DocumentKind]json.RawMessage{metal.Inventory: body, metal.PluginData: json.RawMessage("{}")} {
			if err := c.Store.SaveDocument(tx, metal.Document{NodeID: nodeID, Kind: kind, Body: body, CreatedAt: c.Now(), UpdatedAt: c.Now()}); err != nil {
				return err
			}
		}
		return nil
	}
}

// addPorts makes ports for NICs. A MAC that another node has stays with that node, because adapters inside of machines, such as that of a BMC
// on USB, often share one address; the node's history says so.
func (c inspectOperations) addPorts(ctx context.Context, r *job.Run, macs []string, pxe bool) func(job.Tx) error {
	return func(tx job.Tx) error {
		for _, mac := range macs {
			there, err := c.Store.PortTable().List(ctx, tx, metal.PortFilter{Address: mac}, record.Page{Limit: 1})
			if err != nil {
				return err
			}
			if len(there) > 0 {
				if err := c.noteShared(ctx, tx, r, there[0]); err != nil {
					return err
				}
				continue
			}
			p := &metal.Port{Record: record.Record{ID: uuid.NewString(), CreatedAt: c.Now()}, NodeID: r.Subject.ID, Address: mac, PXEEnabled: pxe, InternalInfo: metal.Object{metal.FoundMark: true}}
			if err := c.Store.InsertPort(tx, p); err != nil {
				return err
			}
		}
		return nil
	}
}

// noteShared tells in the history of an inspected node that a port of another node has the MAC of a NIC. Only readers who see every node learn
// the name of that node.
func (c inspectOperations) noteShared(ctx context.Context, tx job.Tx, r *job.Run, other *metal.Port) error {
	if other.NodeID == r.Subject.ID {
		return nil
	}
	n, err := c.Store.Node(ctx, tx, other.NodeID)
	if err != nil {
		return err
	}
	text := "the NIC " + other.Address + " gets no port, because another node has a port with this address: " + problem.Quote(cmp.Or(n.Name, n.ID))
	return appendNotes(tx, c.Store, r, []string{text})
}

// chooseRamdisk notes what the node's findings were, so that new ones can be told from them.
func (c inspectOperations) chooseRamdisk(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if r.Memo[ramdiskMemo] != "" {
		return job.Done()
	}
	if c.InspectionURL == "" {
		return job.Fail(problem.Invalidf("%s", driver.NoRamdiskURL))
	}
	if m.boot == nil {
		return job.Fail(m.lacks("boot"))
	}
	stored, err := c.foundAt(ctx, m.node.ID)
	if err != nil {
		return job.From(err)
	}
	r.Note(foundNote, stored)
	r.Note(ramdiskMemo, byRamdisk)
	began := c.Now()
	return job.Done(c.edit(ctx, m.node.ID, func(n *metal.Node) { n.InspectionStart, n.InspectionEnd = began, time.Time{} }))
}

// foundAt is when the node's inventory was stored; empty if it has none.
func (c inspectOperations) foundAt(ctx context.Context, nodeID string) (string, error) {
	doc, err := c.Store.Document(ctx, nil, nodeID, metal.Inventory)
	if problem.Is(err, problem.NotFound) {
		return "", nil
	}
	return doc.UpdatedAt.UTC().Format(time.RFC3339Nano), err
}

func (c inspectOperations) planInspection(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	return c.planRamdisk(c.inspectionParams()...)(ctx, r, m)
}

func (c inspectOperations) inspectionParams() []string {
	return []string{metal.CallbackParam + "=" + c.InspectionURL}
}

// awaitFindings parks the job until the ramdisk has brought what it found.
func (c inspectOperations) awaitFindings(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.node.Maintenance && m.node.Fault == "" && !c.GoOnInMaintenance {
		return job.Fail(problem.Conflictf("the node was put into maintenance, and [conductor]allow_provisioning_in_maintenance is false"))
	}
	stored, err := c.foundAt(ctx, m.node.ID)
	if err != nil {
		return job.From(err)
	}
	if stored != r.Memo[foundNote] {
		return job.Done(c.resume(ctx, m))
	}
	contact, err := c.Store.Contact(ctx, nil, m.node.ID)
	if err != nil {
		return job.From(err)
	}
	if err := agentError(m.node, contact); err != nil {
		return job.Fail(err)
	}
	if err := refusedBoot(m.node, contact); err != nil {
		return job.Fail(err)
	}
	c.turnOnAgain(ctx, r, m, contact)
	return c.park(ctx, m, "the findings of the ramdisk", c.InspectTimeout)
}

func (c inspectOperations) finishInspect(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	var chosen chosenDriver
	if text := r.Memo[driverNote]; text != "" {
		if err := json.Unmarshal([]byte(text), &chosen); err != nil {
			return job.Fail(err)
		}
	}
	return job.Done(c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) {
		n.InspectionEnd, n.LastError = c.Now(), ""
		if chosen.Driver != "" {
			n.Driver, n.Interfaces = chosen.Driver, chosen.Interfaces
		}
	}))
}
