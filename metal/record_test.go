package metal

import (
	"context"
	"testing"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// rulesLeft is a table that takes removals back with its transaction, and counts transactions.
type rulesLeft struct {
	record.Table[InspectionRule, InspectionRuleFilter]
	rules    []*InspectionRule
	bad      string
	begun    int
	gone     []string
	inside   *openTx
	outsider bool
}

// openTx is a transaction of rulesLeft.
type openTx struct{}

func (*openTx) OpaqueTx() {}

// transactions are those of a table.
type transactions struct {
	record.Jobs
	of *rulesLeft
}

func (t transactions) Do(_ context.Context, fn func(job.Tx) error) error {
	s := t.of
	s.begun++
	s.inside = &openTx{}
	err := fn(s.inside)
	if err != nil {
		s.gone = nil
	}
	return err
}

func (transactions) Append(job.Tx, job.Event) error { return nil }

func (s *rulesLeft) List(_ context.Context, tx job.Tx, _ InspectionRuleFilter, _ record.Page) ([]*InspectionRule, error) {
	s.outsider = s.outsider || tx != s.inside
	return s.rules, nil
}

func (s *rulesLeft) Delete(tx job.Tx, r *InspectionRule) error {
	s.outsider = s.outsider || tx != s.inside
	if r.ID == s.bad {
		return problem.Conflictf("changed")
	}
	s.gone = append(s.gone, r.ID)
	return nil
}

// TestClearIsOneTransaction: all go, or none where one of them cannot.
func TestClearIsOneTransaction(t *testing.T) {
	for bad, want := range map[string]int{"": 3, "b": 0} {
		s := &rulesLeft{bad: bad}
		for _, id := range []string{"a", "b", "c"} {
			s.rules = append(s.rules, &InspectionRule{Record: record.Record{ID: id}})
		}
		rules := record.NewCollection[InspectionRule, InspectionRuleFilter]("inspection rule", s, transactions{of: s}, time.Now)
		if err := rules.Clear(t.Context(), record.Asker{}); (err != nil) != (bad != "") || s.begun != 1 || len(s.gone) != want || s.outsider {
			t.Errorf("%d of 3 are gone in %d transactions, read outside of them %v: %v", len(s.gone), s.begun, s.outsider, err)
		}
	}
}
