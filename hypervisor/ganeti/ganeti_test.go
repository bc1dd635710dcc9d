package ganeti

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/hypervisor/hypervisortest"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

// TestContract: what every hypervisor must do.
func TestContract(t *testing.T) {
	f := newRAPI(t)
	h := f.host(t)
	number := 0
	hypervisortest.Run(t, hypervisortest.Subject{
		Hypervisor: h, Soft: 2 * time.Second, IgnoredSoftOff: time.Second,
		Domain: func(_ *testing.T, listens bool) hypervisor.Domain {
			number++
			d := hypervisor.Domain{Spec: compute.Spec{
				ServerID: uuid.NewString(), GuestName: fmt.Sprintf("guest%d.example.test", number), Epoch: 1, VCPUs: 1, RAM: 256,
				Machine: map[string]string{PropertySystem: "noop"},
				NICs:    []compute.NIC{{MAC: fmt.Sprintf("aa:00:00:00:00:%02x", number), Bridge: "br0"}},
				Disks:   []compute.SpecDisk{{Name: "vda", SizeGiB: 1}},
			}}
			if listens {
				d.Machine[PropertySystem] = "listens"
			}
			return d
		},
		Break: func(*testing.T) func() {
			f.with(func() { f.silent = 502 })
			return func() { f.with(func() { f.silent = 0 }) }
		},
	})
}

const serverID = "e5c7a1a2-0000-4000-8000-000000000001"

// domain asks for a rescue by the image, or, with none, for what is to be put back.
func domain(image string, restore map[string]string) hypervisor.Domain {
	d := hypervisor.Domain{Spec: compute.Spec{ServerID: serverID, GuestName: "web.example.test", Epoch: 1, Restore: restore}, RescueImage: image}
	if image != "" {
		d.Rescue = &compute.SpecRescue{Source: rescue.Source{Name: "rescue", Kind: rescue.ISO}}
	}
	return d
}

func adopted(t *testing.T, custom map[string]any) (*rapi, Host) {
	f := newRAPI(t)
	f.add("web.example.test", custom, tagServer+serverID, tagEpoch+"1")
	return f, f.host(t)
}

func saved(t *testing.T, h Host) map[string]string {
	t.Helper()
	all := must.Get(h.Guests(t.Context()))(t)
	for _, g := range all {
		if g.ID == serverID {
			return g.Settings
		}
	}
	t.Fatal("the guest is not there")
	return nil
}

// TestDefect8UnrescuePutsBackWhatWasSet: the reference sets boot_order to disk, whatever it was. Whatever an instance had of its own,
// and what it had from the cluster, is as before after a rescue and its end.
func TestDefect8UnrescuePutsBackWhatWasSet(t *testing.T) {
	t.Parallel()
	for _, custom := range []map[string]any{
		{},
		{"boot_order": "network"},
		{"boot_order": "disk", "cdrom_image_path": ""},
		{"boot_order": "cdrom", "cdrom_image_path": "http://mirror.example.test/install.iso", "acpi": false},
		{"kernel_path": "/boot/vmlinuz", "boot_order": "disk"},
		{"kernel_path": "", "migration_downtime": 99},
	} {
		f, h := adopted(t, maps.Clone(custom))
		if custom["kernel_path"] == nil {
			f.with(func() { f.defaults["kernel_path"] = "/boot/of-the-cluster" })
		}
		before := saved(t, h)
		if err := h.Define(t.Context(), domain("/isos/rescue.iso", nil)); err != nil {
			t.Fatalf("%v: %v", custom, err)
		}
		now := f.custom("web.example.test")
		if now["boot_order"] != "cdrom" || now["cdrom_image_path"] != "/isos/rescue.iso" || now["kernel_path"] != "" {
			t.Errorf("%v in rescue: %v; a kernel goes before any boot order", custom, now)
		}
		if err := h.Define(t.Context(), domain("", before)); err != nil {
			t.Fatalf("%v: %v", custom, err)
		}
		if now := f.custom("web.example.test"); !reflect.DeepEqual(now, custom) {
			t.Errorf("it had %v, and after the rescue %v", custom, now)
		}
	}
}

