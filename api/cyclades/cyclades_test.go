package cyclades_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"salvor/access"
	"salvor/api/cyclades"
	"salvor/compute"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/fixture"
)

// states are servers as they are found, by name.
var states = map[string]func(*compute.Server){
	"built":      func(s *compute.Server) { s.State, s.Task = compute.Building, compute.Spawning },
	"started":    func(s *compute.Server) { s.State, s.Power = compute.Active, compute.PowerOn },
	"stopped":    func(s *compute.Server) { s.State, s.Power = compute.Stopped, compute.PowerOff },
	"error":      func(s *compute.Server) { s.State = compute.Errored },
	"error+open": func(s *compute.Server) { s.State = compute.Errored; session(rescue.Failed)(s) },
	"rescued off": func(s *compute.Server) {
		s.State, s.Power = compute.Rescued, compute.PowerOff
		session(rescue.Prepared)(s)
	},
	"rescued on": func(s *compute.Server) { s.State, s.Power = compute.Rescued, compute.PowerOn; session(rescue.Ready)(s) },
	"starting":   func(s *compute.Server) { s.State, s.Task = compute.Stopped, compute.Starting },
	"rescuing": func(s *compute.Server) {
		s.State, s.Task = compute.Stopped, compute.Rescuing
		session(rescue.Preparing)(s)
	},
	"deleted":      func(s *compute.Server) { s.State = compute.Deleted },
	"locked":       func(s *compute.Server) { s.State, s.Locked = compute.Stopped, true },
	"failed build": func(s *compute.Server) { s.State, s.LaunchedAt = compute.Errored, time.Time{} },
	"never booted": func(s *compute.Server) { s.State, s.LaunchedAt = compute.Stopped, time.Time{} },
}

func session(state rescue.State) func(*compute.Server) {
	return func(s *compute.Server) { s.Rescue = &rescue.Session{State: state, Source: &rescue.Source{ImageID: 1}} }
}

