package store

import (
	"context"
	"encoding/json"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// sealedDocuments are sealed whole: whoever wrote them chose the keys, so no rule knows the secret ones.
var sealedDocuments = map[metal.DocumentKind]bool{metal.ConfigDrive: true, metal.Steps: true, metal.Diagnoses: true, metal.Repairs: true, metal.ConsoleLogDocument: true}

var nodeDocuments = documentTable{table: "document", owner: "Node", key: "node_id", sealed: func(kind string) bool { return sealedDocuments[metal.DocumentKind(kind)] }}

// Document is metal.DocumentStore's.
func (s nodeTables) Document(ctx context.Context, t job.Tx, nodeID string, kind metal.DocumentKind) (metal.Document, error) {
	d, found, err := nodeDocuments.read(ctx, s.storeCore, t, nodeID, string(kind))
	if err != nil {
		return metal.Document{}, err
	}
	if !found {
		return metal.Document{}, problem.NotFoundf("Node %s has no %s.", nodeID, kind)
	}
	return metal.Document{NodeID: nodeID, Kind: kind, CreatedAt: d.createdAt, UpdatedAt: d.updated, Body: json.RawMessage(d.body)}, nil
}

// SaveDocument is metal.DocumentStore's; problem.NotFound if the node is gone.
func (s nodeTables) SaveDocument(t job.Tx, d metal.Document) error {
	return nodeDocuments.save(s.storeCore, t, documentRow{ownerID: d.NodeID, kind: string(d.Kind), createdAt: d.CreatedAt, body: string(d.Body)})
}

// DeleteDocument is metal.DocumentStore's.
func (s nodeTables) DeleteDocument(t job.Tx, nodeID string, kind metal.DocumentKind) error {
	return nodeDocuments.remove(s.storeCore, t, nodeID, string(kind))
}
