package odd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

var orderKinds = []*BMCKind{
	{Name: "order: a connection is cut when it is used again", Source: "sushy note disable-conn-pooling", Scope: ScopeService, serve: func(Place) serveFunc {
		var seen connectionSet
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !seen.first(r.RemoteAddr) {
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		}
	}},
	{Name: "order: cut after it was taken", Source: "many: the BMC's network restarts", Scope: ScopeOrder, serve: func(p Place) serveFunc {
		var once requestCounter
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if p.is(r) && isOrder(r) && once.add(1) == 1 {
				askService(r, next)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		}
	}},
	{Name: "order: always cut after it was taken", Source: "BMCs that reset their network with the machine", Scope: ScopeOrder, Cost: CostResource,
		serve: answerTakenOrders(func(http.ResponseWriter, *http.Request, *httptest.ResponseRecorder) { panic(http.ErrAbortHandler) })},
	{Name: "order: taken, and 500", Source: "iDRAC", Scope: ScopeOrder, Cost: CostResource, Words: []string{"500"},
		serve: answerTakenOrders(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) { sendInternalError(w) })},
	{Name: "order: 301 to the path with a slash", Source: "old Supermicro: check_redfish PR 187", Scope: ScopeService, serve: redirectToSlash(http.StatusMovedPermanently)},
	{Name: "order: 302 to the path with a slash", Source: "old Supermicro", Scope: ScopeService, serve: redirectToSlash(http.StatusFound)},
	{Name: "order: 307 to the path with a slash", Source: "OpenBMC", Scope: ScopeService, serve: redirectToSlash(http.StatusTemporaryRedirect)},
	{Name: "order: 308 to the path with a slash", Source: "iLO 5", Scope: ScopeService, serve: redirectToSlash(http.StatusPermanentRedirect)},
	{Name: "order: 308 to the whole URL of an unknown host with a slash", Source: "BMCs behind a proxy", Scope: ScopeService, Cost: CostResource, serve: redirectTo(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/") {
			return 0, ""
		}
		return http.StatusPermanentRedirect, unknownHost + r.URL.Path + "/"
	}), Words: []string{"308", "host", "redirect"}},
	{Name: "order: 302 to another host", Source: "hostile", Scope: ScopeOrder, Cost: CostResource, Words: []string{"302", "another host", "redirect"},
		serve: answerOrders(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://elsewhere.invalid"+r.URL.Path)
			w.WriteHeader(http.StatusFound)
		})},
	{Name: "order: 202 with a task", Source: "Redfishtool 55; lenovo PR 75", Scope: ScopeOrder, serve: orderTask{location: taskPath}.serve},
	{Name: "order: 202 with a task that is gone when it is over", Source: "OpenBMC", Scope: ScopeOrder, serve: orderTask{location: taskPath, forgets: true}.serve},
	{Name: "order: 202 with a task that fails", Source: "sushy note raise-error-on-async-task-failure", Scope: ScopeOrder, Cost: CostResource, Words: []string{"404"}, serve: orderTask{location: taskPath, fails: true}.serve},
	{Name: "order: 202 with a relative Location", Source: "nv-redfish PR 125", Scope: ScopeOrder, Cost: CostResource, Words: []string{"404"},
		serve: orderTask{fails: true, location: func(p string, r *http.Request) string { return relativeTo(cleanPath(r.URL.Path), p) }}.serve},
	{Name: "order: 202 with a Location at an unknown host", Source: "BMCs behind a proxy", Scope: ScopeOrder, Cost: CostResource, Words: []string{"404"},
		serve: orderTask{fails: true, location: func(p string, _ *http.Request) string { return unknownHost + p }}.serve},
	{Name: "order: 202 with the task in the body alone", Source: "old iDRAC", Scope: ScopeOrder, Cost: CostResource, Words: []string{"404"}, serve: orderTask{fails: true}.serve},
	{Name: "order: 202 with a monitor", Source: "DSP0266, 12.2", Scope: ScopeOrder, serve: orderTask{location: taskPath, monitor: true, noBody: true}.serve},
	{Name: "order: 202 with a monitor that fails", Source: "DSP0266, 12.2", Scope: ScopeOrder, Cost: CostResource, Words: []string{"404"}, serve: orderTask{location: taskPath, monitor: true, noBody: true, fails: true}.serve},
	{Name: "order: 202 and no word more", Source: "AMI", Scope: ScopeOrder, serve: orderTask{noBody: true}.serve},
	{Name: "order: its own ETag is refused", Source: "sushy: etag handling of Lenovo", Scope: ScopePatch, serve: demandETag(func(r *http.Request, tag string) int {
		if match := r.Header.Get("If-Match"); match != "" && match != "*" && match != tag[2:] {
			return http.StatusPreconditionFailed
		}
		return 0
	}, true)},
	{Name: "order: no tag but none is taken", Source: "old AMI", Scope: ScopePatch, serve: demandETag(func(r *http.Request, _ string) int {
		if r.Header.Get("If-Match") != "" {
			return http.StatusPreconditionFailed
		}
		return 0
	}, false)},
	{Name: "order: If-Match is demanded", Source: "AMI: 428", Scope: ScopePatch, serve: demandETag(func(r *http.Request, tag string) int {
		switch match := r.Header.Get("If-Match"); {
		case match == "":
			return http.StatusPreconditionRequired
		case match != tag && match != "*":
			return http.StatusPreconditionFailed
		}
		return 0
	}, false)},
	{Name: "order: If-Match is demanded and no tag shown", Source: "AMI: 428 without ETag", Scope: ScopePatch, serve: func(p Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if p.is(r) && r.Method == http.MethodPatch && r.Header.Get("If-Match") == "" {
				sendJSON(w, http.StatusPreconditionRequired, refusalDocument("Base.1.8.PreconditionRequired", "The request needs If-Match."))
				return
			}
			r.Header.Del("If-Match")
			next.ServeHTTP(w, r)
		}
	}},
	{Name: "order: the settings resource alone takes changes", Source: "AMI: Redfish-Tacklebox 111", Scope: ScopeDirectPatch, serve: settingsOnly},
	{Name: "order: 200 with a message of success", Source: "iLO: Base.1.0.Success", Scope: ScopeOrder,
		serve: answerTakenOrders(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
			header := a.Header().Clone()
			header.Set("Content-Type", "application/json")
			status := a.Code
			if status == http.StatusNoContent {
				status = http.StatusOK
			}
			text, _ := json.Marshal(refusalDocument("Base.1.18.Success", "The request completed successfully."))
			sendBytes(w, status, header, text)
		})},
	{Name: "order: read back 5 s later", Source: "many: caches", Scope: ScopeOrder, serve: staleReads(5 * time.Second)},
}

