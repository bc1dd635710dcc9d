package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/rescue"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// everyImage has an image for each digest: the bytes are the digest's text.
type everyImage struct{}

func (everyImage) Open(_ context.Context, digest string) (io.ReadSeekCloser, error) {
	return openImage{bytes.NewReader([]byte(digest))}, nil
}

type openImage struct{ *bytes.Reader }

func (openImage) Close() error { return nil }

// TestHostsGetTheImagesOfTheirOrders: a host gets an image if an open order of its own has the host fetch the image, and no other.
func TestHostsGetTheImagesOfTheirOrders(t *testing.T) {
	r, key := newRegion(t), newKey(t)
	id, cert := r.join(t, key)
	other, _ := r.join(t, newKey(t))
	digest := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	image := func(c string) *compute.SpecImage { return &compute.SpecImage{ID: "i", Digest: digest(c)} }
	rescued := &compute.SpecRescue{Image: image("3"), RamdiskImage: image("4")}
	onWeb := &compute.SpecRescue{Source: rescue.Source{LocationType: rescue.LocationHTTP, Location: "http://h/5", Ramdisk: "http://h/6", Digest: digest("5"), RamdiskDigest: digest("6")},
		Image: image("5"), RamdiskImage: image("6")}
	insert := func(host string, args compute.Args) (order string) {
		order = uuid.NewString()
		must.OK(t, r.store.Do(t.Context(), func(tx job.Tx) error {
			_, err := r.store.InsertOrder(tx, &compute.Order{ID: order, HostID: host, BootID: "b", ServerID: uuid.NewString(), Verb: compute.Prepare, JobID: uuid.NewString(), Action: "prepare",
				Args: must.Get(json.Marshal(args))(t)})
			return err
		}))
		return order
	}
	insert(id, compute.Args{Spec: &compute.Spec{Name: digest("8"), Disks: []compute.SpecDisk{{Name: "vda", Image: image("1")}}, Rescue: rescued}})
	insert(id, compute.Args{Disk: &compute.SpecDisk{Name: "vda", Image: image("2")}, Spec: &compute.Spec{Rescue: onWeb}})
	insert(other, compute.Args{Disk: &compute.SpecDisk{Name: "vda", Image: image("7")}})
	ended := insert(id, compute.Args{Disk: &compute.SpecDisk{Name: "vda", Image: image("9")}})
	must.OK(t, r.store.Do(t.Context(), func(tx job.Tx) error {
		_, err := r.store.FinishOrder(tx, ended, id, "b", 0, compute.Result{})
		return err
	}))
	c := r.client(cert)
	for name, want := range map[string]int{
		digest("1"): http.StatusOK, digest("2"): http.StatusOK, digest("3"): http.StatusOK, digest("4"): http.StatusOK, digest("5"): http.StatusNotFound, digest("6"): http.StatusNotFound,
		digest("7"): http.StatusNotFound, digest("8"): http.StatusNotFound, digest("9"): http.StatusNotFound, digest("0"): http.StatusNotFound, "sha256:": http.StatusNotFound, "vda": http.StatusNotFound,
	} {
		answer := must.Get(c.Get(r.url + wire.ImagePath + name))(t)
		body := must.Get(io.ReadAll(answer.Body))(t)
		answer.Body.Close()
		if answer.StatusCode != want || want == http.StatusOK && string(body) != name {
			t.Errorf("image %.12s: want status %d, got %d with %.40q", name, want, answer.StatusCode, body)
		}
	}
	// To ask for an image marks no order as sent: the next poll gives all of them.
	if open := must.Get(r.store.HostsWithOrders(t.Context()))(t); len(open) != 2 {
		t.Errorf("hosts with orders that were not sent: want 2, got %d", len(open))
	}
}