// TestDefect9InheritedParametersAreNoError: the reference's daemon fails where an instance has no boot order of its own.
func TestDefect9InheritedParametersAreNoError(t *testing.T) {
	t.Parallel()
	_, h := adopted(t, nil)
	want := map[string]string{"boot_order": "default", "cdrom_image_path": "default", "kernel_path": "default"}
	if got := saved(t, h); !maps.Equal(got, want) {
		t.Errorf("settings %v, want %v", got, want)
	}
	for _, doc := range []string{`{"name":"a","hvparams":null}`, `{"name":"a","hvparams":{"boot_order":null,"cdrom_image_path":7}}`, `{"name":"a","custom_hvparams":{"boot_order":[]}}`} {
		var in instance
		must.OK(t, json.Unmarshal([]byte(doc), &in))
		if in.guest().Rescue != "" || in.server() != "" {
			t.Errorf("%s is taken for a rescue", doc)
		}
	}
}

// TestBootsCD: what the next start boots.
func TestBootsCD(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		custom map[string]any
		want   string
	}{
		{map[string]any{"boot_order": "cdrom", "cdrom_image_path": "/isos/rescue.iso"}, "/isos/rescue.iso"},
		{map[string]any{"boot_order": "cdrom", "cdrom_image_path": "/isos/rescue.iso", "kernel_path": "/boot/vmlinuz"}, ""},
		{map[string]any{"boot_order": "disk", "cdrom_image_path": "/isos/rescue.iso"}, ""},
		{map[string]any{"boot_order": "cdrom"}, ""},
		{nil, ""},
	} {
		f, h := adopted(t, c.custom)
		all, err := h.Guests(t.Context())
		if err != nil || len(all) != 1 || all[0].Rescue != c.want || all[0].InRescue {
			t.Errorf("%v: %+v, %v", c.custom, all, err)
		}
		f.with(func() { f.instances["web.example.test"].running = true })
		if all, _ := h.Guests(t.Context()); all[0].InRescue != (c.want != "") {
			t.Errorf("%v, running: %+v", c.custom, all[0])
		}
	}
}

// TestDefineReadsFirst: no job for what is so already.
func TestDefineReadsFirst(t *testing.T) {
	t.Parallel()
	f, h := adopted(t, map[string]any{"boot_order": "network"})
	before := saved(t, h)
	for range 3 {
		must.OK(t, h.Define(t.Context(), domain("/isos/rescue.iso", nil)))
	}
	must.OK(t, h.Define(t.Context(), domain("", nil)))
	if got := f.writes(); len(got) != 1 {
		t.Errorf("%d jobs for one change: %v", len(got), got)
	}
	for range 3 {
		must.OK(t, h.Define(t.Context(), domain("", before)))
	}
	if got := f.writes(); len(got) != 2 {
		t.Errorf("%d jobs for two changes: %v", len(got), got)
	}
	for range 2 {
		for _, state := range []compute.Power{compute.PowerOn, compute.PowerOn, compute.PowerOff, compute.PowerOff} {
			must.Get(h.SetPower(t.Context(), serverID, hypervisor.Power{State: state}))(t)
		}
	}
	if got := f.writes(); len(got) != 6 {
		t.Errorf("%d jobs for six changes: %v", len(got), got)
	}
}

// TestRescueImagesThatGanetiCannotBoot end in a kind and words; the settings stay.
func TestRescueImagesThatGanetiCannotBoot(t *testing.T) {
	t.Parallel()
	f, h := adopted(t, map[string]any{"boot_order": "network"})
	for image, kind := range map[string]problem.Kind{
		"relative.iso": problem.Invalid, "/isos/../etc/x.iso": problem.Invalid, "": problem.Invalid, "ftp://x/y.iso": problem.Invalid,
		"/isos/nowhere.iso": problem.Conflict,
	} {
		d := domain(image, nil)
		d.Rescue = &compute.SpecRescue{Source: rescue.Source{Name: "rescue", Kind: rescue.ISO}}
		err := h.Define(t.Context(), d)
		if !problem.Is(err, kind) {
			t.Errorf("%q: %v (%s), want %s", image, err, problem.KindOf(err), kind)
		}
	}
	err := h.Define(t.Context(), domain("/isos/nowhere.iso", nil))
	if err == nil || !strings.Contains(err.Error(), "not found or not a file or URL (current value: '/isos/nowhere.iso')") {
		t.Errorf("Ganeti's own words are missing: %v", err)
	}
	kernel := domain("/isos/kernel", nil)
	kernel.Rescue.Kind = rescue.Kernel
	if err := h.Define(t.Context(), kernel); !problem.Is(err, problem.Unsupported) || !strings.Contains(err.Error(), "add an ISO image") {
		t.Errorf("a kernel: %v", err)
	}
	if now := f.custom("web.example.test"); !reflect.DeepEqual(now, map[string]any{"boot_order": "network"}) {
		t.Errorf("it is left with %v", now)
	}
}

