package nova_test

import (
	"slices"
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/test/must"
)

// twin adds another host with the name of the first.
func (w *world) twin(id string) {
	w.Helper()
	h := &compute.Host{Record: record.Record{ID: id, CreatedAt: born}, Name: "rack1", Kind: compute.AgentHost, BootID: "b9"}
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error { return w.store.Hosts().Insert(tx, h) }))
}

// TestAHostNameThatTwoHostsBear names neither for an action, and both in a filter.
func TestAHostNameThatTwoHostsBear(t *testing.T) {
	w := newWorld(t)
	const twin, there = "99999999-3333-4444-8555-666666666666", "99999999-aaaa-4444-8555-666666666666"
	w.twin(twin)
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error {
		return w.store.Servers().Insert(tx, &compute.Server{Record: record.Record{ID: there, CreatedAt: born}, Name: "on-twin", State: compute.Active, HostID: twin, Project: "p"})
	}))
	w.as(boss)
	for path, body := range map[string]string{
		"force-down": `{"host": "rack1", "binary": "nova-compute", "forced_down": true}`, "disable": `{"host": "rack1", "binary": "nova-compute"}`,
		"enable": `{"host": "rack1", "binary": "nova-compute"}`, "disable-log-reason": `{"host": "rack1", "binary": "nova-compute", "disabled_reason": "r"}`,
	} {
		w.says(409, "PUT", "/os-services/"+path, "2.11", body, twin)
	}
	for _, id := range []string{hostOne, twin} {
		if h, err := w.services.Hosts.Host(w.Context(), id); err != nil || h.ForcedDown || h.Disabled {
			t.Errorf("%+v %v", h, err)
		}
	}
	for _, name := range []string{"host", "node", "hypervisor_hostname"} {
		var ids []string
		for _, s := range w.want(200, "GET", "/servers?all_tenants=1&"+name+"=rack1", "2.53", "").Object(t)["servers"].([]any) {
			ids = append(ids, s.(map[string]any)["id"].(string))
		}
		all := w.want(200, "GET", "/servers?all_tenants=1", "2.53", "").Object(t)["servers"].([]any)
		if !slices.Contains(ids, there) || len(ids) != len(all) {
			t.Errorf("%s: %v of %d", name, ids, len(all))
		}
	}
}

// A guest that another host tells keeps its server where it is, and an open fence keeps a service from being deleted.
func TestAGuestElsewhereIs409(t *testing.T) {
	w := newWorld(t)
	const twin = "99999999-3333-4444-8555-666666666666"
	id := w.active()
	w.neighbour("m2")
	w.twin(twin)
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error {
		return w.store.SaveGuestReport(tx, compute.GuestReport{HostID: twin, ServerID: id, BootID: "b9", Epoch: 1, Power: compute.PowerOn, SeenAt: born})
	}))
	w.fence()
	w.as(boss)
	w.says(409, "POST", "/servers/"+id+"/action", "2.88", `{"evacuate": {}}`, "host rack1 ("+twin+"), boot b9, reports guest "+id)
	w.set(id, func(s *compute.Server) { s.HostID = hostTwo })
	w.says(409, "DELETE", "/os-services/"+hostOne, "2.53", "", "fence 1 is not over")
	w.says(409, "DELETE", "/os-services/"+twin, "2.53", "", "guest "+id)
}
