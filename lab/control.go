package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"salvor/problem"
)

// The lab's control socket: each connection carries one request, a line of JSON, with open files
// beside it where the request is to run a program; and one answer.

type controlCommand string

const (
	opStatus  controlCommand = "status"
	opDown    controlCommand = "down"
	opFault   controlCommand = "fault"
	opEvent   controlCommand = "event"
	opChassis controlCommand = "chassis"
	opExec    controlCommand = "exec"
	opHost    controlCommand = "host"
)

type controlRequest struct {
	Op      controlCommand `json:"op"`
	Machine string         `json:"machine,omitempty"`
	Fault   string         `json:"fault,omitempty"`
	Event   EventKind      `json:"event,omitempty"`
	Args    []string       `json:"args,omitempty"`
	Env     []string       `json:"env,omitempty"`
	Dir     string         `json:"dir,omitempty"`
	Signal  int            `json:"signal,omitempty"` // follows an exec request, any number of times
}

type controlResponse struct {
	Kind   problem.Kind `json:"kind,omitempty"`
	Error  string       `json:"error,omitempty"`
	Output string       `json:"output,omitempty"`
	Exit   int          `json:"exit"`
	Status *Status      `json:"status,omitempty"`
}

const (
	maxRequest = 1 << 20
	execFiles  = 3 // standard input, output and error
)

func (w *runningLab) listen(ctx context.Context) error {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketFile, Net: "unix"})
	if err != nil {
		return fmt.Errorf("open control socket: %w", err)
	}
	if err := os.Chmod(socketFile, 0o600); err != nil {
		return fmt.Errorf("open control socket: %w", err)
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return // closed: the lab is going down
			}
			go w.converse(ctx, conn)
		}
	}()
	return nil
}

// converse serves one connection.
func (w *runningLab) converse(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	line := &lineReader{conn: conn}
	defer line.closeFiles()
	var req controlRequest
	if err := line.next(&req); err != nil {
		if !errors.Is(err, io.EOF) { // EOF: somebody looked whether the lab is up
			w.log.Warn("control socket", "err", err)
		}
		return
	}
	a := controlResponse{}
	var err error
	switch req.Op {
	case opStatus:
		a.Status = w.status()
	case opDown:
		w.end()
	case opFault:
		err = w.setFault(req.Machine, req.Fault)
	case opEvent:
		err = w.logEvent(req.Machine, req.Event)
	case opChassis:
		var m *labMachine
		if m, err = w.find(req.Machine); err == nil {
			a.Output, err = chassisCommand(ctx, m.chassis, req.Args)
		}
	case opHost:
		err = w.hostVerb(ctx, req.Machine, HostVerb(strings.Join(req.Args, " ")))
	case opExec:
		a.Exit, err = w.exec(ctx, req, line)
	default:
		err = problem.Invalidf("lab request %q: not known", req.Op)
	}
	if err != nil {
		a.Kind, a.Error = problem.KindOf(err), err.Error()
	}
	if err := json.NewEncoder(conn).Encode(a); err != nil && !errors.Is(err, syscall.EPIPE) {
		w.log.Warn("control socket", "op", req.Op, "err", err)
	}
}

// lineReader reads lines of JSON and gathers the files that come with them.
type lineReader struct {
	conn *net.UnixConn
	rest []byte

	mu    sync.Mutex // files may come while signals are awaited, and be closed then
	files []*os.File
}

func (r *lineReader) next(into *controlRequest) error {
	buf := make([]byte, 64<<10)
	oob := make([]byte, unix.CmsgSpace(4*execFiles))
	for {
		if i := bytes.IndexByte(r.rest, '\n'); i >= 0 {
			line := r.rest[:i]
			r.rest = r.rest[i+1:]
			*into = controlRequest{}
			if err := json.Unmarshal(line, into); err != nil {
				return fmt.Errorf("read request: %w", err)
			}
			return nil
		}
		if len(r.rest) > maxRequest {
			return errors.New("read request: longer than a mebibyte")
		}
		n, oobn, _, _, err := r.conn.ReadMsgUnix(buf, oob)
		if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		if n == 0 && oobn == 0 {
			return fmt.Errorf("read request: %w", io.EOF)
		}
		r.rest = append(r.rest, buf[:n]...)
		if err := r.takeFiles(oob[:oobn]); err != nil {
			return err
		}
	}
}

func (r *lineReader) takeFiles(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			r.files = append(r.files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return nil
}

func (r *lineReader) closeFiles() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.files {
		f.Close()
	}
	r.files = nil
}
