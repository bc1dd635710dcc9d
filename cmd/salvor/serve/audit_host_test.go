package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/api"
	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/test/must"
	"salvor/wire/host"
)

// hostsWithoutEvent are the routes of the listener for VM hosts that change something and leave no event of their own, each with the reason.
var hostsWithoutEvent = map[string]string{
	"POST " + host.RenewPath:                     "a host says that it lives; a lease that lapses or comes back has an event",
	"POST " + host.OrdersPath + "/{id}/result":   "the action that sent the order has an event, with the result",
	"POST " + host.OrdersPath + "/{id}/progress": "the job that sent the order tells the progress on the timeline of the server",
}

// TestEachChangeByAHostHasAnEvent asks each route of the listener for VM hosts that can change something for a change. The change has an event of the host
// with the id of the request. Or the route stands in hostsWithoutEvent.
func TestEachChangeByAHostHasAnEvent(t *testing.T) {
	p := newTestControlPlane(t, "")
	h := p.hostHandler()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must.Get(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key))(t)
	csr := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	_, token, err := p.services.JoinTokens.Issue(t.Context(), time.Hour, "", record.Asker{})
	must.OK(t, err)
	id := uuid.NewString()
	var certificate *x509.Certificate
	walked := map[string]bool{}
	for _, step := range []struct {
		path string
		body any
		want string
	}{
		{host.JoinPath, host.Join{Token: token.Reveal(), HostID: id, Name: "vm1", CSR: csr}, "joined as vm1"},
		{host.CertPath, host.CertificateRequest{CSR: csr}, "new certificate"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://127.0.0.1"+step.path, strings.NewReader(string(must.Get(json.Marshal(step.body))(t))))
		r.Header.Set("Content-Type", "application/json")
		if r.TLS = (&tls.ConnectionState{}); certificate != nil {
			r.TLS.PeerCertificates, r.TLS.VerifiedChains = []*x509.Certificate{certificate}, [][]*x509.Certificate{{certificate}}
		}
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		walked["POST "+step.path] = true
		var got host.Certificate
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || answer.Code != http.StatusOK {
			t.Fatalf("POST %s: %d %s", step.path, answer.Code, answer.Body)
		}
		block, _ := pem.Decode([]byte(got.Certificate))
		certificate = must.Get(x509.ParseCertificate(block.Bytes))(t)
		requestID := answer.Header().Get("Openstack-Request-Id")
		var events []job.Event
		for _, e := range must.Get(p.Store.Feed(t.Context(), job.FeedFilter{}, 1000))(t) {
			if requestID != "" && e.RequestID == requestID {
				events = append(events, e)
			}
		}
		if len(events) != 1 || events[0].Subject != compute.HostSubject(id) || !strings.Contains(events[0].Text, step.want) {
			t.Errorf("POST %s (request %q): the events are %+v; want one event of host %s with %q", step.path, requestID, events, id, step.want)
		}
	}
	for _, e := range h.(api.RouteLister).Endpoints {
		route := e.Method + " " + e.Path
		if reason := hostsWithoutEvent[route]; e.Method != http.MethodGet && !walked[route] && reason == "" {
			t.Errorf("%s can change something: give the walk a request for it, or hostsWithoutEvent the reason why it has no event", route)
		}
		delete(walked, route)
	}
	if len(walked) > 0 {
		t.Errorf("the walk asks %v, which are no routes", walked)
	}
}
