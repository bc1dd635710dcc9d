package store

import (
	"os/signal"
	"syscall"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

// TestAFailedCommitOfAFile: a commit that the file system refuses is answered as one that may have been made, and the next one
// passes. The limit of a file's size makes the file system refuse; it holds for the whole process, so this test is not parallel.
func TestAFailedCommitOfAFile(t *testing.T) {
	s := openHere(t)
	must.OK(t, s.Do(t.Context(), insertsNode(s, "before")))
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var was syscall.Rlimit
	must.OK(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	limit := func(l syscall.Rlimit) {
		t.Helper()
		must.OK(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l))
	}
	defer limit(was)
	limit(syscall.Rlimit{Cur: 1, Max: was.Max})
	err := s.Do(t.Context(), insertsNode(s, "refused"))
	limit(was)
	if !problem.Is(err, problem.Unavailable) || !problem.IsUnconfirmed(err) {
		t.Errorf("a commit that the file system refused: %v", err)
	}
	if _, why := s.WriteFailure(); why == "" {
		t.Error("the store thinks that all is well")
	}
	if err := s.Do(t.Context(), insertsNode(s, "after")); err != nil {
		t.Errorf("once the file system takes changes again: %v", err)
	}
	for _, id := range []string{"before", "after"} {
		if _, err := s.Node(t.Context(), nil, id); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Node(t.Context(), nil, "refused"); !problem.Is(err, problem.NotFound) {
		t.Errorf("the refused change: %v", err)
	}
}
