package store_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

func opened(t *testing.T, url string, use store.Use) *store.Database {
	t.Helper()
	d := must.Get(store.OpenDatabase(t.Context(), url, use))(t)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// peopled fills a database with a little of everything that needs care on its way: secrets, serial numbers
// with gaps, rows that refer to rows, nothing where something may stand, words that sort and quote badly.
func peopled(t *testing.T, d storetest.Database) {
	t.Helper()
	s := storetest.Open(t, d)
	var gone *metal.Node
	err := s.Do(t.Context(), func(tx job.Tx) error {
		for i := range 700 {
			n := &metal.Node{ID: fmt.Sprintf("node-%03d", i), Name: fmt.Sprintf("Näme'%d\"", i), ProvisionState: metal.Enroll, Maintenance: i%2 == 0,
				DriverInfo: metal.Object{"redfish_password": "s3cret", "n": i}}
			if err := s.InsertNode(tx, n); err != nil {
				return err
			}
			gone = n
		}
		return errors.Join(
			s.Insert(tx, &job.Job{ID: "j1", Kind: "work", Subject: job.Node("node-001"), Secret: secret.New("hash"), Args: json.RawMessage(`{"a":1}`)}),
			s.Insert(tx, &job.Job{ID: "j2", Kind: "work", Subject: job.Node("node-002")}),
			s.SaveContact(tx, metal.Contact{NodeID: "node-001", AgentURL: "http://x", PowerReadAt: time.Now()}),
			s.SaveDocument(tx, metal.Document{NodeID: "node-001", Kind: metal.ConfigDrive, Body: json.RawMessage(`{"k":"v"}`)}),
			s.Append(tx, job.Event{Subject: job.Node("node-001"), At: time.Now().AddDate(0, -6, 0), Text: "long ago"}),
			s.Append(tx, job.Event{Subject: job.Node("node-001"), Text: "now"}),
			s.Chassis().Insert(tx, &metal.Chassis{Record: record.Record{ID: "c"}}))
	})
	if err == nil { // the newest number is given to nobody again
		err = s.Do(t.Context(), func(tx job.Tx) error { return s.DeleteNode(tx, gone) })
	}
	if err != nil {
		t.Fatal(err)
	}
	must.OK(t, s.Close())
}

// lived holds that a copy reads as its origin did, that its secrets open with the same key, and that it counts on.
func lived(t *testing.T, d storetest.Database) {
	t.Helper()
	s := storetest.Open(t, d)
	defer s.Close()
	n, err := s.Node(t.Context(), nil, "node-001")
	if err != nil || n.DriverInfo["redfish_password"] != "s3cret" || n.Name != "Näme'1\"" {
		t.Fatalf("node %+v: %v", n, err)
	}
	j, err := s.Job(t.Context(), nil, "j1")
	if err != nil || j.Secret.Reveal() != "hash" {
		t.Fatalf("job %+v: %v", j, err)
	}
	if events, err := s.Events(t.Context(), job.Node("node-001"), 0, 9); err != nil || len(events) != 2 || events[0].Text != "long ago" {
		t.Fatalf("events %+v: %v", events, err)
	}
	err = s.Do(t.Context(), func(tx job.Tx) error { return s.Append(tx, job.Event{Subject: job.Node("node-002")}) })
	feed, feedErr := s.Feed(t.Context(), job.FeedFilter{}, 100000)
	if err != nil || feedErr != nil {
		t.Fatal(err, feedErr)
	}
	for i, e := range feed {
		if i > 0 && feed[i-1].Num >= e.Num {
			t.Fatalf("two events have the numbers %d and %d", feed[i-1].Num, e.Num)
		}
	}
	last, err := s.Nodes(t.Context(), nil, metal.NodeFilter{}, record.Page{Desc: true, Limit: 1})
	if err != nil || len(last) != 1 || last[0].ID != "node-698" {
		t.Fatalf("the newest node: %+v %v", last, err)
	}
	before, err := s.NodeMark(t.Context(), "node-698")
	if err == nil {
		err = s.Do(t.Context(), func(tx job.Tx) error {
			return s.InsertNode(tx, &metal.Node{ID: "after", ProvisionState: metal.Enroll})
		})
	}
	after, markErr := s.NodeMark(t.Context(), "after")
	if err != nil || markErr != nil || after.Num <= before.Num+1 {
		t.Fatalf("a new node gets the number %d after %d, and one was given and gone: %v %v", after.Num, before.Num, err, markErr)
	}
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error { return s.DeleteNode(tx, &metal.Node{ID: "after", Version: 1}) }))
}

