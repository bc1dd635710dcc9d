package store

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/test/must"
)

// recorder notes every statement on its way to the engine.
type recorder struct {
	sqlEngine
	sent map[string][]any
}

type recording struct {
	statementRunner
	sent map[string][]any
}

func (r *recorder) reader() statementRunner { return recording{r.sqlEngine.reader(), r.sent} }

func (r *recorder) do(ctx context.Context, fn func(context.Context, statementRunner) error) error {
	return r.sqlEngine.do(ctx, func(ctx context.Context, run statementRunner) error { return fn(ctx, recording{run, r.sent}) })
}

func (r recording) exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	r.sent[text] = args
	return r.statementRunner.exec(ctx, text, args...)
}

func (r recording) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	r.sent[text] = args
	return r.statementRunner.query(ctx, text, args...)
}

// TestNoScan holds that what is asked often finds its rows by an index, however
// many nodes and jobs there are. The tables of conductors are small.
func TestNoScan(t *testing.T) {
	s := openHere(t)
	r := &recorder{s.engine, map[string][]any{}}
	s.engine = r
	ctx := t.Context()
	n := &metal.Node{ID: "n", ProvisionState: metal.Active, Plan: &metal.BootPlan{Path: "p", MACs: []string{"m"}}}
	j := &job.Job{ID: "j", Kind: "work", Subject: job.Node("n")}
	do := func(fn func(job.Tx) error) {
		t.Helper()
		if err := s.Do(ctx, fn); err != nil && !problem.Is(err, problem.Conflict) {
			t.Fatal(err)
		}
	}
	do(func(tx job.Tx) error { return s.InsertNode(tx, n) })
	do(func(tx job.Tx) error { return s.SaveNode(tx, n) })
	do(func(tx job.Tx) error { return s.SaveContact(tx, metal.Contact{NodeID: "n"}) })
	do(func(tx job.Tx) error { return s.Insert(tx, j) })
	do(func(tx job.Tx) error { return s.Append(tx, job.Event{Subject: job.Node("n")}) })
	jobs, err := s.Claim(ctx, "c/1", time.Now(), []string{"", "north"}, map[job.Kind]int{"work": 0, "other": 1}, 5)
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	jobs[0].State = job.Waiting
	do(func(tx job.Tx) error { return s.Save(tx, &jobs[0], false) })
	do(func(tx job.Tx) error {
		return s.Insert(tx, &job.Job{ID: "c", Kind: "work", Class: job.Command, Subject: job.Node("n")})
	})
	do(func(tx job.Tx) error { return s.Signal(tx, job.Node("n")) })
	command, err := s.Claim(ctx, "c/1", time.Now(), []string{""}, map[job.Kind]int{"work": 0}, 5)
	if err != nil || len(command) != 1 {
		t.Fatal(command, err)
	}
	command[0].State = job.Waiting
	do(func(tx job.Tx) error { return s.Save(tx, &command[0], false) })
	do(func(tx job.Tx) error { return s.Interrupt(tx, "c", job.Ended, nil) })
	do(func(tx job.Tx) error { _, err := s.MarkTokenTold(tx, "n", 1); return err })
	for _, read := range []func() error{
		func() error { _, err := s.Node(ctx, nil, "n"); return err },
		func() error { _, err := s.NodeMark(ctx, "n"); return err },
		func() error { _, err := s.MarkedNodes(ctx, []int64{1, 2}, metal.WholeNode); return err },
		func() error { _, err := s.PortTable().Marked(ctx, []int64{1, 2}); return err },
		func() error {
			_, err := s.ListNodeMarks(ctx, metal.NodeFilter{InstanceUUID: "i"}, record.Page{})
			return err
		},
		func() error {
			_, err := s.Nodes(ctx, nil, metal.NodeFilter{ConsoleEnabled: true}, record.Page{Limit: 9})
			return err
		},
		func() error { _, err := s.NodeByMAC(ctx, "m"); return err },
		func() error { _, err := s.NodeByBootPath(ctx, "p"); return err },
		func() error {
			_, err := s.Nodes(ctx, nil, metal.NodeFilter{InstanceUUID: "i"}, record.Page{})
			return err
		},
		func() error { _, err := s.Contacts(ctx, []string{"n", "m"}); return err },
		func() error { _, err := s.Ports(ctx, metal.PortFilter{NodeID: "n"}, record.Page{Limit: 9}); return err },
		func() error { _, err := s.NodesOfMACs(ctx, []string{"m"}); return err },
		func() error { _, err := s.Ports(ctx, metal.PortFilter{PortgroupID: "g"}, record.Page{}); return err },
		func() error {
			_, err := s.Nodes(ctx, nil, metal.NodeFilter{ParentNode: "n"}, record.Page{})
			return err
		},
		func() error {
			_, err := s.Nodes(ctx, nil, metal.NodeFilter{ChassisUUID: "c"}, record.Page{})
			return err
		},
		func() error {
			_, err := s.Nodes(ctx, nil, metal.NodeFilter{Shards: []string{"a", "b"}}, record.Page{})
			return err
		},
		func() error { _, err := s.Document(ctx, nil, "n", metal.Inventory); return missed(err) },
		func() error { return looks(ctx, s.Portgroups(), metal.PortgroupFilter{NodeID: "n"}) },
		func() error { return looks(ctx, s.Portgroups(), metal.PortgroupFilter{Address: "m"}) },
		func() error { return looks(ctx, s.Connectors(), metal.ConnectorFilter{NodeID: "n"}) },
		func() error { return looks(ctx, s.Connectors(), metal.ConnectorFilter{Type: "iqn", ConnectorID: "c"}) },
		func() error { return looks(ctx, s.Targets(), metal.TargetFilter{NodeID: "n"}) },
		func() error { return looks(ctx, s.Allocations(), metal.AllocationFilter{NodeID: "n"}) },
		func() error {
			return looks(ctx, s.DeployTemplates(), metal.DeployTemplateFilter{Names: []string{"a", "b"}})
		},
		func() error { _, err := s.Runbooks().Get(ctx, nil, "r"); return missed(err) },
		func() error { _, err := s.Unended(nil, job.Node("n")); return err },
		func() error { _, err := s.Job(ctx, nil, "j"); return err },
		func() error { _, err := s.Events(ctx, job.Node("n"), 3, 5); return err },
		func() error { _, err := s.Latest(ctx, job.Node("n"), 5); return err },
		func() error {
			_, err := s.Expired(ctx, []string{"", "north"}, map[job.Kind]int{"work": 1}, job.Job{}, 5)
			return err
		},
		func() error { _, err := s.NextDue(ctx, []string{"", "north"}, map[job.Kind]int{"work": 1}); return err },
		func() error {
			_, err := s.ClaimPower(ctx, metal.PowerTurn{Groups: []string{"", "north"}, Now: time.Now(), Next: time.Now().Add(time.Hour)}, 9)
			return err
		},
		func() error { return s.SavePower(ctx, []metal.PowerReading{{NodeID: "n"}}) },
		func() error { return s.Retire(ctx, job.Conductor{ID: "c", Incarnation: "1"}) },
		func() error { _, err := s.ReleaseOrphans(ctx); return err },
		func() error { _, err := s.Prune(ctx, time.Now(), time.Now(), 0); return err },
	} {
		must.OK(t, read())
	}
	if _, err := s.Port(ctx, nil, "p"); !problem.Is(err, problem.NotFound) {
		t.Fatal(err)
	}
	if len(r.sent) < 30 {
		t.Fatalf("only %d statements were seen", len(r.sent))
	}
	for text, args := range r.sent {
		for _, step := range explain(t, s, text, args) {
			for _, table := range []string{"n", "node", "job", "l", "port", "t", "event", "e", "contact", "k", "boot_mac", "b", "power_turn"} {
				if strings.HasPrefix(step+" ", "SCAN "+table+" ") && !strings.Contains(step, "INDEX job_owner") && !strings.Contains(step, "INDEX node_console") {
					t.Errorf("%s:\n%s", step, text)
				}
			}
		}
	}
}

// looks lists by a filter and finds one by its name.
func looks[R, F any](ctx context.Context, t record.Table[R, F], f F) error {
	if _, err := t.List(ctx, nil, f, record.Page{}); err != nil {
		return err
	}
	_, err := t.Get(ctx, nil, "nobody")
	return missed(err)
}

// missed lets pass that there is no such record.
func missed(err error) error {
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

func explain(t *testing.T, s *Store, text string, args []any) (steps []string) {
	t.Helper()
	e := s.engine.(*recorder).sqlEngine.(*sqliteEngine)
	rows := must.Get(e.read.Query("EXPLAIN QUERY PLAN "+text, args...))(t)
	defer rows.Close()
	for rows.Next() {
		var a, b, c int
		var step string
		must.OK(t, rows.Scan(&a, &b, &c, &step))
		steps = append(steps, step)
	}
	return steps
}

func openHere(t *testing.T) *Store {
	t.Helper()
	key := must.Get(secret.NewKey(secret.GenerateKey()))(t)
	s := must.Get(Open(t.Context(), fmt.Sprint("sqlite:", filepath.Join(t.TempDir(), "s.db")), key, Options{NoSync: true}))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}
