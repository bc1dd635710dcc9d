package native_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/access"
	"salvor/api"
	"salvor/api/native"
	"salvor/compute"
	"salvor/compute/service"
	"salvor/diagnose"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/reportschema"
)

// fakeAuth authenticates by the word in X-Auth-Token: "admin", or a project's.
type fakeAuth struct{}

// revoked are those whose word is good no more.
var revoked sync.Map

func (fakeAuth) Authenticate(r *http.Request) (access.Principal, error) {
	requester := r.Header.Get("X-Auth-Token")
	if _, gone := revoked.Load(requester); gone || requester == "" {
		return fixture.Nobody().Authenticate(r)
	}
	if requester == "admin" {
		return access.Principal{User: "root", Role: access.Admin}, nil
	}
	if name, only := strings.CutPrefix(requester, "reader of "); only {
		return fixture.Member(name, "reader"), nil
	}
	if name, leads := strings.CutPrefix(requester, "manager of "); leads {
		return fixture.Member(name, "manager", "member", "reader"), nil
	}
	return fixture.Member(requester, "member", "reader"), nil
}

type world struct {
	*testing.T
	s         *store.Store
	services  *service.Services
	repairs   metal.NodeRepairs
	url       string
	nodes     []*metal.Node
	asked     []metal.Question
	diagnoses []metal.Diagnosis
	console   metal.ConsoleLog
	rescued   []metal.ProvisionArgs
	answer    json.RawMessage // of every question; nil: an object with its kind
	feed      *native.Feed
	endpoints []api.Endpoint
}

// List gives the nodes in a provision state.
func (w *world) List(_ context.Context, f metal.NodeFilter, _ record.Page) (out []*metal.Node, err error) {
	for _, n := range w.nodes {
		if n.ProvisionState == f.ProvisionState && (f.Project == "" || n.Owner == f.Project || n.Lessee == f.Project) {
			out = append(out, n)
		}
	}
	return out, nil
}

// Node finds one by name.
func (w *world) Node(_ context.Context, ident string) (*metal.Node, error) {
	for _, n := range w.nodes {
		if n.Name == ident || n.ID == ident {
			return n, nil
		}
	}
	return nil, problem.NotFoundf("Node %s could not be found.", ident)
}

// CheckAll finds that the node can not be rescued, and tells whose runbooks it was to look at.
func (w *world) CheckAll(ctx context.Context, ident string, seen metal.RunbookFilter) (*metal.Node, []metal.OperationCheck, error) {
	n, err := w.Node(ctx, ident)
	return n, []metal.OperationCheck{{Kind: "rescue", Now: true, Reasons: []metal.Reason{{Interface: "boot", Text: "no kernel at 10.1.1.1"}}}, {Kind: "inspect", Reasons: []metal.Reason{{Text: "runbooks seen by project " + seen.Project}}}}, err
}

// Diagnose keeps the diagnosis, Diagnoses gives what is kept.
func (w *world) Diagnose(_ context.Context, ident string, args metal.DiagnoseArgs, asker record.Asker) (metal.Diagnosis, error) {
	d := metal.Diagnosis{Record: diagnose.Record{ID: fmt.Sprint("d", len(w.diagnoses)+1), RequestedBy: asker.User, State: diagnose.Running, Report: diagnose.Report{Findings: args.Console}}, Args: args}
	w.diagnoses = append([]metal.Diagnosis{d}, w.diagnoses...)
	return d, nil
}

func (w *world) ConsoleLog(context.Context, string) (metal.ConsoleLog, error) { return w.console, nil }

func (w *world) Diagnoses(context.Context, job.Tx, string) ([]metal.Diagnosis, error) {
	return w.diagnoses, nil
}

