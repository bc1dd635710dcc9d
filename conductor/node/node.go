// Package node holds the long operations on machines. Each has a file, which opens with its list of actions. The package composes the
// rules of machines with drivers, through their contracts. It names no concrete driver, knows no server and no host, and answers no API
// call: only the row of a job reaches it.
package node

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// Store is what operations on machines need of a store.
type Store interface {
	metal.Store
	job.Store
	metal.HeldStore
}

// Config is what a Conductor is made of.
type Config struct {
	Store   Store
	Nodes   *metal.Nodes
	Key     *secret.Key
	Drivers []driver.HardwareType
	Log     *slog.Logger
	Now     func() time.Time
	// Groups are the conductor groups whose machines are within reach; nil: all are.
	Groups []string
	// Permission is asked before each request to a BMC or an agent; nil: always. While the database is held, jobs that only read still run.
	Permission *job.Permission
	// Meter is told of each exchange with a BMC or an agent; nil: nobody is.
	Meter driver.RequestObserver

	// RescueKernel and RescueRamdisk serve nodes whose driver_info names none.
	RescueKernel, RescueRamdisk string
	// RescueByArch and DeployByArch go before the others for nodes with these values of the property cpu_arch.
	RescueByArch, DeployByArch map[string]Images
	// RescueTimeout bounds the wait for a rescue ramdisk; 0: no bound.
	RescueTimeout time.Duration
	// Agents sends commands to the agents that deploy, clean and serve.
	Agents driver.Orders
	// DeployKernel and DeployRamdisk deploy, clean, serve and inspect nodes whose driver_info names none.
	DeployKernel, DeployRamdisk string
	// DeployTimeout and its like bound the silence of a ramdisk in their operations; 0: no bound.
	DeployTimeout, CleanTimeout, ServiceTimeout, InspectTimeout time.Duration
	// StepPoll is how often a step is looked at that reports no end; 0: every 5 s. An agent at work, and a machine that shuts down, are
	// looked at five times as often.
	StepPoll time.Duration
	// AutomatedClean cleans nodes that say nothing about it, between two uses.
	AutomatedClean bool
	// ErasePriority and EraseMetadataPriority place the agent's erasing in automated cleaning; 0 leaves it out.
	ErasePriority, EraseMetadataPriority int
	// InspectionURL is where the ramdisk of an inspection brings its findings.
	InspectionURL string
	// AddPorts says for which NICs an inspection makes ports: all, active, pxe or disabled.
	AddPorts string
	// KeepPorts says which ports an inspection leaves: all, present (those found) or added (those it would add).
	KeepPorts string
	// GoOnInMaintenance holds a rescue that waits while an operator keeps the node in maintenance; false ends it.
	GoOnInMaintenance bool
	// PasswordInLookup: the hash goes out with lookup, and no boot method carries the token.
	PasswordInLookup bool
	// RescueRoot has the password set for root too.
	RescueRoot bool
	// SoftOffTimeout bounds a soft shutdown that names no time of its own.
	SoftOffTimeout time.Duration
	// PowerTimeout bounds a change of power.
	PowerTimeout time.Duration
	// PowerEvents sends Nova what becomes of the power of its servers' machines; nil: nobody does.
	PowerEvents PowerEvents
	// Published is what other processes check operations of this conductor by.
	Published json.RawMessage
	// Readable tells why a file of this machine cannot be given to machines; nil: files are not looked at.
	Readable func(file string) error
	// KernelArch is the architecture of a kernel, as cpu_arch spells it; empty where that is not known. nil: it never is.
	KernelArch func(kernel string) string
	// CheckPlan tells why the firmware of a machine would not get, or not start, the boot files of its plan. cpuArch is the property cpu_arch
	// of the node, which may be empty. It is nil where that is not known; a nil function never knows.
	CheckPlan func(ctx context.Context, plan *metal.BootPlan, cpuArch string) error
	// WebFile tells why its fetcher would not get what an http or https URL names. It is nil where that cannot be known, from here or
	// before ctx ends; nil: URLs are not asked for.
	WebFile func(ctx context.Context, url string, by Fetcher) error
	// Glance tells of the images that records name by UUID; nil: no image service is configured.
	Glance ImageService
	// GlanceElsewhere: other processes ask Glance, and this one judges none of its images.
	GlanceElsewhere bool
	// FilesElsewhere: another process runs the operations, and files that driver_info names are on its machine.
	FilesElsewhere bool
	// UndoBytes bounds the before-images of one repair as they are stored; 0: 256 MiB.
	UndoBytes int64
	// ProjectUndoBytes bounds what is kept of the repairs of all nodes of a project; 0: 4 GiB.
	ProjectUndoBytes int64
	// ProofTime is how long a repaired machine may take until it proves that it works; 0: 10 minutes.
	ProofTime time.Duration
	// ProveSSH tells why no sshd at an address has one of the public host keys ("TYPE BASE64"), without a login; nil: nobody is asked. Conflict: an sshd
	// answers, with another host key or with one that is compared with none.
	ProveSSH func(ctx context.Context, address string, keys []string) error
	// FreeAddresses tells why a machine with these ports would get no address to boot by; nil: nobody knows.
	FreeAddresses func(n *metal.Node, ports []*metal.Port) error
}

