package agent

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"salvor/test/debian"
	"salvor/test/must"
	"testing"
)

// pythonClient does what Ironic's requests library does: it trusts the certificate of
// the heartbeat, checks the address in it, and is as strict as Python 3.13.
const pythonClient = `
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[2])
context.verify_flags |= ssl.VERIFY_X509_STRICT
print(urllib.request.urlopen(sys.argv[1], context=context, timeout=10).read().decode())
`

func TestCertificate(t *testing.T) {
	certificate, text, err := newCertificate(net.IPv4(127, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must.OK(t, os.WriteFile(ca, []byte(text), 0o600))
	debian.File(t, "/usr/bin/python3", "python3")
	out, err := exec.Command("/usr/bin/python3", "-c", pythonClient, server.URL, ca).CombinedOutput()
	if err != nil || string(out) != "hello\n" {
		t.Errorf("%v: %s", err, out)
	}
}
