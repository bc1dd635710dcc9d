package service_test

import (
	"fmt"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
)

// TestUploadedImagesAreRefusedOnClusters at the door, with words: nodes of a cluster fetch nothing from here. One at a URL is taken.
func TestUploadedImagesAreRefusedOnClusters(t *testing.T) {
	w := newWorld(t)
	node := must.Get(w.Hosts.Ensure(w.ctx, newID(), "node1", compute.Inventory{HypervisorType: "ganeti"}))(w.t)
	s := w.server(alice, compute.Stopped)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Edit(w.ctx, tx, s.ID, func(s *compute.Server) { s.HostID = node.ID })
	})
	s = w.read(s.ID)
	for _, url := range []string{"", "http://mirror.example/rescue.iso"} {
		img := &compute.Image{Name: "live", Owner: alice.Project, Visibility: "public", Status: compute.ImageActive, DiskFormat: "iso", Size: 1 << 20, Digest: digest, URL: url}
		w.no(w.Images.Create(w.ctx, img, admin.Asker))
		row := &rescue.Image{Name: "row of " + img.ID, Source: rescue.Source{ImageUUID: img.ID, Kind: rescue.ISO}}
		w.no(w.RescueImages.Create(w.ctx, row, admin.Asker))
		for name, req := range map[string]rescue.Request{"by its UUID": {ImageUUID: img.ID}, "by a rescue image": {Image: row.Num}} {
			t.Run(fmt.Sprint(name, ", at ", url), func(t *testing.T) {
				var src *rescue.Source
				err := w.store.Do(w.ctx, func(tx job.Tx) (err error) {
					src, err = w.RescueImages.Select(w.ctx, tx, req, s, alice)
					return err
				})
				switch {
				case url == "" && (!problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "files of its nodes and URLs")):
					t.Errorf("an upload: %v", err)
				case url != "" && (err != nil || src.ImageUUID != img.ID):
					t.Errorf("at a URL: %+v %v", src, err)
				}
			})
		}
	}
}
