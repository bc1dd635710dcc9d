package cyclades_test

import (
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"testing"
	"time"

	"salvor/api/cyclades"
	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/rescue"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
)

type jsonObject = map[string]any

// world is the API over a real store whose jobs nobody works off.
type world struct {
	testing.TB
	store    *store.Store
	services *service.Services
	handler  http.Handler
	auth     *fixture.FixedAuth
	image    *compute.Image
}

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func newWorld(t testing.TB, change ...func(*cyclades.Config)) *world {
	t.Helper()
	st, _ := storetest.SQLite(t)
	w := &world{TB: t, store: st, auth: &fixture.FixedAuth{Principal: fixture.Member("ann")}}
	w.services = service.New(st, st, service.Options{HashAlgorithm: rescue.SHA256, RescueImagePath: "/srv/rescue"}, time.Now)
	ctx := t.Context()
	must.OK(w, w.services.Flavors.Create(ctx, &compute.Flavor{Name: "small", VCPUs: 1, RAM: 512, Disk: 2, Public: true}, compute.Who{}.Asker))
	w.image = &compute.Image{Name: "cirros", Visibility: "public", Status: compute.ImageActive, DiskFormat: "raw", Digest: digest, Properties: map[string]string{"OS": "debian", "OSFAMILY": "linux"}}
	must.OK(w, w.services.Images.Create(ctx, w.image, compute.Who{}.Asker))
	must.OK(w, w.services.RescueImages.EnsureBuiltIn(ctx, compute.BuiltIn{KernelDigest: digest, RamdiskDigest: digest}))
	c := cyclades.Config{Services: w.services, Auth: w.auth, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, f := range change {
		f(&c)
	}
	w.handler = cyclades.New(c)
	return w
}

// server makes one of ann's, and changes its row.
func (w *world) server(change func(*compute.Server)) *compute.Server {
	w.Helper()
	made := must.Get(w.services.Servers.Create(w.Context(), compute.Creation{Name: "vm", Flavor: "small", Image: w.image.ID}, compute.Who{Project: "ann"}))(w)
	id := made[0].ID
	claimed := must.Get(w.store.Claim(w.Context(), "conductor", time.Now().Add(time.Hour), []string{""}, map[job.Kind]int{compute.JobCreate: 9}, 100))(w)
	must.OK(w, w.store.Do(w.Context(), func(tx job.Tx) error {
		for _, j := range claimed {
			j.State, j.EndedAt = job.Ended, time.Now()
			if err := w.store.Save(tx, &j, false); err != nil {
				return err
			}
		}
		return w.services.Servers.Edit(w.Context(), tx, id, func(s *compute.Server) {
			s.Task, s.LaunchedAt, s.PublicKey = compute.NoTask, time.Now(), "ssh-ed25519 own"
			change(s)
		})
	}))
	s := must.Get(w.store.Servers().Get(w.Context(), nil, id))(w)
	return s
}

// ask sends a request and decodes the answer.
func (w *world) ask(method, path, body string) (int, jsonObject) {
	w.Helper()
	a := fixture.Ask(w.handler, method, "/cyclades/compute/v2.0"+path, body)
	return a.Status, a.ObjectIfAny(w)
}

// act asks for an action of a server; message is that of the fault of the given name.
func (w *world) act(s *compute.Server, body string) (status int, name, message string) {
	w.Helper()
	status, o := w.ask("POST", "/servers/"+strconv.FormatInt(s.Num, 10)+"/action", body)
	for name, v := range o {
		f := v.(jsonObject)
		if f["code"] != float64(status) {
			w.Errorf("status %d, fault %+v", status, f)
		}
		return status, name, f["message"].(string)
	}
	return status, "", ""
}
