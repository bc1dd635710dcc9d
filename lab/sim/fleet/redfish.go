package fleet

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"salvor/problem"
	wire "salvor/wire/agent"
)

// What the BMCs ask for: they are simulated, and so are their secrets.
const (
	username = "admin"
	password = "simulated"
)

const (
	systems = "/redfish/v1/Systems"
	maxBody = 64 << 10
	// slowness is how late a slow BMC answers, silence how long a silent one holds a request at most.
	slowness = 3 * time.Second
	silence  = 2 * time.Minute
)

type jsonObject map[string]any

// listen opens the one port of all BMCs, or of all agents. Where each has an address of its own, it is open on the loopback interface only.
func (f *Fleet) listen(ctx context.Context, port int) (net.Listener, error) {
	config, host := net.ListenConfig{}, f.config.Host
	if host == "" {
		host = "0.0.0.0"
		config.Control = func(_, _ string, c syscall.RawConn) error {
			var bound error
			err := c.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), "lo") })
			if err == nil {
				err = bound
			}
			return err
		}
	}
	l, err := config.Listen(ctx, "tcp4", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, problem.Unavailablef("listen for BMCs and agents: %w", err)
	}
	return l, nil
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

func (f *Fleet) server(ctx context.Context) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /redfish/v1/{$}", serveServiceRoot)
	mux.HandleFunc("GET /redfish/v1", serveServiceRoot)
	for pattern, do := range map[string]func(*Fleet, int, http.ResponseWriter, *http.Request){
		"GET " + systems + "/{n}": (*Fleet).system, "PATCH " + systems + "/{n}": (*Fleet).patch,
		"POST " + systems + "/{n}/Actions/ComputerSystem.Reset": (*Fleet).reset,
		"GET " + systems + "/{n}/VirtualMedia":                  (*Fleet).drives, "GET " + systems + "/{n}/VirtualMedia/Cd": (*Fleet).drive,
		"POST " + systems + "/{n}/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia": (*Fleet).insert,
		"POST " + systems + "/{n}/VirtualMedia/Cd/Actions/VirtualMedia.EjectMedia":  (*Fleet).eject,
	} {
		mux.HandleFunc(pattern, f.bmc(do))
	}
	mux.HandleFunc(wire.CommandsPath, f.command)
	return &http.Server{
		Handler: http.MaxBytesHandler(mux, maxBody), BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
	}
}

func writeJSON(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

func writeRedfishError(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, jsonObject{"error": jsonObject{"code": "Base.1.8.GeneralError", "message": text}})
}

func odataLink(path string) jsonObject { return jsonObject{"@odata.id": path} }

func serveServiceRoot(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, jsonObject{"@odata.id": "/redfish/v1/", "Id": "RootService", "RedfishVersion": "1.11.0", "Product": "salvor sim", "Systems": odataLink(systems)})
}

// bmc finds the machine of a request, lets its fault have its way, and asks for name and password.
func (f *Fleet) bmc(do func(*Fleet, int, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.counts.bmc.Add(1)
		i, err := strconv.Atoi(r.PathValue("n"))
		if err != nil || i < 0 || i >= len(f.machines) {
			writeRedfishError(w, http.StatusNotFound, "there is no such system")
			return
		}
		wait := time.Duration(0)
		switch f.faultOf(i) {
		case silent:
			wait = silence
		case slow:
			wait = slowness
		case busy:
			writeRedfishError(w, http.StatusServiceUnavailable, "the BMC is busy")
			return
		case none, lying:
		}
		if wait > 0 {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(wait):
			}
			if wait == silence {
				panic(http.ErrAbortHandler)
			}
		}
		user, word, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(user+":"+word), []byte(username+":"+password)) != 1 {
			writeRedfishError(w, http.StatusUnauthorized, "wrong name or password")
			return
		}
		do(f, i, w, r)
	}
}

// faultOf a BMC: none before all are enrolled.
func (f *Fleet) faultOf(i int) bmcFault {
	if !f.faulty.Load() {
		return none
	}
	return f.machines[i].fault
}

func (f *Fleet) system(i int, w http.ResponseWriter, _ *http.Request) {
	path := systems + "/" + strconv.Itoa(i)
	m := &f.machines[i]
	m.mu.Lock()
	power, target, enabled := "Off", m.target, m.enabled
	if m.on {
		power = "On"
	}
	m.mu.Unlock()
	if target == "" {
		target, enabled = targetNone, enabledNever
	}
	mode := "UEFI"
	if f.config.BIOS {
		mode = "Legacy"
	}
	writeJSON(w, http.StatusOK, jsonObject{
		"@odata.id": path, "Id": strconv.Itoa(i), "Name": f.Name(i), "UUID": f.UUID(i), "SystemType": "Physical", "Manufacturer": "salvor", "Model": "simulated",
		"PowerState": power, "Status": jsonObject{"State": "Enabled", "Health": "OK"}, "VirtualMedia": odataLink(path + "/VirtualMedia"),
		"Boot": jsonObject{
			"BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": enabled, "BootSourceOverrideMode": mode,
			"BootSourceOverrideTarget@Redfish.AllowableValues": []string{targetNone, targetPXE, "Hdd", targetCD},
		},
		"Actions": jsonObject{"#ComputerSystem.Reset": jsonObject{
			"target": path + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": []string{"On", "ForceOff", "GracefulShutdown", "ForceRestart"},
		}},
	})
}

