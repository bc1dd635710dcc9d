// Package oddbmc runs every verb of the Redfish driver behind odd BMCs: each kind of oddity of lab/odd at each resource that the verb uses,
// alone and in pairs. BMC and driver run in memory under a clock of their own, so pauses and deadlines cost no time.
package oddbmc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/driver/redfish"
	"salvor/lab/odd"
	"salvor/metal"
	"salvor/problem"
)

const (
	username     = "admin"
	password     = "hunter2-Tr0ub4dor"
	biosPassword = "stored-Passw0rd"
	chapSecret   = "chap-s3cret-0001"
)

// secrets are what no error and no note may show. token- begins the session tokens of drivertest's BMC.
var secrets = []string{password, "aHVudGVy", "YWRtaW46", biosPassword, chapSecret, "token-s"}

// wordsOfGo are texts of Go's libraries that say nothing to an operator.
var wordsOfGo = []string{"json:", "cannot unmarshal", "EOF", "invalid character", "Go struct field", "%!", "unexpected end of JSON", "net/http", "<nil>", "runtime error", "strconv", "base64", "redfish."}

var files = driver.BootFiles{URL: "http://192.0.2.1:8088/", APIURL: "http://192.0.2.1:6385"}

// world is a machine behind a BMC, and the driver that is about to use it.
type world struct {
	bmc     *drivertest.BMC
	adapter *iscsiAdapter
	// tree is a recorded BMC in place of bmc, and system the path of its system; nil: the world has a bmc.
	tree   *drivertest.Replay
	system string
	node   *metal.Node
	driver *redfish.Driver
	media  *redfish.Media
	pool   *redfish.SessionPool
	notes  *driver.Notes

	late  atomic.Bool // an action took more than its time
	boots []boot      // guarded by mu
	mu    sync.Mutex
}

// boot is one start of the machine: with which override and which image in the drive.
type boot struct{ target, image string }

func (w *world) isOn() bool {
	if w.tree != nil {
		return w.tree.On(w.system)
	}
	return w.bmc.On()
}

func (w *world) setOn(on bool) {
	if w.tree != nil {
		w.tree.SetOn(w.system, on)
	} else {
		w.bmc.SetOn(on)
	}
}

// images are the URLs in the virtual drives.
func (w *world) images() []string {
	if w.tree != nil {
		return w.tree.Images()
	}
	return slices.DeleteFunc([]string{w.bmc.Image(), w.bmc.Stick()}, func(image string) bool { return image == "" })
}

// lastBoot is the newest start of the machine.
func (w *world) lastBoot() boot {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.boots) == 0 {
		return boot{}
	}
	return w.boots[len(w.boots)-1]
}

// worldOptions are what a world differs in.
type worldOptions struct {
	// session: the driver logs in by a session, not by name and password in each request.
	session bool
	// oddities of the BMC, which begin when the driver has logged in once.
	oddities []odd.BMCOddity
	// tree is a recorded BMC, which stands in place of drivertest's; nil: none.
	tree fs.FS
	// before, if not nil, puts something before the BMC, from the first request on.
	before func(next http.Handler) http.Handler
	// seen, if not nil, gets each request of the driver with the answer of the BMC.
	seen func(r *http.Request, answer *httptest.ResponseRecorder)
}

