package native_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/api/native"
	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
	wire "salvor/wire/native"
)

// Contacts gives what was heard of nodes.
func (w *world) Contacts(ctx context.Context, ids []string) (map[string]metal.Contact, error) {
	return w.s.Contacts(ctx, ids)
}

// node is one that ann owns and bob leases.
func (w *world) node(state metal.State) *metal.Node {
	n := &metal.Node{ID: uuid.NewString(), Name: "kea", Owner: "ann", Lessee: "bob", Driver: "redfish", ProvisionState: state, ProvisionedAt: time.Now(), LastError: "the BMC at 10.1.1.1 refused"}
	w.nodes = append(w.nodes, n)
	return n
}

func (w *world) appendEvents(subject job.Subject, texts ...string) {
	w.Helper()
	for _, text := range texts {
		must.OK(w, w.s.Do(w.Context(), func(tx job.Tx) error { return w.s.Append(tx, job.Event{Subject: subject, Type: "state", Text: text}) }))
	}
}

func TestWhyIsForThoseWhoMaySee(t *testing.T) {
	w := newWorld(t)
	n := w.node(metal.RescueFailed)
	srv := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: "web1", Project: "ann", State: compute.Active}
	h := &compute.Host{Record: record.Record{ID: uuid.NewString()}, Name: "vm7", Kind: compute.AgentHost}
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error {
		if err := w.s.Hosts().Insert(tx, h); err != nil {
			return err
		}
		return w.s.Servers().Insert(tx, srv)
	}))
	for _, tt := range []struct {
		who, path string
		want      int
		says      string
	}{
		{"admin", "/nodes/kea/why", 200, "10.1.1.1"}, {"ann", "/nodes/" + n.ID + "/why", 200, "10.1.1.1"}, {"bob", "/nodes/kea/why", 200, "its owner may see why"},
		{"eve", "/nodes/kea/why", 404, ""}, {"ann", "/nodes/kea/preflight", 200, "no kernel"}, {"ann", "/nodes/kea/preflight", 200, "seen by project ann"}, {"eve", "/nodes/kea/preflight", 404, ""}, {"admin", "/nodes/ghost/why", 404, ""},
		{"admin", "/servers/" + srv.ID + "/why", 200, "has no host"}, {"ann", "/servers/web1/why", 200, "has no host"}, {"bob", "/servers/" + srv.ID + "/why", 404, ""},
		{"bob", "/servers/web1/why", 404, ""}, {"admin", "/hosts/vm7/why", 200, "never renewed its lease"}, {"ann", "/hosts/vm7/why", 404, ""},
	} {
		text := fmt.Sprint(w.ask(tt.who, "GET", tt.path, "", tt.want))
		if !strings.Contains(text, tt.says) || tt.who == "bob" && strings.Contains(text, "10.1.1.1") {
			t.Errorf("%s for %s: %s", tt.path, tt.who, text)
		}
	}
	answer := w.admin("GET", "/nodes/kea/why", "", 200)
	if answer["mood"] != "stuck" || answer["state"] != "rescue failed" || answer["next"].([]any)[0].(object)["run"] != "salvor conductor list" {
		t.Errorf("%v", answer)
	}
}

// TestWordsOfBMCsAreForAdministrators: owners and lessees of a node, and owners of a server, do not see text of BMCs, agents and
// hosts.
func TestWordsOfBMCsAreForAdministrators(t *testing.T) {
	const banner = "INTERNAL-SECRET-BANNER build 7"
	w := newWorld(t)
	n := w.node(metal.RescueFailed)
	n.LastError, n.Health, n.BootNumber = "Failed to rescue: 500: "+problem.Quote(banner), banner, 1
	srv := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: "web1", Project: "ann", State: compute.Errored, Fault: &compute.Fault{Message: "it cannot be rescued: " + problem.Quote(banner)}}
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error { return w.s.Servers().Insert(tx, srv) }))
	w.appendEvents(job.Node(n.ID), "rescue failed: 500: "+problem.Quote(banner))
	w.appendEvents(compute.Subject(srv.ID), "error: "+problem.Quote(banner))
	for _, path := range []string{"/nodes/kea/why", "/servers/web1/why", "/events?subject=node:kea&last=9", "/events?subject=server:web1&last=9"} {
		for _, requester := range []string{"admin", "ann", "bob"} {
			want := 200
			if requester == "bob" && path != "/nodes/kea/why" {
				if want = 404; strings.Contains(path, "node:") {
					want = 403
				}
			}
			text := fmt.Sprint(w.ask(requester, "GET", path, "", want))
			if shown := strings.Contains(text, "INTERNAL"); shown != (requester == "admin") {
				t.Errorf("%s for %s, shown: %v: %s", path, requester, shown, text)
			}
			if requester == "ann" && !strings.Contains(text, problem.Redacted) {
				t.Errorf("%s tells the owner of no hidden words: %s", path, text)
			}
		}
	}
}

