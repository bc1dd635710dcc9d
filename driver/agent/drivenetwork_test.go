package agent

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/metal"
	"salvor/secret"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

const driveData = `{"links":[{"id":"eth0","type":"phy","ethernet_mac_address":"52:54:00:00:00:01"}],"networks":[],"services":[]}`

// TestFinalizeCarriesTheDrivesNetwork: salvor's own agent is told the network of the kept config drive, in whichever form it was given;
// the node's own network_data comes first, and a drive that cannot be read fails no rescue.
func TestFinalizeCarriesTheDrivesNetwork(t *testing.T) {
	object := json.RawMessage(`{"meta_data": {"name": "web"}, "network_data": ` + driveData + `}`)
	packed := must.Get(configDrive("n1", object))(t)
	text, _ := json.Marshal(packed)
	bare := must.Get(configDrive("n1", json.RawMessage(`{"meta_data": {}}`)))(t)
	none, _ := json.Marshal(bare)
	for name, c := range map[string]struct {
		drive, own json.RawMessage
		want       string
	}{
		"an object": {object, nil, driveData}, "an image": {text, nil, driveData}, "the node's own": {object, json.RawMessage(`{"links":[]}`), `{"links":[]}`},
		"no network in the object": {json.RawMessage(`{"meta_data": {}}`), nil, ""}, "no network in the image": {none, nil, ""}, "none": {nil, nil, ""},
		"a URL": {json.RawMessage(`"http://192.0.2.1/drive"`), nil, ""}, "nonsense": {json.RawMessage(`"bm9uc2Vuc2U="`), nil, ""},
	} {
		var got wire.Extras
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var command struct {
				Params struct {
					Extras wire.Extras `json:"salvor"`
				}
			}
			_ = json.NewDecoder(r.Body).Decode(&command)
			got = command.Params.Extras
			_ = json.NewEncoder(w).Encode(wire.Result{ID: "1", Status: wire.Succeeded})
		}))
		f := driver.Finalize{Hash: secret.New(hash), Extras: &wire.Extras{NetworkData: c.own}, ConfigDrive: c.drive}
		if err := (Rescue{Locks: &driver.AddressLocks{}}).Finalize(t.Context(), &metal.Node{ID: "n1"}, agentAt(server.URL), f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
		if string(got.NetworkData) != c.want {
			t.Errorf("%s: the agent was told %s, want %s", name, got.NetworkData, c.want)
		}
	}
}

// FuzzDriveNetwork: a drive is read or refused, whatever is in it.
func FuzzDriveNetwork(f *testing.F) {
	text := must.Get(configDrive("n1", json.RawMessage(`{"network_data": `+driveData+`}`)))(f)
	image := must.Get(unpackDrive(text))(f)
	f.Add(image)
	f.Add(image[:40<<10])
	f.Add([]byte(strings.Repeat("CD001", 9000)))
	f.Fuzz(func(t *testing.T, image []byte) {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write(image)
		_ = z.Close()
		stored, _ := json.Marshal(base64.StdEncoding.EncodeToString(packed.Bytes()))
		if data, err := driveNetwork(stored); err == nil && data != nil && !json.Valid(data) {
			t.Errorf("%q is no JSON", data)
		}
	})
}