// Images are a kernel and its ramdisk, each a path or a URL.
type Images struct {
	Kernel  string `json:"kernel"`
	Ramdisk string `json:"ramdisk"`
}

// Conductor runs operations on machines.
type Conductor struct {
	Config
	drivers map[string]driver.HardwareType
}

// New makes a conductor.
func New(c Config) *Conductor {
	drivers := make(map[string]driver.HardwareType, len(c.Drivers))
	for _, d := range c.Drivers {
		drivers[d.Info.Name] = d
	}
	c.PowerTimeout = cmp.Or(c.PowerTimeout, time.Minute)
	c.SoftOffTimeout = cmp.Or(c.SoftOffTimeout, metal.DefaultSoftOffTimeout)
	c.StepPoll = cmp.Or(c.StepPoll, 5*time.Second)
	c.ProjectUndoBytes = cmp.Or(c.ProjectUndoBytes, 4<<30)
	c.UndoBytes, c.ProofTime = cmp.Or(c.UndoBytes, 256<<20), cmp.Or(c.ProofTime, 10*time.Minute)
	return &Conductor{Config: c, drivers: drivers}
}

// PowerEvents sends Nova the power of the machine of a server. Errors: problem.NotFound if Nova has no such server, problem.Unavailable if
// a later try may succeed.
type PowerEvents interface {
	SendPower(ctx context.Context, server string, on bool) error
}

// Catalog is what this conductor publishes of its hardware types.
func (c *Conductor) Catalog() metal.Catalog {
	out := metal.Catalog{Preflight: c.Published}
	for _, d := range c.Config.Drivers {
		out.Drivers = append(out.Drivers, d.Info)
	}
	return out
}

// Definitions lists every operation, command and background job on machines.
func (c *Conductor) Definitions() []job.Definition {
	all := []job.Definition{
		c.rescue(), c.unrescue(),
		c.manage(), c.provide(), c.clean(), c.adopt(), c.inspections().inspect(),
		c.deploy(), c.delete(), c.service(),
		c.powers().power(), c.powers().forcePowerOff(), c.powers().powerEvent(),
		diagnosisOperations{c}.diagnose(), repairOperations{c}.repair(), repairWrites{c}.write(),
	}
	for _, w := range deviceCalls() {
		all = append(all, c.define(w))
	}
	return job.WithDeadline(all, c.SoftOffTimeout)
}

// The types that follow hold the operations of one subject. Each shares all that a Conductor has.

// powerOperations change and read the power of machines.
type powerOperations struct{ *Conductor }

func (c *Conductor) powers() powerOperations { return powerOperations{c} }

// stepOperations run the steps of deployment, cleaning and service.
type stepOperations struct{ *Conductor }

func (c *Conductor) steps() stepOperations { return stepOperations{c} }

// inspectOperations read what a machine is made of.
type inspectOperations struct{ *Conductor }

func (c *Conductor) inspections() inspectOperations { return inspectOperations{c} }

// stepsUnbounded is why operations with steps have no deadline.
const stepsUnbounded = "a hold step waits for a person, and erasing or writing takes as long as the disks need"