// TestCopyThereAndBack moves a database from SQLite into PostgreSQL and back into SQLite.
func TestCopyThereAndBack(t *testing.T) {
	origin, server := storetest.OnSQLite(t), storetest.OnPostgres(t)
	home := storetest.OnSQLite(t)
	server.Key, home.Key = origin.Key, origin.Key
	peopled(t, origin)
	var former []store.Copied
	for i, way := range []struct{ from, to storetest.Database }{{origin, server}, {server, home}} {
		from, to := opened(t, way.from.URL, store.Own), opened(t, way.to.URL, store.Make)
		var told []string
		done, err := from.Copy(t.Context(), to, func(c store.Copied, done bool) {
			if done {
				told = append(told, c.Table)
			}
		})
		if err != nil {
			t.Fatalf("copy %d: %v", i+1, err)
		}
		if len(told) != len(done) || len(done) < 25 {
			t.Errorf("copy %d told of %d tables of %d", i+1, len(told), len(done))
		}
		if rows := rowsOf(done, "node"); rows != 699 {
			t.Errorf("copy %d: %d nodes", i+1, rows)
		}
		if _, err := from.Copy(t.Context(), to, nil); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "not empty") {
			t.Errorf("copy %d over itself: %v", i+1, err)
		}
		must.OK(t, errors.Join(from.Close(), to.Close()))
		if i == 0 {
			lived(t, way.to)
			former = done
			continue
		}
		for _, c := range done { // of these the look in between wrote nothing
			if c.Table == "node" || c.Table == "job" || c.Table == "document" {
				if d := cmp.Diff(digestOf(former, c.Table), c.Digest); d != "" {
					t.Errorf("%s did not come back as it went: %s", c.Table, d)
				}
			}
		}
		lived(t, way.to)
	}
}

func rowsOf(all []store.Copied, table string) int64 {
	for _, c := range all {
		if c.Table == table {
			return c.Rows
		}
	}
	return -1
}

func digestOf(all []store.Copied, table string) string {
	for _, c := range all {
		if c.Table == table {
			return c.Digest
		}
	}
	return ""
}

