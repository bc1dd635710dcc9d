package agent

import (
	"context"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/test/must"
)

// TestTheServersCertificateIsChecked: the agent sends no lookup, and so shows no token, to a server with an untrusted certificate.
// Trusted are the authorities of ipa-ca-file, or else those of the ramdisk, for the address of the server.
func TestTheServersCertificateIsChecked(t *testing.T) {
	_, other, err := newCertificate(net.IPv4(127, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	f := newIronic(t)
	server := httptest.NewTLSServer(f.server.Config.Handler)
	defer server.Close()
	f.server = server
	own := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	for name, c := range map[string]struct {
		parameters, authority, host string
		lookups                     int
	}{
		"no authority is named":             {},
		"another authority signed it":       {parameters: "ipa-ca-file=/etc/ca.pem", authority: other},
		"it is for another name":            {parameters: "ipa-ca-file=/etc/ca.pem", authority: own, host: "localhost"},
		"the authority signed it":           {parameters: "ipa-ca-file=/etc/ca.pem", authority: own, lookups: 1},
		"ipa-insecure checks nothing":       {parameters: "ipa-insecure=1", lookups: 1},
		"ipa-insecure=0 is no ipa-insecure": {parameters: "ipa-insecure=0"},
	} {
		t.Run(name, func(t *testing.T) {
			f.lookups = nil
			a, root, _, _ := newAgent(t, f, c.parameters)
			must.OK(t, os.WriteFile(filepath.Join(root, "etc/ca.pem"), []byte(c.authority), 0o600))
			if c.host != "" {
				a.params.APIURLs = []string{strings.Replace(server.URL, "127.0.0.1", c.host, 1)}
			}
			apis, err := a.clients()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if _, err = a.ask(ctx, apis[0]); len(f.lookups) != c.lookups || (err == nil) != (c.lookups > 0) {
				t.Errorf("%d lookups reached the server, want %d; error %v", len(f.lookups), c.lookups, err)
			}
			if c.lookups == 0 && (err == nil || !strings.Contains(err.Error(), "certificate")) {
				t.Errorf("error %v names no certificate", err)
			}
		})
	}
}