// TestFaultsOfJobs: each becomes a kind, and what is said is true.
func TestFaultsOfJobs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault func(*rapi)
		kind  problem.Kind // 0: it goes well
		words string
	}{
		{"canceled", func(f *rapi) { f.cancel = true }, problem.Conflict, "was canceled"},
		{"lies", func(f *rapi) { f.lies = true }, problem.Conflict, "Ganeti says that it did"},
		{"archived at once, answered by 200", func(f *rapi) { f.archived = true }, 0, ""},
		{"archived at once, answered by 404", func(f *rapi) { f.archived, f.old404 = true, true }, 0, ""},
		{"archived, and failed", func(f *rapi) { f.archived, f.lies = true, true }, problem.Conflict, "Ganeti says that it did"},
		{"numbers as text", func(f *rapi) { f.textIDs = true }, 0, ""},
		{"slow", func(f *rapi) { f.looks = 20 }, 0, ""},
		{"never ends", func(f *rapi) { f.looks = 1 << 30 }, problem.Unavailable, "it has not ended"},
		{"queue full", func(f *rapi) { f.refuse = 503 }, problem.Unavailable, "queue is full or drained"},
		{"master unreachable", func(f *rapi) { f.refuse = 502 }, problem.Unavailable, "does not reach the master daemon"},
		{"no right to write", func(f *rapi) { f.refuse = 403 }, problem.Forbidden, "right to write"},
		{"refused as nonsense", func(f *rapi) { f.refuse = 400 }, problem.Invalid, "refused (by choice)"},
		{"gone meanwhile", func(f *rapi) { f.beforeJob = func(j *fakeJob) { delete(f.instances, j.name) } }, problem.NotFound, "not known"},
		{"changed by someone else", func(f *rapi) {
			f.beforeJob = func(j *fakeJob) {
				apply := j.apply
				j.apply = func() any { _ = apply(); f.instances[j.name].custom["boot_order"] = "network"; return nil }
			}
		}, problem.Conflict, "boot_order is not so"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, h := adopted(t, nil)
			if c.name == "never ends" {
				h.conf.JobTimeout = time.Second
			}
			f.with(func() { c.fault(f) })
			err := h.Define(t.Context(), domain("/isos/rescue.iso", nil))
			switch {
			case c.words == "" && err != nil:
				t.Fatal(err)
			case c.words != "" && (!problem.Is(err, c.kind) || !strings.Contains(err.Error(), c.words)):
				t.Errorf("%v (%s), want %s with %q", err, problem.KindOf(err), c.kind, c.words)
			}
			if err != nil && strings.Contains(err.Error(), rapiPassword) {
				t.Errorf("the password is in %v", err)
			}
		})
	}
}

