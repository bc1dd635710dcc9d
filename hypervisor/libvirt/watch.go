package libvirt

import (
	"context"

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
		select {
		case changed <- uuid.UUID(e.Dom.UUID).String():
		case <-ctx.Done():
			return nil
		}
	}
}
