package drivertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Fault is a way in which a BMC misbehaves.
type Fault int

const (
	None      Fault = iota
	Down            // nothing listens
	Silent          // it takes requests and never answers
	Busy            // it answers that it cannot now (503)
	Rubbish         // it answers what is not its protocol
	Liar            // it takes orders and does not act
	HangsUp         // it cuts every connection without an answer
	Slow            // it answers well, but late
	Elsewhere       // its links and redirects lead to another host
)

var faultNames = [...]string{"none", "down", "silent", "busy", "rubbish", "liar", "hangs up", "slow", "elsewhere"}

func (f Fault) String() string { return faultNames[f] }

// BMC is a Redfish service of one machine, as an http.Handler. The machine exists
// only as its fields; OnPower lets a test put something behind it.
type BMC struct {
	Username, Password string
	// OnPower hears of every true change of power, with the boot override and the
	// medium then in force. It is called without the BMC's lock.
	OnPower func(on bool, override Override, image string)
	// Delay is how long the machine takes to follow a power order.
	Delay time.Duration
	// MediaInSystem shows the drives under the system instead of the manager.
	MediaInSystem bool
	// ETags makes changes without the right If-Match fail; WeakETags gives tags that only match without W/.
	ETags, WeakETags bool
	// NoHTTPBoot leaves UefiHttp out of the boot targets.
	NoHTTPBoot bool
	// SystemsPath is where the systems are listed; empty: where everybody has them.
	SystemsPath string
	// Systems is how many systems are listed; 0 means 1.
	Systems int

	mu       sync.Mutex
	fault    Fault
	on       bool
	override Override
	image    string
	usb      string // what is in the other virtual drive
	extra    extraState
	changes  int
	sessions map[string]bool
	inFlight int
	overlap  bool
	requests int
	release  chan struct{}
}

// slowness is how late the answers of a Slow BMC are.
const slowness = 50 * time.Millisecond

// Override is a boot override as Redfish spells it.
type Override struct {
	Target      string `json:"BootSourceOverrideTarget"`
	Enabled     string `json:"BootSourceOverrideEnabled"`
	Mode        string `json:"BootSourceOverrideMode"`
	HTTPBootURI string `json:"HttpBootUri"`
}

// Paths of the service.
const (
	SystemPath  = "/redfish/v1/Systems/1"
	managerPath = "/redfish/v1/Managers/bmc"
)

// NewBMC makes a BMC of a machine that is off.
func NewBMC(username, password string) *BMC {
	return &BMC{Username: username, Password: password, extra: newExtra(), override: Override{Target: "None", Enabled: "Disabled", Mode: "UEFI"}, sessions: map[string]bool{}, release: make(chan struct{})}
}

// Break makes the BMC misbehave from now on. Down is for whoever listens for it.
func (b *BMC) Break(f Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = f
}

// Release lets go of the requests that Silent holds.
func (b *BMC) Release() { close(b.release) }

// On tells whether the machine is on.
func (b *BMC) On() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.on }

// SetOn changes the power behind the BMC's back, as a hand at the button does.
func (b *BMC) SetOn(on bool) { b.mu.Lock(); defer b.mu.Unlock(); b.on = on }

// Boot is the override in force.
func (b *BMC) Boot() Override { b.mu.Lock(); defer b.mu.Unlock(); return b.override }

// Image is the URL in the CD drive.
func (b *BMC) Image() string { b.mu.Lock(); defer b.mu.Unlock(); return b.image }

// SetImage puts a medium in, as another user of the BMC does.
func (b *BMC) SetImage(url string) { b.mu.Lock(); defer b.mu.Unlock(); b.image = url }

// Sessions is how many logins are open.
func (b *BMC) Sessions() int { b.mu.Lock(); defer b.mu.Unlock(); return len(b.sessions) }

// Requests is how many requests have come.
func (b *BMC) Requests() int { b.mu.Lock(); defer b.mu.Unlock(); return b.requests }

// Overlapped tells whether two requests were ever in flight at once.
func (b *BMC) Overlapped() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.overlap }

