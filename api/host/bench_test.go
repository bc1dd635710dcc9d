package host_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/api/host"
	"salvor/compute/service"
	"salvor/record"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// region is a listener on a real store, real TLS and a port of its own.
type region struct {
	url       string
	store     *store.Store
	services  *service.Services
	authority *host.Authority
	address   string
	ahead     atomic.Int64 // of the authority's clock, in nanoseconds
}

func newRegion(t testing.TB) *region {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, _ := storetest.SQLite(t)
	r := &region{store: s, services: service.New(s, s, service.Options{}, time.Now)}
	r.authority = must.Get(host.OpenAuthority(t.Context(), s, func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }))(t)
	ctx, stop := context.WithCancel(context.Background())
	leases := make(chan struct{})
	go func() { defer close(leases); r.services.Leases.RunLeases(ctx, func(err error) { t.Error(err) }) }()
	t.Cleanup(func() {
		stop()
		<-leases
	})
	r.address = fixture.ServeHosts(t, r.authority, host.New(host.Config{Hosts: r.services.Hosts, Leases: r.services.Leases, Orders: s, Jobs: s, Authority: r.authority, Images: everyImage{}, Log: log}))
	r.url = "https://" + r.address
	return r
}

// client is one with the certificate, or with none.
func (r *region) client(cert *tls.Certificate) *http.Client {
	c := &tls.Config{InsecureSkipVerify: true}
	if cert != nil {
		// Also one that the server says it would not take.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: c, MaxIdleConnsPerHost: 2}}
}

func post(c *http.Client, url string, in any) (int, []byte, error) {
	b, err := json.Marshal(in)
	if err != nil {
		return 0, nil, err
	}
	return postBytes(c, url, b)
}

func postBytes(c *http.Client, url string, b []byte) (int, []byte, error) {
	answer, err := c.Post(url, "application/json", bytes.NewReader(b))
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	return answer.StatusCode, got, err
}

// join lets a new host in and gives its certificate.
func (r *region) join(t testing.TB, key *ecdsa.PrivateKey) (string, *tls.Certificate) {
	t.Helper()
	_, token, err := r.services.JoinTokens.Issue(t.Context(), time.Hour, "", record.Asker{})
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.NewString()
	status, body, err := post(r.client(nil), r.url+wire.JoinPath, wire.Join{Token: token.Reveal(), HostID: id, Name: "h", CSR: csr(t, key)})
	if err != nil || status != http.StatusOK {
		t.Fatalf("join: %d %s %v", status, body, err)
	}
	var got wire.Certificate
	must.OK(t, json.Unmarshal(body, &got))
	block, _ := pem.Decode([]byte(got.Certificate))
	return id, &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	return key
}

func csr(t testing.TB, key any) string {
	t.Helper()
	der := must.Get(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// BenchmarkRenewals is 2,000 hosts that renew over connections that last; clients and server share the machine.
func BenchmarkRenewals(b *testing.B) {
	r, key := newRegion(b), newKey(b)
	const hosts = 2000
	clients := make([]*http.Client, hosts)
	first := must.Get(json.Marshal(wire.Renewal{BootID: "b", Name: "h", Inventory: json.RawMessage(`{"vcpus": 8}`), Guests: json.RawMessage(`[]`)}))(b)
	for i := range clients {
		_, cert := r.join(b, key)
		clients[i] = r.client(cert)
		if status, body, err := postBytes(clients[i], r.url+wire.RenewPath, first); err != nil || status != http.StatusOK {
			b.Fatalf("%d %s %v", status, body, err)
		}
	}
	plain := must.Get(json.Marshal(wire.Renewal{BootID: "b", Name: "h"}))(b)
	var next atomic.Int64
	b.ResetTimer()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				if status, body, err := postBytes(clients[n%hosts], r.url+wire.RenewPath, plain); err != nil || status != http.StatusOK {
					b.Errorf("%d %s %v", status, body, err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "renewals/s")
}
