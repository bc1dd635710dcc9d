package tenant

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/test/must"
	"salvor/test/program"
)

// TestTLS: the API speaks TLS by files that are exchanged while it serves, tells of what is wrong with them, and knows clients by theirs.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	served := program.Certify(t, dir, "api", time.Now().AddDate(1, 0, 0))
	program.Certify(t, dir, "monitoring", time.Now().AddDate(1, 0, 0))
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

	renewed := program.Certify(t, dir, "api", time.Now().UTC().AddDate(0, 0, 5))
	eventually(t, 20*time.Second, "the new certificate serves", func() bool { return strings.Contains(health(renewed), "warning: ") })
	if got := health(renewed); !strings.Contains(got, "expires in 4 days") || strings.Contains(got, dir) {
		t.Errorf("health: %s", got)
	}
	must.OK(t, os.WriteFile(at("api.crt"), []byte("nothing"), 0o600))
	eventually(t, 20*time.Second, "the broken file is told of", func() bool { return strings.Contains(health(renewed), "the one of before stays in use") })
	s.server.AwaitLog(t, "the new certificate cannot be used")
	last := program.Certify(t, dir, "api", time.Now().AddDate(1, 0, 0))
	eventually(t, 20*time.Second, "the last certificate serves", func() bool {
		got := health(last)
		return strings.HasPrefix(got, "ok") && !strings.Contains(got, "warning")
	})
}
