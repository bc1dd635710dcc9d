package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/config"
	"salvor/problem"
)

func tokenRun(t *testing.T, text string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "salvor.conf")
	if err := os.WriteFile(file, []byte("[DEFAULT]\nstate_path = "+dir+"\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	root, out := newRootCommand(), &bytes.Buffer{}
	root.SetOut(out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs([]string{"token", "create", "root", "--role", "admin", "--local", "--config", file, "-f", "json"})
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestLocalTokenIsTaken: none is made where tokens are Keystone's, whether salvor serve runs or not.
func TestLocalTokenIsTaken(t *testing.T) {
	if out, err := tokenRun(t, "auth_strategy = keystone\n[keystone_authtoken]\nauth_url = https://keystone.example/v3\nusername = salvor\npassword = x\nproject_name = service\n"); !problem.Is(err, problem.Unsupported) || strings.Contains(out, "salvor_") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestLocalTokenView: what is told of a token does not depend on who made it.
func TestLocalTokenView(t *testing.T) {
	out, err := tokenRun(t, "auth_strategy = token\n")
	var made map[string]any
	if err := errors.Join(err, json.Unmarshal([]byte(out), &made)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if made["scope"] != "system" || made["created_by"] == nil || made["created_at"] == nil || !strings.HasPrefix(fmt.Sprint(made["token"]), "salvor_") {
		t.Errorf("%v", made)
	}
}

// TestOwnURL: a certificate has a name, which the address that is listened on need not be.
func TestOwnURL(t *testing.T) {
	c := &config.Config{}
	at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("0.0.0.0:6385"))
	c.API.PublicEndpoint = "https://salvor.example/"
	for _, want := range []string{"http://localhost:6385", "https://salvor.example"} {
		if got := ownURL(c, at); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		c.API.TLS.Enabled = true
	}
}
