package node

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// deviceCall is what a machine's controller is asked (class ask) or told (class command)
// by a job of one action.
type deviceCall struct {
	kind  job.Kind
	class job.Class
	// once: a repetition would not be harmless, so it is sent at most once.
	once bool
	// late: who asked may not have waited, so a failure is shown on the node.
	late bool
	// deadline bounds a question; 0: driver.CallTimeout.
	deadline time.Duration
	// do acts on the machine. change edits the node when it has been done; it may be nil.
	do func(ctx context.Context, r *job.Run, m *managedNode) (answer any, change func(*metal.Node), err error)
}

// deviceCalls are all that can be asked and told beside power: the interface that has to be
// able to, what a user is told where it is not, and the call.
func deviceCalls() []deviceCall {
	return []deviceCall{
		newQueryCall("get boot device", "management", "get_boot_device", func(ctx context.Context, d driver.Management, n *metal.Node, _ noArgs) (any, error) {
			return d.BootDevice(ctx, n)
		}),
		newQueryCall("supported boot devices", "management", "get_supported_boot_devices", func(ctx context.Context, d driver.Management, n *metal.Node, _ noArgs) (any, error) {
			devices, err := d.BootDevices(ctx, n)
			if describes, ok := d.(driver.BMCDescriber); ok && err == nil {
				if b, err := describes.DescribeBMC(ctx, n); err == nil {
					metal.KeepBMC(n, b)
				}
			}
			return devices, err
		}),
		commandCall("set boot device", "management", "set_boot_device", func(ctx context.Context, d driver.Management, n *metal.Node, a metal.BootDeviceArgs) error {
			return d.SetBootDevice(ctx, n, a.Boot)
		}),
		newQueryCall("list indicators", "management", "get_supported_indicators", func(ctx context.Context, d driver.Indicators, n *metal.Node, _ noArgs) (any, error) {
			return d.Indicators(ctx, n)
		}),
		newQueryCall("get indicator", "management", "get_indicator_state", func(ctx context.Context, d driver.Indicators, n *metal.Node, a metal.IndicatorArgs) (any, error) {
			return d.Indicator(ctx, n, a.Component, a.Name)
		}),
		commandCall("set indicator", "management", "set_indicator_state", func(ctx context.Context, d driver.Indicators, n *metal.Node, a metal.IndicatorArgs) error {
			return d.SetIndicator(ctx, n, a.Component, a.Name, a.State)
		}),
		commandCall("inject nmi", "management", "inject_nmi", func(ctx context.Context, d driver.NMI, n *metal.Node, _ noArgs) error {
			return d.InjectNMI(ctx, n)
		}).sentOnce(),
		newQueryCall("get virtual media", "management", "get_virtual_media", func(ctx context.Context, d driver.VirtualMedia, n *metal.Node, _ noArgs) (any, error) {
			return d.Media(ctx, n)
		}),
		commandCall("attach virtual media", "management", "attach_virtual_media", func(ctx context.Context, d driver.VirtualMedia, n *metal.Node, a metal.MediumArgs) error {
			return d.AttachMedium(ctx, n, a)
		}).answeredLate(),
		commandCall("detach virtual media", "management", "detach_virtual_media", func(ctx context.Context, d driver.VirtualMedia, n *metal.Node, a metal.MediumArgs) error {
			return d.DetachMedia(ctx, n, a.Types)
		}).answeredLate(),
		commandCall("set boot mode", "management", "set_boot_mode", setBootMode).answeredLate(),
		commandCall("set secure boot", "management", "set_secure_boot_state", setSecureBoot).answeredLate(),
		newQueryCall(metal.ProbeKind, "management", "probe", func(ctx context.Context, d driver.BMCProber, n *metal.Node, _ noArgs) (any, error) {
			return d.ProbeBMC(ctx, n)
		}).within(probeTimeout),
		newQueryCall(metal.RecordingKind, "management", "recording", func(ctx context.Context, d driver.BMCRecorder, n *metal.Node, a metal.RecordArgs) (any, error) {
			return d.RecordResources(ctx, n, a)
		}).within(probeTimeout),
		newQueryCall(metal.EventLogKind, "management", "bmc-log", func(ctx context.Context, d driver.EventLog, n *metal.Node, a metal.EventLogArgs) (any, error) {
			if err := a.Check(); err != nil {
				return nil, problem.Invalidf("%w", err)
			}
			return d.ReadEventLog(ctx, n, a.Limit)
		}).within(probeTimeout),
		newQueryCall(metal.HealthKind, "management", "bmc-health", func(ctx context.Context, d driver.Health, n *metal.Node, _ noArgs) (any, error) {
			return d.ReadHealth(ctx, n)
		}).within(probeTimeout),
		newQueryCall("get console", "console", "console", func(ctx context.Context, d driver.Console, n *metal.Node, _ noArgs) (any, error) {
			if !n.ConsoleEnabled {
				return nil, nil
			}
			return d.ConsoleInfo(ctx, n)
		}),
		commandCall("set console", "console", "console", setConsole).answeredLate(),
		newQueryCall("vendor question", "vendor", "vendor_passthru", callVendor),
		newCommandCall("vendor command", "vendor", "vendor_passthru", callVendor).sentOnce(), // last_error stays, as in Ironic: clients read their own operations from it
	}
}

