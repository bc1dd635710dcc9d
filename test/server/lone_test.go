package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"testing"

	"salvor/lab/sim"
	"salvor/secret"
	"salvor/test/must"
)

// These environment variables make this binary a VM host's agent.
const loneSocket, loneAPI, loneDoor, loneState, loneJoined = "SALVOR_LONE_SOCKET", "SALVOR_LONE_API", "SALVOR_LONE_DOOR", "SALVOR_LONE_STATE", "SALVOR_LONE_JOINED"

func TestMain(m *testing.M) {
	if socket := os.Getenv(loneSocket); socket != "" {
		if err := loneAgent(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// loneAgent is the real agent in a process of its own, over a machine in the test's: it lives until its standard input ends.
func loneAgent(socket string) error {
	signal.Ignore(os.Interrupt)
	turn := &turn{Handler: slog.NewTextHandler(os.Stderr, nil), said: make(chan struct{})}
	c := sim.Config{API: os.Getenv(loneAPI), Controller: os.Getenv(loneDoor), StateDir: os.Getenv(loneState), Name: "vm1", Log: slog.New(turn)}
	if os.Getenv(loneJoined) != "" {
		c.Token = secret.New("a host that has joined needs none")
	}
	h, err := sim.StartHost(context.Background(), c, sim.Remote(socket))
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		turn.said <- struct{}{}
	}
	go func() {
		for { // nobody answers any more
			turn.said <- struct{}{}
		}
	}()
	return h.Stop()
}

// turn tells the test of each order that was carried out, before the agent writes that down or tells anybody, and lets the
// agent go on when the test says so.
type turn struct {
	slog.Handler
	mu   sync.Mutex
	said chan struct{}
}

func (t *turn) Handle(ctx context.Context, r slog.Record) error {
	err := t.Handler.Handle(ctx, r)
	if r.Message != "order" {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "verb" {
			fmt.Println(a.Value.String())
		}
		return true
	})
	<-t.said
	return err
}

// lone is an agent that can be killed, and a gate that its orders pass.
type lone struct {
	w      *world
	socket string
	cmd    *exec.Cmd
	in     io.WriteCloser
	joined bool

	mu      sync.Mutex
	passed  []string      // verbs since the gate was set
	stop    int           // which order is held, from 1; 0: none
	held    chan struct{} // closed when it is
	release chan struct{}
}

// newLone serves the world's machine and starts an agent over it.
func newLone(w *world) *lone {
	w.Helper()
	dir, err := os.MkdirTemp("", "salvor-lone-") // the path of a socket is short
	if err != nil {
		w.Fatal(err)
	}
	a := &lone{w: w, socket: filepath.Join(dir, "machine")}
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		w.Fatal(err)
	}
	go w.machine.Serve(l)
	a.start()
	w.Cleanup(func() {
		a.set(0)
		a.in.Close()
		if err := a.cmd.Wait(); err != nil {
			w.Errorf("the agent ended with %v", err)
		}
		l.Close()
		_ = os.RemoveAll(dir)
	})
	return a
}

func (a *lone) start() {
	a.w.Helper()
	a.cmd = exec.Command(os.Args[0])
	a.cmd.Env = append(os.Environ(), loneSocket+"="+a.socket, loneAPI+"="+a.w.server.URL, loneDoor+"=https://"+a.w.door, loneState+"="+a.w.state)
	if a.joined {
		a.cmd.Env = append(a.cmd.Env, loneJoined+"=1")
	}
	a.cmd.Stderr = &a.w.hostLog
	in := must.Get(a.cmd.StdinPipe())(a.w)
	out := must.Get(a.cmd.StdoutPipe())(a.w)
	must.OK(a.w, a.cmd.Start())
	a.in, a.joined = in, true
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			a.pass(lines.Text())
			_, _ = io.WriteString(in, "\n")
		}
	}()
}

// kill ends the agent as power loss would end the process; it does nothing more of what it held.
func (a *lone) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// set counts orders from now on and holds the one of this number; whatever was held goes on.
func (a *lone) set(stop int) (held <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.release != nil {
		close(a.release)
	}
	a.passed, a.stop, a.held, a.release = nil, stop, make(chan struct{}), make(chan struct{})
	return a.held
}

func (a *lone) pass(verb string) {
	a.mu.Lock()
	a.passed = append(a.passed, verb)
	mine, held, release := len(a.passed) == a.stop, a.held, a.release
	a.mu.Unlock()
	if mine {
		close(held)
		<-release
	}
}

// verbs are the orders that passed since the gate was set.
func (a *lone) verbs() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string{}, a.passed...)
}