// answers are what each state says to each action: empty is 202.
var answers = map[string]map[string]string{
	"built":        {"start": "409 Server '%s' is being built.", "shutdown": "409 Server '%s' is being built.", "reboot": "409 Server '%s' is being built.", "rescue": "409 Server '%s' is being built.", "unrescue": "409 Server '%s' is being built."},
	"started":      {"start": "400 Cannot perform 'START' action while server is in 'STARTED' state.", "shutdown": "", "reboot": "", "rescue": "400 Cannot perform 'RESCUE' action while server is in 'STARTED' state.", "unrescue": "400 Cannot perform 'UNRESCUE' action while server is not in rescue mode."},
	"stopped":      {"start": "", "shutdown": "400 Cannot perform 'STOP' action while server is in 'STOPPED' state.", "reboot": "400 Cannot perform 'REBOOT' action while server is in 'STOPPED' state.", "rescue": "", "unrescue": "400 Cannot perform 'UNRESCUE' action while server is not in rescue mode."},
	"failed build": {"start": "400 Cannot perform 'START' action while server is in 'ERROR' state.", "shutdown": "400 Cannot perform 'STOP' action while server is in 'ERROR' state.", "reboot": "400 Cannot perform 'REBOOT' action while server is in 'ERROR' state.", "rescue": "400 Cannot perform 'RESCUE' action while server is in 'ERROR' state.", "unrescue": "400 Cannot perform 'UNRESCUE' action while server is in 'ERROR' state."},
	"error":        {"start": "400 Cannot perform 'START' action while server is in 'ERROR' state.", "shutdown": "", "reboot": "400 Cannot perform 'REBOOT' action while server is in 'ERROR' state.", "rescue": "400 Cannot perform 'RESCUE' action while server is in 'ERROR' state.", "unrescue": "400 Cannot perform 'UNRESCUE' action while server is in 'ERROR' state."},
	// No dead end: what failed may be shut down, and put back.
	"error+open":   {"start": "400 Cannot perform 'START' action while server is in 'ERROR' state.", "shutdown": "", "reboot": "400 Cannot perform 'REBOOT' action while server is in 'ERROR' state.", "rescue": "400 Cannot perform 'RESCUE' action while server is in 'ERROR' state.", "unrescue": ""},
	"rescued off":  {"start": "", "shutdown": "400 Cannot perform 'STOP' action while server is in 'STOPPED' state.", "reboot": "400 Cannot perform 'REBOOT' action while server is in 'STOPPED' state.", "rescue": "400 Cannot perform 'RESCUE' action while server is in rescue mode.", "unrescue": ""},
	"rescued on":   {"start": "400 Cannot perform 'START' action while server is in 'STARTED' state.", "shutdown": "", "reboot": "", "rescue": "400 Cannot perform 'RESCUE' action while server is in rescue mode.", "unrescue": "400 Cannot perform 'UNRESCUE' action while server is in 'STARTED' state."},
	"starting":     {"start": "400 Cannot perform 'START' action while there is a pending 'START'.", "shutdown": "400 Cannot perform 'STOP' action while there is a pending 'START'.", "reboot": "400 Cannot perform 'REBOOT' action while there is a pending 'START'.", "rescue": "400 Cannot perform 'RESCUE' action while there is a pending 'START'.", "unrescue": "400 Cannot perform 'UNRESCUE' action while there is a pending 'START'."},
	"rescuing":     {"start": "400 Cannot perform 'START' action while there is a pending 'RESCUE'.", "shutdown": "400 Cannot perform 'STOP' action while there is a pending 'RESCUE'.", "reboot": "400 Cannot perform 'REBOOT' action while there is a pending 'RESCUE'.", "rescue": "400 Cannot perform 'RESCUE' action while there is a pending 'RESCUE'.", "unrescue": "400 Cannot perform 'UNRESCUE' action while there is a pending 'RESCUE'."},
	"deleted":      {"start": "400 Server '%s' has been deleted.", "shutdown": "400 Server '%s' has been deleted.", "reboot": "400 Server '%s' has been deleted.", "rescue": "400 Server '%s' has been deleted.", "unrescue": "400 Server '%s' has been deleted."},
	"locked":       {"start": "403 Server '%s' is locked.", "shutdown": "403 Server '%s' is locked.", "reboot": "403 Server '%s' is locked.", "rescue": "403 Server '%s' is locked.", "unrescue": "403 Server '%s' is locked."},
	"never booted": {"start": "400 Cannot perform 'START' action while server is in 'STOPPED' state.", "rescue": "400 Cannot perform 'RESCUE' action while server is in 'STOPPED' state."},
}

func TestEveryStateAndAction(t *testing.T) {
	w := newWorld(t)
	for state, change := range states {
		for action, want := range answers[state] {
			s := w.server(change)
			status, name, message := w.act(s, `{"`+action+`": {}}`)
			if want == "" {
				if status != http.StatusAccepted || message != "" {
					t.Errorf("%s %s: %d %s", state, action, status, message)
				}
				continue
			}
			want = strings.ReplaceAll(want, "%s", strconv.FormatInt(s.Num, 10))
			if got := strconv.Itoa(status) + " " + message; got != want {
				t.Errorf("%s %s: got %s, want %s", state, action, got, want)
			}
			if fault := map[int]string{400: "badRequest", 403: "forbidden", 409: "buildInProgress"}[status]; name != fault {
				t.Errorf("%s %s: fault %s", state, action, name)
			}
		}
	}
}

