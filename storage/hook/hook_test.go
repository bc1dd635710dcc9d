package hook

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/problem"
	"salvor/storage/storagetest"
	"salvor/test/must"
)

// array is an operator's command, and a storage in a folder: allowed/TARGET/INITIATOR and sessions/TARGET/INITIATOR are files.
const array = `#!/bin/sh
set -eu
cd "$(dirname "$0")"
case $1 in
allow)
	test -d "allowed/$2" || { echo "no target $2" >&2; exit 1; }
	: > "allowed/$2/$3"; printf '{"allowed": "%s"}\n' "$3" ;;
revoke)
	shift; printf '{"revoked": ['; comma=
	for i; do rm -f allowed/*/"$i" sessions/*/"$i"; printf '%s"%s"' "$comma" "$i"; comma=,; done
	printf ']}\n' ;;
sessions)
	printf '{"sessions": ['; comma=
	for f in sessions/*/*; do
		test -e "$f" || continue
		printf '%s{"target": "%s", "initiator": "%s"}' "$comma" "$(basename "$(dirname "$f")")" "$(basename "$f")"; comma=,
	done
	printf ']}\n' ;;
export)
	case $2 in (*/*) exit 1;; esac
	test -f "volumes/$2" || { echo "no volume $2" >&2; exit 1; }
	mkdir -p "allowed/t-$2" "sessions/t-$2"; rm -f "allowed/t-$2"/*; : > "allowed/t-$2/$3"
	printf '{"volume_id": "%s", "portal": "192.0.2.1:3260", "iqn": "t-%s", "lun": 1}\n' "$2" "$2" ;;
unexport)
	rm -rf "allowed/t-$2" "sessions/t-$2"; printf '{"unexported": "%s"}\n' "$2" ;;
*) exit 2 ;;
esac
`

// command has the shell run a script from a folder of its own.
func command(t *testing.T, text string) *Hook {
	t.Helper()
	path := filepath.Join(t.TempDir(), "array")
	must.OK(t, os.WriteFile(path, []byte(text), 0o644))
	h := must.Get(New(Options{Command: "/bin/sh", Args: []string{path}, Timeout: 10 * time.Second}))(t)
	return h
}

func TestContract(t *testing.T) {
	t.Parallel()
	h := command(t, array)
	dir := filepath.Dir(h.opts.Args[0])
	for _, path := range []string{"allowed/a", "allowed/b", "sessions/a", "sessions/b", "volumes"} {
		must.OK(t, os.MkdirAll(filepath.Join(dir, path), 0o755))
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "volumes/v1"), nil, 0o644))
	storagetest.Run(t, storagetest.World{
		Storage: h, Targets: [2]string{"a", "b"}, Initiators: [2]string{"iqn.2026-11.test:one", "iqn.2026-11.test:two"}, Volume: "v1",
		Login: func(t *testing.T, target, initiator string) (func(), error) {
			if _, err := os.Stat(filepath.Join(dir, "allowed", target, initiator)); err != nil {
				return nil, err
			}
			session := filepath.Join(dir, "sessions", target, initiator)
			return func() { os.Remove(session) }, os.WriteFile(session, nil, 0o644)
		},
	})
}

// TestAnswers: what is not a clear yes is no evidence.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, told string }{
		"says nothing":           {"exit 0", "not the JSON"},
		"empty object":           {"echo '{}'", "does not name iqn.2026-11.test:one"},
		"names another":          {`echo '{"revoked": ["iqn.2026-11.test:other"]}'`, "does not name iqn.2026-11.test:one"},
		"no JSON":                {"echo done", "not the JSON"},
		"two answers":            {`echo '{"revoked": ["iqn.2026-11.test:one"]} {}'`, "more behind"},
		"fails":                  {"echo 'array is away' >&2; exit 3", "array is away"},
		"floods":                 {"head -c 5000000 /dev/zero", "more than"},
		"revoked, but connected": {`case $1 in revoke) echo '{"revoked": ["iqn.2026-11.test:one"]}';; *) echo '{"sessions": [{"target": "a", "initiator": "iqn.2026-11.test:one"}]}';; esac`, "still connected to a"},
		"no list of sessions":    {`case $1 in revoke) echo '{"revoked": ["iqn.2026-11.test:one"]}';; *) echo '{}';; esac`, "no list of sessions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := command(t, "#!/bin/sh\n"+c.script+"\n").Revoke(t.Context(), "iqn.2026-11.test:one")
			if !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), c.told) {
				t.Errorf("%v, want %q", err, c.told)
			}
		})
	}
}

// TestBound: a command that hangs, and all that it started, is ended.
func TestBound(t *testing.T) {
	t.Parallel()
	h := command(t, "#!/bin/sh\nsleep 600 & sleep 600\n")
	h.opts.Timeout = 200 * time.Millisecond
	began := time.Now()
	_, err := h.Sessions(context.Background())
	if !problem.Is(err, problem.Unavailable) || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	h := command(t, array)
	for _, name := range []string{"", "-rf", "a b", "a\nb", strings.Repeat("x", 300)} {
		if err := h.Revoke(t.Context(), name); !problem.Is(err, problem.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, path := range []string{"", "array", "/nowhere/array", "/tmp"} {
		if _, err := New(Options{Command: path}); !problem.Is(err, problem.Invalid) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
