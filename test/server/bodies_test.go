package server

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
)

// recorded is a request that Debian's openstack (6.0.0) or baremetal (5.0.1) sends for a command, recorded against a server that answers
// everything. The commands give every option that becomes a part of a body. Each id is recordedID.
type recorded struct {
	Command, Method, Path, Version string
	Body                           json.RawMessage
}

const recordedID = "11111111-1111-4111-8111-111111111111"

//go:embed testdata/bodies.jsonl
var bodies []byte

// unknownKey are the words by which the faces refuse a body because of a key.
var unknownKey = regexp.MustCompile(`(?i)additional propert|unknown (field|attribute|key)|unexpected|unrecogni`)

// TestNoBodyOfAClientHasAnUnknownKey sends the recorded bodies: an answer may refuse one, but never because of an unknown key.
func TestNoBodyOfAClientHasAnUnknownKey(t *testing.T) {
	s := program.Serve(t, "")
	send := func(method, path, version string, body []byte) (int, string) {
		t.Helper()
		kind := "application/json"
		if method == http.MethodPatch && strings.HasPrefix(path, "/image/") {
			kind = "application/openstack-images-v2.1-json-patch"
		}
		a := fixture.Send(t, method, s.URL+path, body, "Content-Type", kind, "X-OpenStack-Ironic-API-Version", version, "OpenStack-API-Version", "compute "+version)
		return a.Status, a.Body
	}
	// What the commands are about. A server and a volume get ids of their own.
	made := func(path, version, body string) string {
		t.Helper()
		status, said := send(http.MethodPost, path, version, []byte(body))
		id := regexp.MustCompile(`"id": ?"([0-9a-f-]{36})"`).FindStringSubmatch(said)
		if status >= 300 || id == nil {
			t.Fatalf("POST %s: %d %s", path, status, said)
		}
		return id[1]
	}
	made("/compute/v2.1/flavors", "2.1", `{"flavor": {"id": "`+recordedID+`", "name": "NAME", "ram": 64, "vcpus": 1, "disk": 1}}`)
	made("/image/v2/images", "", `{"id": "`+recordedID+`", "name": "NAME", "disk_format": "raw", "container_format": "bare"}`)
	volume := made("/volume/v3/p/volumes", "", `{"volume": {"name": "NAME", "size": 1, "metadata": {"salvor:portal": "192.0.2.9:3260", "salvor:iqn": "iqn.2026-11.com.example:x", "salvor:lun": "1"}}}`)
	server := made("/compute/v2.1/servers", "2.88", `{"server": {"name": "NAME", "flavorRef": "`+recordedID+`", "networks": "none", "block_device_mapping_v2": [{"uuid": "`+volume+
		`", "source_type": "volume", "destination_type": "volume", "boot_index": 0}]}}`)
	if status, said := send(http.MethodPost, "/v1/nodes", "1.78", []byte(`{"driver": "fake-hardware", "name": "NAME", "uuid": "`+recordedID+`"}`)); status != http.StatusCreated {
		t.Fatalf("POST /v1/nodes: %d %s", status, said)
	}
	sent := 0
	for line := range bytes.Lines(bodies) {
		var one recorded
		must.OK(t, json.Unmarshal(line, &one))
		path := one.Path
		for kind, id := range map[string]string{"/servers/": server, "/os-volume_attachments/": volume, "/volumes/": volume} {
			path = strings.ReplaceAll(path, kind+recordedID, kind+id)
		}
		status, said := send(one.Method, path, one.Version, one.Body)
		if sent++; status >= 300 {
			t.Logf("%d %s %s %s %.300s", status, one.Method, one.Path, one.Version, said)
		}
		if status == http.StatusBadRequest && unknownKey.MatchString(said) {
			t.Errorf("%s: %s %s %s %s\n%d %s", one.Command, one.Method, path, one.Version, one.Body, status, said)
		}
	}
	if sent < 140 {
		t.Errorf("only %d bodies were sent", sent)
	}
}