// inWorld runs fn in a world of its own and waits for all that goes on there.
func inWorld(t *testing.T, is worldOptions, fn func(ctx context.Context, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		bmc := drivertest.NewBMC(username, password)
		bmc.Delay = 200 * time.Millisecond
		bmc.SetOn(true)
		bmc.SetTemperature(21, "OK")
		for _, kind := range []drivertest.EventKind{drivertest.MemoryError, drivertest.DriveFault, drivertest.DriveReplaced} {
			bmc.Log(drivertest.Event{Kind: kind, Time: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)})
		}
		w := &world{bmc: bmc, pool: &redfish.SessionPool{}, adapter: &iscsiAdapter{}}
		bmc.OnPower = func(on bool, o drivertest.Override, image string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if on {
				w.boots = append(w.boots, boot{o.Target, image})
			}
		}
		inOrder := w.adapter.before(bmc)
		if is.tree != nil {
			w.tree, w.system = drivertest.NewReplay(is.tree, nil), drivertest.SystemIn(is.tree)
			w.tree.SetOn(w.system, true)
			inOrder = w.tree
		}
		strange := odd.BMC(inOrder, is.oddities...)
		var begun atomic.Bool // the BMC is in order until the driver has logged in once
		handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if begun.Load() {
				strange.ServeHTTP(w, r)
			} else {
				inOrder.ServeHTTP(w, r)
			}
		}))
		if is.before != nil {
			handler = is.before(handler)
		}
		if is.seen != nil {
			handler = watched(handler, is.seen)
		}
		network := drivertest.NewNetwork(handler)
		w.node = &metal.Node{ID: "11111111-2222-3333-4444-555555555555", Driver: "redfish", DriverInfo: metal.Object{
			redfish.AddressKey: network.URL, redfish.UsernameKey: username, redfish.PasswordKey: password, redfish.AuthKey: "basic",
		}}
		if is.session {
			w.node.DriverInfo[redfish.AuthKey] = "session"
		}
		if w.tree != nil {
			w.node.DriverInfo[redfish.SystemKey] = w.system
		} else if slices.ContainsFunc(is.oddities, func(o odd.BMCOddity) bool { return family(o.Kind) == "members" && o.Place == odd.Place{} }) {
			w.node.DriverInfo[redfish.SystemKey] = systemPath // of systems that cannot be listed whole, the driver chooses none by itself
		}
		w.driver = &redfish.Driver{Locks: &driver.AddressLocks{}, Logins: &driver.Logins{}, Sessions: w.pool}
		w.media = &redfish.Media{Driver: w.driver, Files: files}
		ctx, notes := driver.WithNotes(driver.WithDial(driver.WithUserRequest(context.Background(), "job-1"), network.Dial))
		w.notes = notes
		if is.before == nil {
			if _, err := w.driver.PowerState(ctx, w.node); err != nil {
				t.Errorf("read the power of a machine whose BMC is in order: %v", err)
			}
			time.Sleep(20 * time.Second) // the session of the look is closed
		}
		begun.Store(true)
		fn(context.WithValue(ctx, worldKey{}, w), w)
		w.pool.Close()
		time.Sleep(10 * time.Minute) // what the BMC has under way ends
		network.Close()
		synctest.Wait()
	})
}

func watched(next http.Handler, seen func(*http.Request, *httptest.ResponseRecorder)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := httptest.NewRecorder()
		next.ServeHTTP(out, r)
		seen(r, out)
		for name, v := range out.Header() {
			w.Header()[name] = v
		}
		w.WriteHeader(out.Code)
		_, _ = w.Write(out.Body.Bytes())
	})
}

const (
	systemPath   = drivertest.SystemPath
	nicsPath     = systemPath + "/NetworkInterfaces"
	functionPath = nicsPath + "/1/NetworkDeviceFunctions/1"
	biosPath     = systemPath + "/Bios"
)

// iscsiAdapter adds to drivertest's BMC what that lacks: an iSCSI initiator, a volume, a BIOS password that the BMC shows, and the
// resource of a session in the answer to its login.
type iscsiAdapter struct {
	mu   sync.Mutex
	boot map[string]any
}

func (a *iscsiAdapter) target() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	text, _ := a.boot["PrimaryTargetName"].(string)
	return text
}

