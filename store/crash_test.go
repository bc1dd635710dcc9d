package store

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/secret"
	"salvor/test/must"
)

const crashDir = "SALVOR_TEST_CRASH_DIR"

var crashKey = []byte(strings.Repeat("k", secret.KeySize))

func openCrash(dir string) (*Store, error) {
	key, err := secret.NewKey(crashKey)
	if err != nil {
		return nil, err
	}
	return Open(context.Background(), "sqlite:"+filepath.Join(dir, "s.db"), key, Options{})
}

// TestCrashChild is the process that TestCrash kills: it says what was committed, line by line.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		t.Skip("runs inside of TestCrash")
	}
	s := must.Get(openCrash(dir))(t)
	for caller := range 6 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d", caller, i)
				err := s.Do(context.Background(), func(tx job.Tx) error {
					if err := s.InsertNode(tx, node(id)); err != nil {
						return err
					}
					return s.Insert(tx, &job.Job{ID: id, Kind: "work", Subject: job.Node(id), Secret: secret.New(id)})
				})
				if err != nil {
					return
				}
				fmt.Println("committed", id)
			}
		}()
	}
	select {}
}

// TestCrash kills a process with -9 in the middle of its commits: what it was told
// to be committed is there, whole, and its lock is not in the way.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
	child.Env = append(os.Environ(), crashDir+"="+dir)
	out := must.Get(child.StdoutPipe())(t)
	must.OK(t, child.Start())
	var told []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if id, ok := strings.CutPrefix(lines.Text(), "committed "); ok {
			told = append(told, id)
		}
		if len(told) == 300 {
			_ = child.Process.Kill() // and read on what it has said until then
		}
	}
	_ = child.Wait()
	if len(told) < 300 {
		t.Fatalf("the child said only %d lines", len(told))
	}
	s := must.Get(openCrash(dir))(t)
	defer s.Close()
	// The last line may be cut short by the kill.
	for _, id := range told[:len(told)-1] {
		n, err := s.Node(t.Context(), nil, id)
		if err != nil || n.Reservation != "salvor" {
			t.Fatalf("node %s, which was committed: %v", id, err)
		}
		if j, err := s.Job(t.Context(), nil, id); err != nil || j.Secret.Reveal() != id {
			t.Fatalf("job %s, which was committed: %v", id, err)
		}
	}
	all := must.Get(s.Nodes(t.Context(), nil, metal.NodeFilter{}, record.Page{}))(t)
	for _, n := range all {
		if n.Reservation != "salvor" {
			t.Fatalf("node %s is there without its job", n.ID)
		}
	}
}
