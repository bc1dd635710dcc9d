package node

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/driver/redfish"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

// TestARefusedLoginIsRemembered: a BMC whose password changes in the middle of a rescue gets one login during the rescue, its undo,
// 20 rounds of power sync and a further rescue. A user's request adds one login, and a changed password is tried at once.
func TestARefusedLoginIsRemembered(t *testing.T) {
	t.Parallel()
	bmc := drivertest.NewBMC("admin", "calvin")
	bmc.SetOn(true)
	var changed atomic.Bool
	var refused atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if changed.Load() {
			if _, password, _ := r.BasicAuth(); password != "mended" {
				refused.Add(1)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			r.SetBasicAuth("admin", "calvin")
		}
		bmc.ServeHTTP(w, r)
		if r.Method == http.MethodPost {
			changed.Store(true) // by somebody else, after the machine was switched off
		}
	}))
	defer server.Close()
	var later atomic.Int64
	logins := &driver.Logins{Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }}
	b := newBench(t, metal.Active)
	power := &redfish.Driver{Locks: &driver.AddressLocks{}, Logins: logins}
	b.con.drivers["bench"].Power["bench"] = power
	for key, value := range map[string]string{redfish.AddressKey: server.URL, redfish.UsernameKey: "admin", redfish.PasswordKey: "calvin"} {
		must.OK(t, b.patch(t, key, value))
	}
	b.run(t)
	b.start(t, metal.ToRescue)
	n := b.until(t, metal.RescueFailed)
	if !strings.Contains(n.LastError+n.MaintenanceReason, "refuses redfish_username or redfish_password") {
		t.Errorf("error %q, maintenance %q", n.LastError, n.MaintenanceReason)
	}
	for range 20 {
		b.con.syncOnce(context.Background(), everyNode)
	}
	contact, err := b.store.Contact(t.Context(), nil, b.node)
	if err != nil || !strings.Contains(contact.PowerError, "BMCs lock accounts") {
		t.Errorf("power sync says %q, %v", contact.PowerError, err)
	}
	// The login worked a short time ago, so it is tried three times before the refusal counts.
	if got := refused.Load(); got != 3 {
		t.Fatalf("the BMC refused %d logins, want 3", got)
	}
	n = b.stored(t)
	ask := func(work string) error {
		_, err := power.PowerState(driver.WithUserRequest(t.Context(), work), n)
		return err
	}
	for range 3 {
		if err := ask("work"); !problem.Is(err, problem.Invalid) || refused.Load() != 4 {
			t.Errorf("a user who asks: %v, %d logins", err, refused.Load())
		}
	}
	later.Store(int64(2 * time.Hour))
	if _, err := power.PowerState(t.Context(), n); err == nil || refused.Load() != 5 {
		t.Errorf("after an hour: %v, %d logins", err, refused.Load())
	}
	must.OK(t, b.patch(t, redfish.PasswordKey, "mended"))
	if _, err := power.PowerState(t.Context(), b.stored(t)); err != nil || refused.Load() != 5 {
		t.Errorf("with another password: %v, %d logins", err, refused.Load())
	}
}

// unlicensed is a BMC that has drives and no licence to use them.
type unlicensed struct{ *bench }

func (unlicensed) PrepareRamdisk(context.Context, *metal.Node) error {
	return problem.Unsupportedf("403: %w", driver.ErrLicence)
}

func (unlicensed) CheckBMC(n *metal.Node, b metal.BMC) error { return b.NeedsDrive(n) }

// TestALackingLicenceIsRemembered: after a BMC has refused virtual media for lack of a licence, the next check fails, and no machine is
// switched off, until manage or a request reads the BMC again.
func TestALackingLicenceIsRemembered(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.con.drivers["bench"].Boot["bench"] = unlicensed{b}
	b.run(t)
	b.start(t, metal.ToRescue)
	n := b.until(t, metal.RescueFailed)
	at := metal.BMCOf(n).MediaUnlicensedAt
	if at.IsZero() {
		t.Fatalf("not remembered: %v", n.InternalInfo)
	}
	ports := []*metal.Port{{Address: "52:54:00:00:00:01"}}
	check := func() string {
		return metal.ReasonTexts(b.con.Preflight(t.Context(), b.stored(t), ports, metal.Operation{Kind: "rescue"}).Reasons)
	}
	if got := check(); !strings.Contains(got, "lacks the licence for virtual media") {
		t.Errorf("the next check: %q", got)
	}
	b.start(t, metal.ToRescue)
	n = b.until(t, metal.RescueFailed)
	if !strings.Contains(n.LastError, "lacks the licence") || b.power != metal.PowerOn || metal.BMCOf(n).MediaUnlicensedAt != at {
		t.Errorf("error %q, power %q", n.LastError, b.power)
	}
	change(t, b, func(n *metal.Node) { metal.KeepBMC(n, metal.BMC{ReadAt: time.Now()}) }) // as manage does, and a question for the boot devices
	if got := check(); got != "" {
		t.Errorf("after a new look: %q", got)
	}
}

// TestFirstContactIsBounded: the first tries to reach a BMC end within 60 s, however long a power change may take.
func TestFirstContactIsBounded(t *testing.T) {
	t.Parallel()
	for _, power := range []time.Duration{time.Second, time.Hour} {
		read := New(Config{PowerTimeout: power}).manage().Actions[0]
		if read.Deadline <= 0 || read.Deadline > time.Minute-driver.CallTimeout/2 {
			t.Errorf("power changes of %s: %s are tried for %s", power, read.Name, read.Deadline)
		}
	}
}
