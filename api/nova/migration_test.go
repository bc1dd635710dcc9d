package nova_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/test/must"
)

const hostTwo = "22222222-3333-4444-8555-777777777777"

// moved writes moves of a server from the first host to the second: an evacuation that is done, and a live migration that goes on.
func (w *world) moved(server string) (done, going *compute.Move) {
	w.Helper()
	h := &compute.Host{Record: record.Record{ID: hostTwo, CreatedAt: born}, Name: "rack2", Kind: compute.AgentHost, Inventory: compute.Inventory{Address: "192.0.2.10"}}
	done = &compute.Move{
		Record: record.Record{ID: uuid.NewString(), CreatedAt: born, UpdatedAt: born}, ServerID: server, SourceID: hostOne, DestID: hostTwo,
		Kind: compute.Evacuation, State: compute.MoveDone, User: "ann", Project: projectA,
	}
	going = &compute.Move{
		Record: record.Record{ID: uuid.NewString(), CreatedAt: born.Add(time.Second), UpdatedAt: born.Add(time.Hour)}, ServerID: server, SourceID: hostTwo,
		Kind: compute.LiveMigration, State: compute.MoveAccepted, User: "eve", Project: projectB,
	}
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error {
		if err := w.store.Hosts().Insert(tx, h); err != nil {
			return err
		}
		if err := w.store.Moves().Insert(tx, done); err != nil {
			return err
		}
		return w.store.Moves().Insert(tx, going)
	}))
	w.forget()
	return done, going
}

// TestMigrationShapes holds the list to the fields of each microversion.
func TestMigrationShapes(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	done, going := w.moved(id)
	w.as(boss)
	always := []string{"created_at", "dest_compute", "dest_host", "dest_node", "id", "instance_uuid", "new_instance_type_id", "old_instance_type_id", "source_compute", "source_node", "status", "updated_at"}
	for _, minor := range []int{1, 22, 23, 58, 59, 79, 80, 88} {
		all := w.want(200, "GET", "/os-migrations", fmt.Sprint("2.", minor), "").Object(t)["migrations"].([]any)
		if len(all) != 2 {
			t.Fatal(all)
		}
		first, second := all[0].(map[string]any), all[1].(map[string]any)
		if minor >= 59 { // the newest first
			first, second = second, first
		}
		want := slices.Clone(always)
		if minor >= 23 {
			want = append(want, "migration_type")
		}
		if minor >= 59 {
			want = append(want, "uuid")
		}
		if minor >= 80 {
			want = append(want, "project_id", "user_id")
		}
		slices.Sort(want)
		if got := keysOf(first); !slices.Equal(got, want) {
			t.Errorf("2.%d: %v, want %v", minor, got, want)
		}
		if links, there := second["links"]; there != (minor >= 23) || there && !strings.HasSuffix(at(links.([]any)[0], "href").(string), fmt.Sprintf("/servers/%s/migrations/%d", id, going.Num)) {
			t.Errorf("2.%d: links %v", minor, links)
		}
		if first["source_compute"] != "rack1" || first["dest_compute"] != "rack2" || first["dest_host"] != "192.0.2.10" || first["status"] != "done" ||
			first["id"] != float64(done.Num) || first["created_at"] != "2026-03-04T05:06:07.890000" || second["dest_compute"] != nil || second["dest_host"] != nil {
			t.Errorf("2.%d: %v %v", minor, first, second)
		}
	}
	w.want(404, "GET", "/servers/"+id+"/migrations", "2.22", "")
	w.want(404, "GET", "/servers/"+nothing+"/migrations", "2.23", "")
	for minor, fields := range map[int]int{23: 16, 59: 17, 80: 19} {
		version := fmt.Sprint("2.", minor)
		all := w.want(200, "GET", "/servers/"+id+"/migrations", version, "").Object(t)["migrations"].([]any)
		if len(all) != 1 || len(all[0].(map[string]any)) != fields || at(all[0], "server_uuid") != id {
			t.Errorf("%s: %v", version, all)
		}
		one := w.want(200, "GET", fmt.Sprintf("/servers/%s/migrations/%d", id, going.Num), version, "").Object(t)
		if at(one, "migration", "status") != "accepted" {
			t.Error(one)
		}
	}
	if _, message := w.want(404, "GET", fmt.Sprintf("/servers/%s/migrations/%d", id, done.Num), "2.23", "").fault(); !strings.Contains(message, "In-progress live migration") {
		t.Error(message)
	}
}

