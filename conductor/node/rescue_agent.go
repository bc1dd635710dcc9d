package node

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
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

// rescueAgents talk to the agents that serve in rescue systems. The user of a machine in rescue is root there and can read the token that the
// agent has, so an answer proves no more than that it comes from that machine.
type rescueAgents struct{ *Conductor }

const (
	// probeTime bounds the question to one address of a rescue system.
	probeTime = 5 * time.Second
	// maxProbes bounds the addresses that are asked.
	maxProbes = 3
)

// unknownCommand is the id of no command: an agent makes random UUIDs.
const unknownCommand = "00000000-0000-0000-0000-000000000000"

// lookByHand is what a person can do where no agent can be asked.
const lookByHand = "log in to the rescue system and run salvor-agent examine there, or unrescue the node and rescue it again"

// sessionAgent is the agent that is to serve after the finalize; nil: this one cannot, or its token would pass the network in clear.
func (c rescueAgents) sessionAgent(n *metal.Node, contact metal.Contact) *rescue.Agent {
	if !strings.HasPrefix(contact.AgentVersion, agent.Product) || contact.AgentCA == "" || !strings.HasPrefix(contact.AgentURL, "https://") {
		return nil
	}
	if n.Rescue != nil && n.Rescue.Agent != nil && n.Rescue.Agent.Boot == n.BootNumber {
		return n.Rescue.Agent // of a finalize that was sent: the token stays, whatever key seals by now
	}
	return &rescue.Agent{Boot: n.BootNumber, KeyID: c.Key.ID()}
}

// token opens the commands of an agent that serves. Another rescue of the node has another one.
func (c rescueAgents) token(n *metal.Node, a *rescue.Agent) secret.Value {
	return c.Key.TokenBy(a.KeyID, "agent in rescue", n.ID, strconv.FormatInt(a.Boot, 10))
}

// rescueAgent is the agent of a node in state rescue, which has just answered. It takes the commands of agent.InSession. Unsupported: there is none
// that serves. Unavailable: it does not answer. Both say what to do next.
func (c rescueAgents) rescueAgent(ctx context.Context, m *managedNode) (driver.Agent, error) {
	if m.node.ProvisionState != metal.Rescue {
		return driver.Agent{}, problem.Conflictf("the node is in state %s and not in rescue", m.node.ProvisionState)
	}
	contact, err := c.Store.Contact(ctx, nil, m.node.ID)
	if err != nil {
		return driver.Agent{}, err
	}
	return c.probeSessionAgent(ctx, m.node, contact)
}

// hasFinalized tells whether the agent of a rescue that is under way has taken the finalize: then it serves by the token that came with that.
func (c rescueAgents) hasFinalized(ctx context.Context, m *managedNode, contact metal.Contact) bool {
	if m.node.Rescue == nil || m.node.Rescue.Agent == nil {
		return false
	}
	_, err := c.ask(ctx, m.node, contact, contact.AgentURL)
	return err == nil
}

