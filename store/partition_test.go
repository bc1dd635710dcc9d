package store_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/job"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// queryColumn reads one column of a PostgreSQL database.
func queryColumn(t *testing.T, d storetest.Database, text string) []string {
	t.Helper()
	db := openRaw(t, d)
	defer db.Close()
	rows := must.Get(db.QueryContext(t.Context(), text))(t)
	defer rows.Close()
	var out []string
	for rows.Next() {
		var word string
		must.OK(t, rows.Scan(&word))
		out = append(out, word)
	}
	return out
}

const (
	partsOf = `SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'event'::regclass ORDER BY 1`
	where   = `SELECT text || ' in ' || tableoid::regclass::text FROM event ORDER BY at`
)

func weekOf(at time.Time) string { return fmt.Sprintf("event_w%d", at.Unix()/(7*24*3600)) }

// TestTimelineByWeeks: parts are there before they are needed, what fits none lies by default and is moved when its part is
// made, and what is old goes with its part.
func TestTimelineByWeeks(t *testing.T) {
	t.Parallel()
	d := storetest.OnPostgres(t)
	now := time.Now().UTC()
	later := now.AddDate(0, 0, 9*7)
	s := must.Get(store.Open(t.Context(), d.URL, d.Key, store.Options{Now: func() time.Time { return later }}))(t)
	defer s.Close()
	for i := -1; i <= 4; i++ {
		if all := queryColumn(t, d, partsOf); !slices.Contains(all, weekOf(now.AddDate(0, 0, 7*i))) {
			t.Errorf("no part for week %d: %v", i, all)
		}
	}
	soon := now.AddDate(0, 0, 10*7)
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error {
		for _, e := range []job.Event{{At: now.AddDate(-1, 0, 0), Text: "ancient"}, {At: now, Text: "present"}, {At: soon, Text: "soon"}, {At: now.AddDate(50, 0, 0), Text: "nonsense"}} {
			e.Subject = job.Node("n")
			if err := s.Append(tx, e); err != nil {
				return err
			}
		}
		return nil
	}))
	want := "ancient in event_default, present in " + weekOf(now) + ", soon in event_default, nonsense in event_default"
	if got := strings.Join(queryColumn(t, d, where), ", "); got != want {
		t.Errorf("have %s\nwant %s", got, want)
	}
	n, err := s.Prune(t.Context(), later.AddDate(0, 0, -30), later, 0)
	if err != nil || n != 2 {
		t.Errorf("%d events pruned: %v", n, err)
	}
	if got := strings.Join(queryColumn(t, d, where), ", "); got != "soon in "+weekOf(soon)+", nonsense in event_default" {
		t.Errorf("after the prune: %s", got)
	}
	all := queryColumn(t, d, partsOf)
	if slices.Contains(all, weekOf(now)) || !slices.Contains(all, weekOf(later.AddDate(0, 0, 4*7))) {
		t.Errorf("parts after the prune: %v", all)
	}
	if left, err := s.Events(t.Context(), job.Node("n"), 0, 9); err != nil || len(left) != 2 || left[0].Seq != 3 {
		t.Errorf("left %+v: %v", left, err)
	}
}

// TestTimelineBecomesParts: the events of before are all there after the step that parts them, and no programs of before are in its way.
func TestTimelineBecomesParts(t *testing.T) {
	t.Parallel()
	d := storetest.OnPostgres(t)
	db := opened(t, d.URL, store.Make)
	must.OK(t, db.UpTo(t.Context(), 4))
	now := time.Now()
	insert := `INSERT INTO event (subject_kind, subject_id, seq, at, type, text, severity, job_id, action, duration, request_id, user_name)
		VALUES ('node', 'n', %d, %d, 'state', '%s', 'info', '', '', 0, '', '')`
	for i, e := range []struct {
		text string
		at   time.Time
	}{{"old", now.AddDate(-1, 0, 0)}, {"new", now}, {"ahead", now.AddDate(1, 0, 0)}} {
		execRaw(t, d, fmt.Sprintf(insert, i+1, e.at.UnixMicro(), e.text))
	}
	execRaw(t, d, `INSERT INTO event_counter (subject_kind, subject_id, last) VALUES ('node', 'n', 3)`)
	must.OK(t, db.Migrate(t.Context(), nil))
	if got := strings.Join(queryColumn(t, d, where), ", "); got != "old in event_first, new in event_first, ahead in event_default" {
		t.Errorf("have %s", got)
	}
	execRaw(t, d, fmt.Sprintf(insert, 4, now.UnixMicro(), "by a program of before"))
	execRaw(t, d, `UPDATE event_counter SET last = 4`)
	s := storetest.Open(t, d)
	if n, err := s.Prune(t.Context(), now.AddDate(0, 0, -30), now, 0); err != nil || n != 0 {
		t.Errorf("%d events pruned, though all share a part with younger ones: %v", n, err)
	}
	if events, err := s.Events(t.Context(), job.Node("n"), 0, 9); err != nil || len(events) != 4 {
		t.Errorf("%+v: %v", events, err)
	}
}

