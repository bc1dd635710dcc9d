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
	"salvor/rescue"
	"salvor/secret"
	"salvor/wire/agent"
)

// rescue boots a ramdisk in place of the node's own system and hands it to whoever
// knows the rescue password. The order of the actions is Ironic's.
func (c *Conductor) rescue() job.Definition {
	return job.Definition{
		Kind: "rescue", Version: 3, Class: job.Operation, GiveUp: c.giveUp, Failed: c.failed, Stuck: c.stuck, NoDeadline: "an operator's maintenance may hold it for as long as they like",
		Actions: []job.Action{
			c.checkAction(),
			{Name: "power off", Do: c.withNode(diagnosisOperations{c}.onlyIfOff(c.noteFound(c.turnOff))), Undo: c.withNode(c.restorePower), Deadline: c.bmcDeadline()},
			{Name: "save the boot", Do: c.withNode(c.saveBoot), NoUndo: "the saved boot stays with the session until unrescue", Deadline: c.bmcDeadline()},
			{Name: "leave the tenant network", Do: c.withNode(c.detach(driver.Tenant)), Undo: c.withNode(c.rejoinTenant), Deadline: networkDeadline, Elsewhere: true},
			{Name: "join the rescuing network", Do: c.withNode(c.ramdisk(c.attach(driver.Rescuing))), Undo: c.withNode(c.detach(driver.Rescuing)), Deadline: networkDeadline, Elsewhere: true},
			{Name: "plan the boot", Do: c.withNode(c.ramdisk(c.planRescue)), NoUndo: "voided with the ramdisk"},
			{Name: "prepare the ramdisk", Do: c.withNode(c.ramdisk(c.prepareRamdisk)), Undo: c.withNode(c.cleanUpRamdisk), Deadline: c.bmcDeadline()},
			{Name: "power on", Do: c.withNode(c.turnOn), Undo: c.withNode(c.stopRamdisk), Deadline: c.bmcDeadline()},
			{Name: "await the ramdisk", Do: c.withNode(c.ramdisk(c.awaitRescue)), NoUndo: "waiting changes nothing"},
			{Name: "examine the disks", Do: c.withNode(c.ramdisk(diagnosisOperations{c}.examineDisks)), NoUndo: "looking changes nothing", Deadline: examineDeadline, Since: 3},
			{Name: "finalize", Do: c.withNode(unlessForRepair(c.ramdisk(c.finalize))), NoUndo: "the ramdisk goes with the power", Deadline: finalizeDeadline, Elsewhere: true},
			{Name: "clean up the ramdisk", Do: c.withNode(unlessForRepair(c.cleanUpRamdisk)), NoUndo: "there is nothing left to take back", Deadline: c.bmcDeadline()},
			{Name: "leave the rescuing network", Do: c.withNode(unlessForRepair(c.detach(driver.Rescuing))), NoUndo: "undone by joining the tenant network", Deadline: networkDeadline, Elsewhere: true},
			{Name: "join the tenant network", Do: c.withNode(c.finishRescue), NoUndo: "the tenant network is where a failed rescue ends too", Deadline: networkDeadline, Elsewhere: true},
		},
	}
}

// ramdisk skips an action where the rescue interface boots none.
func (c *Conductor) ramdisk(do nodeAction) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if m.rescue == nil {
			return job.Fail(m.lacks("rescue"))
		}
		if !m.rescue.NeedsRamdisk() {
			return job.Done()
		}
		return do(ctx, r, m)
	}
}

// unlessForRepair skips an action in a rescue that was made for a repair. Its ramdisk stays on the rescuing network, where its agent is heard, and the
// machine goes on booting it until unrescue. Nobody logs in to it, so it needs no credential.
func unlessForRepair(do nodeAction) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if m.node.Rescue.IsForRepair() {
			r.Secret = noSecret
			return job.Done()
		}
		return do(ctx, r, m)
	}
}

