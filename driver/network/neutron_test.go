package network

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/metal"
)

// TestNeutronDetach: a network that is gone holds nobody, and a VIF that another machine has by now stays with it.
func TestNeutronDetach(t *testing.T) {
	const me = "11111111-2222-3333-4444-555555555555"
	var changed []string
	host := "another"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodGet {
			changed = append(changed, r.Method+" "+r.URL.Path)
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/networks"):
			_, _ = io.WriteString(w, `{"networks": []}`)
		case strings.Contains(r.URL.Path, "/ports/"):
			_, _ = fmt.Fprintf(w, `{"port": {"id": "v", "mac_address": "52:54:00:00:00:01", "binding:host_id": %q}}`, host)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	d := NewNeutron(NewCloud(Access{Endpoint: server.URL}), Networks{Of: map[driver.Net]string{driver.CleaningNet: "gone"}})
	n := &metal.Node{ID: me}
	nics := []*metal.Port{{Address: "52:54:00:00:00:01", PXEEnabled: true, InternalInfo: metal.Object{TenantVIFKey: "v"}}}
	if err := d.Detach(t.Context(), n, nics, driver.CleaningNet); err != nil {
		t.Errorf("leave a network that is gone: %v", err)
	}
	if err := d.Attach(t.Context(), n, nics, driver.CleaningNet); err == nil || !strings.Contains(err.Error(), `no network "gone"`) {
		t.Errorf("join a network that is gone: %v", err)
	}
	if err := d.Detach(t.Context(), n, nics, driver.Tenant); err != nil || len(changed) != 0 {
		t.Errorf("the VIF of another machine: %v, %v", changed, err)
	}
	host = me
	if err := d.Detach(t.Context(), n, nics, driver.Tenant); err != nil || len(changed) != 1 {
		t.Errorf("the node's own VIF: %v, %v", changed, err)
	}
}
