package lab

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"salvor/lab/odd"
	"salvor/lab/personality"
)

// redfishBMC is a Redfish service for one machine, as DSP0266 says, with what salvor, sushy and
// gofish use of it.
type redfishBMC struct {
	spec     machineSpec
	chassis  *faultyChassis
	drive    Drive
	firmware FirmwareSwitch
	log      *slog.Logger
	// initiator is the machine's own iSCSI adapter; nil where it has none.
	initiator interface {
		Initiator() Initiator
		SetInitiator(Initiator)
	}

	// wasUsed: a request with right credentials has come.
	wasUsed atomic.Bool

	mu       sync.Mutex
	sessions map[string]string // id to token
}

const (
	redfishPort    = 8000
	maxRedfishBody = 64 << 10
	maxSessions    = 64
)

func newRedfishBMC(spec machineSpec, chassis *faultyChassis, drive Drive, firmware FirmwareSwitch, log *slog.Logger) *redfishBMC {
	return &redfishBMC{spec: spec, chassis: chassis, drive: drive, firmware: firmware, log: log, sessions: map[string]string{}}
}

func (b *redfishBMC) systemID() string  { return "/redfish/v1/Systems/" + b.spec.Name }
func (b *redfishBMC) chassisID() string { return "/redfish/v1/Chassis/" + b.spec.Name }

const managerID = "/redfish/v1/Managers/bmc"

// handler is the whole service: faults first, then the doors that need no credentials, then the rest.
func (b *redfishBMC) handler() http.Handler {
	open := http.NewServeMux()
	open.HandleFunc("GET /redfish", b.versions)
	open.HandleFunc("GET /redfish/{$}", b.versions)
	open.HandleFunc("GET /redfish/v1", b.root)
	open.HandleFunc("GET /redfish/v1/{$}", b.root)
	open.HandleFunc("POST /redfish/v1/SessionService/Sessions", b.login)
	open.Handle("/", b.authenticated(b.closedRoutes()))
	return b.misbehaving(b.odd(personality.Redfish(b.spec.Like, trimSlash(open))))
}

// odd puts the oddities of the Spec before the service. They begin behind the first request with right credentials, because a client is to
// give up at once when a password that never worked is refused.
func (b *redfishBMC) odd(service http.Handler) http.Handler {
	var oddities []odd.BMCOddity
	for _, text := range b.spec.Odd {
		if o, err := odd.ParseBMCOddity(text); err == nil { // withDefaults has refused all others
			oddities = append(oddities, o)
		}
	}
	strange := odd.BMC(service, oddities...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.wasUsed.Load() {
			strange.ServeHTTP(w, r)
		} else {
			service.ServeHTTP(w, r)
		}
	})
}

func (b *redfishBMC) closedRoutes() http.Handler {
	mux := http.NewServeMux()
	sys, mgr := b.systemID(), managerID
	mux.HandleFunc("GET /redfish/v1/Systems", serveCollection("Computer System Collection", "ComputerSystemCollection", "/redfish/v1/Systems", sys))
	mux.HandleFunc("GET "+sys, b.getSystem)
	mux.HandleFunc("PATCH "+sys, b.patchSystem)
	mux.HandleFunc("POST "+sys+"/Actions/ComputerSystem.Reset", b.reset)
	mux.HandleFunc("GET "+sys+"/EthernetInterfaces", serveCollection("Ethernet Interface Collection", "EthernetInterfaceCollection", sys+"/EthernetInterfaces", sys+"/EthernetInterfaces/1"))
	mux.HandleFunc("GET "+sys+"/EthernetInterfaces/1", b.getNIC)
	if b.initiator != nil {
		b.adapterRoutes(mux)
	}
	mux.HandleFunc("GET /redfish/v1/Managers", serveCollection("Manager Collection", "ManagerCollection", "/redfish/v1/Managers", mgr))
	mux.HandleFunc("GET "+mgr, b.getManager)
	b.logRoutes(mux)
	mux.HandleFunc("GET "+mgr+"/VirtualMedia", serveCollection("Virtual Media Collection", "VirtualMediaCollection", mgr+"/VirtualMedia", mgr+"/VirtualMedia/Cd"))
	mux.HandleFunc("GET "+mgr+"/VirtualMedia/Cd", b.getMedia)
	mux.HandleFunc("POST "+mgr+"/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia", b.insertMedia)
	mux.HandleFunc("POST "+mgr+"/VirtualMedia/Cd/Actions/VirtualMedia.EjectMedia", b.ejectMedia)
	mux.HandleFunc("GET /redfish/v1/Chassis", serveCollection("Chassis Collection", "ChassisCollection", "/redfish/v1/Chassis", b.chassisID()))
	mux.HandleFunc("GET "+b.chassisID(), b.getChassis)
	mux.HandleFunc("GET /redfish/v1/SessionService", b.getSessionService)
	mux.HandleFunc("GET /redfish/v1/SessionService/Sessions", b.getSessions)
	mux.HandleFunc("GET /redfish/v1/SessionService/Sessions/{id}", b.getSession)
	mux.HandleFunc("DELETE /redfish/v1/SessionService/Sessions/{id}", b.logout)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		redfishError(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "nothing is at "+r.URL.Path)
	})
	return mux
}

