package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/api/identity"
	"salvor/cmd/salvor/serve"
	"salvor/config"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/store/storetest"
	"salvor/test/must"
)

func tokenRun(t *testing.T, text string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "salvor.conf")
	must.OK(t, os.WriteFile(file, []byte("[DEFAULT]\nstate_path = "+dir+"\n"+text), 0o600))
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
		if got := serve.OwnURL(c, at); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		c.API.TLS.Enabled = true
	}
}

// TestLocalTokenWhileTheKeyChanges: the key file has the old key before the new one, and the server takes nothing that the old one signs.
func TestLocalTokenWhileTheKeyChanges(t *testing.T) {
	dir := t.TempDir()
	file, url := filepath.Join(dir, "salvor.conf"), "sqlite:"+filepath.Join(dir, "salvor.db")
	first, next := secret.GenerateKey(), secret.GenerateKey()
	known, err := secret.FormatKeys([][]byte{first, next, secret.GenerateKey()}) // the newest one nobody has proposed yet
	key, noKey := secret.NewKey(first, next)
	if err := errors.Join(err, noKey, os.WriteFile(filepath.Join(dir, "secrets.key"), known, 0o600), os.WriteFile(file, []byte("[DEFAULT]\nstate_path = "+dir+"\nauth_strategy = token\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s := storetest.Open(t, storetest.Database{URL: url, Key: key})
	old, now := key.ID(), key.IDs()[1]
	must.OK(t, errors.Join(s.ProposeKey(t.Context(), now, record.Asker{}), s.PromoteKey(t.Context())))
	key.Use(now)
	key.End(old, time.Now())
	kept := access.NewTokens(s, time.Now)
	users := identity.NewTokens(key, api.NewTokenAuth(kept, time.Now, slog.New(slog.DiscardHandler)), nil, kept, time.Now)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who, err := users.Authenticate(r); err != nil || who.User != identity.LocalUser {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"token": "salvor_x"}`)
	}))
	defer server.Close()
	root, out := newRootCommand(), &bytes.Buffer{}
	root.SetOut(out)
	root.SetErr(out)
	root.SetArgs([]string{"token", "create", "root", "--role", "admin", "--local", "--url", server.URL, "--config", file, "-f", "json"})
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), "salvor_x") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestLifetime(t *testing.T) {
	for word, want := range map[string]time.Duration{"0": 0, "3600": time.Hour, "45m": 45 * time.Minute, "12h": 12 * time.Hour, "90d": 90 * 24 * time.Hour, "3650d": access.MaxTokenLife} {
		if got, err := parseLifetime(word); err != nil || got != want {
			t.Errorf("%s is %s, want %s: %v", word, got, want, err)
		}
	}
	for _, word := range []string{"", "-1", "-1d", "10ms", "a year", "3651d", "87601h", "99999999999", "9223372036854775808"} {
		if got, err := parseLifetime(word); err == nil {
			t.Errorf("%q is %s", word, got)
		}
	}
}
