package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/problem"
	"salvor/test/must"
	"salvor/wire/ironic"
)

// server answers as Ironic does and keeps what it was asked.
type server struct {
	t   *testing.T
	url string
	mux *http.ServeMux

	mu    sync.Mutex
	calls []string
}

func newServer(t *testing.T) *server {
	s := &server{t: t, mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /v1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(MinVersionHeader, "1.1")
		w.Header().Set(MaxVersionHeader, "1.115")
		fmt.Fprint(w, "{}")
	})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls = append(s.calls, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get(VersionHeader))
		s.mu.Unlock()
		s.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

func (s *server) answer(pattern string, status int, body string) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
}

func (s *server) client(change func(*Config)) *Client {
	s.t.Helper()
	config := Config{Endpoint: s.url}
	if change != nil {
		change(&config)
	}
	c := must.Get(New(config))(s.t)
	return c
}

func (s *server) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.calls...)
}

func TestNodesFollowsPages(t *testing.T) {
	s := newServer(t)
	s.mux.HandleFunc("GET /v1/nodes", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("marker") {
		case "":
			fmt.Fprint(w, `{"nodes": [{"uuid": "a"}, {"uuid": "b"}], "next": "http://elsewhere.invalid/v1/nodes?limit=2&marker=b"}`)
		case "b":
			fmt.Fprint(w, `{"nodes": [{"uuid": "c", "name": null, "power_state": "power on", "maintenance": true}]}`)
		}
	})
	nodes, err := s.client(nil).Nodes(context.Background(), Query{Filter: url.Values{"driver": {"redfish"}}, Fields: []string{"uuid", "name"}, SortKey: "name", SortDescending: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 3 || nodes[2].Label() != "c" || nodes[2].PowerState != "power on" || !nodes[2].Maintenance {
		t.Errorf("%+v", nodes)
	}
	want := []string{"GET /v1 ", "GET /v1/nodes?driver=redfish&fields=uuid%2Cname&sort_dir=desc&sort_key=name 1.115", "GET /v1/nodes?driver=redfish&fields=uuid%2Cname&marker=b&sort_dir=desc&sort_key=name 1.115"}
	if got := s.asked(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked:\n%s", strings.Join(got, "\n"))
	}
}

func TestListEnds(t *testing.T) {
	s := newServer(t)
	s.answer("GET /v1/nodes", 200, `{"nodes": [{"uuid": "a"}, {"uuid": "b"}], "next": "http://x/v1/nodes?marker=b"}`)
	nodes, err := s.client(nil).Nodes(context.Background(), Query{})
	if err != nil || len(nodes) != 4 {
		t.Errorf("a next link that stands still: %d nodes, %v", len(nodes), err)
	}
	nodes, err = s.client(nil).Nodes(context.Background(), Query{Limit: 1})
	if err != nil || len(nodes) != 1 {
		t.Errorf("limit 1: %d nodes, %v", len(nodes), err)
	}
}

func TestListWithoutItsEnvelope(t *testing.T) {
	s := newServer(t)
	s.answer("GET /v1/ports", 200, `{"nodes": []}`)
	if _, err := s.client(nil).List(context.Background(), Ports, Query{}); !problem.Is(err, problem.Unavailable) {
		t.Error(err)
	}
}

func TestVersionIsTheLesserOfBoth(t *testing.T) {
	s := newServer(t)
	s.answer("GET /v1/nodes/n", 200, `{"uuid": "u", "name": "n", "properties": {"cpus": 12345678901234567890}}`)
	n := must.Get(s.client(func(c *Config) { c.Version = 38 }).Node(context.Background(), "n", "uuid", "name"))(t)
	if got := s.asked(); len(got) != 1 || got[0] != "GET /v1/nodes/n?fields=uuid%2Cname 1.38" {
		t.Errorf("asked %q", got)
	}
	if n.Properties["cpus"] != json.Number("12345678901234567890") || n.Record["name"] != "n" {
		t.Errorf("%+v", n)
	}
}

func TestEveryCall(t *testing.T) {
	ctx, yes := context.Background(), true
	set := must.Get(Set("/name", "x"))(t)
	for _, c := range []struct {
		want, answer string
		call         func(*Client) error
		body         string
	}{
		{"POST /v1/nodes", `{"uuid": "u"}`, func(c *Client) error { _, err := c.CreateNode(ctx, Record{"driver": "redfish"}); return err }, `{"driver":"redfish"}`},
		{"PATCH /v1/nodes/n%2F1?reset_interfaces=true", `{"uuid": "u"}`, func(c *Client) error {
			_, err := c.PatchNode(ctx, "n/1", []ironic.PatchOperation{set, Remove("/extra/a")}, true)
			return err
		}, `[{"op":"add","path":"/name","value":"x"},{"op":"remove","path":"/extra/a"}]`},
		{"DELETE /v1/nodes/n", "", func(c *Client) error { return c.DeleteNode(ctx, "n") }, ""},
		{"PUT /v1/nodes/n/states/provision", "", func(c *Client) error {
			return c.Provision(ctx, "n", ironic.ProvisionRequest{Target: "rescue", RescuePassword: "p"})
		}, `{"target":"rescue","rescue_password":"p"}`},
		{"PUT /v1/nodes/n/states/power", "", func(c *Client) error { return c.SetPower(ctx, "n", ironic.PowerRequest{Target: "power on"}) }, `{"target":"power on"}`},
		{"PUT /v1/nodes/n/maintenance", "", func(c *Client) error { return c.SetMaintenance(ctx, "n", "why") }, `{"reason":"why"}`},
		{"DELETE /v1/nodes/n/maintenance", "", func(c *Client) error { return c.UnsetMaintenance(ctx, "n") }, ""},
		{"PUT /v1/nodes/n/management/boot_device", "", func(c *Client) error { return c.SetBootDevice(ctx, "n", "pxe", yes) }, `{"boot_device":"pxe","persistent":true}`},
		{"GET /v1/nodes/n/management/boot_device", `{"boot_device": "disk", "persistent": null}`, func(c *Client) error {
			b, err := c.BootDevice(ctx, "n")
			if err == nil && (*b.Device != "disk" || b.Persistent != nil) {
				return errors.New("wrong boot device")
			}
			return err
		}, ""},
		{"GET /v1/nodes/n/management/boot_device/supported", `{"supported_boot_devices": ["pxe"]}`, func(c *Client) error { _, err := c.SupportedBootDevices(ctx, "n"); return err }, ""},
		{"GET /v1/nodes/n/validate", `{"power": {"result": true}, "raid": {"result": null, "reason": "not supported"}, "odd": 3}`, func(c *Client) error {
			v, err := c.Validate(ctx, "n")
			if err == nil && (len(v) != 2 || !*v["power"].Result || v["raid"].Result != nil) {
				return fmt.Errorf("wrong validation %v", v)
			}
			return err
		}, ""},
		{"GET /v1/ports/p?fields=uuid", `{"uuid": "p"}`, func(c *Client) error { _, err := c.Get(ctx, Ports, "p", "uuid"); return err }, ""},
		{"POST /v1/ports", `{"uuid": "p"}`, func(c *Client) error {
			_, err := c.Create(ctx, Ports, Record{"address": "52:54:00:00:00:01"})
			return err
		}, `{"address":"52:54:00:00:00:01"}`},
		{"PATCH /v1/ports/p", `{"uuid": "p"}`, func(c *Client) error { _, err := c.Patch(ctx, Ports, "p", []ironic.PatchOperation{set}); return err }, `[{"op":"add","path":"/name","value":"x"}]`},
		{"DELETE /v1/ports/p", "", func(c *Client) error { return c.Delete(ctx, Ports, "p") }, ""},
		{"GET /v1/drivers?detail=true", `{"drivers": [{"name": "ipmi"}]}`, func(c *Client) error { _, err := c.List(ctx, Drivers, Query{Detail: true}); return err }, ""},
		{"GET /v1/conductors", `{"conductors": []}`, func(c *Client) error { _, err := c.List(ctx, Conductors, Query{}); return err }, ""},
		{"GET /v1/nodes?detail=true&instance_uuid=i", `{"nodes": []}`, func(c *Client) error { _, err := c.NodeByInstance(ctx, "i"); return err }, ""},
	} {
		t.Run(c.want, func(t *testing.T) {
			var asked, body string
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var text json.RawMessage
				_ = json.NewDecoder(r.Body).Decode(&text)
				asked, body = r.Method+" "+r.URL.RequestURI(), string(text)
				fmt.Fprint(w, c.answer)
			}))
			defer h.Close()
			caller := must.Get(New(Config{Endpoint: h.URL, Version: 82}))(t)
			must.OK(t, c.call(caller))
			if asked != c.want || body != c.body {
				t.Errorf("asked %s with %s", asked, body)
			}
		})
	}
}

