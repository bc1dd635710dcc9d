package ironic

import (
	"context"
	"strings"

	"salvor/access"
	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// nodePatchRules are the rules of attributes of a node; the others are changed by node:update.
var nodePatchRules = map[string]string{
	"instance_info": "node:update_instance_info", "extra": "node:update_extra", "driver_info": "node:update:driver_info",
	"properties": "node:update:properties", "chassis_uuid": "node:update:chassis_uuid", "instance_uuid": "node:update:instance_uuid",
	"lessee": "node:update:lessee", "owner": "node:update:owner", "driver": "node:update:driver_interfaces",
	"network_data": "node:update:network_data", "conductor_group": "node:update:conductor_group", "name": "node:update:name",
	"retired": "node:update:retired", "retired_reason": "node:update:retired", "shard": "node:update:shard",
	"parent_node": "node:update:parent_node", "disable_power_off": "node:update:disable_power_off",
}

// patchRule is the rule by which an operation changes an attribute. rule is the one of the whole.
func patchRule(p *pathPolicy, rule string, op *patchOp) string {
	name := op.attr()
	switch p.path {
	case "/v1/nodes/{}":
		if one, ok := nodePatchRules[name]; ok {
			return one
		}
		if strings.HasSuffix(name, "_interface") {
			return "node:update:driver_interfaces"
		}
		if on, err := wantBool(name, op.Value); name == "automated_clean" && err == nil && !on && op.Value != nil {
			return "node:disable_cleaning"
		}
	case "/v1/runbooks/{}":
		if name == "public" || name == "owner" {
			return "runbook:update:" + name
		}
	}
	return rule
}

// patchPermitted holds each operation of a patch to its rule, and what moves an object to
// another node to the rule for that node.
func (c *ironicCall) patchPermitted(p *pathPolicy, rule string, target access.Target) error {
	body, err := c.peek(api.MaxBody)
	if err != nil {
		return err
	}
	ops, err := parsePatch(body)
	if err != nil {
		return err
	}
	for i := range ops {
		one := patchRule(p, rule, &ops[i])
		if !c.allows(one, target) {
			return accessDeniedError(one)
		}
		if err := c.parentPermitted(ops[i].attr(), ops[i].Value, rule); err != nil {
			return err
		}
		if one == "node:update:owner" {
			if err := c.handoverPermitted(target); err != nil {
				return err
			}
		}
	}
	return nil
}

// handoverPermitted keeps a node in use with its owner, unless the principal may give it away even so.
func (c *ironicCall) handoverPermitted(target access.Target) error {
	n, err := c.s.Nodes.Node(c.R.Context(), c.Args[0])
	if err == nil && n.ProvisionState == metal.Active && !c.allows("node:update_owner_provisioned", target) {
		err = problem.Invalidf(`Cannot update owner of node "%s" while it is in state "%s".`, n.ID, n.ProvisionState)
	}
	return err
}

// parentPermitted asks for the rule on what an attribute makes an object's parent. What is
// not there and what may not be seen get the same answer.
func (c *ironicCall) parentPermitted(name string, value any, rule string) error {
	ident, _ := value.(string)
	if ident == "" {
		return nil // nothing, or what the handler refuses
	}
	var target access.Target
	var err error
	switch name {
	case "node_uuid", "node_ident", "parent_node":
		target, err = ownerOfNode(c, ident)
	case "portgroup_uuid":
		target, err = ownerOfPortgroup(c, ident)
	default:
		return nil
	}
	if problem.Is(err, problem.NotFound) || err == nil && !c.allows("node:get", target) {
		return problem.Invalidf("Invalid input for field/attribute %s. Value: '%s'. It could not be found.", name, truncateInput(ident))
	}
	if err != nil {
		return err
	}
	if !c.allows(rule, target) {
		return accessDeniedError(rule)
	}
	return nil
}

// createBelowNode lets those create who may on the node that the body names.
func createBelowNode(c *ironicCall, rule string) error {
	if c.allows(rule, access.Target{}) {
		return nil
	}
	body, err := c.peekObject()
	if err != nil {
		return err
	}
	if body["node_uuid"] == nil && body["node_ident"] == nil {
		return problem.Invalidf("Missing mandatory field: node_uuid")
	}
	for _, name := range []string{"node_uuid", "node_ident", "portgroup_uuid"} {
		if err := c.parentPermitted(name, body[name], rule); err != nil {
			return err
		}
	}
	return nil
}

// createOwnNode lets those who lead a project create nodes that are its own.
func createOwnNode(c *ironicCall, rule string) error {
	if c.allows(rule, access.Target{}) {
		return nil
	}
	project := c.Principal.Scope.Project
	if c.version < 80 || project == "" || !c.allows("node:create:self_owned_node", access.Target{}) {
		return accessDeniedError(rule)
	}
	body, err := c.peekObject()
	if err != nil {
		return err
	}
	if owner := body["owner"]; owner != nil && owner != project {
		return accessDeniedError(rule)
	}
	c.owner = project
	return c.parentPermitted("parent_node", body["parent_node"], "node:update:parent_node")
}

// createOwnAllocation makes what a project claims its own.
func createOwnAllocation(c *ironicCall, rule string) error {
	if !c.allows(rule, access.Target{}) {
		return accessDeniedError(rule)
	}
	project := c.Principal.Scope.Project
	if c.allows("allocation:create_restricted", access.Target{}) {
		if !c.s.Policy.OldDefaults {
			c.owner = project
		}
		return nil
	}
	body, err := c.peekObject()
	if err != nil {
		return err
	}
	if owner, named := body["owner"]; project == "" || named && owner != project { // nobody's would be everybody's
		return accessDeniedError("allocation:create_restricted")
	}
	c.owner = project
	if err := c.candidatesPermitted(body["candidate_nodes"]); err != nil {
		return err
	}
	return c.parentPermitted("node_uuid", body["node"], "node:get")
}

// candidatesPermitted refuses candidates that the principal may not see in the words for those that are not there.
func (c *ironicCall) candidatesPermitted(v any) error {
	list, _ := v.([]any)
	if len(list) > metal.MaxCandidates {
		return nil // the handler refuses as many
	}
	for _, e := range list {
		ident, _ := e.(string)
		if _, err := c.nodeNamed(ident); problem.Is(err, problem.NotFound) {
			return metal.NoCandidate(ident)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// createOwnRunbook makes the runbook of a project its own.
func createOwnRunbook(c *ironicCall, rule string) error {
	if !c.allows(rule, access.Target{}) {
		return accessDeniedError(rule)
	}
	if c.allows("runbook:update:owner", access.Target{}) {
		return nil
	}
	body, err := c.peekObject()
	if err != nil {
		return err
	}
	project := c.Principal.Scope.Project
	if owner, named := body["owner"]; project == "" || named && owner != project { // nobody's would be everybody's
		return accessDeniedError(rule)
	}
	if public, err := wantBool("public", body["public"]); err == nil && public {
		return accessDeniedError("runbook:update:public")
	}
	c.owner = project
	return nil
}

// runbookPermitted lets a verb use a runbook that is public or the project's own.
func (c *ironicCall) runbookPermitted() error {
	if c.version < 92 {
		return nil
	}
	body, err := c.peekObjectUpTo(api.MaxProvisionBody)
	ident, _ := body["runbook"].(string)
	if err != nil || ident == "" {
		return err
	}
	r, err := c.s.Runbooks.Get(c.R.Context(), ident)
	if problem.Is(err, problem.NotFound) || err == nil && !r.Public && !c.allows("runbook:get", access.Target{Owner: r.Owner}) {
		return problem.NotFoundf("Runbook %s could not be found.", truncateInput(ident))
	}
	if err != nil || r.Public {
		return err
	}
	if !c.allows("runbook:use", access.Target{Owner: r.Owner}) {
		return accessDeniedError("runbook:use")
	}
	return nil
}

var (
	ownerOfPortgroup = ownerBelow(
		func(s *server, ctx context.Context, id string) (*metal.Portgroup, error) {
			return s.Portgroups.Get(ctx, id)
		},
		func(g *metal.Portgroup) string { return g.NodeID })
	ownerOfConnector = ownerBelow(
		func(s *server, ctx context.Context, id string) (*metal.Connector, error) {
			return s.Connectors.Get(ctx, id)
		},
		func(v *metal.Connector) string { return v.NodeID })
	ownerOfTarget = ownerBelow(
		func(s *server, ctx context.Context, id string) (*metal.Target, error) { return s.Targets.Get(ctx, id) },
		func(v *metal.Target) string { return v.NodeID })
)

func ownerOfAllocation(c *ironicCall, ident string) (access.Target, error) {
	a, err := c.s.Allocations.Get(c.R.Context(), ident)
	if err != nil {
		return access.Target{}, err
	}
	return access.Target{Owner: a.Owner}, nil
}

// ownerOfNodesAllocation is who claimed the node; while nobody did, whose the node is.
func ownerOfNodesAllocation(c *ironicCall, ident string) (access.Target, error) {
	n, err := c.s.Nodes.Node(c.R.Context(), ident)
	if err != nil {
		return access.Target{}, err
	}
	all, err := c.s.Allocations.List(c.R.Context(), metal.AllocationFilter{NodeID: n.ID}, record.Page{Limit: 1})
	if err != nil || len(all) == 0 {
		return nodeTarget(n), err
	}
	return access.Target{Owner: all[0].Owner, Lessee: n.Lessee}, nil
}

// ownerOfRunbook is nobody where the runbook is public.
func ownerOfRunbook(c *ironicCall, ident string) (access.Target, error) {
	r, err := c.s.Runbooks.Get(c.R.Context(), ident)
	if err != nil {
		return access.Target{}, err
	}
	return access.Target{Owner: r.Owner}, nil
}

// viewerOfRunbook is its owner, and whoever asks where it is public.
func viewerOfRunbook(c *ironicCall, ident string) (access.Target, error) {
	r, err := c.s.Runbooks.Get(c.R.Context(), ident)
	if err != nil {
		return access.Target{}, err
	}
	if r.Public {
		return access.Target{Owner: c.Principal.Scope.Project}, nil
	}
	return access.Target{Owner: r.Owner}, nil
}

// wholeNode and wholeTarget are the rules without which a part of every node, or of every
// volume target, is hidden.
const (
	wholeNode   = "node:get:filter_threshold"
	wholeTarget = "volume:view_target_properties"
)

// seesAll tells whether nothing that the rule guards is hidden from the principal.
func (c *ironicCall) seesAll(rule string) bool {
	return c.Principal.Role != access.Scoped || c.allows(rule, access.Target{})
}

// redacted hides of a node what its policy hides from the principal: from lessees what tells of the infrastructure.
//
// Only principals who may see everything read text of BMCs and agents.
func (c *ironicCall) redacted(v *nodeView) {
	if c.seesAll(wholeNode) {
		return
	}
	t := nodeTarget(v.Node)
	hidden := func(field string) string {
		if c.allows("node:get:"+field, t) {
			return ""
		}
		return "** Redacted - requires baremetal:node:get:" + field + " permission. **"
	}
	n := *v.Node
	n.LastError, n.MaintenanceReason = problem.Redact(n.LastError), problem.Redact(n.MaintenanceReason)
	if v.contact.AgentStatusMessage != "" {
		v.contact.AgentStatusMessage = problem.Redacted
	}
	if mask := hidden("last_error"); mask != "" && n.LastError != "" {
		n.LastError = mask
	}
	if mask := hidden("reservation"); mask != "" && n.Reservation != "" {
		n.Reservation = mask
	}
	if mask := hidden("driver_info"); mask != "" {
		n.DriverInfo = metal.Object{"content": mask}
	}
	if mask := hidden("driver_internal_info"); mask != "" {
		n.InternalInfo, n.Plan = metal.Object{"content": mask}, nil
		v.contact = metal.Contact{}
	}
	v.Node = &n
}
