package metal

import (
	"cmp"
	"slices"
	"strings"

	"salvor/problem"
	"salvor/record"
)

// InspectionRule acts on what an inspection found, where its conditions hold.
type InspectionRule struct {
	record.Record
	Description string
	Priority    int    // highest first
	Phase       string // main
	Scope       string
	Sensitive   bool // its conditions and actions are shown to nobody
	Conditions  []any
	Actions     []any // sealed by the store
}

// InspectionRuleFilter narrows a list of inspection rules; zero fields do not narrow.
type InspectionRuleFilter struct{ Phase, Scope string }

// PhaseMain is the only phase: after the hardware was read, before the node is saved.
const PhaseMain = "main"

// InspectionRules is the service of inspection rules.
type InspectionRules = record.Collection[InspectionRule, InspectionRuleFilter]

// NewInspectionRules makes the service.
func NewInspectionRules(store Store, nodes *Nodes) *InspectionRules {
	s := record.NewCollection("inspection rule", store.InspectionRules(), nodes.jobs, nodes.now)
	s.Check = func(r *InspectionRule) error {
		if r.Phase == "" {
			r.Phase = PhaseMain
		}
		switch {
		case r.Phase != PhaseMain:
			return problem.Invalidf("Invalid phase: %.40s. Valid phases are: %s", r.Phase, PhaseMain)
		case r.Priority < 0 || r.Priority > 9999:
			return problem.Invalidf("Priority must be between 0 and 9999 for user-defined rules.")
		case len(r.Description) > 255:
			return problem.Invalidf("description is longer than 255 characters")
		}
		_, err := r.parse()
		return err
	}
	return s
}

// ruleOp is one condition or action of a rule.
type ruleOp struct {
	op       string
	inverted bool
	args     Object
	loop     []any  // the items that it is done for; nil: it is done once
	multiple string // of the items of a condition: any, all, first, last
}

type parsedRule struct{ conditions, actions []ruleOp }

// maxRuleOps bounds the conditions, the actions and the items of a loop of one rule.
const maxRuleOps = 200

func (r *InspectionRule) parse() (p parsedRule, err error) {
	if len(r.Actions) == 0 {
		return p, problem.Invalidf("an inspection rule needs at least one action")
	}
	if p.conditions, err = parseRuleOps("conditions", r.Conditions, conditionShapes); err != nil {
		return p, err
	}
	p.actions, err = parseRuleOps("actions", r.Actions, actionShapes)
	return p, err
}

// argumentShape is what an operation takes: names of arguments in the order that a list gives them.
type argumentShape struct {
	required, optional []string
	// filled are the arguments in which {node...}, {inventory...} and {plugin_data...} are
	// replaced; within a loop all are.
	filled []string
	// check looks at arguments that can be judged before an inspection; nil: none.
	check func(Object) error
	// listsValues: a list of arguments that does not begin with a list is the first argument itself. Clients write comparisons so.
	listsValues bool
}

func parseRuleOps(what string, list []any, shapes map[string]argumentShape) ([]ruleOp, error) {
	if len(list) > maxRuleOps {
		return nil, problem.Invalidf("%s holds more than %d entries", what, maxRuleOps)
	}
	ops := make([]ruleOp, len(list))
	for i, e := range list {
		op, err := parseRuleOp(e, shapes, what == "conditions")
		if err != nil {
			return nil, problem.Invalidf("%s[%d]: %w", what, i, err)
		}
		ops[i] = op
	}
	return ops, nil
}

func parseRuleOp(v any, shapes map[string]argumentShape, condition bool) (op ruleOp, err error) {
	o, ok := v.(map[string]any)
	if !ok {
		return op, problem.Invalidf("it must be an object with op and args")
	}
	for k := range o {
		if k != "op" && k != "args" && k != "loop" && (k != "multiple" || !condition) {
			return op, problem.Invalidf("%.40q is not expected", k)
		}
	}
	word, _ := o["op"].(string)
	op.op = strings.TrimSpace(word)
	if rest, ok := strings.CutPrefix(op.op, "!"); ok && condition {
		op.op, op.inverted = strings.TrimSpace(rest), true
	}
	s, ok := shapes[op.op]
	if !ok {
		return op, problem.Invalidf("unsupported op %.40q; use one of %s", word, strings.Join(sortedKeys(shapes), ", "))
	}
	if op.args, err = s.arguments(o["args"]); err != nil {
		return op, problem.Invalidf("%s: %w", op.op, err)
	}
	if s.check != nil && o["loop"] == nil {
		if err := s.check(op.args); err != nil {
			return op, problem.Invalidf("%s: %w", op.op, err)
		}
	}
	if op.loop, err = loopItems(o["loop"]); err != nil {
		return op, err
	}
	op.multiple = "any"
	if m, ok := o["multiple"]; ok {
		if op.multiple, _ = m.(string); !slices.Contains([]string{"any", "all", "first", "last"}, op.multiple) {
			return op, problem.Invalidf("multiple must be any, all, first or last")
		}
	}
	return op, nil
}

