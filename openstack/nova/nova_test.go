package nova

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"salvor/openstack"
	"salvor/problem"
	"salvor/test/must"
)

const server = "5f2b3d6c-0000-4000-8000-000000000001"

// TestSendPower: Nova gets the event in its form, and each of its answers has a kind by which the sender knows whether to try again.
func TestSendPower(t *testing.T) {
	one := func(code int) string {
		return fmt.Sprintf(`{"events":[{"name":"power-update","server_uuid":"%s","tag":"POWER_OFF","status":"failed","code":%d}]}`, server, code)
	}
	for _, tt := range []struct {
		status int
		answer string
		kind   problem.Kind // 0: none
	}{
		{200, one(200), 0},
		{207, one(404), problem.NotFound},
		{207, one(422), problem.NotFound},
		{207, one(400), problem.Invalid},
		{207, one(500), problem.Unavailable},
		{200, `{"events":[]}`, problem.Unavailable},
		{200, `nonsense`, problem.Unavailable},
		{404, `{"itemNotFound":{"code":404,"message":"No instances found for any event"}}`, problem.NotFound},
		{400, `{"badRequest":{"code":400,"message":"no such event"}}`, problem.Invalid},
		{403, `{}`, problem.Invalid},
		{500, `{}`, problem.Unavailable},
		{503, `{}`, problem.Unavailable},
	} {
		var got struct {
			Events []map[string]any
		}
		var path, version string
		fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			path, version = r.Method+" "+r.URL.Path, r.Header.Get("OpenStack-API-Version")
			body, _ := io.ReadAll(r.Body)
			_ = json.Unmarshal(body, &got)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.answer)
		}))
		t.Cleanup(fake.Close)
		e := New(must.Get(openstack.New(openstack.Compute, openstack.Access{Section: "nova", Endpoint: fake.URL}))(t))
		err := e.SendPower(t.Context(), server, false)
		if tt.kind == 0 && err != nil || tt.kind != 0 && (!problem.Is(err, tt.kind) || !strings.Contains(err.Error(), server)) {
			t.Errorf("%d %s: %v, want %v", tt.status, tt.answer, err, tt.kind)
		}
		if path != "POST /v2.1/os-server-external-events" || version != "compute 2.76" {
			t.Errorf("%s with %q", path, version)
		}
		if len(got.Events) != 1 || len(got.Events[0]) != 3 || got.Events[0]["name"] != "power-update" || got.Events[0]["server_uuid"] != server || got.Events[0]["tag"] != "POWER_OFF" {
			t.Errorf("sent %v", got.Events)
		}
	}
}

// TestAHangingNovaHoldsFewWorkers: of many events at once a Nova that does not answer holds a few, and the others are to be tried later.
func TestAHangingNovaHoldsFewWorkers(t *testing.T) {
	ctx, release := context.WithCancel(t.Context())
	arrived := make(chan struct{}, atOnce+1)
	fake := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-ctx.Done()
	}))
	t.Cleanup(fake.Close)
	t.Cleanup(release)
	e := New(must.Get(openstack.New(openstack.Compute, openstack.Access{Section: "nova", Endpoint: fake.URL}))(t))
	errs := make(chan error, atOnce)
	for range atOnce {
		go func() { errs <- e.SendPower(ctx, server, true) }()
	}
	for range atOnce {
		<-arrived
	}
	if err := e.SendPower(t.Context(), server, true); !problem.Is(err, problem.Unavailable) || len(arrived) != 0 {
		t.Errorf("one more: %v", err)
	}
	release()
	for range atOnce {
		if err := <-errs; !problem.Is(err, problem.Unavailable) {
			t.Errorf("one that hung: %v", err)
		}
	}
}
