package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-crypt/crypt"
	"github.com/go-crypt/crypt/algorithm/shacrypt"

	rest "salvor/client"

	"salvor/compute"
	"salvor/conductor"
	"salvor/conductor/node"
	"salvor/conductor/server"
	"salvor/hypervisor/fake"
	"salvor/job"
	"salvor/test/must"
)

// outages is one server, and who dies while it is rescued and comes back.
type outages struct {
	*world
	agent  *lone
	api    *rest.Client
	db     *sql.DB // of the control plane: its timeline
	id     string
	before fake.State
	starts int      // of the guest that should have been
	files  []string // of the server on its host
	plans  map[job.Kind][]string
}

// killing is one outage: who, and when.
type killing struct {
	agent bool
	order int // held while the host has carried it out and told nobody; 0: none
	after int // so many actions are in the timeline and the next one is not
}

func (k killing) String() string {
	who := "server"
	if k.agent {
		who = "agent"
	}
	if k.order > 0 {
		return fmt.Sprintf("%s at order %d", who, k.order)
	}
	return fmt.Sprintf("%s after action %d", who, k.after)
}

// TestKilled kills the control plane and the host's agent at every action of rescue and unrescue: each converges, with one effect.
func TestKilled(t *testing.T) {
	o := newOutages(t)
	// What is undisturbed tells which orders there are.
	stops := map[job.Kind][]killing{}
	for _, kind := range []job.Kind{compute.JobRescue, compute.JobUnrescue} {
		o.agent.set(0)
		o.goThrough(t, kind, nil)
		orders := o.agent.verbs()
		t.Logf("%s: orders %v, actions %q", kind, orders, o.plans[kind])
		for i := range orders {
			stops[kind] = append(stops[kind], killing{agent: true, order: i + 1}, killing{order: i + 1})
		}
		for i := range len(o.plans[kind]) + 1 {
			stops[kind] = append(stops[kind], killing{after: i})
		}
	}
	for i := range max(len(stops[compute.JobRescue]), len(stops[compute.JobUnrescue])) {
		for _, kind := range []job.Kind{compute.JobRescue, compute.JobUnrescue} {
			if i >= len(stops[kind]) {
				o.goThrough(t, kind, nil)
				continue
			}
			k := stops[kind][i]
			if !t.Run(string(kind)+", "+k.String(), func(t *testing.T) { o.goThrough(t, kind, &k) }) {
				return
			}
		}
	}
}

func newOutages(t *testing.T) *outages {
	t.Helper()
	w := newPlane(t, "")
	o := &outages{world: w, agent: newLone(w), plans: map[job.Kind][]string{}}
	for _, d := range conductor.New(nil, node.Config{}, server.Config{}).Definitions() {
		for _, a := range d.Actions {
			o.plans[d.Kind] = append(o.plans[d.Kind], a.Name)
		}
	}
	var err error
	if o.api, err = rest.New(rest.Config{Endpoint: w.server.URL}); err != nil {
		t.Fatal(err)
	}
	if o.db, err = sql.Open("sqlite", "file:"+filepath.Join(w.server.State, "salvor.db")+"?_pragma=busy_timeout(10000)"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.db.Close() })
	o.create(t)
	o.before, _ = w.machine.State(o.id)
	o.starts, o.files = o.before.Starts, o.onHost(t)
	return o
}

func (o *outages) ask(t *testing.T, f rest.API, method, path string, body, out any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.OK(t, o.api.Ask(ctx, f, method, path, nil, body, out))
}

type object = map[string]any

func (o *outages) create(t *testing.T) {
	t.Helper()
	o.eventually("the host is up", func() error {
		var all struct{ Services []struct{ State string } }
		o.ask(t, rest.Compute, http.MethodGet, "/os-services", nil, &all)
		if len(all.Services) != 1 || all.Services[0].State != "up" {
			return errorOf("%+v", all)
		}
		return nil
	})
	var flavor struct{ Flavor struct{ ID string } }
	o.ask(t, rest.Compute, http.MethodPost, "/flavors", object{"flavor": object{"name": "small", "ram": 256, "disk": 1, "vcpus": 1}}, &flavor)
	var image struct{ ID string }
	o.ask(t, rest.Image, http.MethodPost, "/images", object{"name": "debian", "disk_format": "raw", "container_format": "bare"}, &image)
	must.OK(t, o.api.Upload(t.Context(), rest.Image, "/images/"+image.ID+"/file", strings.NewReader(strings.Repeat("x", 4096)), 4096))
	var server struct{ Server struct{ ID string } }
	o.ask(t, rest.Compute, http.MethodPost, "/servers", object{"server": object{
		"name": "web1", "flavorRef": flavor.Flavor.ID, "imageRef": image.ID, "networks": "none",
	}}, &server)
	o.id = server.Server.ID
	o.reach(t, "ACTIVE")
}

// reach waits until the server has a status and no task.
func (o *outages) reach(t *testing.T, status string) {
	t.Helper()
	o.eventually("server "+o.id, func() error {
		var s struct {
			Server struct {
				Status string
				Task   *string `json:"OS-EXT-STS:task_state"`
				Fault  any
			}
		}
		o.ask(t, rest.Compute, http.MethodGet, "/servers/"+o.id, nil, &s)
		if s.Server.Status != status || s.Server.Task != nil {
			return errorOf("%+v, want %s", s.Server, status)
		}
		return nil
	})
}

