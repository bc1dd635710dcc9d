package host_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/api/host"
	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/store/storetest"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// TestOnlyHostsComeIn: without a certificate of this authority and a row there is only join.
func TestOnlyHostsComeIn(t *testing.T) {
	r, key := newRegion(t), newKey(t)
	id, cert := r.join(t, key)
	forged := forge(t, id)
	paths := []struct{ method, path string }{
		{"POST", wire.RenewPath}, {"POST", wire.CertPath}, {"GET", wire.OrdersPath}, {"POST", wire.OrdersPath + "/x/result"},
		{"POST", wire.OrdersPath + "/x/progress"}, {"GET", wire.ImagePath + "sha256:00"},
	}
	ask := func(c *http.Client, method, path string) int {
		t.Helper()
		request := must.Get(http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(`{"boot_id": "b"}`)))(t)
		answer, err := c.Do(request)
		if err != nil {
			return 0 // TLS itself refused
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode
	}
	for _, p := range paths {
		if got := ask(r.client(nil), p.method, p.path); got != http.StatusUnauthorized {
			t.Errorf("%s without a certificate: %d", p.path, got)
		}
		if got := ask(r.client(forged), p.method, p.path); got != 0 {
			t.Errorf("%s with a foreign certificate: %d", p.path, got)
		}
	}
	if got := ask(r.client(cert), "POST", wire.RenewPath); got != http.StatusOK {
		t.Errorf("the host itself: %d", got)
	}
	if got := ask(r.client(cert), "GET", "/salvor/v1/host/other"); got != http.StatusNotFound {
		t.Errorf("another path: %d", got)
	}
	must.OK(t, r.services.Hosts.Remove(t.Context(), id, "", record.Asker{}))
	for _, p := range paths {
		if got := ask(r.client(cert), p.method, p.path); got != http.StatusUnauthorized {
			t.Errorf("%s of a host that is gone: %d", p.path, got)
		}
	}
}

// TestARevokedHostThatWaitsGetsNoOrder: who was let in to wait is asked for again before it is given anything.
func TestARevokedHostThatWaitsGetsNoOrder(t *testing.T) {
	r, key := newRegion(t), newKey(t)
	id, cert := r.join(t, key)
	c := r.client(cert)
	if status, body, err := post(c, r.url+wire.RenewPath, wire.Renewal{BootID: "b", Name: "h"}); err != nil || status != http.StatusOK {
		t.Fatal(status, string(body), err)
	}
	got := make(chan string, 1)
	go func() {
		answer, err := c.Get(r.url + wire.OrdersPath + "?wait=20")
		if err != nil {
			got <- err.Error()
			return
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		got <- answer.Status + string(text)
	}()
	// Long enough for the poll to wait, as a rule; one that comes later is refused as well.
	select {
	case early := <-got:
		t.Fatal(early)
	case <-time.After(200 * time.Millisecond):
	}
	yes := true
	must.Get(r.services.Hosts.SetService(t.Context(), id, compute.Service{Revoked: &yes}, record.Asker{}))(t)
	must.OK(t, r.store.Do(t.Context(), func(tx job.Tx) error {
		_, err := r.store.InsertOrder(tx, &compute.Order{ID: uuid.NewString(), HostID: id, BootID: "b", ServerID: uuid.NewString(), Verb: compute.Look,
			JobID: uuid.NewString(), Action: "look", Args: []byte("{}")})
		return err
	}))
	if text := <-got; !strings.HasPrefix(text, "403") {
		t.Error(text)
	}
}

// TestACertificateEnds: its end is known at the centre, and one that has ended opens nothing, not even on a connection that was opened before.
func TestACertificateEnds(t *testing.T) {
	r, key := newRegion(t), newKey(t)
	id, cert := r.join(t, key)
	leaf := must.Get(x509.ParseCertificate(cert.Certificate[0]))(t)
	known := func() time.Time {
		h := must.Get(r.services.Hosts.Host(t.Context(), id))(t)
		return h.CertificateEnds
	}
	if ends := known(); ends.Sub(leaf.NotAfter).Abs() > 2*time.Second {
		t.Errorf("the row says that it ends at %s, the certificate at %s", ends, leaf.NotAfter)
	}
	c := r.client(cert)
	renew := func(c *http.Client) (int, string, error) {
		status, body, err := post(c, r.url+wire.RenewPath, wire.Renewal{BootID: "b", Name: "h"})
		return status, string(body), err
	}
	if status, body, err := renew(c); err != nil || status != http.StatusOK {
		t.Fatal(status, body, err)
	}
	r.ahead.Store(int64(15 * 24 * time.Hour))
	if status, body, err := post(c, r.url+wire.CertPath, wire.CertificateRequest{CSR: csr(t, key)}); err != nil || status != http.StatusOK {
		t.Fatal(status, string(body), err)
	}
	if ends := known(); ends.Sub(leaf.NotAfter) < 14*24*time.Hour {
		t.Errorf("the next is said to end at %s", ends)
	}
	r.ahead.Store(int64(31 * 24 * time.Hour))
	if status, body, err := renew(c); err != nil || status != http.StatusUnauthorized || !strings.Contains(body, "has ended") {
		t.Errorf("on the connection that is open: %d %s %v", status, body, err)
	}
	if status, body, err := renew(r.client(cert)); err == nil {
		t.Errorf("on a new connection: %d %s", status, body)
	}
}

// forge makes a certificate for a host by itself.
func forge(t *testing.T, id string) *tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: id}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestHostileBodies are 4xx, and leave nothing.
func TestHostileBodies(t *testing.T) {
	r, key := newRegion(t), newKey(t)
	_, cert := r.join(t, key)
	c := r.client(cert)
	rsaKey := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	other := must.Get(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t)
	order := wire.OrdersPath + "/" + uuid.NewString()
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	for _, x := range []struct {
		path, body string
		status     int
	}{
		{wire.JoinPath, ``, 400}, {wire.JoinPath, `[]`, 400}, {wire.JoinPath, `{"csr": 7}`, 400}, {wire.JoinPath, `{"csr": "x"}`, 400},
		{wire.JoinPath, `{"csr": ` + quote(csr(t, rsaKey)) + `}`, 400}, {wire.JoinPath, `{"csr": ` + quote(csr(t, other)) + `}`, 400},
		{wire.JoinPath, `{"token": "no", "host_id": "` + uuid.NewString() + `", "name": "h", "csr": ` + quote(csr(t, key)) + `}`, 403},
		{wire.JoinPath, `{"token": "no", "host_id": "../x", "name": "h", "csr": ` + quote(csr(t, key)) + `}`, 400},
		{wire.JoinPath, `{"note": "` + strings.Repeat("x", 70<<10) + `"}`, 413},
		{wire.CertPath, `{"csr": "-----BEGIN"}`, 400},
		{wire.RenewPath, `{}`, 400}, {wire.RenewPath, `{"boot_id": "b", "guests": 7}`, 400}, {wire.RenewPath, `{"boot_id": "b", "inventory": []}`, 400},
		{wire.RenewPath, `{"boot_id": "b", "name": "\u0000"}`, 400}, {wire.RenewPath, strings.Repeat("[", 100), 400},
		{wire.RenewPath, `{"boot_id": "` + strings.Repeat("b", 300) + `"}`, 400},
		{order + "/result", `{"boot_id": "b", "epoch": 1}`, 400}, {order + "/result", `{"boot_id": "b", "epoch": 1, "result": []}`, 400},
		{order + "/result", `{"boot_id": "b", "epoch": 1, "result": {}}`, 404}, {order + "/progress", `{"text": "x"}`, 404},
	} {
		status, body, err := postBytes(c, r.url+x.path, []byte(x.body))
		if err != nil || status != x.status || !strings.Contains(string(body), `"error"`) {
			t.Errorf("%s %.60s: %d %.200s %v, want %d", x.path, x.body, status, body, err, x.status)
		}
	}
	many := `{"boot_id": "b", "guests": [` + strings.Repeat(`{},`, 4096) + `{}]}`
	if status, body, err := postBytes(c, r.url+wire.RenewPath, []byte(many)); err != nil || status != 400 || !strings.Contains(string(body), "at most 4096 guests") {
		t.Errorf("4097 guests: %d %.200s %v", status, body, err)
	}
	hosts, err := r.services.Hosts.List(t.Context(), compute.HostFilter{}, record.Page{})
	if err != nil || len(hosts) != 1 {
		t.Errorf("%d hosts, %v", len(hosts), err)
	}
}

