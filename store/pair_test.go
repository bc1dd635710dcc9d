package store_test

import (
	"database/sql"
	"testing"
	"time"

	"salvor/store/storetest"
	"salvor/test/must"
)

// TestPair checks the basis of the failover tests: a synchronous standby holds all that was committed when the primary is killed.
func TestPair(t *testing.T) {
	p := storetest.NewPair(t, true)
	url := p.Database("one")
	db, err := sql.Open("pgx", url+"&target_session_attrs=read-write")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, text := range []string{"CREATE TABLE a (i INT)", "INSERT INTO a VALUES (1)"} {
		must.Get(db.ExecContext(t.Context(), text))(t)
	}
	p.Primary.Kill()
	p.Standby.Promote()
	// The first use may meet the connection that was cut.
	n := 0
	for range 5 {
		if err = db.QueryRowContext(t.Context(), "SELECT count(*) FROM a").Scan(&n); err == nil {
			break
		}
	}
	if err != nil || n != 1 {
		t.Fatalf("%d rows: %v", n, err)
	}
	must.Get(db.ExecContext(t.Context(), "INSERT INTO a VALUES (2)"))(t)
}

// TestPairFrozen: a commit hangs while the receiver of a synchronous standby is frozen, and is carried out when it thaws.
func TestPairFrozen(t *testing.T) {
	p := storetest.NewPair(t, true)
	db := must.Get(sql.Open("pgx", p.Database("one")))(t)
	defer db.Close()
	must.Get(db.ExecContext(t.Context(), "CREATE TABLE a (i INT)"))(t)
	p.FreezeReceiver()
	done := make(chan error, 1)
	go func() { _, err := db.ExecContext(t.Context(), "INSERT INTO a VALUES (1)"); done <- err }()
	select {
	case err := <-done:
		t.Fatalf("a commit did not wait for the frozen standby: %v", err)
	case <-time.After(time.Second):
	}
	p.Standby.Thaw()
	must.OK(t, <-done)
}
