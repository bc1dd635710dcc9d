package store_test

import (
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// hole is a way to a server that can swallow the connections that are open: they carry nothing any more and never end. New ones work.
type hole struct {
	mu   sync.Mutex
	open []chan struct{}
}

func (h *hole) swallow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, swallowed := range h.open {
		close(swallowed)
	}
	h.open = nil
}

// holed gives the database by way of a hole.
func holed(t *testing.T, d storetest.Database) (storetest.Database, *hole) {
	t.Helper()
	u := must.Get(url.Parse(d.URL))(t)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	h := &hole{}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432"))
			if err != nil {
				_ = near.Close()
				continue
			}
			t.Cleanup(func() { _, _ = near.Close(), far.Close() })
			swallowed := make(chan struct{})
			h.mu.Lock()
			h.open = append(h.open, swallowed)
			h.mu.Unlock()
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				go carry(way[0], way[1], swallowed)
			}
		}
	}()
	d.URL = "postgres://postgres@" + listener.Addr().String() + u.Path + "?sslmode=disable"
	return d, h
}

func carry(to io.WriteCloser, from io.Reader, swallowed <-chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-swallowed:
			return
		default:
		}
		if n > 0 {
			_, _ = to.Write(buffer[:n])
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// TestSilence: connections that go silent, of which nobody is told, hold nobody up for long.
func TestSilence(t *testing.T) {
	d, line := holed(t, storetest.CopiedPostgres(t))
	s := storetest.Open(t, d)
	me := job.Conductor{ID: "c", Incarnation: "1", Hostname: "h"}
	must.OK(t, s.Register(t.Context(), me))
	busy := func() { // with many connections
		var all sync.WaitGroup
		for range 12 {
			all.Go(func() {
				_ = s.Do(t.Context(), func(tx job.Tx) error {
					time.Sleep(100 * time.Millisecond)
					return s.InsertNode(tx, &metal.Node{ID: "n", ProvisionState: metal.Enroll})
				})
			})
		}
		all.Wait()
	}
	within := func(what string, limit time.Duration, do func() error) {
		t.Helper()
		began := time.Now()
		var err error
		for time.Since(began) < limit {
			if err = do(); err == nil {
				break
			}
		}
		if took := time.Since(began); err != nil || took > limit {
			t.Errorf("%s came to an end after %s, of which %s are allowed: %v", what, took, limit, err)
		}
	}
	renew := func() error { return s.RenewLease(t.Context(), me) }
	read := func() error { _, err := s.Node(t.Context(), nil, "n"); return err }
	busy()
	within("a beat", 10*time.Second, renew)
	line.swallow()
	within("a beat over a line just used", 4*time.Second, renew) // a lease lasts five
	busy()
	within("a beat", 10*time.Second, renew)
	time.Sleep(1200 * time.Millisecond) // none of them is taken for fresh
	line.swallow()
	within("a read", 15*time.Second, read)
	within("another read", 10*time.Second, read)
	within("a beat", 15*time.Second, renew)
	within("a claim", 15*time.Second, func() error {
		_, err := s.Claim(t.Context(), me.Owner(), s.Now(), []string{""}, map[job.Kind]int{"work": 1}, 1)
		return err
	})
}

// TestSilenceOfARead: a read over a connection that was used just before is not waited for without end.
func TestSilenceOfARead(t *testing.T) {
	d, line := holed(t, storetest.CopiedPostgres(t))
	d.URL += "&statement_timeout=1000"
	s := must.Get(store.Open(t.Context(), d.URL, d.Key, store.Options{MaxConns: 1, Migrate: store.MigrateEmpty}))(t)
	defer s.Close()
	for { // one that came in time
		if _, err := s.Node(t.Context(), nil, "n"); problem.Is(err, problem.NotFound) {
			break
		}
	}
	line.swallow()
	began := time.Now()
	if _, err := s.Node(t.Context(), nil, "n"); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a read into a void: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it was waited for %s", took)
	}
}