func TestEventPages(t *testing.T) {
	w := newWorld(t)
	mine, other := w.node(metal.Active), job.Node(uuid.NewString())
	for i := range 5 {
		w.appendEvents(job.Node(mine.ID), fmt.Sprint("mine ", i))
		w.appendEvents(other, fmt.Sprint("other ", i))
	}
	var got []string
	page := func(requester, query string) object {
		answer := w.ask(requester, "GET", "/events?"+query, "", 200)
		for _, e := range answer["events"].([]any) {
			got = append(got, e.(object)["text"].(string))
		}
		return answer
	}
	for next, more := "0", true; more; {
		answer := page("admin", "limit=3&after="+next)
		next, more = answer["next"].(string), answer["more"].(bool)
	}
	if len(got) != 10 || got[0] != "mine 0" || got[9] != "other 4" {
		t.Errorf("by pages: %q", got)
	}
	for query, want := range map[string]string{
		"subject=node:kea&last=2": "mine 3,mine 4", "subject=node:" + mine.ID + "&after=0&limit=1": "mine 0", "after=now": "", "type=action&after=0": "", "last=1": "other 4",
	} {
		got = nil
		if page("admin", query); strings.Join(got, ",") != want {
			t.Errorf("%s: %q, want %s", query, got, want)
		}
	}
	got = nil
	if page("ann", "subject=node:kea&last=1"); strings.Join(got, ",") != "mine 4" {
		t.Errorf("the owner is told %q", got)
	}
	for query, want := range map[string]int{
		"": 403, "subject=node:kea&subject=node:" + other.ID: 404, "subject=host:vm7": 404, "subject=node": 400, "subject=tree:x": 404,
		"subject=node:kea&after=x": 400, "subject=node:kea&limit=0": 400, "subject=node:kea&last=1001": 400, "subject=node:kea&after=-1": 400,
	} {
		w.ask("ann", "GET", "/events?"+query, "", want)
	}
	w.ask("bob", "GET", "/events?subject=node:kea", "", 403) // who leases a node is not told its history
	w.ask("eve", "GET", "/events?subject=node:kea", "", 404)
}

// follower reads a stream.
type follower struct {
	t      *testing.T
	lines  *bufio.Scanner
	close  func()
	cursor string
}

func (w *world) follow(requester, query, cursor string) *follower {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 2*time.Minute)
	req := must.Get(http.NewRequestWithContext(ctx, "GET", w.url+"/events?"+query, nil))(w)
	req.Header.Set("X-Auth-Token", requester)
	req.Header.Set("Accept", "text/event-stream")
	if cursor != "" {
		req.Header.Set("Last-Event-ID", cursor)
	}
	resp := must.Get(http.DefaultClient.Do(req))(w)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		w.Fatalf("%s %s", resp.Status, resp.Header)
	}
	return &follower{w.T, bufio.NewScanner(resp.Body), func() { cancel(); resp.Body.Close() }, cursor}
}

// next gives the next event, and its name.
func (f *follower) next() (e wire.Event, name string) {
	f.t.Helper()
	for f.lines.Scan() {
		key, value, _ := strings.Cut(f.lines.Text(), ": ")
		switch key {
		case "id":
			f.cursor = value
		case "event":
			name = value
		case "data":
			must.OK(f.t, json.Unmarshal([]byte(value), &e))
		case "":
			if name != "" {
				return e, name
			}
		}
	}
	f.t.Fatalf("the stream ended: %v", f.lines.Err())
	return e, name
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.feed.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
}

// TestEventStream: whoever goes on from its cursor, in the ring or before it, is told each event once.
func TestEventStream(t *testing.T) {
	w := newWorld(t)
	w.run()
	mine, other := w.node(metal.Active), job.Node(uuid.NewString())
	w.appendEvents(job.Node(mine.ID), "0", "1")
	f := w.follow("ann", "subject=node:kea&last=1", "")
	all := w.follow("admin", "after=now", "")
	want := 1
	expect := func(n int) {
		t.Helper()
		for range n {
			e, _ := f.next()
			if e.Text != fmt.Sprint(want) || e.Subject.ID != mine.ID || e.Subject.Name != "kea" || e.Cursor != f.cursor {
				t.Fatalf("%+v at cursor %s, want %d", e, f.cursor, want)
			}
			want++
		}
	}
	expect(1)
	for i := 2; i < 6; i++ {
		w.appendEvents(job.Node(mine.ID), fmt.Sprint(i))
		w.appendEvents(other, fmt.Sprint("other ", i))
	}
	expect(4)
	for i := 2; i < 6; i++ {
		if e, _ := all.next(); e.Text != fmt.Sprint(i) {
			t.Fatalf("who follows all is told %+v", e)
		}
		all.next()
	}
	f.close()
	for i := 6; i < 300; i++ { // more than a portion
		w.appendEvents(job.Node(mine.ID), fmt.Sprint(i))
	}
	f = w.follow("ann", "subject=node:kea&last=1", f.cursor)
	expect(294)
	w.appendEvents(job.Node(mine.ID), "300")
	expect(1)
	f.close()
	all.close()
	fixture.Poll(t, "nobody follows", func() bool { return w.feed.Followers() == 0 })
	f = w.follow("ann", "subject=node:kea&after=0", "")
	if want = 0; true {
		expect(301)
	}
	f.close()
}

