package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/wire/agent"
)

const (
	// resend is after how long the guest is asked again on the same connection.
	resend  = 10 * time.Second
	maxLine = 64 << 10
)

// unlock gives the guest's rescue system its credential over the channel and brings its fingerprint
// back. The guest may come up later: it is asked until it answers or the order's time is over. The credential touches no disk.
func (w *orderExecution) unlock(ctx context.Context) (compute.Result, error) {
	if w.secret.Hash == "" && len(w.secret.Keys) == 0 {
		return compute.Result{}, problem.Invalidf("unlock of server %s: no credential", w.order.ServerID)
	}
	line, err := json.Marshal(agent.Unlock{Version: agent.ChannelVersion, Hash: w.secret.Hash, Keys: w.secret.Keys, NetworkData: w.networkData()})
	if err != nil {
		return compute.Result{}, problem.Invalidf("unlock of server %s: the credential cannot be written as JSON", w.order.ServerID)
	}
	if len(line) >= agent.MaxUnlock {
		return compute.Result{}, problem.Invalidf("unlock of server %s: its credential and addresses take %d bytes; a rescue system takes %d", w.order.ServerID, len(line), agent.MaxUnlock)
	}
	line = append(line, '\n')
	var last error
	for {
		answer, err := queryGuestChannel(ctx, w.path(channelFile), line)
		if err == nil {
			return compute.Result{Fingerprint: answer.Fingerprint, HostKey: answer.HostKey}, nil
		}
		if problem.Is(err, problem.Invalid) || problem.Is(err, problem.Conflict) {
			return compute.Result{}, fmt.Errorf("unlock server %s: %w", w.order.ServerID, err)
		}
		if ctx.Err() == nil {
			last = err
		}
		if !sleepContext(ctx, 500*time.Millisecond) {
			if last == nil {
				last = errors.New("nothing answers in the guest")
			}
			return compute.Result{}, problem.Unavailablef("unlock server %s: its rescue system did not answer in time: %w", w.order.ServerID, last)
		}
	}
}

// networkData is what the rescue system is told of its addresses, if the control plane gave any.
func (w *orderExecution) networkData() json.RawMessage {
	const name = "openstack/latest/network_data.json"
	for _, files := range []map[string][]byte{w.secret.RescueDrive, w.secret.Drive} {
		if b := files[name]; json.Valid(b) {
			return b
		}
	}
	return nil
}

// queryGuestChannel writes the line to the guest until it answers or the connection breaks. Nobody writes or holds the line after its return.
func queryGuestChannel(ctx context.Context, socket string, line []byte) (agent.Unlocked, error) {
	var none agent.Unlocked
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", socket)
	if err != nil {
		return none, problem.Unavailablef("the guest's channel: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	var writer sync.WaitGroup
	defer func() {
		stop()
		_ = c.Close()
		writer.Wait()
	}()
	writer.Go(func() {
		for {
			_ = c.SetWriteDeadline(time.Now().Add(resend))
			// A half-written line would spoil the next one, so a write that fails ends the connection.
			if _, err := c.Write(line); err != nil {
				_ = c.Close()
				return
			}
			if !sleepContext(ctx, resend) {
				return
			}
		}
	})
	lines := bufio.NewScanner(c)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	for lines.Scan() {
		answer, err := parseAnswer(lines.Bytes())
		if err != nil {
			continue // the rest of a line to somebody before us, or noise of a boot
		}
		if answer.Retry {
			// The rest of a line that somebody before us began, say, with ours behind it.
			return none, problem.Unavailablef("the rescue system did not understand: %.300s", answer.Error)
		}
		if answer.Error != "" {
			return none, problem.Conflictf("the rescue system refused: %.300s", answer.Error)
		}
		return answer, nil
	}
	return none, problem.Unavailablef("the guest's channel broke off: %v", lines.Err())
}

// parseAnswer reads a line from a guest, which may be anything.
func parseAnswer(line []byte) (agent.Unlocked, error) {
	var a agent.Unlocked
	if err := json.Unmarshal(line, &a); err != nil {
		return a, problem.Invalidf("the guest's answer is not understood")
	}
	if a.Version != agent.ChannelVersion || a.Fingerprint == "" && a.Error == "" {
		return a, problem.Invalidf("the guest's answer is of version %d, or empty", a.Version)
	}
	if len(a.Fingerprint) > 200 || !isPrintableASCII(a.Fingerprint) || !isPrintableASCII(a.Agent) {
		return a, problem.Invalidf("the guest's answer holds no fingerprint")
	}
	if len(a.HostKey) > 1<<10 || !isPrintableASCII(a.HostKey) {
		a.HostKey = ""
	}
	if !isPrintableASCII(a.Error) {
		a.Error = fmt.Sprintf("%+q", a.Error)
	}
	return a, nil
}

func isPrintableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