// probeSessionAgent asks the addresses of the rescue system one after the other until its agent answers.
func (c rescueAgents) probeSessionAgent(ctx context.Context, n *metal.Node, contact metal.Contact) (driver.Agent, error) {
	s := n.Rescue
	if s.IsForRepair() {
		return driver.Agent{}, problem.Unsupportedf("the rescue was made for a repair, and only that repair uses its ramdisk; to see how far it is: salvor repair show %s", n.ID)
	}
	if s == nil || s.Agent == nil || contact.AgentBoot != s.Agent.Boot {
		if v := contact.AgentVersion; v != "" && !strings.HasPrefix(v, agent.Product) {
			return driver.Agent{}, problem.Unsupportedf("the rescue ramdisk has another agent than salvor's (%s), which ends with the rescue; give the node a ramdisk of salvor ramdisk build", problem.Quote(driver.Sanitize(v)))
		}
		return driver.Agent{}, problem.Unsupportedf("no agent serves in this rescue system: it was booted by a former release of salvor or without TLS; %s", lookByHand)
	}
	if len(s.Addresses) == 0 {
		return driver.Agent{}, problem.Unsupportedf("salvor does not know the address that the machine has on its tenant's network; set network_data of the node with a fixed address, or %s", lookByHand)
	}
	heard, err := url.Parse(contact.AgentURL)
	if err != nil {
		return driver.Agent{}, problem.Unavailablef("the agent's URL cannot be used; %s", lookByHand)
	}
	for _, address := range s.Addresses[:min(len(s.Addresses), maxProbes)] {
		var a driver.Agent
		at := url.URL{Scheme: "https", Host: net.JoinHostPort(address, heard.Port())}
		if a, err = c.ask(ctx, n, contact, at.String()); err == nil {
			return a, nil
		}
	}
	where := strings.Join(s.Addresses, ", ")
	if errors.Is(err, driver.ErrGone) {
		return driver.Agent{}, problem.Unavailablef("the agent in the rescue system listens no more at %s: it is of a former release, or the machine was restarted and runs its own system; %s", where, lookByHand)
	}
	return driver.Agent{}, problem.Unavailablef("the agent in the rescue system does not answer at %s, perhaps because the conductor does not reach the tenant's network (%w); %s", where, err, lookByHand)
}

// ask has an agent that serves look for a command that nobody gave, and gives the agent if it answers by that token. Its list of commands holds
// their outcomes too, so it is too large for a probe.
func (c rescueAgents) ask(ctx context.Context, n *metal.Node, contact metal.Contact, at string) (driver.Agent, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	a := driver.Agent{URL: at, Version: contact.AgentVersion, CA: contact.AgentCA, Token: c.token(n, n.Rescue.Agent)}
	_, err := c.Agents.Command(ctx, n, a, unknownCommand)
	if problem.Is(err, problem.NotFound) {
		err = nil
	}
	return a, err
}

// givenCommand is the command that the job has given an agent. taken is false where it is to be given now; that it may have been given is durable
// by then. errRamdiskRestarted: the agent no longer knows it.
func (c rescueAgents) givenCommand(ctx context.Context, r *job.Run, n *metal.Node, a driver.Agent, name string) (last agent.Result, taken bool, err error) {
	note := r.Memo[orderNote]
	if id, given := strings.CutPrefix(note, orderID); given {
		last, err = c.Agents.Command(ctx, n, a, id)
		if problem.Is(err, problem.NotFound) {
			err = errRamdiskRestarted
		}
		return last, err == nil, err
	}
	list, err := c.Agents.List(ctx, n, a)
	if err != nil {
		return last, false, err
	}
	if last, taken, err = findAgentCommand(list, note, name); err != nil || !taken && note != "" {
		return last, taken, err
	}
	if taken {
		last, err = c.withOutcome(ctx, n, a, last)
		return last, err == nil, err
	}
	before := ""
	if len(list) > 0 {
		before = list[len(list)-1].ID
	}
	r.Note(orderNote, orderAfter+before)
	return last, false, r.Commit(ctx, nil)
}

// withOutcome gives a command of an agent's list with its outcome, which the list leaves out.
func (c rescueAgents) withOutcome(ctx context.Context, n *metal.Node, a driver.Agent, listed agent.Result) (agent.Result, error) {
	if listed.Status != agent.Succeeded {
		return listed, nil
	}
	whole, err := c.Agents.Command(ctx, n, a, listed.ID)
	if problem.Is(err, problem.NotFound) {
		err = errRamdiskRestarted
	}
	return whole, err
}

// silentNote is the time of the first unanswered question since the last answer.
const silentNote = "silent since"

// silence is how long the agent has been silent at this question; 0 with an answer.
func (c rescueAgents) silence(r *job.Run, away bool) time.Duration {
	if !away {
		if r.Memo[silentNote] != "" {
			r.Note(silentNote, "")
		}
		return 0
	}
	now := c.Now()
	since, err := time.Parse(time.RFC3339Nano, r.Memo[silentNote])
	if err != nil { // the first one
		r.Note(silentNote, now.UTC().Format(time.RFC3339Nano))
		return 0
	}
	return now.Sub(since)
}
