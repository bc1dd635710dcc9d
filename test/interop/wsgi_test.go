//go:build e2e

package interop

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/test/program"
)

// wsgiServer is a Python service of OpenStack under uwsgi, on a free port.
type wsgiServer struct {
	address string // HOST:PORT
	log     program.Buffer
	cmd     *exec.Cmd
	ended   chan struct{}
}

var bound = regexp.MustCompile(`bound to TCP address (127\.0\.0\.1:\d+)`)

// startWSGI runs one process that loads the application after its fork: with SQLite two would wait for each other. Connections are closed
// and say so; else clients see them reset. It ends with the test.
func startWSGI(t testing.TB, name, file string, env []string, args ...string) *wsgiServer {
	t.Helper()
	s := &wsgiServer{ended: make(chan struct{})}
	s.cmd = exec.Command("uwsgi", append([]string{"--plugin", "python3", "--http-socket", "127.0.0.1:0", "--wsgi-file", file,
		"--lazy-apps", "--processes", "1", "--threads", "4", "--need-app", "--buffer-size", "65535", "--add-header", "Connection: close"}, args...)...)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.WaitDelay = time.Second
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("uwsgi: %v: install the packages uwsgi-core and uwsgi-plugin-python3", err)
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			log := s.log.String()
			t.Logf("the log of %s:\n%s", name, log[max(0, len(log)-4000):])
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		text := s.log.String()
		if m := bound.FindStringSubmatch(text); m != nil && strings.Contains(text, "WSGI app 0") {
			s.address = m[1]
			return s
		}
		select {
		case <-s.ended:
			t.Fatalf("%s ended:\n%s", name, text)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not start:\n%s", name, text)
		}
	}
}

// stop ends the service.
func (s *wsgiServer) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}
