package access

import "testing"

func scoped(s Scope, roles ...string) Principal {
	s.Roles = roles
	return Principal{User: "ann", Role: Scoped, Scope: s}
}

var (
	system = Scope{System: true}
	mine   = Scope{Project: "p1", ProjectName: "one", ProjectDomain: "default"}
	// As keystone writes roles into tokens: each with those that it implies.
	asAdmin, asMember, asReader = []string{"admin", "member", "reader"}, []string{"member", "reader"}, []string{"reader"}
)

func TestPolicy(t *testing.T) {
	secure, old := Policy{EnforceScope: true}, Policy{OldDefaults: true}
	// The roles of a bound scope end at its project.
	services := Scope{Project: "s", ProjectName: "service", ProjectDomain: "d1", ProjectDomainName: "Default"}
	elevated := Policy{ServiceProject: "service", ServiceDomainName: "Default"}
	byID := Policy{ServiceProject: "service", ServiceDomainID: "d1", ServiceDomainName: "other"}
	bound, boundOld := mine, Scope{Project: "b", ProjectName: "baremetal", ProjectDomain: "default", Bound: true}
	bound.Bound = true
	owned, leased, foreign := Target{Owner: "p1"}, Target{Owner: "p2", Lessee: "p1"}, Target{Owner: "p2", Lessee: "p3"}
	for _, tt := range []struct {
		policy Policy
		rule   string
		who    Principal
		target Target
		want   bool
	}{
		{secure, "node:create", scoped(system, asAdmin...), Target{}, true},
		{secure, "node:create", scoped(system, asMember...), Target{}, false},
		{secure, "node:create", scoped(mine, asAdmin...), Target{}, false},
		{secure, "node:create:self_owned_node", scoped(mine, asAdmin...), Target{}, true},
		{secure, "node:get", scoped(system, asReader...), foreign, true},
		{secure, "node:get", scoped(mine, asReader...), owned, true},
		{secure, "node:get", scoped(mine, asReader...), leased, true},
		{secure, "node:get", scoped(mine, asAdmin...), foreign, false},
		{secure, "node:get", scoped(mine, asAdmin...), Target{}, false},
		{secure, "node:get", scoped(Scope{}, asAdmin...), Target{}, false},
		{secure, "node:get:driver_info", scoped(mine, asReader...), owned, true},
		{secure, "node:get:driver_info", scoped(mine, asAdmin...), leased, false},
		{secure, "node:update:driver_info", scoped(mine, asAdmin...), leased, false},
		{secure, "node:update:driver_info", scoped(mine, asReader...), owned, false},
		{secure, "node:update:driver_info", scoped(mine, asMember...), owned, true},
		{secure, "node:set_power_state", scoped(mine, asMember...), leased, true},
		{secure, "node:set_provision_state", scoped(mine, asMember...), leased, false},
		{secure, "node:set_provision_state", scoped(mine, asAdmin...), leased, true},
		{secure, "volume:view_target_properties", scoped(mine, asMember...), owned, false},
		{secure, "volume:view_target_properties", scoped(mine, asAdmin...), owned, true},
		{secure, "driver:get", scoped(mine, asAdmin...), Target{}, false},
		{secure, "node:get", scoped(Scope{Project: "p1"}), owned, false},
		{secure, "unheard:of", scoped(system, asAdmin...), Target{}, false},
		{secure, "unheard:of", Principal{Role: Admin}, Target{}, true},
		{secure, "node:get", Principal{}, owned, false},
		{old, "node:create", scoped(mine, "admin"), Target{}, true},
		{old, "driver:get", scoped(mine, "admin"), Target{}, true},
		{Policy{OldDefaults: true, EnforceScope: true}, "driver:get", scoped(mine, "admin"), Target{}, false},
		{old, "node:create", scoped(bound, "admin"), Target{}, false},
		{old, "driver:get", scoped(bound, "admin"), Target{}, false},
		{old, "node:get", scoped(bound, "admin"), foreign, false},
		{old, "node:get", scoped(bound, asAdmin...), owned, true},
		{old, "node:create", scoped(boundOld, "baremetal_admin"), Target{}, false},
		{old, "node:get", scoped(boundOld, "baremetal_observer"), foreign, false},
		{old, "node:create", scoped(Scope{Project: "b", ProjectName: "baremetal", ProjectDomain: "default"}, "baremetal_admin"), Target{}, true},
		{old, "node:create", scoped(mine, "baremetal_admin"), Target{}, false},
		{old, "node:get", scoped(Scope{Project: "b", ProjectName: "demo", ProjectDomain: "default"}, "observer"), foreign, true},
		{old, "node:update", scoped(Scope{Project: "b", ProjectName: "demo", ProjectDomain: "default"}, "observer"), foreign, false},
		{secure, "node:get", scoped(Scope{Project: "s", ProjectName: "service"}, "service"), foreign, false},
		{elevated, "node:get", scoped(services, "service"), foreign, true},
		{elevated, "node:list_all", scoped(services, "admin", "member", "reader", "service"), Target{}, true},
		{elevated, "node:set_provision_state", scoped(services, "service"), foreign, true},
		{elevated, "node:get", scoped(services, "admin", "member", "reader"), foreign, false},
		{elevated, "node:get", scoped(Scope{Project: "s", ProjectName: "other", ProjectDomainName: "Default"}, "service"), foreign, false},
		{elevated, "node:get", scoped(Scope{Project: "s", ProjectName: "service", ProjectDomain: "d2", ProjectDomainName: "tenant"}, "service"), foreign, false},
		{elevated, "node:get", scoped(Scope{Project: "s", ProjectName: "service", ProjectDomainName: "Default", Bound: true}, "service"), foreign, false},
		{Policy{ServiceProject: "service", ServiceDomainName: "default"}, "node:get", scoped(services, "service"), foreign, true}, // in another case
		{byID, "node:get", scoped(services, "service"), foreign, true},
		{byID, "node:get", scoped(Scope{Project: "s", ProjectName: "service", ProjectDomain: "d2", ProjectDomainName: "Default"}, "service"), foreign, false},
		{Policy{ServiceProject: "service"}, "node:get", scoped(Scope{Project: "s", ProjectName: "service"}, "service"), foreign, false},
	} {
		if got := tt.policy.Allows(tt.rule, tt.who, tt.target); got != tt.want {
			t.Errorf("%s for %v on %+v by %+v: %v, want %v", tt.rule, tt.who.Scope, tt.target, tt.policy, got, tt.want)
		}
	}
}

// TestNobodyIsInARule proves that no rule lets in a principal without a role, whatever it may own.
func TestNobodyIsInARule(t *testing.T) {
	for name := range rules {
		for _, p := range []Policy{{}, {EnforceScope: true}, {OldDefaults: true, ServiceProject: "one"}} {
			for _, s := range []Scope{{}, system, mine} {
				if p.Allows(name, scoped(s), Target{Owner: "p1", Lessee: "p1"}) || p.Allows(name, scoped(s, "stranger"), Target{}) {
					t.Errorf("%s lets in %+v", name, s)
				}
			}
		}
	}
}
