package agent

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
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

// TestDriveKeysAreLetIn: the public keys of the machine's config drive go to our own agent beside those of the request, once each; what
// is no key stays away.
func TestDriveKeysAreLetIn(t *testing.T) {
	t.Parallel()
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG6zbRXkp9CdSvOtcMjNVOyEAsdcbK/jYlSmblVCW5FM"
	var got wire.FinalizeParams
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c wire.Command
		if json.NewDecoder(r.Body).Decode(&c) != nil || json.Unmarshal(c.Params, &got) != nil {
			t.Error("the agent is sent no JSON")
		}
		_ = json.NewEncoder(w).Encode(wire.Result{ID: "1", Status: wire.Succeeded})
	}))
	defer server.Close()
	drive := json.RawMessage(`{"meta_data":{"public_keys":{"b":"` + key + ` b\n","a":"` + key + `","c":"rubbish"}}}`)
	f := driver.Finalize{Extras: &wire.Extras{AuthorizedKeys: []string{key}}, ConfigDrive: drive}
	must.OK(t, Rescue{Locks: &driver.AddressLocks{}}.Finalize(t.Context(), &metal.Node{ID: "n1"}, agentAt(server.URL), f))
	if want := []string{key, key + " b"}; got.RescuePassword != "" || got.Hashed || !slices.Equal(got.Salvor.AuthorizedKeys, want) || len(f.Extras.AuthorizedKeys) != 1 {
		t.Errorf("sent %+v with %+v", got, got.Salvor)
	}
	foreign := agentAt(server.URL)
	foreign.Version = "9.4.0"
	if err := (Rescue{Locks: &driver.AddressLocks{}}).Finalize(t.Context(), &metal.Node{ID: "n1"}, foreign, f); !problem.Is(err, problem.Invalid) {
		t.Errorf("keys alone for an agent that takes none: %v", err)
	}
}

// TestReadRescueSystem: our agent shows its host key; a former release of it and another's agent take no keys, and that is no error.
func TestReadRescueSystem(t *testing.T) {
	t.Parallel()
	var answer, check func(w http.ResponseWriter)
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		var c wire.Command
		if json.NewDecoder(r.Body).Decode(&c) != nil || c.Name != wire.ReadHostKey && c.Name != wire.CheckNetwork {
			t.Errorf("asked %q", c.Name)
		}
		if c.Name == wire.CheckNetwork {
			if !strings.Contains(string(c.Params), `"network_data":{"networks":[]}`) {
				t.Errorf("params %s, want the network data", c.Params)
			}
			answer = check
		}
		answer(w)
	}))
	defer server.Close()
	result := func(status, outcome string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			_ = json.NewEncoder(w).Encode(wire.Result{ID: "1", Status: status, Outcome: json.RawMessage(outcome)})
		}
	}
	ours, other := agentAt(server.URL), agentAt(server.URL)
	other.Version = "9.4.0"
	const data = `{"networks":[]}`
	for name, c := range map[string]struct {
		agent  driver.Agent
		answer func(http.ResponseWriter)
		want   driver.RescueSystem
		kind   problem.Kind
	}{
		"ours":        {ours, result(wire.Succeeded, `{"public_key":"k"}`), driver.RescueSystem{HostKey: "k", TakesKeys: true}, 0},
		"no key made": {ours, result(wire.Failed, "null"), driver.RescueSystem{TakesKeys: true}, 0},
		"a former release": {ours, func(w http.ResponseWriter) {
			w.WriteHeader(400)
			_ = json.NewEncoder(w).Encode(wire.Fault{String: "Invalid command: Unknown command: get_ssh_host_key"})
		}, driver.RescueSystem{}, 0},
		"another's": {other, nil, driver.RescueSystem{}, 0},
		"rubbish":   {ours, result(wire.Succeeded, `"x"`), driver.RescueSystem{}, problem.Conflict},
		"busy":      {ours, func(w http.ResponseWriter) { w.WriteHeader(409) }, driver.RescueSystem{}, problem.Unavailable},
	} {
		answer, asked = c.answer, 0
		check = result(wire.Succeeded, `{"left_out":["link \"p2\": gone`+strings.Repeat("x", 2000)+`",7],"addresses":["192.0.2.7"],"more":1}`)
		if name == "no key made" {
			check = func(w http.ResponseWriter) {
				w.WriteHeader(400)
				_ = json.NewEncoder(w).Encode(wire.Fault{String: "Invalid command: Unknown command: check_network"})
			}
		}
		c.want.NetworkData = json.RawMessage(data)
		got, err := Rescue{Locks: &driver.AddressLocks{}}.ReadRescueSystem(t.Context(), &metal.Node{ID: "n1"}, c.agent, driver.Finalize{Hash: secret.New(hash), Extras: &wire.Extras{NetworkData: json.RawMessage(data)}})
		if c.kind == 0 && err != nil || c.kind != 0 && !problem.Is(err, c.kind) || got.HostKey != c.want.HostKey || got.TakesKeys != c.want.TakesKeys || string(got.NetworkData) != data {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if got.Checked != (name == "ours") || got.Checked && (len(got.LeftOut) != 2 || len(got.LeftOut[0]) > maxClause || got.Addresses[0] != "192.0.2.7") {
			t.Errorf("%s: %+v", name, got)
		}
		if (asked == 0) != (c.answer == nil) {
			t.Errorf("%s: asked %d times", name, asked)
		}
	}
}
