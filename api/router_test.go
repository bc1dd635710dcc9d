package api

import (
	"flag"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"salvor/access"
	"salvor/problem"
	"salvor/test/program"
)

var update = flag.Bool("update", false, "write testdata/routing.txt again")

// tokenNames authenticates by the name of a role in X-Auth-Token.
type tokenNames struct{}

func (tokenNames) Authenticate(r *http.Request) (access.Principal, error) {
	if name := r.Header.Get("X-Auth-Token"); name != "" {
		return access.Principal{User: name, Role: access.Role(name)}, nil
	}
	return access.Principal{}, &Error{Status: http.StatusUnauthorized, Text: "Authorization required.", Header: http.Header{"Www-Authenticate": {"Test"}}}
}

// routedHandler answers with the route that was taken and its arguments.
func routedHandler() http.Handler {
	d := Router{Auth: tokenNames{}, Fail: Faults(slog.New(slog.DiscardHandler), map[int]string{404: "itemNotFound", 405: "badMethod"}, "fault"), Log: slog.New(slog.DiscardHandler)}
	for _, route := range []string{
		"GET /", "GET /v2/things", "POST /v2/things", "GET /v2/things/detail", "GET /v2/things/{thing}", "PUT /v2/things/{thing}",
		"DELETE /v2/things/{thing}", "GET /v2/things/{thing}/parts/{part}", "GET /v2/things/{thing}/parts/first", "DELETE /v2/fails",
	} {
		method, path, _ := strings.Cut(route, " ")
		d.Routes = append(d.Routes, Route{Method: method, Path: path, Open: path == "/", Do: func(c *Call) error {
			if path == "/v2/fails" {
				return problem.Conflictf("It is in use.")
			}
			if method == http.MethodDelete {
				return c.Empty(http.StatusNoContent)
			}
			if method == http.MethodPut {
				return c.Empty(http.StatusAccepted)
			}
			return c.JSON(http.StatusOK, map[string]string{"route": route, "thing": c.Arg("thing"), "part": c.Arg("part"), "base": c.Base, "user": c.Principal.User})
		}})
	}
	return d.Handler()
}

// TestRouting holds whole answers of a Router, as they go over the wire, to testdata/routing.txt: those that are refused, and HEAD and OPTIONS.
func TestRouting(t *testing.T) {
	requests := []string{
		"GET / ", "POST / ", "HEAD / ", "OPTIONS / ", "GET /v2/things ", "GET /v2/things admin", "GET /v2/things/ admin", "HEAD /v2/things admin", "OPTIONS /v2/things admin", "OPTIONS /v2/things ",
		"DELETE /v2/things admin", "DELETE /v2/things ", "GET /nothing ", "GET /nothing admin", "POST /v2/nothing admin", "GET /v2/things/detail admin", "DELETE /v2/things/detail admin",
		"PATCH /v2/things/detail admin", "GET /v2/things/a%2Fb admin", "GET /v2/things/a%20%25b admin", "GET /v2/th%69ngs admin", "GET /v2/things/%00 admin", "GET /v2/things/%ff admin", "GET /v2/things/%00 ",
		"GET /v2/things//parts/x admin", "GET /v2/things/11111111-2222-4333-8444-55555555555A/parts/first admin", "GET /v2/things/{thing} admin", "POST /v2/things reader", "GET /v2/things reader", "POST /v2/things nobody",
		"GET /v2/things?x=%zz admin", "GET /v2/things?x=%00 admin", "GET /v2/things?x=%zz reader", "PUT /v2/things/a admin", "DELETE /v2/things/a admin", "DELETE /v2/fails admin", "BREW /v2/things admin",
		"ABCDEFGHIJKLMNOPQRSTUVWXYZ /v2/things admin", "GET /v2/things/" + strings.Repeat("a/", 20) + " admin", "GET /v2/things.json admin",
	}
	for i, request := range requests {
		at := strings.LastIndex(request, " ")
		requests[i] = request[:at] + " X-Auth-Token=" + request[at+1:]
	}
	program.Golden(t, "testdata/routing.txt", program.Answers(t, routedHandler(), requests), *update)
}
