package config

import "testing"

// TestNoNetworkIsLeftOut: a list with a word that is no network is refused as a whole.
func TestNoNetworkIsLeftOut(t *testing.T) {
	for _, word := range []string{"10.0.0.0/33", "10.0.0", "host.example", "fe80::1%eth0", "-"} {
		if n, err := ParseNetworks([]string{"192.0.2.0/24", word}); err == nil {
			t.Errorf("%q: read as %v", word, n.Prefixes)
		}
	}
}
