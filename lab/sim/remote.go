package sim

import (
	"context"
	"encoding/json"
	"net"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/secret"
)

// question and reply are one call of a hypervisor that lives in another process: one connection each.
type question struct {
	Method string
	ID     string
	Domain hypervisor.Domain
	CHAP   map[string]string
	Power  hypervisor.Power
}

type reply struct {
	Inventory   compute.Inventory
	Guests      []compute.Guest
	Files       [][]string // of each guest, which its own JSON leaves out
	Soft        bool
	Kind, Error string
}

// Serve gives the machine to agents in other processes until l is closed: they may die, its guests stay.
func (m *Machine) Serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var q question
			if json.NewDecoder(conn).Decode(&q) == nil {
				_ = json.NewEncoder(conn).Encode(m.carryOut(q))
			}
		}()
	}
}

func (m *Machine) carryOut(q question) (r reply) {
	ctx, err := context.Background(), error(nil)
	switch q.Method {
	case "Inventory":
		r.Inventory, err = m.Inventory(ctx)
	case "Guests":
		r.Guests, err = m.Guests(ctx)
		for _, g := range r.Guests {
			r.Files = append(r.Files, g.Files)
		}
	case "Define":
		q.Domain.CHAP = map[string]secret.Value{}
		for volume, password := range q.CHAP {
			q.Domain.CHAP[volume] = secret.New(password)
		}
		err = m.Define(ctx, q.Domain)
	case "SetPower":
		r.Soft, err = m.SetPower(ctx, q.ID, q.Power)
	case "Remove":
		err = m.Remove(ctx, q.ID)
	default:
		err = problem.Unsupportedf("a machine knows no %q", q.Method)
	}
	if err != nil {
		r.Kind, r.Error = problem.KindOf(err).String(), err.Error()
	}
	return r
}

// Remote is a machine in another process, by the unix socket where it serves.
type Remote string

var _ hypervisor.Hypervisor = Remote("")

func (s Remote) ask(ctx context.Context, q question) (reply, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", string(s))
	if err != nil {
		return reply{}, problem.Unavailablef("%s: %w", q.Method, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var r reply
	err = json.NewEncoder(conn).Encode(q)
	if err == nil {
		err = json.NewDecoder(conn).Decode(&r)
	}
	switch {
	case err != nil:
		return reply{}, problem.Unavailablef("%s: %w", q.Method, err)
	case r.Kind != "":
		return r, problem.New(problem.ParseKind(r.Kind), "%s", r.Error)
	}
	return r, nil
}

// Inventory asks the machine for its own.
func (s Remote) Inventory(ctx context.Context) (compute.Inventory, error) {
	r, err := s.ask(ctx, question{Method: "Inventory"})
	return r.Inventory, err
}

// Guests asks the machine for its guests.
func (s Remote) Guests(ctx context.Context) ([]compute.Guest, error) {
	r, err := s.ask(ctx, question{Method: "Guests"})
	for i := range min(len(r.Guests), len(r.Files)) {
		r.Guests[i].Files = r.Files[i]
	}
	return r.Guests, err
}

// Define defines a guest in the machine.
func (s Remote) Define(ctx context.Context, d hypervisor.Domain) error {
	q := question{Method: "Define", Domain: d, CHAP: map[string]string{}}
	for volume, password := range d.CHAP {
		q.CHAP[volume] = password.Reveal()
	}
	q.Domain.CHAP = nil
	_, err := s.ask(ctx, q)
	return err
}

// SetPower switches a guest of the machine.
func (s Remote) SetPower(ctx context.Context, id string, p hypervisor.Power) (bool, error) {
	r, err := s.ask(ctx, question{Method: "SetPower", ID: id, Power: p})
	return r.Soft, err
}

// Remove takes a guest from the machine.
func (s Remote) Remove(ctx context.Context, id string) error {
	_, err := s.ask(ctx, question{Method: "Remove", ID: id})
	return err
}
