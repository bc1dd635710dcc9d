package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	front "salvor/api/host"
	"salvor/compute"
	"salvor/compute/service"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	rows "salvor/store"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
)

// guests is a hypervisor in memory. It counts what it was told.
type guests struct {
	mu      sync.Mutex
	all     map[string]compute.Guest
	domains map[string]hypervisor.Domain
	powers  map[string]int // changes of power by guest
	down    bool           // nothing answers
	stopAt  func(what string)
	after   func(what string) // is called after the effect
}

func newGuests() *guests {
	return &guests{all: map[string]compute.Guest{}, domains: map[string]hypervisor.Domain{}, powers: map[string]int{}}
}

func (g *guests) enter(what string) error {
	if g.stopAt != nil {
		g.stopAt(what)
	}
	if g.down {
		return problem.Unavailablef("hypervisor: down")
	}
	return nil
}

func (g *guests) set(guest compute.Guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all[guest.ID] = guest
}

func (g *guests) get(id string) compute.Guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[id]
}

func (g *guests) changes(id string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.powers[id]
}

func (g *guests) setDown(down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down = down
}

func (g *guests) Inventory(context.Context) (compute.Inventory, error) {
	return compute.Inventory{HypervisorType: "QEMU", VCPUs: 8, RAM: 16384, Firmware: []compute.Firmware{compute.BIOS}}, nil
}

func (g *guests) Guests(context.Context) ([]compute.Guest, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down {
		return nil, problem.Unavailablef("hypervisor: down")
	}
	var out []compute.Guest
	for _, guest := range g.all {
		out = append(out, guest)
	}
	return out, nil
}

func (g *guests) Define(_ context.Context, d hypervisor.Domain) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.enter("define"); err != nil {
		return err
	}
	guest, ok := g.all[d.ServerID]
	if !ok {
		guest = compute.Guest{ID: d.ServerID, Power: compute.PowerOff, Ours: true}
	}
	guest.Name, guest.Epoch, guest.Rescue = d.GuestName, d.Epoch, d.RescueImage
	g.all[d.ServerID], g.domains[d.ServerID] = guest, d
	return nil
}

func (g *guests) SetPower(_ context.Context, id string, p hypervisor.Power) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.enter("power"); err != nil {
		return false, err
	}
	guest, ok := g.all[id]
	if !ok {
		return false, problem.NotFoundf("no guest %s", id)
	}
	if p.KeepSaved && (p.State == compute.PowerOff || p.Restart) && guest.Power == compute.PowerSaved {
		return false, hypervisor.RefusalOfSaved(guest.Name)
	}
	if guest.Power != p.State || p.Restart {
		guest.Power = p.State
		g.all[id] = guest
		g.powers[id]++
	}
	if g.after != nil {
		g.after("power")
	}
	return p.Soft, nil
}

func (g *guests) Remove(_ context.Context, id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, id)
	delete(g.domains, id)
	return g.enter("remove")
}

func (g *guests) SetAutostart(_ context.Context, id string, on bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	guest := g.all[id]
	guest.Autostart = on
	g.all[id] = guest
	return nil
}

// blobs are images in memory, by digest.
type blobs struct {
	mu    sync.Mutex
	bytes map[string][]byte
	opens int
}

func (b *blobs) add(content []byte) string {
	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes[digest] = content
	return digest
}

type noClose struct{ *bytes.Reader }

func (noClose) Close() error { return nil }

func (b *blobs) Open(_ context.Context, digest string) (io.ReadSeekCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	content, ok := b.bytes[digest]
	if !ok {
		return nil, problem.NotFoundf("no image %.80s", digest)
	}
	b.opens++
	return noClose{bytes.NewReader(content)}, nil
}

// world is a control plane with its door for hosts, on a real store and real TLS.
type world struct {
	t         testing.TB
	store     *rows.Store
	services  *service.Services
	authority *front.Authority
	images    *blobs
	url       string
	away      sync.Map // "away" is set while the control plane does not answer
}

var quiet = slog.New(slog.DiscardHandler)

// everyOrder names every image: tests of this package carry orders out that are in no store.
type everyOrder struct{ compute.OrderStore }

func (everyOrder) OrdersNaming(_ context.Context, _, digest string) ([]compute.Order, error) {
	args, err := json.Marshal(compute.Args{Disk: &compute.SpecDisk{Image: &compute.SpecImage{Digest: digest}}})
	return []compute.Order{{Args: args}}, err
}

