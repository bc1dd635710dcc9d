package metal

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Operation is what a node is asked for, as far as its check depends on it.
type Operation struct {
	Kind job.Kind
	// HasSteps tells whether steps were asked for, or deploy templates of the instance's traits bring some.
	HasSteps       bool
	DisableRamdisk bool
	// Steps are the lists of them, as far as they are known. Nodes.Check adds those of deploy templates.
	Steps []StepList
	// FromVolumes tells whether the node boots from its volume targets. Nodes.Check sets it.
	FromVolumes bool
	// Volumes is what the node boots where it boots from its volume targets. Nodes.Check sets it.
	Volumes VolumePlan
}

// StepList is a list of steps that an operation does.
type StepList struct {
	// Of names the record that brings them, such as "runbook burn-in"; empty: the request does.
	Of             string
	Steps          []Step
	DisableRamdisk bool // as a runbook says
}

// Reason is one cause because of which an operation cannot succeed.
type Reason struct {
	// Interface is the kind of interface that the cause belongs to, such as boot or network.
	Interface string
	Text      string
}

// Preflight is what the drivers know of an operation before anything is touched.
type Preflight struct {
	// NeedsRamdisk tells whether the operation would boot a ramdisk.
	NeedsRamdisk bool
	Reasons      []Reason
	// Warnings are what the operation will go on without.
	Warnings []Reason
}

// Checker runs the drivers' part of an operation's check. It asks no machine; it asks web servers for the images that they are to
// give, until ctx ends. What is not known by then is no reason.
type Checker interface {
	Preflight(ctx context.Context, n *Node, ports []*Port, op Operation) Preflight
	// CheckSettings gives the reasons why interfaces of the node refuse its driver_info. It asks nobody.
	CheckSettings(n *Node) []Reason
}

// webTimeout is how long a request waits for web servers, for all operations and images together.
const webTimeout = 2 * time.Second

// boundedChecker bounds the time of all calls of a checker together.
func boundedChecker(ctx context.Context, by Checker) (Checker, context.CancelFunc) {
	if by == nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, webTimeout)
	return timeLimitedChecker{by, ctx}, cancel
}

type timeLimitedChecker struct {
	Checker
	ctx context.Context
}

func (b timeLimitedChecker) Preflight(_ context.Context, n *Node, ports []*Port, op Operation) Preflight {
	return b.Checker.Preflight(b.ctx, n, ports, op)
}

// Check gives every reason why the operation cannot succeed on the node as its records are. It touches no machine. The API,
// validate, the doctor and the operation's first action all call it.
func (s *Nodes) Check(ctx context.Context, n *Node, op Operation, by Checker) ([]Reason, error) {
	found, err := s.gather(ctx, n)
	if err != nil {
		return nil, err
	}
	all, err := s.checkOperation(ctx, n, op, by, found)
	return all.Reasons, err
}

// nodeCheckInputs is what is stored beside a node that its checks look at.
type nodeCheckInputs struct {
	driver  DriverInfo
	ports   []*Port
	plan    VolumePlan
	volumes Validity
}

func (s *Nodes) gather(ctx context.Context, n *Node) (nodeCheckInputs, error) {
	var g nodeCheckInputs
	var err error
	if g.driver, err = s.directory.Driver(ctx, n); err != nil {
		return g, err
	}
	if g.ports, err = s.store.Ports(ctx, PortFilter{NodeID: n.ID}, record.Page{Limit: 1000}); err != nil {
		return g, err
	}
	g.plan, g.volumes, err = s.storageValidity(ctx, n, g.driver)
	return g, err
}

