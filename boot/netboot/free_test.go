package netboot

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestFreeAddress: a full range has no address for a stranger, and still one for who holds it.
func TestFreeAddress(t *testing.T) {
	t.Parallel()
	c := Interface{Name: "eth9", Mode: Authoritative, Ranges: []Range{{Network: netip.MustParsePrefix("10.9.0.0/24"), From: netip.MustParseAddr("10.9.0.10"), To: netip.MustParseAddr("10.9.0.11")}}}
	s := &Server{cfg: Config{Interfaces: []Interface{c}}}
	if err := s.FreeAddress([]string{"a"}); err != nil {
		t.Errorf("a range that is not served yet: %v", err)
	}
	r := s.responder(c, netip.MustParseAddr("10.9.0.1"))
	now := time.Now()
	for _, mac := range []string{"a", "b"} {
		if err := s.FreeAddress([]string{mac}); err != nil {
			t.Errorf("%s: %v", mac, err)
		}
		if _, ok := r.pools[0].offer(mac, netip.Addr{}, now, now.Add(time.Hour)); !ok {
			t.Fatalf("%s was offered nothing", mac)
		}
	}
	if err := s.FreeAddress([]string{"c"}); err == nil || !strings.Contains(err.Error(), "10.9.0.10 to 10.9.0.11") {
		t.Errorf("a full range: %v", err)
	}
	if err := s.FreeAddress([]string{"a"}); err != nil {
		t.Errorf("who has an address: %v", err)
	}
}
