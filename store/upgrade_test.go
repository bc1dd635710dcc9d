package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"salvor/problem"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// nodeConsole is the index of step 19 in builds between the releases 0.1.0 and 0.2.0. Earlier builds of that time had step 19 without the index.
const nodeConsole = `CREATE INDEX node_console ON node (num) WHERE console_enabled`

// TestUpgradedSchemaIsThatOfAFreshOne: a database of each older schema has the same tables and indexes after Migrate as a database made anew.
func TestUpgradedSchemaIsThatOfAFreshOne(t *testing.T) {
	for name, fresh := range map[string]func(testing.TB) storetest.Database{"sqlite": storetest.OnSQLite, "postgres": storetest.OnPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			migrated := func(version int64, change string) []string {
				d := fresh(t)
				db := opened(t, d.URL, store.Make)
				must.OK(t, db.UpTo(t.Context(), version))
				if change != "" {
					execRaw(t, d, change)
				}
				must.OK(t, db.Migrate(t.Context(), nil))
				if s, err := db.Schema(t.Context()); err != nil || s.State() != store.SchemaCurrent {
					t.Fatalf("from schema %d: %+v, %v", version, s, err)
				}
				must.OK(t, db.Close())
				return definitions(t, d)
			}
			want := migrated(0, "")
			if len(want) < 100 || !strings.Contains(strings.Join(want, "\n"), "node_console") {
				t.Fatalf("a fresh database has %d columns and indexes: %q", len(want), want)
			}
			for _, from := range []struct {
				version int64
				change  string
			}{{1, ""}, {4, ""}, {18, ""}, {19, ""}, {20, ""}, {19, nodeConsole}, {20, nodeConsole}} {
				if diff := cmp.Diff(want, migrated(from.version, from.change)); diff != "" {
					t.Errorf("from schema %d with %q (-fresh +upgraded):\n%s", from.version, from.change, diff)
				}
			}
		})
	}
}

// definitions gives each column, constraint and index of a database, without those of the weekly parts of the timeline.
func definitions(t *testing.T, d storetest.Database) []string {
	t.Helper()
	text := `SELECT type || ' ' || name || ' ' || tbl_name || ' ' || COALESCE(sql, '') FROM sqlite_master WHERE name <> 'goose_db_version' ORDER BY 1`
	if !strings.HasPrefix(d.URL, "sqlite:") {
		text = `SELECT * FROM (
			SELECT 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || COALESCE(pg_get_expr(f.adbin, f.adrelid), '')
				FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
				WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped AND c.relname NOT LIKE 'event\_w%'
			UNION ALL SELECT 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
				FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid <> 0 AND conrelid::regclass::text NOT LIKE 'event\_w%'
			UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT LIKE 'event\_w%') AS x (line) ORDER BY line COLLATE "C"`
	}
	return queryColumn(t, d, text)
}

// TestDatabaseOfAnUnreleasedBuild: builds between releases numbered their steps anew, so their databases lack a step below the newest one. Such a
// database is named as what it is, and nothing changes it.
func TestDatabaseOfAnUnreleasedBuild(t *testing.T) {
	for name, fresh := range map[string]func(testing.TB) storetest.Database{"sqlite": storetest.OnSQLite, "postgres": storetest.OnPostgres} {
		for _, c := range []struct {
			upTo    int64
			applied []int64
			missing string
		}{
			{11, []int64{16}, "steps 12, 13, 14 and 15 are missing and step 16 is there"},
			{16, []int64{18}, "step 17 is missing and step 18 is there"},
		} {
			t.Run(fmt.Sprintf("%s/%d", name, c.applied[0]), func(t *testing.T) {
				t.Parallel()
				d := fresh(t)
				db := opened(t, d.URL, store.Make)
				must.OK(t, db.UpTo(t.Context(), c.upTo))
				for _, v := range c.applied {
					execRaw(t, d, fmt.Sprintf(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (%d, TRUE)`, v))
				}
				before := definitions(t, d)
				s, err := db.Schema(t.Context())
				if err != nil || s.State() != store.SchemaUnreleased {
					t.Errorf("its state is %q (%v), want %q", s.State(), err, store.SchemaUnreleased)
				}
				to := opened(t, fresh(t).URL, store.Make)
				for what, try := range map[string]func() error{
					"serve":       s.Serveable,
					"migrate":     func() error { return db.Migrate(t.Context(), nil) },
					"backup":      func() error { _, err := db.Backup(t.Context(), t.TempDir()+"/b.db", nil); return err },
					"copy":        func() error { _, err := db.Copy(t.Context(), to, nil); return err },
					"hold":        func() error { _, err := db.Hold(t.Context(), "x"); return err },
					"incarnation": func() error { _, err := db.Incarnation(t.Context()); return err },
				} {
					err := try()
					if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), c.missing) || !strings.Contains(err.Error(), "restore") {
						t.Errorf("%s: want a conflict that says %q and what to restore, got %v", what, c.missing, err)
					}
				}
				must.OK(t, db.Close())
				if _, err := store.Open(t.Context(), d.URL, d.Key, store.Options{NoSync: true}); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), c.missing) {
					t.Errorf("open: want a conflict that says %q, got %v", c.missing, err)
				}
				if diff := cmp.Diff(before, definitions(t, d)); diff != "" {
					t.Errorf("something changed the database (-before +after):\n%s", diff)
				}
			})
		}
	}
}
