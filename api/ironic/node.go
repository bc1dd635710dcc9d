package ironic

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"salvor/access"
	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/wire/ironic"
)

func (s *server) listNodes(c *ironicCall) error { return c.listNodes("nodes", "", true) }

func (s *server) listNodesDetail(c *ironicCall) error {
	if c.has("fields") || c.has("detail") {
		return problem.Invalidf("Unexpected arguments: fields and detail have no meaning in /v1/nodes/detail")
	}
	return c.listNodes("nodes/detail", "", false)
}

// listNodes answers with one page of the list at path; a chassis keeps the nodes in it.
func (c *ironicCall) listNodes(path, chassis string, brief bool) error {
	known := slices.Clone(pageArgs)
	for _, f := range nodeKind.filters {
		known = append(known, f.name)
	}
	if err := c.only(append(known, "provision_state", "conductor_group", "shard", "parent_node", "include_children")...); err != nil {
		return err
	}
	fields, err := nodeKind.choose(c, brief)
	if err != nil {
		return err
	}
	f, err := c.nodeFilter()
	if err != nil {
		return err
	}
	if err := c.confineTo(&f); err != nil {
		return err
	}
	p, err := c.page(nodeKind.sortKeys)
	if err != nil {
		return err
	}
	if err := c.beginLargePage(p); err != nil {
		return err
	}
	defer c.endLargePage()
	if p.SortKey == "last_error" && c.project != "" && !c.allows("node:get:last_error", access.Target{Lessee: c.project}) {
		return accessDeniedError("node:get:last_error") // of nodes that one leases, their order would tell of it
	}
	if chassis != "" {
		f.ChassisUUID = chassis
	}
	marks, err := c.s.Nodes.Marks(c.R.Context(), f, p)
	if err != nil {
		return err
	}
	texts, err := c.nodeTexts(marks, fields)
	if err != nil {
		return err
	}
	last := ""
	if len(marks) > 0 {
		last = marks[len(marks)-1].ID
	}
	return c.list("nodes", path, p, texts, last)
}

// nodeFilter reads the filters of the list.
func (c *ironicCall) nodeFilter() (metal.NodeFilter, error) {
	var f metal.NodeFilter
	if err := nodeKind.narrow(c, &f, nodeKind.filters); err != nil {
		return f, err
	}
	if f.InstanceUUID != "" && !record.IsUUID(f.InstanceUUID) {
		return f, problem.Invalidf("Expected a UUID but received %s.", truncateInput(f.InstanceUUID))
	}
	f.InstanceUUID = strings.ToLower(f.InstanceUUID)
	if f.Fault != "" && !strings.HasSuffix(f.Fault, " failure") { // as all are called
		return f, problem.Invalidf("Unrecognized fault '%s'; a fault is one of 'power failure', 'clean failure', 'rescue abort failure' and their like", truncateInput(f.Fault))
	}
	if c.has("conductor_group") {
		if c.version < 46 {
			return f, newerField("conductor_group", 46)
		}
		group := strings.ToLower(c.Query.Get("conductor_group"))
		f.ConductorGroup = &group
	}
	if c.has("shard") {
		if c.version < 82 {
			return f, newerField("shard", 82)
		}
		if f.Shards = splitWords(c.Query["shard"]); len(f.Shards) > maxWords {
			return f, problem.Invalidf("shard names more than %d values.", maxWords)
		}
	}
	if err := c.familyFilter(&f); err != nil {
		return f, err
	}
	return f, c.stateFilter(&f)
}

// familyFilter hides children, at every version, unless they or one's children are asked for.
func (c *ironicCall) familyFilter(f *metal.NodeFilter) error {
	for _, name := range []string{"parent_node", "include_children"} {
		if c.has(name) && c.version < 83 {
			return newerField(name, 83)
		}
	}
	all, err := c.boolean("include_children")
	if err != nil {
		return err
	}
	if all != nil && *all {
		return nil // the parent of some of them narrows nothing, as in Ironic
	}
	if f.NoChildren = !c.has("parent_node"); f.NoChildren {
		return nil
	}
	f.ParentNode = c.Query.Get("parent_node")
	n, err := c.s.Nodes.Node(c.R.Context(), f.ParentNode)
	if err == nil { // by name too; a node that is not there has no children
		f.ParentNode = n.ID
	} else if !problem.Is(err, problem.NotFound) {
		return err
	}
	return nil
}

