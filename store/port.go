package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

var portFields = []string{"id", "version", "node_id", "address", "name", "portgroup_id", "physical_network", "pxe_enabled", "is_smartnic",
	"created_at", "updated_at", "body"}

var (
	selectPorts = `SELECT p.` + strings.Join(portFields, ", p.") + ` FROM port p`
	insertPort  = `INSERT INTO port (` + strings.Join(portFields, ", ") + `) VALUES (` + placeholders(1, len(portFields)) + `) ON CONFLICT DO NOTHING`
	updatePort  = updateText("port", portFields)
)

// portBody is the part of a port that nobody searches or sorts by.
type portBody struct {
	LocalLink    metal.Object `json:"local_link,omitempty"`
	Extra        metal.Object `json:"extra,omitempty"`
	InternalInfo metal.Object `json:"internal_info,omitempty"`
}

func portArgs(p *metal.Port) ([]any, error) {
	body, err := json.Marshal(portBody{p.LocalLink, p.Extra, p.InternalInfo})
	if err != nil {
		return nil, problem.Invalidf("port %s: %w", p.ID, err)
	}
	return []any{p.ID, p.Version, p.NodeID, p.Address, p.Name, p.PortgroupID, p.PhysicalNetwork, p.PXEEnabled, p.IsSmartNIC,
		micros(p.CreatedAt), micros(p.UpdatedAt), string(body)}, nil
}

func scanPort(r *sql.Rows) (*metal.Port, error) {
	p := &metal.Port{}
	var created, updated int64
	var text string
	err := r.Scan(&p.ID, &p.Version, &p.NodeID, &p.Address, &p.Name, &p.PortgroupID, &p.PhysicalNetwork, &p.PXEEnabled, &p.IsSmartNIC,
		&created, &updated, &text)
	if err != nil {
		return nil, err
	}
	var b portBody
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return nil, fmt.Errorf("port %s: %w", p.ID, err)
	}
	p.LocalLink, p.Extra, p.InternalInfo = b.LocalLink, b.Extra, b.InternalInfo
	fill(&p.LocalLink, &p.Extra, &p.InternalInfo)
	p.CreatedAt, p.UpdatedAt = moment(created), moment(updated)
	return p, nil
}

func (s *Store) ports(ctx context.Context, t job.Tx, text string, args ...any) ([]*metal.Port, error) {
	var out []*metal.Port
	err := s.read(ctx, t, func(r *sql.Rows) error {
		p, err := scanPort(r)
		out = append(out, p)
		return err
	}, text, args...)
	if err != nil {
		return nil, fmt.Errorf("read ports: %w", err)
	}
	return out, nil
}

// Port is metal.PortStore's.
func (s *Store) Port(ctx context.Context, t job.Tx, ident string) (*metal.Port, error) {
	out, err := s.ports(ctx, t, selectPorts+` WHERE p.id = COALESCE((SELECT id FROM port WHERE id = $1),
		(SELECT id FROM port WHERE name = $1 AND name <> ''), (SELECT id FROM port WHERE address = $2))`, ident, strings.ToLower(ident))
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, problem.NotFoundf("Port %s could not be found.", ident)
	}
	return out[0], nil
}

// InsertPort is metal.PortStore's.
func (s *Store) InsertPort(t job.Tx, p *metal.Port) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	tx.keepStamps(&p.Version, &p.CreatedAt, &p.UpdatedAt)
	p.Address = strings.ToLower(p.Address)
	if p.CreatedAt.IsZero() {
		p.CreatedAt = s.stamp()
	}
	if p.Version == 0 {
		p.Version = 1
	}
	args, err := portArgs(p)
	if err != nil {
		return err
	}
	rows, err := tx.exec(insertPort, args...)
	if err == nil && rows == 1 {
		return nil
	}
	if err != nil {
		return s.portRefused(err, p, "insert")
	}
	return s.whichPort(tx, p)
}

