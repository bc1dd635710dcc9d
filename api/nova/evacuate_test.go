package nova_test

import (
	"strings"
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/must"
)

// neighbour adds a second host that lives, whose only store of disks has a marker.
func (w *world) neighbour(marker string) {
	w.Helper()
	h := &compute.Host{
		Record: record.Record{ID: hostTwo, CreatedAt: born}, Name: "rack2", Kind: compute.AgentHost, BootID: "b2",
		Inventory: compute.Inventory{
			VCPUs: 64, RAM: 262144, Disk: 4000, Bridges: []string{"br0"}, Firmware: []compute.Firmware{compute.BIOS},
			Stores: []compute.DiskStore{{Name: "near", Marker: marker, SizeGiB: 4000, FreeGiB: 4000}},
		},
	}
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error { return w.store.Hosts().Insert(tx, h) }))
	must.OK(w, w.store.SaveLeases(w.Context(), []compute.Lease{{HostID: hostTwo, BootID: "b2", RenewedAt: born, Renewals: 1}}))
	w.forget()
}

// fence gives the first host a receipt.
func (w *world) fence() {
	w.Helper()
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error {
		_, err := w.services.Fences.Give(w.Context(), tx, hostOne, []compute.Proof{{Evidence: compute.PowerCut, Text: "it is off"}}, "boss", "")
		return err
	}))
	w.forget()
}

// says wants an error with its text.
func (w *world) says(status int, method, path, version, body, message string) {
	w.Helper()
	if _, got := w.want(status, method, path, version, body).fault(); !strings.Contains(got, message) {
		w.Errorf("%s %s %s at %s: %q, want %q", method, path, body, version, got, message)
	}
}

func TestEvacuateIsRefused(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	w.neighbour("m2")
	path := "/servers/" + id + "/action"
	w.as(boss)
	w.says(400, "POST", path, "2.88", `{"evacuate": {}}`, "Compute service of rack1 is still in use.")
	w.says(404, "POST", path, "2.88", `{"evacuate": {"host": "nobody"}}`, "Compute host nobody not found.")
	w.says(400, "POST", path, "2.88", `{"evacuate": {"host": "rack1"}}`, "The target host can't be the same one.")
	w.want(200, "PUT", "/os-services/force-down", "2.11", `{"host": "rack1", "binary": "nova-compute", "forced_down": true}`)
	w.forget()
	w.says(409, "POST", path, "2.88", `{"evacuate": {}}`, "salvor fence rack1")
	w.set(id, func(s *compute.Server) { s.State = compute.Building })
	w.says(409, "POST", path, "2.88", `{"evacuate": {}}`, "Cannot 'evacuate' instance "+id+" while it is in vm_state building")
	w.says(404, "PUT", "/os-services/force-down", "2.11", `{"host": "nobody", "binary": "nova-compute", "forced_down": true}`, "Could not find binary nova-compute on host nobody.")
	w.says(400, "PUT", "/os-services/force-down", "2.53", `{"forced_down": true}`, "Invalid uuid force-down")
	w.says(404, "PUT", "/os-services/"+nothing, "2.53", `{"forced_down": true}`, "not found")
}

