package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/wire/agent"
	"salvor/wire/answer"
)

// Which steps an operation takes, and in what order. The list that was asked for lies in the
// node's document Steps as a JSON array; once it is settled what runs, an object takes its place.

// stepExecutor says who does a step.
type stepExecutor string

const (
	byAgent  stepExecutor = "agent"  // the ramdisk
	byDriver stepExecutor = "driver" // an interface of the hardware type
	byUs     stepExecutor = "salvor" // the conductor itself
)

// plannedStep is a step that is going to be done.
type plannedStep struct {
	metal.Step
	By stepExecutor `json:"by"`
	// Reboot: the ramdisk has to be booted anew after it.
	Reboot bool `json:"reboot,omitempty"`
	// AgentHas: the agent has a step of this name too, which does the work of one of ours.
	AgentHas bool `json:"agent_has,omitempty"`
	// takes are the arguments that an interface knows; empty: it takes none. Nobody knows those of the agent's steps.
	takes map[string]driver.ArgInfo
}

func (s plannedStep) name() string { return s.Interface + "." + s.Step.Step }

// stepPlan is the settled list of an operation.
type stepPlan struct {
	Chores []plannedStep `json:"chores"`
	// Version of the agent's steps, sent back with each order.
	Version map[string]string `json:"version,omitempty"`
}

// stepFamily is how steps of one use are spoken of.
type stepFamily struct {
	get, execute string
	word         string // clean, deploy or service
	shown        func(*metal.Node) *metal.Object
}

func familyOf(kind job.Kind) stepFamily {
	switch kind {
	case "deploy":
		return stepFamily{agent.GetDeploySteps, agent.ExecuteDeployStep, "deploy", func(n *metal.Node) *metal.Object { return &n.DeployStep }}
	case "service":
		return stepFamily{agent.GetServiceSteps, agent.ExecuteServiceStep, "service", func(n *metal.Node) *metal.Object { return &n.ServiceStep }}
	}
	return stepFamily{agent.GetCleanSteps, agent.ExecuteCleanStep, "clean", func(n *metal.Node) *metal.Object { return &n.CleanStep }}
}

// Steps of a deployment that are ours, with Ironic's priorities.
const (
	writeImage      = "write_image"
	prepareBoot     = "prepare_instance_boot"
	writePriority   = 80
	preparePriority = 60
)

// reserved are the steps that belong to no interface.
var reserved = []string{"power_on", "power_off", "reboot", "hold", "wait"}

