package server

import (
	"context"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/test/must"
)

// uefi makes the server of a moveWorld a UEFI guest, of which its former host told whether its state was copied. readable: its new hosts can read that.
func (s *moveWorld) uefi(t *testing.T, told, readable bool) {
	t.Helper()
	s.tx(t, func(tx job.Tx) error {
		srv, err := s.store.Servers().Get(t.Context(), tx, s.server)
		if err != nil {
			return err
		}
		srv.Firmware, srv.StateCopied = compute.UEFI, told
		return s.store.Servers().Save(tx, srv)
	})
	for _, h := range s.others {
		h.host.Inventory.Firmware = []compute.Firmware{compute.BIOS, compute.UEFI}
		if readable {
			h.copied = &compute.GuestState{Variables: []byte("copied keys")}
		}
	}
}

// TestEvacuationKeepsUEFIVariables: a server whose variables lie beside its disk has them at its new host. A server whose variables are lost moves with consent
// alone, and is told so.
func TestEvacuationKeepsUEFIVariables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		told, readable, volumes bool
		group                   compute.VariablesPolicy
		asked, run              bool // consent with the plan, or with its run
		named                   bool // the server alone is evacuated, by its name
		variables               string
		plan                    string // ends the reason of the plan
		says                    string // the timeline
		stays                   bool
	}{
		"copied":                       {told: true, readable: true, variables: "copied keys"},
		"copied, named":                {told: true, readable: true, named: true, variables: "copied keys"},
		"not copied":                   {stays: true, plan: "keys that it had", says: "it stays"},
		"not copied, with the plan":    {asked: true, plan: "keys that it had", says: "it begins with new ones"},
		"not copied, with the run":     {run: true, plan: "keys that it had", says: "it begins with new ones"},
		"not copied, by the group":     {group: compute.VariablesDiscard, plan: "keys that it had", says: "it begins with new ones"},
		"not copied, named":            {named: true, says: "it begins with new ones"},
		"a volume":                     {volumes: true, stays: true, plan: "keys that it had", says: "it stays"},
		"a volume, with the run":       {volumes: true, run: true, plan: "keys that it had"},
		"unreadable":                   {told: true, stays: true, says: "no copy lies beside its disk"},
		"unreadable, with consent":     {told: true, asked: true, says: "it begins with new ones"},
		"unreadable, by the group":     {told: true, group: compute.VariablesDiscard, says: "it begins with new ones"},
		"a copy that was not told yet": {readable: true, asked: true, plan: "keys that it had", variables: "copied keys"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: c.volumes}})
			if c.volumes { // no disk of it lies in a store
				s.tx(t, func(tx job.Tx) error {
					srv, err := s.store.Servers().Get(ctx, tx, s.server)
					if err != nil {
						return err
					}
					srv.Disks = srv.Disks[:1]
					return s.store.Servers().Save(tx, srv)
				})
			}
			s.uefi(t, c.told, c.readable)
			if c.group != "" {
				must.OK(t, s.services.HostGroups.Create(ctx, &compute.HostGroup{Name: "g", Variables: c.group}, record.Asker{}))
				s.say(t, compute.Service{Group: new("g")})
			}
			s.fence(t)
			if c.named {
				s.evacuate(t)
			} else {
				p := s.plan(t, compute.PlanRequest{DiscardVariables: c.asked})
				if item := p.Items[0]; c.plan != "" != item.LosesVariables || !strings.HasSuffix(item.Why, c.plan) || item.NeedsConsent != (c.plan != "" && c.group == "") {
					t.Errorf("plan %+v, want %q at its end", item, c.plan)
				}
				must.Get(s.services.Plans.Run(ctx, p.ID, compute.PlanConsent{DiscardVariables: c.run}, ops))(t)
			}
			s.workAll(t)
			row := s.now(t)
			if stayed := row.HostID == s.host.ID; stayed != c.stays {
				t.Fatalf("stayed %v, want %v:\n%s", stayed, c.stays, s.whereabouts(t))
			}
			s.reads(t, c.says)
			if c.stays {
				if c.plan == "" { // the copy could not be read: the flag is the way on
					p := s.plan(t, compute.PlanRequest{DiscardVariables: true})
					must.Get(s.services.Plans.Run(ctx, p.ID, compute.PlanConsent{}, ops))(t)
					s.workAll(t)
					if s.now(t).HostID == s.host.ID {
						t.Errorf("it stays with --discard-variables, too:\n%s", s.whereabouts(t))
					}
				}
				return
			}
			for _, h := range s.others {
				if g, there := h.hv.State(s.server); there && (g.Variables != c.variables || g.Power != compute.PowerOn) {
					t.Errorf("the guest is %s with the variables %q, want %q", g.Power, g.Variables, c.variables)
				}
			}
		})
	}
}
