package network

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestDumped: a list that changed while the kernel gave it is asked for again, and any other error ends the asking.
func TestDumped(t *testing.T) {
	other := errors.New("no such device")
	for _, c := range []struct {
		name string
		errs []error
		want error
	}{
		{"changed twice", []error{netlink.ErrDumpInterrupted, netlink.ErrDumpInterrupted, nil}, nil},
		{"another error", []error{netlink.ErrDumpInterrupted, other, nil}, other},
		{"whole at once", []error{nil}, nil},
	} {
		asked := 0
		got, err := dumped(func() ([]int, error) {
			asked++
			return []int{asked}, c.errs[asked-1]
		})
		if !errors.Is(err, c.want) || err == nil && (asked != len(c.errs) || got[0] != asked) {
			t.Errorf("%s: %v and %v after %d questions, want the last list and %v", c.name, got, err, asked, c.want)
		}
	}
	if _, err := dumped(func() ([]int, error) { return nil, netlink.ErrDumpInterrupted }); !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.Errorf("a list that always changes: %v, want %v", err, netlink.ErrDumpInterrupted)
	}
}