func (a *iscsiAdapter) before(bmc http.Handler) http.Handler {
	a.boot = map[string]any{"InitiatorName": "", "AuthenticationMethod": "None", "PrimaryTargetName": "", "IPMaskDNSViaDHCP": true, "PrimaryLUN": 0, "PrimaryTargetTCPPort": 3260}
	for _, path := range []string{systemPath + "/Storage/RAID1/Volumes"} {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"Name":"root","RAIDType":"RAID1","CapacityBytes":107374182400,"Links":{"Drives":[]}}`))
		r.SetBasicAuth(username, password)
		bmc.ServeHTTP(httptest.NewRecorder(), r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimRight(r.URL.Path, "/")
		out := httptest.NewRecorder()
		login := r.Method == http.MethodPost && strings.HasSuffix(path, "/Sessions")
		switch {
		case login, r.Method == http.MethodGet && (path == systemPath || path == biosPath):
			bmc.ServeHTTP(out, r)
			a.add(path, login, out)
			for name, v := range out.Header() {
				w.Header()[name] = v
			}
			w.WriteHeader(out.Code)
			_, _ = w.Write(out.Body.Bytes())
		case strings.HasPrefix(path, nicsPath):
			probe := r.Clone(r.Context())
			probe.Method, probe.URL.Path, probe.Body = http.MethodGet, systemPath, http.NoBody
			if bmc.ServeHTTP(out, probe); out.Code != http.StatusOK { // who is not logged in
				w.WriteHeader(out.Code)
				_, _ = w.Write(out.Body.Bytes())
				return
			}
			a.serve(w, r, path)
		default:
			bmc.ServeHTTP(w, r)
		}
	})
}

func (a *iscsiAdapter) add(path string, login bool, out *httptest.ResponseRecorder) {
	if out.Code >= 300 {
		return
	}
	doc := map[string]any{}
	_ = json.Unmarshal(out.Body.Bytes(), &doc)
	switch {
	case login:
		at := out.Header().Get("Location")
		doc = map[string]any{"@odata.id": at, "Id": at[strings.LastIndexByte(at, '/')+1:], "UserName": username}
		out.Header().Set("Content-Type", "application/json")
	case path == systemPath:
		doc["NetworkInterfaces"] = map[string]any{"@odata.id": nicsPath}
	case path == biosPath:
		if attributes, ok := doc["Attributes"].(map[string]any); ok {
			attributes["AdminPassword"] = biosPassword
		}
	}
	text, _ := json.Marshal(doc)
	out.Body = bytes.NewBuffer(text)
}

func (a *iscsiAdapter) serve(w http.ResponseWriter, r *http.Request, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	link := func(p string) any { return map[string]any{"@odata.id": p} }
	docs := map[string]map[string]any{
		nicsPath:                               {"Members": []any{link(nicsPath + "/1")}},
		nicsPath + "/1":                        {"Id": "1", "NetworkDeviceFunctions": link(nicsPath + "/1/NetworkDeviceFunctions")},
		nicsPath + "/1/NetworkDeviceFunctions": {"Members": []any{link(functionPath)}},
		functionPath:                           {"Id": "1", "NetDevFuncType": "iSCSI", "iSCSIBoot": a.boot},
	}
	doc := docs[path]
	switch {
	case doc != nil && r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(doc)
	case path == functionPath && r.Method == http.MethodPatch:
		var in struct {
			Boot map[string]any `json:"iSCSIBoot"`
		}
		if json.NewDecoder(r.Body).Decode(&in) != nil || in.Boot == nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for name, v := range in.Boot {
			if !strings.Contains(name, "Secret") {
				a.boot[name] = v
			}
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

type worldKey struct{}

// The bounds of one action, as a job has them.
const (
	actionTime = 5 * time.Minute
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// try does one action of a verb as a job does: what is Unavailable is tried again until the time of the action is over.
func try(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, actionTime)
	defer cancel()
	began := time.Now()
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		err := fn(ctx)
		if w, _ := ctx.Value(worldKey{}).(*world); w != nil && time.Since(began) > actionTime+time.Minute {
			w.late.Store(true)
		}
		if err == nil || !problem.Is(err, problem.Unavailable) || time.Since(began)+pause >= actionTime {
			return err
		}
		time.Sleep(pause)
	}
}

var errStepHangs = errors.New("the step does not end within 15 minutes")

// runStep calls a step until it ends, as a conductor does.
func runStep(ctx context.Context, n *metal.Node, r driver.StepRunner, step metal.Step) error {
	began := time.Now()
	for {
		wait := false
		err := try(ctx, func(ctx context.Context) (err error) { wait, err = r.RunStep(ctx, n, step); return err })
		switch {
		case err != nil || !wait:
			return err
		case time.Since(began) > 15*time.Minute:
			return errStepHangs
		}
		time.Sleep(10 * time.Second)
	}
}
