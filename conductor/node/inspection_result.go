package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/wire/agent"
)

// What becomes of what a ramdisk found: properties, ports and volume connectors of the
// node, and whatever the inspection rules make of it. The ramdisk ran on a machine that is
// not trusted, so nothing of it is taken that was not asked for.

// inspectionFindings is what the last inspection brought, read.
type inspectionFindings struct {
	inventory agent.Inventory
	rest      agent.Inspection
	// raw are the same as they came, for the rules.
	rawInventory, rawRest metal.Object
}

func (c inspectOperations) findings(ctx context.Context, nodeID string) (f inspectionFindings, err error) {
	for _, part := range []struct {
		kind metal.DocumentKind
		into []any
	}{{metal.Inventory, []any{&f.inventory, &f.rawInventory}}, {metal.PluginData, []any{&f.rest, &f.rawRest}}} {
		doc, err := c.Store.Document(ctx, nil, nodeID, part.kind)
		if problem.Is(err, problem.NotFound) {
			continue
		}
		if err != nil {
			return f, err
		}
		for _, into := range part.into {
			if err := json.Unmarshal(doc.Body, into); err != nil {
				return f, problem.Invalidf("the ramdisk's %s cannot be read: it is not in the form of an agent's", part.kind)
			}
		}
	}
	return f, nil
}

// takeFindings writes what was found to the node, its ports and its volume connectors.
func (c inspectOperations) takeFindings(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	f, err := c.findings(ctx, m.node.ID)
	if err != nil {
		return job.From(err)
	}
	if f.rest.Error != nil && *f.rest.Error != "" {
		return job.Fail(problem.Conflictf("the ramdisk could not find everything out: %s", problem.Quote(truncateFinding(*f.rest.Error))))
	}
	rules, err := c.Store.InspectionRules().List(ctx, nil, metal.InspectionRuleFilter{}, record.Page{Limit: 1000})
	if err != nil {
		return job.From(err)
	}
	found := metal.Findings{Node: m.node.Clone(), Inventory: f.rawInventory, Plugin: f.rawRest}
	found.Node.Properties = f.properties(m.node)
	for _, p := range m.ports {
		copied := *p
		found.Ports = append(found.Ports, &copied)
	}
	if err := metal.Apply(rules, &found); err != nil {
		return job.Fail(err)
	}
	for _, note := range found.Notes {
		r.Log.Info("inspection rule", "level", note.Level, "says", truncateFinding(note.Text))
	}
	edited := found.Node
	if err := c.noteDriver(r, m, edited); err != nil {
		return job.Fail(err)
	}
	endLease := func(tx job.Tx) error { return c.Nodes.EndLease(ctx, tx, edited) }
	writes := []func(job.Tx) error{endLease, c.edit(ctx, m.node.ID, func(n *metal.Node) {
		n.Properties, n.Extra, n.DriverInfo, n.InstanceInfo, n.Traits = edited.Properties, edited.Extra, edited.DriverInfo, edited.InstanceInfo, edited.Traits
		n.ResourceClass, n.Description, n.InstanceName = edited.ResourceClass, edited.Description, edited.InstanceName
		n.Name, n.Owner, n.Lessee, n.Shard = edited.Name, edited.Owner, edited.Lessee, edited.Shard
		n.Interfaces, n.AutomatedClean, n.DisablePowerOff = edited.Interfaces, edited.AutomatedClean, edited.DisablePowerOff
	})}
	for _, p := range found.Ports {
		if slices.Contains(found.Touched, p.ID) {
			writes = append(writes, func(tx job.Tx) error { return c.Store.SavePort(tx, p) })
		}
	}
	if m.node.CarriesToken() { // then the findings were taken with it; else anybody may have brought them, and storage lets in whom a connector names
		writes = append(writes, c.takePorts(ctx, r, f, m, found.Touched), c.takeConnectors(ctx, f, m))
	}
	return job.Done(writes...)
}

// driverNote holds the hardware type, and the interfaces with it, that rules have chosen for the node.
const driverNote = "driver"

// chosenDriver is the content of that note.
type chosenDriver struct {
	Driver     string
	Interfaces map[string]string
}