// ConfirmDiagnosis confirms the newest one.
func (w *world) ConfirmDiagnosis(_ context.Context, ident, id, words string, asker record.Asker) (metal.Diagnosis, error) {
	if id != "newest" {
		return metal.Diagnosis{}, problem.NotFoundf("Node %s has no diagnosis %s.", ident, id)
	}
	d := &w.diagnoses[0]
	err := d.Confirm("node", ident, diagnose.Confirmation{By: asker.User, Words: words})
	return *d, err
}

// Provision keeps what came with the verb.
func (w *world) Provision(_ context.Context, ident string, v metal.Verb, _ string, args metal.ProvisionArgs, _ record.Asker) error {
	if v != metal.ToRescue {
		return problem.Invalidf("%s was asked of %s", v, ident)
	}
	w.rescued = append(w.rescued, args)
	return nil
}

// Ask keeps the question, whose id is its kind; Answer gives it back.
func (w *world) Ask(_ context.Context, _ string, q metal.Question, _ record.Asker) (string, error) {
	w.asked = append(w.asked, q)
	return string(q.Kind), nil
}

func (w *world) Answer(_ context.Context, id string) (json.RawMessage, error) {
	if w.answer != nil {
		return w.answer, nil
	}
	return json.Marshal(map[string]string{"kind": id})
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s, key := storetest.SQLite(t)
	directory := metal.NewDirectory(s, time.Now, 0, 0)
	w := &world{T: t, repairs: metal.NewNodeRepairs(metal.NewNodes(s, s, key, directory, metal.Options{}, time.Now)), s: s, services: service.New(s, s, service.Options{RescueImagePath: "/srv/rescue"}, time.Now), feed: native.NewFeed(s, slog.New(slog.DiscardHandler))}
	handler := native.New(native.Config{Services: w.services, Nodes: w, Repairs: w.repairs, Fleet: s, PowerReadSince: func() time.Time { return time.Now().Add(-metal.FreshReading(0)) }, Jobs: s, Conductors: directory, Feed: w.feed, Auth: fakeAuth{}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		JoinToken: func(v secret.Value) secret.Value { return secret.New(v.Reveal() + ".ca") }})
	w.endpoints = handler.(api.RouteLister).Endpoints
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	w.url = server.URL + "/salvor/v1"
	return w
}

type object = map[string]any

// ask sends a request as somebody and wants a status.
func (w *world) ask(requester, method, path, body string, want int) object {
	w.Helper()
	answer := fixture.Send(w, method, w.url+path, body, "X-Auth-Token", requester, "Content-Type", "application/json").Want(w, want)
	w.hasSchema(method, path, answer)
	return answer.ObjectIfAny(w)
}

// hasSchema holds diagnoses in answers to their published schema.
func (w *world) hasSchema(method, path string, a fixture.Answer) {
	w.Helper()
	subject, id, found := strings.Cut(path, "/diagnoses")
	if !found || a.Status >= http.StatusBadRequest || id == "" && method == http.MethodGet {
		return
	}
	schema := "NodeDiagnosis"
	if strings.HasPrefix(subject, "/servers/") {
		schema = "ServerDiagnosis"
	}
	reportschema.Check(w, schema, []byte(a.Body))
}

func (w *world) admin(method, path, body string, want int) object {
	w.Helper()
	return w.ask("admin", method, path, body, want)
}

// says wants an error that tells what is the matter.
func (w *world) says(method, path, body string, want int, text string) {
	w.Helper()
	got := w.admin(method, path, body, want)
	if fault, _ := got["error"].(object); fault == nil || !strings.Contains(fmt.Sprint(fault["message"]), text) {
		w.Errorf("%s %s %s: %v, want %q", method, path, body, got, text)
	}
}

func (w *world) has(got object, want object) {
	w.Helper()
	for field, value := range want {
		if fmt.Sprint(got[field]) != fmt.Sprint(value) {
			w.Errorf("%s is %v, want %v", field, got[field], value)
		}
	}
}

