package tenant

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certify writes a certificate that signs itself, and its key, into files of a directory: NAME.crt and NAME.key.
func certify(t *testing.T, dir, name string, ends time.Time) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(ends.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: ends,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTLS: the API speaks TLS by files that are exchanged while it serves, tells of what is wrong with them, and knows clients by theirs.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	served := certify(t, dir, "api", time.Now().AddDate(1, 0, 0))
	certify(t, dir, "monitoring", time.Now().AddDate(1, 0, 0))
	s := newSiteWith(t, byToken+"[api]\nenable_ssl_api = true\ncert_file = "+at("api.crt")+"\nkey_file = "+at("api.key")+"\nca_file = "+at("monitoring.crt")+"\nclient_certificate_roles = monitoring:reader\n")
	s.server.URL = strings.Replace(s.server.URL, "http:", "https:", 1)
	health := func(trust *x509.Certificate) string {
		pool := x509.NewCertPool()
		pool.AddCert(trust)
		c := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		resp, err := c.Get(s.server.URL + "/healthz")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	if got := health(served); !strings.HasPrefix(got, "ok\ncertificate expires ") || strings.Contains(got, "warning") {
		t.Fatalf("health: %s", got)
	}
	t.Setenv("SALVOR_CACERT", at("api.crt"))
	if out := s.salvor("root", "token", "list", "-f", "value", "-c", "name"); out != "root" {
		t.Errorf("tokens: %s", out)
	}
	if out, err := s.try("", "node", "list"); err == nil {
		t.Errorf("without a credential: %s", out)
	}
	t.Setenv("SALVOR_CERT", at("monitoring.crt"))
	t.Setenv("SALVOR_CERT_KEY", at("monitoring.key"))
	s.salvor("", "node", "list")
	if out, err := s.try("", "node", "create", "--driver", "fake-hardware"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a reader makes a node: %s, %v", out, err)
	}

	renewed := certify(t, dir, "api", time.Now().AddDate(0, 0, 5))
	eventually(t, 20*time.Second, "the new certificate serves", func() bool { return strings.Contains(health(renewed), "warning: ") })
	if got := health(renewed); !strings.Contains(got, "expires in 4 days") || strings.Contains(got, dir) {
		t.Errorf("health: %s", got)
	}
	if err := os.WriteFile(at("api.crt"), []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the broken file is told of", func() bool { return strings.Contains(health(renewed), "the one of before stays in use") })
	if !strings.Contains(s.server.Log(), "the new certificate cannot be used") {
		t.Errorf("the log does not tell of the broken file:\n%s", s.server.Log())
	}
	last := certify(t, dir, "api", time.Now().AddDate(1, 0, 0))
	eventually(t, 20*time.Second, "the last certificate serves", func() bool {
		got := health(last)
		return strings.HasPrefix(got, "ok") && !strings.Contains(got, "warning")
	})
}
