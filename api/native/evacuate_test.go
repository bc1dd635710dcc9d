package native_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// host inserts a host that lives.
func (w *world) host(name string, stores ...compute.DiskStore) *compute.Host {
	w.Helper()
	h := &compute.Host{Record: record.Record{ID: uuid.NewString(), CreatedAt: time.Now()}, Name: name, Kind: compute.AgentHost, BootID: name,
		Inventory: compute.Inventory{VCPUs: 8, RAM: 8192, Disk: 100, Stores: stores}}
	must.OK(w, w.s.Do(w.Context(), func(tx job.Tx) error { return w.s.Hosts().Insert(tx, h) }))
	must.OK(w, w.s.SaveLeases(w.Context(), []compute.Lease{{HostID: h.ID, BootID: name, RenewedAt: time.Now(), Renewals: 1}}))
	return h
}

// on gives a server to a host that was never made there: no destination has to be asked about it.
func (w *world) on(h *compute.Host, name string) *compute.Server {
	w.Helper()
	v := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: name, State: compute.Errored, HostID: h.ID, Epoch: 1}
	must.OK(w, w.s.Do(w.Context(), func(tx job.Tx) error { return w.s.Servers().Insert(tx, v) }))
	return v
}

func (w *world) fence(h *compute.Host) {
	w.Helper()
	must.OK(w, w.s.Do(w.Context(), func(tx job.Tx) error {
		_, err := w.services.Fences.Give(w.Context(), tx, h.ID, []compute.Proof{{Evidence: compute.PowerCut, Text: "it is off"}}, "boss", "")
		return err
	}))
}

// documented proves that the page of this API names each field of a record.
func (w *world) documented(kind string, record object) {
	w.Helper()
	page := must.Get(os.ReadFile("../../docs/native-api.md"))(w)
	_, rest, found := strings.Cut(string(page), "\n| "+kind+" | `")
	row, _, _ := strings.Cut(rest, "\n")
	for field := range record {
		if !found || !strings.Contains("`"+row, "`"+field+"`") {
			w.Errorf("docs/native-api.md does not name %s of a %s", field, kind)
		}
	}
}

// blocked ends the fence of a host without a receipt.
func (w *world) blocked(h *compute.Host, why string) {
	w.Helper()
	jobs, err := w.s.Claim(w.Context(), "test", time.Now().Add(time.Minute), []string{""}, map[job.Kind]int{compute.JobFence: 1}, 1)
	if err != nil || len(jobs) != 1 {
		w.Fatalf("%d fences: %v", len(jobs), err)
	}
	j := &jobs[0]
	j.State, j.Problem = job.Ended, why
	must.OK(w, w.s.Do(w.Context(), func(tx job.Tx) error {
		if err := w.s.Append(tx, job.Event{Subject: compute.HostSubject(h.ID), Type: "action", Text: why, Severity: "error", JobID: j.ID}); err != nil {
			return err
		}
		return w.s.Save(tx, j, false)
	}))
}

func TestHostGroups(t *testing.T) {
	w := newWorld(t)
	g := w.admin("POST", "/host-groups", `{"name":"racks","require":["power","storage"],"reimage":"never"}`, 201)
	w.has(g, object{"number": 1, "name": "racks", "healing": false, "require": "[power storage]", "reimage": "never", "max_hosts": 1, "max_share": 50, "parallel": 16})
	w.has(w.admin("PATCH", "/host-groups/racks", `{"healing":true,"require":[],"parallel":4}`, 200), object{"healing": true, "require": "[]", "reimage": "never", "parallel": 4})
	w.documented("host group", g)
	w.says("POST", "/host-groups", `{"name":"racks"}`, 409, "racks")
	w.says("POST", "/host-groups", `{"name":"x","require":["hearsay"]}`, 400, "hearsay")
	w.says("POST", "/host-groups", `{"name":"x","reimage":"perhaps"}`, 400, "perhaps")
	w.says("POST", "/host-groups", `{"name":"x","max_share":101}`, 400, "max_share")
	w.says("POST", "/host-groups", `{"name":"x","self-fence":true}`, 400, `"self-fence"`)
	for _, name := range []string{"max_hosts", "max_share", "parallel"} {
		w.says("POST", "/host-groups", `{"name":"x","`+name+`":0}`, 400, name)
		w.says("PATCH", "/host-groups/racks", `{"`+name+`":0}`, 400, name)
	}
	w.says("PATCH", "/host-groups/racks", `{"reimage":""}`, 400, "reimage")
	w.says("PATCH", "/host-groups/racks", `{"re-image":"never"}`, 400, `"re-image"`)
	w.says("PATCH", "/host-groups/none", `{}`, 404, "")
	h := w.host("vm1")
	w.has(w.admin("PATCH", "/hosts/vm1", `{"group":"racks"}`, 200), object{"group": "racks"})
	w.says("PATCH", "/hosts/vm1", `{"group":"none"}`, 400, "none")
	w.says("DELETE", "/host-groups/racks", "", 409, "vm1")
	w.has(w.admin("PATCH", "/hosts/"+h.ID, `{"group":""}`, 200), object{"group": ""})
	w.admin("DELETE", "/host-groups/racks", "", 204)
	w.many("/host-groups", "host_groups", 0)
	w.many("/host-groups?name=none", "host_groups", 0)
}