func TestARescueOverThisFace(t *testing.T) {
	w := newWorld(t)
	s := w.server(states["stopped"])
	path := "/servers/" + strconv.FormatInt(s.Num, 10)
	if status, o := w.ask("POST", path+"/action", `{"rescue": {"rescue_image_ref": 1}}`); status != 202 || o != nil {
		t.Fatal(status, o)
	}
	_, o := w.ask("GET", path, "")
	v := o["server"].(jsonObject)
	if v["status"] != "STOPPED" || v["SNF:rescue"] != false || v["SNF:task_state"] != "RESCUING" || v["id"] != float64(s.Num) || v["flavor"].(jsonObject)["id"] != float64(1) {
		t.Fatalf("%+v", v)
	}
	if _, has := v["adminPass"]; has {
		t.Fatal("a password")
	}
	s = w.server(states["rescued off"])
	_, o = w.ask("GET", "/servers/detail", "")
	found := false
	for _, e := range o["servers"].([]any) {
		v := e.(jsonObject)
		found = found || v["id"] == float64(s.Num) && v["status"] == "STOPPED" && v["SNF:rescue"] == true && v["SNF:task_state"] == ""
	}
	if !found {
		t.Fatalf("%+v", o)
	}
}

// TestAFailureIsTold: a rescue that failed leaves a server stopped, and the diagnostics say why. What goes well ends them.
func TestAFailureIsTold(t *testing.T) {
	w := newWorld(t)
	for state, fault := range map[compute.VMState]*compute.Fault{
		compute.Stopped: {Code: 500, Message: "cannot be rescued: live.iso is not on this host"}, compute.Errored: {Code: 500, Message: "its start failed"}, compute.Active: nil,
	} {
		s := w.server(func(s *compute.Server) { s.State, s.Fault = state, fault })
		_, got := w.ask("GET", "/servers/"+strconv.FormatInt(s.Num, 10), "")
		told, _ := got["server"].(jsonObject)["diagnostics"].([]any)
		switch {
		case fault == nil && len(told) != 0, fault != nil && (len(told) != 1 || told[0].(jsonObject)["message"] != fault.Message || told[0].(jsonObject)["level"] != "ERROR"):
			t.Errorf("%s: %v", state, told)
		}
	}
}

// TestAFaultQuotesForAdministratorsOnly reads the diagnostics of a server as its owner and as an administrator, one after the other: lists keep
// the JSON that they showed, so the second reader must not get the JSON of the first.
func TestAFaultQuotesForAdministratorsOnly(t *testing.T) {
	w := newWorld(t)
	s := w.server(func(s *compute.Server) {
		s.State, s.Fault = compute.Errored, &compute.Fault{Code: 500, Message: "the host says " + problem.Quote("no space on /srv/disks")}
	})
	for _, reader := range []struct {
		name string
		who  access.Principal
		want string
	}{
		{"the owner", fixture.Member("ann"), "the host says " + problem.Redacted},
		{"an administrator", access.Principal{Role: access.Admin}, s.Fault.Message},
		{"the owner again", fixture.Member("ann"), "the host says " + problem.Redacted},
	} {
		w.auth.Principal = reader.who
		_, one := w.ask("GET", "/servers/"+strconv.FormatInt(s.Num, 10), "")
		_, all := w.ask("GET", "/servers/detail", "")
		for path, server := range map[string]any{"GET /servers/ID": one["server"], "GET /servers/detail": all["servers"].([]any)[0]} {
			told := server.(jsonObject)["diagnostics"].([]any)
			if got := told[0].(jsonObject)["message"]; got != reader.want {
				t.Errorf("%s, %s: the diagnostics say %q, want %q", path, reader.name, got, reader.want)
			}
		}
	}
}

func TestRescueImagesThatAreNotThere(t *testing.T) {
	w := newWorld(t)
	for ref, want := range map[string]string{
		"99": "404 itemNotFound Rescue image 99 not found", `"99"`: "404 itemNotFound Rescue image 99 not found",
		`"x"`: "400 badRequest", "-1": "400 badRequest", "1.5": "400 badRequest", "1e300": "400 badRequest", "[]": "400 badRequest", "true": "400 badRequest", "{}": "400 badRequest",
	} {
		status, name, message := w.act(w.server(states["stopped"]), `{"rescue": {"rescue_image_ref": `+ref+`}}`)
		if got := strconv.Itoa(status) + " " + name + " " + message; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", ref, got)
		}
	}
	if status, _, _ := w.act(w.server(states["stopped"]), `{"rescue": {"rescue_image_ref": "1"}}`); status != 202 {
		t.Error(status)
	}
}

