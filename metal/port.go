package metal

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
)

// Ports is the service that changes ports by the rules.
type Ports struct {
	store Store
	jobs  Jobs
	nodes *Nodes
}

// NewPorts makes the service.
func NewPorts(store Store, jobs Jobs, nodes *Nodes) *Ports {
	return &Ports{store: store, jobs: jobs, nodes: nodes}
}

// Port reads a port by UUID, name or MAC.
func (s *Ports) Port(ctx context.Context, ident string) (*Port, error) {
	return s.store.Port(ctx, nil, ident)
}

// List reads a page of ports.
func (s *Ports) List(ctx context.Context, f PortFilter, p Page) ([]*Port, error) {
	return s.store.Ports(ctx, f, p)
}

// ParseMAC reads a 48 bit MAC in any usual form and writes it in lower case with colons.
func ParseMAC(s string) (string, error) {
	digits, ok := macDigits(strings.ToLower(strings.TrimSpace(s)))
	if !ok {
		return "", problem.Invalidf("Expected a MAC address but received %s.", s)
	}
	var out strings.Builder
	for i := 0; i < len(digits); i += 2 {
		if i > 0 {
			out.WriteByte(':')
		}
		out.WriteString(digits[i : i+2])
	}
	return out.String(), nil
}

// macDigits takes the separators out of 01:23:45:67:89:ab, 01-23-45-67-89-ab or
// 0123.4567.89ab, or finds none in 0123456789ab.
func macDigits(s string) (string, bool) {
	const digits = 12
	width, sep := 2, ":"
	switch {
	case strings.Contains(s, "-"):
		sep = "-"
	case strings.Contains(s, "."):
		width, sep = 4, "."
	}
	parts := strings.Split(s, sep)
	if len(parts) == 1 {
		width = digits
	}
	if len(parts) != digits/width {
		return "", false
	}
	for _, p := range parts {
		if len(p) != width || strings.Trim(p, "0123456789abcdef") != "" {
			return "", false
		}
	}
	return strings.Join(parts, ""), true
}

func (p *Port) check() error {
	mac, err := ParseMAC(p.Address)
	if err != nil {
		return err
	}
	p.Address = mac
	return checkName(p.Name)
}

// Create adds a port to an existing, unlocked node.
func (s *Ports) Create(ctx context.Context, p *Port, who Asker) error {
	if p.ID == "" {
		p.ID = uuid.NewString()
	}
	if !IsUUID(p.ID) {
		return problem.Invalidf("Expected a UUID but received %s.", p.ID)
	}
	if err := p.check(); err != nil {
		return err
	}
	p.CreatedAt = s.nodes.now()
	return s.change(ctx, p.NodeID, who, "port "+p.Address+" created", func(tx job.Tx) error {
		return s.store.InsertPort(tx, p)
	})
}

// Update changes a port. A port of a node in use cannot move to another node or change
// what its boot depends on, unless the node is in maintenance.
func (s *Ports) Update(ctx context.Context, ident string, who Asker, edit func(*Port) error) (*Port, error) {
	old, err := s.store.Port(ctx, nil, ident)
	if err != nil {
		return nil, err
	}
	p := *old
	if err := edit(&p); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	n, err := s.store.Node(ctx, nil, old.NodeID)
	if err != nil {
		return nil, err
	}
	bound := n.InstanceUUID != "" || n.ProvisionState.RescueState()
	if bound && !n.Maintenance && (p.Address != old.Address || p.NodeID != old.NodeID) {
		return nil, problem.Conflictf("Cannot update port %s: node %s is in use; put it in maintenance first", old.ID, n.ID)
	}
	err = s.change(ctx, old.NodeID, who, "port "+p.Address+" updated", func(tx job.Tx) error {
		if p.NodeID != old.NodeID {
			if _, err := s.store.Node(ctx, tx, p.NodeID); err != nil {
				return err
			}
		}
		return s.store.SavePort(tx, &p)
	})
	if err != nil {
		return nil, err
	}
	return s.store.Port(ctx, nil, p.ID)
}

// Remove deletes a port.
func (s *Ports) Remove(ctx context.Context, ident string, who Asker) error {
	p, err := s.store.Port(ctx, nil, ident)
	if err != nil {
		return err
	}
	n, err := s.store.Node(ctx, nil, p.NodeID)
	if err != nil {
		return err
	}
	if (n.InstanceUUID != "" || n.ProvisionState.RescueState()) && !n.Maintenance {
		return problem.Conflictf("Cannot delete the port %s as node %s is in use; put it in maintenance first", p.ID, n.ID)
	}
	return s.change(ctx, p.NodeID, who, "port "+p.Address+" deleted", func(tx job.Tx) error {
		return s.store.DeletePort(tx, p)
	})
}

func (s *Ports) change(ctx context.Context, nodeID string, who Asker, words string, do func(job.Tx) error) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, nodeID)
		if problem.Is(err, problem.NotFound) {
			return problem.Invalidf("Invalid input for field/attribute node_uuid. Value: '%s'. node %s could not be found", nodeID, nodeID)
		}
		if err != nil {
			return err
		}
		if n.Reservation != "" {
			return Locked(n)
		}
		if err := do(tx); err != nil {
			return err
		}
		return s.nodes.note(tx, n.ID, who, "request", words)
	})
}
