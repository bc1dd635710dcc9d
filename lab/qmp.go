package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// qmpClient is a client of QEMU's machine protocol: JSON lines, one command in flight at a time.
type qmpClient struct {
	conn net.Conn

	send    sync.Mutex // held from a command to its answer
	answers chan qmpMessage

	mu     sync.Mutex
	reason string // of the SHUTDOWN event
	err    error  // why reading ended
}

// qmpMessage is anything QEMU says: a greeting, an answer or an event.
type qmpMessage struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
	Data  struct {
		Reason string `json:"reason"`
	} `json:"data"`
}

const (
	qmpTimeout = 10 * time.Second
	qmpMaxLine = 1 << 20
)

// newQMP takes a fresh connection through the greeting and starts reading events.
func newQMP(conn net.Conn) (*qmpClient, error) {
	q := &qmpClient{conn: conn, answers: make(chan qmpMessage, 1)}
	go q.read()
	ctx, cancel := context.WithTimeout(context.Background(), qmpTimeout)
	defer cancel()
	if err := q.do(ctx, "qmp_capabilities", nil, nil); err != nil {
		conn.Close()
		return nil, err
	}
	return q, nil
}

// read sorts what QEMU says until the connection ends.
func (q *qmpClient) read() {
	defer close(q.answers)
	lines := bufio.NewScanner(q.conn)
	lines.Buffer(make([]byte, 0, 4096), qmpMaxLine)
	for lines.Scan() {
		var m qmpMessage
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			q.end(fmt.Errorf("qmp: line that is no JSON: %w", err))
			return
		}
		switch {
		case m.Event == "SHUTDOWN":
			q.mu.Lock()
			q.reason = m.Data.Reason
			q.mu.Unlock()
		case m.Return != nil || m.Error != nil:
			select {
			case q.answers <- m:
			default: // an answer that nobody waits for any more
			}
		}
	}
	if err := lines.Err(); err != nil {
		q.end(fmt.Errorf("qmp: %w", err))
		return
	}
	q.end(io.EOF)
}

func (q *qmpClient) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = err
}

// shutdownReason is QEMU's word on why the guest ended: guest-reset, guest-shutdown, ...; empty
// if it did not say.
func (q *qmpClient) shutdownReason() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reason
}

// do sends one command and decodes its answer into result, if that is not nil. After a time-out
// the connection is closed: a late answer could be taken for that of the next command.
func (q *qmpClient) do(ctx context.Context, command string, args map[string]any, result any) error {
	q.send.Lock()
	defer q.send.Unlock()
	request := map[string]any{"execute": command}
	if args != nil {
		request["arguments"] = args
	}
	line, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("qmp %s: %w", command, err)
	}
	ctx, cancel := context.WithTimeout(ctx, qmpTimeout)
	defer cancel()
	if _, err := q.conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("qmp %s: %w", command, err)
	}
	select {
	case m, ok := <-q.answers:
		switch {
		case !ok:
			q.mu.Lock()
			defer q.mu.Unlock()
			return fmt.Errorf("qmp %s: connection ended: %w", command, q.err)
		case m.Error != nil:
			return fmt.Errorf("qmp %s: %s: %s", command, m.Error.Class, m.Error.Desc)
		case result != nil:
			if err := json.Unmarshal(m.Return, result); err != nil {
				return fmt.Errorf("qmp %s: %w", command, err)
			}
		}
		return nil
	case <-ctx.Done():
		q.conn.Close()
		return fmt.Errorf("qmp %s: %w", command, ctx.Err())
	}
}

func (q *qmpClient) close() { q.conn.Close() }