// TestEvacuate asks in the shapes of old and new clients, for disks that are made anew and for disks that are kept.
func TestEvacuate(t *testing.T) {
	const shared = "m1"
	type evacuated struct {
		version, body, marker string
		answer                string // "?": some password
		state                 compute.VMState
	}
	cases := []evacuated{
		{"2.1", `{"onSharedStorage": false}`, "m2", `{"adminPass":"?"}`, compute.Active},
		{"2.13", `{"onSharedStorage": "False", "host": "rack2", "adminPass": "open-sesame"}`, "m2", `{"adminPass":"open-sesame"}`, compute.Stopped},
		{"2.13", `{"onSharedStorage": true, "host": "rack2"}`, shared, `{"adminPass":null}`, compute.Errored},
		{"2.14", `{"adminPass": "open-sesame"}`, "m2", "", compute.Paused}, {"2.29", `{"host": "rack2", "force": true}`, shared, "", compute.Suspended},
		{"2.68", `{"host": "rack2"}`, shared, "", compute.Rescued}, {"2.88", `{}`, shared, "", compute.Active},
	}
	for _, c := range cases {
		w := newWorld(t)
		id := w.active()
		w.neighbour(c.marker)
		w.set(id, func(s *compute.Server) {
			s.State = c.state
			if c.state == compute.Rescued {
				s.Rescue = &rescue.Session{State: rescue.Ready, StartedAt: born, SavedKnown: true, Source: &rescue.Source{Kind: rescue.Kernel, Access: rescue.ByChannel}}
			}
		})
		w.fence()
		w.as(boss)
		a := w.want(200, "POST", "/servers/"+id+"/action", c.version, `{"evacuate": `+c.body+`}`)
		if before, after, found := strings.Cut(c.answer, "?"); a.Body != c.answer && !(found && strings.HasPrefix(a.Body, before) && strings.HasSuffix(a.Body, after) && len(a.Body) == len(c.answer)+11) {
			t.Errorf("%+v: %q", c, a.Body)
		}
		srv := w.want(200, "GET", "/servers/"+id, "2.88", "").Object(t)
		if at(srv, "server", "status") != "REBUILD" || at(srv, "server", "OS-EXT-STS:task_state") != "rebuilding" || at(srv, "server", "OS-EXT-SRV-ATTR:host") != "rack1" {
			t.Errorf("%+v: %v", c, srv)
		}
		moves := w.want(200, "GET", "/os-migrations?status=accepted&source_compute=rack1", "2.80", "").Object(t)["migrations"].([]any)
		if len(moves) != 1 || at(moves[0], "instance_uuid") != id || at(moves[0], "migration_type") != "evacuation" {
			t.Errorf("%+v: %v", c, moves)
		}
		w.says(409, "POST", "/servers/"+id+"/action", "2.88", `{"evacuate": {}}`, "")
		w.says(409, "DELETE", "/os-services/"+hostOne, "2.53", "", "has servers")
		acts := w.want(200, "GET", "/servers/"+id+"/os-instance-actions", "2.88", "").Object(t)["instanceActions"].([]any)
		if at(acts[0], "action") != "evacuate" {
			t.Errorf("%+v: %v", c, acts)
		}
		if strings.Contains(w.log.String(), "open-sesame") {
			t.Error("the password is in the log")
		}
	}
}

// TestOnSharedStorageRefusesToReimage: who says that the disk is on shared storage does not have it made anew. Nothing is changed.
func TestOnSharedStorageRefusesToReimage(t *testing.T) {
	for _, body := range []string{`{"onSharedStorage": true}`, `{"onSharedStorage": "True", "host": "rack2"}`} {
		w := newWorld(t)
		id := w.active()
		w.neighbour("m2")
		w.fence()
		w.as(boss)
		before := w.want(200, "GET", "/servers/"+id, "2.88", "").Body
		w.says(409, "POST", "/servers/"+id+"/action", "2.13", `{"evacuate": `+body+`}`, "is not on shared storage")
		if after := w.want(200, "GET", "/servers/"+id, "2.88", "").Body; after != before {
			t.Errorf("%s changed the server:\n%s\n%s", body, before, after)
		}
		if moves := w.want(200, "GET", "/os-migrations", "2.80", "").Object(t)["migrations"].([]any); len(moves) != 0 {
			t.Errorf("%s: there are moves: %v", body, moves)
		}
		w.want(200, "POST", "/servers/"+id+"/action", "2.13", `{"evacuate": {"onSharedStorage": false}}`)
	}
}

// TestServersOfHost: an administrator names the host by name or UUID.
func TestServersOfHost(t *testing.T) {
	w := newWorld(t)
	w.active()
	w.as(boss)
	for host, n := range map[string]int{"rack1": 1, hostOne: 1, "rack9": 0, nothing: 0} {
		if found := w.want(200, "GET", "/servers?all_tenants=1&host="+host, "2.80", "").Object(t)["servers"].([]any); len(found) != n {
			t.Errorf("host %s: %v, want %d servers", host, found, n)
		}
	}
}