// probeTimeout bounds a question that makes many requests. The API waits no longer than a minute for any answer.
const probeTimeout = 50 * time.Second

// noArgs are the arguments of a wish that has none.
type noArgs struct{}

// newCommandCall makes a wish of what an interface that is an A does with arguments P.
func newCommandCall[A, P any](kind job.Kind, part, what string, do func(context.Context, A, *metal.Node, P) (any, error)) deviceCall {
	return deviceCall{kind: kind, class: job.Command, do: func(ctx context.Context, r *job.Run, m *managedNode) (any, func(*metal.Node), error) {
		able, err := requireInterface[A](m, part, what)
		if err != nil {
			return nil, nil, err
		}
		var args P
		if err := json.Unmarshal(r.Args, &args); err != nil {
			return nil, nil, problem.Invalidf("%s: %w", kind, err)
		}
		if hidden := r.Secret.Reveal(); hidden != "" {
			if err := json.Unmarshal([]byte(hidden), &args); err != nil {
				return nil, nil, problem.Invalidf("%s: its arguments make no sense", kind)
			}
		}
		answer, err := do(ctx, able, m.node, args)
		return answer, m.changedFacts(), err
	}}
}

// newQueryCall makes a wish that only reads.
func newQueryCall[A, P any](kind job.Kind, part, what string, do func(context.Context, A, *metal.Node, P) (any, error)) deviceCall {
	w := newCommandCall(kind, part, what, do)
	w.class = job.Background
	return w
}

// commandCall makes a wish that has no answer.
func commandCall[A, P any](kind job.Kind, part, what string, do func(context.Context, A, *metal.Node, P) error) deviceCall {
	return newCommandCall(kind, part, what, func(ctx context.Context, a A, n *metal.Node, p P) (any, error) { return nil, do(ctx, a, n, p) })
}

func (w deviceCall) sentOnce() deviceCall              { w.once = true; return w }
func (w deviceCall) answeredLate() deviceCall          { w.late = true; return w }
func (w deviceCall) within(d time.Duration) deviceCall { w.deadline = d; return w }

// requireInterface finds what a machine's interface of a kind can do, or says that it cannot, in Ironic's words.
func requireInterface[A any](m *managedNode, kind, what string) (A, error) {
	if i, ok := m.info.Find(m.node, kind); ok && !i.Unsupported {
		if a, ok := m.hardware.Part(kind, i.Name).(A); ok {
			return a, nil
		}
	}
	var none A
	return none, metal.Lacks(m.node, what)
}

// driverFacts are what a driver may learn of a machine, or be told of it, and leaves in the node in its hand.
type driverFacts struct {
	InternalInfo metal.Object
	BootMode     string
	SecureBoot   *bool
	Console      bool
}

func factsOf(n *metal.Node) driverFacts {
	return driverFacts{n.InternalInfo, n.BootMode, n.SecureBoot, n.ConsoleEnabled}
}