// PowerState asks the BMC of a node. It does not ask the BMC of a node of another conductor group, because its address may be another
// machine's at another site: problem.Unsupported.
func (c *Conductor) PowerState(ctx context.Context, nodeID string) (metal.Power, error) {
	m, err := c.machine(ctx, nodeID)
	if err != nil {
		return "", err
	}
	if group := strings.ToLower(m.node.ConductorGroup); c.Groups != nil && !slices.Contains(c.Groups, group) {
		return "", problem.Unsupportedf("node %s is of conductor group %q", nodeID, group)
	}
	if m.power == nil {
		return "", m.lacks("power")
	}
	return m.power.PowerState(c.guarded(ctx), m.node)
}

// managedNode is a node with everything that acts on it, read afresh for each action.
type managedNode struct {
	node     *metal.Node
	ports    []*metal.Port
	info     metal.DriverInfo
	hardware driver.HardwareType // that the interfaces are picked from
	facts    driverFacts         // what was known when the node was read
	power    driver.Power
	manage   driver.Management
	boot     driver.Boot
	network  driver.Network
	rescue   driver.Rescue
	inspect  driver.Inspect
	deploy   driver.Deploy
}

// nodeAction is an action on a machine.
type nodeAction func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome

// withNode makes a job action of a node action: it reads the machine first, and the lease guards its requests.
func (c *Conductor) withNode(do nodeAction) func(context.Context, *job.Run) job.Outcome {
	return func(ctx context.Context, r *job.Run) job.Outcome {
		m, err := c.machine(ctx, r.Subject.ID)
		if err != nil {
			return job.From(err)
		}
		ctx = c.guarded(ctx)
		if !isPowerSync(r) {
			ctx = driver.WithUserRequest(ctx, r.ID)
		}
		ctx, notes := driver.WithNotes(ctx)
		out := do(ctx, r, m)
		if texts := notes.Texts(); len(texts) > 0 {
			return out.With(func(tx job.Tx) error { return appendNotes(tx, c.Store, r, texts) })
		}
		return out
	}
}

// appendNotes adds to the node's history what its driver noticed during an action.
func appendNotes(tx job.Tx, timeline job.Timeline, r *job.Run, texts []string) error {
	for _, text := range texts {
		e := job.Event{Subject: r.Subject, Type: "contact", Text: r.Action + ": " + text, Severity: "warning", JobID: r.ID, Action: r.Action, RequestID: r.RequestID, User: r.User}
		if err := timeline.Append(tx, e); err != nil {
			return err
		}
	}
	return nil
}

// isPowerSync tells whether the job is power sync's. Users ask for all other jobs, so each of those may log in once with what the BMC
// refused before.
func isPowerSync(r *job.Run) bool {
	var args metal.PowerArgs
	return r.Kind == "power" && json.Unmarshal(r.Args, &args) == nil && args.Sync
}

// guarded has every exchange with a machine ask the lease first, and measured.
func (c *Conductor) guarded(ctx context.Context) context.Context {
	gate := c.Permission.Lost
	if id, _, _ := job.WorkOf(ctx); id != "" {
		gate = c.Permission.Refusal
	}
	ctx = driver.WithGate(ctx, gate)
	if c.Meter != nil {
		ctx = driver.WithMeter(ctx, c.Meter)
	}
	return ctx
}

func (c *Conductor) machine(ctx context.Context, id string) (*managedNode, error) {
	n, err := c.Store.Node(ctx, nil, id)
	if err != nil {
		return nil, err
	}
	ports, err := c.Store.Ports(ctx, metal.PortFilter{NodeID: n.ID}, record.Page{Limit: 1000})
	if err != nil {
		return nil, err
	}
	return c.assemble(n, ports)
}

