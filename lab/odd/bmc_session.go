package odd

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"time"
)

// sessionAnswer changes the answer to a login.
func sessionAnswer(change func(header http.Header, body map[string]any, r *http.Request) int) func(Place) serveFunc {
	return func(Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method != http.MethodPost || !isSession(r) {
				next.ServeHTTP(w, r)
				return
			}
			a := askService(r, next)
			if a.Code >= 300 {
				sendBytes(w, a.Code, a.Header(), a.Body.Bytes())
				return
			}
			header := maps.Clone(a.Header())
			at := header.Get("Location")
			body := map[string]any{"@odata.id": at, "Id": lastSegment(at), "Name": "Session"}
			status := change(header, body, r)
			text := []byte{}
			if len(body) > 0 {
				text, _ = json.Marshal(body)
				header.Set("Content-Type", "application/json")
			}
			sendBytes(w, status, header, text)
		}
	}
}

func sessionLocation(change func(string) string) func(Place) serveFunc {
	return sessionAnswer(func(header http.Header, body map[string]any, _ *http.Request) int {
		if at := change(header.Get("Location")); at != "" {
			header.Set("Location", at)
		} else {
			header.Del("Location")
		}
		return http.StatusCreated
	})
}

var sessionKinds = []*BMCKind{
	{Name: "session: Location in the body alone", Source: "openbmc 3353", Scope: ScopeSession, serve: sessionLocation(func(string) string { return "" })},
	{Name: "session: relative Location", Source: "nv-redfish PR 125", Scope: ScopeSession, serve: sessionLocation(func(at string) string { return "Sessions/" + lastSegment(at) })},
	{Name: "session: Location without first slash", Source: "nv-redfish PR 125", Scope: ScopeSession, serve: sessionLocation(func(at string) string { return strings.TrimLeft(at, "/") })},
	{Name: "session: Location at an unknown host", Source: "BMCs behind a proxy", Scope: ScopeSession, serve: sessionLocation(func(at string) string { return unknownHost + at })},
	{Name: "session: Location with a slash at its end", Source: "Supermicro", Scope: ScopeSession, serve: sessionLocation(func(at string) string { return at + "/" })},
	{Name: "session: Location that is no URL", Source: "hostile", Scope: ScopeSession, serve: sessionLocation(func(string) string { return "http://[::1%/\t" })},
	{Name: "session: no Location and no body", Source: "old BMCs", Scope: ScopeSession, Leaks: true, serve: sessionAnswer(func(header http.Header, body map[string]any, _ *http.Request) int {
		header.Del("Location")
		clear(body)
		return http.StatusCreated
	})},
	{Name: "session: 200 for the login", Source: "old Huawei", Scope: ScopeSession, serve: sessionAnswer(func(http.Header, map[string]any, *http.Request) int { return http.StatusOK })},
	{Name: "session: no X-Auth-Token", Source: "old BMCs: the token in the body", Scope: ScopeSession, Leaks: true, Cost: CostResource, Words: []string{"X-Auth-Token"},
		serve: sessionAnswer(func(header http.Header, _ map[string]any, _ *http.Request) int {
			header.Del("X-Auth-Token")
			return http.StatusCreated
		})},
	{Name: "session: full for ever", Source: "gofish 75; check_redfish 89", Scope: ScopeSession, Cost: CostResource, Words: []string{"session"}, serve: loginFails(0, func(w http.ResponseWriter) { sendSessionsFull(w) })},
	{Name: "session: full for 20 s", Source: "gofish 75; check_redfish 89", Scope: ScopeSession, serve: loginFails(20*time.Second, func(w http.ResponseWriter) { sendSessionsFull(w) })},
	{Name: "session: 401 when full, for 20 s", Source: "python-redfish-library 160", Scope: ScopeSession, Cost: CostResource, Words: []string{"session", "401", "redfish_password"}, serve: loginFails(20*time.Second, sendUnauthorized)},
	{Name: "session: one 401 for the login", Source: "infra-controller PR 69", Scope: ScopeSession, serve: loginFails(time.Millisecond, sendUnauthorized)},
	{Name: "session: forgotten after 3 requests", Source: "BMCs with few sessions", Scope: ScopeSession, serve: forgetSessions(3)},
	{Name: "session: forgotten after 1 request", Source: "BMCs with few sessions", Scope: ScopeSession, Cost: CostResource, Words: []string{"session", "401"}, serve: forgetSessions(1)},
	{Name: "session: DELETE answers 404", Source: "BMCs that forget", Scope: ScopeSession, Leaks: true, serve: logoutFails(http.StatusNotFound)},
	{Name: "session: DELETE answers 405", Source: "old AMI", Scope: ScopeSession, Leaks: true, serve: logoutFails(http.StatusMethodNotAllowed)},
	{Name: "session: DELETE answers 503 once", Source: "many", Scope: ScopeSession, Leaks: true, serve: func(Place) serveFunc {
		return firstTimes(1, func(r *http.Request) bool { return r.Method == http.MethodDelete && isSession(r) }, func(w http.ResponseWriter, _ *http.Request) { sendBusy(w, "1") })(Place{})
	}},
}

func sendSessionsFull(w http.ResponseWriter) {
	sendJSON(w, http.StatusServiceUnavailable, refusalDocument("Base.1.8.SessionLimitExceeded", "The session establishment failed due to the number of simultaneous sessions exceeding the limit of the implementation."))
}

// loginFails has logins fail for a time after the first; 0: for ever.
func loginFails(long time.Duration, answer func(http.ResponseWriter)) func(Place) serveFunc {
	return func(Place) serveFunc {
		var first firstTime
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPost && isSession(r) && (first.since() < long || long == 0) {
				answer(w)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

func logoutFails(status int) func(Place) serveFunc {
	return func(Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodDelete && isSession(r) {
				sendJSON(w, status, refusalDocument("Base.1.8.GeneralError", "no"))
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

// forgetSessions has the service forget each session after some requests.
func forgetSessions(after int) func(Place) serveFunc {
	return func(Place) serveFunc {
		used := sessionUsage{}
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			token := r.Header.Get("X-Auth-Token")
			if token == "" || isSession(r) {
				next.ServeHTTP(w, r)
				return
			}
			if used.add(token) > after {
				sendUnauthorized(w)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}
