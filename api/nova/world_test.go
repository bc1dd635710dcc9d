package nova_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"salvor/access"
	"salvor/api/nova"
	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
)

// born is when everything in these tests happens.
var born = time.Date(2026, 3, 4, 5, 6, 7, 890_000_000, time.UTC)

// world is the API over a real store whose jobs nobody works off.
type world struct {
	testing.TB
	store    *store.Store
	secret   *secret.Key
	services *service.Services
	handler  http.Handler
	auth     *fixture.FixedAuth
	log      *program.Buffer
	now      time.Time
	image    *compute.Image
}

var (
	ann  = access.Principal{User: "ann", Role: access.Scoped, Scope: access.Scope{Project: projectA, Roles: []string{"member"}}}
	eve  = access.Principal{User: "eve", Role: access.Scoped, Scope: access.Scope{Project: projectB, Roles: []string{"member"}}}
	peep = access.Principal{User: "peep", Role: access.Scoped, Scope: access.Scope{Project: projectA, Roles: []string{"reader"}}}
	boss = access.Principal{Role: access.Admin}
)

const (
	projectA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	projectB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	hostOne  = "22222222-3333-4444-8555-666666666666"
	imageOne = "33333333-4444-4555-8666-777777777777"
	nothing  = "99999999-4444-4555-8666-777777777777"
)

func newWorld(t testing.TB) *world {
	s, key := storetest.SQLite(t)
	w := &world{TB: t, store: s, secret: key, auth: &fixture.FixedAuth{Principal: ann}, log: &program.Buffer{}, now: born}
	w.services = service.New(s, s, service.Options{SoftOffTimeout: time.Minute, PasswordLength: 12, RescueImagePath: "/srv/rescue"}, func() time.Time { return w.now })
	w.forget()
	must.OK(w, s.Register(t.Context(), job.Conductor{ID: "c1", Incarnation: "i1", Hostname: "cond1", Groups: []string{""}, StartedAt: born, UpdatedAt: born}))
	w.furnish()
	return w
}

// forget makes the API anew.
func (w *world) forget() {
	w.handler = nova.New(nova.Config{
		Services: w.services, Timeline: w.store, Auth: w.auth, Log: slog.New(slog.NewTextHandler(w.log, nil)), Now: func() time.Time { return w.now },
	})
}

// furnish adds what servers are made of.
func (w *world) furnish() {
	w.Helper()
	ctx := w.Context()
	h := &compute.Host{
		Record: record.Record{ID: hostOne, CreatedAt: born}, Name: "rack1", Kind: compute.AgentHost, BootID: "b1",
		Inventory: compute.Inventory{
			HypervisorType: "QEMU", HypervisorVersion: 7002022, Address: "192.0.2.9", VCPUs: 64, RAM: 262144, Disk: 4000, UptimeS: 90061,
			Bridges: []string{"br0"}, Stores: []compute.DiskStore{{Name: "local", Marker: "m1", SizeGiB: 4000, FreeGiB: 4000}}, Firmware: []compute.Firmware{compute.BIOS},
		},
	}
	must.OK(w, w.store.Do(ctx, func(tx job.Tx) error { return w.store.Hosts().Insert(tx, h) }))
	must.OK(w, w.store.SaveLeases(ctx, []compute.Lease{{HostID: hostOne, BootID: "b1", RenewedAt: born, Renewals: 1}}))
	must.OK(w, w.services.Flavors.Create(ctx, &compute.Flavor{Ref: "1", Name: "m1.tiny", VCPUs: 1, RAM: 512, Disk: 1, Public: true}, record.Asker{}))
	must.OK(w, w.services.Flavors.Create(ctx, &compute.Flavor{Ref: "x", Name: "hidden", VCPUs: 1, RAM: 512, Disk: 1}, record.Asker{}))
	w.image = &compute.Image{
		Record: record.Record{ID: imageOne}, Name: "debian", Owner: projectA, Visibility: "public", Status: compute.ImageActive, ContainerFormat: "bare",
		DiskFormat: "qcow2", Size: 1 << 20, Digest: "sha256:" + strings.Repeat("ab", 32), Properties: map[string]string{"os_distro": "debian", "os_type": "linux"},
	}
	must.OK(w, w.services.Images.Create(ctx, w.image, record.Asker{}))
	img := &rescue.Image{
		Name: "salvor", Default: true,
		Source: rescue.Source{Kind: rescue.Kernel, Access: rescue.ByChannel, LocationType: rescue.LocationFile, Location: "salvor/vmlinuz", Ramdisk: "salvor/initrd"},
	}
	must.OK(w, w.services.RescueImages.Create(ctx, img, record.Asker{}))
}

// as asks as somebody else from here on.
func (w *world) as(p access.Principal) { w.auth.Principal = p }

type answer struct{ fixture.Answer }

