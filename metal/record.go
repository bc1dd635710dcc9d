package metal

import (
	"context"
	"encoding/json"
	"time"

	"salvor/job"
	"salvor/problem"
)

// parent reads the node that a record belongs to. That a new record names no node is the asker's mistake, no missing page.
func (s *Nodes) parent(ctx context.Context, tx job.Tx, id string, isNew bool) (*Node, error) {
	n, err := s.store.Node(ctx, tx, id)
	if isNew && problem.Is(err, problem.NotFound) {
		return nil, problem.Invalidf("Invalid input for field/attribute node_uuid. Value: '%s'. Node %s could not be found.", id, id)
	}
	return n, err
}

// checkNewParent refuses (Invalid) a move to a node that does not exist. As with Ironic, it is asked before the state of the old node.
func (s *Nodes) checkNewParent(ctx context.Context, tx job.Tx, from, to string) error {
	if from == to {
		return nil
	}
	_, err := s.parent(ctx, tx, to, true)
	return err
}

// checkMove holds a record's move to another node to what holds there: the node exists and is not locked.
func (s *Nodes) checkMove(ctx context.Context, tx job.Tx, from, to string) error {
	if from == to {
		return nil
	}
	n, err := s.parent(ctx, tx, to, true)
	if err == nil && n.Reservation != "" {
		err = Locked(n)
	}
	return err
}

// DocumentKind names what is kept of a node beside its record.
type DocumentKind string

const (
	// ConfigDrive of the instance: a JSON string (base64 of a gzipped ISO, or a URL) or object; sealed at rest.
	ConfigDrive DocumentKind = "configdrive"
	// Inventory is what the last inspection found, as the agent's inventory; PluginData what it found beside.
	Inventory  DocumentKind = "inventory"
	PluginData DocumentKind = "plugin_data"
	// BIOSSettings and Firmware are what the BMC last told.
	BIOSSettings DocumentKind = "bios"
	Firmware     DocumentKind = "firmware"
	// Steps are the clean, deploy or service steps that the operation in progress works off; they may hold secrets and are sealed at rest.
	Steps DocumentKind = "steps"
)

// Document is what is kept of a node beside its record; it goes with the node.
type Document struct {
	NodeID               string
	Kind                 DocumentKind
	Body                 json.RawMessage
	CreatedAt, UpdatedAt time.Time
}

// DocumentStore keeps documents of nodes.
type DocumentStore interface {
	// Document reads one; problem.NotFound if there is none.
	Document(ctx context.Context, tx job.Tx, nodeID string, kind DocumentKind) (Document, error)
	// SaveDocument writes one over what was there.
	SaveDocument(tx job.Tx, d Document) error
	// DeleteDocument removes one; none is no error.
	DeleteDocument(tx job.Tx, nodeID string, kind DocumentKind) error
}