// TestStreamsBeginWithTheirCursor: a stream that breaks before its first event goes on from where it began.
func TestStreamsBeginWithTheirCursor(t *testing.T) {
	w := newWorld(t)
	w.run()
	n := w.node(metal.Active)
	w.appendEvents(job.Node(n.ID), "0", "1", "2")
	for query, want := range map[string]string{"after=now": "3", "last=1": "2", "after=0": "0", "after=2": "2"} {
		f := w.follow("ann", "subject=node:kea&"+query, "")
		for f.cursor == "" && f.lines.Scan() {
			f.cursor, _ = strings.CutPrefix(f.lines.Text(), "id: ")
			if f.cursor == f.lines.Text() {
				f.cursor = ""
			}
		}
		if f.cursor != want {
			t.Errorf("%s begins at %q, want %s", query, f.cursor, want)
		}
		f.close()
	}
}

// TestStreamsEndWithTheRight: who follows is told nothing more once its token is revoked or what it follows is another's.
func TestStreamsEndWithTheRight(t *testing.T) {
	defer native.Distrustful()()
	for name, take := range map[string]func(w *world, srv *compute.Server) error{
		"a token that was revoked": func(*world, *compute.Server) error {
			revoked.Store("zoe", true)
			return nil
		},
		"a server that another one has": func(w *world, srv *compute.Server) error {
			srv.Project = "ann"
			return w.s.Do(w.Context(), func(tx job.Tx) error { return w.s.Servers().Save(tx, srv) })
		},
	} {
		w := newWorld(t)
		w.run()
		revoked.Delete("zoe")
		srv := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: "web", Project: "zoe", State: compute.Active}
		must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error { return w.s.Servers().Insert(tx, srv) }))
		f := w.follow("zoe", "subject=server:"+srv.ID+"&after=0", "")
		w.appendEvents(compute.Subject(srv.ID), "mine")
		if e, _ := f.next(); e.Text != "mine" {
			t.Fatalf("%s: first comes %+v", name, e)
		}
		must.OK(t, take(w, srv))
		w.appendEvents(compute.Subject(srv.ID), "not mine")
		for f.lines.Scan() {
			if strings.Contains(f.lines.Text(), "not mine") {
				t.Errorf("%s: told %s", name, f.lines.Text())
			}
		}
		f.close()
		revoked.Delete("zoe")
	}
}

// TestLostEvents: who comes back after events of its were dropped is told that some may be missing.
func TestLostEvents(t *testing.T) {
	w := newWorld(t)
	w.run()
	n := w.node(metal.Active)
	w.appendEvents(job.Node(n.ID), "0", "1", "2", "3")
	must.Get(w.s.Prune(t.Context(), time.Time{}, time.Now().Add(time.Hour), 1))(t)
	f := w.follow("ann", "subject=node:kea", "1")
	defer f.close()
	if _, name := f.next(); name != "lost" {
		t.Errorf("first comes %q", name)
	}
	if e, name := f.next(); name != "event" || e.Text != "3" {
		t.Errorf("then %q %+v", name, e)
	}
}

// TestSlowFollower: who does not read is cut off, and holds up nobody.
func TestSlowFollower(t *testing.T) {
	defer native.Impatient(3 * time.Second)()
	w := newWorld(t)
	w.run()
	n := w.node(metal.Active)
	conn := must.Get(net.Dial("tcp", strings.TrimPrefix(strings.TrimSuffix(w.url, "/salvor/v1"), "http://")))(t)
	defer conn.Close()
	must.OK(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	fmt.Fprintf(conn, "GET /salvor/v1/events?after=now HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\nAccept: text/event-stream\r\n\r\n")
	fixture.Poll(t, "one follows", func() bool { return w.feed.Followers() == 1 })
	quick := w.follow("admin", "subject=node:kea&after=now", "")
	defer quick.close()
	quick.lines.Buffer(nil, 1<<20)
	big := strings.Repeat("x", 200_000)
	for i := range 60 {
		w.appendEvents(job.Node(n.ID), big+fmt.Sprint(i))
		if e, _ := quick.next(); !strings.HasSuffix(e.Text, fmt.Sprint("x", i)) {
			t.Fatalf("the quick one is told ...%s", e.Text[len(e.Text)-5:])
		}
	}
	fixture.Poll(t, "one follows", func() bool { return w.feed.Followers() == 1 })
}