func TestHostIsANode(t *testing.T) {
	w := newWorld(t)
	w.host("vm1")
	w.host("vm2")
	w.nodes = []*metal.Node{{Name: "rack1-7"}}
	w.nodes[0].ID = uuid.NewString()
	w.has(w.admin("PATCH", "/hosts/vm1", `{"node":"rack1-7"}`, 200), object{"node": w.nodes[0].ID})
	w.says("PATCH", "/hosts/vm2", `{"node":"rack1-8"}`, 404, "rack1-8")
	w.admin("PATCH", "/hosts/vm2", `{"node":"`+w.nodes[0].ID+`"}`, 409)
	w.has(w.admin("PATCH", "/hosts/vm1", `{"node":""}`, 200), object{"node": ""})
	w.has(w.admin("PATCH", "/hosts/vm1", `{"forced_down":true}`, 200), object{"forced_down": true, "state": "down", "fenced": nil, "suspected": false, "thought": "", "moves_open": 0})
	w.has(w.admin("PATCH", "/hosts/vm1", `{"forced_down":false}`, 200), object{"forced_down": false})
}

// TestPlans drafts, runs and cancels; servers are named by UUID or name.
func TestPlans(t *testing.T) {
	w := newWorld(t)
	from := w.host("vm1")
	w.host("vm2")
	web, db := w.on(from, "web1"), w.on(from, "db1")
	w.on(from, "twin")
	w.on(from, "twin")
	p := w.admin("POST", "/plans", `{"host":"vm1","servers":["web1","`+strings.ToUpper(db.ID)+`"],"destination":"vm2","parallel":2}`, 201)
	w.has(p, object{"host_id": from.ID, "host": "vm1", "state": "drafted", "parallel": 2, "servers": 2, "drain": false, "one_more": nil})
	w.has(p["dispositions"].(object), object{"keep": 0, "reattach": 0, "reimage": 0, "cannot": 2})
	w.has(p["items"].([]any)[0].(object), object{"server_id": web.ID, "name": "web1", "destination": "", "disposition": "cannot", "needs_consent": false})
	w.documented("plan", p)
	w.documented("item of a plan", p["items"].([]any)[0].(object))
	if missing := fmt.Sprint(p["missing"]); !strings.Contains(missing, "salvor fence vm1") {
		t.Errorf("missing: %s", missing)
	}
	for _, bad := range []struct {
		body   string
		status int
		words  string
	}{
		{`{"host":"vm1","servers":["nobody"]}`, 404, "no server named"}, {`{"host":"vm1","servers":["twin"]}`, 409, "2 servers of the host are named"},
		{`{"host":"vm9"}`, 404, "vm9"}, {`{"host":"vm1","destination":"vm9"}`, 404, "vm9"}, {`{"host":"vm1","parallel":-1}`, 400, "parallel"}, {`{"host":["vm1"]}`, 400, "host"},
		{`{"host":"vm1","server":["web1"]}`, 400, `"server"`}, {`{"host":"vm1","dest":"vm2"}`, 400, `"dest"`}, {`{"host":""}`, 400, "host"}, {`{}`, 400, "host"},
		{`{"host":"vm1","destination":"vm1"}`, 400, "itself"},
	} {
		w.says("POST", "/plans", bad.body, bad.status, bad.words)
	}
	path := fmt.Sprint("/plans/", p["id"])
	w.says("POST", path+"/run", `{}`, 409, "salvor fence vm1")
	w.says("POST", path+"/run", `{"reimage":["web1"]}`, 400, `"reimage"`)
	w.says("POST", path+"/run", `{"consent":["nobody"]}`, 404, "no server named")
	w.fence(from)
	w.has(w.admin("POST", path+"/run", `{"consent":[]}`, 202), object{"state": "running"})
	fence := w.admin("GET", "/hosts/vm1", "", 200)["fenced"].(object)
	w.has(fence, object{"by": "boss", "how": "[power]", "waits_for": "the end of plan " + fmt.Sprint(p["id"])})
	w.has(w.many("/plans?host=vm1&state=running", "plans", 1)[0].(object), object{"id": p["id"]})
	w.many("/plans?state=done", "plans", 0)
	w.has(w.admin("POST", path+"/cancel", "", 202), object{"state": "cancelled"})
	w.admin("POST", path+"/run", `{}`, 409)
	w.admin("POST", "/plans/"+uuid.NewString()+"/run", `{}`, 404)
}