func (w *world) many(path, name string, want int) []any {
	w.Helper()
	all, _ := w.admin("GET", path, "", 200)[name].([]any)
	if len(all) != want {
		w.Fatalf("%s: %d of %s, want %d", path, len(all), name, want)
	}
	return all
}

// server inserts a server, in a session with a rescue image if that is not 0.
func (w *world) server(name string, image int64) *compute.Server {
	w.Helper()
	v := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: name, State: compute.Active, Power: compute.PowerOn}
	if image != 0 {
		v.State = compute.Rescued
		v.Rescue = &rescue.Session{StartedAt: time.Now(), State: rescue.Ready, Source: &rescue.Source{ImageID: image}, Fingerprint: "SHA256:f",
			Credential: rescue.Credential{Hash: secret.New("$5$canary"), Keys: []string{"canary"}}}
	}
	must.OK(w, w.s.Do(w.Context(), func(tx job.Tx) error { return w.s.Servers().Insert(tx, v) }))
	return v
}

// change writes a server's row.
func (w *world) change(id string, edit func(*compute.Server)) {
	w.Helper()
	must.OK(w, w.s.Do(w.Context(), func(tx job.Tx) error {
		v, err := w.s.Servers().Get(w.Context(), tx, id)
		if err != nil {
			return err
		}
		edit(v)
		return w.s.Servers().Save(tx, v)
	}))
}

func TestAdministratorsOnly(t *testing.T) {
	w := newWorld(t)
	w.ask("", "GET", "", "", 200) // what there is
	for _, path := range []string{"/hosts", "/clusters", "/networks", "/join-tokens", "/host-groups", "/receipts", "/plans", "/moves", "/jobs/x", "/hosts/x/history"} {
		w.ask("", "GET", path, "", 401)
		w.ask("p1", "GET", path, "", 403)
	}
	for _, path := range []string{"/rescue-images", "/clusters", "/networks", "/join-tokens", "/servers/adopt", "/reconcile/servers", "/host-groups", "/plans", "/plans/x/run", "/hosts/x/fence"} {
		w.ask("p1", "POST", path, "{}", 403)
		w.ask("admin", "POST", path, "[]", 400)
		w.ask("admin", "POST", path, `{"name":`, 400)
		w.ask("admin", "POST", path, `{"name":`+strings.Repeat("[", 10000), 400)
		w.ask("admin", "PUT", path, "{}", 405)
	}
	w.ask("admin", "GET", "/nothing", "", 404)
}

