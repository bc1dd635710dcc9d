package canary

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/secret"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/native"
)

// TestRotationOfTwoProcesses changes the key of two processes with a file each over one PostgreSQL: the change waits for the one that lacks
// the key, goes on when the file is copied there, and ends with one key in both files and in the database.
func TestRotationOfTwoProcesses(t *testing.T) {
	program.Path(t, "salvor")
	db := storetest.OnPostgres(t)
	launch := func(name, state string) *program.Server {
		t.Helper()
		s := must.Get(program.Launch(state, "[DEFAULT]\nhost = "+name+"\nenabled_hardware_types = fake-hardware\n[database]\nconnection = "+db.URL+"\n"))(t)
		t.Cleanup(s.Stop)
		return s
	}
	file := func(state string) string { return filepath.Join(state, "secrets.key") }
	copied := func(from, to string) {
		t.Helper()
		b, err := os.ReadFile(file(from))
		if err == nil {
			err = os.WriteFile(file(to), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ask := func(s *program.Server, method, path, body string, out any) error {
		a, err := fixture.TrySend(t.Context(), http.DefaultClient, method, s.URL+path, body, "Content-Type", "application/json")
		if err == nil && a.Status >= 300 {
			err = errors.New(a.String())
		}
		if err == nil && out != nil {
			err = json.Unmarshal([]byte(a.Body), out)
		}
		return err
	}
	here, there := t.TempDir(), t.TempDir()
	a := launch("north", here)
	copied(here, there)
	b := launch("south", there)
	must.OK(t, ask(a, "POST", "/v1/nodes", `{"driver":"fake-hardware","driver_info":{"redfish_password":"hush"}}`, nil))
	seal := func(want func(native.Seal) bool) func() error {
		return func() error {
			var now native.Seal
			err := ask(b, "GET", "/salvor/v1/secrets", "", &now)
			if err == nil && !want(now) {
				err = fmt.Errorf("%+v", now)
			}
			return err
		}
	}
	program.Until(t, "both are known", patience, seal(func(now native.Seal) bool { return len(now.Processes) == 2 }))
	must.OK(t, ask(a, "POST", "/salvor/v1/secrets/rotate", "", nil))
	program.Until(t, "the other one is waited for", patience, seal(func(now native.Seal) bool { return now.State == "waiting" && strings.Contains(now.WaitsFor, "south") }))
	copied(here, there)
	program.Until(t, "the key is changed", patience, seal(func(now native.Seal) bool { return now.State == "steady" && len(now.Keys) == 2 }))
	program.Until(t, "both files have one key", patience, func() error {
		for _, state := range []string{here, there} {
			text, err := os.ReadFile(file(state))
			if err != nil {
				return err
			}
			if keys, err := secret.ParseKeys(text); err != nil || len(keys) != 1 {
				return fmt.Errorf("%s has %d keys, %v", state, len(keys), err)
			}
		}
		return nil
	})
	for _, s := range []*program.Server{a, b} {
		if err := ask(s, "POST", "/v1/nodes", `{"driver":"fake-hardware","driver_info":{"redfish_password":"hush"}}`, nil); err != nil {
			t.Error(err)
		}
	}
}