func keysOf(m map[string]any) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// TestMigrationFilters walks all that narrows the list, and its pages.
func TestMigrationFilters(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	done, going := w.moved(id)
	w.as(boss)
	since := "?changes-since=" + url.QueryEscape(born.Add(time.Minute).Format(time.RFC3339))
	before := "?changes-before=" + url.QueryEscape(born.Add(time.Minute).Format(time.RFC3339))
	for _, c := range []struct {
		version, query string
		want           []*compute.Move
	}{
		{"2.1", "?status=done", []*compute.Move{done}}, {"2.1", "?status=nonsense", nil}, {"2.1", "?host=rack2", []*compute.Move{done, going}},
		{"2.1", "?host=rack1", []*compute.Move{done}}, {"2.1", "?host=nobody", nil}, {"2.1", "?source_compute=rack2", []*compute.Move{going}},
		{"2.1", "?migration_type=evacuation", []*compute.Move{done}}, {"2.1", "?instance_uuid=" + id, []*compute.Move{done, going}}, {"2.1", "?instance_uuid=" + nothing, nil},
		{"2.1", "?hidden=1", nil}, {"2.1", "?hidden=false", []*compute.Move{done, going}}, {"2.58", "?limit=1&what=ever", []*compute.Move{done, going}},
		{"2.58", since, []*compute.Move{done, going}}, {"2.59", since, []*compute.Move{going}}, {"2.66", before, []*compute.Move{done}},
		{"2.59", "?limit=1", []*compute.Move{going}}, {"2.59", "?marker=" + going.ID, []*compute.Move{done}}, {"2.59", "?marker=" + done.ID, nil},
		{"2.80", "?user_id=ann", []*compute.Move{done}}, {"2.80", "?project_id=" + projectB, []*compute.Move{going}},
	} {
		var got, want []float64
		for _, m := range w.want(200, "GET", "/os-migrations"+c.query, c.version, "").Object(t)["migrations"].([]any) {
			got = append(got, at(m, "id").(float64))
		}
		for _, m := range c.want {
			want = append(want, float64(m.Num))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s at %s: %v, want %v", c.query, c.version, got, want)
		}
	}
	next := at(w.want(200, "GET", "/os-migrations?limit=1", "2.59", "").Object(t)["migrations_links"].([]any)[0], "href").(string)
	if !strings.HasSuffix(next, "/compute/v2.1/os-migrations?limit=1&marker="+going.ID) {
		t.Error(next)
	}
	for _, bad := range []struct{ version, query, words string }{
		{"2.59", "?marker=" + nothing, "Marker " + nothing + " could not be found."}, {"2.59", "?marker=nonsense", "Marker nonsense could not be found."},
		{"2.59", "?limit=-1", "limit"}, {"2.59", "?changes-since=nonsense", "date-time"}, {"2.59", "?what=ever", "Additional properties"},
		{"2.65", before, "Additional properties"}, {"2.79", "?user_id=ann", "Additional properties"},
		{"2.66", since + "&" + strings.TrimPrefix(before, "?") + "T", "date-time"},
		{"2.66", "?changes-since=2026-03-05&changes-before=2026-03-04", "must be less than or equal to changes-before"},
	} {
		if name, message := w.want(400, "GET", "/os-migrations"+bad.query, bad.version, "").fault(); name != "badRequest" || !strings.Contains(message, bad.words) {
			t.Errorf("%s: %s", bad.query, message)
		}
	}
}

