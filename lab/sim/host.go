// Package sim is a simulated fleet: VM hosts that run the real agent over guests in memory,
// whose rescue systems answer the rescue channel. It is for tests of what lies above hypervisors.
package sim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"

	"salvor/client"
	"salvor/compute"
	"salvor/host"
	"salvor/hypervisor"
	"salvor/hypervisor/fake"
	"salvor/secret"
	"salvor/wire/agent"
)

// Fingerprint is what every simulated rescue system says of its ssh host key.
const Fingerprint = "SHA256:simulated"

// Config of a simulated host.
type Config struct {
	// API is the URL of the control plane, of which a join token is asked unless Token is one; Controller that of its door for hosts.
	API, Controller string
	Token           secret.Value
	// StateDir keeps the host between two lives.
	StateDir, Name string
	// Stores are directories of disks; none: one in the state directory.
	Stores []host.Store
	// BootID tells the boots of the machine apart; nil: it has this machine's.
	BootID func() (string, error)
	// Watchdog of the machine; nil: it has none.
	Watchdog host.Watchdog
	Log      *slog.Logger
}

// Host is a simulated VM host.
type Host struct {
	ID    string
	stop  context.CancelFunc
	ended chan error
}

// StartHost joins a control plane and serves it until Stop. The machine is in this process, or a Remote.
func StartHost(ctx context.Context, c Config, machine hypervisor.Hypervisor) (*Host, error) {
	if c.Token.Empty() {
		var err error
		if c.Token, err = joinToken(ctx, c.API); err != nil {
			return nil, err
		}
	}
	a, err := host.Open(host.Config{
		StateDir: c.StateDir, Controller: c.Controller, Token: c.Token, Name: c.Name, Hypervisor: machine, RescueDir: c.StateDir, Version: "salvor-sim", Log: c.Log,
		Stores: c.Stores, BootID: c.BootID, Watchdog: c.Watchdog, Web: http.DefaultClient,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &Host{ID: a.ID(), stop: stop, ended: make(chan error, 1)}
	go func() {
		err := a.Run(ctx)
		h.ended <- errors.Join(err, a.Close()) // not before: another may open its state directory then
	}()
	return h, nil
}

// Stop ends the agent; the guests stay in the machine.
func (h *Host) Stop() error {
	h.stop()
	return <-h.ended
}

// joinToken asks for one as an administrator does.
func joinToken(ctx context.Context, url string) (secret.Value, error) {
	api, err := client.New(client.Config{Endpoint: url})
	if err != nil {
		return secret.Value{}, err
	}
	var made struct {
		Token string `json:"token"`
	}
	err = api.Ask(ctx, client.Native, http.MethodPost, "/join-tokens", nil, map[string]any{"note": "simulated"}, &made)
	return secret.New(made.Token), err
}

// Machine is a hypervisor in memory whose guests in rescue answer the channel.
type Machine struct {
	*fake.Hypervisor

	mu       sync.Mutex
	channels map[string]net.Listener
	opened   map[string][]string
}

// NewMachine makes one without guests.
func NewMachine() *Machine {
	return &Machine{Hypervisor: fake.New(), channels: map[string]net.Listener{}, opened: map[string][]string{}}
}

// Opened are the password hashes that a guest's newest rescue system was given, in their order.
func (m *Machine) Opened(id string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.opened[id])
}

// SetPower has a guest that boots its rescue system listen on its channel.
func (m *Machine) SetPower(ctx context.Context, id string, p hypervisor.Power) (bool, error) {
	soft, err := m.Hypervisor.SetPower(ctx, id, p)
	if err != nil {
		return soft, err
	}
	s, ok := m.State(id)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !ok || s.Runs == nil || s.Runs.Rescue == nil || s.Runs.ChannelPath == "" || s.Power != compute.PowerOn {
		m.hangUp(id)
		return soft, nil
	}
	if m.channels[id] != nil {
		return soft, nil
	}
	_ = os.Remove(s.Runs.ChannelPath)
	l, err := net.Listen("unix", s.Runs.ChannelPath)
	if err != nil {
		return soft, err
	}
	m.channels[id], m.opened[id] = l, nil
	go m.answer(id, l)
	return soft, nil
}

// Remove ends the guest and its channel.
func (m *Machine) Remove(ctx context.Context, id string) error {
	m.mu.Lock()
	m.hangUp(id)
	m.mu.Unlock()
	return m.Hypervisor.Remove(ctx, id)
}

// hangUp ends a guest's channel, if it has one.
func (m *Machine) hangUp(id string) {
	if l := m.channels[id]; l != nil {
		_ = l.Close()
		delete(m.channels, id)
	}
}

// answer is the rescue system's end of the channel.
func (m *Machine) answer(id string, l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			lines := bufio.NewScanner(conn)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				answer := agent.Unlocked{Version: agent.ChannelVersion, Agent: agent.Product + "sim", Fingerprint: Fingerprint}
				var order agent.Unlock
				if err := json.Unmarshal(lines.Bytes(), &order); err != nil || order.Hash == "" && len(order.Keys) == 0 {
					answer.Fingerprint, answer.Error = "", "no credential in the line"
				} else {
					m.mu.Lock()
					m.opened[id] = append(m.opened[id], order.Hash)
					m.mu.Unlock()
				}
				text, err := json.Marshal(answer)
				if err != nil {
					return
				}
				if _, err := conn.Write(append(text, '\n')); err != nil {
					return
				}
			}
		}()
	}
}
