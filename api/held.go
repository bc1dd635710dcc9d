package api

import (
	"context"
	"net/http"
	"strings"

	"salvor/record"
)

// RestoredPath is where an administrator decides about the open jobs of a held database. All below it may change something then.
const RestoredPath = "/salvor/v1/restored"

// heldPaths may be asked for by any method while the database is held: what ends that state, log-in, and what machines and hosts tell.
// A path that ends in a slash stands for all below it. The handlers of machines and hosts hand out nothing then by themselves.
var heldPaths = []string{
	RestoredPath, RestoredPath + "/",
	"/identity/",
	"/v1/heartbeat/",
	"/salvor/v1/site/",
	"/salvor/v1/host/renew", "/salvor/v1/host/certificate", "/salvor/v1/host/orders/",
}

// legacyHeartbeat ends the path of a heartbeat of old ramdisks.
const legacyHeartbeat = "/vendor_passthru/heartbeat"

// changingPaths are asked for by GET and change something: a lookup tells a ramdisk its token, once.
var changingPaths = []string{"/v1/lookup"}

type heldKey struct{}

// WhileHeld has every dialect within refuse what changes something while held gives a reason. It refuses nothing itself, so that the
// answer has the dialect's form: Serve does.
func WhileHeld(h http.Handler, held func() *record.Held) Listed {
	doors, _ := h.(Listed)
	return Listed{Doors: doors.Doors, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if now := held(); now != nil {
			r = r.WithContext(context.WithValue(r.Context(), heldKey{}, now))
		}
		h.ServeHTTP(w, r)
	})}
}

// refusedWhileHeld is why a request is not worked off while the database is held; nil: it is.
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