// decodeJSONBody decodes a request; false: it was refused.
func decodeJSONBody(w http.ResponseWriter, r *http.Request, into any) bool {
	err := json.NewDecoder(r.Body).Decode(into)
	if err != nil {
		writeRedfishError(w, http.StatusBadRequest, "the body is no JSON that can be read")
	}
	return err == nil
}

func (f *Fleet) patch(i int, w http.ResponseWriter, r *http.Request) {
	var in struct {
		Boot struct {
			Target  string `json:"BootSourceOverrideTarget"`
			Enabled string `json:"BootSourceOverrideEnabled"`
		}
	}
	if !decodeJSONBody(w, r, &in) {
		return
	}
	// Only words that are known are kept: there is one copy of each for all machines.
	known := []string{"", targetNone, targetPXE, "Hdd", targetCD, enabledNever, enabledOnce, "Continuous"}
	target, enabled := slices.Index(known, in.Boot.Target), slices.Index(known, in.Boot.Enabled)
	if target < 0 || enabled < 0 {
		writeRedfishError(w, http.StatusBadRequest, "the boot target is not one of those allowed")
		return
	}
	if f.faultOf(i) != lying {
		m := &f.machines[i]
		m.mu.Lock()
		if target > 0 {
			m.target = known[target]
		}
		if enabled > 0 {
			m.enabled = known[enabled]
		}
		m.mu.Unlock()
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *Fleet) reset(i int, w http.ResponseWriter, r *http.Request) {
	var in struct{ ResetType string }
	if !decodeJSONBody(w, r, &in) {
		return
	}
	turns, ok := map[string][]bool{"On": {true}, "ForceOff": {false}, "GracefulShutdown": {false}, "ForceRestart": {false, true}}[in.ResetType]
	if !ok {
		writeRedfishError(w, http.StatusBadRequest, "there is no such reset")
		return
	}
	if f.faultOf(i) != lying {
		for _, on := range turns {
			f.power(i, on)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *Fleet) drives(i int, w http.ResponseWriter, _ *http.Request) {
	path := systems + "/" + strconv.Itoa(i) + "/VirtualMedia"
	writeJSON(w, http.StatusOK, jsonObject{"@odata.id": path, "Members": []jsonObject{odataLink(path + "/Cd")}, "Members@odata.count": 1})
}

func (f *Fleet) drive(i int, w http.ResponseWriter, _ *http.Request) {
	path := systems + "/" + strconv.Itoa(i) + "/VirtualMedia/Cd"
	m := &f.machines[i]
	m.mu.Lock()
	image := m.image
	m.mu.Unlock()
	var shown any
	if image != "" {
		shown = image
	}
	writeJSON(w, http.StatusOK, jsonObject{
		"@odata.id": path, "Id": "Cd", "Name": "Virtual CD", "MediaTypes": []string{"CD", "DVD"}, "Image": shown, "Inserted": image != "", "WriteProtected": true,
		"Actions": jsonObject{
			"#VirtualMedia.InsertMedia": jsonObject{"target": path + "/Actions/VirtualMedia.InsertMedia"},
			"#VirtualMedia.EjectMedia":  jsonObject{"target": path + "/Actions/VirtualMedia.EjectMedia"},
		},
	})
}

func (f *Fleet) insert(i int, w http.ResponseWriter, r *http.Request) {
	var in struct{ Image string }
	if !decodeJSONBody(w, r, &in) {
		return
	}
	if !strings.HasPrefix(in.Image, "http://") && !strings.HasPrefix(in.Image, "https://") {
		writeRedfishError(w, http.StatusBadRequest, "want the URL of an image")
		return
	}
	f.load(i, in.Image)
	w.WriteHeader(http.StatusNoContent)
}

func (f *Fleet) eject(i int, w http.ResponseWriter, _ *http.Request) {
	f.load(i, "")
	w.WriteHeader(http.StatusNoContent)
}

// load changes what is in the drive of a machine.
func (f *Fleet) load(i int, image string) {
	if f.faultOf(i) == lying {
		return
	}
	m := &f.machines[i]
	m.mu.Lock()
	m.image = image
	m.mu.Unlock()
}
