package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"salvor/diagnose"
	"salvor/metal"
)

// consoleRecording is what is read of the console of one node.
type consoleRecording struct {
	nodeID string
	now    func() time.Time
	cancel context.CancelFunc
	ended  chan struct{}

	mu sync.Mutex
	// log is without the newest part, which is part with text.
	log  metal.ConsoleLog
	part metal.ConsolePart
	text []byte
	// followed: the state of the node is known. own: its own system writes, and not a ramdisk. isOpen: the line is read.
	followed, own, isOpen bool
	// version counts the changes; stored is the newest one that is stored.
	version, stored int
}

// stop ends the reading, and waits until it has ended.
func (r *consoleRecording) stop() {
	r.cancel()
	<-r.ended
}

// follow is told whether the machine's own system writes from now on. Where a ramdisk did before, a new part begins.
func (r *consoleRecording) follow(own bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.followed && own == r.own {
		return
	}
	r.beginPart(r.followed && own && r.isOpen)
	r.followed, r.own = true, own
}

// opened is called when the line is open.
func (r *consoleRecording) opened() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginPart(false)
	r.isOpen, r.log.Problem = true, ""
	r.version++
}

// lost is called with the reason why the line is not read any more. new: that is another reason than before.
func (r *consoleRecording) lost(why string) (isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginPart(false)
	isNew = r.log.Problem != why
	r.isOpen, r.log.Problem = false, why
	r.version++
	return isNew
}

// beginPart ends the newest part.
func (r *consoleRecording) beginPart(afterRamdisk bool) {
	r.log = r.whole()
	r.part, r.text = metal.ConsolePart{Since: r.now(), AfterRamdisk: afterRamdisk}, nil
}

// whole is the log with the newest part.
func (r *consoleRecording) whole() metal.ConsoleLog {
	part := r.part
	part.Text = string(r.text)
	log := metal.ConsoleLog{Problem: r.log.Problem, Parts: append(slices.Clone(r.log.Parts), part)}
	log.Trim()
	return log
}

// Write takes what the machine says. What a ramdisk says is dropped.
func (r *consoleRecording) Write(said []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.own {
		return len(said), nil
	}
	r.text = append(r.text, said...)
	if over := len(r.text) - diagnose.MaxConsole; over > diagnose.MaxConsole {
		r.text = slices.Clone(r.text[over:])
	}
	r.version++
	return len(said), nil
}

// unsaved is the log and its version, if they are not stored yet.
func (r *consoleRecording) unsaved() (log metal.ConsoleLog, version int, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version == r.stored {
		return log, r.version, false
	}
	return r.whole(), r.version, true
}

// saved is told that a version is stored. tenancyEnded: what was read until now was the former tenant's, and is dropped.
func (r *consoleRecording) saved(version int, tenancyEnded bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = version
	if tenancyEnded {
		r.text = nil
		r.log.Parts = nil
		r.beginPart(false)
	}
}
