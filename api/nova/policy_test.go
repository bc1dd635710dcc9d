package nova

import (
	"slices"
	"testing"
)

// TestEveryRouteHasARule: a policy file can close, or open, every route that Nova's can.
func TestEveryRouteHasARule(t *testing.T) {
	s := &apiServer{}
	free := []string{"GET /flavors", "GET /flavors/detail", "GET /flavors/{flavor}"} // Nova holds them to none
	at := map[string]bool{}
	for _, r := range slices.Concat(s.serverRoutes(), s.attachmentRoutes(), s.flavorRoutes(), s.keypairRoutes(), s.hostRoutes(), s.migrationRoutes(), s.networkRoutes(), s.usageRoutes()) {
		name := r.method + " " + r.path
		at[name] = true
		if routeRules[name] == "" && name != "POST /servers/{server}/action" && !slices.Contains(free, name) {
			t.Errorf("%s has no rule", name)
		}
	}
	for name := range routeRules {
		if !at[name] {
			t.Errorf("there is no %s", name)
		}
	}
	for name := range allActions {
		if actionRules[name] == "" {
			t.Errorf("the action %s has no rule", name)
		}
	}
}
