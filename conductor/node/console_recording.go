package node

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"salvor/diagnose"
	"salvor/metal"
	"salvor/rescue"
)

// consoleRecording is what is read of the console of one node.
type consoleRecording struct {
	nodeID string
	// driver, console and driverInfo are those of the node when the reading began.
	driver, console string
	driverInfo      metal.Object
	now             func() time.Time
	cancel          context.CancelFunc
	ended           chan struct{}

	mu sync.Mutex
	// log is without the newest part, which is part with text.
	log  metal.ConsoleLog
	part metal.ConsolePart
	text []byte
	// ownSystem: the machine's own system writes, and not a ramdisk. isOpen: the line is read. changesPower: the machine in use was off, or salvor changed
	// its power, when the node was last read.
	ownSystem, isOpen, changesPower bool
	// rescued is the rescue session of the newest ramdisk; nil: it was for something else. An unrescue may have ended it when the node is read again.
	rescued *rescue.Session
	// version counts the changes; stored is the newest one that is stored.
	version, stored int
}

func equalInfo(a, b any) bool { return reflect.DeepEqual(a, b) }

// hasEnded tells whether nobody reads any more.
func (r *consoleRecording) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// follow takes in whether the machine's own system writes in the node's state. A new part begins where a ramdisk wrote before, and where a change of the
// power of a machine in use begins or ends, because the next boot may write nothing.
func (r *consoleRecording) follow(n *metal.Node) {
	own := n.ProvisionState.WritesConsole()
	changesPower := n.ProvisionState == metal.Active && (n.TargetPower != "" || n.PowerState == metal.PowerOff)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !own {
		r.rescued = n.Rescue
	}
	samePower := changesPower == r.changesPower
	r.changesPower = changesPower
	if own == r.ownSystem && (!own || samePower) {
		return
	}
	r.beginPart()
	r.version++
	if own == r.ownSystem {
		return
	}
	if own && r.isOpen && r.rescued != nil {
		r.part.Session, r.part.SessionBegun = r.rescued.StartedAt, r.rescued.Begun
	}
	r.ownSystem = own
}

// opened is called when the line is open.
func (r *consoleRecording) opened() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginPart()
	r.isOpen, r.log.Problem = true, ""
	r.version++
}

// closed is called with the reason why the line is not read any more. It tells whether that is another reason than before.
func (r *consoleRecording) closed(why string) (isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isNew = r.log.Problem != why; isNew {
		r.beginPart()
		r.version++
	}
	r.isOpen, r.log.Problem = false, why
	return isNew
}

// beginPart ends the newest part.
func (r *consoleRecording) beginPart() {
	r.log = r.whole()
	r.part, r.text = metal.ConsolePart{Since: r.now()}, nil
}

// whole is the log with the newest part.
func (r *consoleRecording) whole() metal.ConsoleLog {
	log := r.log
	log.Parts = slices.Clone(r.log.Parts)
	part := r.part
	part.Text = string(r.text)
	log.Parts = append(log.Parts, part)
	log.Trim()
	return log
}

// Write takes what the machine says. What a ramdisk says is dropped.
func (r *consoleRecording) Write(said []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ownSystem {
		return len(said), nil
	}
	r.text, r.part.Until = append(r.text, said...), r.now()
	if over := len(r.text) - diagnose.MaxConsole; over > diagnose.MaxConsole {
		r.text = slices.Clone(r.text[over:])
	}
	r.version++
	return len(said), nil
}

// unsaved is the log and its version. changed tells whether that is not stored yet.
func (r *consoleRecording) unsaved() (log metal.ConsoleLog, version int, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version == r.stored {
		return log, r.version, false
	}
	return r.whole(), r.version, true
}

// saved is told what is stored as which version. If its tenancy is another one than before, what was read until now was the former tenant's.
func (r *consoleRecording) saved(version int, kept metal.ConsoleLog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = version
	if kept.Tenancy == r.log.Tenancy {
		return
	}
	r.log.Tenancy, r.log.Parts = kept.Tenancy, slices.Clone(kept.Parts)
	r.part, r.text = metal.ConsolePart{Since: r.now()}, nil
}
