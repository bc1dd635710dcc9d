package fake

import (
	"context"
	"net"

	"salvor/hypervisor"
	"salvor/problem"
)

var _ hypervisor.Examiner = (*Hypervisor)(nil)

// AnswerHelpers sets what the system of a helper does with each connection to its channel; nil: it never answers.
func (h *Hypervisor) AnswerHelpers(answer func(d hypervisor.Domain, host net.Conn)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

// Helpers counts the helpers that run.
func (h *Hypervisor) Helpers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.helpers)
}

// RunHelper serves the channel of a helper while use runs. The guest cannot be started meanwhile, as QEMU's locks of its disks have it.
func (h *Hypervisor) RunHelper(ctx context.Context, d hypervisor.Domain, use func(ctx context.Context, limited bool) error) error {
	if err := h.enter(ctx, "RunHelper"); err != nil {
		return err
	}
	if g := h.guests[d.ServerID]; g != nil && g.Runs != nil || h.helpers[d.ServerID] {
		h.mu.Unlock()
		return problem.Conflictf("the disks of guest %s are in use", d.ServerID)
	}
	h.helpers[d.ServerID] = true
	answer := h.answer
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.helpers, d.ServerID)
	}()
	door, err := net.Listen("unix", d.ChannelPath)
	if err != nil {
		return problem.Unavailablef("the channel of a helper: %w", err)
	}
	defer door.Close()
	go func() {
		for {
			c, err := door.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if answer != nil {
					answer(d, c)
				}
				<-ctx.Done()
			}()
		}
	}()
	return use(ctx, true)
}
