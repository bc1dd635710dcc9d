package metal

import (
	"cmp"
	"context"
	"regexp"
	"slices"

	"salvor/problem"
	"salvor/record"
)

// Step is one step of cleaning, deployment or service.
type Step struct {
	Interface string `json:"interface"`
	Step      string `json:"step"`
	Args      Object `json:"args,omitempty"`
	// Priority orders deploy steps, highest first; 0 leaves the step out.
	Priority int `json:"priority,omitempty"`
	// Order is the place in a runbook, lowest first.
	Order int `json:"order,omitempty"`
}

// DeployTemplate is a list of deploy steps, chosen by an instance's trait (in instance_info) of the same name.
type DeployTemplate struct {
	record.Record
	Name  string
	Steps []Step // their args are sealed by the store
	Extra Object
}

// DeployTemplateFilter narrows a list of deploy templates; zero fields do not narrow.
type DeployTemplateFilter struct{ Names []string }

// Runbook is a list of clean or service steps that operators run by name.
type Runbook struct {
	record.Record
	Name           string
	Description    string
	Steps          []Step // their args are sealed by the store
	Traits         []string
	DisableRamdisk bool
	Public         bool
	Owner          string // project; empty while public
	Extra          Object
}

// RunbookFilter narrows a list of runbooks. Project keeps those that it owns and the public ones.
type RunbookFilter struct{ Project string }

// ParseTemplateSteps reads the steps of a deploy template.
func ParseTemplateSteps(v any) ([]Step, error) { return ParseSteps(templateStepForm, v) }

// ParseRunbookSteps reads the steps of a runbook.
func ParseRunbookSteps(v any) ([]Step, error) { return ParseSteps(runbookStepForm, v) }

// DeployTemplates is the service of deploy templates.
type DeployTemplates = record.Collection[DeployTemplate, DeployTemplateFilter]

// NewDeployTemplates makes the service.
func NewDeployTemplates(store Store, nodes *Nodes) *DeployTemplates {
	s := record.NewCollection("deploy template", store.DeployTemplates(), nodes.jobs, nodes.now)
	s.Check = func(t *DeployTemplate) error {
		if err := CheckTrait(t.Name); err != nil {
			return problem.Invalidf("Deploy template invalid: its name must be a trait. %w", err)
		}
		return templateStepForm.check(t.Steps)
	}
	return s
}

// runbookName takes every name that needs no escape in a URL.
var runbookName = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,255}$`)

// Runbooks is the service of runbooks.
type Runbooks = record.Collection[Runbook, RunbookFilter]

// NewRunbooks makes the service.
func NewRunbooks(store Store, nodes *Nodes) *Runbooks {
	s := record.NewCollection("runbook", store.Runbooks(), nodes.jobs, nodes.now)
	s.Check = func(r *Runbook) error {
		switch {
		case !runbookName.MatchString(r.Name) || record.IsUUID(r.Name):
			return problem.Invalidf("Runbook invalid: name %.100q; use letters, digits and . _ ~ - (at most 255), and no UUID", r.Name)
		case len(r.Description) > 255:
			return problem.Invalidf("Runbook invalid: description is longer than 255 characters")
		case len(r.Owner) > words255:
			return problem.Invalidf("Runbook invalid: owner is longer than %d characters", words255)
		case r.Owner != "" && r.Public:
			return problem.Invalidf("There cannot be an owner for a public runbook")
		case len(r.Traits) > 50:
			return problem.Invalidf("Runbook invalid: it can not have more than 50 traits")
		}
		slices.Sort(r.Traits)
		r.Traits = slices.Compact(r.Traits)
		if err := checkTraits(r.Traits); err != nil {
			return err
		}
		return runbookStepForm.check(r.Steps)
	}
	return s
}

// Approves tells whether the runbook may be run on the node. byTraits asks for a trait that
// both have; clients before that ask for a trait of the node that is the runbook's name.
func (r *Runbook) Approves(n *Node, byTraits bool) error {
	if !byTraits {
		if !slices.Contains(n.Traits, r.Name) {
			return problem.Invalidf("This runbook has not been approved for use on this node %s: the node has no trait %s.", n.ID, r.Name)
		}
		return nil
	}
	if len(r.Traits) == 0 {
		return problem.Invalidf("Runbook %s has no traits, so no node is approved for it; add a trait to it.", r.ID)
	}
	if !slices.ContainsFunc(r.Traits, func(t string) bool { return slices.Contains(n.Traits, t) }) {
		return problem.Invalidf("This runbook has not been approved for use on this node %s: the node has none of the runbook's traits %v.", n.ID, r.Traits)
	}
	return nil
}

// Ordered gives the runbook's steps in their order.
func (r *Runbook) Ordered() []Step {
	steps := slices.Clone(r.Steps)
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(a.Order, b.Order) })
	return steps
}

// ChosenTemplates are the deploy templates that the instance's traits choose, among those of the node's.
func (s *Nodes) ChosenTemplates(ctx context.Context, n *Node) ([]*DeployTemplate, error) {
	wanted, _ := n.InstanceInfo["traits"].([]any)
	names := slices.DeleteFunc(slices.Clone(n.Traits), func(t string) bool { return !slices.Contains(wanted, any(t)) })
	if len(names) == 0 {
		return nil, nil
	}
	return s.store.DeployTemplates().List(ctx, nil, DeployTemplateFilter{Names: names}, record.Page{Limit: len(names)})
}
