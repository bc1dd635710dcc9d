package ironic

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"salvor/api"
	"salvor/metal"
	"salvor/problem"
)

// maxPatchOps bounds the work of one PATCH.
const maxPatchOps = 500

// patchOp is one checked operation. Only add, replace and remove are taken, as in Ironic:
// copy, move and test would let a client read out what is masked.
type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// attr is the attribute that the operation is about: the first part of its path.
func (o *patchOp) attr() string {
	name, _, _ := strings.Cut(o.Path[1:], "/")
	return name
}

// patchOps reads a JSON patch and checks its form.
func (c *ironicCall) patchOps() ([]patchOp, error) {
	b, err := api.ReadBody(c.W, c.R, api.MaxBody)
	if err != nil {
		return nil, err
	}
	v, err := api.Decode(b)
	if err != nil {
		return nil, err
	}
	return parsePatch(v)
}

func parsePatch(v any) ([]patchOp, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, problem.Invalidf("Invalid input for field/attribute patch. It must be a list of operations (RFC 6902).")
	}
	if len(list) == 0 {
		return nil, problem.Invalidf("The patch holds no operation.")
	}
	if len(list) > maxPatchOps {
		return nil, problem.Invalidf("The patch holds more than %d operations.", maxPatchOps)
	}
	ops := make([]patchOp, len(list))
	for i, e := range list {
		op, err := parseOp(e)
		if err != nil {
			return nil, problem.Invalidf("Invalid patch operation %d: %w", i, err)
		}
		ops[i] = op
	}
	return ops, nil
}

func parseOp(v any) (patchOp, error) {
	var op patchOp
	o, ok := v.(map[string]any)
	if !ok {
		return op, problem.Invalidf("it must be an object with op, path and value")
	}
	for k := range o {
		if k != "op" && k != "path" && k != "value" {
			return op, problem.Invalidf("unexpected key %q", truncateInput(k))
		}
	}
	op.Op, _ = o["op"].(string)
	op.Path, _ = o["path"].(string)
	switch op.Op {
	case "add", "replace":
		if op.Value, ok = o["value"]; !ok {
			return op, problem.Invalidf("%s needs a value", op.Op)
		}
	case "remove":
	default:
		return op, problem.Invalidf("op must be add, replace or remove")
	}
	if len(op.Path) < 2 || len(op.Path) > 1024 || op.Path[0] != '/' || strings.Contains(op.Path+"/", "//") {
		return op, problem.Invalidf("path %q is not valid: want /attribute or /attribute/key", truncateInput(op.Path))
	}
	return op, nil
}

// checkPaths refuses what may not be patched, or not in this version. known gives an
// attribute's first version.
func (c *ironicCall) checkPaths(ops []patchOp, known map[string]metal.Version) error {
	for i := range ops {
		name := ops[i].attr()
		since, ok := known[name]
		if !ok {
			names := make([]string, 0, len(known))
			for k, v := range known {
				if v <= c.version {
					names = append(names, "/"+k)
				}
			}
			slices.Sort(names)
			return problem.Invalidf("Cannot patch %s. Only the following can be updated: %s%s", truncateInput(ops[i].Path), strings.Join(names, ", "), suggestName("/"+name, names))
		}
		if since > c.version {
			return newerField(name, since)
		}
		if err := c.checkEscapes(ops[i].Path); err != nil {
			return err
		}
	}
	return nil
}

// escapesVersion is the first one whose paths may hold ~0 for ~ and ~1 for /.
const escapesVersion metal.Version = 98

var strayTilde = regexp.MustCompile(`~([^01]|$)`)

func (c *ironicCall) checkEscapes(path string) error {
	switch {
	case !strings.Contains(path, "~"):
	case c.version < escapesVersion:
		return problem.Invalidf("Invalid patch path %q: ~ is known from API version %s on, where ~0 stands for ~ and ~1 for /", truncateInput(path), versionText(escapesVersion))
	case strayTilde.MatchString(path):
		return problem.Invalidf("Invalid patch path %q: ~0 stands for ~ and ~1 for /; no other ~ may be there", truncateInput(path))
	}
	return nil
}

// applyPatch works the operations on a document of the attributes that they name, whose
// present values get tells, and gives the new values. A missing one was removed.
func applyPatch(ops []patchOp, get func(name string) any) (map[string]any, error) {
	doc := map[string]any{}
	for i := range ops {
		doc[ops[i].attr()] = get(ops[i].attr())
	}
	before, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	if before, err = applyNamed(before, ops); err != nil {
		return nil, err
	}
	if len(before) > api.MaxBody { // else a record could grow without end, patch by patch
		return nil, problem.Invalidf("The patched record would be larger than %d bytes.", api.MaxBody)
	}
	v, err := api.Decode(before)
	if err != nil {
		return nil, err
	}
	after, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("patched record is no object")
	}
	for name := range doc {
		if _, ok := after[name]; !ok {
			after[name] = nil
		}
	}
	return after, nil
}

