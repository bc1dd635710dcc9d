package host

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
)

// reticent guests are told, and what their host has is not.
type reticent struct {
	*guests
	silent bool
}

func (r *reticent) Inventory(ctx context.Context) (compute.Inventory, error) {
	if r.silent {
		return compute.Inventory{}, problem.Unavailablef("read the host's inventory: %w", context.DeadlineExceeded)
	}
	return r.guests.Inventory(ctx)
}

// TestHostSaysThatItsInventoryIsUnread: such a host is up and gets no server, and nothing else would say why.
func TestHostSaysThatItsInventoryIsUnread(t *testing.T) {
	w, r := newWorld(t), &reticent{guests: newGuests()}
	var said bytes.Buffer
	c := w.config(r.guests)
	c.Hypervisor, c.Log = r, slog.New(slog.NewTextHandler(&said, nil))
	a := must.Get(Open(c))(t)
	t.Cleanup(func() { _ = a.Close() })
	for _, step := range []struct {
		silent bool
		lines  int
	}{{true, 1}, {true, 1}, {false, 1}, {true, 2}} {
		r.silent = step.silent
		if a.readInventory(t.Context()) == step.silent {
			t.Errorf("silent %v: the inventory was read: %v", step.silent, !step.silent)
		}
		if got := strings.Count(said.String(), "does not tell what it has"); got != step.lines {
			t.Errorf("%d lines, want %d:\n%s", got, step.lines, &said)
		}
	}
}
