package storetest

import (
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/diagnose"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// testServerDiagnoses: the diagnoses of a server are kept as they were saved, and end with the row of the server.
func testServerDiagnoses(b *testEnv) {
	srv := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: "web1", State: compute.Stopped}
	b.do(func(tx job.Tx) error { return b.s.Servers().Insert(tx, srv) })
	if none := must.Get(b.s.ServerDiagnoses(b.ctx, nil, srv.ID))(b); len(none) != 0 {
		b.Errorf("a new server has %d diagnoses", len(none))
	}
	first := diagnose.Record{ID: "d1", RequestedAt: time.Unix(1, 0).UTC(), State: diagnose.Running}
	second := diagnose.Record{ID: "d2", RequestedAt: time.Unix(2, 0).UTC(), State: diagnose.Finished, Report: diagnose.Report{Findings: []diagnose.Finding{{ID: "fstab-device-missing"}}}}
	for _, all := range [][]diagnose.Record{{first}, {second, first}} {
		b.do(func(tx job.Tx) error { return b.s.SaveServerDiagnoses(tx, srv.ID, all) })
		kept := must.Get(b.s.ServerDiagnoses(b.ctx, nil, srv.ID))(b)
		if len(kept) != len(all) || kept[0].ID != all[0].ID || !kept[0].RequestedAt.Equal(all[0].RequestedAt) || len(kept[0].Report.Findings) != len(all[0].Report.Findings) {
			b.Errorf("saved %+v, kept %+v", all, kept)
		}
	}
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error {
		return b.s.SaveServerDiagnoses(tx, uuid.NewString(), []diagnose.Record{first})
	}), problem.NotFound, "")
	b.do(func(tx job.Tx) error { return b.s.SaveServerDiagnoses(tx, srv.ID, nil) })
	if none := must.Get(b.s.ServerDiagnoses(b.ctx, nil, srv.ID))(b); len(none) != 0 {
		b.Errorf("%d diagnoses are left", len(none))
	}
}
