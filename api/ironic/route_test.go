package ironic_test

import (
	"flag"
	"net/http"
	"strings"
	"testing"

	"salvor/access"
	"salvor/api"
	"salvor/api/ironic"
	"salvor/metal"
	"salvor/test/program"
)

// tokenNames authenticates by the name of a role in X-Auth-Token.
type tokenNames struct{}

func (tokenNames) Authenticate(r *http.Request) (access.Principal, error) {
	if name := r.Header.Get("X-Auth-Token"); name != "" {
		return access.Principal{User: name, Role: access.Role(name)}, nil
	}
	return access.Principal{}, &api.Error{Status: http.StatusUnauthorized, Text: "Authorization required.", Header: http.Header{"Www-Authenticate": {"Test"}}}
}

// routed are requests: method, path, microversion, role. "-" is none.
const routed = `
GET / - -
HEAD / - -
POST / - -
GET /v1 1.82 -
GET /v1/ - -
POST /v1 1.82 -
OPTIONS /v1 1.82 admin
GET /v1/nodes 1.82 -
GET /v1/nodes 1.82 admin
GET /v1/nodes/ 1.82 admin
GET /nodes 1.82 admin
HEAD /v1/nodes 1.82 admin
OPTIONS /v1/nodes 1.82 admin
OPTIONS /v1/nodes 1.82 -
PUT /v1/nodes 1.82 admin
PUT /v1/nodes 1.82 -
PUT /nodes 1.82 admin
BREW /v1/nodes 1.82 admin
ABCDEFGHIJKLMNOPQRSTUVWXYZ /v1/nodes 1.82 admin
GET /v1/nothing 1.82 admin
GET /v1/nothing 1.82 -
GET /v1/nothing.json 1.82 admin
GET /nothing 1.200 admin
GET /v1/nodes 1.200 admin
GET /v1/nodes nonsense admin
GET /v1/nodes latest admin
POST /v1/nodes 1.200 -
GET /v1/nod%65s 1.82 admin
GET /v1/nodes.json 1.82 admin
GET /v1/nodes.json 1.91 admin
GET /v1/nodes.json 1.200 admin
PUT /v1/nodes.json 1.82 admin
GET /v1/nodes/detail 1.82 admin
GET /v1/nodes/detail.json 1.82 admin
PUT /v1/nodes/detail.json 1.82 admin
DELETE /v1/nodes/detail 1.82 admin
POST /v1/nodes/detail 1.82 admin
GET /v1/nodes/n1 1.82 admin
HEAD /v1/nodes/n1 1.82 admin
GET /v1/nodes/n1.json 1.82 admin
GET /v1/nodes/n1%2Ejson 1.82 admin
GET /v1/nodes/n1.json 1.91 admin
GET /v1/nodes/n%31 1.82 admin
GET /v1/nodes/n1%2Fstates 1.82 admin
GET /v1/nodes/11111111-2222-4333-8444-55555555555A 1.82 admin
GET /v1/nodes/%00 1.82 admin
GET /v1/nodes/%ff 1.82 admin
GET /v1/nodes//states 1.82 admin
GET /v1/nodes/{node} 1.82 admin
POST /v1/nodes/n1 1.82 admin
PATCH /v1/nodes/n1 1.82 reader
GET /v1/nodes/n1 1.82 nobody
POST /v1/nodes 1.82 reader
POST /v1/nodes 1.200 reader
GET /v1/nodes?x=%zz 1.82 admin
GET /v1/nodes?x=%zz 1.200 admin
POST /v1/nodes?x=%zz 1.82 reader
GET /v1/nodes?owner=%00 1.82 admin
GET /v1/nodes/n1/states/console 1.82 admin
GET /v1/nodes/states/console/n1 1.82 admin
PUT /v1/nodes/states/console/n1 1.82 reader
DELETE /v1/nodes/states/console/n1 1.82 admin
GET /v1/nodes/n1/traits 1.36 admin
PUT /v1/nodes/n1/traits 1.36 admin
DELETE /v1/nodes/n1/traits 1.36 admin
PUT /v1/nodes/n1/traits/lower 1.82 admin
GET /v1/nodes/n1/traits/lower 1.82 admin
GET /v1/portgroups 1.22 admin
GET /v1/portgroups 1.22 -
GET /v1/portgroups/detail 1.82 admin
POST /v1/ports/detail 1.82 admin
GET /v1/nodes/n1/volume/connectors/x 1.82 admin
DELETE /v1/nodes/n1/volume/connectors/detail 1.82 admin
OPTIONS /v1/nodes/n1/vendor_passthru 1.82 admin
BREW /v1/nodes/n1/vendor_passthru/x 1.82 admin
GET /v1/nodes/n1/vendor_passthru/heartbeat 1.82 admin
POST /v1/nodes/n1/vendor_passthru/heartbeat 1.82 -
GET /v1/lookup 1.21 -
GET /v1/lookup 1.82 -
POST /v1/lookup 1.82 -
POST /v1/lookup 1.82 admin
POST /v1/heartbeat/n1 1.21 -
POST /v1/heartbeat/n1 1.82 -
GET /v1/heartbeat/n1 1.82 -
POST /v1/continue_inspection 1.82 -
GET /v1/continue_inspection 1.82 admin
PUT /v1/nodes/n1/maintenance 1.82 admin
DELETE /v1/nodes/n1/maintenance 1.82 admin
GET /v1/shards 1.81 admin
GET /v1/drivers 1.107 admin
GET /v1/drivers/fake-hardware/properties 1.82 admin
DELETE /v1/drivers/fake-hardware 1.82 admin`

// TestRouting holds whole answers, as they go over the wire, to testdata/routing.txt: those that are refused, and HEAD and OPTIONS. The
// API of ramdisks gets the same requests.
func TestRouting(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Enroll })
	w.config.Auth = tokenNames{}
	requests := strings.Split(strings.TrimSpace(routed), "\n")
	for i := range 20 { // longer than any path that there is
		requests = append(requests, "GET /v1/nodes"+strings.Repeat("/a", i+1)+" 1.82 admin")
	}
	requests = append(requests, "GET /v1/nodes/"+strings.Repeat("n", 256)+" 1.82 admin", "PUT /v1/nodes/n1/traits/"+strings.Repeat("N", 256)+" 1.82 admin")
	for i, request := range requests {
		part := strings.Split(request, " ")
		requests[i] = part[0] + " " + part[1] + " X-OpenStack-Ironic-API-Version=" + part[2] + " X-Auth-Token=" + part[3]
		requests[i] = strings.ReplaceAll(requests[i], "=- ", "= ")
		requests[i] = strings.TrimSuffix(requests[i], "-")
	}
	update := flag.Lookup("update").Value.String() == "true" // reference_test.go defines it
	program.Golden(t, "testdata/routing.txt", program.Answers(t, ironic.New(w.config), requests), update)
	w.config.LegacyPassthru = true
	program.Golden(t, "testdata/routing_ramdisk.txt", program.Answers(t, ironic.NewRamdisk(w.config), requests), update)
}