// trimSlash makes /x/ and /x one resource: clients differ in which they ask for. The request itself stays as the client wrote it, because
// an odd BMC in front of the service looks at the request again.
func trimSlash(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := strings.TrimRight(r.URL.Path, "/"); p != "" && p != r.URL.Path {
			r = r.Clone(r.Context())
			r.URL.Path = p
		}
		next.ServeHTTP(w, r)
	})
}

// misbehaving puts the faults that lie above TCP before everything else.
func (b *redfishBMC) misbehaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxRedfishBody)
		switch fault := b.chassis.current(); fault.Kind {
		case FaultHang, FaultDown:
			// Down also closes the listener; a connection that was open before hangs here.
			<-r.Context().Done()
			return
		case Fault503:
			w.Header().Set("Retry-After", "5")
			redfishError(w, http.StatusServiceUnavailable, "Base.1.8.ServiceTemporarilyUnavailable", "the service is temporarily unavailable")
			return
		case FaultRubbish:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("<html><body>\x00\xff{\"PowerState\": ]]"))
			return
		case FaultSlow:
			if b.chassis.delay(r.Context()) != nil {
				return
			}
		}
		b.log.Debug("redfish", "method", r.Method, "path", r.URL.Path)
		next.ServeHTTP(w, r)
	})
}

func (b *redfishBMC) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, basic := r.BasicAuth()
		switch token := r.Header.Get("X-Auth-Token"); {
		case basic && b.credentialsRight(user, password):
		case token != "" && b.sessionOf(token) != "":
		default:
			w.Header().Set("WWW-Authenticate", `Basic realm="Redfish"`)
			redfishError(w, http.StatusUnauthorized, "Base.1.8.NoValidSession", "valid credentials are needed")
			return
		}
		b.wasUsed.Store(true)
		next.ServeHTTP(w, r)
	})
}

func (b *redfishBMC) credentialsRight(user, password string) bool {
	u := subtle.ConstantTimeCompare([]byte(user), []byte(b.spec.User))
	p := subtle.ConstantTimeCompare([]byte(password), []byte(b.spec.Password))
	return u&p == 1
}

func (b *redfishBMC) sessionOf(token string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, t := range b.sessions {
		if subtle.ConstantTimeCompare([]byte(t), []byte(token)) == 1 {
			return id
		}
	}
	return ""
}

func (b *redfishBMC) login(w http.ResponseWriter, r *http.Request) {
	var req struct{ UserName, Password string }
	if !decodeJSONBody(w, r, &req) {
		return
	}
	if !b.credentialsRight(req.UserName, req.Password) {
		redfishError(w, http.StatusUnauthorized, "Base.1.8.NoValidSession", "user name or password is wrong")
		return
	}
	id, token := randomHex(4), randomHex(16)
	b.mu.Lock()
	if len(b.sessions) >= maxSessions {
		clear(b.sessions) // the sessions of clients that never log out must not lock all out
	}
	b.sessions[id] = token
	b.mu.Unlock()
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", sessionsID+"/"+id)
	writeJSON(w, http.StatusCreated, b.session(id))
}

func (b *redfishBMC) logout(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	_, found := b.sessions[r.PathValue("id")]
	delete(b.sessions, r.PathValue("id"))
	b.mu.Unlock()
	if !found {
		redfishError(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "no such session")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// decodeJSONBody reads a JSON request body; what cannot be read is answered here.
func decodeJSONBody(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(r.Body)
	if err := d.Decode(into); err != nil {
		redfishError(w, http.StatusBadRequest, "Base.1.8.MalformedJSON", "the body is not the JSON wanted here: "+err.Error())
		return false
	}
	return true
}

type jsonObject = map[string]any

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("OData-Version", "4.0")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// redfishError answers in the shape of DSP0266, 8.6.
func redfishError(w http.ResponseWriter, status int, id, message string) {
	writeJSON(w, status, jsonObject{"error": jsonObject{
		"code": id, "message": message,
		"@Message.ExtendedInfo": []jsonObject{{"@odata.type": "#Message.v1_1_1.Message", "MessageId": id, "Message": message, "MessageSeverity": "Critical"}},
	}})
}

func etagOf(v any) string {
	text, _ := json.Marshal(v)
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}
