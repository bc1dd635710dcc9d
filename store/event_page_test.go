package store

import (
	"context"
	"testing"
	"time"

	"salvor/job"
	"salvor/test/must"
)

// TestPagesOfATimelineThatGrows: events are appended while a page is read. The page has no gap: whoever goes on after its last event sees each event
// once, and an event that was there is found.
func TestPagesOfATimelineThatGrows(t *testing.T) {
	t.Parallel()
	s := openForHistory(t, Options{})
	node := job.Node("n")
	add := func(n int) {
		must.OK(t, s.Do(context.Background(), func(tx job.Tx) error {
			for range n {
				if err := s.Append(tx, job.Event{Subject: node, At: time.Now(), Type: "action", Text: "x"}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	add(10)
	reads := 0
	grows := job.WithBeforeRead(t.Context(), func(context.Context) error {
		if reads++; reads%2 == 0 { // between the number of the newest event and the events
			add(3)
		}
		return nil
	})
	for _, c := range []struct {
		name   string
		read   func() ([]job.Event, error)
		first  int64
		length int
	}{
		{"a page from the beginning", func() ([]job.Event, error) { return s.Events(grows, node, 0, 10) }, 1, 10},
		{"the newest event alone", func() ([]job.Event, error) { return s.Events(grows, node, 12, 1) }, 13, 1},
		{"the latest events", func() ([]job.Event, error) { return s.Latest(grows, node, 4) }, 13, 4},
	} {
		got := must.Get(c.read())(t)
		if len(got) != c.length || got[0].Seq != c.first || got[len(got)-1].Seq != c.first+int64(c.length)-1 {
			var seen []int64
			for _, e := range got {
				seen = append(seen, e.Seq)
			}
			t.Errorf("%s: events %v, want %d from number %d on", c.name, seen, c.length, c.first)
		}
	}
}