func (s *Nodes) checkOperation(ctx context.Context, n *Node, op Operation, by Checker, g nodeCheckInputs) (OperationCheck, error) {
	op, err := s.complete(ctx, n, op, g)
	if err != nil {
		return OperationCheck{}, err
	}
	var out uniqueReasons
	if op.Kind == "deploy" {
		if err := n.checkInstanceTraits(); err != nil {
			out.add("deploy", err.Error())
		}
	}
	if (op.Kind == "deploy" || op.Kind == "unrescue") && !g.volumes.OK {
		out.add("storage", g.volumes.Reason)
	}
	if i, ok := g.driver.Find(n, "deploy"); ok && op.Kind == "deploy" && g.plan.Root == nil {
		for _, key := range i.missingInstance(n) {
			out.add("deploy", "the deploy interface "+i.Name+" needs "+key+" in instance_info")
		}
	}
	var preflight Preflight
	if by != nil {
		preflight = by.Preflight(ctx, n, g.ports, op)
	}
	kinds := slices.Clone(OperationOf(op.Kind).Needs)
	if preflight.NeedsRamdisk {
		for _, kind := range []string{"power", "boot", "network"} {
			if !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	for _, kind := range kinds {
		if i, ok := g.driver.Find(n, kind); ok && op.Kind == "adopt" && kind == "boot" && i.Broken != "" {
			continue // an adopted machine runs its own system; the operations that boot a ramdisk tell of the address that it would call
		}
		if v := interfaceValidity(n, g.driver, kind, len(g.ports), op.Kind == "rescue"); !v.OK {
			out.add(kind, v.Reason+lackOf(n, g.driver, kind))
		}
	}
	for _, r := range preflight.Reasons {
		out.add(r.Interface, r.Text)
	}
	return OperationCheck{Kind: op.Kind, Reasons: out, Now: n.takes(op.Kind), Warnings: preflight.Warnings, preflight: preflight.Reasons}, nil
}

// complete fills in what the store knows of the operation.
func (s *Nodes) complete(ctx context.Context, n *Node, op Operation, g nodeCheckInputs) (Operation, error) {
	op.FromVolumes, op.Volumes = g.plan.Root != nil, g.plan
	if op.Kind != "deploy" {
		return op, nil
	}
	templates, err := s.ChosenTemplates(ctx, n)
	for _, t := range templates {
		if len(t.Steps) > 0 {
			op.HasSteps, op.Steps = true, append(op.Steps, StepList{Of: "deploy template " + t.Name, Steps: t.Steps})
		}
	}
	return op, err
}

// approvedRunbooks gives the steps of the runbooks that may be run on the node.
func (s *Nodes) approvedRunbooks(ctx context.Context, n *Node, seen RunbookFilter) ([]StepList, error) {
	all, err := s.store.Runbooks().List(ctx, nil, seen, record.Page{Limit: maxRunbooks})
	var out []StepList
	for _, r := range all {
		if r.Approves(n, true) == nil || r.Approves(n, false) == nil {
			out = append(out, StepList{Of: "runbook " + r.Name, Steps: r.Ordered(), DisableRamdisk: r.DisableRamdisk})
		}
	}
	return out, err
}

// maxRunbooks bounds how many runbooks a check of all operations looks at.
const maxRunbooks = 1000

// uniqueReasons holds each text once.
type uniqueReasons []Reason

func (r *uniqueReasons) add(kind, text string) {
	if !slices.ContainsFunc(*r, func(one Reason) bool { return one.Text == text }) {
		*r = append(*r, Reason{kind, text})
	}
}

// lackOf names the interface of a node that does not support its kind, such as no-rescue; empty: it does.
func lackOf(n *Node, d DriverInfo, kind string) string {
	if i, ok := d.Find(n, kind); ok && i.Unsupported {
		return " by its " + kind + " interface " + i.Name + "; give the node another " + kind + "_interface"
	}
	return ""
}

// ReasonTexts joins reasons into one sentence; empty for none.
func ReasonTexts(all []Reason) string {
	texts := make([]string, len(all))
	for i, r := range all {
		texts[i] = r.Text
	}
	return strings.Join(texts, "; ")
}

// checked are the operations that the doctor and validate check on a node that is asked for nothing.
var checked = []Operation{
	{Kind: "rescue"}, {Kind: "unrescue"}, {Kind: "deploy"}, {Kind: "provide"}, {Kind: "clean", HasSteps: true}, {Kind: "inspect"}, {Kind: "service", HasSteps: true},
}

// OperationCheck is an operation with all that stands in its way on a node.
type OperationCheck struct {
	Kind    job.Kind
	Reasons []Reason
	// Now tells whether the node's state takes the operation.
	Now bool
	// Warnings are what the operation will go on without.
	Warnings []Reason
	// preflight are those among the reasons that the drivers gave.
	preflight []Reason
}

// takes tells whether the node's state takes a verb of this operation.
func (n *Node) takes(kind job.Kind) bool {
	return slices.ContainsFunc(Transitions, func(t Transition) bool { return t.From == n.ProvisionState && t.Verb != "" && t.Job == kind })
}

// CheckAll checks every operation that works on a machine. Cleaning and service are checked with the runbooks of the filter that are
// approved for the node.
func (s *Nodes) CheckAll(ctx context.Context, ident string, seen RunbookFilter) (*Node, []OperationCheck, error) {
	n, err := s.store.Node(ctx, nil, ident)
	if err != nil {
		return nil, nil, err
	}
	g, err := s.gather(ctx, n)
	if err != nil {
		return nil, nil, err
	}
	runbooks, err := s.approvedRunbooks(ctx, n, seen)
	if err != nil {
		return nil, nil, err
	}
	out := make([]OperationCheck, 0, len(checked))
	bounded, cancel := boundedChecker(ctx, s.opts.Checker)
	defer cancel()
	for _, op := range checked {
		if op.Kind == "clean" || op.Kind == "service" {
			op.Steps = runbooks
		}
		found, err := s.checkOperation(ctx, n, op, bounded, g)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, found)
	}
	return n, out, nil
}

// ready refuses a verb whose operation could not work.
func (s *Nodes) ready(ctx context.Context, n *Node, t Transition, args ProvisionArgs) error {
	if t.Job == "" {
		return nil
	}
	op := Operation{Kind: t.Job, DisableRamdisk: args.DisableRamdisk}
	if text := args.steps(); len(text) > 0 {
		asked := StepList{DisableRamdisk: args.DisableRamdisk}
		if err := json.Unmarshal(text, &asked.Steps); err != nil {
			return problem.Invalidf("the steps cannot be read: %w", err)
		}
		op.HasSteps, op.Steps = true, []StepList{asked}
	}
	bounded, cancel := boundedChecker(ctx, s.opts.Checker)
	defer cancel()
	found, err := s.Check(ctx, n, op, bounded)
	if err != nil || len(found) == 0 {
		return err
	}
	return problem.Invalidf("Failed to %s node %s: %s", t.Job, n.ID, ReasonTexts(found))
}