// loopItems are the items of a loop: a list's entries, or one object.
func loopItems(v any) ([]any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case []any:
		if len(v) > maxRuleOps {
			return nil, problem.Invalidf("loop holds more than %d items", maxRuleOps)
		}
		if len(v) == 0 {
			return nil, nil
		}
		return v, nil
	case map[string]any:
		return []any{v}, nil
	}
	return nil, problem.Invalidf("loop must be a list or an object")
}

// arguments brings a list of arguments to their names and refuses missing and unknown ones.
func (s argumentShape) arguments(v any) (Object, error) {
	names := append(slices.Clone(s.required), s.optional...)
	var args Object
	switch v := v.(type) {
	case map[string]any:
		args = v
	case []any:
		if s.listsValues && len(v) > 0 {
			if _, nested := v[0].([]any); !nested {
				return Object{s.required[0]: v}, nil
			}
		}
		if len(v) > len(names) {
			return nil, problem.Invalidf("takes at most %d arguments", len(names))
		}
		args = Object{}
		for i, e := range v {
			args[names[i]] = e
		}
	default:
		return nil, problem.Invalidf("args must be either a list or an object")
	}
	var missing, unexpected []string
	for _, name := range s.required {
		if _, ok := args[name]; !ok {
			missing = append(missing, name)
		}
	}
	for _, name := range sortedKeys(args) {
		if !slices.Contains(names, name) {
			unexpected = append(unexpected, name)
		}
	}
	if len(missing) > 0 {
		return nil, problem.Invalidf("missing required argument(s): %s", strings.Join(missing, ", "))
	}
	if len(unexpected) > 0 {
		return nil, problem.Invalidf("unexpected argument(s): %.200s", strings.Join(unexpected, ", "))
	}
	return args, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Findings is what an inspection found of a node, for the rules to work on. Apply edits
// Node, Ports and Plugin; the caller stores them.
type Findings struct {
	Node      *Node
	Ports     []*Port
	Inventory Object // as the agent tells it
	Plugin    Object // what was found beside
	// Notes is what the rules' log actions said.
	Notes []RuleNote
	// Touched are the ids of the ports that were edited.
	Touched []string
}

// RuleNote is one line that a rule logs; Level is debug, info, warning, error or critical.
type RuleNote struct{ Level, Text string }

// Apply works the rules off, highest priority first. An error is Invalid: a rule's fail
// action, or a rule that cannot be worked on what was found; the inspection has failed then.
func Apply(rules []*InspectionRule, f *Findings) error {
	if f.Plugin == nil {
		f.Plugin = Object{}
	}
	rules = slices.Clone(rules)
	slices.SortStableFunc(rules, func(a, b *InspectionRule) int { return cmp.Compare(b.Priority, a.Priority) })
	for _, r := range rules {
		switch err := f.apply(r); {
		case err != nil && r.Sensitive: // the reason may hold what the rule compares and writes
			return problem.Invalidf("inspection rule %s failed; why is not told, for it is sensitive", r.ID)
		case err != nil:
			return problem.Invalidf("inspection rule %s: %w", r.name(), err)
		}
	}
	return nil
}

func (r *InspectionRule) name() string {
	if r.Description != "" {
		return r.ID + " (" + r.Description + ")"
	}
	return r.ID
}

func (f *Findings) apply(r *InspectionRule) error {
	p, err := r.parse()
	if err != nil {
		return err
	}
	for _, c := range p.conditions {
		holds, err := f.holds(c)
		if err != nil || !holds {
			return err
		}
	}
	for _, a := range p.actions {
		items := a.loop
		if items == nil {
			items = []any{nil}
		}
		for _, item := range items {
			args, err := f.fill(actionShapes[a.op], a, item)
			if err != nil {
				return err
			}
			if err := actions[a.op](f, args); err != nil {
				return problem.Invalidf("%s: %w", a.op, err)
			}
		}
	}
	return nil
}

// holds tells whether a condition does, for its items as it says.
func (f *Findings) holds(c ruleOp) (bool, error) {
	one := func(item any) (bool, error) {
		args, err := f.fill(conditionShapes[c.op], c, item)
		if err != nil {
			return false, err
		}
		ok, err := conditions[c.op](args)
		if err != nil {
			return false, problem.Invalidf("%s: %w", c.op, err)
		}
		return ok != c.inverted, nil
	}
	if c.loop == nil {
		return one(nil)
	}
	items := c.loop
	switch c.multiple {
	case "first":
		items = items[:1]
	case "last":
		items = items[len(items)-1:]
	}
	for _, item := range items {
		ok, err := one(item)
		if err != nil {
			return false, err
		}
		if ok != (c.multiple == "all") { // one false ends "all", one true the others
			return ok, nil
		}
	}
	return c.multiple == "all", nil
}
