package ironic

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"

	"salvor/access"
	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// pathPolicy says by which rules of the policy a path and all that lies below it is served.
// A route follows the permit with the longest path; one that follows none is for administrators.
type pathPolicy struct {
	path                        string // parameters are {}
	get, post, put, patch, drop string
	// of finds whose the object is that the first parameter names; nil: nobody's.
	of func(c *ironicCall, ident string) (access.Target, error)
	// seen is of where others than the owner may see the object too; nil: of.
	seen func(c *ironicCall, ident string) (access.Target, error)
	// see is the rule without which the object is not there; empty: get.
	see string
	// list is the rule that shows all; who has only get sees what is of the own project.
	list string
	// create checks a POST against what its body names; nil: the rule says all.
	create func(c *ironicCall, rule string) error
}

// permits is the policy of every path. The rules lie in package access.
var permits = []pathPolicy{
	{path: "/v1/nodes", get: "node:list", list: "node:list_all", post: "node:create", create: createOwnNode},
	{path: "/v1/nodes/{}", get: "node:get", patch: "node:update", drop: "node:delete", of: ownerOfNode},
	{path: "/v1/nodes/{}/validate", see: "node:get", get: "node:validate", of: ownerOfNode},
	{path: "/v1/nodes/{}/maintenance", see: "node:get", put: "node:set_maintenance", drop: "node:clear_maintenance", of: ownerOfNode},
	{path: "/v1/nodes/{}/states", see: "node:get", get: "node:get_states", of: ownerOfNode},
	{path: "/v1/nodes/{}/states/power", see: "node:get", put: "node:set_power_state", of: ownerOfNode},
	{path: "/v1/nodes/{}/states/provision", see: "node:get", put: "node:set_provision_state", of: ownerOfNode},
	{path: "/v1/nodes/{}/states/raid", see: "node:get", put: "node:set_raid_state", of: ownerOfNode},
	{path: "/v1/nodes/{}/states/console", see: "node:get", get: "node:get_console", put: "node:set_console_state", of: ownerOfNode},
	{path: "/v1/nodes/{}/states/boot_mode", see: "node:get", put: "node:set_boot_mode", of: ownerOfNode},
	{path: "/v1/nodes/{}/states/secure_boot", see: "node:get", put: "node:set_secure_boot", of: ownerOfNode},
	{path: "/v1/nodes/{}/management/boot_device", see: "node:get", get: "node:get_boot_device", put: "node:set_boot_device", of: ownerOfNode},
	{path: "/v1/nodes/{}/management/inject_nmi", see: "node:get", put: "node:inject_nmi", of: ownerOfNode},
	{path: "/v1/nodes/{}/management/indicators", see: "node:get", get: "node:get_indicator_state", put: "node:set_indicator_state", of: ownerOfNode},
	{path: "/v1/nodes/{}/vendor_passthru", see: "node:get", get: "node:vendor_passthru", post: "node:vendor_passthru", put: "node:vendor_passthru", patch: "node:vendor_passthru", drop: "node:vendor_passthru", of: ownerOfNode},
	{path: "/v1/nodes/{}/traits", see: "node:get", get: "node:traits:list", put: "node:traits:set", drop: "node:traits:delete", of: ownerOfNode},
	{path: "/v1/nodes/{}/vifs", see: "node:get", get: "node:vif:list", post: "node:vif:attach", drop: "node:vif:detach", of: ownerOfNode},
	{path: "/v1/nodes/{}/vmedia", see: "node:get", get: "node:vmedia:get", post: "node:vmedia:attach", drop: "node:vmedia:detach", of: ownerOfNode},
	{path: "/v1/nodes/{}/bios", see: "node:get", get: "node:bios:get", of: ownerOfNode},
	{path: "/v1/nodes/{}/firmware", see: "node:get", get: "node:firmware:get", of: ownerOfNode},
	{path: "/v1/nodes/{}/history", see: "node:get", get: "node:history:get", of: ownerOfNode},
	{path: "/v1/nodes/{}/inventory", see: "node:get", get: "node:inventory:get", of: ownerOfNode},
	{path: "/v1/nodes/{}/children", see: "node:get", get: "node:get", of: ownerOfNode},
	{path: "/v1/nodes/{}/ports", see: "node:get", get: "port:get", of: ownerOfNode},
	{path: "/v1/nodes/{}/portgroups", see: "node:get", get: "portgroup:get", of: ownerOfNode},
	{path: "/v1/nodes/{}/volume", see: "node:get", get: "volume:get", of: ownerOfNode},
	{path: "/v1/nodes/{}/allocation", see: "node:get", get: "allocation:get", drop: "allocation:delete", of: ownerOfNodesAllocation},
	{path: "/v1/ports", get: "port:list", list: "port:list_all", post: "port:create", create: createBelowNode},
	{path: "/v1/ports/{}", get: "port:get", patch: "port:update", drop: "port:delete", of: ownerOfPort},
	{path: "/v1/portgroups", get: "portgroup:list", list: "portgroup:list_all", post: "portgroup:create", create: createBelowNode},
	{path: "/v1/portgroups/{}", get: "portgroup:get", patch: "portgroup:update", drop: "portgroup:delete", of: ownerOfPortgroup},
	{path: "/v1/portgroups/{}/ports", see: "portgroup:get", get: "port:get", of: ownerOfPortgroup},
	{path: "/v1/volume", get: "volume:list"},
	{path: "/v1/volume/connectors", get: "volume:list", list: "volume:list_all", post: "volume:create", create: createBelowNode},
	{path: "/v1/volume/connectors/{}", get: "volume:get", patch: "volume:update", drop: "volume:delete", of: ownerOfConnector},
	{path: "/v1/volume/targets", get: "volume:list", list: "volume:list_all", post: "volume:create", create: createBelowNode},
	{path: "/v1/volume/targets/{}", get: "volume:get", patch: "volume:update", drop: "volume:delete", of: ownerOfTarget},
	{path: "/v1/chassis", get: "chassis:get", post: "chassis:create", patch: "chassis:update", drop: "chassis:delete"},
	{path: "/v1/drivers", get: "driver:get"},
	{path: "/v1/drivers/{}/properties", get: "driver:get_properties"},
	{path: "/v1/drivers/{}/raid", get: "driver:get_raid_logical_disk_properties"},
	{path: "/v1/drivers/{}/vendor_passthru", get: "driver:vendor_passthru", post: "driver:vendor_passthru", put: "driver:vendor_passthru", patch: "driver:vendor_passthru", drop: "driver:vendor_passthru"},
	{path: "/v1/conductors", get: "conductor:get"},
	{path: "/v1/shards", get: "shards:get"},
	{path: "/v1/events", post: "events:post"},
	{path: "/v1/allocations", get: "allocation:list", list: "allocation:list_all", post: "allocation:create", create: createOwnAllocation},
	{path: "/v1/allocations/{}", get: "allocation:get", patch: "allocation:update", drop: "allocation:delete", of: ownerOfAllocation},
	{path: "/v1/deploy_templates", get: "deploy_template:get", post: "deploy_template:create", patch: "deploy_template:update", drop: "deploy_template:delete"},
	{path: "/v1/runbooks", get: "runbook:list", list: "runbook:list_all", post: "runbook:create", create: createOwnRunbook},
	{path: "/v1/runbooks/{}", get: "runbook:get", put: "runbook:update", patch: "runbook:update", drop: "runbook:delete", of: ownerOfRunbook, seen: viewerOfRunbook},
	{path: "/v1/inspection_rules", get: "inspection_rule:get", post: "inspection_rule:create", patch: "inspection_rule:update", drop: "inspection_rule:delete"},
}