func (c *Conductor) assemble(n *metal.Node, ports []*metal.Port) (*managedNode, error) {
	hw, ok := c.drivers[n.Driver]
	if !ok {
		return nil, problem.Unavailablef("node %s: this conductor has no driver %q", n.ID, n.Driver)
	}
	m := &managedNode{node: n, ports: ports, info: hw.Info, hardware: hw, facts: factsOf(n)}
	m.power = pickInterface(hw.Power, m, "power")
	if n.PowerLock != "" && m.power != nil {
		m.power = heldPower{Power: m.power, reason: n.PowerLock}
	}
	m.manage = pickInterface(hw.Management, m, "management")
	m.boot = pickInterface(hw.Boot, m, "boot")
	m.network = pickInterface(hw.Network, m, "network")
	m.rescue = pickInterface(hw.Rescue, m, "rescue")
	m.inspect = pickInterface(hw.Inspect, m, "inspect")
	m.deploy = pickInterface(hw.Deploy, m, "deploy")
	return m, nil
}

// pickInterface finds the node's implementation of a kind, or the zero value where the hardware type has none.
func pickInterface[T any](from map[string]T, m *managedNode, kind string) T {
	i, ok := m.info.Find(m.node, kind)
	if !ok {
		var none T
		return none
	}
	return from[i.Name]
}

// lacks is the error for an interface that the node's driver does not have.
func (m *managedNode) lacks(kind string) error {
	return problem.Unsupportedf("node %s: the driver %s has no %s interface here", m.node.ID, m.node.Driver, kind)
}

// bootPorts are the ports that may ask for a boot.
func (m *managedNode) bootPorts() []*metal.Port {
	var out []*metal.Port
	for _, p := range m.ports {
		if p.PXEEnabled {
			out = append(out, p)
		}
	}
	return out
}

// edit changes the node in the transaction that ends the action.
func (c *Conductor) edit(ctx context.Context, id string, change func(*metal.Node)) func(job.Tx) error {
	return func(tx job.Tx) error { return c.Nodes.Edit(ctx, tx, id, change) }
}

// advance moves the node in the transaction that ends the action.
func (c *Conductor) advance(ctx context.Context, id string, e metal.Event, change func(*metal.Node)) func(job.Tx) error {
	return func(tx job.Tx) error { return c.Nodes.Advance(ctx, tx, id, e, change) }
}

// failed shows a failed operation on the node: its state's failure, and why in last_error.
func (c *Conductor) failed(ctx context.Context, tx job.Tx, j *job.Job) error {
	n, err := c.Store.Node(ctx, tx, j.Subject.ID)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.steps().forgetSteps(n.ID)(tx); err != nil {
		return err
	}
	if n.IsUntouchedBy(j) {
		return diagnosisOperations{c}.returnUntouched(ctx, tx, j, n)
	}
	why := "Failed to " + string(j.Kind) + ": " + j.Problem
	if j.TimedOut() {
		contact, err := c.Store.Contact(ctx, tx, n.ID)
		if err != nil {
			return err
		}
		boot := n.BootNumber
		if n.Plan == nil { // the boot that was waited for is void since this transaction began, and its number with it
			boot--
		}
		if text := contact.RefusedWords(boot); text != "" {
			why += "; " + text
		}
	}
	failure, err := metal.ByEvent(n.ProvisionState, metal.FailEvent)
	if err != nil {
		// It is shown already: by an abort, or by the end of a wait.
		if n.LastError != "" {
			return nil
		}
		return c.Nodes.Edit(ctx, tx, n.ID, func(n *metal.Node) { n.LastError = why })
	}
	why = strings.TrimSuffix(why, ".") + suggestNextVerbs(failure.To) // a cause that is a sentence has a full stop
	return c.Nodes.Advance(ctx, tx, n.ID, metal.FailEvent, func(n *metal.Node) { n.LastError = why })
}

// stuck asks for a human where an undo could not be finished.
func (c *Conductor) stuck(ctx context.Context, tx job.Tx, j *job.Job, why string) error {
	fault, text := string(j.Kind)+" abort failure", "The "+string(j.Kind)+" operation could not be taken back: "+why
	return c.Nodes.Edit(ctx, tx, j.Subject.ID, func(n *metal.Node) {
		if n.Maintenance && n.Fault == "" { // by an operator, whose words stay
			n.Fault, n.LastError = fault, strings.TrimSpace(n.LastError+" "+text)
			return
		}
		n.Maintenance, n.Fault, n.MaintenanceReason = true, fault, text
	})
}