func (b *BMC) enter() Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests++
	b.inFlight++
	// A request that a fault held is over for its sender before it is for us.
	b.overlap = b.overlap || (b.inFlight > 1 && b.fault == None)
	return b.fault
}

func (b *BMC) leave() { b.mu.Lock(); defer b.mu.Unlock(); b.inFlight-- }

// ServeHTTP is the whole service.
func (b *BMC) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := b.enter()
	defer b.leave()
	switch fault {
	case Silent:
		select {
		case <-r.Context().Done():
		case <-b.release:
		}
		return
	case Busy:
		writeRedfishError(w, http.StatusServiceUnavailable, "the BMC restarts; your header was "+r.Header.Get("Authorization"))
		return
	case Rubbish:
		// What a bad BMC may well send back: the credentials that it was given.
		_, _ = fmt.Fprintf(w, "<html>%s {\"PowerState\": [1,", b.Password)
		return
	case HangsUp:
		panic(http.ErrAbortHandler)
	case Elsewhere:
		if strings.TrimSuffix(r.URL.Path, "/") != "/redfish/v1" {
			http.Redirect(w, r, "http://elsewhere.invalid"+r.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		writeJSON(w, map[string]any{"@odata.id": "@elsewhere.invalid/", "Systems": odataLink(".elsewhere.invalid/Systems"), "PowerState": "On"})
		return
	case Slow:
		time.Sleep(slowness)
	case None, Down, Liar:
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	if path == "/redfish/v1" && r.Method == http.MethodGet {
		writeJSON(w, b.root())
		return
	}
	if path == "/redfish/v1/SessionService/Sessions" && r.Method == http.MethodPost {
		b.login(w, r)
		return
	}
	if !b.authentic(r) {
		writeRedfishError(w, http.StatusUnauthorized, "no valid login for "+r.Header.Get("Authorization"))
		return
	}
	b.route(w, r, path)
}

func (b *BMC) route(w http.ResponseWriter, r *http.Request, path string) {
	media := managerPath + "/VirtualMedia"
	if b.MediaInSystem {
		media = SystemPath + "/VirtualMedia"
	}
	switch r.Method + " " + path {
	case "GET " + b.systemsPath():
		writeJSON(w, b.systems())
	case "GET " + SystemPath:
		b.tag(w)
		writeJSON(w, b.system())
	case "PATCH " + SystemPath:
		b.patch(w, r)
	case "POST " + SystemPath + "/Actions/ComputerSystem.Reset":
		b.reset(w, r)
	case "GET " + managerPath:
		doc := b.manager()
		if !b.MediaInSystem {
			doc["VirtualMedia"] = odataLink(media)
		}
		writeJSON(w, doc)
	case "GET " + media:
		writeJSON(w, odataCollection(media+"/Floppy", media+"/Cd", media+"/Usb"))
	case "GET " + media + "/Floppy":
		writeJSON(w, map[string]any{"@odata.id": path, "MediaTypes": []string{"Floppy"}, "Inserted": false, "Image": nil})
	case "GET " + media + "/Cd":
		writeJSON(w, b.drive(path, &b.image, "CD", "DVD"))
	case "GET " + media + "/Usb":
		writeJSON(w, b.drive(path, &b.usb, "USBStick"))
	case "POST " + media + "/Cd/Actions/VirtualMedia.InsertMedia":
		b.insert(w, r, &b.image)
	case "POST " + media + "/Usb/Actions/VirtualMedia.InsertMedia":
		b.insert(w, r, &b.usb)
	case "POST " + media + "/Cd/Actions/VirtualMedia.EjectMedia":
		b.eject(w, &b.image)
	case "POST " + media + "/Usb/Actions/VirtualMedia.EjectMedia":
		b.eject(w, &b.usb)
	default:
		b.rest(w, r, path)
	}
}

func (b *BMC) rest(w http.ResponseWriter, r *http.Request, path string) {
	if id, ok := strings.CutPrefix(path, "/redfish/v1/SessionService/Sessions/"); ok && r.Method == http.MethodDelete {
		b.mu.Lock()
		delete(b.sessions, id)
		b.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if b.serveExtra(w, r, path) {
		return
	}
	if doc, ok := parts[path]; ok && r.Method == http.MethodGet {
		writeJSON(w, doc)
		return
	}
	writeRedfishError(w, http.StatusNotFound, "no resource "+path)
}

func (b *BMC) authentic(r *http.Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		return b.sessions[strings.TrimPrefix(token, "token-")]
	}
	user, password, _ := r.BasicAuth()
	return user == b.Username && password == b.Password
}

func (b *BMC) login(w http.ResponseWriter, r *http.Request) {
	var in struct{ UserName, Password string }
	if json.NewDecoder(r.Body).Decode(&in) != nil || in.UserName != b.Username || in.Password != b.Password {
		writeRedfishError(w, http.StatusUnauthorized, "wrong name or password "+in.Password)
		return
	}
	b.mu.Lock()
	b.changes++
	id := fmt.Sprint("s", b.changes)
	b.sessions[id] = true
	b.mu.Unlock()
	w.Header().Set("X-Auth-Token", "token-"+id)
	w.Header().Set("Location", "/redfish/v1/SessionService/Sessions/"+id)
	w.WriteHeader(http.StatusCreated)
}

func (b *BMC) patch(w http.ResponseWriter, r *http.Request) {
	if b.ETags && r.Header.Get("If-Match") != b.currentTag() {
		writeRedfishError(w, http.StatusPreconditionFailed, "the ETag does not match")
		return
	}
	b.mu.Lock()
	next := struct {
		Boot         Override
		IndicatorLED string
	}{b.override, b.extra.led}
	b.mu.Unlock()
	if err := json.NewDecoder(r.Body).Decode(&next); err != nil {
		writeRedfishError(w, http.StatusBadRequest, err.Error())
		return
	}
	b.mu.Lock()
	if b.fault != Liar {
		b.override, b.extra.led = next.Boot, next.IndicatorLED
	}
	b.changes++
	b.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (b *BMC) reset(w http.ResponseWriter, r *http.Request) {
	var in struct{ ResetType string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		writeRedfishError(w, http.StatusBadRequest, err.Error())
		return
	}
	if b.interrupt(in.ResetType) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	on, known := map[string]bool{"On": true, "ForceOff": false, "GracefulShutdown": false}[in.ResetType]
	if !known {
		writeRedfishError(w, http.StatusBadRequest, "unknown reset type")
		return
	}
	if on == b.On() {
		writeRedfishError(w, http.StatusConflict, "the machine is in that state already")
		return
	}
	w.WriteHeader(http.StatusNoContent)
	b.mu.Lock()
	lie := b.fault == Liar
	b.mu.Unlock()
	if !lie {
		time.AfterFunc(b.Delay, func() { b.follow(on) })
	}
}

// follow is the machine doing what it was told; an override for one boot is used up by it.
func (b *BMC) follow(on bool) {
	b.mu.Lock()
	changed := b.on != on
	b.on = on
	used, image := b.override, b.image
	if changed && on && used.Enabled == "Once" {
		b.override.Target, b.override.Enabled = "None", "Disabled"
	}
	if changed && on {
		b.extra.boot()
	}
	hook := b.OnPower
	b.mu.Unlock()
	if changed && hook != nil {
		hook(on, used, image)
	}
}

func (b *BMC) insert(w http.ResponseWriter, r *http.Request, drive *string) {
	var in struct{ Image string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Image == "" {
		writeRedfishError(w, http.StatusBadRequest, "no Image")
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if *drive != "" {
		writeRedfishError(w, http.StatusBadRequest, "a medium is inserted already beside "+in.Image)
		return
	}
	if b.fault != Liar {
		*drive = in.Image
	}
	w.WriteHeader(http.StatusNoContent)
}

func (b *BMC) eject(w http.ResponseWriter, drive *string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != Liar {
		*drive = ""
	}
	w.WriteHeader(http.StatusNoContent)
}