// rescueServer moves a node one state on at each look.
func rescueServer(t *testing.T, looks ...string) *server {
	s := newServer(t)
	var mu sync.Mutex
	n := 0
	s.mux.HandleFunc("GET /v1/nodes/n", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		look := looks[min(n, len(looks)-1)]
		n++
		if look == "503" {
			w.WriteHeader(503)
			return
		}
		fmt.Fprintf(w, `{"uuid": "u", "name": "n", "provision_state": %q, "last_error": "broken cable"}`, look)
	})
	s.mux.HandleFunc("GET /v1/nodes/n/history", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("marker") == "" {
			fmt.Fprint(w, `{"history": [{"uuid": "1", "event": "asked to rescue"}, {"uuid": "2", "event": "powering off"}]}`)
			return
		}
		fmt.Fprint(w, `{"history": [{"uuid": "3", "event": "waiting for a heartbeat"}]}`)
	})
	return s
}

func TestWaitProvision(t *testing.T) {
	s := rescueServer(t, "rescuing", "503", "rescue wait", "rescue")
	var reported []string
	n, err := s.client(nil).WaitProvision(t.Context(), "n", Wait{Until: State("rescue"), Interval: time.Millisecond, Change: func(p Progress) {
		reported = append(reported, fmt.Sprintf("%s/%s/%v", p.Node.ProvisionState, p.LastEvent, p.Silent != nil))
	}})
	if err != nil || n.ProvisionState != "rescue" {
		t.Fatal(n, err)
	}
	want := "rescuing/powering off/false rescuing/powering off/true rescue wait/waiting for a heartbeat/false rescue/waiting for a heartbeat/false"
	if got := strings.Join(reported, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestWaitProvisionFails(t *testing.T) {
	n, err := rescueServer(t, "rescuing", "rescue failed").client(nil).WaitProvision(t.Context(), "n", Wait{Until: State("rescue"), Interval: time.Millisecond})
	var ended *Ended
	if !errors.As(err, &ended) || n.ProvisionState != "rescue failed" || !strings.Contains(err.Error(), "broken cable") {
		t.Error(n, err)
	}
}

func TestWaitProvisionTimesOut(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := rescueServer(t, "rescuing").client(nil).WaitProvision(ctx, "n", Wait{Until: State("rescue"), Interval: time.Millisecond})
	var late *TimedOut
	if !errors.As(err, &late) {
		t.Error(err)
	}
}

func TestWaitProvisionOfNothing(t *testing.T) {
	s := newServer(t)
	_, err := s.client(nil).WaitProvision(t.Context(), "gone", Wait{Until: State("rescue"), Interval: time.Millisecond})
	if !problem.Is(err, problem.NotFound) {
		t.Error(err)
	}
}

func TestWorking(t *testing.T) {
	for state, want := range map[string]bool{"rescue wait": true, "wait call-back": true, "deleting": true, "rescue": false, "rescue failed": false, "clean hold": false, "enroll": false, "error": false} {
		if Working(state) != want {
			t.Errorf("Working(%q) = %v", state, !want)
		}
	}
}
