package metal

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"salvor/problem"
)

// StepForm is how a list of steps has to look in one of its uses.
type StepForm struct {
	what      string // as errors name the list
	needs     []string
	rank      string // the key that orders the steps: priority, order, or none
	rankNeed  bool
	more      []string // interfaces beside those of stepInterfaces
	once      bool     // a pair of interface and step may be there once only
	oneOrMore bool
}

// The uses of steps.
var (
	CleanStepForm    = StepForm{what: "clean_steps", rank: "order"}
	DeployStepForm   = StepForm{what: "deploy_steps", rank: "priority", rankNeed: true}
	ServiceStepForm  = StepForm{what: "service_steps", rank: "order", more: []string{"network"}}
	templateStepForm = StepForm{what: "steps", needs: []string{"args"}, rank: "priority", rankNeed: true, once: true, oneOrMore: true}
	runbookStepForm  = StepForm{what: "steps", rank: "order", rankNeed: true, once: true, oneOrMore: true}
)

// stepInterfaces are the kinds of interface that have steps.
var stepInterfaces = []string{"bios", "deploy", "firmware", "management", "power", "raid", "vendor"}

// maxSteps bounds a list of steps.
const maxSteps = 500

// ParseSteps reads a list of steps from decoded JSON; nil is no list. Every error is Invalid.
func ParseSteps(form StepForm, v any) ([]Step, error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, problem.Invalidf("%s must be a list of steps", form.what)
	}
	if len(list) > maxSteps {
		return nil, problem.Invalidf("%s holds more than %d steps", form.what, maxSteps)
	}
	steps := make([]Step, 0, len(list))
	for i, e := range list {
		s, err := form.step(e)
		if err != nil {
			return nil, problem.Invalidf("%s[%d]: %w", form.what, i, err)
		}
		steps = append(steps, s)
	}
	return steps, form.check(steps)
}

// check holds the rules of the list as a whole.
func (form StepForm) check(steps []Step) error {
	if form.oneOrMore && len(steps) == 0 {
		return problem.Invalidf("%s is too short: it must hold at least one step", form.what)
	}
	if !form.once {
		return nil
	}
	var seen, twice []string
	for _, s := range steps {
		pair := fmt.Sprintf("interface: %s, step: %.100s", s.Interface, s.Step)
		if slices.Contains(seen, pair) && !slices.Contains(twice, pair) {
			twice = append(twice, pair)
		}
		seen = append(seen, pair)
	}
	if len(twice) > 0 {
		return problem.Invalidf("Duplicate steps. There cannot be several steps with the same interface and step. Duplicates: %s", strings.Join(twice, "; "))
	}
	return nil
}

func (form StepForm) step(v any) (s Step, err error) {
	o, ok := v.(map[string]any)
	if !ok {
		return s, problem.Invalidf("a step must be an object with interface and step")
	}
	for k, e := range o {
		var known bool
		switch k {
		case "interface":
			s.Interface, known = e.(string)
		case "step":
			s.Step, known = e.(string)
		case "args":
			s.Args, known = e.(map[string]any)
		case "priority":
			s.Priority, known = stepRank(e)
			known = known && form.rank == k
		case "order":
			s.Order, known = stepRank(e)
			known = known && form.rank == k
		}
		if !known {
			return s, problem.Invalidf("%.100q is not expected, or not of its type", k)
		}
	}
	kinds := append(slices.Clone(stepInterfaces), form.more...)
	if s.Step == "" || len(s.Step) > 255 || !slices.Contains(kinds, s.Interface) {
		return s, problem.Invalidf("a step needs interface (one of %s) and step", strings.Join(kinds, ", "))
	}
	needs := form.needs
	if form.rankNeed {
		needs = append(slices.Clone(needs), form.rank)
	}
	for _, k := range needs {
		if _, ok := o[k]; !ok {
			return s, problem.Invalidf("a step needs %s", k)
		}
	}
	return s, nil
}

// stepRank reads a whole number that is not negative, or its digits in a string.
func stepRank(v any) (int, bool) {
	switch v := v.(type) {
	case float64:
		return int(v), v == math.Trunc(v) && v >= 0 && v <= math.MaxInt32
	case string:
		n, err := strconv.ParseUint(v, 10, 31)
		return int(n), err == nil && !strings.ContainsAny(v, "+_")
	}
	return 0, false
}
