package node

import (
	"context"
	"encoding/json"
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/test/must"
)

// TestFinalizeBringsTheStoredConfigDrive: a machine without a disk of its own still gets the network of its config drive.
func TestFinalizeBringsTheStoredConfigDrive(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	const drive = `{"network_data":{"links":[]}}`
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
		return b.store.SaveDocument(tx, metal.Document{NodeID: b.node, Kind: metal.ConfigDrive, Body: json.RawMessage(drive)})
	}))
	b.run(t)
	b.start(t, metal.ToRescue)
	b.pokes(t, metal.Rescue)
	if b.finalDrive != drive {
		t.Errorf("finalize came with the config drive %q, want %q", b.finalDrive, drive)
	}
}
