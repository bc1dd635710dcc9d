package ironic

import (
	"net/http"
	"slices"

	"salvor/access"
	"salvor/metal"
	"salvor/problem"
)

// deployTemplates are lists of deploy steps, chosen by traits of nodes.
var deployTemplates = defineKind(recordKind[metal.DeployTemplate, metal.DeployTemplateFilter]{
	name: "deploy template", path: "deploy_templates", list: "deploy_templates", since: 55, detail: 55,
	service: func(s *server) *metal.DeployTemplates { return s.DeployTemplates },
	blank:   func(*ironicCall) *metal.DeployTemplate { return &metal.DeployTemplate{} },
	fields: slices.Concat([]recordField[metal.DeployTemplate]{
		idField[metal.DeployTemplate](),
		requireField(wordField("name", 1, settable|ordered, 255, func(t *metal.DeployTemplate) *string { return &t.Name })),
		stepsField("priority", metal.ParseTemplateSteps, func(t *metal.DeployTemplate) *[]metal.Step { return &t.Steps }),
		freeField("extra", 1, settable, func(t *metal.DeployTemplate) *metal.Object { return &t.Extra }),
	}, lateFields[metal.DeployTemplate]("deploy_templates")),
	brief: []string{"uuid", "name"},
})

// runbooks are lists of clean and service steps that operators run by name.
var runbooks = defineKind(recordKind[metal.Runbook, metal.RunbookFilter]{
	name: "runbook", path: "runbooks", list: "runbooks", since: 92, detail: 92,
	service: func(s *server) *metal.Runbooks { return s.Runbooks },
	blank:   func(c *ironicCall) *metal.Runbook { return &metal.Runbook{Owner: c.owner} },
	fields: slices.Concat([]recordField[metal.Runbook]{
		idField[metal.Runbook](),
		runbookName(),
		wordField("description", 112, settable|ordered, 255, func(r *metal.Runbook) *string { return &r.Description }),
		stepsField("order", metal.ParseRunbookSteps, func(r *metal.Runbook) *[]metal.Step { return &r.Steps }),
		flagField("disable_ramdisk", 1, settable|ordered, false, func(r *metal.Runbook) *bool { return &r.DisableRamdisk }),
		runbookPublic(),
		runbookOwner(),
		shownOnly(wordsField("traits", 112, 0, metal.CheckTrait, func(r *metal.Runbook) *[]string { return &r.Traits })),
		freeField("extra", 1, settable, func(r *metal.Runbook) *metal.Object { return &r.Extra }),
	}, lateFields[metal.Runbook]("runbooks")),
	brief: []string{"uuid", "name"},
	filters: []queryFilter[metal.RunbookFilter]{
		wordFilter("project", 1, func(f *metal.RunbookFilter) *string { return &f.Project }),
	},
})

// runbookName is a trait for clients of before 1.112, who find a node's runbooks by it.
func runbookName() recordField[metal.Runbook] {
	f := requireField(wordField("name", 1, settable|ordered, 255, func(r *metal.Runbook) *string { return &r.Name }))
	set := f.set
	f.set = func(c *ironicCall, r *metal.Runbook, v any) error {
		if word, ok := v.(string); ok && c.version < 112 && word != r.Name {
			if err := metal.CheckTrait(word); err != nil {
				return err
			}
		}
		return set(c, r, v)
	}
	return f
}

// runbookPublic takes the owner from a runbook that becomes everybody's.
func runbookPublic() recordField[metal.Runbook] {
	f := flagField("public", 1, settable|ordered, false, func(r *metal.Runbook) *bool { return &r.Public })
	set := f.set
	f.set = func(c *ironicCall, r *metal.Runbook, v any) error {
		err := set(c, r, v)
		if r.Public {
			r.Owner = ""
		}
		return err
	}
	return f
}

func runbookOwner() recordField[metal.Runbook] {
	f := wordField("owner", 1, settable|ordered, 255, func(r *metal.Runbook) *string { return &r.Owner })
	set := f.set
	f.set = func(c *ironicCall, r *metal.Runbook, v any) error {
		if r.Public && v != nil && v != "" {
			return problem.Invalidf("There cannot be an owner for a public runbook")
		}
		return set(c, r, v)
	}
	return f
}

