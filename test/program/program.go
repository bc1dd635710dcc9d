// Package program runs the real salvor binary for tests: it is built once, started
// on a free port, and killed or stopped like any process. It is a test room.
package program

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds the start and the end of a process.
const patience = 60 * time.Second

var build = sync.OnceValues(func() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..")
	dir, err := os.MkdirTemp("", "salvor-bin-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"salvor", "salvor-agent"} {
		cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, name), "./cmd/"+name)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

// Path gives the path of a program of the project: "salvor" or "salvor-agent". With
// SALVOR_BIN set it is found there instead of being built.
func Path(t testing.TB, name string) string {
	t.Helper()
	if dir := os.Getenv("SALVOR_BIN"); dir != "" {
		return filepath.Join(dir, name)
	}
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// Server is a running salvor serve.
type Server struct {
	URL   string
	State string // its state directory

	t      testing.TB
	config string
	prefix []string
	cmd    *exec.Cmd
	log    lockedBuffer
	ended  chan struct{}
}

// Serve starts a server with a configuration (the text of a file, may be empty) on a
// fresh state directory; the test's end stops it. prefix runs it inside something else.
func Serve(t testing.TB, config string, prefix ...string) *Server {
	t.Helper()
	s := &Server{State: t.TempDir(), t: t, prefix: prefix, config: filepath.Join(t.TempDir(), "salvor.conf")}
	if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start("127.0.0.1:0")
	t.Cleanup(func() { s.Stop() })
	return s
}

var listening = regexp.MustCompile(`msg=listening door=api address=(\S+)`)

func (s *Server) start(listen string) {
	s.t.Helper()
	args := append(append([]string{}, s.prefix...), Path(s.t, "salvor"), "serve", "--config", s.config, "--state-dir", s.State, "--listen", listen)
	s.cmd = exec.Command(args[0], args[1:]...)
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = w, w
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	w.Close()
	found := make(chan string, 1)
	ended := make(chan struct{})
	s.ended = ended
	go func(cmd *exec.Cmd) {
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			s.log.Write([]byte(line))
			if m := listening.FindStringSubmatch(line); m != nil {
				found <- m[1]
			}
			if err != nil {
				break
			}
		}
		_ = cmd.Wait()
		close(ended)
	}(s.cmd)
	select {
	case address := <-found:
		s.URL = "http://" + address
	case <-ended:
		s.t.Fatalf("salvor serve ended:\n%s", s.log.String())
	case <-time.After(patience):
		s.t.Fatalf("salvor serve did not start:\n%s", s.log.String())
	}
}

// Kill ends the server as power loss would end the process.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// Stop ends the server in order.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.Kill()
	}
}

// Start starts it again on the same state directory and address.
func (s *Server) Start() {
	s.t.Helper()
	s.start(strings.TrimPrefix(s.URL, "http://"))
}

// PID is the process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Log is all that the server has written.
func (s *Server) Log() string { return s.log.String() }

// Peak is the greatest resident memory in bytes so far.
func (s *Server) Peak() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		s.t.Fatal(err)
	}
	var kib int64
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			fmt.Sscan(rest, &kib)
		}
	}
	return kib << 10
}

// Get reads a path of the server without a credential.
func (s *Server) Get(path string) (int, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
