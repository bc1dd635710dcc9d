package node

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/wire/agent"
)

// The node actions of operations that boot a ramdisk to deploy, clean, serve or inspect a
// machine. Whether this run of the operation does is noted once, by its first action,
// so that every later action and every undo agree.

// ramdiskMemo says whether a job boots a ramdisk.
const ramdiskMemo = "road"

const (
	byRamdisk = "ramdisk"
	byHand    = "no ramdisk"
)

// decideRamdisk decides once whether the operation boots a ramdisk.
func (c *Conductor) decideRamdisk(needs func(ctx context.Context, r *job.Run, m *managedNode) (bool, error)) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if r.Memo[ramdiskMemo] != "" {
			return job.Done()
		}
		ramdisk, err := needs(ctx, r, m)
		if err != nil {
			return job.From(err)
		}
		if !ramdisk {
			r.Note(ramdiskMemo, byHand)
			return job.Done()
		}
		if m.boot == nil {
			return job.Fail(m.lacks("boot"))
		}
		r.Note(ramdiskMemo, byRamdisk)
		return job.Done()
	}
}

// ifRamdisk skips an action where the operation boots no ramdisk.
func ifRamdisk(do nodeAction) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if r.Memo[ramdiskMemo] != byRamdisk {
			return job.Done()
		}
		return do(ctx, r, m)
	}
}

// planRamdisk opens the boot of the ramdisk that deploys, cleans or inspects.
func (c *Conductor) planRamdisk(params ...string) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		number := m.node.BootNumber + 1
		ramdisk := c.deployRamdisk(m)
		ramdisk.Params, ramdisk.BootNumber = params, number
		plan, err := glanceImages{c}.bootPlan(ctx, m, ramdisk)
		if err != nil {
			return job.From(err)
		}
		if imager, ok := m.deploy.(driver.Imager); ok && r.Kind == "deploy" && m.writesImage() {
			if err = (glanceImages{c}).plan(ctx, r, m, imager, plan); err != nil {
				return job.From(err)
			}
		}
		return job.Done(c.edit(ctx, m.node.ID, func(n *metal.Node) { n.BootNumber, n.Plan = number, plan }))
	}
}

// awaitRamdisk parks the job until the ramdisk of this boot has been heard.
func (c *Conductor) awaitRamdisk(within time.Duration) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		_, contact, out := c.agentOf(ctx, r, m, within)
		if contact {
			return job.Done(c.resume(ctx, m))
		}
		return out
	}
}

// agentOf finds the agent of this boot. Not heard: the outcome parks the job, or ends it.
func (c *Conductor) agentOf(ctx context.Context, r *job.Run, m *managedNode, within time.Duration) (driver.Agent, bool, job.Outcome) {
	var none driver.Agent
	if m.node.Maintenance && m.node.Fault == "" {
		if !c.GoOnInMaintenance {
			return none, false, job.Fail(problem.Conflictf("the node was put into maintenance, and [conductor]allow_provisioning_in_maintenance is false"))
		}
		return none, false, c.park(ctx, m, metal.EndOfMaintenance, 0)
	}
	contact, err := c.Store.Contact(ctx, nil, m.node.ID)
	if err != nil {
		return none, false, job.From(err)
	}
	if m.node.Plan == nil {
		return none, false, job.Fail(errBootTaken)
	}
	if err := agentError(m.node, contact); err != nil {
		return none, false, job.Fail(err)
	}
	if contact.AgentBoot == m.node.BootNumber && contact.AgentURL != "" {
		token := m.node.AgentToken(c.Key)
		return driver.Agent{URL: contact.AgentURL, Version: contact.AgentVersion, CA: contact.AgentCA, Token: token}, true, job.Outcome{}
	}
	if err := refusedBoot(m.node, contact); err != nil {
		return none, false, job.Fail(err)
	}
	c.turnOnAgain(ctx, r, m, contact)
	return none, false, c.park(ctx, m, "the ramdisk's callback", within)
}

// maxAgentMessage bounds how many bytes of an agent's message an error quotes.
const maxAgentMessage = 1000

// agentError is the error that the agent of this boot reports in its last heartbeat; nil if it reports none.
func agentError(n *metal.Node, contact metal.Contact) error {
	if contact.AgentBoot != n.BootNumber || contact.AgentStatus != "error" {
		return nil
	}
	message := contact.AgentStatusMessage
	if len(message) > maxAgentMessage {
		message = strings.ToValidUTF8(message[:maxAgentMessage], "") + "..."
	}
	if message = problem.Quote(message); message == "" {
		message = "it gives no message"
	}
	return problem.Conflictf("the ramdisk's agent reports an error: %s", message)
}

// refusedBoot is the error of a boot that cannot come to anything: the machine did not get a file that it needs, and waiting does not help. It is nil
// once the ramdisk of this boot was heard.
func refusedBoot(n *metal.Node, contact metal.Contact) error {
	if n.Plan == nil || n.Plan.BootNumber != n.BootNumber || n.Plan.Refusal == nil || !n.Plan.Refusal.Final || contact.AgentBoot == n.BootNumber {
		return nil
	}
	return problem.Conflictf("%s", n.Plan.Refusal)
}

// faultyTries is how often in a row an agent may fail at a request before its node is given back to whoever waits for it: 7.5 s.
// An agent that is busy, or whose network comes up late, has the whole deadline; Ironic gives up at the first failure.
const faultyTries = 5

// fromAgent turns an agent's error into an outcome.
func fromAgent(r *job.Run, err error) job.Outcome {
	if errors.Is(err, driver.ErrFaulty) && r.Attempt+1 >= faultyTries {
		return job.Fail(problem.Conflictf("gave up after %d tries: %w", r.Attempt+1, err))
	}
	return job.From(err)
}