// requestedSteps reads the document. settled tells whether it is a course already.
func (c stepOperations) requestedSteps(ctx context.Context, nodeID string) (asked []metal.Step, settled *stepPlan, err error) {
	doc, err := c.Store.Document(ctx, nil, nodeID, metal.Steps)
	if problem.Is(err, problem.NotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if strings.HasPrefix(strings.TrimSpace(string(doc.Body)), "{") {
		settled = new(stepPlan)
		return nil, settled, json.Unmarshal(doc.Body, settled)
	}
	return asked, nil, json.Unmarshal(doc.Body, &asked)
}

func (c stepOperations) saveSteps(nodeID string, list stepPlan) func(job.Tx) error {
	return func(tx job.Tx) error {
		body, err := json.Marshal(list)
		if err != nil {
			return err
		}
		return c.Store.SaveDocument(tx, metal.Document{NodeID: nodeID, Kind: metal.Steps, Body: body, CreatedAt: c.Now(), UpdatedAt: c.Now()})
	}
}

// forgetSteps ends an operation's steps: they may hold secrets, and are nobody else's.
func (c stepOperations) forgetSteps(nodeID string) func(job.Tx) error {
	return func(tx job.Tx) error { return c.Store.DeleteDocument(tx, nodeID, metal.Steps) }
}

// settleSteps decides what runs.
func (c stepOperations) settleSteps(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	asked, settled, err := c.requestedSteps(ctx, m.node.ID)
	if err != nil {
		return job.From(err)
	}
	if settled != nil {
		return job.Done()
	}
	var templates []metal.Step
	if r.Kind == "deploy" {
		if templates, err = c.templateSteps(ctx, m.node); err != nil {
			return job.From(err)
		}
	}
	if len(asked)+len(templates) == 0 && r.Memo[ramdiskMemo] != byRamdisk {
		return job.Done()
	}
	var list stepPlan
	offered, out, ok := c.offered(ctx, r, m, &list)
	if !ok {
		return out
	}
	switch r.Kind {
	case "provide":
		list.Chores = selectAutomatedSteps(offered)
	case "deploy":
		if list.Chores, err = mergeDeploySteps(offered, templates, asked); err != nil {
			return job.Fail(err)
		}
	default:
		if list.Chores, err = resolveSteps(offered, asked); err != nil {
			return job.Fail(err)
		}
	}
	for _, s := range list.Chores {
		if err := s.checkArgs(); err != nil {
			return job.Fail(err)
		}
	}
	return job.Done(c.saveSteps(m.node.ID, list), c.resume(ctx, m))
}

// offered lists what can be done on the node: by its interfaces, by us, and by the agent if one runs.
func (c stepOperations) offered(ctx context.Context, r *job.Run, m *managedNode, list *stepPlan) ([]plannedStep, job.Outcome, bool) {
	all, err := c.driverSteps(ctx, r.Kind, m)
	if err != nil {
		return nil, job.From(err), false
	}
	if r.Memo[ramdiskMemo] != byRamdisk {
		return all, job.Outcome{}, true
	}
	if r.Kind == "deploy" && m.writesImage() {
		all = append(all,
			plannedStep{Step: metal.Step{Interface: "deploy", Step: writeImage, Priority: writePriority}, By: byUs},
			plannedStep{Step: metal.Step{Interface: "deploy", Step: prepareBoot, Priority: preparePriority}, By: byUs})
	}
	a, contact, out := c.agentOf(ctx, r, m, c.timeout(r.Kind))
	if !contact {
		return nil, out, false
	}
	theirs, err := c.agentSteps(ctx, r, m, a, list)
	if err != nil {
		return nil, job.From(err), false
	}
	for _, s := range theirs {
		switch i := slices.IndexFunc(all, func(o plannedStep) bool { return o.name() == s.name() }); {
		case i >= 0:
			all[i].AgentHas = true
		case m.agentHasSteps(s.Interface):
			all = append(all, s)
		}
	}
	return all, job.Outcome{}, true
}

// driverSteps lists what the node's interfaces do without an agent. No machine is asked.
func (c stepOperations) driverSteps(ctx context.Context, of job.Kind, m *managedNode) ([]plannedStep, error) {
	var all []plannedStep
	for _, kind := range append(slices.Clone(metal.InterfaceKinds), "firmware") {
		runner := c.runner(m, kind)
		if runner == nil || slices.ContainsFunc(all, func(s plannedStep) bool { return s.Interface == kind && s.By == byDriver }) {
			continue
		}
		steps, err := runner.Steps(ctx, m.node)
		if err != nil {
			return nil, err
		}
		for _, s := range steps {
			priority := s.Priority
			if of == "deploy" {
				priority = s.DeployPriority
			}
			all = append(all, plannedStep{Step: metal.Step{Interface: s.Interface, Step: s.Name, Priority: priority}, By: byDriver, Reboot: s.Restarts, takes: s.ArgsInfo})
		}
	}
	return all, nil
}

// agentHasSteps tells whether the agent's steps of a kind of interface count: as in Ironic, those of deploy, and those of raid where
// the agent makes the volumes.
func (m *managedNode) agentHasSteps(kind string) bool {
	if kind != "raid" {
		return kind == "deploy"
	}
	i, ok := m.info.Find(m.node, kind)
	return ok && !i.Unsupported && m.hardware.Part(kind, i.Name) == nil
}

// agentSteps asks the agent which steps it has; asking may be repeated.
func (c stepOperations) agentSteps(ctx context.Context, r *job.Run, m *managedNode, a driver.Agent, list *stepPlan) ([]plannedStep, error) {
	node, ports, err := m.shown()
	if err != nil {
		return nil, err
	}
	ctx, end := answer.Begin(ctx)
	defer end()
	told, err := c.Agents.Give(ctx, m.node, a, familyOf(r.Kind).get, agent.StepsParams{Node: node, Ports: ports})
	if err != nil {
		return nil, err
	}
	if told.Status != agent.Succeeded {
		return nil, problem.Conflictf("the agent does not tell its %s steps: %s", familyOf(r.Kind).word, agentFailure(told))
	}
	var got agent.StepList
	if err := json.Unmarshal(told.Outcome, &got); err != nil {
		return nil, problem.Conflictf("the agent's list of %s steps cannot be read", familyOf(r.Kind).word)
	}
	list.Version = got.Version
	var out []plannedStep
	for _, family := range []map[string][]agent.Step{got.Clean, got.Deploy, got.Service} {
		for _, steps := range family {
			for _, s := range steps {
				out = append(out, plannedStep{
					Step: metal.Step{Interface: s.Interface, Step: s.Step, Priority: c.erasePriority(r.Kind, s)}, By: byAgent, Reboot: s.RebootRequested,
				})
			}
		}
	}
	return out, nil
}

// erasePriority holds the agent's wish to erase to what is configured: whole disks are
// erased only where an operator has said so.
func (c stepOperations) erasePriority(kind job.Kind, s agent.Step) int {
	if kind != "provide" {
		return s.Priority
	}
	switch s.Step {
	case "erase_devices":
		return c.ErasePriority
	case "erase_devices_metadata":
		return c.EraseMetadataPriority
	case "erase_devices_express":
		return 0
	}
	return s.Priority
}

// runner finds what does the steps of an interface, nil if nothing does.
func (c stepOperations) runner(m *managedNode, kind string) driver.StepRunner {
	i, ok := m.info.Find(m.node, kind)
	if !ok {
		return nil
	}
	runner, _ := m.hardware.Part(kind, i.Name).(driver.StepRunner)
	return runner
}

// selectAutomatedSteps keeps the steps that run unasked, highest first.
func selectAutomatedSteps(all []plannedStep) []plannedStep {
	all = slices.DeleteFunc(slices.Clone(all), func(s plannedStep) bool { return s.Priority <= 0 })
	slices.SortStableFunc(all, func(a, b plannedStep) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.name(), b.name()))
	})
	return all
}

