package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
)

// everyTime are the forms in which APIs write times.
var everyTime = []string{"2026-11-28T01:06:23Z", "2026-11-28T01:06:23.061064592Z", "2026-11-28T01:06:23+00:00", "2026-11-28T02:06:23+01:00", "2026-11-28T01:06:23.000000", "2026-11-28T01:06:23"}

func TestShownTime(t *testing.T) {
	const want = "2026-11-28 01:06:23 UTC"
	for _, text := range everyTime {
		if got := kit.ShownTime(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "rack1-7", "2026-11-28", "at 2026-11-28T01:06:23Z it broke", "2026-99-28T01:06:23Z"} {
		if got := kit.ShownTime(text); got != text {
			t.Errorf("%q is no time of an API and is shown as %q", text, got)
		}
	}
}

// timesEverywhere answers every request with records whose times have all forms.
type timesEverywhere struct{ lists []string }

func (a timesEverywhere) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1" {
		w.Header().Set(client.MinVersionHeader, "1.1")
		w.Header().Set(client.MaxVersionHeader, "1.109")
	}
	fields := []string{`"uuid":"5f0c1d1e-0000-4000-8000-000000000001","id":"5f0c1d1e-0000-4000-8000-000000000001","name":"a","more":false`}
	for i, name := range []string{"created_at", "updated_at", "provision_updated_at", "expires_at", "used_at", "started_at", "removed_at", "quarantined_at", "created", "updated", "at", "renewed_at", "since", "requested_at"} {
		fields = append(fields, fmt.Sprintf("%q:%q", name, everyTime[i%len(everyTime)]))
	}
	fields = append(fields, fmt.Sprintf(`"extra":{"when":[%q]}`, everyTime[1]))
	record := strings.Join(fields, ",")
	whole := record
	for _, key := range a.lists {
		whole += fmt.Sprintf(",%q:[{%s}]", key, record)
	}
	for _, key := range []string{"server", "flavor", "keypair", "volume", "image", "subject"} {
		whole += fmt.Sprintf(",%q:{%s}", key, record)
	}
	fmt.Fprintf(w, "{%s}", whole)
}

// TestTablesShowOneFormOfTime walks all commands that list and show.
func TestTablesShowOneFormOfTime(t *testing.T) {
	lists := []string{"history", "entries", "sessions", "flavors", "quarantine"}
	for _, kinds := range completed {
		for _, kind := range kinds {
			for _, key := range []string{kind.many, kind.at.Envelope} {
				if key != "" && !slices.Contains(lists, key) {
					lists = append(lists, key)
				}
			}
		}
	}
	other := regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([^ ]| [^U]|$)`)
	shown := 0
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		for _, c := range cmd.Commands() {
			walk(c, append(slices.Clone(path), c.Name()))
		}
		if cmd.RunE == nil || !slices.Contains([]string{"list", "show", "history", "quarantine", "events"}, cmd.Name()) {
			return
		}
		args := slices.Clone(path)
		for range strings.Fields(strings.ReplaceAll(cmd.Use, "[", "#"))[1:] {
			args = append(args, "5f0c1d1e-0000-4000-8000-000000000001")
		}
		for _, more := range [][]string{nil, {"--long"}} {
			out := runAgainst(t, timesEverywhere{lists}, append(slices.Clone(args), more...))
			if bad := other.FindString(out); bad != "" {
				t.Errorf("salvor %s shows %q in another form than 2026-11-28 01:06:23 UTC:\n%s", strings.Join(args, " "), bad, out)
			}
			if strings.Contains(out, "01:06:23 UTC") {
				shown++
				break
			}
		}
	}
	walk(newRootCommand(), nil)
	if shown < 20 {
		t.Errorf("only %d commands showed a time, want 20: the walk answers them wrongly", shown)
	}
}

// TestNobodyElseFormatsTimes: the program shows times by record.Moment, the console by stamp.
func TestNobodyElseFormatsTimes(t *testing.T) {
	// The layouts of the APIs of others, and of what programs read.
	wire := []string{"api/identity/", "api/image/", "api/nova/", "api/cyclades/", "api/volume/", "api/ironic/", "lab/", "test/", "tools/", "record/why.go", "cmd/salvor/man.go",
		// The rules about an installed system import nothing that shows times, and write them in the same form, or a day.
		"diagnose/system/"}
	bad := regexp.MustCompile(`\.Local\(\)|Format\((time\.(DateTime|TimeOnly|Stamp\w*|Kitchen|RFC1123Z?|RFC850|RFC822Z?|ANSIC|UnixDate)|"[^"]*0[56][^"]*")\)|\.toLocale(Time|Date)String|Date\([^)]*\)\.toLocaleString|Intl\.DateTimeFormat`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(path, "../../"))
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "build"}, d.Name()) { // they change with every run, so that no result could be kept
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || strings.HasSuffix(name, "_test.go") || !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".js") ||
			slices.ContainsFunc(wire, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			return err
		}
		b, err := os.ReadFile(path)
		for n, line := range bytes.Split(b, []byte("\n")) {
			if found := bad.Find(line); found != nil && !bytes.Contains(line, []byte("http.TimeFormat")) {
				t.Errorf("%s:%d: %s: show a time by record.Moment, or by stamp of words.js", name, n+1, found)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// runAgainst runs the program against a server, and gives what it prints.
func runAgainst(t *testing.T, api http.Handler, args []string) string {
	t.Helper()
	server := httptest.NewServer(api)
	defer server.Close()
	t.Setenv("SALVOR_URL", server.URL)
	root := newRootCommand()
	var out bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	_ = root.ExecuteContext(t.Context())
	return out.String()
}
