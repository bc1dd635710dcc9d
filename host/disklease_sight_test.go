package host

import (
	"fmt"
	"testing"
)

// TestATornReadIsARenewal: a lease that is read amid a write has been renewed, and so has the next whole one of the same owner.
func TestATornReadIsARenewal(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	h := w.host()
	whole := func(nonce string, counter int) diskLease {
		return diskLease{Version: 1, Host: "h", Nonce: nonce, State: leaseHeld, Counter: fmt.Sprintf("%020d", counter)}
	}
	for i, look := range []struct {
		lease diskLease
		want  bool
	}{{whole("a", 1), false}, {diskLease{}, true}, {whole("a", 2), true}, {diskLease{}, true}, {whole("b", 1), false}, {whole("b", 2), true}} {
		raw := look.lease.encode()
		if look.lease.Nonce == "" {
			raw = fmt.Appendf(nil, "torn %d", i)
		}
		if _, renewed, err := h.leases.unchanged("/pool/disk", look.lease, raw); err != nil || renewed != look.want {
			t.Errorf("look %d at %s: renewed %v, %v; want %v", i, raw, renewed, err, look.want)
		}
	}
}
