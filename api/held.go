package api

import (
	"context"
	"net/http"
	"strings"

	"salvor/record"
)

// RestoredPath is the path at which an administrator decides about the open jobs of a held database. All routes below it may change
// something then.
const RestoredPath = "/salvor/v1/restored"

// heldPaths accept any method while the database is held: the routes that end the hold, log-in, and reports of machines and hosts. A
// path that ends in a slash includes all paths below it. The handlers of machines and hosts give out no work then.
var heldPaths = []string{
	RestoredPath, RestoredPath + "/",
	"/identity/",
	"/v1/heartbeat/",
	"/salvor/v1/site/",
	"/salvor/v1/host/renew", "/salvor/v1/host/certificate", "/salvor/v1/host/orders/",
}

// legacyHeartbeat is the end of the path at which old ramdisks send heartbeats.
const legacyHeartbeat = "/vendor_passthru/heartbeat"

// changingPaths change something on GET: a lookup gives a ramdisk its token, once.
var changingPaths = []string{"/v1/lookup"}

type heldKey struct{}

// WhileHeld makes every dialect inside refuse changes while held returns a cause. It only marks the request; Serve refuses it, so
// that the answer has the form of the dialect.
func WhileHeld(h http.Handler, held func() *record.Held) RouteLister {
	inner, _ := h.(RouteLister)
	return RouteLister{Endpoints: inner.Endpoints, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if now := held(); now != nil {
			r = r.WithContext(context.WithValue(r.Context(), heldKey{}, now))
		}
		h.ServeHTTP(w, r)
	})}
}

// refusedWhileHeld is the error for a request that the held database refuses; nil: the request is allowed.
func refusedWhileHeld(r *http.Request) error {
	held, _ := r.Context().Value(heldKey{}).(*record.Held)
	if held == nil {
		return nil
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		for _, p := range changingPaths {
			if path == p {
				return held.Refusal()
			}
		}
		return nil
	}
	if strings.HasPrefix(path, "/v1/nodes/") && strings.HasSuffix(path, legacyHeartbeat) {
		return nil
	}
	for _, p := range heldPaths {
		if path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(r.URL.Path, p) {
			return nil
		}
	}
	return held.Refusal()
}
