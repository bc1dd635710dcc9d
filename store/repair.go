package store

import (
	"context"
	"database/sql"
	"fmt"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// RepairPart is metal.RepairStore's.
func (s nodeTables) RepairPart(ctx context.Context, t job.Tx, nodeID, repairID, name string) (metal.RepairPart, error) {
	p, found := metal.RepairPart{NodeID: nodeID, RepairID: repairID, Name: name}, false
	err := s.read(ctx, t, func(r *sql.Rows) error {
		var body string
		if err := r.Scan(&body); err != nil {
			return err
		}
		plain, err := s.key.Open(body, repairPartPlace(nodeID, repairID, name))
		found, p.Body = true, []byte(plain.Reveal())
		return err
	}, `SELECT body FROM repair_part WHERE node_id = $1 AND repair_id = $2 AND name = $3`, nodeID, repairID, name)
	if err != nil {
		return metal.RepairPart{}, fmt.Errorf("read %s of repair %s of node %s: %w", name, repairID, nodeID, err)
	}
	if !found {
		return metal.RepairPart{}, problem.NotFoundf("Repair %s of node %s has no %s.", repairID, nodeID, name)
	}
	return p, nil
}

func repairPartPlace(nodeID, repairID, name string) string {
	return "repair_part:" + nodeID + ":" + repairID + ":" + name
}

// SaveRepairPart is metal.RepairStore's.
func (s nodeTables) SaveRepairPart(t job.Tx, p metal.RepairPart) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	if err := tx.seals(); err != nil {
		return err
	}
	body := s.key.Seal(secret.New(string(p.Body)), repairPartPlace(p.NodeID, p.RepairID, p.Name))
	_, err = tx.exec(`INSERT INTO repair_part (node_id, repair_id, name, body, saved_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (node_id, repair_id, name) DO UPDATE SET body = excluded.body, saved_at = excluded.saved_at`,
		p.NodeID, p.RepairID, p.Name, body, toMicros(s.timestamp()))
	switch {
	case err == nil:
		return nil
	case s.engine.violated(err) == foreignKey:
		return problem.NotFoundf("Node %s could not be found.", p.NodeID)
	}
	return fmt.Errorf("save %s of repair %s of node %s: %w", p.Name, p.RepairID, p.NodeID, err)
}

// RepairSizes is metal.RepairStore's. Both engines know the length of a body without reading the body.
func (s nodeTables) RepairSizes(ctx context.Context, t job.Tx, project string) (sizes []metal.RepairSize, err error) {
	err = s.read(ctx, t, func(r *sql.Rows) error {
		var z metal.RepairSize
		err := r.Scan(&z.NodeID, &z.RepairID, &z.Bytes)
		sizes = append(sizes, z)
		return err
	}, `SELECT p.node_id, p.repair_id, SUM(octet_length(p.body)) FROM repair_part p JOIN node n ON n.id = p.node_id
		WHERE COALESCE(NULLIF(n.lessee, ''), n.owner) = $1
		GROUP BY p.node_id, p.repair_id ORDER BY MAX(p.saved_at), p.node_id, p.repair_id`, project)
	if err != nil {
		return nil, fmt.Errorf("read the sizes of the repairs of project %q: %w", project, err)
	}
	return sizes, nil
}

// DropRepairParts is metal.RepairStore's.
func (s nodeTables) DropRepairParts(t job.Tx, nodeID string, keep []string) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	c := &whereClause{}
	c.and("node_id = " + c.arg(nodeID))
	for _, id := range keep {
		c.and("repair_id <> " + c.arg(id))
	}
	if _, err := tx.exec(`DELETE FROM repair_part`+c.where(), c.args...); err != nil {
		return fmt.Errorf("drop repairs of node %s: %w", nodeID, err)
	}
	return nil
}
