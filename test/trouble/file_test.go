package trouble

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/secret"
	"salvor/test/must"
	"salvor/test/program"
)

// statusBroken is what a process ends with that nobody need start again before a person has looked (RestartPreventExitStatus).
const statusBroken = 78

// TestDamagedFile: a SQLite file that is not what it was is served by nobody: one line says which file and what to do, nothing is
// changed or made in its place, and what was set right is served again.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	server := program.Serve(t, quiet)
	p := newPlane(t, server)
	p.enroll(3)
	server.Kill() // so that the write-ahead log is there
	state := server.State
	was := map[string][]byte{}
	for _, name := range []string{"salvor.db", "salvor.db-wal", "secrets.key", "salvor.db.lock"} {
		b := must.Get(os.ReadFile(filepath.Join(state, name)))(t)
		was[name] = b
	}
	// A whole file without a log, whose pages can be hurt where they are.
	must.OK(t, server.Relaunch())
	server.Stop()
	whole := must.Get(os.ReadFile(filepath.Join(state, "salvor.db")))(t)
	const page = 4096
	hurt := func(b []byte, at, n int) []byte {
		b = bytes.Clone(b)
		for i := at; i < min(at+n, len(b)); i++ {
			b[i] ^= 0x5a
		}
		return b
	}
	other := must.Get(secret.FormatKeys([][]byte{secret.GenerateKey()}))(t)
	for _, tt := range []struct {
		name  string
		file  string
		now   []byte // nil: it is gone
		wal   bool   // beside the file as it was killed
		words string
	}{
		{"header overwritten", "salvor.db", hurt(whole, 0, 100), false, "restore"},
		{"something else", "salvor.db", bytes.Repeat([]byte("this is no database\n"), 5000), false, "restore"},
		{"page in the middle", "salvor.db", hurt(whole, len(whole)/page/2*page, page), false, "restore"},
		{"cut short", "salvor.db", whole[:len(whole)/2/page*page], false, "restore"},
		{"emptied", "salvor.db", []byte{}, false, "restore"},
		{"gone", "salvor.db", nil, false, "restore"},
		{"garbage for a log", "salvor.db-wal", hurt(was["salvor.db-wal"], 0, 64), true, "restore"},
		{"log hurt in the middle", "salvor.db-wal", hurt(was["salvor.db-wal"], 32+(24+page)*3+24, 512), true, "restore"},
		{"another key", "secrets.key", other, false, "key file"},
		{"no key", "secrets.key", nil, false, "key file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files := map[string][]byte{"salvor.db": whole, "secrets.key": was["secrets.key"], "salvor.db.lock": was["salvor.db.lock"]}
			if tt.wal {
				files["salvor.db"], files["salvor.db-wal"] = was["salvor.db"], was["salvor.db-wal"]
			}
			files[tt.file] = tt.now
			for name, b := range files {
				if b == nil {
					continue
				}
				must.OK(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
			}
			for range 2 { // what systemd may do
				status, out := start(t, dir)
				if status != statusBroken || strings.Count(strings.TrimSpace(out), "\n") > 0 {
					t.Fatalf("status %d: %s", status, out)
				}
				if !strings.Contains(out, filepath.Join(dir, tt.file)) || !strings.Contains(out, tt.words) {
					t.Errorf("it says neither which file nor what to do: %s", out)
				}
			}
			for name, b := range files {
				now, err := os.ReadFile(filepath.Join(dir, name))
				if b == nil {
					if err == nil {
						t.Errorf("%s was made anew", name)
					}
				} else if !bytes.Equal(now, b) {
					t.Errorf("%s was changed", name)
				}
			}
		})
	}
}

// TestRestore: a backup in the place of the damaged file serves.
func TestRestore(t *testing.T) {
	t.Parallel()
	server := program.Serve(t, quiet)
	p := newPlane(t, server)
	p.enroll(1)
	kept := filepath.Join(t.TempDir(), "kept.db")
	if status, out := run(t, "db", "backup", kept, "--state-dir", server.State); status != 0 {
		t.Fatalf("backup: %s", out)
	}
	server.Kill()
	file := filepath.Join(server.State, "salvor.db")
	must.OK(t, os.WriteFile(file, []byte("gone"), 0o600))
	if status, out := start(t, server.State); status != statusBroken {
		t.Fatalf("status %d: %s", status, out)
	}
	b := must.Get(os.ReadFile(kept))(t)
	for _, name := range []string{file + "-wal", file + "-shm"} {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	must.OK(t, os.WriteFile(file, b, 0o600))
	server.Start(t)
	if n := p.node(p.nodes[0]); n.State != "active" {
		t.Errorf("the node is %+v", n)
	}
}