func newWorld(t testing.TB) *world {
	t.Helper()
	s, _ := storetest.SQLite(t)
	w := &world{t: t, store: s, images: &blobs{bytes: map[string][]byte{}}}
	w.services = service.New(s, s, service.Options{}, time.Now)
	w.authority = must.Get(front.OpenAuthority(t.Context(), s, time.Now))(t)
	handler := front.New(front.Config{Hosts: w.services.Hosts, Leases: w.services.Leases, Orders: everyOrder{s}, Jobs: s, Authority: w.authority, Images: w.images, Log: quiet})
	w.url = "https://" + fixture.ServeHosts(t, w.authority, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if _, away := w.away.Load("away"); away {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(rw, r)
	}))
	return w
}

func (w *world) token() secret.Value {
	w.t.Helper()
	_, clear, err := w.services.JoinTokens.Issue(w.t.Context(), time.Hour, "", record.Asker{})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.authority.JoinToken(clear)
}

func (w *world) config(g *guests) Config {
	dir := w.t.TempDir()
	return Config{
		StateDir: filepath.Join(dir, "s"), Controller: w.url, Token: w.token(), Name: "vm1", Hypervisor: g, Log: quiet, RescueDir: filepath.Join(dir, "rescue"),
		BootID: func() (string, error) { return "boot-1", nil }, Web: http.DefaultClient,
	}
}

// start runs an agent until stop is called or the test ends.
func (w *world) start(c Config) (*Agent, func()) {
	w.t.Helper()
	a := must.Get(Open(c))(w.t)
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // it is stopped before the test's cleanups
	over := make(chan error, 1)
	go func() { over <- a.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil && ctx.Err() == nil {
			w.t.Errorf("agent: %v", err)
		}
		_ = a.Close()
	})
	w.t.Cleanup(stop)
	return a, stop
}

// await polls until ok.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	fixture.Poll(t, what, ok)
}

// orderFor makes an order for a host's boot.
func orderFor(a *Agent, server string, verb compute.Verb, args compute.Args, s *compute.OrderSecret) *compute.Order {
	o := &compute.Order{
		ID: uuid.NewString(), HostID: a.ID(), BootID: a.boot, ServerID: server, Epoch: 1, Verb: verb, Within: 60, JobID: uuid.NewString(), Action: string(verb),
	}
	if args.Spec != nil {
		o.Epoch = args.Spec.Epoch
	}
	o.Args = mustEncodeJSON(args)
	if s != nil {
		o.Secret = secret.New(string(mustEncodeJSON(s)))
	}
	return o
}

// send has an order carried out over the door and gives its result.
func (w *world) send(o *compute.Order) compute.Result {
	w.t.Helper()
	w.post(o)
	var got *compute.Order
	await(w.t, "the result of "+string(o.Verb), func() bool {
		var err error
		if got, err = w.store.Order(w.t.Context(), nil, o.ID); err != nil {
			w.t.Fatal(err)
		}
		return got.Result != nil
	})
	if !got.Secret.Empty() {
		w.t.Errorf("the secret of a finished order is still there")
	}
	return *got.Result
}

func (w *world) post(o *compute.Order) {
	w.t.Helper()
	must.OK(w.t, w.store.Do(w.t.Context(), func(tx job.Tx) error {
		_, err := w.store.InsertOrder(tx, o)
		return err
	}))
}

func (w *world) done(o *compute.Order) compute.Result {
	w.t.Helper()
	r := w.send(o)
	if r.ErrorKind != "" {
		w.t.Fatalf("%s: %s: %s", o.Verb, r.ErrorKind, r.Error)
	}
	return r
}

func specFor(server string, disks ...compute.SpecDisk) *compute.Spec {
	return &compute.Spec{ServerID: server, Name: "s", GuestName: "salvor-" + server[:8], Epoch: 1, VCPUs: 1, RAM: 256, Disks: disks}
}

// head reads the begin of a file.
func head(t testing.TB, path string, n int) []byte {
	t.Helper()
	f := must.Get(os.Open(path))(t)
	defer f.Close()
	b := make([]byte, n)
	must.Get(io.ReadFull(f, b))(t)
	return b
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	return b
}

func secretOf(s string) secret.Value { return secret.New(s) }
