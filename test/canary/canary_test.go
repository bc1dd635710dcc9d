package canary

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"salvor/store/storetest"
	"salvor/test/must"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

func TestCanarySQLite(t *testing.T) {
	t.Parallel()
	fly(newWorld(t, false))
}

func TestCanaryPostgreSQL(t *testing.T) {
	t.Parallel()
	fly(newWorld(t, true))
}

// fly plants, drives and looks.
func fly(w *world) {
	stop := watchProcesses(w, w.server.PID())
	w.startHost()
	metal := w.plantMetal()
	w.driveFake(metal.node)
	w.driveIPMI()
	w.driveRedfish()
	w.plantServers()
	w.look("at the end", "admin", "reader")
	w.dump()
	w.secretive("process", stop())
	for _, place := range []string{"answer", "database", "log", "host-log", "host-state", "state", "process", "boot-medium", "dump"} {
		if w.looked[place] == 0 {
			w.Errorf("nothing was looked at in %s", place)
		}
	}
	w.hardened()
	for _, f := range uncounted(w.birds) {
		w.Error(f)
	}
}

// look searches all places, and walks through the API as these.
func (w *world) look(when string, roles ...string) {
	w.Helper()
	w.Logf("looking %s", when)
	for _, role := range roles {
		w.walk(role)
	}
	w.secretive("log", []byte(w.server.Log()))
	w.secretive("host-log", []byte(w.hostLog.String()))
	if w.db.Flush != nil {
		w.db.Flush(w)
	}
	w.searchFiles("database", w.db.Dirs, nil)
	if w.db.Flush != nil {
		w.searchFiles("state", []string{w.server.State}, nil)
	} else {
		w.looked["state"]++ // it holds the database
	}
	w.searchFiles("host-state", []string{filepath.Join(w.dir, "host")}, inHostState)
}

// inHostState: a guest is given its config drive as a file, and that is what the user's data is for.
func inHostState(path string) []string {
	if strings.HasSuffix(path, ".iso") {
		return []string{"compute.Server.UserData", "a password's hash"}
	}
	return nil
}

// dump has the database written out by its own tools and ours.
func (w *world) dump() {
	w.Helper()
	file := filepath.Join(w.TempDir(), "backup.db")
	args := []string{"db", "backup", file, "--config", filepath.Join(w.server.State, "salvor.conf"), "--state-dir", w.server.State}
	w.salvor(args...)
	text, err := os.ReadFile(file)
	if err != nil {
		w.Fatal(err)
	}
	w.secretive("dump", text)
	if !strings.HasPrefix(w.db.URL, "postgres") {
		return
	}
	text, err = exec.CommandContext(w.ctx, "pg_dump", w.db.URL).Output()
	if err != nil {
		w.Fatalf("pg_dump (package postgresql-client): %v", err)
	}
	w.secretive("dump", text)
}

// roots are where the walk through the API begins.
var roots = []string{"/", "/v1", "/v1/nodes?limit=50", "/v1/nodes/detail", "/v1/ports/detail", "/v1/portgroups/detail", "/v1/chassis", "/v1/volume", "/v1/volume/connectors",
	"/v1/volume/targets/detail", "/v1/volume/targets", "/v1/allocations", "/v1/deploy_templates?detail=true", "/v1/deploy_templates", "/v1/runbooks?detail=true", "/v1/runbooks",
	"/v1/inspection_rules?detail=true", "/v1/inspection_rules", "/v1/drivers", "/v1/conductors?detail=true", "/v1/shards",
	"/compute/v2.1/servers/detail", "/compute/v2.1/flavors/detail", "/compute/v2.1/os-hypervisors/detail", "/compute/v2.1/os-keypairs", "/compute/v2.1/os-services",
	"/compute/v2.1/os-migrations", "/compute/v2.1/limits", "/image/v2/images", "/volume/v3/volumes/detail", "/cyclades/compute/v2.0/servers/detail",
	"/salvor/v1", "/salvor/v1/hosts", "/salvor/v1/clusters", "/salvor/v1/host-groups", "/salvor/v1/join-tokens", "/salvor/v1/networks", "/salvor/v1/rescue-images",
	"/salvor/v1/rescue-sessions", "/salvor/v1/moves", "/salvor/v1/plans", "/salvor/v1/receipts", "/salvor/v1/tokens", "/salvor/v1/events", "/salvor/v1/fleet", "/salvor/v1/fleet/nodes",
	"/salvor/v1/states", "/salvor/v1/secrets", "/identity/v3", "/identity/v3/projects", "/healthz", "/metrics", "/console/"}