func TestRescueImages(t *testing.T) {
	w := newWorld(t)
	img := w.admin("POST", "/rescue-images", `{"name":"grml","location":"grml.iso","location_type":"file","os":"grml","os_family":"linux",
		"target_os":"debian","target_os_family":"linux","default":true}`, 201)
	w.has(img, object{"id": 1, "name": "grml", "location": "grml.iso", "location_type": "file", "os": "grml", "os_family": "linux",
		"target_os": "debian", "target_os_family": "linux", "default": true, "kind": "iso", "servers": 0, "deleted": false})
	w.says("POST", "/rescue-images", `{"name":"again","location":"./grml.iso"}`, 409, "location")
	w.says("POST", "/rescue-images", `{"name":"out","location":"../etc/passwd","location_type":"file"}`, 400, "")
	w.says("POST", "/rescue-images", `{"name":"none"}`, 400, "needs a location")
	w.says("POST", "/rescue-images", `{"name":7}`, 400, "name")
	second := w.admin("POST", "/rescue-images", `{"name":"win","location":"win.iso","target_os_family":"windows","default":true}`, 201)
	w.has(w.admin("GET", "/rescue-images/1", "", 200), object{"default": false, "used_by": "[]"}) // the default moved
	w.has(w.admin("PATCH", fmt.Sprint("/rescue-images/", second["uuid"]), `{"name":"winpe","os":"winpe"}`, 200),
		object{"name": "winpe", "os": "winpe", "location": "win.iso", "default": true})
	w.says("PATCH", "/rescue-images/2", `{"default":false}`, 409, "default")
	for _, name := range []string{"a", "b"} {
		w.server(name, 1)
	}
	w.server("c", 0)
	all := w.many("/rescue-images", "rescue_images", 2)
	w.has(all[0].(object), object{"id": 1, "servers": 2})
	w.has(all[1].(object), object{"id": 2, "servers": 0})
	shown := w.admin("GET", "/rescue-images/1", "", 200)
	var names []string
	for _, u := range shown["used_by"].([]any) {
		names = append(names, fmt.Sprint(u.(object)["name"]))
	}
	if strings.Join(names, " ") != "a b" {
		t.Errorf("used by %v", names)
	}
	w.says("DELETE", "/rescue-images/1", "", 409, "currently using")
	w.says("DELETE", "/rescue-images/1?force=perhaps", "", 400, "force")
	w.says("DELETE", "/rescue-images/2", "", 409, "default")
	w.admin("DELETE", "/rescue-images/1?force=true", "", 204)
	w.admin("DELETE", "/rescue-images/1", "", 404)
	w.many("/rescue-images", "rescue_images", 1)
	w.many("/rescue-images?deleted=true", "rescue_images", 2)
	w.many("/rescue-images?name=winpe", "rescue_images", 1)
	w.has(w.admin("GET", "/rescue-images/1", "", 200), object{"deleted": true})
	w.admin("POST", "/rescue-images", `{"name":"heir","location":"grml.iso"}`, 201)
	for _, ident := range []string{"9", "0", "-1", "x", "99999999999999999999", uuid.NewString()} {
		w.says("GET", "/rescue-images/"+ident, "", 404, "not found")
	}
}

// TestOwnersSeeTheirRescueSessions: without the fingerprint an owner cannot know whether it is his rescue system that he logs in to.
func TestOwnersSeeTheirRescueSessions(t *testing.T) {
	w := newWorld(t)
	w.admin("POST", "/rescue-images", `{"name":"grml","location":"grml.iso"}`, 201)
	v := w.server("broken", 1)
	fine := w.server("fine", 0)
	w.change(v.ID, func(s *compute.Server) {
		s.Project, s.NICs = "ann", []compute.NIC{{Addresses: []string{"192.0.2.7", "2001:db8::7"}}}
		s.Rescue.ExpiresAt = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	})
	w.change(fine.ID, func(s *compute.Server) { s.Project = "ann" })
	all := w.ask("ann", "GET", "/rescue-sessions", "", 200)["rescue_sessions"].([]any)
	if len(all) != 1 {
		t.Fatal(all)
	}
	for _, got := range []object{all[0].(object), w.ask("ann", "GET", "/rescue-sessions/"+v.ID, "", 200), w.ask("ann", "GET", "/rescue-sessions/broken", "", 200), w.admin("GET", "/rescue-sessions/broken", "", 200)} {
		w.has(got, object{"kind": "server", "id": v.ID, "state": "ready", "fingerprint": "SHA256:f", "expires_at": "2026-11-23T00:00:00Z", "addresses": "[192.0.2.7 2001:db8::7]"})
		if text := fmt.Sprint(got); strings.Contains(text, "canary") {
			t.Errorf("a credential is shown: %s", text)
		}
	}
	w.ask("ann", "GET", "/rescue-sessions/"+fine.ID, "", 404)
	w.ask("ann", "GET", "/rescue-sessions/nobody", "", 404)
	if all := w.ask("bob", "GET", "/rescue-sessions", "", 200)["rescue_sessions"].([]any); len(all) != 0 {
		t.Errorf("another project is told %v", all)
	}
	w.ask("bob", "GET", "/rescue-sessions/"+v.ID, "", 404)
	w.ask("bob", "GET", "/rescue-sessions/broken", "", 404)
	w.nodes = []*metal.Node{{Name: "m1", ProvisionState: metal.Rescue, Rescue: &rescue.Session{Fingerprint: "SHA256:m"}}, {Name: "m2", ProvisionState: metal.Active},
		{Name: "m3", ProvisionState: metal.Rescue, Lessee: "ann", Rescue: &rescue.Session{Fingerprint: "SHA256:n"}}}
	if all := w.ask("ann", "GET", "/rescue-sessions?kind=node", "", 200)["rescue_sessions"].([]any); len(all) != 1 || all[0].(object)["fingerprint"] != "SHA256:n" {
		t.Errorf("%v", all)
	}
	w.has(w.ask("ann", "GET", "/rescue-sessions/m3", "", 200), object{"kind": "node", "fingerprint": "SHA256:n"})
	w.has(w.admin("GET", "/rescue-sessions/m1", "", 200), object{"kind": "node", "state": "ready", "fingerprint": "SHA256:m"})
	w.admin("GET", "/rescue-sessions/m2", "", 404)
	w.ask("ann", "GET", "/rescue-sessions/m1", "", 404)
}