// stepsField is a list of steps; rank is the key that orders them. Secrets in their
// arguments are masked, and one who sends the mask back keeps what is stored.
func stepsField[R any](rank string, parse func(any) ([]metal.Step, error), at func(*R) *[]metal.Step) recordField[R] {
	return requireField(recordField[R]{
		name: "steps", since: 1, use: settable,
		write: func(b []byte, r *R, _ *ironicCall) []byte { return appendSteps(b, rank, *at(r)) },
		get:   func(r *R) any { return stepValues(rank, *at(r)) },
		set: func(_ *ironicCall, r *R, v any) error {
			list, ok := v.([]any)
			if !ok {
				return wrongType("steps", v, "a list of steps")
			}
			if err := secretKeys.keepList("steps", list, stepValues(rank, *at(r)), rank); err != nil {
				return err
			}
			steps, err := parse(v)
			if err == nil {
				*at(r) = steps
			}
			return err
		},
	})
}

func stepRank(rank string, s *metal.Step) int {
	if rank == "order" {
		return s.Order
	}
	return s.Priority
}

// stepValues gives steps as JSON decodes them.
func stepValues(rank string, steps []metal.Step) []any {
	out := make([]any, len(steps))
	for i := range steps {
		s := &steps[i]
		args := any(map[string]any{})
		if s.Args != nil {
			args = s.Args
		}
		out[i] = map[string]any{"interface": s.Interface, "step": s.Step, "args": args, rank: float64(stepRank(rank, s))}
	}
	return out
}

func appendSteps(b []byte, rank string, steps []metal.Step) []byte {
	b = append(b, '[')
	for i := range steps {
		if i > 0 {
			b = append(b, ',')
		}
		s := &steps[i]
		b = appendString(append(b, `{"interface":`...), s.Interface)
		b = appendString(append(b, `,"step":`...), s.Step)
		b = secretKeys.appendMap(append(b, `,"args":`...), s.Args)
		b = appendAny(appendKey(b, rank), float64(stepRank(rank, s)))
		b = append(b, '}')
	}
	return append(b, ']')
}

func (s *server) runbookRoutes() []apiRoute {
	at := "/v1/runbooks/{id}/traits"
	return append(runbooks.routes(),
		apiRoute{method: "GET", path: at, need: access.Read, since: 112, do: s.getRunbookTraits},
		apiRoute{method: "PUT", path: at, since: 112, do: s.setRunbookTraits},
		apiRoute{method: "DELETE", path: at, since: 112, do: s.clearRunbookTraits},
		apiRoute{method: "PUT", path: at + "/{trait}", since: 112, do: s.addRunbookTrait},
		apiRoute{method: "DELETE", path: at + "/{trait}", since: 112, do: s.removeRunbookTrait},
	)
}

func (s *server) getRunbookTraits(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	r, err := s.Runbooks.Get(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	return c.Raw(http.StatusOK, append(appendTraits([]byte(`{"traits":`), r.Traits), '}'))
}

// changeRunbookTraits edits the traits and answers 204.
func (c *ironicCall) changeRunbookTraits(edit func(old []string) []string) error {
	if err := c.only(); err != nil {
		return err
	}
	_, err := c.s.Runbooks.Update(c.R.Context(), c.Args[0], c.Asker(), func(r *metal.Runbook) error {
		r.Traits = edit(r.Traits)
		slices.Sort(r.Traits)
		r.Traits = slices.Compact(r.Traits)
		return nil
	})
	if err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

func (s *server) setRunbookTraits(c *ironicCall) error {
	traits, err := c.traitList()
	if err != nil {
		return err
	}
	return c.changeRunbookTraits(func([]string) []string { return traits })
}

func (s *server) clearRunbookTraits(c *ironicCall) error {
	return c.changeRunbookTraits(func([]string) []string { return nil })
}

func (s *server) addRunbookTrait(c *ironicCall) error {
	if err := metal.CheckTrait(c.Args[1]); err != nil {
		return err
	}
	c.location("runbooks/" + c.Args[0] + "/traits/" + c.Args[1])
	return c.changeRunbookTraits(func(old []string) []string { return append(old, c.Args[1]) })
}

// removeRunbookTrait is content with a trait that is not there, as Ironic is.
func (s *server) removeRunbookTrait(c *ironicCall) error {
	return c.changeRunbookTraits(func(old []string) []string {
		return slices.DeleteFunc(old, func(t string) bool { return t == c.Args[1] })
	})
}
