package job

import "time"

// Lease tells whether a conductor may act on the outside. A nil *Lease always allows it.
type Lease struct {
	// Alive gives the reason why the conductor's lease may be lost; nil: it has none, and needs none.
	Alive func() error
	// Held gives the reason why the database is held; nil: it is never held.
	Held func() error
}

// Lost gives the reason why the conductor may have lost its jobs to another one; nil: it has them.
func (l *Lease) Lost() error {
	if l == nil || l.Alive == nil {
		return nil
	}
	return l.Alive()
}

// HeldReason gives the reason why nothing may be changed; nil: changes are allowed.
func (l *Lease) HeldReason() error {
	if l == nil || l.Held == nil {
		return nil
	}
	return l.Held()
}

// Refusal gives the reason why a job may not act on the outside any more; nil: it may.
func (l *Lease) Refusal() error {
	if err := l.HeldReason(); err != nil {
		return err
	}
	return l.Lost()
}

// operationDeadline ends an operation that its actions' own deadlines do not, such as one during which conductors keep dying.
const operationDeadline = 2 * time.Hour

// WithDeadline gives each definition that names no reason for none the deadline of an operation: two hours, and longer by what it
// waits for people at most. It returns all.
func WithDeadline(all []Definition, longer time.Duration) []Definition {
	for i := range all {
		if all[i].NoDeadline == "" {
			all[i].Deadline = operationDeadline + longer
		}
	}
	return all
}
