package metal

import (
	"context"
	"encoding/json"

	"salvor/job"
	"salvor/problem"
)

// readList reads the list that a document of a node holds; nil: there is no document.
func readList[E any](ctx context.Context, store Store, tx job.Tx, nodeID string, kind DocumentKind) (all []E, err error) {
	doc, err := store.Document(ctx, tx, nodeID, kind)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(doc.Body, &all)
}

// saveList writes a list as a document of a node. It writes the row of the node too, so that of two transactions that change the list one begins again.
func saveList[E any](s *Nodes, tx job.Tx, n *Node, kind DocumentKind, all []E) error {
	body, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := s.store.SaveNode(tx, n); err != nil {
		return err
	}
	return s.store.SaveDocument(tx, Document{NodeID: n.ID, Kind: kind, Body: body, CreatedAt: s.now(), UpdatedAt: s.now()})
}
