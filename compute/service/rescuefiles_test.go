package service_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
)

// answers plays the agents of hosts for searches until the returned function is called: the files that each has, by host. A host that is
// not named answers nothing; one with nil is of a release that does not know the question.
func (w *world) answers(has map[string][]string) (stop func()) {
	return w.answerHosts(slices.Collect(maps.Keys(has)), func(host string, args compute.Args) (result compute.Result) {
		for _, f := range args.Files {
			if !slices.Contains(has[host], f) {
				result.Missing = append(result.Missing, f)
			}
		}
		if has[host] == nil {
			result = compute.Result{ErrorKind: problem.Unsupported.String(), Error: "this agent does not know how"}
		}
		return result
	})
}

// answerHosts plays the agents of hosts until the returned function is called.
func (w *world) answerHosts(hosts []string, answer func(host string, args compute.Args) compute.Result) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			for _, host := range hosts {
				orders, _ := w.store.OpenOrders(ctx, host)
				for _, o := range orders {
					var args compute.Args
					_ = json.Unmarshal(o.Args, &args)
					_ = w.store.Do(ctx, func(tx job.Tx) error {
						_, err := w.store.FinishOrder(tx, o.ID, host, o.BootID, o.Epoch, answer(host, args))
						return err
					})
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	return func() { cancel(); done.Wait() }
}

// TestTheFileOfARescueImageIsLookedFor when the image is added, and not only when the first rescue fails.
func TestTheFileOfARescueImageIsLookedFor(t *testing.T) {
	w := newWorld(t)
	b := w.join("host-b")
	search := func(within time.Duration, img rescue.Image, force bool, has map[string][]string) (*compute.FileSearch, error) {
		t.Helper()
		stop := w.answers(has)
		defer stop()
		all := service.New(w.store, w.store, service.Options{RescueImagePath: "/srv/rescue", FindFilesWithin: within}, w.now)
		w.no(all.Liveness.ListenOnce(w.ctx))
		return all.RescueImages.Search(w.ctx, img, force)
	}
	iso := rescue.Image{Source: rescue.Source{Location: "live.iso"}}
	kernel := rescue.Image{Source: rescue.Source{Kind: rescue.Kernel, Location: "vmlinuz", Ramdisk: "initrd"}}
	a, nobody, both := w.host.ID, []string{}, []string{"vmlinuz", "initrd"}
	for name, c := range map[string]struct {
		img      rescue.Image
		force    bool
		has      map[string][]string
		want     compute.FileSearch
		conflict bool
	}{
		"both have it":           {iso, false, map[string][]string{a: {"live.iso"}, b.ID: {"live.iso"}}, compute.FileSearch{Found: []string{"host-a", "host-b"}}, false},
		"one lacks it":           {iso, false, map[string][]string{a: {"live.iso"}, b.ID: nobody}, compute.FileSearch{Found: []string{"host-a"}, Missing: []string{"host-b"}}, false},
		"nobody has it":          {iso, false, map[string][]string{a: nobody, b.ID: nobody}, compute.FileSearch{}, true},
		"forced":                 {iso, true, map[string][]string{a: nobody, b.ID: nobody}, compute.FileSearch{Missing: []string{"host-a", "host-b"}}, false},
		"a host of old":          {iso, false, map[string][]string{a: nil, b.ID: nobody}, compute.FileSearch{Missing: []string{"host-b"}, Unknown: []string{"host-a"}}, false},
		"one does not answer":    {iso, false, map[string][]string{b.ID: nobody}, compute.FileSearch{Missing: []string{"host-b"}, Unknown: []string{"host-a"}}, false},
		"kernel without ramdisk": {kernel, false, map[string][]string{a: {"vmlinuz"}, b.ID: both}, compute.FileSearch{Found: []string{"host-b"}, Missing: []string{"host-a"}}, false},
		"a URL":                  {rescue.Image{Source: rescue.Source{Location: "http://example.org/live.iso"}}, false, map[string][]string{a: nobody, b.ID: nobody}, compute.FileSearch{}, false},
	} {
		within := 30 * time.Second
		if name == "one does not answer" {
			within = 5 * time.Second // it bounds the host that answers too
		}
		got, err := search(within, c.img, c.force, c.has)
		if c.conflict {
			if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "live.iso") || !strings.Contains(err.Error(), "host-a, host-b") || !strings.Contains(err.Error(), "--force") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got.Found, c.want.Found) || !slices.Equal(got.Missing, c.want.Missing) || !slices.Equal(got.Unknown, c.want.Unknown) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		for _, host := range []string{a, b.ID} {
			if open, err := w.store.OpenOrders(w.ctx, host); err != nil || len(open) != 0 {
				t.Errorf("%s: %d orders are left: %v", name, len(open), err)
			}
		}
	}
}