// TestAuthorityLasts: it is made once, sealed, and the same from then on.
func TestAuthorityLasts(t *testing.T) {
	s, _ := storetest.SQLite(t)
	pins := map[string]bool{}
	done := make(chan string, 8)
	for range 8 {
		go func() {
			a, err := host.OpenAuthority(t.Context(), s, time.Now)
			if err != nil {
				t.Error(err)
				done <- ""
				return
			}
			done <- a.Pin()
		}()
	}
	for range 8 {
		pins[<-done] = true
	}
	if len(pins) != 1 || pins[""] {
		t.Errorf("authorities: %v", pins)
	}
}

// TestCertificateLasts a month, and the listener's own is made anew in time.
func TestCertificateLasts(t *testing.T) {
	s, _ := storetest.SQLite(t)
	now := time.Now()
	a := must.Get(host.OpenAuthority(t.Context(), s, func() time.Time { return now }))(t)
	config := a.TLS([]string{"127.0.0.1", "vm.example"})
	first := must.Get(config.GetCertificate(nil))(t)
	if first.Leaf.VerifyHostname("127.0.0.1") != nil || first.Leaf.VerifyHostname("vm.example") != nil || first.Leaf.VerifyHostname("other") == nil {
		t.Error("the names are not the door's")
	}
	now = now.Add(10 * 24 * time.Hour)
	if again, _ := config.GetCertificate(nil); again != first {
		t.Error("made anew too early")
	}
	now = now.Add(6 * 24 * time.Hour)
	if again, _ := config.GetCertificate(nil); again == first {
		t.Error("not made anew")
	}
}

func TestNames(t *testing.T) {
	for listen, want := range map[string]string{"127.0.0.1:1": "x 127.0.0.1 localhost", "10.0.0.5:1": "x 10.0.0.5", "vm.example:1": "x vm.example"} {
		if got, err := host.Names(listen, []string{"x"}, "me"); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v %v", listen, got, err)
		}
	}
	if got, err := host.Names("0.0.0.0:1", nil, "me"); err != nil || !strings.Contains(strings.Join(got, " "), "localhost me") {
		t.Errorf("%v %v", got, err)
	}
	if _, err := host.Names("nothing", nil, "me"); err == nil {
		t.Error("no port, no error")
	}
}
