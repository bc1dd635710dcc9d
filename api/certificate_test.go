package api

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/access"
	"salvor/problem"
	"salvor/test/must"
)

// authority signs certificates of a test.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB, name string, now time.Time) *authority {
	t.Helper()
	a := &authority{t: t}
	self := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	der, a.key = a.sign(self, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func (a *authority) sign(c, by *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	signer := a.key
	if by == nil {
		by, signer = c, key
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer))(a.t)
	return der, key
}

// issue makes a certificate for loopback and its key.
func (a *authority) issue(name string, ends time.Time) (cert, key []byte) {
	a.t.Helper()
	der, k := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(ends.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: a.cert.NotBefore, NotAfter: ends,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert)
	b := must.Get(x509.MarshalECPrivateKey(k))(a.t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: b})
}

// tlsWorld is a listener with TLS on a clock of the test's own.
type tlsWorld struct {
	*testing.T
	now   time.Time
	files CertificateFiles
	certs *Certificates
	ours  *authority
	log   bytes.Buffer
	at    string
	// clients are the authorities of clients at the beginning.
	clients []byte
	writes  int
}

func newTLSWorld(t *testing.T, clients []byte, h http.Handler) *tlsWorld {
	t.Helper()
	dir := t.TempDir()
	w := &tlsWorld{T: t, now: time.Now().UTC(), files: CertificateFiles{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}}
	if clients != nil {
		w.files.CA = filepath.Join(dir, "ca")
		w.write(w.files.CA, clients)
	}
	w.ours = newAuthority(t, "ours", w.now)
	w.renew("first", w.now.AddDate(0, 0, 20))
	var err error
	if w.certs, err = NewCertificates(w.files, func() time.Time { return w.now }, slog.New(slog.NewTextHandler(&w.log, nil))); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(h, slog.New(slog.DiscardHandler))
	go func() { _ = server.Serve(tls.NewListener(l, w.certs.TLS())) }()
	t.Cleanup(func() { _ = server.Close() })
	w.at = l.Addr().String()
	return w
}

func (w *tlsWorld) write(name string, b []byte) {
	w.Helper()
	must.OK(w, os.WriteFile(name, b, 0o600))
	// Two writes within one tick of the file system's clock are two.
	w.writes++
	if at := time.Now().Add(time.Duration(w.writes) * time.Second); os.Chtimes(name, at, at) != nil {
		w.Fatal("the time of ", name)
	}
}

func (w *tlsWorld) renew(name string, ends time.Time) {
	w.Helper()
	cert, key := w.ours.issue(name, ends)
	w.write(w.files.Cert, cert)
	w.write(w.files.Key, key)
}

// served is the name of the certificate that the listener shows.
func (w *tlsWorld) served() string {
	w.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(w.ours.cert)
	c, err := tls.Dial("tcp", w.at, &tls.Config{RootCAs: pool, Time: func() time.Time { return w.now }})
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// TestCertificatesAreReadAgain: new ones serve without a restart, broken ones change nothing and are told of, an end is foretold.
func TestCertificatesAreReadAgain(t *testing.T) {
	w := newTLSWorld(t, nil, http.NotFoundHandler())
	state := func(want ...string) {
		t.Helper()
		_, outside, said := w.certs.State()
		if strings.Contains(outside, w.files.Cert) || (outside == "") != (said == "") {
			t.Errorf("strangers are told %q", outside)
		}
		for _, word := range want {
			if !strings.Contains(said, word) {
				t.Errorf("state %q lacks %q", said, word)
			}
		}
		if len(want) == 0 && said != "" {
			t.Errorf("state: %s", said)
		}
	}
	if got := w.served(); got != "first" {
		t.Fatal(got)
	}
	state()
	w.renew("second", w.now.AddDate(0, 0, 40))
	if got := w.served(); got != "first" { // within the same second nobody looks
		t.Error(got)
	}
	w.now = w.now.Add(certificateRecheck)
	if got := w.served(); got != "second" {
		t.Error(got)
	}
	cert, _ := w.ours.issue("third", w.now.AddDate(0, 0, 60))
	w.write(w.files.Cert, cert) // the key is not there yet
	for range 3 {
		w.now = w.now.Add(certificateRecheck)
		if got := w.served(); got != "second" {
			t.Error(got)
		}
	}
	state("the one of before stays in use")
	if n := strings.Count(w.log.String(), "cannot be used"); n != 1 {
		t.Errorf("told of %d times: %s", n, &w.log)
	}
	must.OK(t, os.Remove(w.files.Key))
	w.now = w.now.Add(certificateRecheck)
	if got := w.served(); got != "second" {
		t.Error(got)
	}
	w.renew("fourth", w.now.AddDate(0, 0, 15))
	w.now = w.now.Add(certificateRecheck)
	if got := w.served(); got != "fourth" {
		t.Error(got)
	}
	state()
	w.now = w.now.AddDate(0, 0, 2)
	state("expires in 12 days", "no restart is needed")
	for range 3 {
		w.certs.Nag()
	}
	if n := strings.Count(w.log.String(), "expires in 12 days"); n != 1 {
		t.Errorf("warned %d times: %s", n, &w.log)
	}
	w.now = w.now.AddDate(0, 0, 14)
	state("expired at")
	if got := w.served(); !strings.Contains(got, "expired") {
		t.Errorf("an expired one is taken: %s", got)
	}
	if strings.Contains(w.log.String(), "PRIVATE KEY") {
		t.Error("the log holds a key")
	}
}

func TestCertificatesThatCannotBeUsed(t *testing.T) {
	w := newTLSWorld(t, nil, http.NotFoundHandler())
	w.write(w.files.Key, []byte("no key"))
	if _, err := NewCertificates(w.files, time.Now, slog.Default()); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), w.files.Key) || strings.Contains(err.Error(), "no key") {
		t.Error(err)
	}
	if _, err := NewCertificates(CertificateFiles{Cert: "/nowhere", Key: "/nowhere"}, time.Now, slog.Default()); !problem.Is(err, problem.Invalid) {
		t.Error(err)
	}
}

