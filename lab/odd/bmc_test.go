package odd_test

import (
	"slices"
	"strings"
	"testing"

	"salvor/lab/odd"
)

// TestParseBMCOddity: what String prints, ParseBMCOddity reads, for each kind at each form of place.
func TestParseBMCOddity(t *testing.T) {
	for _, k := range odd.BMCKinds {
		for _, at := range []odd.Place{{}, {Path: "/redfish/v1/Systems/m1"}, {Path: "/redfish/v1/Systems/m1", Member: "/Boot/BootSourceOverrideTarget"}} {
			want := odd.BMCOddity{Kind: k, Place: at}
			if got, err := odd.ParseBMCOddity(want.String()); err != nil || got != want {
				t.Errorf("ParseBMCOddity(%q) = %v, %v; want %v", want, got, err, want)
			}
		}
		if got, err := odd.ParseBMCOddity(k.Name); err != nil || got != (odd.BMCOddity{Kind: k}) {
			t.Errorf("ParseBMCOddity(%q) = %v, %v; want the kind at every place", k.Name, got, err)
		}
	}
	if _, err := odd.ParseBMCOddity("links: none such"); err == nil || !strings.Contains(err.Error(), "links: none such") {
		t.Errorf("ParseBMCOddity of an unknown kind: %v, want an error that names it", err)
	}
}

// TestOddestBMCs: no BMC is like another one, and none costs a client anything.
func TestOddestBMCs(t *testing.T) {
	var seen []string
	for i, oddities := range odd.OddestBMCs(10) {
		if len(oddities) < 6 {
			t.Errorf("BMC %d has %d oddities, want one of each family, six or more", i, len(oddities))
		}
		for _, o := range oddities {
			if o.Kind.Cost != odd.CostNothing {
				t.Errorf("BMC %d: %s costs a client something", i, o)
			}
			if slices.Contains(seen, o.String()) {
				t.Logf("BMC %d: %s again", i, o)
			}
			seen = append(seen, o.String())
		}
	}
}