// splitWords reads a list that is given with commas, by repetition, or both.
func splitWords(values []string) []string {
	var words []string
	for word := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words
}

func (c *ironicCall) stateFilter(f *metal.NodeFilter) error {
	if !c.has("provision_state") {
		return nil
	}
	if c.version < 9 {
		return newerField("provision_state", 9)
	}
	f.ProvisionState = metal.State(c.Query.Get("provision_state"))
	if f.ProvisionState.Info().State == "" {
		return problem.Invalidf(`Provision state "%s" is not valid`, truncateInput(string(f.ProvisionState)))
	}
	return nil
}

func (s *server) getNode(c *ironicCall) error {
	if err := c.only("fields"); err != nil {
		return err
	}
	fields, err := nodeKind.choose(c, false)
	if err != nil {
		return err
	}
	mark, err := s.Nodes.Mark(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	texts, err := c.nodeTexts([]metal.NodeMark{mark}, fields)
	if err != nil {
		return err
	}
	if texts[0] == "" {
		return problem.NotFoundf("Node %s could not be found.", mark.ID)
	}
	return c.Raw(http.StatusOK, []byte(texts[0]))
}

func (s *server) createNode(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	body, err := c.object()
	if err != nil {
		return err
	}
	n := &metal.Node{ProvisionState: metal.Enroll}
	if c.version < 11 {
		n.ProvisionState = metal.Available
	}
	if err := c.fillNode(n, body); err != nil {
		return err
	}
	if n.Driver == "" {
		return problem.Invalidf("Missing mandatory field: driver")
	}
	if n.Owner == "" {
		n.Owner = c.owner
	}
	if err := s.Nodes.Create(c.R.Context(), n, c.Asker()); err != nil {
		return err
	}
	stored, err := s.Nodes.Node(c.R.Context(), n.ID)
	if err != nil {
		return err
	}
	c.location("nodes/" + stored.ID)
	c.warnOfKeys(stored)
	return c.showNode(http.StatusCreated, stored, nodeKind.shown(nil, c.version))
}

// warnOfKeys adds a header with each key of the node that is probably misspelt. A control character in a key would end the header.
func (c *ironicCall) warnOfKeys(n *metal.Node) {
	hints, err := c.s.Nodes.KeyHints(c.R.Context(), n)
	if err != nil {
		return // the change is made
	}
	for _, h := range hints {
		c.W.Header().Add(ironic.WarningHeader, `299 salvor `+strconv.QuoteToASCII(h.String()))
	}
}

func (s *server) deleteNode(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	n, err := c.nodeForChange()
	if err != nil {
		return err
	}
	if err := s.Nodes.Remove(c.R.Context(), n.ID, c.Asker()); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

// nodeForChange reads the node of the path for a request that changes it.
func (c *ironicCall) nodeForChange() (*metal.Node, error) {
	n, err := c.s.Nodes.Node(c.R.Context(), c.Args[0])
	if err != nil {
		return nil, err
	}
	return n, c.rescueGate(n)
}

// rescueVersion is the first version that knows rescue.
const rescueVersion metal.Version = 38

// rescueGate keeps clients that are older than rescue away from nodes in its states, as
// the specification of rescue asks (Ironic itself gates only the verbs).
func (c *ironicCall) rescueGate(n *metal.Node) error {
	if c.version < rescueVersion && n.ProvisionState.Info().InRescue {
		return api.NotAcceptablef("Request not acceptable: node %s is in state %q, and clients of API version 1.37 or older can not change it; use 1.38 or newer.", n.ID, n.ProvisionState)
	}
	return nil
}
