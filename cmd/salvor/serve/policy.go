package serve

import (
	"context"

	"salvor/access"
	"salvor/api"
	"salvor/api/image"
	"salvor/api/native"
	"salvor/api/nova"
	"salvor/api/volume"
	"salvor/job"
	"salvor/record"
)

// policy is what tokens are held to.
func (p *ControlPlane) policy() access.Policy {
	c := p.cfg.Policy
	out := access.Policy{EnforceScope: c.EnforceScope, OldDefaults: !c.EnforceNewDefaults}
	if c.ServiceElevated {
		out.ServiceProject = c.ServiceProject
		out.ServiceDomainID, out.ServiceDomainName = p.cfg.Keystone.ProjectDomainID, p.cfg.Keystone.ProjectDomainName
	}
	if p.rules != nil {
		out.Rules = p.rules.Rules()
	}
	return out
}

// readPolicy reads the policy file, if there shall be one; it is before any door is made.
func (p *ControlPlane) readPolicy() (err error) {
	if p.cfg.Policy.File != "" {
		p.rules, err = api.NewPolicyFile(p.cfg.Policy.File, hasRule, p.log)
	}
	return err
}

// hasRule tells whether requests of any face but Ironic's are held to a rule.
func hasRule(name string) bool {
	return nova.HasRule(name) || volume.HasRule(name) || image.HasRule(name) || native.HasRule(name)
}

// watchPolicy reads the policy file again when it changes.
func (p *ControlPlane) watchPolicy(ctx context.Context) error {
	if p.rules != nil {
		p.rules.Changed = p.noteRules
		p.rules.Run(ctx)
	}
	return nil
}

// noteRules writes the event of a policy file that changed. Each process that reads the file writes an event of its own, because its
// file may be another one.
func (p *ControlPlane) noteRules(ctx context.Context, rules []string) error {
	text := "policy file read again on " + p.cfg.Default.Host + ": no rule changed"
	if len(rules) > 0 {
		text = "policy file read again on " + p.cfg.Default.Host + ": rules changed: " + record.ListNames(rules)
	}
	return p.Store.Do(ctx, func(tx job.Tx) error {
		return p.Store.Append(tx, job.Event{Subject: job.Subject{Kind: "policy", ID: p.cfg.Policy.File}, Type: "request", Text: text})
	})
}