// TestHistoryAsksTheWeeksThatHoldIt: the newest events of a subject are read from the weeks that hold them, and from no other once the page is full.
func TestHistoryAsksTheWeeksThatHoldIt(t *testing.T) {
	t.Parallel()
	d := storetest.CopiedPostgres(t)
	now := time.Now().UTC()
	s := must.Get(store.Open(t.Context(), d.URL, d.Key, store.Options{Now: func() time.Time { return now }}))(t)
	defer s.Close()
	appendAt := func(id string, times ...time.Time) {
		t.Helper()
		must.OK(t, s.Do(t.Context(), func(tx job.Tx) error {
			for _, at := range times {
				if err := s.Append(tx, job.Event{Subject: job.Node(id), At: at}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	weeks := func(n int) time.Time { return now.AddDate(0, 0, 7*n) }
	for n := -9; n < -1; n++ { // the parts of a database that has run for long
		from := weeks(n).Unix() / (7 * 24 * 3600) * 7 * 24 * 3600 * 1000000
		execRaw(t, d, fmt.Sprintf(`CREATE TABLE %s PARTITION OF event FOR VALUES FROM (%d) TO (%d)`, weekOf(weeks(n)), from, from+7*24*3600*1000000))
	}
	appendAt("new", now, now, now)
	appendAt("old", weeks(-8), weeks(-6), weeks(-2), weeks(-1), now, now)
	appendAt("clock", weeks(-1), weeks(3), now, now) // the clock of the server was ahead once
	sent := store.RecordStatements(s)
	this := []string{weekOf(now)}
	for _, c := range []struct {
		name string
		read func() ([]job.Event, error)
		seqs string
		want []string // the parts that are asked; nil: all
	}{
		{"all of a new node", func() ([]job.Event, error) { return s.Latest(t.Context(), job.Node("new"), 50) }, "1 2 3", this},
		{"all after 0 of a new node", func() ([]job.Event, error) { return s.Events(t.Context(), job.Node("new"), 0, 50) }, "1 2 3", this},
		{"a page of an old node", func() ([]job.Event, error) { return s.Latest(t.Context(), job.Node("old"), 2) }, "5 6", this},
		{"what is new of an old node", func() ([]job.Event, error) { return s.Events(t.Context(), job.Node("old"), 4, 50) }, "5 6", this},
		{"nothing new", func() ([]job.Event, error) { return s.Events(t.Context(), job.Node("old"), 6, 50) }, "", []string{}},
		{"nobody", func() ([]job.Event, error) { return s.Latest(t.Context(), job.Node("nobody"), 50) }, "", []string{}},
		{"a page of two windows", func() ([]job.Event, error) { return s.Latest(t.Context(), job.Node("old"), 4) }, "3 4 5 6",
			[]string{weekOf(weeks(-4)), weekOf(weeks(-3)), weekOf(weeks(-2)), weekOf(weeks(-1))}}, // the second window, whose statement is the last one
		{"all of an old node", func() ([]job.Event, error) { return s.Latest(t.Context(), job.Node("old"), 50) }, "1 2 3 4 5 6", nil},
		{"the first of an old node", func() ([]job.Event, error) { return s.Events(t.Context(), job.Node("old"), 0, 3) }, "1 2 3", nil},
		{"a clock ahead", func() ([]job.Event, error) { return s.Latest(t.Context(), job.Node("clock"), 3) }, "2 3 4", nil},
	} {
		clear(sent)
		events, err := c.read()
		var seqs []string
		for _, e := range events {
			seqs = append(seqs, fmt.Sprint(e.Seq))
		}
		if got := strings.Join(seqs, " "); err != nil || got != c.seqs {
			t.Errorf("%s: want the events %q, got %q and %v", c.name, c.seqs, got, err)
		}
		db := openRaw(t, d)
		parts := []string{}
		for text, args := range sent {
			for _, line := range rawColumn(t, db, "EXPLAIN "+text, args...) {
				if part := partScanned.FindString(line); part != "" {
					parts = append(parts, part)
				}
			}
		}
		must.OK(t, db.Close())
		if slices.Sort(parts); c.want != nil && !slices.Equal(parts, c.want) {
			t.Errorf("%s: want the parts %v, got %v", c.name, c.want, parts)
		}
	}
}

var partScanned = regexp.MustCompile(`\bevent_(w\d+|default)\b`)