// TestClientCertificates: a name has its role; another authority's, another name, and none are nobody by themselves.
func TestClientCertificates(t *testing.T) {
	now := time.Now()
	theirs, strange := newAuthority(t, "theirs", now), newAuthority(t, "strange", now)
	auth := Certified{Roles: map[string]access.Role{"ops": access.Admin, "eyes": access.Reader}, Below: refuser{}}
	var w *tlsWorld
	auth.Trusts = func(chains [][]*x509.Certificate) bool { return w.certs.Trusts(chains) }
	w = newTLSWorld(t, theirs.pem, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := auth.Authenticate(r)
		if err != nil {
			w.WriteHeader(Status(err))
			return
		}
		_, _ = w.Write([]byte(p.User + " " + p.Scope.Roles[0]))
	}))
	pool := x509.NewCertPool()
	pool.AddCert(w.ours.cert)
	for _, tt := range []struct {
		by    *authority
		name  string
		token string
		want  string
	}{
		{theirs, "ops", "", "ops admin"}, {theirs, "eyes", "", "eyes reader"}, {theirs, "else", "", "401"}, {theirs, "ops", "x", "401"}, {nil, "", "", "401"},
		{strange, "ops", "", "refused"},
	} {
		conf := &tls.Config{RootCAs: pool}
		if tt.by != nil {
			cert, key := tt.by.issue(tt.name, now.Add(time.Hour))
			pair := must.Get(tls.X509KeyPair(cert, key))(t)
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		r := must.Get(http.NewRequest("GET", "https://"+w.at+"/", nil))(t)
		if tt.token != "" {
			r.Header.Set("X-Auth-Token", tt.token)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}, Timeout: 20 * time.Second}
		got := "refused"
		if resp, err := client.Do(r); err == nil {
			b := new(bytes.Buffer)
			_, _ = b.ReadFrom(resp.Body)
			resp.Body.Close()
			if got = b.String(); resp.StatusCode != 200 {
				got = resp.Status[:3]
			}
		}
		if got != tt.want {
			t.Errorf("%s of %v with token %q: %s, want %s", tt.name, tt.by != nil, tt.token, got, tt.want)
		}
	}
}

// TestConnectionsOutliveNoCertificate: on a connection that is kept a certificate is good until it ends, and until its authority is
// one no more.
func TestConnectionsOutliveNoCertificate(t *testing.T) {
	for name, change := range map[string]func(w *tlsWorld, next *authority){
		"the certificate ends":      func(w *tlsWorld, _ *authority) { w.now = w.now.Add(2 * time.Hour) },
		"its authority is replaced": func(w *tlsWorld, next *authority) { w.write(w.files.CA, next.pem) },
		"another one comes beside":  func(w *tlsWorld, next *authority) { w.write(w.files.CA, append(next.pem, w.clients...)) },
	} {
		theirs, next := newAuthority(t, "theirs", time.Now()), newAuthority(t, "next", time.Now())
		auth := Certified{Roles: map[string]access.Role{"ops": access.Admin}, Below: refuser{}}
		var w *tlsWorld
		auth.Trusts = func(chains [][]*x509.Certificate) bool { return w.certs.Trusts(chains) }
		w = newTLSWorld(t, theirs.pem, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := auth.Authenticate(r); err != nil {
				w.WriteHeader(Status(err))
			}
		}))
		w.clients = theirs.pem
		cert, key := theirs.issue("ops", w.now.Add(time.Hour))
		pair := must.Get(tls.X509KeyPair(cert, key))(t)
		pool := x509.NewCertPool()
		pool.AddCert(w.ours.cert)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}
		defer transport.CloseIdleConnections()
		var made atomic.Int32
		transport.DialContext = func(ctx context.Context, network, at string) (net.Conn, error) {
			made.Add(1)
			return new(net.Dialer).DialContext(ctx, network, at)
		}
		client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
		ask := func() int {
			resp := must.Get(client.Get("https://" + w.at + "/"))(t)
			resp.Body.Close()
			return resp.StatusCode
		}
		if got := ask(); got != 200 {
			t.Fatalf("%s: first %d", name, got)
		}
		w.certs.mu.Lock()
		change(w, next)
		w.now = w.now.Add(2 * certificateRecheck)
		w.certs.mu.Unlock()
		want := 401
		if name == "another one comes beside" {
			want = 200
		}
		if got := ask(); got != want || made.Load() != 1 {
			t.Errorf("%s: %d after it, want %d; %d connections", name, got, want, made.Load())
		}
	}
}

// refuser lets nobody in.
type refuser struct{}

func (refuser) Authenticate(*http.Request) (access.Principal, error) {
	return access.Principal{}, &Error{Status: http.StatusUnauthorized}
}
