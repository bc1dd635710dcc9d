package host

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor/fake"
	"salvor/problem"
	"salvor/test/must"
)

// leaseHosts are hosts that see one disk store, on one clock that only the test moves. None has a control plane: orders are handed to them.
type leaseHosts struct {
	testing.TB
	pool  string
	now   *clock
	count int
}

// leaseHost is one of them. Its machine outlives its agent.
type leaseHost struct {
	*Agent
	machine *fake.Hypervisor
	dir     string
	boot    string
}

func newLeaseHosts(t testing.TB) *leaseHosts {
	return &leaseHosts{TB: t, pool: t.TempDir(), now: &clock{}}
}

func (w *leaseHosts) host() *leaseHost {
	w.Helper()
	w.count++
	h := &leaseHost{machine: fake.New(), dir: w.TempDir(), boot: fmt.Sprint("boot-", w.count)}
	w.begin(h)
	return h
}

// begin has a host's agent begin, as it does after a restart.
func (w *leaseHosts) begin(h *leaseHost) {
	w.Helper()
	a := must.Get(Open(Config{
		StateDir: h.dir, Controller: "https://127.0.0.1:1", Hypervisor: h.machine, Name: "vm" + h.boot[5:], Log: quiet, RescueDir: h.dir,
		Stores: []Store{{Name: "pool", Dir: w.pool, Shared: true}},
		BootID: func() (string, error) { return h.boot, nil },
		Alive:  func() (time.Duration, error) { return time.Duration(w.now.now.Load()), nil },
	}))(w)
	a.leases.poll, a.leases.settle = time.Millisecond, time.Millisecond
	h.Agent = a
	w.Cleanup(func() { _ = a.Close() })
}

// reinstall gives a machine that goes on a new identity: its agent lost all that it knew.
func (w *leaseHosts) reinstall(h *leaseHost) {
	w.Helper()
	_ = h.Close()
	h.dir = w.TempDir()
	w.begin(h)
}

// round has these hosts look after their leases once, and waits until guests that are ended have ended.
func (w *leaseHosts) round(hosts ...*leaseHost) {
	w.Helper()
	w.now.now.Add(int64(leaseRenewEvery))
	for _, h := range hosts {
		h.leases.round(w.Context()).Wait()
		await(w, "lost guests are ended", func() bool {
			h.leases.mu.Lock()
			defer h.leases.mu.Unlock()
			return len(h.leases.lost) == 0
		})
	}
}

func (w *leaseHosts) spec() *compute.Spec {
	id := uuid.NewString()
	return specFor(id, compute.SpecDisk{Name: "vda", Store: "pool", SizeGiB: 1, File: id + "-vda"})
}

// order hands an order to a host. Meanwhile the clock runs, and these hosts look after their leases.
func (w *leaseHosts) order(h *leaseHost, verb compute.Verb, spec *compute.Spec, args compute.Args, alive ...*leaseHost) compute.Result {
	w.Helper()
	if args.Spec = spec; verb == compute.SetPower || verb == compute.MigratePerform || verb == compute.MigrateConfirm {
		args.Spec = nil
	}
	o := orderFor(h.Agent, spec.ServerID, verb, args, nil)
	o.Epoch = spec.Epoch
	var r compute.Result
	_ = w.meanwhile(func() error {
		r, _ = h.perform(context.WithoutCancel(w.Context()), orderTask{order: o})
		return nil
	}, alive...)
	return r
}

// meanwhile runs do while the clock runs, and these hosts look after their leases.
func (w *leaseHosts) meanwhile(do func() error, alive ...*leaseHost) error {
	w.Helper()
	var over atomic.Bool
	done := make(chan error, 1)
	go func() {
		err := do()
		over.Store(true)
		done <- err
	}()
	for n := 0; !over.Load(); n++ {
		if time.Sleep(2 * time.Millisecond); n%10 == 9 {
			w.round(alive...)
		}
	}
	return <-done
}

func (w *leaseHosts) ok(r compute.Result) compute.Result {
	w.Helper()
	if r.ErrorKind != "" {
		w.Fatalf("%s: %s", r.ErrorKind, r.Error)
	}
	return r
}

func (w *leaseHosts) refused(r compute.Result, words ...string) {
	w.Helper()
	if r.ErrorKind != problem.Forbidden.String() {
		w.Fatalf("it is not refused: %+v", r)
	}
	for _, word := range words {
		if !strings.Contains(r.Error, word) {
			w.Errorf("%q does not name %q", r.Error, word)
		}
	}
}

var powerOn = compute.Args{Power: compute.PowerOn}

// run makes and starts a server.
func (w *leaseHosts) run(h *leaseHost, spec *compute.Spec) {
	w.Helper()
	w.ok(w.order(h, compute.Prepare, spec, compute.Args{}))
	w.ok(w.order(h, compute.Define, spec, compute.Args{}))
	w.ok(w.order(h, compute.SetPower, spec, powerOn))
}

// next is the spec of a server that has another owner.
func next(spec *compute.Spec) *compute.Spec {
	s := *spec
	s.Epoch++
	return &s
}

// evacuate gives a host the orders of a move by a receipt, up to the first that is refused.
func (w *leaseHosts) evacuate(to *leaseHost, spec *compute.Spec, alive ...*leaseHost) compute.Result {
	w.Helper()
	for _, o := range []struct {
		verb compute.Verb
		args compute.Args
	}{
		{compute.Prepare, compute.Args{Found: true, Receipt: "r-1"}}, {compute.Define, compute.Args{Fresh: true, Receipt: "r-1"}}, {compute.SetPower, powerOn},
	} {
		if r := w.order(to, o.verb, spec, o.args, alive...); r.ErrorKind != "" {
			return r
		}
	}
	return compute.Result{}
}

func (h *leaseHost) runs(server string) bool {
	g, there := h.machine.State(server)
	return there && g.Power == compute.PowerOn
}

func (w *leaseHosts) leasePath(spec *compute.Spec) string {
	return filepath.Join(w.pool, spec.Disks[0].File+leaseSuffix)
}

func (w *leaseHosts) lease(spec *compute.Spec) diskLease {
	w.Helper()
	l, _, err := readLease(w.leasePath(spec))
	if err != nil {
		w.Fatal(err)
	}
	return l
}
