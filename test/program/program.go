// Package program runs the real salvor binary for tests. It builds the binary once, starts it on a free port, and kills or stops it like
// any process. Only tests import it.
package program

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"salvor/test/must"
)

// processTimeout bounds the start and the end of a process.
const processTimeout = 60 * time.Second

var build = sync.OnceValues(func() (string, error) {
	// The path of this file is not in a program that was built with -trimpath.
	file, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(file)))
	dir, err := os.MkdirTemp("", "salvor-bin-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"salvor", "salvor-agent", "salvor-lab"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), "./cmd/"+name)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

// Path gives the path of a program of the project: "salvor", "salvor-agent" or "salvor-lab". With
// SALVOR_BIN set it is found there, in the last directory of that list, instead of being built.
func Path(t testing.TB, name string) string {
	t.Helper()
	all := must.Get(folders())(t)
	return filepath.Join(all[len(all)-1], name)
}

// Former is Path for the former release, the first that SALVOR_BIN lists. The test fails where it lists fewer than two.
func Former(t testing.TB, name string) string {
	t.Helper()
	all := must.Get(folders())(t)
	if len(all) < 2 {
		t.Fatal("SALVOR_BIN lists no former release beside this one: make upgrade")
	}
	return filepath.Join(all[0], name)
}

// folders are the directories with the programs: more than one if servers take turns between releases.
func folders() ([]string, error) {
	if list := filepath.SplitList(os.Getenv("SALVOR_BIN")); len(list) > 0 {
		return list, nil
	}
	dir, err := build()
	return []string{dir}, err
}

// Server is a running salvor serve.
type Server struct {
	URL   string
	State string // its state directory

	config string
	prefix []string
	starts int
	cmd    *exec.Cmd
	log    Buffer
	ended  chan struct{}
}

// Serve starts a server with a configuration (the text of a file, may be empty) on a
// fresh state directory; the test's end stops it. prefix runs it inside something else.
func Serve(t testing.TB, config string, prefix ...string) *Server {
	t.Helper()
	Path(t, "salvor")
	s := must.Get(Launch(t.TempDir(), config, prefix...))(t)
	t.Cleanup(s.Stop)
	return s
}

// Launch starts a server on a state directory; the program is built already.
func Launch(state, config string, prefix ...string) (*Server, error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	s := &Server{State: state, prefix: prefix, config: filepath.Join(state, "salvor.conf")}
	if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return s, s.launch(net.JoinHostPort(ownAddress().String(), "0"))
}

// ownAddress is a loopback address on which only servers of this test program listen. While a server is down, between a kill and the
// next start, no other program takes its port.
var ownAddress = sync.OnceValue(func() net.IP {
	n := rand.Uint32()
	return net.IPv4(127, byte(128+n>>16&63), byte(n>>8), byte(1+n%254))
})

// listening tells the address of the API; serving, that all listeners are open.
var (
	listening = regexp.MustCompile(`msg=listening door=api address=(\S+)`)
	serving   = regexp.MustCompile(`msg=serving roles=`)
)

func (s *Server) launch(listen string) error {
	all, err := folders()
	if err != nil {
		return err
	}
	dir := all[s.starts%len(all)]
	s.starts++
	args := append(append([]string{}, s.prefix...), filepath.Join(dir, "salvor"), "serve", "--config", s.config, "--state-dir", s.State, "--listen", listen)
	cmd := exec.Command(args[0], args[1:]...)
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	_ = w.Close() // or the end of the process is no end of its words
	if err != nil {
		r.Close()
		return err
	}
	found, ended := make(chan string, 1), make(chan struct{})
	s.cmd, s.ended = cmd, ended
	go func() {
		defer close(ended)
		s.read(r, found)
		_ = cmd.Wait()
	}()
	select {
	case address := <-found:
		if at := "http://" + address; address != "" && at != s.URL { // others may read it while the server starts again
			s.URL = at
		}
		return nil
	case <-ended:
		return fmt.Errorf("salvor serve ended:\n%s", s.Log())
	case <-time.After(processTimeout):
		s.Kill()
		return fmt.Errorf("salvor serve did not start:\n%s", s.Log())
	}
}

// read keeps what the server writes. Once all listeners are open, it tells the address of the API; empty: there is none.
func (s *Server) read(r io.ReadCloser, found chan<- string) {
	defer r.Close()
	lines := bufio.NewReader(r)
	api, told := "", false
	for {
		line, err := lines.ReadString('\n')
		_, _ = s.log.Write([]byte(line))
		if m := listening.FindStringSubmatch(line); m != nil {
			api = m[1]
		}
		if !told && serving.MatchString(line) {
			told = true
			found <- api
		}
		if err != nil {
			return
		}
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
	case <-time.After(processTimeout):
		s.Kill()
	}
}

// Relaunch starts it again on the same state directory and address. If SALVOR_BIN lists several directories, each start takes the program
// of the next one: so a server is upgraded and taken back.
func (s *Server) Relaunch() error {
	if s.URL == "" {
		return s.launch(net.JoinHostPort(ownAddress().String(), "0"))
	}
	return s.launch(strings.TrimPrefix(s.URL, "http://"))
}

// Door is the address of the door of that name, as the newest start told it; empty: there is none.
func (s *Server) Door(name string) string {
	all := regexp.MustCompile(`msg=listening door=`+name+` address=(\S+)`).FindAllStringSubmatch(s.Log(), -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// Configure adds to the configuration of the next start.
func (s *Server) Configure(t testing.TB, more string) {
	t.Helper()
	f := must.Get(os.OpenFile(s.config, os.O_APPEND|os.O_WRONLY, 0))(t)
	defer f.Close()
	must.Get(f.WriteString(more))(t)
}

// Ended is closed when the process has ended.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Signal sends the process a signal.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// Start is Relaunch for tests.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	must.OK(t, s.Relaunch())
}

// PID is the process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Log is all that the server has written.
func (s *Server) Log() string { return s.log.String() }

// AwaitLog waits until the log holds the text: a process writes a line some time after it has done what the line tells.
func (s *Server) AwaitLog(t testing.TB, text string) {
	t.Helper()
	if Await(30*time.Second, If(func() bool { return strings.Contains(s.Log(), text) })) != nil {
		t.Errorf("the log does not say %q within 30 s:\n%s", text, s.Log())
	}
}

// Peak is the greatest resident memory in bytes so far.
func (s *Server) Peak() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		return 0, err
	}
	var kib int64
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, _ = fmt.Sscan(rest, &kib)
		}
	}
	return kib << 10, nil
}

// Buffer keeps what a process or a log writes while others read it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
