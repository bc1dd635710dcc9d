package trouble

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
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

// TestCertificateEnds: it is warned of before, said when it is over, on the door that needs no certificate too; the process goes on,
// and a new file serves without a restart.
func TestCertificateEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, clock := filepath.Join(dir, "api.crt"), filepath.Join(dir, "api.key"), filepath.Join(dir, "clock")
	old := program.Certify(t, dir, "api", time.Now().UTC().AddDate(0, 0, 10))
	text := "[DEFAULT]\nauth_strategy = token\n[health]\nlisten = 127.0.0.1:0\n[api]\nenable_ssl_api = true\ncert_file = " + cert + "\nkey_file = " + key + "\n"
	server := program.Serve(t, text, "env", "SALVOR_TEST_CLOCK="+clock)
	p := newPlane(t, server)
	secured := strings.Replace(server.URL, "http:", "https:", 1)
	p.server.URL = "http://" + server.Door("health")
	ask := func(trust *x509.Certificate, at time.Duration) string {
		pool := x509.NewCertPool()
		pool.AddCert(trust)
		c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{RootCAs: pool, Time: func() time.Time { return time.Now().Add(at) }}}}
		resp, err := c.Get(secured + "/healthz")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b)
	}
	says := func(word string) {
		t.Helper()
		p.eventually("health says "+word, func() error {
			if status, text := p.health(); status != http.StatusOK || !strings.Contains(text, word) {
				return fmt.Errorf("%d %s", status, text)
			}
			return nil
		})
	}
	doctor := func(level string) {
		t.Helper()
		cmd := []string{"SALVOR_TEST_CLOCK=" + clock, program.Path(t, "salvor"), "doctor", "--config", filepath.Join(server.State, "salvor.conf"), "--state-dir", server.State}
		if out := command("env", cmd...); !strings.Contains(out, level+"  certificate: ") {
			t.Errorf("the doctor does not say %q:\n%s", level, out)
		}
	}
	ends := func(c *x509.Certificate) {
		t.Helper()
		if got, err := p.metric("salvor_api_certificate_expiration_timestamp_seconds"); err != nil || int64(got) != c.NotAfter.Unix() {
			t.Errorf("the metric says that the certificate ends at %.0f, want %d: %v", got, c.NotAfter.Unix(), err)
		}
	}
	says("expires in 9 days")
	ends(old)
	doctor("warn")
	server.AwaitLog(t, "expires in 9 days")
	const later = 11 * 24 * time.Hour
	must.OK(t, os.WriteFile(clock, []byte(later.String()), 0o600))
	says("expired at")
	doctor("fail")
	if got := ask(old, later); !strings.Contains(got, "certificate has expired") {
		t.Errorf("a client sees %s", got)
	}
	p.alive()
	fresh := program.Certify(t, dir, "api", time.Now().AddDate(1, 0, 0))
	p.eventually("the new certificate serves", func() error {
		if got := ask(fresh, later); !strings.HasPrefix(got, "ok") || strings.Contains(got, "warning") {
			return fmt.Errorf("a client sees %s", got)
		}
		return nil
	})
	doctor("ok  ")
	ends(fresh)
	p.alive()
}
