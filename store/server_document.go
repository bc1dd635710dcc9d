package store

import (
	"context"
	"encoding/json"
	"fmt"

	"salvor/diagnose"
	"salvor/job"
)

// diagnosesKind is the kind of the document with the diagnoses of a server.
const diagnosesKind = "diagnoses"

var serverDocuments = documentTable{table: "server_document", owner: "Server", key: "server_id", sealed: func(string) bool { return true }}

// ServerDiagnoses is compute.DiagnosisStore's.
func (s serverTables) ServerDiagnoses(ctx context.Context, t job.Tx, serverID string) ([]diagnose.Record, error) {
	d, found, err := serverDocuments.read(ctx, s.storeCore, t, serverID, diagnosesKind)
	if err != nil || !found {
		return nil, err
	}
	var all []diagnose.Record
	if err := json.Unmarshal([]byte(d.body), &all); err != nil {
		return nil, fmt.Errorf("the diagnoses of server %s: %w", serverID, err)
	}
	return all, nil
}

// SaveServerDiagnoses is compute.DiagnosisStore's.
func (s serverTables) SaveServerDiagnoses(t job.Tx, serverID string, all []diagnose.Record) error {
	if len(all) == 0 {
		return serverDocuments.remove(s.storeCore, t, serverID, diagnosesKind)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return serverDocuments.save(s.storeCore, t, documentRow{ownerID: serverID, kind: diagnosesKind, body: string(text)})
}
