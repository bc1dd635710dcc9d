package ironic_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// TestBodyGuards: size and depth are refused before anything reads the body, in JSON that is encoded once.
func TestBodyGuards(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	large := func(size int) string { return `{"target":"` + strings.Repeat("x", size) + `"}` }
	for _, r := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/volume/targets", large(1 << 20), 413}, {"POST", "/v1/ports", large(1 << 20), 413}, {"PATCH", "/v1/chassis/" + chassisID, large(1 << 20), 413}, {"PUT", "/v1/nodes/n1/states/power", large(1 << 20), 413},
		{"PUT", "/v1/nodes/n1/states/provision", large(64 << 20), 413}, {"POST", "/v1/volume/connectors", strings.Repeat("[", 10_000), 400}, {"PATCH", "/v1/ports/" + nodeID, strings.Repeat(`[{"a":`, 5000), 400},
		{"PUT", "/v1/nodes/n1/states/provision", `{"target":` + strings.Repeat("[", 26) + strings.Repeat("]", 26) + "}", 400},
	} {
		a := w.ask(r.method, r.path, "1.115", r.body)
		var guard struct {
			Message struct {
				Code   string `json:"faultcode"`
				String string `json:"faultstring"`
			} `json:"error_message"`
		}
		if err := json.Unmarshal([]byte(a.Body), &guard); err != nil || a.Status != r.status || guard.Message.Code != "Client" || guard.Message.String == "" {
			t.Errorf("%s %s with %d bytes: %d %.200s", r.method, r.path, len(r.body), a.Status, a.Body)
		}
	}
	if a := w.ask("PUT", "/v1/nodes/n1/states/provision", "1.115", large(2<<20)); a.Status != 400 || !strings.Contains(a.errorText(), "can not be performed") {
		t.Errorf("a provision body of 2 MiB: %d %.200s", a.Status, a.Body)
	}
}

// BenchmarkTargets1000 is a page of 1000 volume targets in detail, as they look in life.
func BenchmarkTargets1000(b *testing.B) {
	w := newWorld(b)
	w.addNodes()
	must.OK(b, w.store.Do(w.Context(), func(tx job.Tx) error {
		for i := range 1000 {
			v := &metal.Target{
				Record: record.Record{ID: fmt.Sprintf("22222222-2222-4333-8444-%012d", i), CreatedAt: born}, NodeID: fmt.Sprintf("11111111-2222-4333-8444-%012d", i), VolumeType: "iscsi", VolumeID: fmt.Sprintf("vol-%d", i),
				Properties: metal.Object{
					"auth_method": "CHAP", "auth_username": "user", "auth_password": "hush", "target_iqn": "iqn.2026-01.org.salvor:x", "target_portal": "192.0.2.1:3260", "target_lun": 1.0, "access_mode": "rw", "encrypted": false,
					"target_discovered": false, "qos_specs": nil,
				},
			}
			if err := w.store.Targets().Insert(tx, v); err != nil {
				return err
			}
		}
		return nil
	}))
	b.ReportAllocs()
	for b.Loop() {
		if a := w.ask("GET", "/v1/volume/targets/detail", "1.82", ""); a.Status != 200 {
			b.Fatal(a.Body)
		}
	}
}

// BenchmarkCreateTarget is one creation at a time.
func BenchmarkCreateTarget(b *testing.B) {
	w := newWorld(b)
	w.node(nil)
	index := 0
	for b.Loop() {
		index++
		w.want(201, "POST", "/v1/volume/targets", "1.82", fmt.Sprintf(`{"node_uuid":%q,"volume_type":"iscsi","boot_index":%d,"volume_id":"v","properties":{"auth_password":"x"}}`, nodeID, index))
	}
}