func taskPath(p string, _ *http.Request) string { return p }

func redirectToSlash(status int) func(Place) serveFunc {
	return redirectTo(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/") {
			return 0, ""
		}
		to := r.URL.Path + "/"
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		return status, to
	})
}

func redirectTo(to func(*http.Request) (int, string)) func(Place) serveFunc {
	return func(p Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if status, at := to(r); p.is(r) && status != 0 {
				w.Header().Set("Location", at)
				w.WriteHeader(status)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

// demandETag shows a tag of the resource at the place, and refuses changes by it.
func demandETag(refuse func(r *http.Request, tag string) int, weak bool) func(Place) serveFunc {
	return func(p Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !p.is(r) || r.Method != http.MethodGet && r.Method != http.MethodPatch {
				next.ServeHTTP(w, r)
				return
			}
			read := r.Clone(r.Context())
			read.Method, read.Body = http.MethodGet, http.NoBody
			a := askService(read, next)
			tag := fmt.Sprintf("%q", strconv.FormatUint(hashOf(a.Body.Bytes()), 16))
			if weak {
				tag = "W/" + tag
			}
			if r.Method == http.MethodGet {
				header := a.Header().Clone()
				header.Set("ETag", tag)
				sendBytes(w, a.Code, header, a.Body.Bytes())
				return
			}
			if status := refuse(r, tag); status != 0 {
				sendJSON(w, status, refusalDocument("Base.1.8.PreconditionFailed", "The ETag supplied did not match."))
				return
			}
			r.Header.Del("If-Match")
			next.ServeHTTP(w, r)
		}
	}
}

// settingsOnly shows a settings resource beside the one at the place, which refuses changes by itself.
func settingsOnly(p Place) serveFunc {
	at := p.Path + "/OddSettings"
	show := changeDocument(func(_ Place, _ *http.Request, doc any) any {
		if o, ok := doc.(map[string]any); ok && o["@Redfish.Settings"] == nil {
			o["@Redfish.Settings"] = map[string]any{"SettingsObject": odataLink(at)}
		}
		return doc
	})(p)
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch {
		case cleanPath(r.URL.Path) == at:
			r.URL.Path = p.Path
			next.ServeHTTP(w, r)
		case p.is(r) && r.Method == http.MethodPatch:
			sendJSON(w, http.StatusMethodNotAllowed, refusalDocument("Base.1.8.OperationNotAllowed", "The HTTP method is not allowed on this resource."))
		default:
			show(w, r, next)
		}
	}
}

// staleReads shows the whole service as it was for a time after an order of the place.
func staleReads(long time.Duration) func(Place) serveFunc {
	return func(p Place) serveFunc {
		cache := staleCache{}
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			switch {
			case r.Method == http.MethodGet:
				cache.read(w, r, next)
			case p.is(r) && isOrder(r):
				cache.freeze(long)
				next.ServeHTTP(w, r)
			default:
				next.ServeHTTP(w, r)
			}
		}
	}
}
