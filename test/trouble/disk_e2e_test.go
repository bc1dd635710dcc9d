//go:build e2e

package trouble

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"salvor/test/must"
	"salvor/test/program"
)

// TestFullDisk: while the disk is full every change is refused with the reason, operations wait, and health, why and doctor say so; with
// room again all goes on in the same process, and nothing that was accepted is lost.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Fatalf("mount a tmpfs (needs root): %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	program.Path(t, "salvor")
	server := must.Get(program.Launch(dir, quiet))(t)
	t.Cleanup(server.Stop)
	p := newPlane(t, server)
	p.enroll(20)
	pid, stop := server.PID(), make(chan struct{})
	users := p.work(stop, p.nodes[10:])
	p.eventually("work is under way", func() error {
		if n := p.count(http.StatusAccepted); n < 10 {
			return fmt.Errorf("%d accepted", n)
		}
		return nil
	})

	ballast := fill(t, dir)
	p.eventually("what the write-ahead log had room for is used up", func() error {
		status, text, _ := p.ask(http.MethodPost, "/v1/nodes", object{"driver": "fake-hardware", "extra": object{"x": strings.Repeat("x", 64<<10)}})
		if status != http.StatusServiceUnavailable {
			return fmt.Errorf("%d %.300s", status, text)
		}
		return nil
	})
	idle := slices.Clone(p.nodes)
	p.eventually("a rescue is refused", func() error {
		status, text, request := p.ask(http.MethodPut, "/v1/nodes/"+idle[0]+"/states/provision", object{"target": "rescue", "rescue_password": "a long enough word"})
		if status == http.StatusAccepted { // there was room yet
			p.mu.Lock()
			p.accepted[request] = idle[0]
			p.mu.Unlock()
		}
		idle = append(idle[1:], idle[0]) // after the idle ones, those at work too: they are busy at times
		if status != http.StatusServiceUnavailable || !strings.Contains(text, "is full") {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	p.eventually("health says it", func() error {
		if status, text := p.health(); status != http.StatusServiceUnavailable || !strings.Contains(text, "full") {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	p.eventually("the metric says it", writable(p, 0))
	if status, text, _ := p.ask(http.MethodGet, "/v1/nodes?limit=5", nil); status != http.StatusOK {
		t.Errorf("reading is refused: %d %s", status, text)
	}
	p.eventually("a new node is refused", func() error { // a write-ahead log that starts anew has room for one or two yet
		status, text, _ := p.ask(http.MethodPost, "/v1/nodes", object{"driver": "fake-hardware", "extra": object{"x": strings.Repeat("x", 512<<10)}})
		if status != http.StatusServiceUnavailable || !strings.Contains(text, "is full") || !strings.Contains(text, dir) {
			return fmt.Errorf("%d %.300s", status, text)
		}
		return nil
	})
	p.eventually("why says it", func() error {
		if status, text := p.salvor("why", p.nodes[0], "--url", server.URL); status != 0 || !strings.Contains(text, "is full") {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	if status, text := p.salvor("doctor", "--state-dir", dir); status == 0 || !strings.Contains(text, "fail  disk space") {
		t.Errorf("doctor: %d %s", status, text)
	}
	before := p.count(http.StatusAccepted)
	time.Sleep(3 * time.Second)
	p.alive()

	must.OK(t, os.Remove(ballast))
	p.eventually("changes are taken again", func() error {
		if n := p.count(http.StatusAccepted); n < before+5 {
			return fmt.Errorf("%d accepted since", n-before)
		}
		return nil
	})
	close(stop)
	users.Wait()
	p.settled()
	p.refused()
	p.eventually("health says that all is well", func() error {
		if status, text := p.health(); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	p.eventually("the metric says that all is well", writable(p, 1))
	p.alive()
	if server.PID() != pid {
		t.Error("it was started again")
	}
	db := must.Get(sql.Open("sqlite", "file:"+filepath.Join(dir, "salvor.db")+"?mode=ro&_pragma=busy_timeout(10000)"))(t)
	defer db.Close()
	p.judge(db)
	t.Logf("answers by status: %v; words: %d", p.answers, len(p.words))
}

// writable holds while the metric salvor_database_writable has the value.
func writable(p *plane, want float64) func() error {
	return func() error {
		got, err := p.metric("salvor_database_writable")
		if err == nil && got != want {
			err = fmt.Errorf("salvor_database_writable is %v, want %v", got, want)
		}
		return err
	}
}
