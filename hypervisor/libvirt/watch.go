package libvirt

import (
	"context"

	rpc "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"salvor/problem"
)

// Watch follows libvirt's lifecycle events, on a connection of its own. It returns nil when ctx ends, and
// Unavailable when the connection breaks; what happened before it was made is told by Guests.
func (h *Hypervisor) Watch(ctx context.Context, changed chan<- string) error {
	l, err := h.connect(ctx)
	if err != nil {
		return err
	}
	// Closing the socket first spares the library a goodbye to a daemon that may hang.
	stop := context.AfterFunc(ctx, l.close)
	defer func() {
		stop()
		l.close()
	}()
	events, err := l.LifecycleEvents(context.Background())
	if err != nil {
		return classifyLibvirtError("watch guests", err)
	}
	// The library waits until each event is taken, the last ones too.
	defer func() {
		go func() {
			for range events {
			}
		}()
	}()
	for {
		e, open := <-events
		if ctx.Err() != nil {
			return nil
		}
		if !open {
			return problem.Unavailablef("watch guests: the connection to libvirt broke")
		}
		h.noteEnd(e)
		select {
		case changed <- uuid.UUID(e.Dom.UUID).String():
		case <-ctx.Done():
			return nil
		}
	}
}

// noteEnd remembers the guests whose QEMU a signal of the host ended, until they start again. libvirt tells that in this event alone.
func (h *Hypervisor) noteEnd(e rpc.DomainEventLifecycleMsg) {
	h.ends.Lock()
	defer h.ends.Unlock()
	switch id := uuid.UUID(e.Dom.UUID); rpc.DomainEventType(e.Event) {
	case rpc.DomainEventShutdown:
		if rpc.DomainEventShutdownDetailType(e.Detail) == rpc.DomainEventShutdownHost {
			if h.ends.byHost == nil {
				h.ends.byHost = map[uuid.UUID]bool{}
			}
			h.ends.byHost[id] = true
		}
	case rpc.DomainEventStarted, rpc.DomainEventUndefined:
		delete(h.ends.byHost, id)
	}
}

// wasEndedByHost tells whether a signal of the host ended the last run of a guest, as far as Watch has seen.
func (h *Hypervisor) wasEndedByHost(dom rpc.Domain) bool {
	h.ends.Lock()
	defer h.ends.Unlock()
	return h.ends.byHost[uuid.UUID(dom.UUID)]
}
