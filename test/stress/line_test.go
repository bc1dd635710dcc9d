package stress

import (
	"bytes"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"salvor/test/must"
)

// line is the way from one process to the database. It can be cut, it can stand still, it can swallow the connections that are open,
// and it can lose the answer to a commit.
type line struct {
	to       string // the server's socket
	listener net.Listener

	mu    sync.Mutex
	moved *sync.Cond
	held  bool
	deaf  bool // the next commit is carried out, and its answer lost
	ended bool
	open  map[net.Conn]net.Conn
	still map[net.Conn]bool // carries nothing, and does not end
	lost  int
}

func newLine(t testing.TB, socket string) *line {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	l := &line{to: socket, listener: listener, open: map[net.Conn]net.Conn{}, still: map[net.Conn]bool{}}
	l.moved = sync.NewCond(&l.mu)
	go l.serve()
	t.Cleanup(func() {
		l.mu.Lock()
		l.ended, l.held = true, false
		l.moved.Broadcast()
		l.mu.Unlock()
		_ = listener.Close()
		l.cut()
	})
	return l
}

func (l *line) serve() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("unix", l.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		l.mu.Lock()
		l.open[near] = far
		ended := l.ended
		l.mu.Unlock()
		if ended {
			l.drop(near)
			return
		}
		var silent sync.Once
		quiet := make(chan struct{})
		go l.carry(near, far, near, func(b []byte) {
			if bytes.Contains(b, []byte("commit\x00")) && l.deafens() {
				silent.Do(func() { close(quiet) })
			}
		}, nil)
		go l.carry(near, near, far, nil, quiet)
	}
}

// carry takes bytes along one direction of a connection until it ends.
func (l *line) carry(id, to, from net.Conn, look func([]byte), quiet <-chan struct{}) {
	defer l.drop(id)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.wait(id)
		if n > 0 && look != nil {
			look(buffer[:n])
		}
		select {
		case <-quiet:
			return // the answer goes no further, nor does the connection
		default:
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait returns when the connection moves.
func (l *line) wait(id net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.ended && (l.held || l.still[id]) {
		l.moved.Wait()
	}
}

func (l *line) deafens() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.deaf {
		return false
	}
	l.deaf = false
	l.lost++
	return true
}

func (l *line) drop(near net.Conn) {
	l.mu.Lock()
	far := l.open[near]
	delete(l.open, near)
	delete(l.still, near)
	l.moved.Broadcast()
	l.mu.Unlock()
	_ = near.Close()
	if far != nil {
		_ = far.Close()
	}
}

// cut ends every connection.
func (l *line) cut() {
	l.mu.Lock()
	var all []net.Conn
	for near := range l.open {
		all = append(all, near)
	}
	l.mu.Unlock()
	for _, near := range all {
		if c, ok := near.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
		}
		l.drop(near)
	}
}

// hold has the line stand still, or move again; what is under way stays under way.
func (l *line) hold(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = on
	l.moved.Broadcast()
}

// swallow has what is open now carry nothing more, as if it went into a black hole; what is opened from now on works.
func (l *line) swallow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for near := range l.open {
		l.still[near] = true
	}
}

// release ends what was swallowed, or has it move again with all that was on its way.
func (l *line) release(end bool) {
	l.mu.Lock()
	swallowed := l.still
	l.still = map[net.Conn]bool{}
	if !end {
		l.moved.Broadcast()
	}
	l.mu.Unlock()
	for near := range swallowed {
		if end {
			l.drop(near)
		}
	}
}

// deafen loses the answer to the next commit.
func (l *line) deafen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}

func (l *line) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf, l.held, l.still = false, false, map[net.Conn]bool{}
	l.moved.Broadcast()
}

// TestLine: what the line does to a conversation.
func TestLine(t *testing.T) {
	socket := t.TempDir() + "/s"
	server, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	heard := make(chan string, 10)
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 100)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					heard <- string(b[:n])
					_, _ = c.Write(b[:n])
				}
			}()
		}
	}()
	l := newLine(t, socket)
	c, err := net.Dial("tcp", l.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	say := func(what string) error {
		if _, err := c.Write([]byte(what)); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, err := c.Read(make([]byte, 100))
		return err
	}
	if err := say("hello"); err != nil || <-heard != "hello" {
		t.Fatal(err)
	}
	l.deafen()
	if err := say("commit\x00"); err == nil || <-heard != "commit\x00" {
		t.Fatalf("a commit was heard and answered: %v", err)
	}
	if c, err = net.Dial("tcp", l.listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l.hold(true)
	time.AfterFunc(50*time.Millisecond, func() { l.hold(false) })
	if err := say("slow"); err != nil || <-heard != "slow" {
		t.Fatal(err)
	}
	l.swallow()
	must.Get(c.Write([]byte("swallowed")))(t)
	former := c
	if c, err = net.Dial("tcp", l.listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := say("beside"); err != nil || <-heard != "beside" {
		t.Fatal(err)
	}
	_ = former.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := former.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("what was swallowed has an answer of %d bytes: %v", n, err)
	}
	l.release(false)
	_ = former.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := former.Read(make([]byte, 100)); err != nil || <-heard != "swallowed" {
		t.Fatal(err)
	}
	l.swallow()
	l.release(true)
	if say("ended") == nil {
		t.Fatal("what was swallowed and ended answers")
	}
	if c, err = net.Dial("tcp", l.listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := say("again"); err != nil || <-heard != "again" {
		t.Fatal(err)
	}
	l.cut()
	if say("gone") == nil {
		t.Fatal("a cut line answers")
	}
}
