package fleet

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"salvor/client"
	"salvor/problem"
	"salvor/secret"
	wire "salvor/wire/agent"
	"salvor/wire/ironic"
)

const (
	product = "salvor-sim/0.1.0"
	// spoken is the microversion of agents: tokens, a certificate and nothing newer.
	spoken = client.Version(68)
	// tick is how far heartbeats lie apart on the wheel.
	tick       = 100 * time.Millisecond
	firstRetry = time.Second
	lastRetry  = 20 * time.Second
)

// tickGroup is the machines whose agents heartbeat at one tick.
type tickGroup struct{ machines []int }

// tokenIndex finds the machine of an agent that is called back: all agents are behind one port.
type tokenIndex struct {
	mu sync.RWMutex
	of map[string]int
}

func (t *tokenIndex) put(token secret.Value, i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]int{}
	}
	t.of[token.Reveal()] = i
}

func (t *tokenIndex) remove(token secret.Value) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, token.Reveal())
}

func (t *tokenIndex) find(token string) (int, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i, ok := t.of[token]
	return i, ok
}

// ramdisk is a machine whose agent begins: it looks up until it is known and heartbeats at once.
func (f *Fleet) ramdisk(i, boot int, image string) {
	ctx, m := f.ends, &f.machines[i]
	for m.held && !m.waiting() && m.running(boot) && ctx.Err() == nil {
		time.Sleep(tick) // a heartbeat before its maintenance would end the wait
	}
	for wait := firstRetry; m.running(boot) && ctx.Err() == nil; wait = min(wait*8/5, lastRetry) {
		err := f.begin(ctx, i, boot, image)
		if err == nil {
			return
		}
		if status := client.StatusOf(err); ctx.Err() == nil && status != http.StatusConflict && status != http.StatusNotFound {
			f.complain(i, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// begin looks up by the token of the medium, or one that the lookup tells.
func (f *Fleet) begin(ctx context.Context, i, boot int, image string) error {
	leave, err := f.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	m := &f.machines[i]
	token := m.agentToken()
	if token.Empty() && image != "" {
		if token, err = f.readToken(ctx, image); err != nil {
			return err
		}
	}
	if m.agentToken().Empty() {
		if token, err = f.lookup(ctx, i, token); err != nil {
			return err
		}
		if !f.settle(i, boot, token) {
			return nil
		}
	}
	return f.sendHeartbeat(ctx, i)
}

func (m *simulatedMachine) waiting() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waits
}

// agentToken is empty where no agent runs.
func (m *simulatedMachine) agentToken() secret.Value {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.token
}

func (f *Fleet) lookup(ctx context.Context, i int, token secret.Value) (secret.Value, error) {
	found, err := f.config.API.Lookup(ctx, spoken, []string{f.MAC(i)}, "")
	if err != nil {
		return token, err
	}
	f.counts.lookups.Add(1)
	if told := found.Config.AgentToken; token.Empty() && told != nil && *told != ironic.Hidden {
		token = secret.New(*told)
	}
	if token.Empty() {
		return token, problem.Unavailablef("lookup told it no token and its medium carried none: set [agent]rescue_password_in_lookup on a control plane to rehearse on, or boot interface redfish-virtual-media")
	}
	return token, nil
}

// settle keeps the token of a boot, unless that is over.
func (f *Fleet) settle(i, boot int, token secret.Value) bool {
	m := &f.machines[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.on || m.boots != boot {
		return false
	}
	m.token, m.url = token, "https://"+net.JoinHostPort(f.host(i), strconv.Itoa(f.agents))
	f.tokens.put(token, i)
	f.counts.agents.Add(1)
	return true
}

// sendHeartbeat sends one heartbeat; a machine without an agent, or with one whose work is done, sends none.
func (f *Fleet) sendHeartbeat(ctx context.Context, i int) error {
	m := &f.machines[i]
	m.mu.Lock()
	token, url, over := m.token, m.url, m.opened
	m.mu.Unlock()
	if token.Empty() || over {
		return nil
	}
	word := token.Reveal()
	began := time.Now()
	err := f.config.API.Heartbeat(ctx, spoken, f.UUID(i), ironic.Heartbeat{CallbackURL: url, AgentVersion: product, AgentToken: &word, AgentVerifyCA: f.authority.text})
	if err == nil {
		f.counts.countHeartbeat(time.Since(began))
	}
	return err
}

// turn has the agents heartbeat, those of one spoke after those of the one before. A control plane
// that is too slow makes the wheel late, which is counted; it never makes it grow.
func (f *Fleet) turn(ctx context.Context) {
	var under sync.WaitGroup
	defer under.Wait()
	next := time.Now()
	for at := 0; ; at = (at + 1) % len(f.wheel) {
		next = next.Add(tick)
		if late := time.Since(next); late > time.Second {
			f.counts.lateness(late)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
		for _, i := range f.wheel[at].machines {
			if f.machines[i].agentToken().Empty() {
				continue
			}
			leave, err := f.enter(ctx)
			if err != nil {
				return
			}
			under.Go(func() {
				defer leave()
				if err := f.sendHeartbeat(ctx, i); err != nil && ctx.Err() == nil && client.StatusOf(err) != http.StatusConflict {
					f.complain(i, err)
				}
			})
		}
	}
}

// command is the agent's door: it finishes rescues and examines simulated disks.
func (f *Fleet) command(w http.ResponseWriter, r *http.Request) {
	i, ok := f.tokens.find(r.URL.Query().Get(wire.QueryToken))
	if !ok { // nobody listens where an agent went with its machine's power; a refused token would say that another agent runs there
		panic(http.ErrAbortHandler)
	}
	if r.Method == http.MethodGet && f.config.Commands != nil {
		f.config.Commands(w, r)
		return
	}
	done := wire.Result{ID: "1", Name: wire.FinalizeRescue, Params: json.RawMessage("{}"), Status: wire.Succeeded, Outcome: json.RawMessage("null")}
	m := &f.machines[i]
	if r.Method == http.MethodGet {
		list := wire.CommandList{Commands: []wire.Result{}}
		m.mu.Lock()
		if m.opened {
			list.Commands = append(list.Commands, done)
		}
		m.mu.Unlock()
		writeJSON(w, http.StatusOK, list)
		return
	}
	var c wire.Command
	err := json.NewDecoder(r.Body).Decode(&c)
	switch {
	case err == nil && c.Name == wire.Examine:
		// The whole answer is here, and the list of commands does not name it: an agent that is asked again looks again.
		if done, err = f.examined(i); err != nil {
			panic(http.ErrAbortHandler)
		}
	case err == nil && c.Name == wire.FinalizeRescue:
		m.mu.Lock()
		first := !m.opened
		m.opened = true
		m.mu.Unlock()
		if first {
			f.counts.opened.Add(1)
			f.counts.agents.Add(-1)
		}
	default:
		writeJSON(w, http.StatusBadRequest, wire.Fault{Code: "Client", String: "Unknown command: a simulated agent finalizes rescues and examines its disk, and does nothing else"})
		return
	}
	writeJSON(w, http.StatusOK, done)
}
