package serve

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/config"
	"salvor/secret"
	"salvor/test/must"
)

// firstWord keeps what it is told first.
type firstWord map[string]secret.Value

func (k firstWord) GetOrCreateSecret(_ context.Context, name string, fresh secret.Value) (secret.Value, error) {
	if k[name].Empty() {
		k[name] = fresh
	}
	return k[name], nil
}

// TestUnshared: two processes that see one directory are well, two that see two are told.
func TestUnshared(t *testing.T) {
	database, shared := firstWord{}, t.TempDir()
	look := func(images, connection, kernel string) string {
		t.Helper()
		c := &config.Config{}
		c.Default.StatePath, c.Image.Path = t.TempDir(), images
		c.Database.Connection, c.Conductor.RescueKernel = secret.New(connection), kernel
		found := must.Get(sharedStateWarnings(t.Context(), c, database))(t)
		return strings.Join(found, "\n")
	}
	const postgres = "postgres://db/salvor"
	for range 2 {
		if got := look(shared, postgres, ""); got != "" {
			t.Errorf("a shared directory: %s", got)
		}
	}
	if got := look(t.TempDir(), "sqlite:/x", ""); got != "" {
		t.Errorf("SQLite has one process: %s", got)
	}
	other := t.TempDir()
	if got := look(other, postgres, ""); !strings.Contains(got, other) {
		t.Errorf("a directory of its own: %q", got)
	}
	mark, err := os.ReadFile(filepath.Join(shared, directoryMark))
	if err == nil {
		err = os.WriteFile(filepath.Join(other, directoryMark), mark, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := look(other, postgres, ""); got != "" {
		t.Errorf("with the mark of the shared one: %s", got)
	}
	if got := look(shared, postgres, "/nowhere/kernel"); !strings.Contains(got, "rescue_kernel") {
		t.Errorf("a kernel that is not here: %q", got)
	}
}
