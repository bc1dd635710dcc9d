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
}

var provisionFields = []provisionField{
	{"configdrive", []metal.Verb{metal.Deploy, metal.Rebuild}, 1},
	{"clean_steps", []metal.Verb{metal.Clean}, 15},
	{"rescue_password", []metal.Verb{metal.ToRescue}, 38},
	{"deploy_steps", []metal.Verb{metal.Deploy, metal.Rebuild}, 69},
	{"disable_ramdisk", []metal.Verb{metal.Clean}, 70},
	{"service_steps", []metal.Verb{metal.Service}, 87},
	{"runbook", []metal.Verb{metal.Clean, metal.Service}, 92},
}

// provision takes a verb. The order of the checks is Ironic's: node, version, state, then what came with the verb.
func (s *server) provision(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	b, err := api.ReadBody(c.w, c.r, api.MaxProvisionBody)
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
	n, err := s.Nodes.Node(c.r.Context(), c.args[0])
	if err != nil {
		return err
	}
	verb, _ := metal.ParseVerb(word)
	if err := c.verbGate(n, verb, word); err != nil {
		return err
	}
	if _, err := n.Admit(verb, shorten(word)); err != nil {
		return err
	}
	args, err := c.provisionArgs(verb, body)
	if err != nil {
		return err
	}
	if err := s.Nodes.Provision(c.r.Context(), n.ID, verb, word, args, c.who); err != nil {
		return err
	}
	c.location("nodes/" + c.args[0] + "/states")
	return c.empty(http.StatusAccepted)
}

// verbGate holds a verb to its first version: of the verb itself, of its spelling, and of
// its use in the node's state.
func (c *call) verbGate(n *metal.Node, verb metal.Verb, word string) error {
	if err := c.rescueGate(n); err != nil {
		return err
	}
	var first metal.Version
	for _, t := range metal.Transitions {
		if t.Verb != "" && t.Verb == verb && (first == 0 || t.Min < first) && !t.From.RescueState() {
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
func (c *call) provisionArgs(verb metal.Verb, body map[string]any) (metal.ProvisionArgs, error) {
	var args metal.ProvisionArgs
	for name := range body {
		if name != "target" && !slices.ContainsFunc(provisionFields, func(f provisionField) bool { return f.name == name }) {
			return args, problem.Invalidf("Unexpected arguments: %s", shorten(name))
		}
	}
	for _, f := range provisionFields {
		if v, ok := body[f.name]; !ok || v == nil {
			continue
		}
		if !slices.Contains(f.verbs, verb) {
			return args, problem.Invalidf(`"%s" is only valid when setting target provision state to %s`, f.name, verbWords(f.verbs))
		}
		if c.version < f.since {
			return args, newerField(f.name, f.since)
		}
	}
	if err := c.configDrive(verb, body["configdrive"], &args); err != nil {
		return args, err
	}
	if err := rescuePassword(verb, body["rescue_password"], &args); err != nil {
		return args, err
	}
	if err := steps(verb, body, &args); err != nil {
		return args, err
	}
	var err error
	args.DisableRamdisk, err = wantBool("disable_ramdisk", body["disable_ramdisk"])
	return args, err
}

func verbWords(verbs []metal.Verb) string {
	words := make([]string, len(verbs))
	for i, v := range verbs {
		words[i] = string(v)
	}
	return strings.Join(words, " or ")
}

// configDrive takes a string (base64 of an image, or a URL) or, since 1.56, an object to build one from.
func (c *call) configDrive(verb metal.Verb, v any, args *metal.ProvisionArgs) error {
	switch v := v.(type) {
	case nil:
		return nil
	case string:
	case map[string]any:
		if c.version < 56 {
			return newerField("configdrive as an object", 56)
		}
		for k := range v {
			known := k == "meta_data" || k == "network_data" || k == "user_data" || k == "vendor_data" && c.version >= 59
			if !known {
				return problem.Invalidf("Schema error for configdrive: Additional properties are not allowed ('%s' was unexpected)", shorten(k))
			}
		}
	default:
		return wrongType("configdrive", v, "a string or an object")
	}
	if verb == metal.Rebuild && c.version < 35 {
		return newerField("configdrive with rebuild", 35)
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

// steps reads clean and deploy steps: lists of objects with an interface and a step.
func steps(verb metal.Verb, body map[string]any, args *metal.ProvisionArgs) (err error) {
	if verb == metal.Clean && body["clean_steps"] == nil {
		return problem.Invalidf(`"clean_steps" is required when setting target provision state to clean`)
	}
	if args.CleanSteps, err = stepList("clean_steps", body["clean_steps"]); err != nil {
		return err
	}
	args.DeploySteps, err = stepList("deploy_steps", body["deploy_steps"])
	return err
}

func stepList(name string, v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, wrongType(name, v, "a list of steps")
	}
	for i, e := range list {
		if err := checkStep(name, e); err != nil {
			return nil, problem.Invalidf("%s[%d]: %w", name, i, err)
		}
	}
	return json.Marshal(list)
}

func checkStep(name string, v any) error {
	o, ok := v.(map[string]any)
	if !ok {
		return problem.Invalidf("a step must be an object with interface and step")
	}
	for k, e := range o {
		known := false
		switch k {
		case "interface", "step":
			_, known = e.(string)
		case "args":
			_, known = e.(map[string]any)
		case "priority":
			_, known = e.(float64)
			known = known && name == "deploy_steps"
		}
		if !known {
			return problem.Invalidf("%q is not expected, or not of its type", shorten(k))
		}
	}
	kind, _ := o["interface"].(string)
	if step, _ := o["step"].(string); step == "" || !slices.Contains(metal.InterfaceKinds, kind) {
		return problem.Invalidf("a step needs interface (one of %s) and step", strings.Join(metal.InterfaceKinds, ", "))
	}
	if _, ok := o["priority"]; name == "deploy_steps" && !ok {
		return problem.Invalidf("a deploy step needs priority")
	}
	return nil
}