func TestTheDoorsOfRescueCanBeClosed(t *testing.T) {
	w := newWorld(t, func(c *cyclades.Config) { c.NoRescue = true })
	for _, body := range []string{`{"rescue": {}}`, `{"unrescue": {}}`} {
		if status, name, _ := w.act(w.server(states["stopped"]), body); status != 404 || name != "featureNotEnabled" {
			t.Error(body, status, name)
		}
	}
	if status, _, _ := w.act(w.server(states["stopped"]), `{"start": {}}`); status != 202 {
		t.Error(status)
	}
}

func TestServersAreListedAndDeleted(t *testing.T) {
	w := newWorld(t)
	s := w.server(states["started"])
	path := "/servers/" + strconv.FormatInt(s.Num, 10)
	if status, o := w.ask("GET", "/servers", ""); status != 200 || len(o["servers"].([]any)) != 1 {
		t.Fatal(status, o)
	}
	if status, _ := w.ask("GET", "/servers?changes-since=2100-01-01T00:00:00Z", ""); status != 304 {
		t.Fatal(status)
	}
	if status, _ := w.ask("GET", "/servers?changes-since=x", ""); status != 400 {
		t.Fatal(status)
	}
	w.auth.Principal = fixture.Member("eve")
	for _, ask := range [][2]string{{"GET", path}, {"DELETE", path}} {
		if status, o := w.ask(ask[0], ask[1], ""); status != 404 || o["itemNotFound"].(jsonObject)["message"] != "Server not found." {
			t.Fatal(status, o)
		}
	}
	if _, o := w.ask("GET", "/servers/detail", ""); len(o["servers"].([]any)) != 0 {
		t.Fatal(o)
	}
	w.auth.Principal = fixture.Member("ann")
	if status, _ := w.ask("GET", "/servers/x", ""); status != 400 {
		t.Fatal(status)
	}
	if status, _ := w.ask("DELETE", path, ""); status != 204 {
		t.Fatal(status)
	}
	if _, o := w.ask("GET", path, ""); o["server"].(jsonObject)["SNF:task_state"] != "DESTROYING" {
		t.Fatal(o)
	}
}

func TestFlavorsImagesAndTheVersion(t *testing.T) {
	w := newWorld(t)
	for path, key := range map[string]string{"/flavors": "flavors", "/flavors/detail": "flavors", "/flavors/1": "flavor", "/images": "images",
		"/images/detail": "images", "/images/" + w.image.ID: "image", "": "version"} {
		if status, o := w.ask("GET", path, ""); status != 200 || o[key] == nil {
			t.Errorf("%s: %d %v", path, status, o)
		}
	}
	for path, want := range map[string]int{"/flavors/99": 404, "/flavors/x": 400, "/images/x": 404, "/nothing": 404} {
		if status, o := w.ask("GET", path, ""); status != want || len(o) != 1 {
			t.Errorf("%s: %d %v", path, status, o)
		}
	}
	if status, o := w.ask("PUT", "/flavors", ""); status != 405 || o["notAllowed"] == nil {
		t.Error(status, o)
	}
}

// FuzzAction: whatever the body is, the answer is 202 or a clear fault.
func FuzzAction(f *testing.F) {
	for _, seed := range []string{`{"rescue": {"rescue_image_ref": 1}}`, `{"unrescue": null}`, `{"start": {}, "stop": {}}`, `{"reboot": {"type": "HARD"}}`,
		`{"shutdown": {"timeout": 1e9}}`, `[]`, `{"rescue": {"rescue_image_ref": 99999999999999999999}}`, "{", `{"rescue": "x"}`, "\x00"} {
		f.Add(seed)
	}
	w := newWorld(f)
	s := w.server(states["stopped"])
	f.Fuzz(func(t *testing.T, body string) {
		here := *w
		here.TB = t
		switch status, name, message := here.act(s, body); {
		case status == 202:
		case status < 400 || status >= 500 || name == "" || message == "":
			t.Errorf("%q: %d %s %s", body, status, name, message)
		}
	})
}