// saveBoot remembers how the node boots by itself, once a session: a second rescue
// would only see the boot of the first.
func (c *Conductor) saveBoot(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.node.Rescue != nil && m.node.Rescue.SavedKnown {
		return job.Done()
	}
	var boot rescue.Boot
	if m.manage != nil {
		var err error
		boot, err = m.manage.BootDevice(ctx, m.node)
		if err != nil && !problem.Is(err, problem.Unsupported) {
			return job.From(err)
		}
	}
	if !boot.Persistent {
		boot = rescue.Boot{Mode: boot.Mode} // a one-time override is not how a system boots
	}
	return job.Done(c.edit(ctx, m.node.ID, func(n *metal.Node) {
		session := rescue.Session{StartedAt: c.Now()}
		if n.Rescue != nil {
			session = *n.Rescue
		}
		session.Saved, session.SavedKnown = boot, true
		if session.MadeByJob() && r.Memo[powerFoundNote] == string(metal.PowerOff) {
			session.Saved.Power = "off"
		}
		n.Rescue = &session
	}))
}

// syncPowerState shows what became of the power when an operation failed that had turned the
// machine off, so that power sync has nothing to assert. A BMC that does not answer is left to power sync.
func (c *Conductor) syncPowerState(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	state, err := c.checkPower(bounded, r, m)
	if err != nil || state == "" || state == m.node.PowerState {
		return job.Done()
	}
	return job.Done(c.edit(ctx, m.node.ID, func(n *metal.Node) { n.PowerState = state }))
}

func savedBoot(n *metal.Node) rescue.Boot {
	if n.Rescue == nil {
		return rescue.Boot{}
	}
	return n.Rescue.Saved
}

// planRescue opens the next boot: its number, and with it its token, hold from this transaction on.
func (c *Conductor) planRescue(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.boot == nil {
		return job.Fail(m.lacks("boot"))
	}
	number := m.node.BootNumber + 1
	ramdisk := c.rescueRamdisk(m)
	ramdisk.BootNumber = number
	plan, err := glanceImages{c}.bootPlan(ctx, m, ramdisk)
	if err != nil {
		return job.From(err)
	}
	return job.Done(c.edit(ctx, m.node.ID, func(n *metal.Node) { n.BootNumber, n.Plan = number, plan }))
}

func (c *Conductor) prepareRamdisk(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.node.Plan == nil {
		return job.Fail(errBootTaken)
	}
	if err := c.notePrepared(ctx, r, m); err != nil {
		return job.From(err)
	}
	err := m.boot.PrepareRamdisk(ctx, m.node)
	if err == nil && m.node.Rescue.IsForRepair() && m.manage != nil {
		// A machine that restarts while a repair is planned stays on the rescuing network, so it must not boot its own system there. Where this
		// fails, the repair writes nothing.
		if err := m.manage.SetBootDevice(ctx, m.node, keptRamdiskBoot(m.node)); err != nil {
			r.Log.Warn("have the machine go on booting the ramdisk", "error", err)
		}
	}
	if noted := c.noteLicence(ctx, r, m, err); noted != nil {
		r.Log.Warn("store whether the BMC has a licence for virtual media", "error", noted)
	}
	if err != nil { // a BMC that looks at the image at once refuses it for a reason that only we know
		if now, unread := c.Store.Node(ctx, nil, m.node.ID); unread == nil {
			if refused := refusedBoot(now, metal.Contact{}); refused != nil {
				return job.Fail(problem.Conflictf("%w; the BMC: %w", refused, err))
			}
		}
	}
	return job.From(err)
}

// noteLicence stores on the node that a BMC refused a medium for lack of a licence, so that the next check refuses before the machine is
// touched. It removes that when the BMC accepts a medium.
func (c *Conductor) noteLicence(ctx context.Context, r *job.Run, m *managedNode, err error) error {
	known := metal.BMCOf(m.node)
	_, byMedia := m.boot.(driver.BMCNeeds)
	lacks := errors.Is(err, driver.ErrLicence)
	if !byMedia || err != nil && !lacks || lacks != known.MediaUnlicensedAt.IsZero() {
		return nil
	}
	known.MediaUnlicensedAt = time.Time{}
	if lacks {
		known.MediaUnlicensedAt = c.Now()
	}
	change := c.steps().commit(ctx, r, m, c.edit(ctx, m.node.ID, func(n *metal.Node) { metal.KeepBMC(n, known) }))
	m.facts = factsOf(m.node)
	return change
}

