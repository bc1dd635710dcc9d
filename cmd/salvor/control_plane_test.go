package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"salvor/cmd/salvor/serve"
	"salvor/config"
	"salvor/test/must"
)

// openControlPlane puts a control plane together over a fresh SQLite, as salvor serve does, and runs nothing of it. Its user is admin with
// the password "password"; text is added to its configuration.
func openControlPlane(t *testing.T, text string) *serve.ControlPlane {
	t.Helper()
	dir := t.TempDir()
	if shm, err := os.Stat("/dev/shm"); err == nil && shm.IsDir() { // some tests make hundreds of machines
		dir = must.Get(os.MkdirTemp("/dev/shm", "salvor"))(t)
		t.Cleanup(func() { must.OK(t, os.RemoveAll(dir)) })
	}
	hash := must.Get(bcrypt.GenerateFromPassword([]byte("password"), bcrypt.MinCost))(t)
	users, file := filepath.Join(dir, "htpasswd"), filepath.Join(dir, "salvor.conf")
	for name, content := range map[string]string{users: "admin:" + string(hash) + "\n", file: fmt.Sprintf(
		"[DEFAULT]\nstate_path = %s\nauth_strategy = http_basic\nhttp_basic_auth_user_file = %s\n[hosts]\nlisten = 127.0.0.1:0\n%s", dir, users, text)} {
		must.OK(t, os.WriteFile(name, []byte(content), 0o600))
	}
	cfg, _, err := config.Load(config.Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	p, err := serve.New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
