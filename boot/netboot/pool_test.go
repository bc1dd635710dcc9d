package netboot

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPoolIsTheSameAfterARestart(t *testing.T) {
	now := time.Unix(1e9, 0)
	a, _ := newPool(testRange, serverAddr).offer(testMAC, netip.Addr{}, now, now.Add(time.Minute))
	b, _ := newPool(testRange, serverAddr).offer(testMAC, netip.Addr{}, now, now.Add(time.Minute))
	if a != b || !a.IsValid() {
		t.Errorf("%s, then %s", a, b)
	}
}

func TestPoolSkipsReservedAndRunsOut(t *testing.T) {
	r := Range{Network: netip.MustParsePrefix("192.0.2.0/29"), From: netip.MustParseAddr("192.0.2.0"), To: netip.MustParseAddr("192.0.2.7"), Gateway: netip.MustParseAddr("192.0.2.2")}
	p := newPool(r, serverAddr)
	now := time.Unix(1e9, 0)
	got := map[netip.Addr]bool{}
	for i := range 4 {
		a, ok := p.offer(fmt.Sprint("m", i), netip.Addr{}, now, now.Add(time.Minute))
		if !ok || got[a] {
			t.Fatalf("%s, %v", a, ok)
		}
		got[a] = true
	}
	for _, last := range []string{"192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.7"} {
		if got[netip.MustParseAddr(last)] {
			t.Errorf("gave %s", last)
		}
	}
	if a, ok := p.offer("m9", netip.Addr{}, now, now.Add(time.Minute)); ok {
		t.Errorf("gave %s of a full range", a)
	}
	if _, ok := p.offer("m9", netip.Addr{}, now.Add(time.Minute), now.Add(2*time.Minute)); !ok {
		t.Error("an expired lease is not given again")
	}
}

// Whatever clients do, no address has two holders at a time and both maps agree.
func TestPoolInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPool(testRange, serverAddr)
		now := time.Unix(1e9, 0)
		given := map[netip.Addr]addressLease{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			mac := fmt.Sprint("m", rapid.IntRange(0, 14).Draw(t, "mac"))
			a := uint32ToAddr(addrToUint32(testRange.From) + rapid.Uint32Range(0, 11).Draw(t, "address"))
			until := now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "time")) * time.Second)
			ok := false
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				a, ok = p.offer(mac, a, now, until)
			case 1:
				ok = p.take(mac, a, now, until)
			case 2:
				if had := p.byMAC[mac] == a; had {
					delete(given, a)
				}
				p.decline(mac, a, until)
			case 3:
				if given[a].mac == mac {
					delete(given, a)
				}
				p.release(mac, a)
			case 4:
				now = until
			}
			if ok {
				if h := given[a]; h.mac != "" && h.mac != mac && now.Before(h.until) {
					t.Fatalf("%s is held by %s and was given to %s", a, h.mac, mac)
				}
				for old, h := range given {
					if h.mac == mac {
						delete(given, old)
					}
				}
				given[a] = addressLease{mac, until}
			}
			for m, held := range p.byMAC {
				if p.holder[held].mac != m {
					t.Fatalf("%s should hold %s: %v", m, held, p.holder[held])
				}
			}
			if len(p.holder) > 10 {
				t.Fatalf("%d holders of 10 addresses", len(p.holder))
			}
		}
	})
}
