package server

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/hypervisor/fake"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

// Every operation on servers survives: on hosts that take orders, and on those that a conductor drives itself.

// undamaged checks what holds after any failure: nothing is locked, nothing is held for nobody.
func (h *testHost) undamaged(t *testing.T) *compute.Server {
	t.Helper()
	s := h.now(t)
	if s.Task != compute.NoTask || s.Fault == nil || s.Fault.Message == "" {
		t.Errorf("task %q, fault %v", s.Task, s.Fault)
	}
	if s.Wanted != s.Power {
		t.Errorf("wants to be %s and is %s: it would be mended at once", s.Wanted, s.Power)
	}
	h.spotless(t)
	return s
}

// spotless checks that no job that has ended, and no order, still holds a secret.
func (h *testHost) spotless(t *testing.T) {
	t.Helper()
	if orders, err := h.store.OpenOrders(context.Background(), h.host.ID); err != nil || len(orders) > 0 {
		t.Errorf("open orders %v %v", orders, err)
	}
}

func startRescue(t *testing.T, h *testHost, mustBeOff bool) {
	t.Helper()
	var password secret.Value
	h.act(t, compute.Act{Action: compute.Rescue, MustBeOff: mustBeOff, Password: &password})
}

func TestSweepServerRescue(t *testing.T) {
	t.Parallel()
	for name, q := range map[string]hostOptions{
		"agent":  {kind: compute.AgentHost, state: compute.Active, volumes: true},
		"ganeti": {kind: compute.GanetiHost, state: compute.Stopped, access: rescue.NoAccess},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			off := q.kind == compute.GanetiHost
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				h := newTestHost(t, q)
				before, _ := h.hv.State(h.server)
				return h.world(compute.JobRescue, func(t *testing.T) { startRescue(t, h, off) }, func(t *testing.T) {
					s := h.undamaged(t)
					g, _ := h.hv.State(h.server)
					// As in Nova, unless the guest was not touched yet; in Cyclades a failed rescue leaves the state alone.
					left := s.State == compute.Errored || s.State == q.state && g.Starts == before.Starts
					if off {
						left = s.State == q.state
					}
					if !left || s.Rescue != nil {
						t.Errorf("state %s, session %+v", s.State, s.Rescue)
					}
					if g.Power != before.Power || g.Defined.Rescue != nil || g.Runs != nil && g.Runs.Rescue != nil || h.copies || h.opened != "" {
						t.Errorf("not put back: %s", h.picture(t))
					}
					if g.Settings[fake.BootOrder] != "network" || g.Settings[fake.CDROM] != "" {
						t.Errorf("settings %v", g.Settings)
					}
				})
			})
		})
	}
}

func TestSweepServerUnrescue(t *testing.T) {
	t.Parallel()
	for name, q := range map[string]hostOptions{
		"agent":  {kind: compute.AgentHost, state: compute.Active},
		"ganeti": {kind: compute.GanetiHost, state: compute.Stopped, access: rescue.NoAccess},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			off := q.kind == compute.GanetiHost
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				h := newTestHost(t, q)
				startRescue(t, h, off)
				h.work(t)
				return h.world(compute.JobUnrescue, func(t *testing.T) { h.act(t, compute.Act{Action: compute.Unrescue, MustBeOff: off}) }, func(t *testing.T) {
					s := h.undamaged(t)
					if s.State != compute.Errored || s.Rescue == nil || s.Rescue.State != rescue.Failed {
						t.Fatalf("state %s, session %+v", s.State, s.Rescue)
					}
					// No dead end: from wherever it stands, it is asked again and succeeds.
					again := h.quietly()
					again.act(t, compute.Act{Action: compute.Unrescue, Restore: off})
					again.work(t)
					if s := h.now(t); s.Rescue != nil || s.State == compute.Errored || h.copies {
						t.Errorf("asked again: %s", h.picture(t))
					}
				})
			})
		})
	}
}

// quietly is the same testHost with a conductor whose actions are whole.
func (h *testHost) quietly() *testHost {
	h.con = New(h.con.Config)
	return h
}

func TestSweepServers(t *testing.T) {
	t.Parallel()
	active, stopped := hostOptions{state: compute.Active}, hostOptions{state: compute.Stopped}
	with := func(a compute.Act) func(*testing.T, *testHost) {
		return func(t *testing.T, h *testHost) { h.act(t, a) }
	}
	for name, c := range map[string]struct {
		hostOptions
		kind job.Kind
		ask  func(*testing.T, *testHost)
		left func(*compute.Server) bool // after a failure
	}{
		"start":  {stopped, compute.JobPower, with(compute.Act{Action: compute.Start}), isOneOf(compute.Errored, compute.Active)},
		"stop":   {active, compute.JobPower, with(compute.Act{Action: compute.Stop}), isOneOf(compute.Active, compute.Stopped)},
		"reboot": {active, compute.JobPower, with(compute.Act{Action: compute.Reboot}), isOneOf(compute.Errored, compute.Active)},
		"pause":  {active, compute.JobPower, with(compute.Act{Action: compute.Pause}), isOneOf(compute.Active, compute.Paused)},
		"delete": {active, compute.JobDelete, with(compute.Act{Action: compute.Delete}), isOneOf(compute.Errored)},
		"create": {hostOptions{new: true}, compute.JobCreate, nil, isOneOf(compute.Errored)},
		"attach": {active, compute.JobAttach, func(t *testing.T, h *testHost) {
			h.act(t, compute.Act{Action: compute.AttachVolume, VolumeID: h.volume})
		}, func(s *compute.Server) bool { return s.State == compute.Active && len(s.Disks) == 2 }},
		"rebuild": {active, compute.JobRebuild, func(t *testing.T, h *testHost) {
			h.act(t, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: h.image}})
		}, isOneOf(compute.Errored, compute.Active)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				h := newTestHost(t, c.hostOptions)
				w := h.world(c.kind, nil, func(t *testing.T) {
					s := h.undamaged(t)
					untouched := s.State == compute.Active && strings.HasPrefix(h.disks["vda"], "aged") && h.runs() == "system"
					if !c.left(s) || c.kind == compute.JobRebuild && s.State == compute.Active && !untouched {
						t.Errorf("left as %s", h.picture(t))
					}
				})
				w.Start = func(t *testing.T) { c.ask(t, h) }
				if c.new {
					w.Start = func(t *testing.T) { h.create(t); w.Subject = compute.Subject(h.server) }
				}
				return w
			})
		})
	}
}

