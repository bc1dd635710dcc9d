package oddbmc

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// foundOnce are combinations that went wrong once behind a recorded BMC, and not behind the lab's.
var foundOnce = []string{
	"rescue and unrescue of ami behind slow: an order takes 25 s at /redfish/v1/Systems/Self/SD",
	"rescue and unrescue of ami behind slow: 25 s at /redfish/v1/Systems/Self",
	"rescue and unrescue of ami behind links: to the resource itself at /redfish/v1/Systems/Self#/Links/ManagedBy/0",
	"rescue and unrescue of ami behind value: a long text at /redfish/v1/Managers/Self/VirtualMedia/CD1",
	"rescue and unrescue of ami behind value: a list as text with spaces at /redfish/v1/Managers/Self/VirtualMedia/CD1#/MediaTypes",
	"health of ami behind slow: 25 s at /redfish/v1/Systems/Self",
}

// foundBehind are the combinations of foundOnce behind a tree.
func foundBehind(t *testing.T, of *tree, known map[string]*profile) (out []combination) {
	t.Helper()
	if os.Getenv("SALVOR_ODD") != "" {
		return nil
	}
	for i := range verbs {
		if p := known[verbs[i].name]; p != nil {
			out = append(out, slices.DeleteFunc(singles(of, &verbs[i], p), func(c combination) bool { return !slices.Contains(foundOnce, c.String()) })...)
		}
	}
	for _, text := range foundOnce {
		if strings.Contains(text, " of "+of.name+" behind ") && !slices.ContainsFunc(out, func(c combination) bool { return c.String() == text }) {
			t.Errorf("no combination is %q; was something of it renamed?", text)
		}
	}
	return out
}
