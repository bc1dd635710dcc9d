package cyclades_test

import (
	"net/http/httptest"
	"testing"

	"salvor/compute"
	"salvor/test/must"
)

// BenchmarkServers: the whole list of a project with 1,000 servers.
func BenchmarkServers(b *testing.B) {
	w := newWorld(b)
	for range 10 {
		_, err := w.services.Servers.Create(b.Context(), compute.Creation{Name: "vm", Flavor: "small", Image: w.image.ID, Count: 100}, compute.Who{Project: "ann"})
		must.OK(w, err)
	}
	for range b.N {
		out := httptest.NewRecorder()
		w.handler.ServeHTTP(out, httptest.NewRequest("GET", "/cyclades/compute/v2.0/servers/detail", nil))
		if out.Code != 200 {
			b.Fatal(out.Code)
		}
	}
}
