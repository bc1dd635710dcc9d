package api

import (
	"net/http"

	"salvor/problem"
)

// SameSite refuses changes that a browser asks for a page of another site: such a page cannot read the answer, but where
// nobody has to prove who it is, its request would be done all the same. Programs that are no browsers say no site and pass.
func SameSite(h http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	fail := Faults(nil, nil, "error")
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, problem.Forbiddenf("A page of another site may not ask for changes here."))
	}))
	return guard.Handler(h)
}