var pathArgument = regexp.MustCompile(`\{\w+\}`)

// permitOf finds the permit that a path follows and the rule of a method; an empty rule
// allows nobody but administrators.
func permitOf(method, path string) (found *pathPolicy, rule string) {
	path = pathArgument.ReplaceAllString(path, "{}")
	for i := range permits {
		p := &permits[i]
		if (path == p.path || strings.HasPrefix(path, p.path+"/")) && (found == nil || len(p.path) > len(found.path)) {
			found = p
		}
	}
	if found == nil {
		return nil, ""
	}
	return found, map[string]string{"*": found.get, "GET": found.get, "POST": found.post, "PUT": found.put, "PATCH": found.patch, "DELETE": found.drop}[method]
}

// allows asks the policy about the one who asks.
func (c *ironicCall) allows(rule string, t access.Target) bool {
	return c.s.Policy.Allows(rule, c.Principal, t)
}

func accessDeniedError(rule string) error {
	return problem.Forbiddenf("Access was denied to the following resource: baremetal:%s", rule)
}

// permitted holds a principal with scoped roles to the policy before its request is worked on.
func (c *ironicCall) permitted(r *apiRoute) error {
	if r.need == access.Open || c.Principal.Role != access.Scoped {
		return nil
	}
	p, rule := r.permit, r.rule
	switch {
	case rule == "":
		return accessDeniedError(r.method + " " + r.path)
	case p.list != "" && r.method == "GET":
		return c.confine(p)
	case r.method == "POST" && p.create != nil:
		return p.create(c, rule)
	case p.of == nil || len(c.Args) == 0:
		if !c.allows(rule, access.Target{}) {
			return accessDeniedError(rule)
		}
		return nil
	}
	target, err := p.of(c, c.Args[0])
	if problem.Is(err, problem.NotFound) && !record.IsUUID(c.Args[0]) && !metal.IsName(c.Args[0]) {
		return nil // nothing can be called so, and the handler says it in its own words
	}
	if problem.Is(err, problem.NotFound) {
		return notFoundError(c.Args[0])
	}
	if err != nil {
		return err
	}
	if err := c.visible(p, target); err != nil || r.method == "GET" && p.see == "" {
		return err
	}
	if r.method == "PATCH" {
		return c.patchPermitted(p, rule, target)
	}
	if rule == "node:delete" && c.version >= 80 && c.allows("node:delete:self_owned_node", target) {
		return nil
	}
	if !c.allows(rule, target) {
		return accessDeniedError(rule)
	}
	if r.permit.path == "/v1/nodes/{}/states/provision" {
		return c.runbookPermitted()
	}
	return nil
}