// noteDriver keeps another hardware type for the end of the inspection, because the ramdisk is put away by that which booted it.
func (c inspectOperations) noteDriver(r *job.Run, m *managedNode, edited *metal.Node) error {
	if edited.Driver == m.node.Driver {
		return nil
	}
	hw, ok := c.drivers[edited.Driver]
	if !ok {
		return problem.Invalidf("an inspection rule gives node %s the driver %.60q, which this conductor does not have", m.node.ID, edited.Driver)
	}
	for _, kind := range slices.Sorted(maps.Keys(edited.Interfaces)) {
		if _, ok := hw.Info.Find(edited, kind); !ok {
			return problem.Invalidf("an inspection rule gives node %s the driver %s, which has no %s interface %.60q; set %s_interface in the same rule", m.node.ID, edited.Driver, kind, edited.Interfaces[kind], kind)
		}
	}
	text, err := json.Marshal(chosenDriver{edited.Driver, edited.Interfaces})
	if err != nil {
		return err
	}
	r.Note(driverNote, string(text))
	edited.Interfaces = m.node.Interfaces
	return nil
}

// properties are the node's with what was found in them, in Ironic's words.
func (f inspectionFindings) properties(n *metal.Node) metal.Object {
	out := maps.Clone(n.Properties)
	if out == nil {
		out = metal.Object{}
	}
	if f.inventory.CPU.Count > 0 {
		out["cpus"] = float64(f.inventory.CPU.Count)
	}
	if arch := f.inventory.CPU.Architecture; arch != "" {
		out["cpu_arch"] = truncateFinding(arch)
	}
	if mb := f.inventory.Memory.PhysicalMB; mb != nil && *mb > 0 {
		out["memory_mb"] = float64(*mb)
	} else if f.inventory.Memory.Total > 0 {
		out["memory_mb"] = float64(f.inventory.Memory.Total >> 20)
	}
	if disk := f.rootDisk(); disk > 0 {
		// One GiB is left for partitioning, as Ironic does.
		out["local_gb"] = float64(max(disk>>30-1, 1))
	}
	switch mode := f.inventory.Boot.CurrentBootMode; mode {
	case "bios", "uefi":
		out["capabilities"] = metal.SetCapability(out["capabilities"], "boot_mode", mode)
	}
	if vendor := f.inventory.SystemVendor.Manufacturer; vendor != "" && out["vendor"] == nil {
		out["vendor"] = truncateFinding(vendor)
	}
	return out
}

// rootDisk is the size of the disk that an image would go to, in bytes; 0 if there is none.
func (f inspectionFindings) rootDisk() int64 {
	if f.rest.RootDisk != nil {
		return f.rest.RootDisk.Size
	}
	var size int64
	for _, d := range f.inventory.Disks {
		if d.Size >= 4<<30 && (size == 0 || d.Size < size) {
			size = d.Size
		}
	}
	return size
}

// inspectedNIC is an interface that may become a port.
type inspectedNIC struct {
	mac         string
	pxe, active bool
}

func (f inspectionFindings) nics() []inspectedNIC {
	boot := map[string]bool{}
	for _, text := range []*string{f.rest.BootInterface, f.inventory.Boot.PXEInterface} {
		if text == nil {
			continue
		}
		// BOOTIF has the type of the hardware before the address.
		word := *text
		if len(word) == len("01-00-00-00-00-00-00") {
			word = word[3:]
		}
		if mac, err := metal.ParseMAC(word); err == nil {
			boot[mac] = true
		}
	}
	var out []inspectedNIC
	for _, i := range f.inventory.Interfaces {
		mac, err := metal.ParseMAC(i.MACAddress)
		if err != nil || mac == "00:00:00:00:00:00" || slices.ContainsFunc(out, func(n inspectedNIC) bool { return n.mac == mac }) {
			continue
		}
		out = append(out, inspectedNIC{mac: mac, pxe: boot[mac] || len(boot) == 0, active: i.HasCarrier || i.IPv4Address != nil || i.IPv6Address != nil})
	}
	return out
}

