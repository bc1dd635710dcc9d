package ironic_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"salvor/api"
	"salvor/api/ironic"
	"salvor/job"
	"salvor/metal"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
)

// world is the API over a real store, with the row of a conductor that never runs.
type world struct {
	testing.TB
	store   *store.Store
	nodes   *metal.Nodes
	ports   *metal.Ports
	config  ironic.Config
	handler http.Handler
	secret  *secret.Key
	log     *program.Buffer
}

// born is when everything in these tests happens.
var born = time.Date(2026, 3, 4, 5, 6, 7, 890_000_000, time.UTC)

func set(names ...string) metal.InterfaceSet {
	s := metal.InterfaceSet{Default: names[0]}
	for _, name := range names {
		s.Enabled = append(s.Enabled, metal.InterfaceInfo{Name: name, Unsupported: strings.HasPrefix(name, "no-")})
	}
	return s
}

// catalog is what the world's conductor offers.
func catalog() metal.Catalog {
	deploy := set("direct", "fake")
	deploy.Enabled[0].Heartbeat = "wait"
	redfish := set("redfish")
	redfish.Enabled[0].Required = []string{"redfish_address"}
	storage := set("noop", "external", "cinder")
	storage.Enabled[1].Volumes, storage.Enabled[2].Volumes = true, true
	rescue := set("no-rescue", "agent")
	rescue.Enabled[1].RequiredForRescue = []string{"rescue_kernel", "rescue_ramdisk"}
	return metal.Catalog{Drivers: []metal.DriverInfo{
		{
			Name: "fake-hardware", Properties: map[string]string{"fake_key": "means nothing"},
			Interfaces: map[string]metal.InterfaceSet{
				"power": set("fake"), "management": set("fake"), "boot": set("fake"), "network": set("noop", "flat"), "rescue": set("fake", "no-rescue"),
				"deploy": deploy, "inspect": set("no-inspect"), "firmware": set("no-firmware"), "storage": storage, "bios": set("no-bios"), "console": set("no-console"), "raid": set("no-raid"), "vendor": set("no-vendor"),
			},
		},
		{
			Name: "redfish", Properties: map[string]string{"redfish_address": "URL of the BMC. Required."},
			Interfaces: map[string]metal.InterfaceSet{
				"power": redfish, "management": set("redfish"), "boot": set("ipxe", "redfish-virtual-media"), "network": set("noop"), "rescue": rescue,
				"deploy": deploy, "inspect": set("no-inspect"), "firmware": set("no-firmware"), "storage": set("noop"), "bios": set("no-bios"), "console": set("no-console"), "raid": set("no-raid"), "vendor": set("no-vendor"),
			},
		},
	}}
}

func newWorld(t testing.TB) *world {
	s, key := storetest.SQLite(t)
	w := &world{TB: t, store: s, log: &program.Buffer{}}
	description := must.Get(json.Marshal(catalog()))(t)
	must.OK(t, s.Register(context.Background(), job.Conductor{
		ID: "c1", Incarnation: "i1", Hostname: "cond1", Groups: []string{""}, Description: description, StartedAt: born, UpdatedAt: born,
	}))
	w.secret = key
	w.withOptions(metal.Options{RestrictLookup: true, AllowDeletingAvailable: true})
	return w
}

// withOptions makes the services anew.
func (w *world) withOptions(opts metal.Options) {
	now := func() time.Time { return born }
	dir := metal.NewDirectory(w.store, now, time.Second, 0)
	w.nodes = metal.NewNodes(w.store, w.store, w.secret, dir, opts, now)
	w.config = ironic.Config{
		Nodes: w.nodes, Collections: metal.NewCollections(w.store, w.nodes, false), Directory: dir, Timeline: w.store, Auth: api.NoAuth{},
		Log: slog.New(slog.NewTextHandler(w.log, nil)),
	}
	w.ports = w.config.Ports
	w.handler = ironic.New(w.config)
}

// token gives the agent token of the node's boot.
func (w *world) token(n *metal.Node) string {
	return n.AgentToken(w.secret).Reveal()
}

type answer struct{ fixture.Answer }

// ask sends one request at a microversion ("" names none).
func (w *world) ask(method, path, version, body string) answer {
	return ask(w.handler, method, path, version, body)
}

func ask(h http.Handler, method, path, version, body string) answer {
	return answer{fixture.Ask(h, method, path, body, "X-OpenStack-Ironic-API-Version", version)}
}

// errorText gives the text of an error answer, or the body where it is none.
func (a answer) errorText() string {
	var outer struct {
		Message string `json:"error_message"`
	}
	var inner struct {
		String      string `json:"faultstring"`
		Description string `json:"description"`
	}
	var once struct {
		Message struct {
			String string `json:"faultstring"`
		} `json:"error_message"`
	}
	if json.Unmarshal([]byte(a.Body), &once) == nil && once.Message.String != "" {
		return once.Message.String // of the guards of the body
	}
	if json.Unmarshal([]byte(a.Body), &outer) != nil || json.Unmarshal([]byte(outer.Message), &inner) != nil {
		return a.Body
	}
	return inner.String + inner.Description
}

// want asks and fails the test if the status is another one.
func (w *world) want(status int, method, path, version, body string) answer {
	w.Helper()
	a := answer{w.ask(method, path, version, body).Want(w, status)}
	if wrong := promised(method, path, a); wrong != "" {
		w.Errorf("%s %s at %s: the reference (docs/api) promises something else: %s", method, path, version, wrong)
	}
	return a
}

const nodeID = "11111111-2222-4333-8444-555555555555"

// node adds a node, edited, straight to the store.
func (w *world) node(edit func(*metal.Node)) *metal.Node {
	w.Helper()
	n := &metal.Node{
		ID: nodeID, Name: "n1", Driver: "fake-hardware", ProvisionState: metal.Active, CreatedAt: born, ProvisionedAt: born,
	}
	if edit != nil {
		edit(n)
	}
	must.OK(w, w.store.Do(context.Background(), func(tx job.Tx) error { return w.store.InsertNode(tx, n) }))
	got := must.Get(w.nodes.Node(context.Background(), n.ID))(w)
	return got
}

// edit changes a node behind the rules' back.
func (w *world) edit(id string, change func(*metal.Node)) {
	w.Helper()
	must.OK(w, w.store.Do(context.Background(), func(tx job.Tx) error {
		return w.nodes.Edit(context.Background(), tx, id, change)
	}))
}

// lock makes a queued job hold the node.
func (w *world) lock(id string) {
	w.Helper()
	must.OK(w, w.store.Do(context.Background(), func(tx job.Tx) error {
		return w.store.Insert(tx, &job.Job{Kind: "power", Class: job.Command, Subject: job.Node(id), Args: json.RawMessage(`{}`)})
	}))
}