// TestMigrationStatusOfAFailure: a move that came to its end at the destination, where the guest did not start, is in error. Pages of a
// status hold what has the status, also where the store lists other moves in between.
func TestMigrationStatusOfAFailure(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	w.moved(id) // one that is done, one that goes on
	var failed, cleaned []string
	must.OK(t, w.store.Do(t.Context(), func(tx job.Tx) error {
		for i := range 8 {
			m := &compute.Move{
				Record:   record.Record{ID: uuid.NewString(), CreatedAt: born.Add(time.Duration(i+2) * time.Second), UpdatedAt: born.Add(time.Hour)},
				ServerID: id, SourceID: hostOne, DestID: hostTwo, Kind: compute.Migration, State: compute.MoveDone, User: "ann", Project: projectA,
			}
			switch i % 4 {
			case 0:
				m.Problem, failed = "no QEMU", append(failed, m.ID)
			case 1:
				m.State, m.Kind, m.Problem, failed = compute.MoveCompleted, compute.LiveMigration, "no QEMU", append(failed, m.ID)
			case 2:
				m.Problem = compute.NotCleanedUp + "the disk is in use"
			case 3:
				m.State, cleaned = compute.MoveCompleted, append(cleaned, m.ID)
			}
			if err := w.store.Moves().Insert(tx, m); err != nil {
				return err
			}
		}
		return nil
	}))
	w.as(boss)
	page := func(query string) (ids, statuses []string, next string) {
		o := w.want(200, "GET", "/os-migrations"+query, "2.88", "").Object(t)
		for _, m := range o["migrations"].([]any) {
			ids, statuses = append(ids, at(m, "uuid").(string)), append(statuses, at(m, "status").(string))
		}
		if links, ok := o["migrations_links"].([]any); ok {
			next = links[0].(map[string]any)["href"].(string)
			next = next[strings.Index(next, "?"):]
		}
		return ids, statuses, next
	}
	for _, c := range []struct {
		query string
		want  []string
	}{{"status=error", failed}, {"status=completed", cleaned}, {"status=error&migration_type=live-migration", []string{failed[1], failed[3]}}, {"status=failed", nil}} {
		var got []string
		query := "?limit=1&" + c.query
		for pages := 0; query != "" && pages < 9; pages++ {
			ids, _, next := page(query)
			if len(ids) > 1 {
				t.Errorf("%s: a page has %d moves, want 1 at most", query, len(ids))
			}
			got, query = append(got, ids...), next
		}
		slices.Reverse(got) // the newest comes first
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.query, got, c.want)
		}
	}
	for word, want := range map[string]int{"done": 3, "error": 4, "completed": 2, "accepted": 1, "": 10} {
		query := "?"
		if word != "" {
			query += "status=" + word
		}
		if ids, statuses, _ := page(query); len(ids) != want || word != "" && strings.Trim(strings.Join(statuses, ""), word) != "" {
			t.Errorf("status %q: %d moves with %q, want %d", word, len(ids), statuses, want)
		}
	}
}

// TestEvacuateShapes holds the body to each microversion's schema.
func TestEvacuateShapes(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	path := "/servers/" + id + "/action"
	w.want(403, "POST", path, "2.1", `{"evacuate": {"onSharedStorage": false}}`)
	w.as(boss)
	for _, bad := range []struct{ version, body, words string }{
		{"2.1", `{"evacuate": {}}`, "'onSharedStorage' is a required property"}, {"2.13", `{"evacuate": {"host": "rack1"}}`, "'onSharedStorage' is a required property"},
		{"2.1", `{"evacuate": null}`, "is not of type 'object'"}, {"2.1", `{"evacuate": {"onSharedStorage": "perhaps"}}`, "is not a boolean"},
		{"2.1", `{"evacuate": {"onSharedStorage": true, "adminPass": "x"}}`, "admin password can't be changed on existing disk"},
		{"2.13", `{"evacuate": {"onSharedStorage": false, "force": true}}`, "'force' was unexpected"},
		{"2.14", `{"evacuate": {"onSharedStorage": false}}`, "'onSharedStorage' was unexpected"}, {"2.28", `{"evacuate": {"force": true}}`, "'force' was unexpected"},
		{"2.29", `{"evacuate": {"force": true}}`, "Can't force to a non-provided destination"}, {"2.67", `{"evacuate": {"force": "True"}}`, "Can't force to a non-provided destination"},
		{"2.68", `{"evacuate": {"force": false}}`, "'force' was unexpected"}, {"2.88", `{"evacuate": {"host": ""}}`, "is too short"}, {"2.88", `{"evacuate": {"host": 7}}`, "'string'"},
	} {
		if name, message := w.want(400, "POST", path, bad.version, bad.body).fault(); name != "badRequest" || !strings.Contains(message, bad.words) {
			t.Errorf("%s at %s: %s", bad.body, bad.version, message)
		}
	}
	w.want(404, "POST", "/servers/"+nothing+"/action", "2.88", `{"evacuate": {}}`)
}
