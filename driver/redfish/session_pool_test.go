package redfish

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/fixture"
	"salvor/test/must"
)

// countLogins is a BMC that counts the sessions that are created. Each of the first refusals requests with a token is answered 401.
func countLogins(t *testing.T) (o *odd, n *metal.Node, created, refusals *atomic.Int32) {
	t.Helper()
	created, refusals = new(atomic.Int32), new(atomic.Int32)
	o, n = newOdd(t, func(_ *odd, w http.ResponseWriter, method, path string) bool {
		if strings.HasSuffix(path, "/Sessions") && method == http.MethodPost {
			created.Add(1)
			return false
		}
		if path == conversation.RootPath || refusals.Add(-1) < 0 {
			return false
		}
		return answerJSON(w, http.StatusUnauthorized, map[string]any{})
	})
	n.DriverInfo[AuthKey] = conversation.Session
	return o, n, created, refusals
}

// doRescue does what a rescue asks of the driver.
func doRescue(t *testing.T, d *Driver, n *metal.Node) {
	t.Helper()
	ctx, m := t.Context(), &Media{Driver: d, Files: files}
	b := must.Get(d.DescribeBMC(ctx, n))(t)
	metal.KeepBMC(n, b)
	must.Get(d.SecureBoot(ctx, n))(t)
	must.Get(d.PowerState(ctx, n))(t)
	must.OK(t, d.SetPower(ctx, n, metal.PowerOff))
	must.Get(d.BootDevice(ctx, n))(t)
	n.Plan = must.Get(m.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r"}))(t)
	must.OK(t, m.PrepareRamdisk(ctx, n))
	must.OK(t, d.SetPower(ctx, n, metal.PowerOn))
	must.OK(t, m.CleanUpRamdisk(ctx, n))
}

// TestOneSessionForARescue: its eight verbs share a session, which is deleted at the end. Without the pool each has one.
func TestOneSessionForARescue(t *testing.T) {
	for pool, want := range map[*SessionPool]int32{nil: 8, {Idle: time.Minute}: 1} {
		o, n, created, _ := countLogins(t)
		doRescue(t, &Driver{Sessions: pool}, n)
		if created.Load() != want {
			t.Errorf("%d sessions were created, want %d", created.Load(), want)
		}
		if pool != nil {
			if o.Sessions() != 1 {
				t.Errorf("%d sessions are open between two verbs", o.Sessions())
			}
			pool.Close()
		}
		if o.Sessions() != 0 {
			t.Errorf("%d sessions are left", o.Sessions())
		}
		must.Get((&Driver{Sessions: pool}).PowerState(t.Context(), n))(t)
		if o.Sessions() != 0 {
			t.Errorf("after the end of the pool %d sessions are left", o.Sessions())
		}
	}
}

// TestAnIdleSessionIsDeleted after its time, and so is that of a verb that failed.
func TestAnIdleSessionIsDeleted(t *testing.T) {
	o, n, _, _ := countLogins(t)
	pool := &SessionPool{Idle: 20 * time.Millisecond}
	d := &Driver{Sessions: pool}
	must.Get(d.PowerState(t.Context(), n))(t)
	fixture.Poll(t, "the session is deleted", func() bool { return o.Sessions() == 0 })
	pool.Idle = time.Minute
	if err := d.SetBootDevice(t.Context(), n, rescue.Boot{Device: "no such"}); err == nil || o.Sessions() != 0 {
		t.Errorf("%v, %d sessions are left", err, o.Sessions())
	}
}

// TestAForgottenSessionIsRenewedOnce: a BMC that restarted knows no session of before, and one that refuses the next session too is not
// asked for ever.
func TestAForgottenSessionIsRenewedOnce(t *testing.T) {
	o, n, created, refusals := countLogins(t)
	pool := &SessionPool{Idle: time.Minute}
	defer pool.Close()
	d := &Driver{Locks: &driver.AddressLocks{}, Sessions: pool}
	must.Get(d.PowerState(t.Context(), n))(t)
	refusals.Store(1)
	must.OK(t, d.SetPower(t.Context(), n, metal.PowerOn))
	if created.Load() != 2 || !o.On() {
		t.Errorf("%d sessions were created, on %t; want 2 and on", created.Load(), o.On())
	}
	refusals.Store(1000)
	if _, err := d.PowerState(t.Context(), n); !problem.Is(err, problem.Invalid) || created.Load() != 3 {
		t.Errorf("%v after %d sessions; want invalid after 3", err, created.Load())
	}
}

// TestASessionServesOneLogin: whoever changes the login of a node gets no session of the former one.
func TestASessionServesOneLogin(t *testing.T) {
	_, n, _, _ := countLogins(t)
	pool := &SessionPool{Idle: time.Minute}
	defer pool.Close()
	d := &Driver{Sessions: pool}
	must.Get(d.PowerState(t.Context(), n))(t)
	n = n.Clone()
	n.DriverInfo[PasswordKey] = "wrong"
	if _, err := d.PowerState(t.Context(), n); !problem.Is(err, problem.Invalid) {
		t.Errorf("%v, want invalid", err)
	}
}

// TestARefusedResourceLeaksNoSession: a BMC that answers 401 for one resource, for want of a privilege, has no session left of the verb
// that asked for it.
func TestARefusedResourceLeaksNoSession(t *testing.T) {
	for _, pool := range []*SessionPool{nil, {Idle: time.Minute}} {
		o, n := newOdd(t, func(_ *odd, w http.ResponseWriter, method, path string) bool {
			return strings.HasSuffix(path, "/Bios") && answerJSON(w, http.StatusUnauthorized, map[string]any{})
		})
		n.DriverInfo[AuthKey] = conversation.Session
		d := &Driver{Sessions: pool}
		for range 3 {
			must.Get(d.PowerState(t.Context(), n))(t)
			if _, err := (BIOS{d}).BIOSSettings(t.Context(), n); !problem.Is(err, problem.Invalid) || o.Sessions() != 0 {
				t.Errorf("%v, %d sessions are left", err, o.Sessions())
			}
		}
	}
}
