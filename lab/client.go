package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"salvor/problem"
)

// Lab is a handle on a living lab, from outside its namespaces.
type Lab struct {
	dir     string
	program []string
	leash   *os.File // its closing ends a leashed lab
}

// downTimeout is how long a lab may take to end by itself before its first process is killed.
const downTimeout = 10 * time.Second

// Attach finds a lab that is up. Empty arguments mean the defaults. NotFound: none of that name is up.
func Attach(stateDir, name string) (*Lab, error) {
	spec, err := Spec{StateDir: stateDir, Name: name}.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Lab{dir: labDir(spec.StateDir, spec.Name), program: spec.Program}
	if !isLocked(l.dir) {
		return nil, problem.NotFoundf("lab %s is not up", spec.Name)
	}
	return l, nil
}

// Dir is the directory of the lab's disks and logs.
func (l *Lab) Dir() string { return l.dir }

// dial goes through a descriptor of the directory, because a socket's path is short of length.
func (l *Lab) dial() (*net.UnixConn, error) {
	dir, err := os.Open(l.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketFile), Net: "unix"})
}

// ask sends one request without files and reads its answer.
func (l *Lab) ask(ctx context.Context, req controlRequest) (controlResponse, error) {
	conn, err := l.dial()
	if err != nil {
		return controlResponse{}, problem.Unavailablef("lab %s: %w", filepath.Base(l.dir), err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return controlResponse{}, fmt.Errorf("lab %s: %w", req.Op, err)
	}
	return readAnswer(ctx, conn, req.Op)
}

func readAnswer(ctx context.Context, conn net.Conn, op controlCommand) (controlResponse, error) {
	var a controlResponse
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		if ctx.Err() != nil {
			return a, ctx.Err()
		}
		return a, problem.Unavailablef("lab %s: it went away: %w", op, err)
	}
	if a.Error != "" {
		return a, problem.New(a.Kind, "%s", a.Error)
	}
	return a, nil
}

// Status tells what the lab is and how its machines are.
func (l *Lab) Status(ctx context.Context) (Status, error) {
	a, err := l.ask(ctx, controlRequest{Op: opStatus})
	if err != nil {
		return Status{}, err
	}
	s := *a.Status
	s.Dir, s.Socket = l.dir, filepath.Join(l.dir, socketFile)
	if s.PID, err = l.pid(); err != nil {
		return Status{}, err
	}
	for i := range s.Machines {
		m := &s.Machines[i]
		m.Disk, m.SerialLog = filepath.Join(l.dir, m.Disk), filepath.Join(l.dir, m.SerialLog)
	}
	if len(s.Hosts) > 0 {
		s.Shared = filepath.Join(l.dir, sharedDir)
	}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.Dir, h.Socket, h.ServiceLog = filepath.Join(l.dir, h.Dir), filepath.Join(l.dir, h.Socket), filepath.Join(l.dir, h.ServiceLog)
	}
	return s, nil
}

func (l *Lab) pid() (int, error) {
	text, err := os.ReadFile(filepath.Join(l.dir, pidFile))
	if err != nil {
		return 0, fmt.Errorf("lab pid: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("lab pid %q: not a process", text)
	}
	return pid, nil
}

// Fault makes a machine's BMC fail as ParseFault says, from now on; "none" mends it.
func (l *Lab) Fault(ctx context.Context, machine, fault string) error {
	_, err := l.ask(ctx, controlRequest{Op: opFault, Machine: machine, Fault: fault})
	return err
}

// LogEvent has a machine's BMC log an event, as if it had happened.
func (l *Lab) LogEvent(ctx context.Context, machine string, event EventKind) error {
	_, err := l.ask(ctx, controlRequest{Op: opEvent, Machine: machine, Event: event})
	return err
}

// Down ends the lab and waits until its last process is gone.
func (l *Lab) Down(ctx context.Context) error {
	pid, err := l.pid()
	if err != nil {
		return err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return problem.NotFoundf("lab %s is not up", filepath.Base(l.dir))
	}
	if err != nil {
		return fmt.Errorf("lab down: %w", err)
	}
	defer unix.Close(process)
	if !isLocked(l.dir) {
		return problem.NotFoundf("lab %s is not up", filepath.Base(l.dir)) // the pid may be another's by now
	}
	if l.leash != nil {
		l.leash.Close()
	}
	// A lab that does not even listen is ended by force at once.
	defer removeFreezers(l.dir)
	if _, err := l.ask(ctx, controlRequest{Op: opDown}); err == nil {
		if gone, err := awaitEnd(ctx, process, downTimeout); gone || err != nil {
			return err
		}
	}
	removeFreezers(l.dir) // a frozen host would not let its namespace end
	if err := unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("lab down: %w", err)
	}
	gone, err := awaitEnd(ctx, process, downTimeout)
	if err == nil && !gone {
		err = problem.Unavailablef("lab down: process %d does not end", pid)
	}
	return err
}

// awaitEnd waits until a process, by its descriptor, is gone: for a pid 1, with all of its namespace.
func awaitEnd(ctx context.Context, process int, limit time.Duration) (bool, error) {
	const step = 100 * time.Millisecond
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, int(step/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("wait for the lab's end: %w", err)
		}
		if n > 0 {
			return true, nil
		}
	}
	return false, nil
}

// Command is a program to run inside the lab's namespaces.
type Command struct {
	Args                  []string
	Env                   []string // nil: empty
	Dir                   string   // empty: the present one
	Stdin, Stdout, Stderr *os.File
}

// Exec runs a program inside the lab and returns its exit status, 128 and the signal's number if it
// was ended by one. When ctx or this process ends, so does the program.
func (l *Lab) Exec(ctx context.Context, c Command) (int, error) {
	if c.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return 0, fmt.Errorf("lab exec: %w", err)
		}
		c.Dir = dir
	}
	if len(c.Args) == 0 {
		return 0, problem.Invalidf("lab exec: want a program")
	}
	program, err := exec.LookPath(c.Args[0]) // by our PATH: the lab's may be another
	if err != nil {
		return 127, problem.NotFoundf("lab exec: %w", err)
	}
	c.Args = append([]string{program}, c.Args[1:]...)
	conn, err := l.dial()
	if err != nil {
		return 0, problem.Unavailablef("lab %s is not up: %w", filepath.Base(l.dir), err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	line, err := json.Marshal(controlRequest{Op: opExec, Args: c.Args, Env: c.Env, Dir: c.Dir})
	if err != nil {
		return 0, fmt.Errorf("lab exec: %w", err)
	}
	line = append(line, '\n')
	rights := unix.UnixRights(int(c.Stdin.Fd()), int(c.Stdout.Fd()), int(c.Stderr.Fd()))
	n, _, err := conn.WriteMsgUnix(line, rights, nil)
	if err == nil && n < len(line) {
		_, err = conn.Write(line[n:])
	}
	if err != nil {
		return 0, fmt.Errorf("lab exec: %w", err)
	}
	stop := relaySignals(conn)
	defer stop()
	a, err := readAnswer(ctx, conn, opExec)
	return a.Exit, err
}

// relaySignals sends the signals that this process gets to the program inside.
func relaySignals(conn net.Conn) (stop func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	go func() {
		for s := range signals {
			_ = json.NewEncoder(conn).Encode(controlRequest{Signal: int(s.(syscall.Signal))})
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

// Command makes an exec.Cmd that runs a program inside the lab, with all that exec.Cmd offers.
func (l *Lab) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	full := append(append([]string{}, l.program...), hiddenExec, l.dir, program)
	return exec.CommandContext(ctx, full[0], append(full[1:], args...)...)
}