func TestRescueSessions(t *testing.T) {
	w := newWorld(t)
	w.admin("POST", "/rescue-images", `{"name":"grml","location":"grml.iso"}`, 201)
	w.server("fine", 0)
	v := w.server("broken", 1)
	got := w.admin("GET", "/rescue-sessions", "", 200)
	if text := fmt.Sprint(got); strings.Contains(text, "canary") {
		t.Fatalf("a credential is shown: %s", text)
	}
	all := got["rescue_sessions"].([]any)
	if next, _ := got["next"].(string); len(all) != 1 || !strings.HasSuffix(next, "kind=node") {
		t.Fatalf("%v", got)
	}
	w.has(all[0].(object), object{"kind": "server", "id": v.ID, "name": "broken", "state": "ready", "rescue_image": 1, "fingerprint": "SHA256:f"})
	w.nodes = []*metal.Node{{Name: "m1", ProvisionState: metal.RescueWait, Rescue: &rescue.Session{Saved: rescue.Boot{Device: "disk"}}}, {Name: "m2", ProvisionState: metal.RescueFailed}}
	nodes := w.admin("GET", "/rescue-sessions?kind=node", "", 200)["rescue_sessions"].([]any)
	if len(nodes) != 2 {
		t.Fatalf("%v", nodes)
	}
	w.has(nodes[0].(object), object{"kind": "node", "name": "m1", "state": "booting", "saved_device": "disk"})
	w.has(nodes[1].(object), object{"kind": "node", "name": "m2", "state": "failed"})
	w.says("GET", "/rescue-sessions?kind=host", "", 400, "want server or node")
	w.says("POST", "/servers/"+v.ID+"/modify", `{"action":"reboot"}`, 400, "want rescue or unrescue")
	w.says("POST", "/servers/"+uuid.NewString()+"/modify", `{"action":"rescue"}`, 404, "")
	w.admin("POST", "/servers/"+v.ID+"/modify", `{"action":"rescue","rescue_image":1}`, 409)
	w.says("POST", "/servers/"+v.ID+"/modify", `{"action":"rescue","expires_in":-1}`, 400, "want seconds")
	w.admin("POST", "/servers/"+v.ID+"/modify", `{"action":"rescue","expires_in":3600,"keys":["ssh-ed25519 AAAA"]}`, 409)
}