// applyNamed works all operations off at once: one by one, each would read and write the
// whole document. Only where that fails, the operation at fault is searched for.
func applyNamed(doc []byte, ops []patchOp) ([]byte, error) {
	out, err := applyOps(doc, ops)
	if err == nil {
		return out, nil
	}
	bad := sort.Search(len(ops)-1, func(i int) bool {
		_, err := applyOps(doc, ops[:i+1])
		return err != nil
	})
	return nil, patchError(&ops[bad])
}

func applyOps(doc []byte, ops []patchOp) ([]byte, error) {
	raw := make([]map[string]any, len(ops))
	for i, op := range ops {
		raw[i] = map[string]any{"op": op.Op, "path": op.Path}
		if op.Op != "remove" {
			raw[i]["value"] = op.Value
		}
	}
	b, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	p, err := jsonpatch.DecodePatch(b)
	if err != nil {
		return nil, err
	}
	opts := jsonpatch.NewApplyOptions()
	opts.SupportNegativeIndices = false
	return p.ApplyWithOptions(doc, opts)
}

// patchError tells the place only: the library's words may hold values.
func patchError(op *patchOp) error {
	if op.Op == "remove" {
		return problem.Invalidf("Couldn't apply patch 'remove %s'. Reason: can't remove a non-existent object", truncateInput(op.Path))
	}
	return problem.Invalidf("Couldn't apply patch '%s %s'. Reason: the path can't be reached, or there is nothing to %s at it", op.Op, truncateInput(op.Path), op.Op)
}

func (s *server) patchNode(c *ironicCall) error {
	if err := c.only("reset_interfaces"); err != nil {
		return err
	}
	ops, err := c.patchOps()
	if err != nil {
		return err
	}
	reset, err := c.resetInterfaces(ops)
	if err != nil {
		return err
	}
	if err := c.checkPaths(ops, nodeKind.patchPaths); err != nil {
		return err
	}
	if c.version < 25 && slices.ContainsFunc(ops, func(o patchOp) bool { return o.Path == "/chassis_uuid" && (o.Op == "remove" || o.Value == nil) }) {
		return newerField("chassis_uuid (its removal)", 25)
	}
	drivers, err := s.drivers(c.R.Context())
	if err != nil {
		return err
	}
	n, err := s.Nodes.Update(c.R.Context(), c.Args[0], c.Asker(), func(n *metal.Node) error {
		if err := c.rescueGate(n); err != nil {
			return err
		}
		if !reset && slices.ContainsFunc(ops, func(o patchOp) bool { return o.Path == "/driver" }) {
			keepInterfaces(n, drivers[n.Driver])
		}
		before := maps.Clone(n.DriverInfo)
		if err := c.patchNode(n, ops, reset); err != nil {
			return err
		}
		return c.loginGiven(before, n.DriverInfo, ops)
	})
	if err != nil {
		return err
	}
	c.warnOfKeys(n)
	return c.showNode(http.StatusOK, n, nodeKind.shown(nil, c.version))
}

// resetInterfaces reads the argument that goes with a change of driver.
func (c *ironicCall) resetInterfaces(ops []patchOp) (bool, error) {
	reset, err := c.boolean("reset_interfaces")
	if err != nil || reset == nil {
		return false, err
	}
	if c.version < 45 {
		return false, newerField("reset_interfaces", 45)
	}
	if *reset && !slices.ContainsFunc(ops, func(o patchOp) bool { return o.Path == "/driver" }) {
		return false, problem.Invalidf("The reset_interfaces parameter can only be used when changing the node's driver.")
	}
	return *reset, nil
}

// keepInterfaces writes down what a node had by default, for a change of its driver keeps
// its interfaces: the new driver has them too, or the change is refused.
func keepInterfaces(n *metal.Node, d metal.DriverInfo) {
	if n.Interfaces == nil {
		n.Interfaces = map[string]string{}
	}
	for kind, set := range d.Interfaces {
		if n.Interfaces[kind] == "" {
			n.Interfaces[kind] = set.Default
		}
	}
}

func (c *ironicCall) patchNode(n *metal.Node, ops []patchOp, reset bool) error {
	v := &nodeView{Node: n}
	values, err := applyPatch(ops, func(name string) any { return nodeKind.fields[nodeKind.index[name]].get(v) })
	if err != nil {
		return err
	}
	if reset {
		n.Interfaces = map[string]string{}
	}
	return c.setNode(v, values)
}

// suggestName is the end of an error about an unknown name: the known name that the user probably meant.
func suggestName(name string, known []string) string {
	slices.Sort(known)
	if near := problem.Nearest(name, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}
