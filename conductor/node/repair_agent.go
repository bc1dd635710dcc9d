package node

import (
	"context"
	"encoding/json"
	"slices"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/wire/agent"
)

// repairAgent talks to the agent of a machine in rescue about a repair.
type repairAgent struct{ *Conductor }

// find finds the agent: that of the boot that the node is set to once it has been heard, else the one that serves in the rescue.
func (c repairAgent) find(ctx context.Context, m *managedNode) (driver.Agent, error) {
	if m.node.ProvisionState != metal.Rescue {
		return driver.Agent{}, problem.Conflictf("the node is in state %s and not in rescue", m.node.ProvisionState)
	}
	contact, err := c.Store.Contact(ctx, nil, m.node.ID)
	if err != nil {
		return driver.Agent{}, err
	}
	if m.node.BootsRamdisk() && contact.AgentBoot == m.node.BootNumber && contact.AgentURL != "" {
		return driver.Agent{URL: contact.AgentURL, Version: contact.AgentVersion, CA: contact.AgentCA, Token: m.node.AgentToken(c.Key)}, nil
	}
	return rescueAgents(c).rescueAgent(ctx, m)
}

// follow has the agent carry out a command in the background, once, and gives its outcome. wait: it is still at it. That it may have been given is
// durable before it is. The parameters are made only if it is to be given now.
func (c repairAgent) follow(ctx context.Context, r *job.Run, m *managedNode, name string, params func() (any, error)) (outcome json.RawMessage, wait bool, err error) {
	a, err := c.find(ctx, m)
	if err != nil {
		return nil, false, err
	}
	last, taken, err := rescueAgents(c).givenCommand(ctx, r, m.node, a, name)
	if err != nil {
		return nil, false, err
	}
	if !taken {
		sent, err := params()
		if err != nil {
			return nil, false, err
		}
		if last, err = c.Agents.Give(ctx, m.node, a, name, sent); err != nil {
			return nil, false, err
		}
	}
	r.Note(orderNote, orderID+last.ID)
	return answerOf(last)
}

// isBusy tells whether the agent carries a command out. It takes no other meanwhile.
func (c repairAgent) isBusy(ctx context.Context, m *managedNode) (bool, error) {
	a, err := c.find(ctx, m)
	if err != nil {
		return false, err
	}
	list, err := c.Agents.List(ctx, m.node, a)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list, func(r agent.Result) bool { return r.Status == agent.Running }), nil
}

// ask has the agent carry out a short command that does no harm when it is given again.
func (c repairAgent) ask(ctx context.Context, m *managedNode, name string, params any) (json.RawMessage, error) {
	a, err := c.find(ctx, m)
	if err != nil {
		return nil, err
	}
	given, err := c.Agents.Give(ctx, m.node, a, name, params)
	if err != nil {
		return nil, err
	}
	outcome, wait, err := answerOf(given)
	if wait {
		err = problem.Unavailablef("the agent has not answered %s at once", name)
	}
	return outcome, err
}

// answerOf is the outcome of a command, or whether it still runs.
func answerOf(res agent.Result) (outcome json.RawMessage, wait bool, err error) {
	switch res.Status {
	case agent.Running:
		return nil, true, nil
	case agent.Succeeded:
		return res.Outcome, false, nil
	}
	why := "it gives no reason"
	if res.Error != nil {
		if why = res.Error.Details; why == "" {
			why = res.Error.Message
		}
	}
	return nil, false, problem.Conflictf("the agent failed: %s", problem.Quote(driver.Sanitize(why)))
}
