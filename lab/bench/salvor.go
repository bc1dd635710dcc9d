package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// salvorProcess is a server that was started to be measured.
type salvorProcess struct {
	url   string
	took  time.Duration // from start to first answer
	cmd   *exec.Cmd
	state string
	log   outputBuffer
}

// outputBuffer keeps the last that a process wrote.
type outputBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *outputBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.b.Len() > 1<<20 {
		w.b.Reset()
	}
	return w.b.Write(p)
}

// settings of the server: nodes wait for ramdisks that nobody boots, so any address will
// do; and lookup tells tokens, as Ironic's does.
const settings = `[DEFAULT]
log_level = warn
[service_catalog]
endpoint_override = http://127.0.0.1:6385
[agent]
rescue_password_in_lookup = true
`

const startTime = 30 * time.Second

// salvorPath is where "make build" leaves the program.
func salvorPath() string {
	dir := os.Getenv("SALVOR_BIN")
	if dir == "" {
		dir = "bin"
	}
	return filepath.Join(dir, "salvor")
}

// startSalvor starts the program on a free port, with what configure makes of that and the state directory, and waits for its first answer.
func startSalvor(ctx context.Context, program string, configure func(address, dir string) (string, error)) (*salvorProcess, error) {
	state, err := os.MkdirTemp("", "salvor-bench-")
	if err != nil {
		return nil, err
	}
	s := &salvorProcess{state: state}
	if err := s.start(ctx, program, configure); err != nil {
		s.stop()
		return nil, fmt.Errorf("start %s: %w\n%s", program, err, s.logTail())
	}
	return s, nil
}

func (s *salvorProcess) start(ctx context.Context, program string, configure func(address, dir string) (string, error)) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	text, err := configure(address, s.state)
	if err != nil {
		return err
	}
	file := filepath.Join(s.state, "salvor.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	s.url = "http://" + address
	t, err := newTarget(s.url, "1.1", serverCredentials{})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "serve", "--config", file, "--state-dir", s.state, "--listen", address)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = startTime
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	w := &httpConn{t: t}
	defer w.close()
	for {
		_, err := w.ask("GET", "/v1", "", 200)
		if err == nil {
			s.took = time.Since(begin)
			return nil
		}
		if time.Since(begin) > startTime || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// freeAddress finds a port that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *salvorProcess) process() int { return s.cmd.Process.Pid }

func (s *salvorProcess) logTail() string {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	text := s.log.b.String()
	return text[max(0, len(text)-4000):]
}

// idle is the memory of the server when it has nothing to do.
func (s *salvorProcess) idle(ctx context.Context) (float64, error) {
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return readResidentMemory(s.process())
}

func (s *salvorProcess) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
	}
	_ = os.RemoveAll(s.state)
}

// readResidentMemory is the memory of a process, in MiB.
func readResidentMemory(process int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kib float64
			_, err := fmt.Sscan(rest, &kib)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d tells no memory", process)
}

// clockTick is what the kernel counts processor time in, on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// readCPUTime is the processor time of a process so far; 0 if it cannot be told.
func readCPUTime(process int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	if err != nil {
		return 0
	}
	// The name of the program may hold anything but ends with the last bracket.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0
	}
	return time.Duration(user+system) * clockTick
}