// TestCopyRefusesWhileServed: what a conductor does meanwhile would be lost.
func TestCopyRefusesWhileServed(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		d := storetest.OnSQLite(t)
		storetest.Open(t, d)
		if _, err := store.OpenDatabase(t.Context(), d.URL, store.Own); !problem.Is(err, problem.Conflict) {
			t.Errorf("a file that is served can be had: %v", err)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		d := storetest.OnPostgres(t)
		s := storetest.Open(t, d)
		me := job.Conductor{ID: "c", Incarnation: "1", Hostname: "north-7"}
		must.OK(t, s.Register(t.Context(), me))
		ctx, stop := context.WithCancel(t.Context())
		beaten := make(chan struct{})
		go func() {
			defer close(beaten)
			for ctx.Err() == nil {
				_ = s.RenewLease(ctx, me)
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		}()
		from, to := opened(t, d.URL, store.Own), opened(t, storetest.OnSQLite(t).URL, store.Make)
		_, err := from.Copy(t.Context(), to, nil)
		if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "north-7") {
			t.Errorf("copied under a conductor's hands: %v", err)
		}
		next := opened(t, d.URL, store.Own)
		next.AddStep(store.Step{Version: 9000, Name: "takes away", Contracts: 9000}, `CREATE TABLE beyond (a BIGINT NOT NULL)`)
		if err := next.Migrate(t.Context(), nil); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "north-7") {
			t.Errorf("a step that ends what a living conductor needs: %v", err)
		}
		stop()
		<-beaten
		api := t.Context() // a program that runs no jobs
		ctx, stop = context.WithCancel(api)
		beaten = make(chan struct{})
		go func() {
			defer close(beaten)
			for ctx.Err() == nil {
				_ = s.SaveKeyHolder(api, store.KeyHolder{ID: "api", Host: "south-8"})
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		}()
		if _, err := from.Copy(t.Context(), to, nil); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "south-8") || strings.Contains(err.Error(), "north-7") {
			t.Errorf("copied while an API takes requests: %v", err)
		}
		stop()
		<-beaten
		if _, err := from.Copy(t.Context(), to, nil); err != nil {
			t.Errorf("its conductor is dead: %v", err)
		}
		if err := next.Migrate(t.Context(), nil); err != nil {
			t.Errorf("its conductor is dead: %v", err)
		}
		if after, err := from.Schema(t.Context()); err != nil || after.State() != store.SchemaTooNew || after.Oldest != 9000 {
			t.Errorf("what the programs of before see of it: %+v %v", after, err)
		}
	})
}

// TestCopyWaitsForWriters: what is committed while the copy waits for its locks is in the copy.
func TestCopyWaitsForWriters(t *testing.T) {
	t.Parallel()
	d := storetest.OnPostgres(t)
	s := storetest.Open(t, d)
	from, to := opened(t, d.URL, store.Own), opened(t, storetest.OnSQLite(t).URL, store.Make)
	copied := make(chan error, 1)
	var done []store.Copied
	err := s.Do(t.Context(), func(tx job.Tx) error {
		if err := s.InsertNode(tx, &metal.Node{ID: "late", ProvisionState: metal.Enroll}); err != nil {
			return err
		}
		go func() {
			var err error
			done, err = from.Copy(t.Context(), to, nil)
			copied <- err
		}()
		for n := 0; n == 0; time.Sleep(10 * time.Millisecond) {
			n = waiting(t, d)
		}
		return nil
	})
	must.OK(t, errors.Join(err, <-copied))
	if rows := rowsOf(done, "node"); rows != 1 {
		t.Errorf("%d nodes were copied", rows)
	}
}

// waiting counts who waits for a lock on a table.
func waiting(t *testing.T, d storetest.Database) (n int) {
	t.Helper()
	db := must.Get(sql.Open("pgx", d.URL))(t)
	defer db.Close()
	must.OK(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n))
	return n
}

// TestBackupWhileServed: a snapshot holds all of a transaction or nothing, and the store goes on meanwhile.
func TestBackupWhileServed(t *testing.T) {
	for name, fresh := range map[string]func(testing.TB) storetest.Database{"sqlite": storetest.OnSQLite, "postgres": storetest.OnPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := fresh(t)
			peopled(t, d)
			s := storetest.Open(t, d)
			stop, wrote := make(chan struct{}), make(chan int)
			go func() {
				n := 0
				for {
					select {
					case <-stop:
						wrote <- n
						return
					default:
					}
					err := s.Do(context.Background(), func(tx job.Tx) error {
						return errors.Join(s.Append(tx, job.Event{Subject: job.Node("pair-a")}), s.Append(tx, job.Event{Subject: job.Node("pair-b")}))
					})
					if err == nil {
						n++
					}
				}
			}()
			file := filepath.Join(t.TempDir(), "backup.db")
			from := opened(t, d.URL, store.Look)
			done, err := from.Backup(t.Context(), file, nil)
			close(stop)
			if n := <-wrote; err != nil || n == 0 {
				t.Fatalf("%d transactions meanwhile: %v", n, err)
			}
			if rows := rowsOf(done, "node"); rows != 699 {
				t.Errorf("%d nodes", rows)
			}
			if left, _ := filepath.Glob(file + "*"); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
			if _, err := from.Backup(t.Context(), file, nil); !problem.Is(err, problem.Conflict) {
				t.Errorf("a backup over another: %v", err)
			}
			back := storetest.Database{URL: "sqlite:" + file, Key: d.Key}
			b := storetest.Open(t, back)
			one, err := b.Latest(t.Context(), job.Node("pair-a"), 1)
			two, err2 := b.Latest(t.Context(), job.Node("pair-b"), 1)
			if err != nil || err2 != nil || len(one) != len(two) || len(one) == 1 && one[0].Seq != two[0].Seq {
				t.Errorf("half of a transaction: %v %v %v %v", one, two, err, err2)
			}
			_ = b.Close()
			lived(t, back)
		})
	}
}

