package client

import (
	"context"
	"fmt"
	"strings"
	"time"

	"salvor/problem"
)

// Progress is what a wait has to say at one look.
type Progress struct {
	// Node is as last read; nil until it was read once.
	Node *Node
	// Elapsed is the time since the wait began.
	Elapsed time.Duration
	// LastEvent is the newest event of the node; empty where the server tells none.
	LastEvent string
	// Silent is why the server does not answer at the moment; nil if it does.
	Silent error
}

// Wait says what WaitProvision waits for.
type Wait struct {
	// Until ends the wait with success.
	Until func(*Node) bool
	// Rests tells that nobody will move the node on, so that waiting longer is in vain; nil: by its provision state.
	Rests func(*Node) bool
	// Change hears of each look; may be nil.
	Change func(Progress)
	// Interval is the longest time between two looks; 0 means a second. The first ones follow each other faster.
	Interval time.Duration
}

// Ended is the error of an operation that came to another end.
type Ended struct{ Node *Node }

func (e *Ended) Error() string {
	text := fmt.Sprintf("node %s is in state %q", e.Node.Label(), e.Node.ProvisionState)
	if e.Node.PowerState != "" {
		text += " with " + e.Node.PowerState
	}
	if e.Node.LastError != "" {
		text += ": " + e.Node.LastError
	}
	return text
}

// TimedOut is the error of a wait whose context ended first. The operation goes on.
type TimedOut struct {
	Ident string
	Last  Progress
}

func (e *TimedOut) Error() string {
	text := fmt.Sprintf("node %s: gave up waiting after %s", e.Ident, e.Last.Elapsed.Round(time.Second))
	if e.Last.Node != nil {
		text += fmt.Sprintf(" in state %q", e.Last.Node.ProvisionState)
	}
	if e.Last.Silent != nil {
		text += ": " + e.Last.Silent.Error()
	}
	return text
}

const firstPause = 100 * time.Millisecond

// State is an Until that waits for one of these provision states.
func State(states ...string) func(*Node) bool {
	return func(n *Node) bool {
		for _, s := range states {
			if n.ProvisionState == s {
				return true
			}
		}
		return false
	}
}

// Working tells whether somebody is still to move a node on from a provision state.
func Working(state string) bool {
	switch state {
	case "verifying", "inspecting", "adopting", "cleaning", "deploying", "servicing", "rescuing", "unrescuing", "deleting", "wait call-back":
		return true
	}
	return strings.HasSuffix(state, " wait")
}

// WaitProvision looks at a node until it is as wanted. It ends with an *Ended where the
// node rests in another state, with a *TimedOut at the end of ctx, and with the server's own error where
// asking again cannot help. A server that does not answer is asked again.
func (c *Client) WaitProvision(ctx context.Context, ident string, w Wait) (*Node, error) {
	if w.Interval <= 0 {
		w.Interval = time.Second
	}
	if w.Change == nil {
		w.Change = func(Progress) {}
	}
	if w.Rests == nil {
		// A node that is locked in a failed state is being put back: what can be asked of it is refused until that has ended.
		w.Rests = func(n *Node) bool { return !Working(n.ProvisionState) && n.Reservation == "" }
	}
	start, pause := time.Now(), min(firstPause, w.Interval)
	follow := &historyFollower{client: c, ident: ident, seen: map[string]bool{}}
	var last Progress
	for {
		n, err := c.Node(ctx, ident)
		last.Elapsed = time.Since(start)
		switch {
		case ctx.Err() != nil:
			return last.Node, &TimedOut{Ident: ident, Last: last}
		case err != nil && !problem.Is(err, problem.Unavailable):
			return last.Node, err
		case err != nil:
			last.Silent = err
		default:
			last.Node, last.Silent = n, nil
			if lastEvent := follow.latest(ctx); lastEvent != "" {
				last.LastEvent = lastEvent
			}
		}
		w.Change(last)
		if err == nil {
			switch {
			case w.Until(n):
				return n, nil
			case w.Rests(n):
				return n, &Ended{Node: n}
			}
		}
		select {
		case <-ctx.Done():
			last.Elapsed = time.Since(start)
			return last.Node, &TimedOut{Ident: ident, Last: last}
		case <-time.After(pause):
		}
		pause = min(2*pause, w.Interval)
	}
}

// historyFollower reads a node's history, each event once.
type historyFollower struct {
	client *Client
	ident  string
	marker string
	off    bool
	seen   map[string]bool
}

// latest gives the newest event that came since the last call; empty where nothing came,
// or where the server keeps no history.
func (f *historyFollower) latest(ctx context.Context) string {
	if f.off {
		return ""
	}
	events, err := f.client.History(ctx, f.ident, Query{Marker: f.marker})
	if err != nil {
		f.off = !problem.Is(err, problem.Unavailable)
		return ""
	}
	newest := ""
	for _, e := range events {
		if !f.seen[e.UUID] {
			f.seen[e.UUID] = true
			f.marker = e.UUID
			newest = e.Event
		}
	}
	return newest
}
