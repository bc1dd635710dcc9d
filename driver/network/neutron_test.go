package network

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/metal"
	"salvor/openstack"
	"salvor/problem"
	"salvor/test/must"
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
	d := NewNeutron(newTestCloud(t, server.URL, ""), Networks{Of: map[driver.Net]string{driver.CleaningNet: "gone"}})
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

// TestNeutronNetworks: the networks of a machine are those that its own ports and its tenant's are bound to. Ports of other machines, and
// ports that nothing is bound to, do not count.
func TestNeutronNetworks(t *testing.T) {
	const me = "11111111-2222-3333-4444-555555555555"
	tenantHost, ownHost, status := me, me, http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("reading sends %s %s", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		switch {
		case strings.HasSuffix(r.URL.Path, "/networks"):
			_, _ = fmt.Fprintf(w, `{"networks": [{"id": "id-of-%s", "name": %q}]}`, r.URL.Query().Get("name"), r.URL.Query().Get("name"))
		case strings.HasSuffix(r.URL.Path, "/ports/v"):
			_, _ = fmt.Fprintf(w, `{"port": {"id": "v", "binding:host_id": %q}}`, tenantHost)
		case strings.HasSuffix(r.URL.Path, "/ports") && r.URL.Query().Get("device_id") == me:
			_, _ = fmt.Fprintf(w, `{"ports": [{"id": "o", "network_id": "id-of-rescuers", "binding:host_id": %q}]}`, ownHost)
		default:
			t.Errorf("asked for %s", r.URL)
		}
	}))
	defer server.Close()
	n := &metal.Node{ID: me}
	nics := []*metal.Port{{Address: "52:54:00:00:00:01", PXEEnabled: true, InternalInfo: metal.Object{TenantVIFKey: "v"}}}
	nets := Networks{Of: map[driver.Net]string{driver.Rescuing: "rescuers", driver.CleaningNet: "cleaners"}}
	for name, c := range map[string]struct {
		flat        bool
		tenant, own string
		status      int
		want        []driver.Net
		isRefused   bool
	}{
		"both":            {false, me, me, 200, []driver.Net{driver.Rescuing, driver.Tenant}, false},
		"the tenant's":    {false, me, "", 200, []driver.Net{driver.Tenant}, false},
		"ours":            {false, "another", me, 200, []driver.Net{driver.Rescuing}, false},
		"none":            {false, "another", "another", 200, nil, false},
		"flat":            {true, me, me, 200, []driver.Net{driver.Tenant}, false},
		"Neutron is away": {false, me, me, 503, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			tenantHost, ownHost, status = c.tenant, c.own, c.status
			d := NewNeutron(newTestCloud(t, server.URL, ""), nets)
			if c.flat {
				d = NewFlat(newTestCloud(t, server.URL, ""), nets)
			}
			got, err := d.Networks(t.Context(), n, nics)
			if !slices.Equal(got, c.want) || c.isRefused != problem.Is(err, problem.Unavailable) || !c.isRefused && err != nil {
				t.Errorf("networks %q %v, want %q", got, err, c.want)
			}
		})
	}
}

func newTestCloud(t *testing.T, endpoint, project string) *Cloud {
	t.Helper()
	return NewCloud(must.Get(openstack.New(openstack.Network, openstack.Access{Section: "neutron", Endpoint: endpoint, ProjectName: project}))(t))
}
