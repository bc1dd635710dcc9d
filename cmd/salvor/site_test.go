package main

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"salvor/api"
	"salvor/api/ironic"
	"salvor/api/native"
	"salvor/config"
	"salvor/metal"
	"salvor/secret"
	wire "salvor/wire/native"
)

// TestSiteDoor walks a site's door without a credential. What ramdisks may ask goes to the centre, which is away here (503); for all
// else, and for boot files that nobody has, the connection ends without an answer. What ramdisks may ask is told by the bare metal
// API: neither the site nor the centre's door for sites leaves one out.
func TestSiteDoor(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "salvor.conf")
	if err := os.WriteFile(file, []byte("[DEFAULT]\nstate_path = "+dir+"\nroles = netboot\n[ramdisk]\nlisten = 127.0.0.1:6385\n[site]\ncentre = http://127.0.0.1:1\ntoken_file = "+file+"\n"), 0o600); err != nil {
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
	guarded := newLimits(config.Limits{Refusals: 1e6, AllRefusals: 1e6, Logins: 1e6, AllLogins: 1e6, Patience: 100}).Guard(site)
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
	p := standing(t, "")
	main, _, err := p.handlers()
	if err != nil {
		t.Fatal(err)
	}
	w := walker{t: t, listener: "ramdisk of a site", ask: asker(silent), allowed: []string{"GET /lent-image"}}
	known := native.NewSite(native.SiteConfig{Ramdisk: http.NotFoundHandler()}).Doors
	for _, d := range ironic.NewRamdisk(ironic.Config{}).(api.Listed).Doors {
		_, shape := filled(d.Path)
		w.allowed = append(w.allowed, d.Method+" "+strings.TrimSuffix(shape, "/"), d.Method+" "+shape)
		if status := w.ask(d.Method, strings.ReplaceAll(d.Path, "{node}", "n1")); status != http.StatusServiceUnavailable {
			t.Errorf("%s %s is not handed on: %d", d.Method, d.Path, status)
		}
		if path := strings.TrimSuffix(wire.SiteRamdiskPath+d.Path, "/"); !slices.ContainsFunc(known, func(k api.Door) bool { return k.Method == d.Method && k.Path == path }) {
			t.Errorf("the centre takes no %s %s of a site", d.Method, d.Path)
		}
	}
	w.walk(slices.Concat(main.(api.Listed).Doors, strangePaths))
}