// ask sends one request at a microversion ("" names none) below /compute/v2.1.
func (w *world) ask(method, path, version, body string) answer {
	w.Helper()
	if !strings.HasPrefix(path, "/compute") {
		path = "/compute/v2.1" + path
	}
	if version != "" {
		version = "compute " + version
	}
	a := fixture.Ask(w.handler, method, path, body, "OpenStack-API-Version", version)
	if a.Status == http.StatusInternalServerError {
		w.Errorf("%s\n%s", a, w.log)
	}
	return answer{a}
}

// want asks and fails the test if the status is another one.
func (w *world) want(status int, method, path, version, body string) answer {
	w.Helper()
	return answer{w.ask(method, path, version, body).Want(w, status)}
}

// fault gives name and message of an error.
func (a answer) fault() (name, message string) {
	var o map[string]struct {
		Code    int
		Message string
	}
	if json.Unmarshal([]byte(a.Body), &o) == nil {
		for k, v := range o {
			if v.Code == a.Status {
				return k, v.Message
			}
		}
	}
	return "", a.Body
}

// at gives what lies at a path of keys.
func at(v any, keys ...string) any {
	for _, k := range keys {
		o, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = o[k]
	}
	return v
}

// create makes a server by request and gives its id.
func (w *world) create(more string) string {
	w.Helper()
	a := w.want(202, "POST", "/servers", "2.1", `{"server": {"name": "web", "flavorRef": "1", "imageRef": "`+imageOne+`"`+more+`}}`)
	return at(a.Object(w), "server", "id").(string)
}

// set changes a server behind the rules' back.
func (w *world) set(id string, change func(*compute.Server)) {
	w.Helper()
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error { return w.services.Servers.Edit(w.Context(), tx, id, change) }))
}

// finish ends what is done to a server, as a conductor would, and its job with it.
func (w *world) finish(id string, state compute.VMState, power compute.Power) {
	w.Helper()
	w.endJobs(id)
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error {
		return w.services.Servers.Finish(w.Context(), tx, id, func(s *compute.Server) {
			s.State, s.Power, s.HostID = state, power, hostOne
			if s.LaunchedAt.IsZero() {
				s.LaunchedAt = born
			}
			if s.Rescue != nil && state == compute.Rescued {
				s.Rescue.State = rescue.Ready
			}
		})
	}))
}

// active makes a server that runs.
func (w *world) active() string {
	w.Helper()
	id := w.create("")
	w.finish(id, compute.Active, compute.PowerOn)
	return id
}

// kinds are the jobs whose subject is a server.
var kinds = map[job.Kind]int{
	compute.JobCreate: 100, compute.JobDelete: 100, compute.JobPower: 100, compute.JobRescue: 100, compute.JobUnrescue: 100,
	compute.JobRebuild: 100, compute.JobAttach: 100, compute.JobDetach: 100, compute.JobReconcile: 100,
}

func ended(j *job.Job) { j.State, j.Secret = job.Ended, secret.Value{} }

// tasks are what a server becomes by each.
var tasks = map[compute.Task]struct {
	state compute.VMState
	power compute.Power
}{
	compute.Scheduling: {compute.Active, compute.PowerOn}, compute.Spawning: {compute.Active, compute.PowerOn}, compute.Starting: {compute.Active, compute.PowerOn},
	compute.Stopping: {compute.Stopped, compute.PowerOff}, compute.Rebooting: {compute.Active, compute.PowerOn}, compute.HardReboot: {compute.Active, compute.PowerOn},
	compute.Pausing: {compute.Paused, compute.PowerPaused}, compute.Unpausing: {compute.Active, compute.PowerOn}, compute.Suspending: {compute.Suspended, compute.PowerSaved},
	compute.Resuming: {compute.Active, compute.PowerOn}, compute.Rescuing: {compute.Rescued, compute.PowerOn}, compute.Unrescuing: {compute.Active, compute.PowerOn},
	compute.Rebuilding: {compute.Active, compute.PowerOn},
}

// become makes of a server what its task leads to.
func become(s, before *compute.Server) {
	if s.LaunchedAt.IsZero() {
		s.LaunchedAt = born
	}
	s.HostID = hostOne
	end, ok := tasks[before.Task]
	if !ok {
		return
	}
	s.State, s.Power = end.state, end.power
	switch before.Task {
	case compute.Rescuing:
		s.Rescue.State = rescue.Ready
	case compute.Unrescuing:
		s.Rescue = nil
	}
}

// endJobs ends the jobs of a server, as if a conductor had worked them off.
func (w *world) endJobs(id string) {
	w.Helper()
	jobs := must.Get(w.store.Claim(w.Context(), "c1/i1", born.AddDate(100, 0, 0), []string{""}, kinds, 1000))(w)
	for i := range jobs {
		if jobs[i].Subject == compute.Subject(id) {
			ended(&jobs[i])
		} else {
			jobs[i].State = job.Ready
		}
		must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error { return w.store.Save(tx, &jobs[i], false) }))
	}
}