// TestLongJobsAreAwaited for as long as who asks allows, and no longer.
func TestLongJobsAreAwaited(t *testing.T) {
	t.Parallel()
	f, h := adopted(t, nil)
	h.conf.JobTimeout = 10 * time.Millisecond
	f.with(func() { f.looks = 40 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must.OK(t, h.Define(ctx, domain("/isos/rescue.iso", nil)))
	f.with(func() { f.looks = 1 << 30 })
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.SetPower(ctx, serverID, hypervisor.Power{State: compute.PowerOn}); !problem.Is(err, problem.Unavailable) {
		t.Errorf("%v", err)
	}
}

// TestRAPIComesBackDuringAJob: a job is not lost with the connection.
func TestRAPIComesBackDuringAJob(t *testing.T) {
	t.Parallel()
	f, h := adopted(t, nil)
	f.with(func() { f.looks = 1 << 30 })
	done := make(chan error, 1)
	go func() { done <- h.Define(t.Context(), domain("/isos/rescue.iso", nil)) }()
	for end := time.Now().Add(time.Minute); len(f.writes()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was written")
		}
	}
	f.with(func() { f.silent = 502 })
	count := func() int { f.mu.Lock(); defer f.mu.Unlock(); return len(f.requests) }
	for n := count(); count() < n+3; time.Sleep(time.Millisecond) {
	}
	f.with(func() {
		f.silent = 0
		for _, j := range f.jobs {
			j.looks = 0
		}
	})
	must.OK(t, <-done)
	if got := f.writes(); len(got) != 1 {
		t.Errorf("asked %d times: %v", len(got), got)
	}
}

// TestOpFailures: the kinds of Ganeti's error codes.
func TestOpFailures(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]problem.Kind{
		`["OpPrereqError", ["text", "wrong_input"]]`:                 problem.Invalid,
		`["OpPrereqError", ["text", "unknown_entity"]]`:              problem.NotFound,
		`["OpPrereqError", ["text", "wrong_state"]]`:                 problem.Conflict,
		`["OpPrereqError", ["text", "temp_insufficient_resources"]]`: problem.Unavailable,
		`["OpExecError", ["text"]]`:                                  problem.Conflict,
		`["HypervisorError", ["text"]]`:                              problem.Invalid,
		`["Odd", [{"a": 1}, 7]]`:                                     problem.Conflict,
		`["Odd"]`:                                                    problem.Conflict,
	} {
		d := jobDocument{ID: 7, Status: "error", States: []string{"success", "error"}, Result: []json.RawMessage{json.RawMessage(`[]`), json.RawMessage(doc)}}
		if err := d.failure(); !problem.Is(err, want) || !strings.Contains(err.Error(), "job 7") {
			t.Errorf("%s: %v (%s), want %s", doc, err, problem.KindOf(err), want)
		}
	}
	silent := jobDocument{ID: 7, Status: "error"}
	if err := silent.failure(); !problem.Is(err, problem.Conflict) {
		t.Error(err)
	}
}

// TestAdoption marks an instance once; of two salvors one has it.
func TestAdoption(t *testing.T) {
	t.Parallel()
	f := newRAPI(t)
	c := f.client(t)
	f.add("web.example.test", map[string]any{"boot_order": "network"})
	for range 2 {
		g := must.Get(c.Adopt(t.Context(), "web.example.test", serverID))(t)
		if !g.Ours || g.ID != serverID || g.Epoch != 1 || g.Host != firstNode || !slices.Equal(g.Disks, []int{10240}) || g.System != "debootstrap+default" ||
			g.Settings["boot_order"] != "network" || g.VCPUs != 2 || g.RAM != 256 || g.NICs[0].MAC != "aa:00:00:c3:92:0a" {
			t.Errorf("%+v", g)
		}
	}
	if got := f.writes(); len(got) != 1 {
		t.Errorf("asked %d times: %v", len(got), got)
	}
	if _, err := c.Adopt(t.Context(), "web.example.test", uuid.NewString()); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), serverID) {
		t.Errorf("a second owner: %v", err)
	}
	if _, err := c.Adopt(t.Context(), "nosuch.example.test", uuid.NewString()); !problem.Is(err, problem.NotFound) {
		t.Errorf("none of that name: %v", err)
	}
	// Both look, then both mark: each sees the other's mark and gives up.
	f.add("db.example.test", nil)
	f.with(func() {
		f.beforeJob = func(j *fakeJob) {
			if j.op == "TAGS_SET" {
				f.instances[j.name].tags = append(f.instances[j.name].tags, tagServer+uuid.NewString())
			}
		}
	})
	if _, err := c.Adopt(t.Context(), "db.example.test", uuid.NewString()); !problem.Is(err, problem.Conflict) {
		t.Errorf("a race that was lost: %v", err)
	}
	must.OK(t, c.Release(t.Context(), "web.example.test", serverID))
	if tags := f.instances["web.example.test"].tags; len(tags) != 0 {
		t.Errorf("let go, and marked %v", tags)
	}
}