// below are the documents of one record, by the collection that it is in.
var below = map[string][]string{
	"/v1/nodes": {"", "/states", "/history?detail=true", "/validate", "/inventory", "/bios", "/firmware", "/traits", "/vifs", "/portgroups/detail", "/ports/detail",
		"/volume/targets?detail=true", "/volume/connectors", "/allocation", "/management/boot_device/supported", "/vmedia", "?fields=driver_info,instance_info,driver_internal_info"},
	"/v1/ports": {""}, "/v1/portgroups": {""}, "/v1/volume/targets": {""}, "/v1/deploy_templates": {""}, "/v1/runbooks": {""}, "/v1/inspection_rules": {""}, "/v1/drivers": {"", "/properties"},
	"/compute/v2.1/servers": {"", "/os-instance-actions", "/os-volume_attachments", "/os-interface", "/ips", "/metadata", "/tags", "/migrations", "/diagnostics", "/os-server-password"},
	"/image/v2/images":      {"", "/members"}, "/volume/v3/volumes": {"", "/metadata"},
	"/salvor/v1/hosts": {"", "/history", "/why"}, "/salvor/v1/clusters": {""}, "/salvor/v1/nodes": {"/why", "/preflight", "/diagnoses", "/diagnoses/newest"}, "/salvor/v1/servers": {"/why", "/diagnoses", "/diagnoses/newest"}, "/salvor/v1/jobs": {""},
}

// walk asks for every document there is, as a role.
func (w *world) walk(role string) {
	w.Helper()
	asked, next, good := map[string]bool{}, slices.Clone(roots), 0
	for len(next) > 0 {
		path := next[0]
		next = next[1:]
		if asked[path] || len(asked) > 3000 {
			continue
		}
		asked[path] = true
		status, answer := w.send(role, "GET", path, nil)
		if status >= 500 && status != http.StatusServiceUnavailable && status != http.StatusNotImplemented {
			w.Errorf("GET %s: %d %s", path, status, answer)
		}
		if status == http.StatusOK {
			good++
		}
		var may []string
		if role == "admin" && strings.HasPrefix(path, "/compute/") { // as Nova's does
			may = []string{"compute.Server.UserData"}
		}
		w.secretive("answer GET "+path+" as "+role, answer, may...)
		next = append(next, w.links(path, answer)...)
	}
	if role == "admin" && good < 60 {
		w.Errorf("the walk found %d documents only", good)
	}
}

// links are the documents that one leads to.
func (w *world) links(path string, answer []byte) []string {
	var doc any
	if json.Unmarshal(answer, &doc) != nil {
		return nil
	}
	path, _, _ = strings.Cut(path, "?")
	collection := strings.TrimSuffix(path, "/detail")
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range []string{"uuid", "id", "name"} {
				if id, ok := v[name].(string); ok && id != "" {
					for _, more := range below[collection] {
						out = append(out, collection+"/"+url.PathEscape(id)+more)
					}
					switch collection {
					case "/v1/nodes":
						out = append(out, "/salvor/v1/nodes/"+url.PathEscape(id)+"/why", "/salvor/v1/events?subject=node:"+url.QueryEscape(id))
					case "/compute/v2.1/servers":
						out = append(out, "/salvor/v1/servers/"+url.PathEscape(id)+"/why", "/salvor/v1/events?subject=server:"+url.QueryEscape(id))
					}
					break
				}
			}
			if next, ok := v["next"].(string); ok {
				out = append(out, strings.TrimPrefix(next, w.server.URL))
			}
			for _, e := range v {
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(doc)
	return slices.DeleteFunc(out, func(p string) bool { return !strings.HasPrefix(p, "/") })
}

// hardened proves that the process dumps no core and that its files are its own.
func (w *world) hardened() {
	w.Helper()
	limits := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/limits", w.server.PID())))(w)
	for line := range strings.Lines(string(limits)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Max core file size") && (f[4] != "0" || f[5] != "0") {
			w.Errorf("a core may be dumped: %s", line)
		}
	}
	must.OK(w, filepath.Walk(w.server.State, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 && info.Mode()&os.ModeSymlink == 0 && path != w.server.State {
			w.Errorf("%s is open to others: %v", path, info.Mode())
		}
		return nil
	}))
}