func TestHosts(t *testing.T) {
	w := newWorld(t)
	token := w.admin("POST", "/join-tokens", `{"note":"rack 7","expires_in":60}`, 201)
	clear, _ := strings.CutSuffix(fmt.Sprint(token["token"]), ".ca")
	if len(clear) < 40 {
		t.Fatalf("no token: %v", token)
	}
	shown := fmt.Sprint(w.many("/join-tokens", "join_tokens", 1), w.admin("GET", fmt.Sprint("/join-tokens/", token["id"]), "", 200))
	if strings.Contains(shown, clear) || strings.Contains(shown, "digest") || !strings.Contains(shown, "rack 7") {
		t.Errorf("tokens are shown as %s", shown)
	}
	for _, bad := range []string{`{"expires_in":0}`, `{"expires_in":-1}`, `{"expires_in":99999999}`, `{"expires_in":"x"}`} {
		w.says("POST", "/join-tokens", bad, 400, "expires_in")
	}
	id := uuid.NewString()
	must.Get(w.services.Hosts.Join(t.Context(), secret.New(clear), id, "vm1", compute.Certificate{Serial: "01"}, id, record.Asker{}))(t)
	w.has(w.admin("GET", fmt.Sprint("/join-tokens/", token["id"]), "", 200), object{"used_by": id})
	host := object{"id": id, "name": "vm1", "kind": "agent", "state": "down", "status": "enabled", "servers": 0, "revoked": false}
	w.has(w.many("/hosts", "hosts", 1)[0].(object), host)
	w.has(w.admin("GET", "/hosts/vm1", "", 200), host)
	w.has(w.admin("PATCH", "/hosts/"+id, `{"disabled":true,"disabled_reason":"disk"}`, 200),
		object{"disabled": true, "disabled_reason": "disk", "status": "disabled"})
	w.has(w.admin("PATCH", "/hosts/"+strings.ToUpper(id), `{"revoked":true,"disabled":false}`, 200),
		object{"revoked": true, "disabled": false, "disabled_reason": ""})
	w.says("PATCH", "/hosts/"+id, `{"disabled_reason":"a\nb"}`, 400, "one line")
	w.admin("DELETE", "/hosts/"+id, "", 204)
	w.admin("GET", "/hosts/"+id, "", 404)
	w.admin("DELETE", fmt.Sprint("/join-tokens/", token["id"]), "", 204)
	w.many("/join-tokens", "join_tokens", 0)
}

func TestClusters(t *testing.T) {
	w := newWorld(t)
	made := w.admin("POST", "/clusters", `{"name":"prod","url":"https://192.0.2.1:5080","user":"salvor","password":"canary"}`, 201)
	shown := fmt.Sprint(made, w.many("/clusters", "clusters", 1), w.admin("GET", "/clusters/prod", "", 200))
	if strings.Contains(shown, "canary") {
		t.Errorf("the password is shown: %s", shown)
	}
	w.says("POST", "/clusters", `{"name":"prod","url":"https://192.0.2.2:5080","user":"salvor","password":"canary"}`, 409, "prod")
	w.says("POST", "/clusters", `{"name":"two","url":"http://192.0.2.2:5080","user":"salvor","password":"canary"}`, 400, "https")
	w.says("POST", "/clusters", `{"name":"two","url":"https://192.0.2.2:5080"}`, 400, "password")
	w.says("POST", "/servers/adopt", `{"cluster":"none","instance":"web1"}`, 404, "")
	w.says("POST", "/servers/adopt", `{"cluster":"prod","instance":"../web1"}`, 400, "")
	w.says("POST", "/reconcile/servers", `{"cluster":"none"}`, 404, "")
	w.admin("DELETE", "/clusters/prod", "", 204)
	w.admin("GET", "/clusters/prod", "", 404)
	w.has(w.admin("POST", "/reconcile/servers", `{"fix_unsynced_rescue":true}`, 200), object{"servers": "[]"})
}

