package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// sealedDocuments are sealed whole: whoever wrote them chose the keys, so no rule knows the secret ones.
var sealedDocuments = map[metal.DocumentKind]bool{metal.ConfigDrive: true, metal.Steps: true}

// Document is metal.DocumentStore's.
func (s nodeTables) Document(ctx context.Context, t job.Tx, nodeID string, kind metal.DocumentKind) (metal.Document, error) {
	d := metal.Document{NodeID: nodeID, Kind: kind}
	found := false
	err := s.read(ctx, t, func(r *sql.Rows) error {
		var created, updated int64
		var body string
		if err := r.Scan(&created, &updated, &body); err != nil {
			return err
		}
		found, d.CreatedAt, d.UpdatedAt, d.Body = true, fromMicros(created), fromMicros(updated), json.RawMessage(body)
		if !sealedDocuments[kind] {
			return nil
		}
		plain, err := s.key.Open(body, documentPlace(d))
		d.Body = json.RawMessage(plain.Reveal())
		return err
	}, `SELECT created_at, updated_at, body FROM document WHERE node_id = $1 AND kind = $2`, nodeID, string(kind))
	if err != nil {
		return metal.Document{}, fmt.Errorf("read %s of node %s: %w", kind, nodeID, err)
	}
	if !found {
		return metal.Document{}, problem.NotFoundf("Node %s has no %s.", nodeID, kind)
	}
	return d, nil
}

func documentPlace(d metal.Document) string { return "document:" + d.NodeID + ":" + string(d.Kind) }

// SaveDocument is metal.DocumentStore's; problem.NotFound if the node is gone.
func (s nodeTables) SaveDocument(t job.Tx, d metal.Document) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	body, now := string(d.Body), s.timestamp()
	if sealedDocuments[d.Kind] {
		if err := tx.seals(); err != nil {
			return err
		}
		body = s.key.Seal(secret.New(body), documentPlace(d))
	}
	if d.CreatedAt.IsZero() {
		d.CreatedAt = now
	}
	_, err = tx.exec(`INSERT INTO document (node_id, kind, created_at, updated_at, body) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (node_id, kind) DO UPDATE SET updated_at = excluded.updated_at, body = excluded.body`,
		d.NodeID, string(d.Kind), toMicros(d.CreatedAt), toMicros(now), body)
	switch {
	case err == nil:
		return nil
	case s.engine.violated(err) == foreignKey:
		return problem.NotFoundf("Node %s could not be found.", d.NodeID)
	}
	return fmt.Errorf("save %s of node %s: %w", d.Kind, d.NodeID, err)
}

// DeleteDocument is metal.DocumentStore's.
func (s nodeTables) DeleteDocument(t job.Tx, nodeID string, kind metal.DocumentKind) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	if _, err := tx.exec(`DELETE FROM document WHERE node_id = $1 AND kind = $2`, nodeID, string(kind)); err != nil {
		return fmt.Errorf("delete %s of node %s: %w", kind, nodeID, err)
	}
	return nil
}
