package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// hotQuery is a read that clients send often, or that everybody may send.
type hotQuery struct {
	name string
	read func(s *store.Store) error
}

// hotQueries are those that grow with the fleet, for a project. nobody is a project without nodes.
func hotQueries(t testing.TB, project string) []hotQuery {
	ctx := t.Context()
	nodes := func(f metal.NodeFilter, p record.Page) func(*store.Store) error {
		return func(s *store.Store) error { _, err := s.Nodes(ctx, nil, f, p); return err }
	}
	marks := func(f metal.NodeFilter, p record.Page) func(*store.Store) error {
		return func(s *store.Store) error { _, err := s.ListNodeMarks(ctx, f, p); return err }
	}
	page := record.Page{Limit: 1000}
	return []hotQuery{
		{"nodes of a project", marks(metal.NodeFilter{Project: project}, page)},
		{"nodes of a project, next page", func(s *store.Store) error {
			_, err := s.ListNodeMarks(ctx, metal.NodeFilter{Project: project}, record.Page{Limit: 1000, Marker: "node-1"})
			if problem.Is(err, problem.NotFound) { // node-1 is another project's
				err = nil
			}
			return err
		}},
		{"nodes of an owner", nodes(metal.NodeFilter{Owner: project}, page)},
		{"nodes of a lessee", nodes(metal.NodeFilter{Lessee: project}, page)},
		{"nodes of a project by updated_at", marks(metal.NodeFilter{Project: project}, record.Page{Limit: 100, SortKey: "updated_at", Desc: true})},
		{"nodes of a project in a state", marks(metal.NodeFilter{Project: project, ProvisionState: metal.Active}, page)},
		{"the fleet of a project, counted", func(s *store.Store) error { _, err := s.FleetCounts(ctx, project); return err }},
		{"ports of a project", func(s *store.Store) error {
			_, err := s.PortTable().Marks(ctx, metal.PortFilter{Project: project}, page)
			return err
		}},
		{"ports of an owner", func(s *store.Store) error {
			_, err := s.PortTable().Marks(ctx, metal.PortFilter{Owner: project}, page)
			return err
		}},
		{"volume targets of a project", func(s *store.Store) error {
			_, err := s.Targets().Marks(ctx, metal.TargetFilter{Project: project}, page)
			return err
		}},
		{"allocations of a project", func(s *store.Store) error {
			_, err := s.Allocations().Marks(ctx, metal.AllocationFilter{Owner: project}, page)
			return err
		}},
		{"servers of a project", func(s *store.Store) error {
			_, err := s.Servers().Marks(ctx, compute.ServerFilter{Project: project}, page)
			return err
		}},
		{"nodes with a silent BMC", marks(metal.NodeFilter{BMC: metal.BMCSilent}, page)},
		{"nodes of a project with a silent BMC", marks(metal.NodeFilter{Project: project, BMC: metal.BMCSilent}, page)},
		{"BMCs that fail, counted", func(s *store.Store) error {
			_, err := s.FailingBMCs(ctx, "", time.Unix(1, 0), 10)
			return err
		}},
		{"history of a node", func(s *store.Store) error { _, err := s.Latest(ctx, job.Node("node-77"), 50); return err }},
	}
}