// TestAFencedHostIsDown in every list, and is not up again before it has cleaned up.
func TestAFencedHostIsDown(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	w.moved(id)
	w.fence()
	w.as(boss)
	for path, key := range map[string]string{"/os-services?host=rack1": "services", "/os-hypervisors?limit=1": "hypervisors"} {
		all := w.want(200, "GET", path, "2.53", "").Object(t)[key].([]any)
		if len(all) != 1 || at(all[0], "state") != "down" {
			t.Errorf("%s: %v", path, all)
		}
	}
	if srv := w.want(200, "GET", "/servers/"+id, "2.16", "").Object(t); at(srv, "server", "host_status") != "DOWN" {
		t.Error(srv)
	}
	w.says(409, "DELETE", "/os-services/"+hostTwo, "2.53", "", "goes on")
	put := "/os-services/" + hostOne
	if s := w.want(200, "PUT", put, "2.53", `{"forced_down": true}`).Object(t); at(s, "service", "state") != "down" || at(s, "service", "forced_down") != true {
		t.Error(s)
	}
	w.says(400, "PUT", put, "2.53", `{"forced_down": false}`, "rack1")
	w.says(400, "PUT", "/os-services/force-down", "2.52", `{"host": "rack1", "binary": "nova-compute", "forced_down": false}`, "rack1")
}

// TestForcePassesADisabledHostOfALiveMigration by the same rule.
func TestForcePassesADisabledHostOfALiveMigration(t *testing.T) {
	for _, c := range []struct {
		version, more string
		status        int
	}{{"2.25", ``, 202}, {"2.30", ``, 409}, {"2.30", `, "force": true`, 202}, {"2.68", ``, 409}} {
		w := newWorld(t)
		id := w.active()
		w.neighbour("m1")
		must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error {
			h, err := w.store.Hosts().Get(w.Context(), tx, hostTwo)
			if err != nil {
				return err
			}
			h.Disabled = true
			return w.store.Hosts().Save(tx, h)
		}))
		w.as(boss)
		w.want(c.status, "POST", "/servers/"+id+"/action", c.version, `{"os-migrateLive": {"host": "rack2", "block_migration": false`+c.more+`}}`)
	}
}

// TestLiveMigrationThatCannotBe: a live migration that nothing can carry out is refused when it is asked for.
func TestLiveMigrationThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		marker, block, words string // the disk store of the neighbour, block_migration, and what the refusal says
		status               int
	}{
		"disks that are to be copied":  {"m1", "true", "Block migration of instance", 400},
		"disks that no other host has": {"m2", "false", "it does not see the disk store of its disks", 409},
		"the same, left to salvor":     {"m2", `"auto"`, "it does not see the disk store of its disks", 409},
	} {
		w := newWorld(t)
		id := w.active()
		w.neighbour(c.marker)
		w.as(boss)
		w.says(c.status, "POST", "/servers/"+id+"/action", "2.88", `{"os-migrateLive": {"host": null, "block_migration": `+c.block+`}}`, c.words)
		if srv := w.want(200, "GET", "/servers/"+id, "2.88", "").Object(t); at(srv, "server", "status") != "ACTIVE" {
			t.Errorf("%s: after the refusal the server is %v, want ACTIVE", name, at(srv, "server", "status"))
		}
	}
}

// TestBlockMigrationOfVolumes: block_migration says nothing about a server whose disks are volumes, which is migrated.
func TestBlockMigrationOfVolumes(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	w.neighbour("m2")
	w.set(id, func(s *compute.Server) { s.ImageID, s.Disks = "", []compute.Disk{{Name: "vda", VolumeID: hostTwo}} })
	w.as(boss)
	w.want(202, "POST", "/servers/"+id+"/action", "2.88", `{"os-migrateLive": {"host": null, "block_migration": true}}`)
}