func TestNetworks(t *testing.T) {
	w := newWorld(t)
	n := w.admin("POST", "/networks", `{"name":"lan","bridge":"br0","cidr":"192.0.2.0/24","gateway":"192.0.2.1","dns":["192.0.2.2"],"shared":true}`, 201)
	w.has(n, object{"number": 1, "name": "lan", "bridge": "br0", "cidr": "192.0.2.0/24", "shared": true, "dns": "[192.0.2.2]"})
	w.says("POST", "/networks", `{"name":"lan","bridge":"br1"}`, 409, "lan")
	w.says("POST", "/networks", `{"name":"x","bridge":"br0; reboot"}`, 400, "bridge")
	w.says("POST", "/networks", `{"name":"x","bridge":"br2","cidr":"192.0.2.1/24"}`, 400, "subnet")
	w.has(w.admin("PATCH", "/networks/lan", `{"mtu":9000}`, 200), object{"mtu": 9000, "name": "lan", "shared": true})
	network := &compute.Network{Record: record.Record{ID: fmt.Sprint(n["id"])}, CIDR: "192.0.2.0/24"}
	allocate := func(tx job.Tx) error {
		_, err := w.s.AllocateAddress(tx, network, compute.Address{ServerID: "v"}, "")
		return err
	}
	must.OK(t, w.s.Do(t.Context(), allocate))
	w.says("DELETE", "/networks/lan", "", 409, "in use")
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error { return w.s.FreeAddresses(tx, "v") }))
	w.admin("DELETE", "/networks/lan", "", 204)
	w.many("/networks", "networks", 0)
}

// TestPages: a long list comes in pages, whose links keep what narrows the list.
func TestPages(t *testing.T) {
	w := newWorld(t)
	const hosts = 1003
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error {
		for i := range hosts {
			if err := w.s.Hosts().Insert(tx, &compute.Host{Record: record.Record{ID: uuid.NewString()}, Name: fmt.Sprint("vm", i), Kind: compute.AgentHost}); err != nil {
				return err
			}
			if err := w.s.RescueImages().Insert(tx, &rescue.Image{Record: record.Record{ID: uuid.NewString()}, Name: "old", DeletedAt: time.Now()}); err != nil {
				return err
			}
		}
		return nil
	}))
	for path, name := range map[string]string{"/hosts": "hosts", "/rescue-images?deleted=true&name=old": "rescue_images"} {
		seen := 0
		for path != "" {
			got := w.admin("GET", path, "", 200)
			seen += len(got[name].([]any))
			next, _ := got["next"].(string)
			path = strings.TrimPrefix(next, w.url)
		}
		if seen != hosts {
			t.Errorf("%d of %d %s", seen, hosts, name)
		}
	}
	w.says("GET", "/hosts?marker="+uuid.NewString(), "", 404, "could not be found")
}

// TestOwnersGiveKeyAndEndToARescue: members of a server's project may, its readers and other projects may not.
func TestOwnersGiveKeyAndEndToARescue(t *testing.T) {
	w := newWorld(t)
	w.admin("POST", "/rescue-images", `{"name":"grml","location":"grml.iso"}`, 201)
	v := w.server("mine", 0)
	w.change(v.ID, func(s *compute.Server) {
		s.Project, s.State, s.Power, s.LaunchedAt = "ann", compute.Stopped, compute.PowerOff, time.Now()
	})
	const body = `{"action":"rescue","rescue_image":1,"expires_in":3600,"keys":["ssh-ed25519 AAAA k"]}`
	w.ask("bob", "POST", "/servers/"+v.ID+"/modify", body, 404)
	w.ask("bob", "POST", "/servers/mine/modify", body, 404)
	w.ask("bob", "POST", "/servers/"+v.ID+"/modify", "{}", 404) // whatever the body
	w.ask("", "POST", "/servers/"+v.ID+"/modify", body, 401)
	w.ask("ann", "POST", "/servers/mine/modify", `{"action":"reboot"}`, 400)
	got := w.ask("ann", "POST", "/servers/mine/modify", body, 202)
	if got["task"] == "" || got["rescue"] == nil {
		t.Errorf("%v", got)
	}
	stored, err := w.s.Servers().Get(t.Context(), nil, v.ID)
	if err != nil || stored.Rescue == nil || stored.Rescue.ExpiresAt.IsZero() || time.Until(stored.Rescue.ExpiresAt) > time.Hour {
		t.Errorf("%+v, %v", stored.Rescue, err)
	}
}