// changedFacts gives what stores the facts that are new since the machine was read; nil if none are.
func (m *managedNode) changedFacts() func(*metal.Node) { return changedFacts(m.facts, factsOf(m.node)) }

func changedFacts(before, after driverFacts) func(*metal.Node) {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	return func(n *metal.Node) {
		info := maps.Clone(n.InternalInfo)
		if info == nil {
			info = metal.Object{}
		}
		for k := range before.InternalInfo {
			if after.InternalInfo[k] == nil {
				delete(info, k)
			}
		}
		for k, v := range after.InternalInfo {
			if !reflect.DeepEqual(before.InternalInfo[k], v) {
				info[k] = v
			}
		}
		n.InternalInfo, n.BootMode, n.SecureBoot, n.ConsoleEnabled = info, after.BootMode, after.SecureBoot, after.Console
	}
}

// define makes the operation of a wish.
func (c *Conductor) define(w deviceCall) job.Definition {
	d := job.Definition{Kind: w.kind, Version: 1, Class: w.class}
	if w.late {
		d.Failed = c.wishFailed
	}
	if w.class == job.Background {
		d.Actions = []job.Action{{Name: "ask", NoUndo: "asking changes nothing", Deadline: cmp.Or(w.deadline, driver.CallTimeout), Do: c.withNode(c.answer(w))}}
		return d
	}
	d.Actions = []job.Action{{Name: "set", NoUndo: "a user's command is not taken back", Deadline: c.bmcDeadline(), Do: c.withNode(c.command(w))}}
	return d
}

func (c *Conductor) answer(w deviceCall) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		answer, change, err := w.do(ctx, r, m)
		if err != nil {
			return job.Fail(err)
		}
		if change != nil {
			return job.Answer(answer, c.edit(ctx, m.node.ID, change))
		}
		return job.Answer(answer)
	}
}

// sentMemo marks a command that was, or was about to be, sent.
const sentMemo = "sent"

func (c *Conductor) command(w deviceCall) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if w.once {
			if r.Memo[sentMemo] != "" {
				return job.Fail(problem.Unavailablef("node %s: the conductor ended while it sent the command (%s), so whether the machine got it is not known; ask again if it is to be repeated", m.node.ID, w.kind))
			}
			r.Note(sentMemo, "once")
			if err := r.Commit(ctx, nil); err != nil {
				return job.From(err)
			}
		}
		answer, change, err := w.do(ctx, r, m)
		if err != nil && w.once {
			return job.Fail(err)
		}
		if err != nil {
			return job.From(err)
		}
		if change == nil {
			return job.Answer(answer)
		}
		return job.Answer(answer, c.edit(ctx, m.node.ID, change))
	}
}

// wishFailed shows why a command failed for which nobody may have waited.
func (c *Conductor) wishFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	n, err := c.Store.Node(ctx, tx, j.Subject.ID)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	n.LastError = "Failed to " + string(j.Kind) + ": " + j.Problem
	return c.Store.SaveNode(tx, n)
}

// setBootMode, setSecureBoot and setConsole leave in the record of the node in their
// hand what they have proved; machine.kept stores it.

func setBootMode(ctx context.Context, d driver.BootModes, n *metal.Node, a metal.BootModeArgs) error {
	if err := d.SetBootMode(ctx, n, a.Mode); err != nil {
		return err
	}
	n.BootMode = a.Mode
	return nil
}

func setSecureBoot(ctx context.Context, d driver.BootModes, n *metal.Node, a metal.SecureBootArgs) error {
	if err := d.SetSecureBoot(ctx, n, a.On); err != nil {
		return err
	}
	n.SecureBoot = &a.On
	return nil
}

func setConsole(ctx context.Context, d driver.Console, n *metal.Node, a metal.ConsoleArgs) error {
	set := d.StopConsole
	if a.Enabled {
		set = d.StartConsole
	}
	if err := set(ctx, n); err != nil {
		return err
	}
	n.ConsoleEnabled = a.Enabled
	return nil
}

func callVendor(ctx context.Context, d driver.Vendor, n *metal.Node, call metal.VendorCall) (any, error) {
	return d.Call(ctx, n, call)
}