// TestMigrateShapes holds planned moves to each microversion's schema.
func TestMigrateShapes(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	w.neighbour("m1")
	path := "/servers/" + id + "/action"
	for _, body := range []string{`{"migrate": null}`, `{"os-migrateLive": {"host": null, "block_migration": false, "disk_over_commit": false}}`} {
		w.want(403, "POST", path, "2.1", body)
	}
	w.as(boss)
	const live = `{"os-migrateLive": {"host": null, "block_migration": `
	for _, bad := range []struct{ version, body, words string }{
		{"2.56", `{"migrate": {"what": "ever"}}`, "'what' was unexpected"}, {"2.56", `{"migrate": 7}`, "'object'"},
		{"2.24", live + `false}}`, "'disk_over_commit' is a required property"}, {"2.24", live + `"auto", "disk_over_commit": false}}`, "is not a boolean"},
		{"2.25", live + `false, "disk_over_commit": false}}`, "'disk_over_commit' was unexpected"}, {"2.25", `{"os-migrateLive": {"block_migration": "auto"}}`, "'host' is a required property"},
		{"2.30", live + `"auto", "force": true}}`, "Can't force to a non-provided destination"}, {"2.68", live + `"auto", "force": false}}`, "'force' was unexpected"},
		{"2.88", `{"os-migrateLive": {"host": "nobody", "block_migration": "auto"}}`, "Compute host nobody could not be found."},
		{"2.88", `{"migrate": {"host": "nobody"}}`, "Compute host nobody could not be found."},
	} {
		w.says(400, "POST", path, bad.version, bad.body, bad.words)
	}
	w.want(202, "POST", path, "2.56", `{"migrate": {"host": "rack2"}}`)
	if srv := w.want(200, "GET", "/servers/"+id, "2.88", "").Object(t); at(srv, "server", "status") != "MIGRATING" || at(srv, "server", "OS-EXT-STS:task_state") != "migrating" {
		t.Error(srv)
	}
	acts := w.want(200, "GET", "/servers/"+id+"/os-instance-actions", "2.88", "").Object(t)["instanceActions"].([]any)
	if at(acts[0], "action") != "live-migration" { // by migrate as well: it runs, and nobody shall notice
		t.Error(acts)
	}
}

// TestForcePassesADisabledHost, which is how reserved hosts are kept. What makes it impossible to run the server there does not pass.
func TestForcePassesADisabledHost(t *testing.T) {
	for name, c := range map[string]struct {
		version, body, marker string
		change                func(*compute.Host)
		status                int
		words                 string
	}{
		"unforced, disabled":         {"2.29", `{"host": "rack2"}`, "m1", func(h *compute.Host) { h.Disabled = true }, 409, "rack2: disabled"},
		"forced, disabled":           {"2.29", `{"host": "rack2", "force": true}`, "m1", func(h *compute.Host) { h.Disabled = true }, 200, ""},
		"named of old, disabled":     {"2.14", `{"host": "rack2"}`, "m1", func(h *compute.Host) { h.Disabled = true }, 200, ""},
		"forced, full":               {"2.67", `{"host": "rack2", "force": true}`, "m1", func(h *compute.Host) { h.Inventory.RAM = 1 }, 200, ""},
		"forced, in another zone":    {"2.67", `{"host": "rack2", "force": true}`, "m1", func(h *compute.Host) { h.Zone = "far" }, 200, ""},
		"not forced from 2.68 on":    {"2.68", `{"host": "rack2"}`, "m1", func(h *compute.Host) { h.Disabled = true }, 409, "rack2: disabled"},
		"forced, forced down":        {"2.29", `{"host": "rack2", "force": true}`, "m1", func(h *compute.Host) { h.ForcedDown = true }, 409, "rack2: forced down"},
		"forced, without the bridge": {"2.29", `{"host": "rack2", "force": true}`, "m1", func(h *compute.Host) { h.Inventory.Bridges = nil }, 409, "rack2: no bridge"},
	} {
		w := newWorld(t)
		id := w.active()
		w.set(id, func(s *compute.Server) { s.NICs, s.Zone = []compute.NIC{{Bridge: "br0"}}, "nova" })
		w.neighbour(c.marker)
		must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error {
			h, err := w.store.Hosts().Get(w.Context(), tx, hostTwo)
			if err != nil {
				return err
			}
			h.Inventory.Bridges = []string{"br0"}
			c.change(h)
			return w.store.Hosts().Save(tx, h)
		}))
		w.fence()
		w.as(boss)
		if a := w.ask("POST", "/servers/"+id+"/action", c.version, `{"evacuate": `+c.body+`}`); a.Status != c.status || !strings.Contains(a.Body, c.words) {
			t.Errorf("%s: %d %s, want %d with %q", name, a.Status, a.Body, c.status, c.words)
		}
	}
}