// TestServesItsSchemaOnly: too old says what to run, too new what to start; empty is made where that is allowed.
func TestServesItsSchemaOnly(t *testing.T) {
	for name, fresh := range map[string]func(testing.TB) storetest.Database{"sqlite": storetest.OnSQLite, "postgres": storetest.OnPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := fresh(t)
			open := func(auto store.AutoMigrate) error {
				s, err := store.Open(t.Context(), d.URL, d.Key, store.Options{Migrate: auto, NoSync: true})
				if err == nil {
					err = s.Close()
				}
				return err
			}
			if err := open(store.MigrateNever); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "salvor db migrate") {
				t.Errorf("an empty database that may not be changed: %v", err)
			}
			if err := open(store.MigrateEmpty); err != nil {
				t.Fatalf("an empty database: %v", err)
			}
			db := opened(t, d.URL, store.Own)
			newest, err := db.Schema(t.Context())
			if err != nil || newest.State() != store.SchemaCurrent || len(newest.Pending) > 0 {
				t.Fatalf("%+v: %v", newest, err)
			}
			_ = db.Close()
			for _, c := range []struct {
				name  string
				texts []string
				state string
				want  string // in the refusal; empty: it serves
			}{
				{"a newer one that only added", []string{`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9000, TRUE)`}, store.SchemaAhead, ""},
				{"a newer one that took away", []string{`INSERT INTO setting (name, value) VALUES ('schema_oldest', '8999')`}, store.SchemaTooNew, "start the newer salvor"},
				{"an older one", []string{`DELETE FROM setting WHERE name = 'schema_oldest'`,
					fmt.Sprintf(`DELETE FROM goose_db_version WHERE version_id >= %d`, newest.Program)}, store.SchemaBehind, "salvor db migrate"},
			} {
				for _, text := range c.texts {
					execRaw(t, d, text)
				}
				look := opened(t, d.URL, store.Look)
				s, err := look.Schema(t.Context())
				if err != nil || s.State() != c.state {
					t.Errorf("%s: %+v %v", c.name, s, err)
				}
				_ = look.Close()
				err = open(store.MigrateEmpty)
				if c.want == "" && err != nil || c.want != "" && (!problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s: %v", c.name, err)
				}
			}
		})
	}
}

func execRaw(t *testing.T, d storetest.Database, text string) {
	t.Helper()
	db := openRaw(t, d)
	defer db.Close()
	must.Get(db.ExecContext(t.Context(), text))(t)
}

// openRaw opens a database without the store.
func openRaw(t *testing.T, d storetest.Database) *sql.DB {
	t.Helper()
	driver, source := "pgx", d.URL
	if path, ok := strings.CutPrefix(d.URL, "sqlite:"); ok {
		driver, source = "sqlite", path
	}
	return must.Get(sql.Open(driver, source))(t)
}