// takePorts makes and removes ports as configured, and notes which of them boot.
func (c inspectOperations) takePorts(ctx context.Context, r *job.Run, f inspectionFindings, m *managedNode, touched []string) func(job.Tx) error {
	nics := f.nics()
	wanted := func(n inspectedNIC) bool {
		switch c.AddPorts {
		case "all":
			return true
		case "active":
			return n.active
		case "disabled":
			return false
		}
		return n.pxe
	}
	return func(tx job.Tx) error {
		for _, n := range nics {
			if !wanted(n) || slices.ContainsFunc(m.ports, func(p *metal.Port) bool { return p.Address == n.mac }) {
				continue
			}
			if err := c.addPorts(ctx, r, []string{n.mac}, n.pxe)(tx); err != nil {
				return err
			}
		}
		for _, p := range m.ports {
			at := slices.IndexFunc(nics, func(n inspectedNIC) bool { return n.mac == p.Address })
			gone := c.KeepPorts == "present" && at < 0 || c.KeepPorts == "added" && (at < 0 || !wanted(nics[at]))
			switch {
			case slices.Contains(touched, p.ID):
			case gone:
				if err := c.Store.DeletePort(tx, p); err != nil {
					return err
				}
			case at >= 0 && nics[at].pxe != p.PXEEnabled && (nics[at].pxe || p.InternalInfo[metal.FoundMark] != nil):
				changed := *p
				changed.PXEEnabled = nics[at].pxe
				if err := c.Store.SavePort(tx, &changed); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// takeConnectors adds the names by which the machine asks for volumes. One that is there already is
// no error, whoever has it: it may have been registered by hand, or belong to hardware that has moved.
func (c inspectOperations) takeConnectors(ctx context.Context, f inspectionFindings, m *managedNode) func(job.Tx) error {
	var wanted []metal.Connector
	if i := f.rest.Initiators; i != nil {
		if i.IQN != "" {
			wanted = append(wanted, metal.Connector{Type: "iqn", ConnectorID: i.IQN})
		}
		for _, p := range i.FibreChannel {
			wanted = append(wanted, metal.Connector{Type: "wwnn", ConnectorID: formatWWN(p.WWNN)}, metal.Connector{Type: "wwpn", ConnectorID: formatWWN(p.WWPN)})
		}
	}
	return func(tx job.Tx) error {
		for _, w := range wanted {
			if w.ConnectorID == "" || len(w.ConnectorID) > 255 {
				continue
			}
			there, err := c.Store.Connectors().List(ctx, tx, metal.ConnectorFilter{Type: w.Type, ConnectorID: w.ConnectorID}, record.Page{Limit: 1})
			if err == nil && len(there) == 0 && w.Type == "iqn" { // storage knows the node by one name; a finding on a disk adds no second one
				there, err = c.Store.Connectors().List(ctx, tx, metal.ConnectorFilter{Type: w.Type, NodeID: m.node.ID}, record.Page{Limit: 1})
			}
			if err != nil {
				return err
			}
			if len(there) > 0 {
				continue
			}
			w.Record, w.NodeID = record.Record{ID: uuid.NewString(), CreatedAt: c.Now()}, m.node.ID
			if err := c.Store.Connectors().Insert(tx, &w); err != nil {
				return fmt.Errorf("volume connector %s: %w", w.Type, err)
			}
		}
		return nil
	}
}

// formatWWN writes a world wide name of 16 hex digits in the usual form; empty for what is none.
func formatWWN(wwn string) string {
	wwn = strings.ToLower(strings.TrimPrefix(strings.ReplaceAll(wwn, ":", ""), "0x"))
	if len(wwn) != 16 || strings.Trim(wwn, "0123456789abcdef") != "" {
		return ""
	}
	var pairs []string
	for i := 0; i < len(wwn); i += 2 {
		pairs = append(pairs, wwn[i:i+2])
	}
	return strings.Join(pairs, ":")
}

// truncateFinding bounds what a ramdisk wrote before it is shown or kept.
func truncateFinding(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 255 {
		text = strings.ToValidUTF8(text[:255], "")
	}
	return text
}
