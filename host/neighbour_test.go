package host

import (
	"net"
	"testing"

	"salvor/test/must"
	wire "salvor/wire/host"
)

// TestNeighbours: a neighbour that answers or refuses is reached; and only addresses are looked at.
func TestNeighbours(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	_, open, _ := net.SplitHostPort(l.Addr().String())
	if !isAddressReachable(t.Context(), "127.0.0.1", []string{open}) {
		t.Error("who answers is not reached")
	}
	_ = l.Close()
	if !isAddressReachable(t.Context(), "127.0.0.1", []string{open}) {
		t.Error("who refuses is not reached")
	}
	for _, address := range []string{"", "localhost", "127.0.0.1:22", "100::1", "x\x00"} {
		if isAddressReachable(t.Context(), address, lookPorts) {
			t.Errorf("%q is reached", address)
		}
	}
	a := must.Get(Open(newWorld(t).config(newGuests())))(t)
	defer a.Close()
	list := []wire.Neighbour{{HostID: "a", Address: "127.0.0.1"}, {HostID: "b", Address: "nowhere"}}
	answer(t, a, wire.Renewed{Look: list})
	await(t, "the looks", func() bool { return len(a.renewal(0).Neighbours) == 2 })
	if got := a.renewal(0).Neighbours; !got[0].Reached || got[1].Reached || got[0].HostID != "a" {
		t.Errorf("%+v", got)
	}
	answer(t, a, wire.Renewed{})
	if len(a.renewal(0).Neighbours) != 0 {
		t.Error("it is told again")
	}
}