// TestMetalIsNotMoved: an endpoint of the Bare Metal API has nothing to fence, to move or to drain, and says so in one voice.
func TestMetalIsNotMoved(t *testing.T) {
	w := newWorld(t)
	h := w.host("metal", compute.DiskStore{})
	h.Kind = compute.IronicHost
	must.OK(w, w.s.Do(w.Context(), func(tx job.Tx) error { return w.s.Hosts().Save(tx, h) }))
	w.on(h, "m1")
	p := w.admin("POST", "/plans", `{"host":"metal"}`, 201)
	w.has(p["dispositions"].(object), object{"cannot": 1})
	if missing := fmt.Sprint(p["missing"]); strings.Contains(missing, "salvor fence") || !strings.Contains(missing, "its own host") {
		t.Errorf("missing: %s", missing)
	}
	w.says("POST", fmt.Sprint("/plans/", p["id"], "/run"), `{}`, 409, "its own host")
	w.says("POST", "/hosts/metal/fence", `{}`, 400, "its own host")
	w.says("POST", "/hosts/metal/drain", `{}`, 400, "its own host")
	w.has(w.admin("GET", "/hosts/metal", "", 200), object{"disabled": false})
}

// TestFences shows receipts, moves, jobs and the history of a host.
func TestFences(t *testing.T) {
	w := newWorld(t)
	from, to := w.host("vm1"), w.host("vm2")
	begun := w.admin("POST", "/hosts/vm1/fence", `{"attest":"cable pulled"}`, 202)
	w.has(w.admin("GET", fmt.Sprint("/jobs/", begun["job"]), "", 200), object{"kind": "host fence", "state": "ready", "problem": ""})
	w.admin("GET", "/jobs/none", "", 404)
	w.says("POST", "/hosts/vm1/fence", `{"attest":"a\nb"}`, 400, "one line")
	w.says("POST", "/hosts/vm1/fence", `{"words":"cable pulled"}`, 400, `"words"`)
	w.says("POST", "/hosts/vm9/fence", `{}`, 404, "vm9")
	if text := fmt.Sprint(w.admin("GET", "/hosts/vm1/history", "", 200)["events"]); !strings.Contains(text, "fenced") {
		t.Error(text)
	}
	w.has(w.admin("GET", "/hosts/vm1", "", 200), object{"fence_problem": ""})
	w.blocked(from, "the BMC does not answer")
	w.has(w.admin("GET", "/hosts/vm1", "", 200), object{"fence_problem": "the BMC does not answer", "fenced": nil})
	w.has(w.admin("GET", "/hosts/vm2", "", 200), object{"fence_problem": ""})
	w.fence(from)
	w.has(w.admin("GET", "/hosts/vm1", "", 200), object{"fence_problem": ""}) // a fence that failed before the receipt is no problem any more
	w.has(w.many("/receipts?host=vm1&open=true", "receipts", 1)[0].(object), object{"host": "vm1", "by": "boss", "open": true, "closed_at": nil})
	w.documented("receipt", w.many("/receipts", "receipts", 1)[0].(object))
	w.documented("job", w.admin("GET", fmt.Sprint("/jobs/", begun["job"]), "", 200))
	w.many("/receipts?host="+to.ID, "receipts", 0)
	w.says("GET", "/receipts?open=perhaps", "", 400, "open")
	m := &compute.Move{Record: record.Record{ID: uuid.NewString(), CreatedAt: time.Now()}, ServerID: uuid.NewString(), SourceID: from.ID, DestID: to.ID,
		Kind: compute.Evacuation, State: compute.MoveDone, Disposition: compute.KeepDisk, Words: "it was paused"}
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error { return w.s.Moves().Insert(tx, m) }))
	for path, n := range map[string]int{"": 1, "?host=vm1": 1, "?host=vm2": 1, "?server=" + m.ServerID: 1, "?server=" + m.ID: 0, "?open=true": 0, "?uncleaned=true": 1, "?state=failed": 0, "?plan=" + m.ID: 0} {
		w.many("/moves"+path, "moves", n)
	}
	w.has(w.admin("GET", "/moves/"+m.ID, "", 200), object{"source": "vm1", "destination": "vm2", "kind": "evacuation", "disposition": "keep", "words": "it was paused"})
	w.documented("move", w.admin("GET", "/moves/"+m.ID, "", 200))
	w.has(w.admin("GET", "/moves/"+m.ID, "", 200), object{"state": "done", "status": "done"})
	m.Problem = "its guest did not start"
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error { return w.s.Moves().Save(tx, m) }))
	w.has(w.admin("GET", "/moves/"+m.ID, "", 200), object{"state": "done", "status": "error"})
	for path, n := range map[string]int{"?status=error": 1, "?status=done": 0, "?state=done": 1, "?status=error&host=vm2": 1, "?status=error&kind=migration": 0} {
		w.many("/moves"+path, "moves", n)
	}
	w.says("GET", "/moves?status=bogus", "", 400, "status")
	for _, filter := range []string{"host", "server", "plan"} {
		w.says("GET", "/moves?"+filter+"=nosuch", "", 404, "nosuch")
	}
	host := w.admin("GET", "/hosts/vm1", "", 200)
	w.documented("host", host)
	w.documented("host", host["fenced"].(object))
	w.has(host, object{"state": "down", "moves_uncleaned": 1, "moves_open": 0})
	w.has(host["fenced"].(object), object{"waits_for": "the host, to clean up after 1 server that was moved"})
}
