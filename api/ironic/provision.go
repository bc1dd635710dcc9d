package ironic

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// provisionField is what may come with a verb: which verbs take it, and since when.
type provisionField struct {
	name  string
	verbs []metal.Verb
	since metal.Version
	// later are first versions of verbs that took the field later than others.
	later map[metal.Verb]metal.Version
}

var provisionFields = []provisionField{
	{name: "configdrive", verbs: []metal.Verb{metal.Deploy, metal.Rebuild}, since: 1},
	{name: "clean_steps", verbs: []metal.Verb{metal.Clean}, since: 15},
	{name: "rescue_password", verbs: []metal.Verb{metal.ToRescue}, since: 38},
	{name: "deploy_steps", verbs: []metal.Verb{metal.Deploy, metal.Rebuild}, since: 69},
	{name: "disable_ramdisk", verbs: []metal.Verb{metal.Clean, metal.Service}, since: 70, later: map[metal.Verb]metal.Version{metal.Service: 108}},
	{name: "service_steps", verbs: []metal.Verb{metal.Service}, since: 87},
	{name: "runbook", verbs: []metal.Verb{metal.Clean, metal.Service}, since: 92},
}

// provision takes a verb. The order of the checks is Ironic's: node, version, state, then what came with the verb.
func (s *server) provision(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	b, err := api.ReadBody(c.W, c.R, api.MaxProvisionBody)
	if err != nil {
		return err
	}
	body, err := api.DecodeObject(b)
	if err != nil {
		return err
	}
	word, ok := body["target"].(string)
	if !ok || word == "" {
		return problem.Invalidf("Missing mandatory parameter: target (a provision verb)")
	}
	n, err := s.Nodes.Node(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	verb, _ := metal.ParseVerb(word)
	if err := c.verbGate(n, verb, word); err != nil {
		return err
	}
	if _, err := n.Admit(verb, truncateInput(word)); err != nil {
		return err
	}
	args, err := c.provisionArgs(n, verb, body)
	if err != nil {
		return err
	}
	if err := s.Nodes.Provision(c.R.Context(), n.ID, verb, word, args, c.Asker()); err != nil {
		return err
	}
	c.location("nodes/" + c.Args[0] + "/states")
	return c.Empty(http.StatusAccepted)
}

// verbGate holds a verb to its first version: of the verb itself, of its spelling, and of
// its use in the node's state.
func (c *ironicCall) verbGate(n *metal.Node, verb metal.Verb, word string) error {
	if err := c.rescueGate(n); err != nil {
		return err
	}
	var first metal.Version
	for _, t := range metal.Transitions {
		if t.Verb != "" && t.Verb == verb && (first == 0 || t.Min < first) && !t.From.Info().InRescue {
			first = t.Min
		}
	}
	if word == "deploy" || word == "undeploy" || word == "delete" {
		first = 73
	}
	if verb == metal.Unrescue { // it has no use outside of a rescue
		first = 38
	}
	if t, ok := metal.ByVerb(n.ProvisionState, verb); ok && t.Min > first {
		first = t.Min
	}
	if c.version < first {
		return api.NotAcceptablef("Request not acceptable: the provision target %q needs API version %s.", word, versionText(first))
	}
	return nil
}

// provisionArgs reads what came with the verb.
func (c *ironicCall) provisionArgs(n *metal.Node, verb metal.Verb, body map[string]any) (metal.ProvisionArgs, error) {
	var args metal.ProvisionArgs
	for name := range body {
		if name != "target" && !slices.ContainsFunc(provisionFields, func(f provisionField) bool { return f.name == name }) {
			return args, problem.Invalidf("Unexpected arguments: %s", truncateInput(name))
		}
	}
	for _, f := range provisionFields {
		if v, ok := body[f.name]; !ok || v == nil {
			continue
		}
		if !slices.Contains(f.verbs, verb) {
			return args, problem.Invalidf(`"%s" is only valid when setting target provision state to %s`, f.name, verbWords(f.verbs))
		}
		if since := max(f.since, f.later[verb]); c.version < since {
			return args, newerField(f.name, since)
		}
	}
	if err := c.configDrive(verb, body["configdrive"], &args); err != nil {
		return args, err
	}
	if err := rescuePassword(verb, body["rescue_password"], &args); err != nil {
		return args, err
	}
	var err error
	if args.DisableRamdisk, err = wantBool("disable_ramdisk", body["disable_ramdisk"]); err != nil {
		return args, err
	}
	return args, c.steps(n, verb, body, &args)
}

func verbWords(verbs []metal.Verb) string {
	names := make([]string, len(verbs))
	for i, v := range verbs {
		names[i] = string(v)
	}
	return strings.Join(names, " or ")
}

// configDrive takes a string (base64 of an image, or a URL) or, since 1.56, an object to build one from.
func (c *ironicCall) configDrive(verb metal.Verb, v any, args *metal.ProvisionArgs) error {
	switch v := v.(type) {
	case nil:
		return nil
	case string:
	case map[string]any:
		if c.version < 56 {
			return problem.Invalidf("Providing a JSON object for configdrive is only supported starting with API version 1.56")
		}
		for k := range v {
			known := k == "meta_data" || k == "network_data" || k == "user_data" || k == "vendor_data" && c.version >= 59
			if !known {
				return problem.Invalidf("Schema error for configdrive: Additional properties are not allowed ('%s' was unexpected)", truncateInput(k))
			}
		}
	default:
		return wrongType("configdrive", v, "a string or an object")
	}
	if verb == metal.Rebuild && c.version < 35 {
		return problem.Invalidf("Adding a config drive to a rebuild is only supported starting with API version 1.35")
	}
	raw, err := json.Marshal(v)
	args.ConfigDrive = raw
	return err
}

func rescuePassword(verb metal.Verb, v any, args *metal.ProvisionArgs) error {
	if verb != metal.ToRescue {
		return nil
	}
	word, ok := v.(string)
	if v != nil && !ok {
		return problem.Invalidf(`Invalid input for field/attribute rescue_password. It must be a string.`)
	}
	if strings.TrimSpace(word) == "" {
		return problem.Invalidf(`A non-empty "rescue_password" is required when setting target provision state to rescue`)
	}
	args.RescuePassword = secret.New(word)
	return nil
}

// steps reads the steps that came with a verb: its own list, or a runbook's.
func (c *ironicCall) steps(n *metal.Node, verb metal.Verb, body map[string]any, args *metal.ProvisionArgs) error {
	for _, one := range []struct {
		name string
		verb metal.Verb
		form metal.StepForm
		at   *json.RawMessage
	}{
		{"clean_steps", metal.Clean, metal.CleanStepForm, &args.CleanSteps},
		{"deploy_steps", "", metal.DeployStepForm, &args.DeploySteps},
		{"service_steps", metal.Service, metal.ServiceStepForm, &args.ServiceSteps},
	} {
		list, err := metal.ParseSteps(one.form, body[one.name])
		if err != nil {
			return err
		}
		if verb == one.verb {
			if list, err = c.runbookSteps(n, one.name, list, body, args); err != nil {
				return err
			}
			if list == nil {
				return problem.Invalidf(`"%s" is required when setting target provision state to %s`, one.name, verb)
			}
		}
		if list == nil {
			continue
		}
		if *one.at, err = json.Marshal(list); err != nil {
			return err
		}
	}
	return nil
}

// runbookSteps gives the steps of the runbook that the request names, in their order, or
// the list if it names none.
func (c *ironicCall) runbookSteps(n *metal.Node, name string, list []metal.Step, body map[string]any, args *metal.ProvisionArgs) ([]metal.Step, error) {
	ident, err := wantText("runbook", body["runbook"])
	if err != nil || ident == "" {
		return list, err
	}
	if len(list) > 0 {
		return nil, problem.Invalidf(`Please provide either "%s" or a runbook, but not both.`, name)
	}
	r, err := c.s.Runbooks.Get(c.R.Context(), ident)
	if err != nil {
		return nil, err
	}
	if err := r.Approves(n, c.version >= 112); err != nil {
		return nil, err
	}
	args.DisableRamdisk = r.DisableRamdisk
	return r.Ordered(), nil
}