// awaitRescue parks the job until the ramdisk of this boot has been heard. A machine
// that was found off meanwhile is turned on again; one that an operator put into maintenance is left alone.
func (c *Conductor) awaitRescue(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	park := func(what string, within time.Duration) job.Outcome {
		if m.node.ProvisionState == metal.Rescuing {
			return job.Wait(what, within, c.advance(ctx, m.node.ID, metal.WaitEvent, nil))
		}
		return job.Wait(what, within)
	}
	if m.node.Maintenance && m.node.Fault == "" {
		if !c.GoOnInMaintenance {
			return job.Fail(problem.Conflictf("the node was put into maintenance, and [conductor]allow_provisioning_in_maintenance is false"))
		}
		return park(metal.EndOfMaintenance, 0)
	}
	contact, err := c.Store.Contact(ctx, nil, m.node.ID)
	if err != nil {
		return job.From(err)
	}
	if err := agentError(m.node, contact); err != nil {
		return job.Fail(err)
	}
	// A ramdisk that names no URL can be sent no command: it is only of use where it has the hash already.
	callable := contact.AgentURL != "" || c.PasswordInLookup
	if contact.AgentBoot == m.node.BootNumber && m.node.Plan != nil && callable {
		if m.node.ProvisionState == metal.Rescuing {
			return job.Done()
		}
		return job.Done(c.advance(ctx, m.node.ID, metal.ResumeEvent, nil))
	}
	if err := refusedBoot(m.node, contact); err != nil {
		return job.Fail(err)
	}
	c.turnOnAgain(ctx, r, m, contact)
	return park("rescue ramdisk callback for node", c.RescueTimeout)
}

// sentNote marks that a finalize may have reached the agent: its loss is then as good as its answer.
const sentNote = "finalize sent at heartbeat"

// finalize has the agent set the credential and end. The agent takes it once and is
// gone, so the intent is stored first; what a cut call did shows by who still listens.
func (c *Conductor) finalize(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	contact, err := c.Store.Contact(ctx, nil, m.node.ID)
	if err != nil {
		return job.From(err)
	}
	forget := func() job.Outcome { r.Secret = noSecret; return job.Done() }
	if c.PasswordInLookup && contact.TokenTold == m.node.BootNumber {
		return forget()
	}
	sent := r.Memo[sentNote] != ""
	if r.Secret.Empty() {
		if sent {
			return job.Done() // forgotten because it was taken; only the word of it was not written
		}
		return job.Fail(problem.Conflictf("the rescue password is no longer held; ask for rescue again with a password"))
	}
	credential, err := rescue.UnpackCredential(r.Secret)
	if err != nil {
		return job.Fail(err)
	}
	extras, err := c.extras(m)
	if err != nil {
		return job.Fail(err)
	}
	extras.Volumes = c.rescueVolumes(ctx, m, r.Log.Warn)
	extras.AuthorizedKeys = credential.Keys
	served := rescueAgents{c}.sessionAgent(m.node, contact)
	if served != nil {
		extras.SessionToken.Value = rescueAgents{c}.token(m.node, served)
	}
	ramdisk := driver.Agent{URL: contact.AgentURL, Version: contact.AgentVersion, CA: contact.AgentCA, Token: m.node.AgentToken(c.Key)}
	request := driver.Finalize{Hash: credential.Hash}
	if strings.HasPrefix(contact.AgentVersion, agent.Product) {
		request.Extras = extras
		if request.ConfigDrive, err = c.Nodes.ConfigDrive(ctx, m.node); err != nil {
			return job.From(err)
		}
	}
	if !sent {
		// From the answer on nobody can be asked any more, so what leads into the rescue system is stored with the intent.
		session, err := rescueEntry{extras.TenantMove, extras.SSHInterfaces}.read(ctx, m, ramdisk, request, credential)
		switch {
		case errors.Is(err, driver.ErrGone):
			return noAgentYet(contact)
		case err != nil:
			return fromAgent(r, err)
		}
		session.agent = served
		r.Note(sentNote, contact.HeartbeatAt.Format(time.RFC3339))
		if err := r.Commit(ctx, c.edit(ctx, m.node.ID, func(n *metal.Node) { n.Rescue = session.into(n.Rescue) })); err != nil {
			return job.From(err)
		}
	} else if (rescueAgents{c}).hasFinalized(ctx, m, contact) {
		return forget()
	}
	err = m.rescue.Finalize(ctx, m.node, ramdisk, request)
	switch {
	case err == nil:
		return forget()
	case errors.Is(err, driver.ErrGone) && sent:
		return forget()
	case errors.Is(err, driver.ErrGone):
		// Refused at the first try: it never was sent.
		r.Note(sentNote, "")
		return noAgentYet(contact)
	}
	return fromAgent(r, err)
}