// visible answers that the object is not there where the principal may not see it.
func (c *ironicCall) visible(p *pathPolicy, target access.Target) error {
	if p.seen != nil {
		var err error
		if target, err = p.seen(c, c.Args[0]); err != nil {
			return err
		}
	}
	see := p.see
	if see == "" {
		see = p.get
	}
	if !c.allows(see, target) {
		return notFoundError(c.Args[0])
	}
	return nil
}

// notFoundError is the answer for what is not there and for what one may not see, so that
// nobody can tell them apart.
func notFoundError(ident string) error {
	return problem.NotFoundf("%s could not be found.", truncateInput(ident))
}

// sees tells whether the principal may see the node.
func (c *ironicCall) sees(n *metal.Node) bool {
	return c.Principal.Role != access.Scoped || c.allows("node:get", nodeTarget(n))
}

// nodeNamed finds the node that a query or a body names, if the principal may see it.
func (c *ironicCall) nodeNamed(ident string) (*metal.Node, error) {
	n, err := c.s.Nodes.Node(c.R.Context(), ident)
	if problem.Is(err, problem.NotFound) || err == nil && !c.sees(n) {
		return nil, problem.NotFoundf("Node %s could not be found.", truncateInput(ident))
	}
	return n, err
}

// confine narrows a list to the own project where the principal may not see all.
func (c *ironicCall) confine(p *pathPolicy) error {
	switch project := c.Principal.Scope.Project; {
	case c.allows(p.list, access.Target{}):
		return nil
	case project == "" || !c.allows(p.get, access.Target{}):
		return accessDeniedError(p.list)
	default:
		if owner := c.Query.Get("owner"); owner != "" && owner != project {
			return accessDeniedError(p.list)
		}
		c.project = project
		return nil
	}
}

// confineTo puts the project that a list is confined to into its filter. A filter without a
// project cannot be confined, so its list is refused.
func (c *ironicCall) confineTo(filter any) error {
	if c.project == "" {
		return nil
	}
	switch f := filter.(type) {
	case *metal.NodeFilter:
		f.Project = c.project
	case *metal.PortFilter:
		f.Project = c.project
	case *metal.PortgroupFilter:
		f.Project = c.project
	case *metal.ConnectorFilter:
		f.Project = c.project
	case *metal.TargetFilter:
		f.Project = c.project
	case *metal.AllocationFilter:
		f.Owner = c.project
	case *metal.RunbookFilter:
		f.Project = c.project
	default:
		return accessDeniedError("list")
	}
	return nil
}

// peek decodes a body of at most limit bytes and leaves it there for the handler.
func (c *ironicCall) peek(limit int64) (any, error) {
	b, err := api.ReadBody(c.W, c.R, limit)
	if err != nil {
		return nil, err
	}
	c.R.Body = io.NopCloser(bytes.NewReader(b))
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, nil
	}
	return api.Decode(b)
}

func (c *ironicCall) peekObject() (map[string]any, error) { return c.peekObjectUpTo(api.MaxBody) }

func (c *ironicCall) peekObjectUpTo(limit int64) (map[string]any, error) {
	v, err := c.peek(limit)
	if err != nil {
		return nil, err
	}
	o, _ := v.(map[string]any) // anything else the handler refuses
	return o, nil
}

func nodeTarget(n *metal.Node) access.Target { return access.Target{Owner: n.Owner, Lessee: n.Lessee} }

func ownerOfNode(c *ironicCall, ident string) (access.Target, error) {
	n, err := c.s.Nodes.Node(c.R.Context(), ident)
	if err != nil {
		return access.Target{}, err
	}
	return nodeTarget(n), nil
}

// ownerBelow gives what finds the owner of a record: that of its node.
func ownerBelow[R any](get func(s *server, ctx context.Context, ident string) (*R, error), node func(*R) string) func(*ironicCall, string) (access.Target, error) {
	return func(c *ironicCall, ident string) (access.Target, error) {
		r, err := get(c.s, c.R.Context(), ident)
		if err != nil {
			return access.Target{}, err
		}
		return ownerOfNode(c, node(r))
	}
}

var ownerOfPort = ownerBelow(
	func(s *server, ctx context.Context, id string) (*metal.Port, error) { return s.Ports.Get(ctx, id) },
	func(p *metal.Port) string { return p.NodeID })
