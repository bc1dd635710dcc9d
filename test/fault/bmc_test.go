package fault

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/client"
	"salvor/driver/drivertest"
	"salvor/test/must"
	"salvor/wire/ironic"
)

// fault is a way in which a BMC goes wrong, and what last_error must say of it.
type fault struct {
	name  string
	kind  drivertest.Fault // of drivertest's BMC, or
	serve http.HandlerFunc // in front of it: false lets the request through
	only  func(*http.Request) bool
	says  string
}

func refuses(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, text+" "+bmcPassword+" "+r.Header.Get("Authorization"), status)
	}
}

func everything(*http.Request) bool { return true }

func ofSystem(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, drivertest.SystemPath) }

func toMedia(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/VirtualMedia")
}

func orders(r *http.Request) bool { return r.Method != http.MethodGet }

var (
	refused  = fault{name: "refused", kind: drivertest.Down, says: "connection refused"}
	silent   = fault{name: "silent", kind: drivertest.Silent, says: "no answer in time"}
	busy     = fault{name: "busy", kind: drivertest.Busy, says: "503"}
	rubbish  = fault{name: "rubbish", kind: drivertest.Rubbish, says: "is no Redfish"}
	hangsUp  = fault{name: "hangs up", kind: drivertest.HangsUp, says: "cut the connection"}
	strange  = fault{name: "elsewhere", kind: drivertest.Elsewhere, says: "elsewhere.invalid"}
	liar     = fault{name: "liar", kind: drivertest.Liar, says: "took the "}
	denied   = fault{name: "denied", serve: refuses(http.StatusUnauthorized, "who are you"), only: everything, says: "redfish_password"}
	vanished = fault{name: "vanished", serve: refuses(http.StatusNotFound, "gone"), only: ofSystem, says: "/redfish/v1/Systems/1"}
	noMedia  = fault{name: "media refused", serve: refuses(http.StatusBadRequest, "no such drive"), only: toMedia, says: "400: the BMC refuses"}
	badMedia = fault{name: "media broken", serve: refuses(http.StatusInternalServerError, "drive broken"), only: toMedia, says: "500"}
	readOnly = fault{name: "read only", serve: refuses(http.StatusForbidden, "read only user"), only: orders, says: "403"}
)

// operation is one thing that is asked of a machine, and where it shows that it failed.
type operation struct {
	name string
	// ready brings the machine where the operation begins.
	ready func(*machine, context.Context) error
	ask   func(*machine, context.Context) error
	// session is the conversation with the BMC, counted from the request, in which the fault begins.
	session int
	failed  string // provision state
	verb    string // in last_error: what failed,
	deed    string // in what,
	next    string // and what to ask for
	done    string // provision state once the BMC is mended and it was asked again
	faults  []fault
}

// always are the faults of every request; ordering has those of requests that change something.
var (
	always   = []fault{refused, silent, busy, rubbish, hangsUp, strange, denied, vanished}
	ordering = slices.Concat(always, []fault{liar, readOnly})
	inserts  = slices.Concat(ordering, []fault{noMedia, badMedia})
)

const (
	again       = "ask for it again."
	afterEnroll = "ask for manage."
	afterAdopt  = "ask for adopt or manage."
	afterFail   = "ask for rescue, unrescue or deleted."
)

var operations = []operation{
	{"manage", (*machine).enroll, provision("manage"), 1, "enroll", "manage", "read power", afterEnroll, "manageable", always},
	{"adopt", (*machine).manage, provision("adopt"), 1, "adopt failed", "adopt", "read power", afterAdopt, "active", always},
	{"power on", (*machine).activeOff, power("power on"), 1, "active", "change power state", "set power on", again, "active", ordering},
	{"power off", (*machine).active, power("power off"), 1, "active", "change power state", "set power off", again, "active", ordering},
	{"rescue, read power", (*machine).active, provision("rescue"), 1, "rescue failed", "rescue", "read power", afterFail, "rescue", always},
	{"rescue, power off", (*machine).active, provision("rescue"), 2, "rescue failed", "rescue", "set power off", afterFail, "rescue", ordering},
	{"rescue, save the boot", (*machine).active, provision("rescue"), 3, "rescue failed", "rescue", "read boot device", afterFail, "rescue", always},
	{"rescue, prepare", (*machine).active, provision("rescue"), 4, "rescue failed", "rescue", "insert media", afterFail, "rescue", inserts},
	{"rescue, power on", (*machine).active, provision("rescue"), 5, "rescue failed", "rescue", "set power on", afterFail, "rescue", ordering},
	{"rescue, clean up", (*machine).active, provision("rescue"), 6, "rescue failed", "rescue", "eject media", afterFail, "rescue", ordering},
	{"unrescue, power off", (*machine).rescued, provision("unrescue"), 1, "unrescue failed", "unrescue", "set power off", afterFail, "active", ordering},
	{"unrescue, clean up", (*machine).rescued, provision("unrescue"), 2, "unrescue failed", "unrescue", "eject media", afterFail, "active", always},
	{"unrescue, prepare", (*machine).rescued, provision("unrescue"), 3, "unrescue failed", "unrescue", "set boot device", afterFail, "active", ordering},
	{"unrescue, power on", (*machine).rescued, provision("unrescue"), 4, "unrescue failed", "unrescue", "set power on", afterFail, "active", ordering},
}

