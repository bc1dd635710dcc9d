package ganeti

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
)

// DRBD and a cluster of several nodes are told by the fake of RAPI here, by what Ganeti's documents and sources say of them: no such
// cluster runs in these tests.

func (f *rapi) role(r *http.Request, args map[string]any) *fakeJob {
	name, role := r.PathValue("name"), args[""]
	return &fakeJob{op: "NODE_SET_PARAMS", name: name, apply: func() any {
		f.offline[name] = role == "offline"
		return nil
	}}
}

// evacuate answers by jobs that do the work, as the real one.
func (f *rapi) evacuate(r *http.Request, args map[string]any) *fakeJob {
	node := r.PathValue("name")
	j := &fakeJob{op: "NODE_EVACUATE", name: node}
	j.apply = func() any {
		if args["mode"] != "secondary-only" {
			return failed("OpPrereqError", "want secondary-only", "wrong_input")
		}
		f.next++
		work := &fakeJob{id: f.next, op: "INSTANCE_REPLACE_DISKS", status: "queued", apply: func() any {
			for _, in := range f.instances {
				in.secondaries = slices.DeleteFunc(in.secondaries, func(s string) bool { return s == node })
			}
			return nil
		}}
		f.jobs[work.id] = work
		j.answer = map[string]any{"jobs": []any{[]any{true, work.id}}}
		return nil
	}
	return j
}

// move is a failover or a migration.
func (f *rapi) move(in *fakeInstance, args map[string]any) any {
	to, named := args["target_node"].(string)
	switch {
	case in.template == mirrored && named:
		return failed("OpPrereqError", "Instances with disk template drbd cannot be migrated or failed over to arbitrary nodes", "wrong_input")
	case in.template == mirrored:
		to, in.secondaries = in.secondaries[0], []string{in.node}
	case !named:
		return failed("OpPrereqError", "Cannot be used without a target node or an iallocator", "wrong_input")
	}
	in.node, in.running = to, in.admin == "up"
	return nil
}

func TestOfflineNodes(t *testing.T) {
	f := newRAPI(t)
	h := f.host(t)
	for _, offline := range []bool{true, true, false, false} {
		must.OK(t, h.SetOffline(t.Context(), firstNode, offline))
		if f.offline[firstNode] != offline {
			t.Fatalf("offline %v, want %v", f.offline[firstNode], offline)
		}
	}
	if writes := f.writes(); len(writes) != 2 {
		t.Errorf("asked more than once: %v", writes)
	}
	if err := h.SetOffline(t.Context(), "other.example.test", true); !problem.Is(err, problem.NotFound) {
		t.Errorf("a node that is none: %v", err)
	}
	f.with(func() { f.lies = true })
	if err := h.SetOffline(t.Context(), firstNode, true); !problem.Is(err, problem.Conflict) {
		t.Errorf("a cluster that lies: %v", err)
	}
}

func TestReaches(t *testing.T) {
	f := newRAPI(t)
	h := f.host(t)
	for _, c := range []struct{ silent, offline, answers bool }{{answers: true}, {silent: true}, {offline: true}, {silent: true, offline: true}} {
		f.with(func() { f.dead[firstNode], f.offline[firstNode] = c.silent, c.offline })
		if answers, offline, err := h.Reaches(t.Context(), firstNode); err != nil || answers != c.answers || offline != c.offline {
			t.Errorf("%+v: answers %v, offline %v: %v", c, answers, offline, err)
		}
	}
	if _, _, err := h.Reaches(t.Context(), "other.example.test"); !problem.Is(err, problem.NotFound) {
		t.Errorf("a node that is none: %v", err)
	}
	// Ganeti itself waits for the node: that is its silence, and it does not keep us from marking it.
	h.conf.Timeout = 20 * time.Millisecond
	f.with(func() { f.dead[firstNode], f.offline[firstNode], f.hangs = true, false, true })
	if answers, offline, err := h.Reaches(t.Context(), firstNode); err != nil || answers || offline {
		t.Errorf("a node that takes questions only: answers %v, offline %v: %v", answers, offline, err)
	}
	if err := h.SetOffline(t.Context(), firstNode, true); err != nil || !f.offline[firstNode] {
		t.Errorf("a node that takes questions only: %v", err)
	}
	// Who is stopped meanwhile has heard nothing; nor has who asks a cluster that does not answer.
	f.with(func() { f.offline[firstNode] = false })
	h.conf.Timeout = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := h.Reaches(ctx, firstNode); !problem.Is(err, problem.Unavailable) {
		t.Errorf("stopped: %v", err)
	}
	f.with(func() { f.silent = 503 })
	if _, _, err := h.Reaches(t.Context(), firstNode); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a cluster that does not answer: %v", err)
	}
}

