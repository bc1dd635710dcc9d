package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/store/storetest"
	"salvor/test/must"
)

// TestRowsOfNodes: a part of a node is all of it but what is kept as JSON.
func TestRowsOfNodes(t *testing.T) {
	for name, fresh := range map[string]func(testing.TB) storetest.Database{"sqlite": storetest.CopiedSQLite, "postgres": storetest.CopiedPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.Open(t, fresh(t))
			n := &metal.Node{ID: "n", Name: "one", ProvisionState: metal.Active, Extra: metal.Object{"k": "v"}, Interfaces: map[string]string{"boot": "ipxe"}}
			must.OK(t, s.Do(t.Context(), func(tx job.Tx) error { return s.InsertNode(tx, n) }))
			m := must.Get(s.NodeMark(t.Context(), "n"))(t)
			rows, err := s.MarkedNodes(t.Context(), []int64{m.Num}, metal.NodeRow)
			if got := rows[m.Num]; err != nil || got == nil || got.Name != "one" || got.ProvisionState != metal.Active || len(got.Extra)+len(got.Interfaces) > 0 {
				t.Errorf("%+v: %v", got, err)
			}
		})
	}
}

// TestPlansOfPostgres: with many rows, what is asked often is found by an index, and the timeline of a node by that of each part.
func TestPlansOfPostgres(t *testing.T) {
	t.Parallel()
	d := storetest.CopiedPostgres(t)
	s := storetest.Open(t, d)
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error {
		return s.InsertNode(tx, &metal.Node{ID: "node-0", Driver: "fake-hardware", ProvisionState: metal.Active})
	}))
	columns := strings.Join(queryColumn(t, d, `SELECT attname FROM pg_attribute WHERE attrelid = 'node'::regclass AND attnum > 0 AND attname NOT IN ('num', 'id', 'body')`), ", ")
	const nodes, week = 20000, 604800000000
	now := time.Now().UnixMicro()
	for _, text := range []string{
		`INSERT INTO node (id, body, ` + columns + `) SELECT 'node-' || i, repeat('x', 500), ` + columns + fmt.Sprintf(` FROM node, generate_series(1, %d) i WHERE id = 'node-0'`, nodes),
		fmt.Sprintf(`INSERT INTO power_turn SELECT id, '', %d + num * 1000 FROM node WHERE id <> 'node-0'`, now),
		`INSERT INTO contact (node_id, power_read_at) SELECT id, num FROM node`,
		fmt.Sprintf(`INSERT INTO event (subject_kind, subject_id, seq, at, type, text, severity, job_id, action, duration, request_id, user_name)
			SELECT 'node', 'node-' || i, k, %d - %d * (k %% 2) + i, 'state', 'words', 'info', '', '', 0, '', '' FROM generate_series(1, %d) i, generate_series(1, 3) k`, now, week, nodes),
		`ANALYZE`,
	} {
		execRaw(t, d, text)
	}
	for _, c := range []struct{ name, text string }{
		{"power that is due", fmt.Sprintf(`SELECT node_id FROM power_turn WHERE due <= %d AND group_name IN ('') ORDER BY due LIMIT 64 FOR UPDATE SKIP LOCKED`, now+64000)},
		{"a node's newest events", `SELECT * FROM event WHERE subject_kind = 'node' AND subject_id = 'node-77' ORDER BY seq DESC LIMIT 50`},
		{"a node's next events", `SELECT * FROM event WHERE subject_kind = 'node' AND subject_id = 'node-77' AND seq > 1 ORDER BY seq LIMIT 50`},
		{"what came since", `SELECT * FROM event WHERE num > (SELECT MAX(num) - 10 FROM event) ORDER BY num LIMIT 100`},
		{"a page of marks", `SELECT n.num, n.id, n.version FROM node n WHERE (n.num) > (SELECT m.num FROM node m WHERE m.id = 'node-500') ORDER BY n.num LIMIT 1000`},
		{"jobs that are due", `SELECT id FROM job WHERE owner = '' AND state IN ('ready', 'undoing') AND due <= 5 ORDER BY due LIMIT 9`},
		{"nodes of a state", `SELECT n.num FROM node n WHERE n.provision_state = 'rescue' ORDER BY n.num LIMIT 100`},
		{"the node of a boot path", `SELECT n.id FROM node n WHERE n.boot_path = 'p' AND n.boot_path <> ''`},
	} {
		plan := queryColumn(t, d, "EXPLAIN "+c.text)
		if i := slices.IndexFunc(plan, func(line string) bool { return scans(line) }); i >= 0 {
			t.Errorf("%s: %s\n%s", c.name, strings.TrimSpace(plan[i]), strings.Join(plan, "\n"))
		}
	}
	began := time.Now()
	marks, err := s.ListNodeMarks(t.Context(), metal.NodeFilter{}, record.Page{Limit: 1000})
	if err != nil || len(marks) != 1000 {
		t.Fatalf("%d marks: %v", len(marks), err)
	}
	t.Logf("1000 marks of %d nodes in %s", nodes, time.Since(began))
}

// scans tells a line of a plan that reads a whole large table; parts of the timeline that are empty are small.
func scans(line string) bool {
	if !strings.Contains(line, "Seq Scan on ") || strings.Contains(line, "event_default") || strings.Contains(line, "rows=1 ") {
		return false
	}
	for _, table := range []string{"node", "event", "contact", "power_turn", "port"} {
		if strings.Contains(line, "Seq Scan on "+table+" ") || strings.Contains(line, "Seq Scan on "+table+"_") {
			return true
		}
	}
	return false
}