func isOneOf(states ...compute.VMState) func(*compute.Server) bool {
	return func(s *compute.Server) bool {
		for _, state := range states {
			if s.State == state {
				return true
			}
		}
		return false
	}
}

// create asks for a server with a password.
func (h *testHost) create(t *testing.T) {
	t.Helper()
	made, err := h.services.Servers.Create(context.Background(), compute.Creation{Name: "web", Flavor: "small", Image: h.image, Password: secret.New("correct horse")}, compute.Who{Admin: true})
	if err != nil {
		t.Fatal(err)
	}
	h.server = made[0].ID
}

// TestSweepDetach: a volume is given back once, or is still the server's.
func TestSweepDetach(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		h := newTestHost(t, hostOptions{state: compute.Active})
		h.act(t, compute.Act{Action: compute.AttachVolume, VolumeID: h.volume})
		h.work(t)
		return h.world(compute.JobDetach, func(t *testing.T) {
			h.act(t, compute.Act{Action: compute.DetachVolume, VolumeID: h.volume})
		}, func(t *testing.T) {
			s := h.undamaged(t)
			v, err := h.store.Volumes().Get(context.Background(), nil, h.volume)
			if err != nil || s.State != compute.Active || (v.ServerID == s.ID) != (len(s.Disks) == 3) {
				t.Errorf("volume of %q, %v; left as %s", v.ServerID, err, h.picture(t))
			}
		})
	})
}

// TestSweepReconcile: what a host lost is started again, once.
func TestSweepReconcile(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		h := newTestHost(t, hostOptions{state: compute.Active})
		state, _ := h.hv.State(h.server)
		state.Power, state.Runs = compute.PowerOff, nil
		h.hv.Put(h.server, state)
		return h.world(compute.JobReconcile, func(t *testing.T) {
			h.tx(t, func(tx job.Tx) error {
				s, err := h.store.Servers().Get(context.Background(), tx, h.server)
				if err != nil {
					return err
				}
				s.Task, s.Power = compute.Reconciling, compute.PowerOff
				if err := h.store.Servers().Save(tx, s); err != nil {
					return err
				}
				return h.store.Insert(tx, &job.Job{Kind: compute.JobReconcile, Class: job.Operation, Subject: compute.Subject(h.server), Args: []byte(`{"power":"on","why":"the host started again"}`)})
			})
		}, func(t *testing.T) {
			if s := h.now(t); s.Task != compute.NoTask || s.Fault == nil {
				t.Errorf("left as %s", h.picture(t))
			}
		})
	})
}

// TestCredentialIsNowhereAfterClose: neither the password nor its hash is in any row, event or order, and the sealed ones are gone.
func TestCredentialIsNowhereAfterClose(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	password := secret.Value{}
	h.act(t, compute.Act{Action: compute.Rescue, Rescue: rescue.Request{Password: secret.New("sesame-street-9")}, Password: &password})
	h.work(t)
	s := h.now(t)
	hash := s.Rescue.Credential.Hash.Reveal()
	if h.opened != hash || !strings.HasPrefix(hash, "$5$") || s.Rescue.Fingerprint != guestFingerprint || s.Rescue.HostKey != guestKey || s.Rescue.State != rescue.Ready {
		t.Fatalf("opened with %q, session %+v", h.opened, s.Rescue)
	}
	h.act(t, compute.Act{Action: compute.Unrescue})
	h.work(t)
	if s := h.now(t); s.Rescue != nil || s.State != compute.Active {
		t.Fatalf("session %+v, state %s", s.Rescue, s.State)
	}
	for _, text := range []string{"sesame-street-9", hash, "chap-password"} {
		if h.mentions(t, text) {
			t.Errorf("%q is in the database", text)
		}
	}
	h.spotless(t)
}

// mentions looks for text in the bytes of the database, its journal included.
func (h *testHost) mentions(t *testing.T, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(t.TempDir()), "*", "s.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no database found: %v", err)
	}
	for _, file := range files {
		b := must.Get(os.ReadFile(file))(t)
		if bytes.Contains(b, []byte(text)) {
			return true
		}
	}
	return false
}
