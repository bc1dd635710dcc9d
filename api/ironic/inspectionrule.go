package ironic

import (
	"net/http"
	"slices"

	"salvor/metal"
	"salvor/problem"
)

// inspectionRules act on what inspections find.
var inspectionRules = defineKind(recordKind[metal.InspectionRule, metal.InspectionRuleFilter]{
	name: "inspection rule", path: "inspection_rules", list: "inspection_rules", since: 96, detail: 96,
	service: func(s *server) *metal.InspectionRules { return s.InspectionRules },
	blank:   func(*ironicCall) *metal.InspectionRule { return &metal.InspectionRule{Phase: metal.PhaseMain} },
	fields: slices.Concat([]recordField[metal.InspectionRule]{
		idField[metal.InspectionRule](),
		wordField("description", 1, settable|ordered, 255, func(r *metal.InspectionRule) *string { return &r.Description }),
		numberField("priority", 1, settable|ordered, 0, 9999, func(r *metal.InspectionRule) *int { return &r.Priority }),
		wordField("phase", 1, settable|ordered, 16, func(r *metal.InspectionRule) *string { return &r.Phase }),
		sensitiveField(),
		ruleList("conditions", 0, func(r *metal.InspectionRule) *[]any { return &r.Conditions }),
		ruleList("actions", required, func(r *metal.InspectionRule) *[]any { return &r.Actions }),
	}, lateFields[metal.InspectionRule]("inspection_rules")),
	brief: []string{"uuid", "priority", "phase", "description"},
	filters: []queryFilter[metal.InspectionRuleFilter]{
		wordFilter("phase", 1, func(f *metal.InspectionRuleFilter) *string { return &f.Phase }),
	},
})

// sensitiveField hides conditions and actions for good: it cannot be taken back, or
// whoever may change rules could read what others put into them.
func sensitiveField() recordField[metal.InspectionRule] {
	f := flagField("sensitive", 1, settable|ordered, false, func(r *metal.InspectionRule) *bool { return &r.Sensitive })
	set := f.set
	f.set = func(c *ironicCall, r *metal.InspectionRule, v any) error {
		was := r.Sensitive
		if err := set(c, r, v); err != nil {
			return err
		}
		if was && !r.Sensitive {
			return problem.Invalidf("Inspection rules cannot have the sensitive flag unset.")
		}
		return nil
	}
	return f
}

// ruleList is the conditions or the actions of a rule; what they hold is the rule's to check.
func ruleList(name string, more fieldUse, at func(*metal.InspectionRule) *[]any) recordField[metal.InspectionRule] {
	return recordField[metal.InspectionRule]{
		name: name, since: 1, use: settable | more,
		write: func(b []byte, r *metal.InspectionRule, _ *ironicCall) []byte {
			if r.Sensitive {
				return append(b, "null"...)
			}
			if *at(r) == nil {
				return append(b, "[]"...)
			}
			return secretKeys.appendAny(b, *at(r))
		},
		get: func(r *metal.InspectionRule) any {
			if *at(r) == nil {
				return []any{}
			}
			return *at(r)
		},
		set: func(_ *ironicCall, r *metal.InspectionRule, v any) error {
			list, ok := v.([]any)
			if !ok && v != nil {
				return wrongType(name, v, "a list of objects with op and args")
			}
			if err := secretKeys.keepList(name, list, *at(r)); err != nil {
				return err
			}
			*at(r) = list
			return nil
		},
	}
}

func (s *server) inspectionRuleRoutes() []apiRoute {
	return append(inspectionRules.routes(), apiRoute{method: "DELETE", path: "/v1/inspection_rules", since: 96, do: s.clearInspectionRules})
}

// clearInspectionRules removes every rule that there is.
func (s *server) clearInspectionRules(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	if err := s.InspectionRules.Clear(c.R.Context(), c.Asker()); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}
