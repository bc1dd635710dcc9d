//go:build e2e

package console

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/client"
	"salvor/host"
	"salvor/lab/sim"
	"salvor/secret"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/ironic"
)

// planted is what must never become part of the page: it would note that it ran.
const planted = `<script>window.ran=1</script><img src=x onerror="window.ran=1">`

// world is a control plane with fake machines.
type world struct {
	*testing.T
	server *program.Server
	api    *client.Client
	door   string // the hosts'
}

func newWorld(t *testing.T, more string) *world {
	t.Helper()
	w := &world{T: t, door: program.FreeAddress(t)}
	w.server = program.Serve(t, "[hosts]\nlisten = "+w.door+"\n[conductor]\nworkers_pool_size = 100\n"+more)
	w.api = w.client("")
	return w
}

// in is the world within a part of its test.
func (w *world) in(t *testing.T) *world {
	inner := *w
	inner.T = t
	return &inner
}

func (w *world) client(token string) *client.Client {
	w.Helper()
	c := must.Get(client.New(client.Config{Endpoint: w.server.URL, Token: secret.New(token)}))(w)
	return c
}

func (w *world) url() string { return w.server.URL + "/console/" }

// node enrols a fake machine, each of whose answers takes a while.
func (w *world) node(name string, delay float64, fields client.Record) string {
	w.Helper()
	record := client.Record{"driver": "fake-hardware", "name": name, "driver_info": client.Record{"fake_delay": delay}}
	for k, v := range fields {
		record[k] = v
	}
	n := must.Get(w.api.CreateNode(w.Context(), record))(w)
	return n.UUID
}

// bring takes a machine through verbs, each until its state.
func (w *world) bring(id string, steps ...string) {
	w.Helper()
	for i := 0; i < len(steps); i += 2 {
		r := ironic.ProvisionRequest{Target: steps[i]}
		if steps[i] == "rescue" {
			r.RescuePassword = "a password of the test"
		}
		must.OK(w, w.api.Provision(w.Context(), id, r))
		w.reach(id, steps[i+1])
	}
}

func (w *world) reach(id, state string) {
	w.Helper()
	w.eventually(id+" is "+state, func() error {
		n, err := w.api.Node(w.Context(), id)
		if err == nil && (n.ProvisionState != state || n.Record.Text("reservation") != "") {
			err = fmt.Errorf("it is %s", n.ProvisionState)
		}
		return err
	})
}

func (w *world) eventually(what string, holds func() error) {
	w.Helper()
	program.Until(w, what, patience, holds)
}

func (w *world) ask(face client.API, method, path string, body, out any) {
	w.Helper()
	must.OK(w, w.api.Ask(w.Context(), face, method, path, nil, body, out))
}

// join starts a simulated host; end is the loss of its power.
func (w *world) join(name, shared string) (end func()) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	h := must.Get(sim.StartHost(ctx, sim.Config{
		API: w.server.URL, Controller: "https://" + w.door, StateDir: w.TempDir(), Name: name, Log: slog.New(slog.DiscardHandler),
		Stores: []host.Store{{Name: "shared", Dir: shared, Shared: true}}, BootID: func() (string, error) { return name + "-first", nil },
	}, sim.NewMachine()))(w)
	over := false
	end = func() {
		if !over {
			over = true
			_ = h.Stop()
		}
	}
	w.Cleanup(end)
	return end
}

// servers makes servers, all of one image.
func (w *world) servers(names ...string) {
	w.Helper()
	var flavor struct{ Flavor struct{ ID string } }
	var image struct{ ID string }
	w.ask(client.Compute, http.MethodPost, "/flavors", object{"flavor": object{"name": "small", "ram": 64, "disk": 1, "vcpus": 1}}, &flavor)
	w.ask(client.Image, http.MethodPost, "/images", object{"name": "tenant", "disk_format": "raw", "container_format": "bare"}, &image)
	file := filepath.Join(w.TempDir(), "image")
	must.OK(w, os.WriteFile(file, make([]byte, 4096), 0o600))
	f := must.Get(os.Open(file))(w)
	defer f.Close()
	must.OK(w, w.api.Upload(w.Context(), client.Image, "/images/"+image.ID+"/file", f, 4096))
	for _, name := range names {
		w.ask(client.Compute, http.MethodPost, "/servers", object{"server": object{
			"name": name, "flavorRef": flavor.Flavor.ID, "imageRef": image.ID, "networks": "none"}}, nil)
	}
	w.eventually("the servers run", func() error {
		var got struct {
			Servers []struct {
				Name, Status string
				Fault        any
			}
		}
		w.ask(client.Compute, http.MethodGet, "/servers/detail", nil, &got)
		if len(got.Servers) != len(names) {
			return fmt.Errorf("there are %d", len(got.Servers))
		}
		for _, s := range got.Servers {
			if s.Status != "ACTIVE" {
				return fmt.Errorf("%s is %s: %v", s.Name, s.Status, s.Fault)
			}
		}
		return nil
	})
}

// hostIs waits until the host has a state.
func (w *world) hostIs(name, state string) {
	w.Helper()
	w.eventually("host "+name+" is "+state, func() error {
		var got struct{ State string }
		err := w.api.Ask(w.Context(), client.Native, http.MethodGet, "/hosts/"+name, nil, nil, &got)
		if err == nil && got.State != state {
			err = fmt.Errorf("it is %s", got.State)
		}
		return err
	})
}

// harmless looks whether what was planted ran.
func (p *page) harmless() {
	p.Helper()
	if p.eval(`window.ran ?? 0`) != 0.0 || p.eval(`document.querySelectorAll("main script, main img[src=x]").length`) != 0.0 {
		p.Error("what was planted in a name became part of the page")
	}
}

// atHome looks whether anybody but the server was asked.
func (p *page) atHome(w *world) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, url := range p.asked {
		if !strings.HasPrefix(url, w.server.URL+"/") {
			p.Errorf("the page asks %s", url)
		}
	}
}