func TestFailover(t *testing.T) {
	for _, c := range []struct {
		template, secondary, to string
		online                  bool
		admin                   string
		kind                    problem.Kind // of the refusal; 0: it goes
	}{
		{template: "sharedfile", admin: "up"},
		{template: "rbd", to: secondNode, admin: "up"},
		{template: "sharedfile", admin: "down"},
		{template: mirrored, secondary: secondNode, admin: "up"},
		{template: mirrored, secondary: secondNode, to: "third.example.test", admin: "up", kind: problem.Conflict},
		{template: mirrored, admin: "up", kind: problem.Conflict},
		{template: "plain", admin: "up", kind: problem.Conflict},
		{template: "sharedfile", admin: "up", online: true, kind: problem.Conflict},
	} {
		t.Run(fmt.Sprint(c.template, c.secondary, c.to, c.admin, c.online), func(t *testing.T) {
			f := newRAPI(t)
			h := f.host(t)
			in := f.add("db", nil, "salvor:"+serverID)
			in.template, in.admin, in.running = c.template, c.admin, c.admin == "up"
			if c.secondary != "" {
				in.secondaries = []string{c.secondary}
			}
			f.offline[firstNode] = !c.online
			for range 2 { // the second finds it there
				at, err := h.Failover(t.Context(), serverID, c.to)
				if c.kind != 0 {
					if !problem.Is(err, c.kind) || len(f.writes()) > 0 {
						t.Fatalf("%v after %v, want a refusal of kind %s", err, f.writes(), c.kind)
					}
					return
				}
				if err != nil || at != secondNode || in.running != (c.admin == "up") {
					t.Fatalf("at %q, runs %v: %v", at, in.running, err)
				}
			}
			if writes := f.writes(); len(writes) != 1 {
				t.Errorf("moved more than once: %v", writes)
			}
		})
	}
}

func TestMigrateBetweenNodes(t *testing.T) {
	for _, c := range []struct {
		live, runs bool
		deed       string
	}{{true, true, "migrate"}, {false, true, "failover"}, {true, false, "failover"}} {
		f := newRAPI(t)
		h := f.host(t)
		in := f.add("db", nil, "salvor:"+serverID)
		in.template, in.running = "sharedfile", c.runs
		if c.runs {
			in.admin = "up"
		}
		at, err := h.Migrate(t.Context(), serverID, "", c.live)
		if writes := f.writes(); err != nil || at != secondNode || len(writes) != 1 || writes[0] != "PUT /2/instances/db/"+c.deed {
			t.Errorf("live %v, runs %v: at %q by %v: %v", c.live, c.runs, at, writes, err)
		}
	}
	f := newRAPI(t)
	f.add("db", nil, "salvor:"+serverID).template = "sharedfile"
	f.with(func() { f.offline[secondNode] = true })
	if _, err := f.host(t).Migrate(t.Context(), serverID, "", false); !problem.Is(err, problem.Conflict) {
		t.Errorf("a cluster without another node: %v", err)
	}
}

func TestMirrorsAreRenewed(t *testing.T) {
	f := newRAPI(t)
	h := f.host(t)
	if had, err := h.RenewMirrors(t.Context()); had || err != nil || len(f.writes()) > 0 {
		t.Fatalf("none had a mirror there: %v %v", had, err)
	}
	in := f.add("db", nil, "salvor:"+serverID)
	in.template, in.node, in.secondaries = mirrored, secondNode, []string{firstNode}
	if had, err := h.RenewMirrors(t.Context()); !had || err != nil || len(in.secondaries) != 0 {
		t.Errorf("%v, mirrors %v: %v", had, in.secondaries, err)
	}
}

func TestWrongNodeIsTold(t *testing.T) {
	in := instance{Name: "db", Status: "ERROR_wrongnode"}
	if g := in.inCluster(); g.Trouble == "" || g.Power == compute.PowerOn {
		t.Errorf("%+v", g)
	}
}