// fillFleet makes nodes of many owners and lessees, each with a port and a volume target, and as many allocations and servers. Every fourth node is
// owned by big, the others by owner-0 to owner-19. Every odd node has a lessee of tenant-1 to tenant-499.
func fillFleet(t *testing.T, d storetest.Database, s *store.Store, nodes int) {
	t.Helper()
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error {
		return errors.Join(
			s.InsertNode(tx, &metal.Node{ID: "node-0", Driver: "fake-hardware", ProvisionState: metal.Active}),
			s.SaveContact(tx, metal.Contact{NodeID: "node-0"}),
			s.InsertPort(tx, &metal.Port{Record: record.Record{ID: "port-0"}, NodeID: "node-0", Address: "mac-0"}),
			s.Targets().Insert(tx, &metal.Target{Record: record.Record{ID: "target-0"}, NodeID: "node-0", VolumeID: "v"}),
			s.Allocations().Insert(tx, &metal.Allocation{Record: record.Record{ID: "allocation-0"}, Owner: "first"}),
			s.Servers().Insert(tx, &compute.Server{Record: record.Record{ID: "server-0"}, Project: "first"}))
	}))
	db := openRaw(t, d)
	defer db.Close()
	project := `CASE WHEN i % 4 = 0 THEN 'big' ELSE 'owner-' || (i % 20) END`
	of := func(table string) func(string) string {
		return func(v string) string { return "'" + table + "-' || i" }
	}
	for _, c := range []struct {
		table  string
		values map[string]string
	}{
		{"node", map[string]string{"owner": project, "lessee": `CASE WHEN i % 2 = 1 THEN 'tenant-' || (i % 500) ELSE '' END`, "body": "'{\"extra\":{\"x\":\"" + strings.Repeat("x", 500) + "\"}}'",
			"updated_at": fmt.Sprintf("i * 7919 %% %d", nodes)}},
		{"port", map[string]string{"node_id": of("node")(""), "address": of("mac")("")}},
		{"target", map[string]string{"node_id": of("node")("")}},
		{"contact", map[string]string{"node_id": of("node")(""), "power_error": "CASE WHEN i % 50 = 0 THEN 'timeout' ELSE '' END", "power_failed_at": "2000000"}},
		{"allocation", map[string]string{"owner": project}},
		{"server", map[string]string{"project": project}},
	} {
		rows := must.Get(db.QueryContext(t.Context(), "SELECT * FROM "+c.table))(t)
		columns := must.Get(rows.Columns())(t)
		must.OK(t, rows.Close())
		columns = slices.DeleteFunc(columns, func(name string) bool { return name == "num" })
		values, first := slices.Clone(columns), fmt.Sprintf("id = '%s-0'", c.table)
		if c.table == "contact" { // its key is the node's
			first = "node_id = 'node-0'"
		} else {
			c.values["id"] = of(c.table)("")
		}
		for i, name := range columns {
			if v, ok := c.values[name]; ok {
				values[i] = v
			}
		}
		must.Get(db.ExecContext(t.Context(), fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO %s (%s) SELECT %s FROM %s, n WHERE %s`,
			nodes, c.table, strings.Join(columns, ", "), strings.Join(values, ", "), c.table, first)))(t)
	}
	must.Get(db.ExecContext(t.Context(), `ANALYZE`))(t)
}

// TestHotQueriesReadNoWholeTable: the cost of a list grows with what a project has, never with the fleet. PostgreSQL plans a statement with its values
// at first, and without them once the statement was used often, so both plans are examined.
func TestHotQueriesReadNoWholeTable(t *testing.T) {
	const fleet = 4000
	for name, fresh := range map[string]func(testing.TB) storetest.Database{"sqlite": storetest.CopiedSQLite, "postgres": storetest.CopiedPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := fresh(t)
			s := storetest.Open(t, d)
			fillFleet(t, d, s, fleet)
			db := openRaw(t, d)
			db.SetMaxOpenConns(1) // settings and prepared statements belong to a connection
			defer db.Close()
			sent := store.RecordStatements(s)
			for _, project := range []string{"nobody", "tenant-7", "owner-3"} {
				for _, q := range hotQueries(t, project) {
					clear(sent)
					must.OK(t, q.read(s))
					for text, args := range sent {
						for kind, plan := range plansOf(t, db, name, text, args) {
							if i := slices.IndexFunc(plan, readsWholeTable); i >= 0 {
								t.Errorf("%s %q reads a whole table%s: %s\n%s\n%s", q.name, project, kind, strings.TrimSpace(plan[i]), strings.Join(plan, "\n"), text)
							}
						}
					}
				}
			}
		})
	}
}

// readsWholeTable tells a line of a plan, of either engine, that reads all rows of a table that grows with the fleet.
func readsWholeTable(line string) bool {
	if strings.Contains(line, "INDEX contact_unread") { // which has the contacts whose last reading failed, and no other
		return false
	}
	for _, table := range []string{"node", "n", "port", "target", "allocation", "server", "t", "contact", "k", "p"} {
		if strings.Contains(line, "Seq Scan on "+table+" ") || strings.HasPrefix(line, "SCAN "+table+" ") || line == "SCAN "+table {
			return true
		}
	}
	return false
}

// plansOf gives the plan of a statement on SQLite, and on PostgreSQL the one with its values and the one without.
func plansOf(t *testing.T, db *sql.DB, engine, text string, args []any) map[string][]string {
	t.Helper()
	if engine == "sqlite" {
		return map[string][]string{"": rawColumn(t, db, "EXPLAIN QUERY PLAN "+text, args...)}
	}
	literals := make([]string, len(args))
	for i, a := range args {
		if literals[i] = fmt.Sprint(a); reflect.TypeOf(a).Kind() == reflect.String {
			literals[i] = "'" + literals[i] + "'"
		}
	}
	execute := "EXPLAIN EXECUTE q"
	if len(args) > 0 {
		execute += "(" + strings.Join(literals, ", ") + ")"
	}
	out := map[string][]string{}
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		for _, change := range []string{"SET plan_cache_mode = " + mode, "PREPARE q AS " + text} {
			must.Get(db.ExecContext(t.Context(), change))(t)
		}
		out[" with "+mode] = rawColumn(t, db, execute)
		must.Get(db.ExecContext(t.Context(), "DEALLOCATE q"))(t)
	}
	return out
}

// rawColumn gives the last column of what a query answers.
func rawColumn(t *testing.T, db *sql.DB, text string, args ...any) (out []string) {
	t.Helper()
	rows := must.Get(db.QueryContext(t.Context(), text, args...))(t)
	defer rows.Close()
	columns := must.Get(rows.Columns())(t)
	for rows.Next() {
		row, at := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			at[i] = &row[i]
		}
		must.OK(t, rows.Scan(at...))
		out = append(out, fmt.Sprint(row[len(row)-1]))
	}
	must.OK(t, rows.Err())
	return out
}