func noAgentYet(contact metal.Contact) job.Outcome {
	return job.Retry(0, problem.Unavailablef("finalize the rescue: nothing listens at %s yet", contact.AgentURL))
}

// extras tell salvor's own agent of the tenant's network.
func (c *Conductor) extras(m *managedNode) (*agent.Extras, error) {
	x := &agent.Extras{RootPassword: c.RescueRoot}
	var err error
	if x.NetworkData, err = networkData(m.node); err != nil {
		return nil, err
	}
	if m.network != nil {
		x.TenantMove = m.network.Moves(m.node, m.ports, driver.Rescuing, driver.Tenant)
	}
	x.SSHInterfaces, err = m.sshInterfaces()
	return x, err
}

// networkData is the node's network_data as an agent takes it; nil: it has none.
func networkData(n *metal.Node) (json.RawMessage, error) {
	if len(n.NetworkData) == 0 {
		return nil, nil
	}
	return json.Marshal(n.NetworkData)
}

// sshInterfaces reads driver_info.rescue_ssh_interfaces: MACs, port names or port UUIDs, as a list or
// separated by commas. Nothing there means every interface on the tenant network.
func (m *managedNode) sshInterfaces() ([]string, error) {
	var words []string
	switch v := m.node.DriverInfo["rescue_ssh_interfaces"].(type) {
	case nil:
		return nil, nil
	case string:
		words = strings.Split(v, ",")
	case []any:
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, problem.Invalidf("driver_info rescue_ssh_interfaces must list MACs, port names or port UUIDs")
			}
			words = append(words, s)
		}
	default:
		return nil, problem.Invalidf("driver_info rescue_ssh_interfaces must list MACs, port names or port UUIDs")
	}
	var macs []string
	for _, w := range words {
		mac, err := m.macOf(strings.TrimSpace(w))
		if err != nil {
			return nil, err
		}
		macs = append(macs, mac)
	}
	return macs, nil
}

func (m *managedNode) macOf(word string) (string, error) {
	for _, p := range m.ports {
		if strings.EqualFold(word, p.ID) || word == p.Name && word != "" || strings.EqualFold(word, p.Address) {
			return p.Address, nil
		}
	}
	return "", problem.Invalidf("driver_info rescue_ssh_interfaces: %q is no port of node %s", word, m.node.ID)
}

// finishRescue puts the node back on the tenant network, unless the rescue is for a repair. With that it is rescued.
func (c *Conductor) finishRescue(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	var err error
	if !m.node.Rescue.IsForRepair() {
		err = m.network.Attach(ctx, m.node, m.ports, driver.Tenant)
	}
	return job.From(err, c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) { n.LastError = "" }))
}

var noSecret secret.Value
