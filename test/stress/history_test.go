package stress

import (
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Of each node there is a history: what the processes wrote about it, a transaction at a time, and what they
// answered when they were asked for it. It is right if there is an order of these, each within its own time, in which
// every write was allowed to its writer and every answer was the truth.

// view is all that the history tells of a node.
type view struct {
	provision  string
	job, state string // of the newest job
	owner      string
	fence      int64
}

func (v view) locked() bool {
	return v.state == "ready" || v.state == "running" || v.state == "undoing"
}

// step is one transaction's changes of a node.
type step struct{ changes []change }

// look is what an API answered of a node.
type look struct {
	provision string
	locked    bool
}

// model judges histories of nodes.
func model(known lives) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return view{provision: "active"} },
		Step: func(state, input, output any) (bool, any) {
			v := state.(view)
			if s, ok := input.(step); ok {
				next, why := v.after(s, known)
				return why == "", next
			}
			l := output.(look)
			return l.provision == v.provision && l.locked == v.locked(), v
		},
		DescribeOperation: func(input, output any) string {
			if s, ok := input.(step); ok {
				return s.String()
			}
			return fmt.Sprintf("read %+v", output)
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// after is the view when the step is done, or why it must not be done.
func (v view) after(s step, known lives) (view, string) {
	acts := map[string]bool{} // the jobs whose owner writes in this transaction
	asked := false            // a request puts a job there in this transaction
	for _, c := range s.changes {
		switch {
		case c.what == "insert":
			if v.state != "" && v.state != "ended" {
				return v, "a second operation"
			}
			v.job, v.state, v.owner, v.fence, asked = c.job, c.newState, c.newOwner, c.newFence, true
		case c.what == "update":
			if c.job != v.job || c.oldOwner != v.owner || c.oldFence != v.fence || c.oldState != v.state {
				return v, "it stood otherwise"
			}
			own, why := c.judge(known)
			if why != "" {
				return v, why
			}
			acts[c.job] = acts[c.job] || own
			v.state, v.owner, v.fence = c.newState, c.newOwner, c.newFence
		case c.what == "node" && c.oldState != v.provision:
			return v, "the provision state was another"
		case c.what == "node" && !asked && len(acts) == 0:
			return v, "nobody who may changed the provision state"
		case c.what == "node":
			v.provision = c.newState
		case c.what == "event" && !acts[c.job]:
			return v, "an action of someone who does not hold the job took effect"
		}
	}
	return v, ""
}

const (
	// lastWords is how long after its end an incarnation may not know of it, at most.
	lastWords = 3 * time.Second
	// selfStop is how long one that cannot beat may still act: nobody else may take what it has before.
	selfStop = 5 * time.Second
)

// judge tells whether a change of a job is allowed to its writer, and whether it is its owner's own.
func (c change) judge(known lives) (own bool, why string) {
	switch {
	case c.oldOwner == "" && c.newOwner != "": // a claim
		if c.newFence != c.oldFence+1 || known.process[c.newOwner] != c.writer {
			return false, "a claim for another, or without a fence"
		}
	case c.newFence == c.oldFence+1: // an owner's own word
		if c.oldOwner == "" || c.newOwner != "" && c.newOwner != c.oldOwner || known.process[c.oldOwner] != c.writer {
			return false, "a word of someone who is not its owner"
		}
		if ended, dead := known.ended[c.oldOwner]; dead && c.at.Sub(ended) > lastWords {
			return false, "a word of an incarnation that had ended"
		}
		return true, ""
	case c.newFence != c.oldFence:
		return false, "the fence jumps"
	case c.oldOwner != "" && c.newOwner == "": // freed, because its owner is dead
		if c.crashes != 1 || !known.dead(c) {
			return false, "taken from its owner"
		}
	case c.newOwner != c.oldOwner:
		return false, "handed from one owner to another"
	}
	return false, ""
}

// dead tells whether whoever freed a job could know that its owner was dead: it ended it itself, or found it ended, or silent for long.
func (l lives) dead(c change) bool {
	if ended, dead := l.ended[c.oldOwner]; l.process[c.oldOwner] == c.writer || dead && ended.Before(c.at) {
		return true
	}
	for _, beat := range l.beats[c.oldOwner] {
		if beat.Before(c.at) && c.at.Sub(beat) < selfStop {
			return false
		}
	}
	return true
}

// conductor is the part of an owner's name that lasts.
func conductor(owner string) string {
	id, _, _ := strings.Cut(owner, "/")
	return id
}

func (s step) String() string {
	var b strings.Builder
	for _, c := range s.changes {
		fmt.Fprintf(&b, "%s %s %s %q/%d/%s -> %q/%d/%s %s; ", c.writer, c.what, c.job, c.oldOwner, c.oldFence, c.oldState, c.newOwner, c.newFence, c.newState, c.words)
	}
	return b.String()
}

// slack is how long after its commit a transaction may become visible, at most.
const slack = 200 * time.Millisecond

// histories are the operations of each node.
func histories(changes []change, reads []read) map[string][]porcupine.Operation {
	type key struct {
		tx   uint32
		node string
	}
	steps := map[key]*step{}
	var order []key
	for _, c := range changes {
		k := key{c.tx, c.node}
		if steps[k] == nil {
			steps[k] = &step{}
			order = append(order, k)
		}
		steps[k].changes = append(steps[k].changes, c)
	}
	out := map[string][]porcupine.Operation{}
	for _, k := range order {
		first, last := steps[k].changes[0], steps[k].changes[len(steps[k].changes)-1]
		out[k.node] = append(out[k.node], porcupine.Operation{
			Input: *steps[k], Call: first.at.UnixNano(), Return: last.committed.Add(slack).UnixNano(),
		})
	}
	for _, r := range reads {
		out[r.node] = append(out[r.node], porcupine.Operation{ClientId: 1, Input: r.node, Output: r.saw, Call: r.from.UnixNano(), Return: r.to.UnixNano()})
	}
	return out
}

// owners learns from the claims which process each incarnation is; a conductor that is two is told.
func owners(changes []change) (lives, error) {
	known := lives{process: map[string]string{}, beats: map[string][]time.Time{}, ended: map[string]time.Time{}}
	of := map[string]string{}
	for _, c := range changes {
		if c.what != "update" || c.oldOwner != "" || c.newOwner == "" {
			continue
		}
		id := conductor(c.newOwner)
		if was, known := of[id]; known && was != c.writer {
			return lives{}, fmt.Errorf("conductor %s is both %s and %s", id, was, c.writer)
		}
		of[id], known.process[c.newOwner] = c.writer, c.writer
	}
	return known, nil
}
