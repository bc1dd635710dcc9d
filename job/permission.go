package job

// Permission tells whether a conductor may act on the outside. A nil *Permission always allows it. Its fields are set before the first
// action and never after.
type Permission struct {
	// Alive gives the reason why the conductor's lease may be lost; nil: it has none, and needs none.
	Alive func() error
	// Held gives the reason why the database is held; nil: it is never held.
	Held func() error
}

// Lost gives the reason why the conductor may have lost its jobs to another one; nil: it has them.
func (p *Permission) Lost() error {
	if p == nil || p.Alive == nil {
		return nil
	}
	return p.Alive()
}

// HeldReason gives the reason why nothing may be changed; nil: changes are allowed.
func (p *Permission) HeldReason() error {
	if p == nil || p.Held == nil {
		return nil
	}
	return p.Held()
}

// Refusal gives the reason why a job may not act on the outside any more; nil: it may.
func (p *Permission) Refusal() error {
	if err := p.HeldReason(); err != nil {
		return err
	}
	return p.Lost()
}
