package native_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/test/must"
)

// TestUnknownKeysAreRefused on every route that changes something: a mistyped key would be dropped without a word.
func TestUnknownKeysAreRefused(t *testing.T) {
	w := newWorld(t)
	w.host("vm0")
	v := w.server("s0", 1) // of a server that is not there, no body is read
	asked := 0
	for _, d := range w.endpoints {
		if d.Method == http.MethodGet || d.Method == http.MethodDelete {
			continue
		}
		asked++
		ident := uuid.NewString()
		if strings.Contains(d.Path, "/servers/{ident}") {
			ident = v.ID
		}
		path := strings.TrimPrefix(strings.ReplaceAll(d.Path, "{ident}", ident), "/salvor/v1")
		w.says(d.Method, path, `{"forced_dwn":true}`, 400, "forced_dwn")
	}
	if asked < 15 {
		t.Errorf("only %d routes were asked", asked)
	}
	h := w.host("vm3")
	w.says("PATCH", "/hosts/"+h.ID, `{"forced_dwn":true}`, 400, `Unknown field/attribute "forced_dwn"; nothing was done.`)
	w.has(w.admin("PATCH", "/hosts/"+h.ID, `{"disabled":true}`, 200), object{"disabled": true})
	w.admin("POST", "/hosts/"+h.ID+"/restore", ``, 202) // without a body, as ever
}

// TestListsHavePages: each list gives no more than was asked for, and names the next page, which keeps the filters.
func TestListsHavePages(t *testing.T) {
	w := newWorld(t)
	var servers []string
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error {
		for range 5 {
			id := uuid.NewString()
			servers = append(servers, id)
			if err := w.s.Moves().Insert(tx, &compute.Move{Record: record.Record{ID: uuid.NewString()}, ServerID: id, Kind: compute.Evacuation, State: compute.MoveCompleted}); err != nil {
				return err
			}
			if err := w.s.Plans().Insert(tx, &compute.Plan{Record: record.Record{ID: uuid.NewString()}, State: compute.PlanDone}); err != nil {
				return err
			}
		}
		return nil
	}))
	for i := range 5 {
		w.admin("POST", "/rescue-images", fmt.Sprintf(`{"name":"i%d","location":"i%d.iso"}`, i, i), 201)
		w.host(fmt.Sprint("vm", i))
		v := w.server(fmt.Sprint("s", i), 1)
		w.change(v.ID, func(s *compute.Server) { s.Project = "ann" })
	}
	for _, c := range []struct{ who, path, many string }{
		{"admin", "/moves?state=completed&kind=evacuation", "moves"}, {"admin", "/plans?state=done", "plans"}, {"admin", "/rescue-images?", "rescue_images"},
		{"ann", "/rescue-images?", "rescue_images"}, {"admin", "/hosts?", "hosts"}, {"admin", "/rescue-sessions?kind=server", "rescue_sessions"}, {"ann", "/rescue-sessions?", "rescue_sessions"},
	} {
		seen, pages := map[any]bool{}, 0
		for path := c.path + "&limit=2"; path != "" && pages < 9; pages++ {
			got := w.ask(c.who, "GET", path, "", 200)
			all := got[c.many].([]any)
			if len(all) > 2 {
				t.Errorf("%s: %d at once", path, len(all))
			}
			for _, one := range all {
				seen[one.(object)["id"]] = true
			}
			next, _ := got["next"].(string)
			_, path, _ = strings.Cut(next, "/salvor/v1")
			if strings.HasSuffix(path, "?kind=node") {
				path = ""
			}
			if path != "" && (!strings.Contains(path, "limit=2") || strings.Contains(c.path, "state=") && !strings.Contains(path, "state=")) {
				t.Errorf("the next page of %s is %s", c.path, path)
			}
		}
		if len(seen) != 5 || pages < 3 || pages > 4 {
			t.Errorf("%s of %s: %d in %d pages", c.path, c.who, len(seen), pages)
		}
	}
}

// TestBogusFiltersAreRefused: a list that is narrowed by what nothing can be is no empty list.
func TestBogusFiltersAreRefused(t *testing.T) {
	w := newWorld(t)
	for path, words := range map[string]string{
		"/moves?state=bogus": "state", "/moves?kind=bogus": "kind", "/plans?state=bogus": "state", "/fleet/nodes?state=bogus": "state", "/moves?limit=0": "limit",
		"/rescue-images?limit=-1": "limit", "/hosts?limit=x": "limit", "/rescue-sessions?limit=1001": "limit", "/moves?open=perhaps": "open",
	} {
		w.says("GET", path, "", 400, words)
	}
}