// TestRemoveLetsAdoptedInstancesStand: their disks are none of ours.
func TestRemoveLetsAdoptedInstancesStand(t *testing.T) {
	t.Parallel()
	f, h := adopted(t, map[string]any{"boot_order": "network"})
	f.with(func() { f.instances["web.example.test"].tags = append(f.instances["web.example.test"].tags, "theirs") })
	for range 2 {
		must.OK(t, h.Remove(t.Context(), serverID))
	}
	in := f.instances["web.example.test"]
	if in == nil || !slices.Equal(in.tags, []string{"theirs"}) {
		t.Fatalf("left: %+v", in)
	}
}

// TestAdoptedInstancesAreNotMadeAnew when they are gone.
func TestAdoptedInstancesAreNotMadeAnew(t *testing.T) {
	t.Parallel()
	f, h := adopted(t, nil)
	f.with(func() { f.instances["web.example.test"].tags = nil })
	d := domain("", map[string]string{})
	d.Adopted = true
	if err := h.Define(t.Context(), d); !problem.Is(err, problem.NotFound) || len(f.writes()) != 0 {
		t.Errorf("%v, asked %v", err, f.writes())
	}
}

// TestJobsAreFollowed: those above a number, and those that were open.
func TestJobsAreFollowed(t *testing.T) {
	t.Parallel()
	f, h := adopted(t, nil)
	ctx := t.Context()
	if jobs, more, err := h.Jobs(ctx, -1, nil); err != nil || more || len(jobs) != 0 {
		t.Fatalf("%v %v %v", jobs, more, err)
	}
	f.with(func() { f.looks = 1 })
	must.OK(t, h.Define(ctx, domain("/isos/rescue.iso", nil)))
	if err := h.Define(ctx, domain("/isos/nowhere.iso", nil)); err == nil {
		t.Fatal("no error")
	}
	f.with(func() { f.looks = 2 })
	slow := must.Get(h.submit(ctx, http.MethodPut, nil, nil, "instances", "web.example.test", "startup"))(t)
	jobs, _, err := h.Jobs(ctx, 0, nil)
	if err != nil || len(jobs) != 3 || !jobs[0].Ended || jobs[0].Failure != "" || jobs[1].Failure == "" || jobs[2].Ended || !slices.Equal(jobs[2].Guests, []string{"web.example.test"}) {
		t.Fatalf("%+v %v", jobs, err)
	}
	if jobs, _, _ := h.Jobs(ctx, -1, nil); len(jobs) != 1 || jobs[0].ID != int64(slow) {
		t.Errorf("the newest: %+v", jobs)
	}
	for range 3 {
		jobs, _, err = h.Jobs(ctx, int64(slow), []int64{int64(slow), 4711})
	}
	if err != nil || len(jobs) != 2 || !jobs[0].Ended || !jobs[1].Gone {
		t.Errorf("%+v %v", jobs, err)
	}
}

