package must_test

import (
	"errors"
	"testing"

	"salvor/test/must"
)

// watched is a test that goes on after its end, and counts how often it was ended.
type watched struct{ ends []any }

func (*watched) Helper()             {}
func (w *watched) Fatal(args ...any) { w.ends = append(w.ends, args...) }

func TestAnErrorEndsTheTest(t *testing.T) {
	w, broken := &watched{}, errors.New("broken")
	must.OK(w, nil)
	if v := must.Get(7, nil)(w); v != 7 || len(w.ends) != 0 {
		t.Fatalf("without an error: value %d, ended by %v", v, w.ends)
	}
	must.OK(w, broken)
	must.Get(7, broken)(w)
	if len(w.ends) != 2 || w.ends[0] != broken || w.ends[1] != broken {
		t.Errorf("two errors end it by %v", w.ends)
	}
}
