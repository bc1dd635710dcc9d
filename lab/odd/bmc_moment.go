package odd

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"
)

func isGet(r *http.Request) bool { return r.Method == http.MethodGet }

func sendUnauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="Redfish"`)
	sendJSON(w, http.StatusUnauthorized, refusalDocument("Base.1.8.NoValidSession", "There is no valid session established with the implementation."))
}

func withoutRequest(answer func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { answer(w) }
}

// refuseForAWhile has the orders of the place refused by answer for a time after the first of them.
func refuseForAWhile(long time.Duration, answer func(http.ResponseWriter)) func(Place) serveFunc {
	return func(p Place) serveFunc {
		var first firstTime
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if p.is(r) && isOrder(r) && first.since() < long {
				answer(w)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

// powerOnItsWay refuses a reset, and the machine follows it all the same a while later.
func powerOnItsWay(status int, reads bool) func(Place) serveFunc {
	return func(p Place) serveFunc {
		var until powerChange
		show := changeValues(isText, func(v any, _ *http.Request) (any, bool) {
			if v == "On" || v == "Off" {
				return until.word(), true
			}
			return v, true
		})
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			owner, _, _ := strings.Cut(p.Path, "/Actions/")
			if reads && isGet(r) && cleanPath(r.URL.Path) == owner && until.running() {
				show(Place{Path: owner, Member: "/PowerState"})(w, r, next)
				return
			}
			if !p.is(r) || !isOrder(r) {
				next.ServeHTTP(w, r)
				return
			}
			text, body := readBody(r)
			kind, _ := body["ResetType"].(string)
			if kind != "On" && kind != "ForceOff" || until.running() {
				if until.running() {
					refuseChange(w, status)
					return
				}
				next.ServeHTTP(w, r)
				return
			}
			until.begin(map[bool]string{true: "PoweringOn", false: "PoweringOff"}[kind == "On"])
			later := laterRequest(r, text)
			time.AfterFunc(taskDelay, func() { askService(later, next) })
			refuseChange(w, status)
		}
	}
}

func refuseChange(w http.ResponseWriter, status int) {
	sendJSON(w, status, refusalDocument("IDRAC.2.8.PSU501", "Unable to complete the operation because the server is already in the state that was asked for, or on its way."))
}

var momentKinds = []*BMCKind{
	{Partial: true, Name: "moment: 503 once", Source: "many", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) { sendBusy(w, "2") })},
	{Partial: true, Name: "moment: 503 once with a date", Source: "RFC 9110, 10.2.3", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) {
		sendBusy(w, time.Now().Add(3*time.Second).UTC().Format(http.TimeFormat))
	})},
	{Partial: true, Name: "moment: 429 once", Source: "rate limits of OpenBMC", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		sendJSON(w, http.StatusTooManyRequests, refusalDocument("Base.1.8.GeneralError", "slow down"))
	})},
	{Partial: true, Name: "moment: 500 once", Source: "many", serve: firstTimes(1, isGet, withoutRequest(sendInternalError))},
	{Partial: true, Name: "moment: 400 once", Source: "sushy: retry-ilo-not-ready-error", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) {
		sendJSON(w, http.StatusBadRequest, iloRefusal("iLO.2.14.InvalidOperationForSystemState"))
	})},
	{Partial: true, Name: "moment: login page once", Source: "AMI", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) {
		sendBytes(w, http.StatusOK, http.Header{"Content-Type": {"text/html"}}, []byte(loginPage))
	})},
	{Partial: true, Name: "moment: empty once", Source: "many", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })},
	{Partial: true, Name: "moment: one 401", Source: "HPE, GB200, AMI: infra-controller PR 69; Supermicro", serve: firstTimes(1, isGet, withoutRequest(sendUnauthorized))},
	{Partial: true, Name: "moment: one 401 for an order", Source: "HPE, GB200, AMI: infra-controller PR 69", Scope: ScopeOrder, serve: firstTimes(1, isOrder, withoutRequest(sendUnauthorized))},
	{Partial: true, Name: "moment: cut once", Source: "many", serve: firstTimes(1, isGet, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })},
	{Partial: true, Name: "moment: 404 for two reads after an order", Source: "Dell: sushy fix-dell-bmc-404-race-condition", serve: afterOrder(2, func(w http.ResponseWriter, _ *http.Request) { sendNotFound(w) })},
	{Partial: true, Name: "moment: ResourceNotReadyRetry for two reads after an order", Source: "HPE iLO: check_redfish 170", serve: afterOrder(2, func(w http.ResponseWriter, _ *http.Request) { sendNotReady(w) })},
	{Partial: true, Name: "moment: 500 for two reads after an order", Source: "many", serve: afterOrder(2, func(w http.ResponseWriter, _ *http.Request) { sendInternalError(w) })},
	{Partial: true, Name: "moment: {} for two reads after an order", Source: "OpenBMC", serve: afterOrder(2, func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, http.StatusOK, map[string]any{}) })},
	{Partial: true, Name: "moment: no members for two reads after an order", Source: "Dell: Systems empty after a reset", Scope: ScopeCollection, serve: emptyAfterOrder(2)},
	{Partial: true, Name: "moment: 503 for an order once", Source: "many", Scope: ScopeOrder, serve: firstTimes(1, isOrder, func(w http.ResponseWriter, _ *http.Request) { sendBusy(w, "2") })},
	{Partial: true, Name: "moment: 500 for an order once", Source: "many", Scope: ScopeOrder, serve: firstTimes(1, isOrder, withoutRequest(sendInternalError))},
	{Partial: true, Name: "moment: 409 for an order for 5 s", Source: "iDRAC: a job runs", Scope: ScopeOrder, serve: refuseForAWhile(5*time.Second, func(w http.ResponseWriter) {
		sendJSON(w, http.StatusConflict, refusalDocument("Base.1.8.ResourceInUse", "The change could not be made because the resource is in use."))
	})},
	{Partial: true, Name: "moment: 400 InvalidOperationForSystemState for an order for 5 s", Source: "HPE iLO: sushy retry-ilo-not-ready-error", Scope: ScopeOrder, serve: refuseForAWhile(5*time.Second, func(w http.ResponseWriter) {
		sendJSON(w, http.StatusBadRequest, iloRefusal("iLO.2.14.InvalidOperationForSystemState"))
	})},
	{Partial: true, Name: "moment: 400 while the power changes", Source: "iDRAC: Ironic note catch-redfish-409", Scope: ScopeReset, serve: powerOnItsWay(http.StatusBadRequest, true)},
	{Partial: true, Name: "moment: 409 while the power changes", Source: "iDRAC: Ironic note catch-redfish-409", Scope: ScopeReset, serve: powerOnItsWay(http.StatusConflict, true)},
	{Partial: true, Name: "moment: 400 while the power changes unseen", Source: "iDRAC: Ironic note catch-redfish-409", Scope: ScopeReset, serve: powerOnItsWay(http.StatusBadRequest, false)},
	{Partial: true, Name: "moment: no power state while it changes", Source: "OpenBMC: PowerState null", Scope: ScopeReset, serve: func(p Place) serveFunc {
		owner, _, _ := strings.Cut(p.Path, "/Actions/")
		hide := changeValues(isText, becomesValue(nil))(Place{Path: owner, Member: "/PowerState"})
		var left requestCounter
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if p.is(r) && isOrder(r) {
				left.set(2)
			}
			if isGet(r) && cleanPath(r.URL.Path) == owner && left.add(-1) >= 0 {
				hide(w, r, next)
				return
			}
			next.ServeHTTP(w, r)
		}
	}},
}

// holdRequest holds a request until its sender gives up.
func holdRequest(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // a server notices the end of a connection only behind the body
	<-r.Context().Done()
}

var slowKinds = []*BMCKind{
	{Partial: true, Name: "slow: each answer after 2 s", Source: "old iDRAC", Scope: ScopeService, serve: func(Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			time.Sleep(2 * time.Second)
			next.ServeHTTP(w, r)
		}
	}},
	{Partial: true, Name: "slow: 25 s", Source: "iDRAC: storage inventories", serve: changeReads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		time.Sleep(25 * time.Second)
		sendBytes(w, a.Code, a.Header(), a.Body.Bytes())
	})},
	{Name: "slow: an order takes 25 s", Source: "AMI: insertions", Scope: ScopeOrder, serve: answerTakenOrders(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		time.Sleep(25 * time.Second)
		sendBytes(w, a.Code, a.Header(), a.Body.Bytes())
	})},
	{Partial: true, Name: "slow: byte by byte", Source: "serial links between parts", serve: changeReads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		maps.Copy(w.Header(), a.Header())
		w.WriteHeader(a.Code)
		for chunk := range slices.Chunk(a.Body.Bytes(), max(1, a.Body.Len()/5)) {
			_, _ = w.Write(chunk)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
		}
	})},
	{Partial: true, Name: "slow: no answer once", Source: "many", serve: firstTimes(1, isGet, func(_ http.ResponseWriter, r *http.Request) { holdRequest(r) })},
	{Name: "slow: never an answer", Source: "many", Cost: CostResource, Words: []string{"no answer"}, serve: changeReads(func(_ http.ResponseWriter, r *http.Request, _ *httptest.ResponseRecorder) { holdRequest(r) })},
	{Name: "slow: an order gets no answer", Source: "many", Scope: ScopeOrder, Cost: CostResource, Words: []string{"no answer"}, serve: answerOrders(func(_ http.ResponseWriter, r *http.Request) { holdRequest(r) })},
}