// did counts the lines of the timeline that say that an action of an operation is done; names are shared by operations.
func (o *outages) did(t *testing.T) map[string]int {
	t.Helper()
	rows := must.Get(o.db.QueryContext(t.Context(), `SELECT type, action, text FROM event WHERE subject_id = $1`, o.id))(t)
	defer rows.Close()
	done := map[string]int{}
	for rows.Next() {
		var kind, action, text string
		must.OK(t, rows.Scan(&kind, &action, &text))
		if kind == "action" && text == action {
			done[action]++
		}
		if strings.Contains(text, "failed") || strings.HasPrefix(text, "undo ") {
			t.Fatalf("timeline: %s", text)
		}
	}
	must.OK(t, rows.Err())
	return done
}

// goThrough has the server rescued or unrescued, through an outage if one is given, and proves what came of it.
func (o *outages) goThrough(t *testing.T, kind job.Kind, k *killing) {
	t.Helper()
	plan, done := o.plans[kind], o.did(t)
	const password = "sesame-street-9"
	status, act := "RESCUE", object{"rescue": object{"adminPass": password}}
	if kind == compute.JobUnrescue {
		status, act = "ACTIVE", object{"unrescue": nil}
	}
	var held <-chan struct{}
	if k != nil {
		held = o.agent.set(k.order)
		if k.order == 0 && k.after < len(plan) {
			o.server.HoldBack(t, o.id, plan[k.after])
		}
	}
	o.ask(t, rest.Compute, http.MethodPost, "/servers/"+o.id+"/action", act, nil)
	if k != nil {
		o.strike(t, *k, held, plan, done)
	}
	o.reach(t, status)

	o.starts++
	now, _ := o.machine.State(o.id)
	if guests, err := o.machine.Guests(t.Context()); err != nil || len(guests) != 1 || now.Starts != o.starts || now.Runs == nil || now.Power != compute.PowerOn {
		t.Errorf("guests %+v %v, started %d times, want %d", guests, err, now.Starts, o.starts)
	}
	after := o.did(t)
	for _, name := range plan {
		if after[name] != done[name]+1 {
			t.Errorf("the timeline says %q %d times more, want once", name, after[name]-done[name])
		}
	}
	if kind == compute.JobRescue {
		o.rescued(t, now, password)
	} else {
		o.unrescued(t, now)
	}
}

// strike waits for the instant, kills, and starts again.
func (o *outages) strike(t *testing.T, k killing, held <-chan struct{}, plan []string, before map[string]int) {
	t.Helper()
	if k.order > 0 {
		select {
		case <-held:
		case <-time.After(patience):
			t.Fatalf("order %d did not come; there were %q", k.order, o.agent.verbs())
		}
	} else if k.after > 0 {
		last := plan[k.after-1]
		o.eventually(last+" is in the timeline", func() error {
			if o.did(t)[last] == before[last] {
				return errors.New("it is not")
			}
			return nil
		})
	}
	if k.order == 0 && k.after < len(plan) && o.did(t)[plan[k.after]] != before[plan[k.after]] {
		t.Fatalf("%q is in the timeline already", plan[k.after])
	}
	if k.agent {
		o.agent.kill()
		o.agent.set(0)
		o.agent.start()
		return
	}
	o.server.Kill()
	o.agent.set(0)
	o.server.Start(t)
}

// rescued proves that the guest runs its rescue system beside all of its disks, and that the password that was told opens it.
func (o *outages) rescued(t *testing.T, g fake.State, password string) {
	t.Helper()
	if g.Runs == nil || g.Runs.Rescue == nil || !reflect.DeepEqual(g.Runs.Disks, o.before.Defined.Disks) {
		t.Errorf("the guest in rescue runs %+v", g.Runs)
	}
	decoder := crypt.NewDecoder()
	must.OK(t, shacrypt.RegisterDecoder(decoder))
	hashes := o.machine.Opened(o.id)
	// Who was killed before the answer was told asks again, for the same.
	if len(hashes) == 0 || len(slices.Compact(hashes)) != 1 {
		t.Fatalf("the rescue system was opened by %d hashes", len(hashes))
	}
	digest := must.Get(decoder.Decode(hashes[0]))(t)
	if ok, err := digest.MatchAdvanced(password); !ok || err != nil {
		t.Errorf("the rescue password does not fit: %v", err)
	}
}

// unrescued proves that everything is as it was before any rescue.
func (o *outages) unrescued(t *testing.T, g fake.State) {
	t.Helper()
	// What was put back says so; beside that nothing differs.
	defined, runs := g.Defined, *g.Runs
	defined.Restore, runs.Restore = nil, nil
	if !reflect.DeepEqual(defined, o.before.Defined) || !reflect.DeepEqual(runs, o.before.Defined) || !maps.Equal(g.Settings, o.before.Settings) {
		t.Errorf("the guest is defined as\n%+v with %v and runs\n%+v, was\n%+v with %v", defined, g.Settings, runs, o.before.Defined, o.before.Settings)
	}
	if files := o.onHost(t); !slices.Equal(files, o.files) {
		t.Errorf("files of the server on its host: %q, were %q", files, o.files)
	}
}

// onHost lists all files of the host that are a server's.
func (o *outages) onHost(t *testing.T) (names []string) {
	t.Helper()
	must.OK(t, fs.WalkDir(os.DirFS(o.state), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, o.id) {
			names = append(names, path)
		}
		return err
	}))
	return names
}