// TestMovedGuestIsFound wherever Ganeti runs it.
func TestMovedGuestIsFound(t *testing.T) {
	t.Parallel()
	f, h := adopted(t, nil)
	saved(t, h)
	f.with(func() { f.instances["web.example.test"].node = secondNode })
	must.Get(h.SetPower(t.Context(), serverID, hypervisor.Power{State: compute.PowerOn}))(t)
	if all, err := h.Guests(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
	if g, err := h.Guest(t.Context(), serverID); err != nil || g.ID != serverID || g.Power != compute.PowerOn {
		t.Errorf("%+v %v", g, err)
	}
	if _, err := h.Guest(t.Context(), uuid.NewString()); !problem.Is(err, problem.NotFound) {
		t.Errorf("a guest that is nowhere: %v", err)
	}
	hosts, err := h.Hosts(t.Context())
	if err != nil || len(hosts) != 2 || hosts[0].Inventory.HypervisorVersion != 3000002 || hosts[0].Inventory.RAM != 24105 {
		t.Errorf("%+v %v", hosts, err)
	}
}

// TestTheWireIsBounded: certificate, answers, addresses and words.
func TestTheWireIsBounded(t *testing.T) {
	t.Parallel()
	f := newRAPI(t)
	stranger := must.Get(New(Config{URL: f.URL, User: rapiUser, Password: secret.New(rapiPassword)}))(t)
	if _, err := stranger.Hosts(t.Context()); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "not trusted") {
		t.Errorf("an unknown CA: %v", err)
	}
	careless := must.Get(New(Config{URL: f.URL, User: rapiUser, Password: secret.New("wrong-" + rapiPassword), Insecure: true}))(t)
	if _, err := careless.Hosts(t.Context()); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), rapiPassword) {
		t.Errorf("a wrong password: %v", err)
	}
	for _, u := range []string{"http://master", "https://", "https://user:pw@master", "master:5080", "https://master/?a=b", "https://m\x00"} {
		if _, err := New(Config{URL: u}); !problem.Is(err, problem.Invalid) {
			t.Errorf("%q: %v", u, err)
		}
	}
	c := f.client(t)
	if c.base.Port() == defaultPort {
		t.Error("the port was replaced")
	}
	for _, name := range []string{"", ".", "..", "a\nb"} {
		if _, err := c.instance(t.Context(), name); !problem.Is(err, problem.Invalid) {
			t.Errorf("instance %q: %v", name, err)
		}
	}
	if _, err := c.instance(t.Context(), "../info"); !problem.Is(err, problem.NotFound) {
		t.Errorf("a name with a slash: %v", err)
	}
	if _, err := c.send(t.Context(), http.MethodGet, 10, nil, nil, "info"); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "longer than 10") {
		t.Errorf("a long answer: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Guests(gone); !problem.Is(err, problem.Unavailable) {
		t.Errorf("one who went away: %v", err)
	}
}

// TestClustersKeepClients as long as the record says the same.
func TestClustersKeepClients(t *testing.T) {
	t.Parallel()
	row := &compute.Cluster{Name: "c", URL: "https://127.0.0.1:5080", User: "u", Password: secret.New("p")}
	row.ID = uuid.NewString()
	c := &Clusters{Find: func(context.Context, string) (*compute.Cluster, error) { r := *row; return &r, nil }}
	host := &compute.Host{Name: firstNode, Kind: compute.GanetiHost, ClusterID: row.ID}
	client := func() *Client {
		t.Helper()
		h := must.Get(c.Of(t.Context(), host))(t)
		return h.(Host).Client
	}
	first := client()
	row.FollowedJob, row.Problem, row.Version = 9, "x", 3
	if client() != first {
		t.Error("a turn of the watcher costs a client")
	}
	row.Password = secret.New("q")
	if client() == first {
		t.Error("a new password makes no client")
	}
	if _, err := c.Of(t.Context(), &compute.Host{Kind: compute.AgentHost}); !problem.Is(err, problem.Unsupported) {
		t.Errorf("a host with an agent: %v", err)
	}
}

func FuzzDocuments(f *testing.F) {
	f.Add([]byte(`{"id":"7","status":"error","ops":[{"OP_ID":"X","instance_name":"a"}],"opstatus":["error"],"opresult":[["E",["t","wrong_input"]]],"summary":["X(a)"]}`))
	f.Add([]byte(`{"name":"a","uuid":"u","pnode":"n","oper_state":true,"hvparams":{"boot_order":"cdrom","cdrom_image_path":"/x"},"custom_hvparams":null,"tags":["salvor:x","salvor-epoch:z"],"nic.macs":["m"],"nic.ips":[null],"disk.sizes":[1e400]}`))
	f.Add([]byte(`{"id":null,"status":null,"opresult":null}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var j jobDocument
		if json.Unmarshal(doc, &j) == nil {
			told := j.clusterJob()
			if told.Ended && told.Gone {
				t.Error("ended and gone")
			}
		}
		var in instance
		if json.Unmarshal(doc, &in) == nil {
			g := in.inCluster()
			if g.Ours != (in.server() != "") || len(g.Settings) != len(replaced) {
				t.Errorf("%+v", g)
			}
			changes, err := in.changes(domain("/isos/rescue.iso", nil))
			if err != nil || len(changes) > len(replaced) {
				t.Errorf("%v %v", changes, err)
			}
		}
	})
}
