//go:build e2e

package ganeti

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/conductor/server"
	"salvor/hypervisor/ganeti"
	"salvor/job"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

const (
	node     = "node1.gnt.example.test"
	web      = "web.gnt.example.test"
	patience = 3 * time.Minute // many times what anything here takes on an idle machine
)

// world is a Ganeti cluster, and a conductor that drives it.
type world struct {
	*testing.T
	dir      string
	store    *store.Store
	services *service.Services
	cluster  *compute.Cluster
	image    *rescue.Image
}

var admin = compute.Who{Admin: true, Asker: record.Asker{User: "root", RequestID: "req-e2e"}}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, dir: os.Getenv(inside)}
	start := time.Now()
	w.run("bash", "testdata/cluster.sh", w.at("c"))
	w.run("cp", w.at("iso/out/rescue.iso"), w.at("c/isos/rescue.iso"))
	w.run("gnt-instance", "add", "-t", "file", "--disk", "0:size=1G", "-o", "noop+default", "-n", node, "--net", "0:link=gnt0", "--no-start",
		"--no-ip-check", "--no-name-check", "--no-wait-for-sync", "-B", "memory=512M,vcpus=1", "-H", "kvm:boot_order=network,acpi=false", web)
	t.Logf("cluster and instance after %.1f s", time.Since(start).Seconds())
	w.conduct()
	return w
}

func (w *world) at(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

func (w *world) run(name string, args ...string) string {
	w.Helper()
	out := must.Get(w.try(name, args...))(w)
	return out
}

func (w *world) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // daemons that it starts may hold its output
	if err := cmd.Run(); err != nil && !strings.Contains(err.Error(), "WaitDelay") {
		return out.String(), fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}

// conduct starts a conductor that knows no cluster yet.
func (w *world) conduct() {
	w.Helper()
	st, _ := storetest.SQLite(w.T)
	w.store = st
	w.services = service.New(st, st, service.Options{SoftOffTimeout: 2 * time.Second, RescueImagePath: w.at("c/isos")}, time.Now)
	driven := &ganeti.Clusters{Find: func(ctx context.Context, id string) (*compute.Cluster, error) { return st.Clusters().Get(ctx, nil, id) }}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	con := server.New(server.Config{Store: st, Compute: w.services, Log: log, Now: time.Now,
		Hypervisors: driven, Clusters: driven, RescueImagePath: w.at("c/isos"), SoftOffTimeout: 10 * time.Second})
	r := must.Get(job.NewRunner(job.Config{
		Store: st, Definitions: con.Definitions(), Workers: 4, Now: time.Now, Log: log, Die: func(why string) { panic(why) },
		Conductor: job.Conductor{ID: "c", Incarnation: uuid.NewString(), Hostname: "c", Groups: []string{""}, Description: json.RawMessage(`{}`)},
	}))(w)
	must.OK(w, r.Join(w.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = r.Run(ctx, 0) })
	ended.Go(func() { w.services.Leases.RunLeases(ctx, func(err error) { log.Error("leases", "error", err) }) })
	w.Cleanup(func() { cancel(); ended.Wait() })
}

// join makes the cluster known, and the rescue images.
func (w *world) join() {
	w.Helper()
	pem := must.Get(os.ReadFile("/var/lib/ganeti/rapi.pem"))(w)
	w.cluster = &compute.Cluster{Name: "gnt", URL: "https://127.0.0.1:5080", User: "salvor", Password: secret.New("s3cret"), CA: string(pem)}
	must.OK(w, w.services.Clusters.Create(w.Context(), w.cluster, admin.Asker))
	w.image = w.addImage("rescue.iso")
}

func (w *world) addImage(location string) *rescue.Image {
	w.Helper()
	img := &rescue.Image{Name: location, Source: rescue.Source{Kind: rescue.ISO, Access: rescue.NoAccess, LocationType: rescue.LocationFile, Location: location}}
	must.OK(w, w.services.RescueImages.Create(w.Context(), img, admin.Asker))
	return img
}

// adopt makes the instance a server.
func (w *world) adopt(instance string) string {
	w.Helper()
	id := must.Get(w.services.Reconciler.AskAdoption(w.Context(), w.cluster.ID, compute.ClusterAdoptArgs{Instance: instance, OS: "debian"}, admin))(w)
	var a compute.Adopted
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	must.OK(w, w.services.Reconciler.Answer(ctx, id, &a))
	return a.ServerID
}

func (w *world) server(id string) *compute.Server {
	w.Helper()
	s, err := w.store.Servers().Get(w.Context(), nil, id) // a deleted one too
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// picture is a server in a line: its state, power and session.
func picture(s *compute.Server) string {
	session := "none"
	if s.Rescue != nil {
		session = string(s.Rescue.State)
	}
	fault := ""
	if s.Fault != nil {
		fault = ", fault: " + s.Fault.Message
	}
	return fmt.Sprintf("%s %s %s, session %s%s", s.State, s.Task, s.Power, session, fault)
}

// until waits for a server to be as wanted.
func (w *world) until(id, what string, is func(*compute.Server) bool) *compute.Server {
	w.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		s := w.server(id)
		if is(s) {
			return s
		}
		if time.Now().After(end) {
			w.Fatalf("%s: it is %s\n%s", what, picture(s), w.timeline(compute.Subject(id)))
		}
	}
}

func (w *world) timeline(subject job.Subject) string {
	events, err := w.store.Events(w.Context(), subject, 0, 1000)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s %s %s\n", e.At.Format("05.000"), e.Type, e.Text)
	}
	return b.String()
}

func (w *world) act(id string, a compute.Act) {
	w.Helper()
	if _, err := w.services.Actions.Act(w.Context(), id, a, admin); err != nil {
		w.Fatalf("%s: %v", a.Action, err)
	}
}

// custom are the parameters that are set on the instance itself, as Ganeti tells them.
func (w *world) custom(instance string) map[string]any {
	w.Helper()
	out := w.run("curl", "-sk", "-m", "20", "-u", "salvor:s3cret", "https://127.0.0.1:5080/2/instances/"+instance)
	var doc struct {
		Custom map[string]any `json:"custom_hvparams"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		w.Fatalf("%v: %s", err, out)
	}
	return doc.Custom
}

func (w *world) wantCustom(want map[string]any) {
	w.Helper()
	if got := w.custom(web); !maps.Equal(got, want) {
		w.Errorf("custom_hvparams are %v, want %v", got, want)
	}
}

// console waits for words on the instance's serial console after a place in its log, and returns the log's length.
func (w *world) console(after int, words string) int {
	w.Helper()
	var log []byte
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		log, _ = os.ReadFile(w.at("c/serial.log"))
		if len(log) > after && bytes.Contains(log[after:], []byte(words)) {
			return len(log)
		}
	}
	qemu, _ := os.ReadFile(w.at("c/qemu.log"))
	w.Fatalf("%q is not on the console:\n%s\nqemu: %s", words, log, qemu)
	return 0
}

// use counts the sessions that hold the image.
func (w *world) use(img *rescue.Image) int {
	w.Helper()
	use := must.Get(w.services.RescueImages.Use(w.Context()))(w)
	return use[img.Num]
}