// turnOnAgain mends the power of a machine that was found off while its ramdisk is awaited: the machine gets a new boot of the ramdisk.
func (c *Conductor) turnOnAgain(ctx context.Context, r *job.Run, m *managedNode, contact metal.Contact) {
	if contact.PowerRead != metal.PowerOff || !contact.PowerReadAt.After(r.ActionStartedAt) || m.node.PowerState != metal.PowerOn {
		return
	}
	if m.node.Plan == nil {
		return
	}
	var err error
	if m.node.ProvisionState.Info().Phase == metal.WaitsForRamdisk {
		err = powerOperations{c}.bootAwaitedRamdisk(ctx, r, m, metal.TurnOn)
	} else if m.boot != nil { // the job is about to wait; the boot that was set for once may be used up
		err = m.boot.PrepareRamdisk(ctx, m.node)
	}
	if err == nil {
		err = m.power.SetPower(ctx, m.node, metal.PowerOn)
	}
	if err != nil {
		r.Log.Warn("turn a waiting machine on again", "error", err)
		return
	}
	r.Note(awaitedNote, "") // the machine may go off again
}

// park waits for a signal, in the waiting state that belongs to the operation.
func (c *Conductor) park(ctx context.Context, m *managedNode, what string, within time.Duration) job.Outcome {
	return job.Wait(what, within, c.shift(ctx, m, metal.WaitEvent))
}

// resume leaves the waiting state; in any other it changes nothing.
func (c *Conductor) resume(ctx context.Context, m *managedNode) func(job.Tx) error {
	return c.shift(ctx, m, metal.ResumeEvent)
}

// shift moves the node by an event where its state takes it.
func (c *Conductor) shift(ctx context.Context, m *managedNode, e metal.Event) func(job.Tx) error {
	if _, err := metal.ByEvent(m.node.ProvisionState, e); err != nil {
		return nil
	}
	return c.advance(ctx, m.node.ID, e, nil)
}

// quiet turns the machine off once the agent has brought everything to the disk.
func (c *Conductor) quiet(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.power == nil {
		return job.Fail(m.lacks("power"))
	}
	state, err := m.power.PowerState(ctx, m.node)
	if err != nil && !problem.Is(err, problem.Unsupported) {
		return job.From(err)
	}
	if state != metal.PowerOff && m.node.Plan != nil {
		a, contact, out := c.agentOf(ctx, r, m, c.timeout(r.Kind))
		if !contact {
			return out
		}
		done, err := c.Agents.Give(ctx, m.node, a, agent.Sync, struct{}{})
		if errors.Is(err, driver.ErrNoCommand) {
			done, err = m.shutDown(ctx, c.Agents, a)
		}
		switch {
		case errors.Is(err, driver.ErrGone):
			return job.Retry(0, err)
		case err != nil:
			return job.From(err)
		case done.Status != agent.Succeeded:
			return job.Fail(problem.Conflictf("the agent could not bring its writes to the disk: %s", agentFailure(done)))
		}
	}
	return c.keepOff(ctx, r, m)
}

// shutDown has an agent that cannot sync shut the machine down, as Ironic does, and waits until it is off. One that stays on for long
// is switched off by force.
func (m *managedNode) shutDown(ctx context.Context, agents driver.Orders, a driver.Agent) (agent.Result, error) {
	done, err := agents.Give(ctx, m.node, a, agent.PowerOff, struct{}{})
	if err != nil || done.Status == agent.Failed {
		return done, err
	}
	_, err = driver.PollUntil(ctx, func(ctx context.Context) (bool, error) {
		state, err := m.power.PowerState(ctx, m.node)
		return state == metal.PowerOff, err
	})
	return agent.Result{Status: agent.Succeeded}, err
}

// agentFailure is what an agent tells of a command that it did not do.
func agentFailure(res agent.Result) string {
	if res.Error == nil {
		return "it ended " + res.Status + " and gives no reason"
	}
	text := res.Error.Message
	if res.Error.Details != "" {
		text += ": " + res.Error.Details
	}
	if res.Error.Type != "" {
		text += " (" + res.Error.Type + ")"
	}
	return problem.Quote(text)
}

// shown is the node as agents are shown it: what decides on its disks, and no secret.
func (m *managedNode) shown() (node, ports json.RawMessage, err error) {
	instance := metal.Object{}
	for k, v := range m.node.InstanceInfo {
		switch k {
		case "configdrive", "image_url", "image_source":
		default:
			instance[k] = v
		}
	}
	node, err = json.Marshal(map[string]any{
		"uuid": m.node.ID, "name": m.node.Name, "properties": m.node.Properties, "instance_info": instance, "driver_internal_info": m.node.InternalInfo,
		"raid_config": m.node.RAIDConfig, "target_raid_config": m.node.TargetRAID, "provision_state": m.node.ProvisionState,
	})
	if err != nil {
		return nil, nil, err
	}
	list := make([]map[string]any, 0, len(m.ports))
	for _, p := range m.ports {
		list = append(list, map[string]any{"uuid": p.ID, "address": p.Address, "pxe_enabled": p.PXEEnabled, "extra": p.Extra})
	}
	ports, err = json.Marshal(list)
	return node, ports, err
}

// writesImage tells whether the deployment writes a system to the disk.
func (m *managedNode) writesImage() bool { return m.deploy != nil && m.deploy.NeedsImage() }

// heedsAgents tells whether the deploy interface takes heartbeats, so that a ramdisk can work on the node.
func (m *managedNode) heedsAgents() bool { return m.deploy != nil && m.deploy.Heartbeats() != "" }