// takesBack tells of operations that have touched the BMC by then, and take that back.
func (op operation) takesBack() bool {
	return strings.HasPrefix(op.name, "rescue, ") && op.name != "rescue, read power"
}

// sticks tells whether an operation cannot be taken back while the fault lasts. A machine that never went off needs no writing to be on.
func (op operation) sticks(f fault) bool {
	if op.name == "rescue, power off" && f.name == readOnly.name {
		return false
	}
	return op.takesBack() && (f.name == denied.name || f.name == vanished.name || f.name == readOnly.name)
}

func provision(verb string) func(*machine, context.Context) error {
	return func(m *machine, ctx context.Context) error { return m.provision(ctx, verb) }
}

func power(target string) func(*machine, context.Context) error {
	return func(m *machine, ctx context.Context) error {
		return m.w.api.SetPower(ctx, m.id, ironic.PowerRequest{Target: target})
	}
}

// TestBadBMC lets BMCs go wrong in the middle of every operation: each ends in its named
// state, unlocked, says why, gives no secret away, and succeeds once the BMC is mended.
func TestBadBMC(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("cases", func(t *testing.T) {
		for _, op := range operations {
			for _, f := range op.faults {
				t.Run(op.name+", "+f.name, func(t *testing.T) {
					t.Parallel()
					w.failAndMend(t, op, f)
				})
			}
		}
	})
	w.noSecrets(t, "log", w.server.Log())
}

func (w *world) failAndMend(t *testing.T, op operation, f fault) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m := w.newMachine(t)
	must.OK(t, op.ready(m, ctx))
	m.breakAt(f, op.session)
	must.OK(t, op.ask(m, ctx))
	mended := op.takesBack() && f.serve == nil
	if mended {
		// It comes back while the operation is being taken back.
		must.OK(t, m.event(ctx, ": failed: "))
		m.mend(t)
	}
	n := m.settle(ctx, t, func(n *client.Node) bool { return n.LastError != "" })
	if n.ProvisionState != op.failed {
		t.Errorf("in state %q, want %q", n.ProvisionState, op.failed)
	}
	// What was asked just before the mending is lost, and it takes all the time there is to see that.
	lost := mended && (f.kind == drivertest.Silent || f.kind == drivertest.Liar)
	if n.Maintenance != op.sticks(f) && !lost {
		t.Errorf("maintenance %t: %s", n.Maintenance, n.MaintenanceReason)
	}
	for _, words := range []string{"Failed to " + op.verb + ": ", op.deed + " of node " + m.id, m.address, f.says, op.next} {
		if !strings.Contains(n.LastError, words) {
			t.Errorf("last_error does not say %q: %s", words, n.LastError)
		}
	}
	if testing.Verbose() {
		t.Logf("%s: %s", n.ProvisionState, n.LastError)
	}
	w.noSecrets(t, "last_error", n.LastError+n.MaintenanceReason)
	if !mended {
		m.mend(t)
	}
	if n.Maintenance {
		must.OK(t, w.api.UnsetMaintenance(ctx, m.id))
	}
	must.OK(t, op.ask(m, ctx))
	m.settle(ctx, t, func(n *client.Node) bool {
		return n.LastError == "" && n.ProvisionState == op.done && n.TargetPowerState == ""
	})
	w.noSecrets(t, "history", m.history(ctx, t))
	switch {
	case op.name == "power on" && !m.bmc.On(), op.name == "power off" && m.bmc.On():
		t.Errorf("%s: the machine is on: %t", op.name, m.bmc.On())
	case op.done == "rescue":
		must.OK(t, m.provision(ctx, "unrescue"))
		m.settle(ctx, t, func(n *client.Node) bool { return n.ProvisionState == "active" && n.LastError == "" })
		m.wantOwnSystem(t)
	case op.failed == "unrescue failed":
		m.wantOwnSystem(t)
	}
}

// TestSlowBMC answers late, and everything succeeds.
func TestSlowBMC(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m := w.newMachine(t)
	m.bmc.Break(drivertest.Slow)
	must.OK(t, m.rescued(ctx))
	must.OK(t, m.provision(ctx, "unrescue"))
	m.settle(ctx, t, func(n *client.Node) bool { return n.ProvisionState == "active" && n.LastError == "" })
	m.wantOwnSystem(t)
}

// TestAskingBadBMC: what only the BMC can tell is a clear error in bounded time.
func TestAskingBadBMC(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, f := range always {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			m := w.newMachine(t)
			must.OK(t, m.active(ctx))
			m.breakAt(f, 1)
			began := time.Now()
			_, err := w.api.BootDevice(ctx, m.id)
			status := client.StatusOf(err)
			if status != http.StatusServiceUnavailable && (status < 400 || status >= 500) {
				t.Errorf("boot device: %v", err)
			}
			if took := time.Since(began); took > 45*time.Second {
				t.Errorf("it took %s", took)
			}
			if err != nil {
				w.noSecrets(t, "answer", err.Error())
			}
			n, err := w.api.Node(ctx, m.id)
			must.OK(t, err)
			if n.ProvisionState != "active" {
				t.Errorf("a question moved the node to %q", n.ProvisionState)
			}
			m.mend(t)
			device, err := w.api.BootDevice(ctx, m.id)
			must.OK(t, err)
			if device.Device == nil || *device.Device != "disk" {
				t.Errorf("boot device: %v", device)
			}
		})
	}
}
