package crash

import (
	"context"
	"testing"
)

// TestPasswordInLookup rescues by an agent that is sent no command: it gets the token and
// the hash with its first lookup, and its heartbeat is the end. The server dies while it waits.
func TestPasswordInLookup(t *testing.T) {
	w := newWorld(t, 1, "[agent]\nrescue_password_in_lookup = true\n")
	w.each(func(ctx context.Context, m *machine) error { return w.ask(ctx, m, "rescue") })
	w.server.Kill()
	w.server.Start(t)
	w.each(func(ctx context.Context, m *machine) error {
		if err := w.reach(ctx, m, "rescue"); err != nil {
			return err
		}
		return w.rescued(ctx, m)
	})
}