// resolveSteps finds who does each step of a list that was asked for, in its order.
func resolveSteps(offered []plannedStep, asked []metal.Step) ([]plannedStep, error) {
	asked = slices.Clone(asked)
	slices.SortStableFunc(asked, func(a, b metal.Step) int { return cmp.Compare(a.Order, b.Order) })
	var out []plannedStep
	for _, s := range asked {
		found, err := resolveStep(offered, s)
		if err != nil {
			return nil, err
		}
		out = append(out, found)
	}
	return out, nil
}

func resolveStep(offered []plannedStep, s metal.Step) (plannedStep, error) {
	if slices.Contains(reserved, s.Step) {
		return plannedStep{Step: s, By: byUs, Reboot: s.Step == "power_on" || s.Step == "reboot"}, nil
	}
	var names []string
	for _, o := range offered {
		if o.Interface == s.Interface && o.Step.Step == s.Step {
			o.Step = s
			return o, nil
		}
		names = append(names, o.name())
	}
	slices.Sort(names)
	names = slices.Compact(names) // interfaces of two kinds may run the same step
	has := "this node has none"
	if len(names) > 0 {
		has = "this node has " + strings.Join(names, ", ")
	}
	return plannedStep{}, problem.Invalidf("there is no step %.255s of the interface %s here: %s", s.Step, s.Interface, has)
}

// checkArgs tells which arguments an interface's step lacks, and which it does not know.
func (s plannedStep) checkArgs() error {
	if s.By != byDriver {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.takes)) {
		if _, ok := s.Args[name]; !ok && s.takes[name].Required {
			return problem.Invalidf("the step %s needs the argument %s", s.name(), name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Args)) {
		if _, ok := s.takes[name]; !ok {
			has := "it has none"
			if len(s.takes) > 0 {
				has = "it has " + strings.Join(slices.Sorted(maps.Keys(s.takes)), ", ")
			}
			return problem.Invalidf("the step %s has no argument %.100q: %s", s.name(), name, has)
		}
	}
	return nil
}

// templateSteps are those of the deploy templates that the instance's traits choose.
func (c stepOperations) templateSteps(ctx context.Context, n *metal.Node) ([]metal.Step, error) {
	templates, err := c.Nodes.ChosenTemplates(ctx, n)
	var out []metal.Step
	for _, t := range templates {
		out = append(out, t.Steps...)
	}
	return out, err
}

// mergeDeploySteps orders a deployment: what was asked for beats what templates say, which beats what the
// interfaces say themselves. Priority 0 leaves a step out.
func mergeDeploySteps(offered []plannedStep, templates, asked []metal.Step) ([]plannedStep, error) {
	all := slices.Clone(offered)
	for _, list := range [][]metal.Step{templates, asked} {
		var fresh []plannedStep
		for _, s := range list {
			found, err := resolveStep(offered, s)
			if err != nil {
				return nil, err
			}
			fresh = append(fresh, found)
		}
		all = slices.DeleteFunc(all, func(o plannedStep) bool {
			return slices.ContainsFunc(fresh, func(f plannedStep) bool { return f.name() == o.name() })
		})
		all = append(all, fresh...)
	}
	return selectAutomatedSteps(all), nil
}

// stepError names a step that failed, with what its doer said.
func stepError(s plannedStep, err error) error {
	return problem.New(problem.KindOf(err), "step %s: %w", s.name(), err)
}

func (s plannedStep) arg(key string) (any, bool) { v, ok := s.Args[key]; return v, ok }

// shownAs is the step as the node's *_step field shows it, without its arguments, which may hold secrets.
func (s plannedStep) shownAs() metal.Object {
	return metal.Object{"interface": s.Interface, "step": s.Step.Step, "priority": float64(s.Priority)}
}

func formatStepPosition(i int, list stepPlan) string {
	return fmt.Sprintf("%d of %d", i+1, len(list.Chores))
}
