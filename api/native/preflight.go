package native

import (
	"net/http"

	"salvor/access"
	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	wire "salvor/wire/native"
)

// preflightNode tells of each operation why it could not succeed on a node. It asks no machine.
func (s *server) preflightNode(c *api.Call) error {
	n, err := s.nodeOf(c, c.Arg("ident"))
	if err != nil {
		return err
	}
	if c.Principal.Role == access.Scoped && !s.Policy.Allows("node:validate", c.Principal, nodeTarget(n)) {
		return problem.Forbiddenf("You may not ask what node %s lacks.", n.ID)
	}
	var seen metal.RunbookFilter
	if c.Principal.Role == access.Scoped && c.Principal.Scope.Project != "" {
		seen.Project = c.Principal.Scope.Project
	}
	n, all, err := s.Nodes.CheckAll(c.R.Context(), n.ID, seen)
	if err != nil {
		return err
	}
	out := wire.Preflight{Subject: wire.Subject{Kind: "node", ID: n.ID, Name: n.Name}, State: string(n.ProvisionState)}
	for _, one := range all {
		r := wire.PreflightResult{Operation: string(one.Kind), Now: one.Now, Reasons: []wire.PreflightReason{}}
		for _, reason := range one.Reasons {
			r.Reasons = append(r.Reasons, wire.PreflightReason{Interface: reason.Interface, Text: c.Principal.Redact(reason.Text)})
		}
		for _, warning := range one.Warnings {
			r.Warnings = append(r.Warnings, wire.PreflightReason{Interface: warning.Interface, Text: c.Principal.Redact(warning.Text)})
		}
		out.Operations = append(out.Operations, r)
	}
	return c.JSON(http.StatusOK, out)
}
