package store_test

import (
	"fmt"
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
