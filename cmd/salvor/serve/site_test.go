package serve

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/api"
	"salvor/api/ironic"
	"salvor/api/native"
	"salvor/config"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/secret"
	"salvor/test/must"
	wire "salvor/wire/native"
)

// newTestSite is the door of a site with that centre, and the limits that it has by default.
func newTestSite(t *testing.T, centre string) (*siteDoor, config.Limits) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "salvor.conf")
	if err := os.WriteFile(file, []byte("[DEFAULT]\nstate_path = "+dir+"\nroles = netboot\n[ramdisk]\nlisten = 127.0.0.1:6385\n[site]\ncentre = "+centre+"\ntoken_file = "+file+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load(config.Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	site, err := newSiteDoor(cfg, dir, secret.NewToken(metal.SiteTokenMark), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return site, cfg.Limits
}

// TestSiteDoor walks a site's door without a credential. What ramdisks may ask goes to the centre, which is away here (503); for all
// else, and for boot files that nobody has, the connection ends without an answer. What ramdisks may ask is told by the bare metal
// API: neither the site nor the centre's door for sites leaves one out.
func TestSiteDoor(t *testing.T) {
	site, limits := newTestSite(t, "http://127.0.0.1:1")
	guarded := newLimits(limits).Guard(site)
	silent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if gone := recover(); gone == http.ErrAbortHandler {
				w.WriteHeader(http.StatusNotFound)
			} else if gone != nil {
				panic(gone)
			}
		}()
		guarded.ServeHTTP(w, r)
	})
	p := newTestControlPlane(t, "")
	main, _, err := p.Handlers()
	if err != nil {
		t.Fatal(err)
	}
	w := walker{t: t, listener: "ramdisk of a site", ask: asker(silent), allowed: []string{"GET /lent-image"}}
	known := native.NewSite(native.SiteConfig{Ramdisk: http.NotFoundHandler()}).Endpoints
	for _, d := range ironic.NewRamdisk(ironic.Config{}).(api.RouteLister).Endpoints {
		_, shape := filled(d.Path)
		w.allowed = append(w.allowed, d.Method+" "+strings.TrimSuffix(shape, "/"), d.Method+" "+shape)
		if status := w.ask(d.Method, strings.ReplaceAll(d.Path, "{node}", "n1")); status != http.StatusServiceUnavailable {
			t.Errorf("%s %s is not handed on: %d", d.Method, d.Path, status)
		}
		if path := strings.TrimSuffix(wire.SiteRamdiskPath+d.Path, "/"); !slices.ContainsFunc(known, func(k api.Endpoint) bool { return k.Method == d.Method && k.Path == path }) {
			t.Errorf("the centre takes no %s %s of a site", d.Method, d.Path)
		}
	}
	w.walk(slices.Concat(main.(api.RouteLister).Endpoints, strangePaths))
}

// TestSiteHoldsUpGuessers: who asks for what is none, by any road of a site's door, is held up at the site, so the centre is asked no
// more of it; a neighbour whose heartbeat was right is heard, and so is whoever comes from elsewhere.
func TestSiteHoldsUpGuessers(t *testing.T) {
	var asked atomic.Int32
	centre := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if strings.HasSuffix(r.URL.Path, "/v1/heartbeat/n1") {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer centre.Close()
	for _, guess := range []string{
		"GET /v1/lookup?addresses=52:54:00:00:00:01", "POST /v1/heartbeat/n%d", "POST /v1/continue_inspection", "GET /boot/aaaaaaaaaaaaaaaa%d/kernel", "GET /lent-image/aa/%d/bb",
	} {
		t.Run(guess, func(t *testing.T) {
			site, limits := newTestSite(t, centre.URL)
			const burst = 5
			limits.Refusals, limits.Burst = 1, burst*time.Second
			door := newLimits(limits).Guard(site)
			ask := func(from, what string) (status int) {
				defer func() {
					if gone := recover(); gone == http.ErrAbortHandler {
						status = http.StatusNotFound // silence
					} else if gone != nil {
						panic(gone)
					}
				}()
				method, path, _ := strings.Cut(what, " ")
				r, w := httptest.NewRequest(method, path, nil), httptest.NewRecorder()
				r.RemoteAddr = from + ":1"
				door.ServeHTTP(w, r)
				return w.Code
			}
			const guesser, elsewhere, right = "192.0.2.7", "198.51.100.7", "POST /v1/heartbeat/n1"
			if status := ask(guesser, right); status != http.StatusAccepted {
				t.Fatal(status)
			}
			began, before, heard := time.Now(), asked.Load(), 0
			for n := range 200 {
				switch status := ask(guesser, strings.ReplaceAll(guess, "%d", strconv.Itoa(n+2))); status {
				case http.StatusNotFound:
					heard++
				case http.StatusTooManyRequests:
				default:
					t.Fatalf("guess %d: %d", n, status)
				}
			}
			most := burst + 1 + int(time.Since(began)/time.Second) // one comes back each second
			if heard < burst-1 || heard > most {
				t.Errorf("%d of 200 guesses were heard, at most %d should be", heard, most)
			}
			if n := int(asked.Load() - before); n > 2*heard {
				t.Errorf("the centre was asked %d times for %d guesses", n, heard)
			}
			if status := ask(guesser, right); status != http.StatusAccepted {
				t.Errorf("a neighbour's heartbeat: %d", status)
			}
			if status := ask(elsewhere, strings.ReplaceAll(guess, "%d", "300")); status != http.StatusNotFound {
				t.Errorf("from elsewhere: %d", status)
			}
		})
	}
}

// TestHeldCentreTellsSitesNoPlans: while the database is held the list of plans is there and empty, so that sites drop what they kept.
func TestHeldCentreTellsSitesNoPlans(t *testing.T) {
	p := newTestControlPlane(t, "")
	n := &metal.Node{ID: "n1", ConductorGroup: "oslo", ProvisionState: metal.RescueWait, BootNumber: 1, Plan: &metal.BootPlan{BootNumber: 1, Path: "path1"}}
	must.OK(t, p.Store.Do(t.Context(), func(tx job.Tx) error { return p.Store.InsertNode(tx, n) }))
	_, token, err := p.sites().Issue(t.Context(), "site1", "oslo", record.Asker{})
	if err != nil {
		t.Fatal(err)
	}
	main, _, err := p.Handlers()
	if err != nil {
		t.Fatal(err)
	}
	ask := func() (int, string) {
		r, w := httptest.NewRequest(http.MethodGet, wire.SitePlansPath, nil), httptest.NewRecorder()
		r.Header.Set("Authorization", "Bearer "+token.Reveal())
		main.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if status, body := ask(); status != http.StatusOK || !strings.Contains(body, "path1") {
		t.Errorf("before: %d %s", status, body)
	}
	must.OK(t, p.Store.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
	if status, body := ask(); status != http.StatusOK || strings.Contains(body, "path1") || !strings.Contains(body, `"plans":[]`) {
		t.Errorf("held: %d %s", status, body)
	}
}

// TestVersionsOfImages: the bytes of an image of Glance never change, so that a site names them by the image.
func TestVersionsOfImages(t *testing.T) {
	one, other := fileVersion("glance://0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"), fileVersion("glance://1a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d")
	if len(one) != 64 || one == other || one != fileVersion("glance://0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d") {
		t.Errorf("%q, %q", one, other)
	}
}