// whichPort says which of a new port's names is taken.
func (s *Store) whichPort(tx *Tx, p *metal.Port) error {
	found, err := s.ports(tx.ctx, tx, selectPorts+` WHERE p.id = $1 OR p.address = $2 ORDER BY CASE WHEN p.id = $1 THEN 0 ELSE 1 END`, p.ID, p.Address)
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return portTaken("port.name", p, nil)
	case found[0].ID == p.ID:
		return problem.Conflictf("A port with UUID %s already exists.", p.ID)
	}
	return portTaken("port.address", p, nil)
}

// portTaken turns a violated rule into what the user reads; nil if it is no rule of ports.
func portTaken(rule string, p *metal.Port, err error) error {
	if err == nil {
		err = errors.New(rule)
	}
	switch rule {
	case "port.address":
		return conflict(err, "A port with MAC address %s already exists.", p.Address)
	case "port.name":
		return conflict(err, "A port with name %s already exists.", p.Name)
	}
	return nil
}

func (s *Store) portRefused(err error, p *metal.Port, verb string) error {
	rule := s.engine.violated(err)
	if rule == foreignKey {
		return problem.NotFoundf("Node %s could not be found.", p.NodeID)
	}
	if taken := portTaken(rule, p, err); taken != nil {
		return taken
	}
	return fmt.Errorf("%s port %s: %w", verb, p.ID, err)
}

// SavePort is metal.PortStore's.
func (s *Store) SavePort(t job.Tx, p *metal.Port) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	tx.keepStamps(&p.Version, &p.UpdatedAt)
	former, at := p.Version, p.UpdatedAt
	p.Version, p.UpdatedAt, p.Address = former+1, s.stamp(), strings.ToLower(p.Address)
	args, err := portArgs(p)
	var rows int64
	if err == nil {
		rows, err = tx.exec(updatePort, args...)
	}
	if err == nil && rows == 1 {
		return nil
	}
	p.Version, p.UpdatedAt = former, at
	if err == nil {
		return problem.Conflictf("Port %s has been changed by another request; please retry.", p.ID)
	}
	return s.portRefused(err, p, "save")
}

// DeletePort is metal.PortStore's.
func (s *Store) DeletePort(t job.Tx, p *metal.Port) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	rows, err := tx.exec(`DELETE FROM port WHERE id = $1 AND version = $2`, p.ID, p.Version)
	if err != nil {
		return fmt.Errorf("delete port %s: %w", p.ID, err)
	}
	if rows == 0 {
		return problem.Conflictf("Port %s has been changed by another request; please retry.", p.ID)
	}
	return nil
}

// Ports is metal.PortStore's.
func (s *Store) Ports(ctx context.Context, f metal.PortFilter, p metal.Page) ([]*metal.Port, error) {
	c := &clause{}
	text := selectPorts
	if f.Owner != "" || f.Project != "" || f.ConductorGroup != "" {
		text += ` JOIN node n ON n.id = p.node_id`
	}
	c.equal("p.node_id", f.NodeID)
	c.equal("p.address", strings.ToLower(f.Address))
	c.equal("p.portgroup_id", f.PortgroupID)
	c.equal("n.owner", f.Owner)
	c.equal("n.conductor_group", f.ConductorGroup)
	if f.Project != "" {
		mark := c.arg(f.Project)
		c.and(`(n.owner = ` + mark + ` OR n.lessee = ` + mark + `)`)
	}
	if f.MACs != nil {
		macs := make([]string, len(f.MACs))
		for i, mac := range f.MACs {
			macs[i] = strings.ToLower(mac)
		}
		c.and(c.in("p.address", macs))
	}
	order, err := c.page(p, "port", "p", portSort)
	if err != nil {
		return nil, err
	}
	out, err := s.ports(ctx, nil, text+c.where()+order, c.args...)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 && p.Marker != "" {
		if ok, err := s.exists(ctx, "port", p.Marker); err != nil || !ok {
			return nil, missing(err, "Port %s could not be found.", p.Marker)
		}
	}
	return out, nil
}

// exists tells whether a table has a row with the id.
func (s *Store) exists(ctx context.Context, table, id string) (bool, error) {
	found := false
	err := s.read(ctx, nil, func(*sql.Rows) error { found = true; return nil }, `SELECT 1 FROM `+table+` WHERE id = $1`, id)
	return found, err
}

// missing is err, or that there is no such row.
func missing(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return problem.NotFoundf(format, args...)
}
