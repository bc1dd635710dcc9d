package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"salvor/cmd/salvor/kit"
)

// TestToken proves what commands show of who asks: a token if there is one, a user and password otherwise, or where --user says so.
func TestToken(t *testing.T) {
	for name, c := range map[string]struct {
		env   map[string]string
		args  string
		token string
		basic string
	}{
		"of salvor":   {map[string]string{"SALVOR_TOKEN": "t1\n", "OS_TOKEN": "t2", "SALVOR_USER": "u"}, "flavor list", "t1", ""},
		"of Keystone": {map[string]string{"OS_TOKEN": "t2"}, "node list", "t2", ""},
		"none":        {map[string]string{"SALVOR_USER": "u"}, "flavor list", "", "u"},
		"--user":      {map[string]string{"SALVOR_TOKEN": "t1"}, "flavor list --user me", "", "me"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{"SALVOR_TOKEN", "OS_TOKEN", "SALVOR_USER"} {
				t.Setenv(key, c.env[key])
			}
			var token, user string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				token = r.Header.Get("X-Auth-Token")
				user, _, _ = r.BasicAuth()
				w.WriteHeader(http.StatusUnauthorized)
			}))
			defer server.Close()
			_, errs, _ := salvor(t, nil, "", append(strings.Fields(c.args), "--url", server.URL)...)
			if token != c.token || user != c.basic || !strings.Contains(errs, "SALVOR_TOKEN or OS_TOKEN") {
				t.Errorf("token %q, user %q, stderr:\n%s", token, user, errs)
			}
			if c.token != "" && strings.Contains(errs, c.token) {
				t.Errorf("the token is told:\n%s", errs)
			}
		})
	}
}

// faceAsked proves that a command sends these requests, each with its query and body.
func faceAsked(t *testing.T, api *fakeAPI, args string, want ...string) string {
	t.Helper()
	out, errs, status := salvor(t, api, "", strings.Fields(args)...)
	if status != 0 {
		t.Fatalf("status %d, stderr:\n%s", status, errs)
	}
	for _, w := range want {
		if !slices.Contains(api.asked, w) {
			t.Errorf("not asked: %s\nasked:\n%s", w, strings.Join(api.asked, "\n"))
		}
	}
	return out
}

const sampleServer = `{"server": {"id": "5e8d0b8e-7d9c-4d36-a4f6-0c5f3b5a1a10", "name": "web1", "status": "ACTIVE"}}`

// TestNetworkByName finds networks where everybody may ask.
func TestNetworkByName(t *testing.T) {
	faceAsked(t, &fakeAPI{answers: map[string][]string{
		"GET /compute/v2.1/flavors/1":             {`{"flavor": {"id": "1"}}`},
		"GET /image/v2/images/" + sampleUUID:      {`{"id": "` + sampleUUID + `"}`},
		"GET /compute/v2.1/os-networks":           {`{"networks": [{"id": "n0", "label": "wan"}, {"id": "n1", "label": "lan"}]}`},
		"POST /compute/v2.1/servers":              {sampleServer},
		"GET /compute/v2.1/servers/" + sampleUUID: {sampleServer},
	}}, "server create web1 --flavor 1 --image "+sampleUUID+" --network lan",
		`POST /compute/v2.1/servers {"server":{"flavorRef":"1","imageRef":"`+sampleUUID+`","name":"web1","networks":[{"uuid":"n1"}]}}`)
}

// TestAdopt tells everything that the cluster does not know of an instance.
func TestAdopt(t *testing.T) {
	faceAsked(t, &fakeAPI{answers: map[string][]string{
		"GET /salvor/v1/clusters/" + sampleUUID: {`{"id": "` + sampleUUID + `"}`},
		"POST /salvor/v1/servers/adopt":         {`{"id": "s"}`},
	}}, "server adopt --cluster "+sampleUUID+" --instance i1 --name web1 --project p --os debian --os-family linux",
		`POST /salvor/v1/servers/adopt {"cluster":"`+sampleUUID+`","instance":"i1","name":"web1","os":"debian","os_family":"linux","project":"p"}`)
}

// TestRescueTellsHostKey prints the fingerprint, the addresses and the end to the owner too, and goes without what is not told.
func TestRescueTellsHostKey(t *testing.T) {
	server := strings.Replace(sampleServer, "ACTIVE", "RESCUE", 1)
	for session, want := range map[string]string{
		`{"id": "` + sampleUUID + `", "fingerprint": "SHA256:yes", "addresses": ["192.0.2.7", "fd00::7"], "expires_at": "2026-11-23T00:00:00Z"}`: "ssh host key: SHA256:yes\naddresses: 192.0.2.7 fd00::7\nends by itself at: 2026-11-23 00:00:00 UTC\n",
		`{"id": "` + sampleUUID + `", "fingerprint": "SHA256:yes", "host_key": "ssh-ed25519 AAAA", "notice": "no keys"}`:                         "ssh host key: SHA256:yes\nnotice: no keys\nlog in: salvor server ssh " + sampleUUID + "\n",
		`404 {}`: "",
		`{"id": "` + sampleUUID + `", "fingerprint": "", "addresses": [], "expires_at": null}`: "",
	} {
		out := faceAsked(t, &fakeAPI{answers: map[string][]string{
			"GET /compute/v2.1/servers/" + sampleUUID:              {server},
			"POST /compute/v2.1/servers/" + sampleUUID + "/action": {`{"adminPass": "p"}`},
			"GET /salvor/v1/rescue-sessions/" + sampleUUID:         {session},
		}}, "server rescue "+sampleUUID+" --wait")
		if !strings.Contains(out, want) || want == "" && (strings.Contains(out, "host key") || strings.Contains(out, "ends") || strings.Contains(out, "addresses")) {
			t.Errorf("%s:\n%s", session, out)
		}
	}
}

// TestWaitEndsWithAFailureThatLeavesTheState: a rescue that was refused before it touched the server leaves it ACTIVE.
func TestWaitEndsWithAFailureThatLeavesTheState(t *testing.T) {
	_, errs, status := salvor(t, &fakeAPI{answers: map[string][]string{
		"GET /compute/v2.1/servers/" + sampleUUID:                          {sampleServer},
		"POST /compute/v2.1/servers/" + sampleUUID + "/action":             {`{"adminPass": "p"}`},
		"GET /compute/v2.1/servers/" + sampleUUID + "/os-instance-actions": {`{"instanceActions": [{"action": "rescue", "message": "Error"}, {"action": "create", "message": null}]}`},
	}}, "", "server", "rescue", sampleUUID, "--wait")
	if want := "the action rescue failed and left it ACTIVE"; status != kit.StatusFailed || !strings.Contains(errs, want) || !strings.Contains(errs, "salvor why server:"+sampleUUID) {
		t.Errorf("status %d, stderr:\n%s", status, errs)
	}
}

// TestForcedRescueImages: what the API refuses for good reasons it does when it is forced, and the command can say so.
func TestForcedRescueImages(t *testing.T) {
	image := `{"id": 3, "uuid": "0d1c2b3a-7d9c-4d36-a4f6-0c5f3b5a1a10", "name": "live", "missing_on": "vm1"}`
	answers := func() *fakeAPI {
		return &fakeAPI{answers: map[string][]string{"GET /salvor/v1/rescue-images/3": {image}, "DELETE /salvor/v1/rescue-images/3": {"204 "}, "POST /salvor/v1/rescue-images": {image}}}
	}
	faceAsked(t, answers(), "rescue-image remove 3", "DELETE /salvor/v1/rescue-images/3")
	faceAsked(t, answers(), "rescue-image remove 3 --force", "DELETE /salvor/v1/rescue-images/3?force=true")
	if out := faceAsked(t, answers(), "rescue-image add --name live --location live.iso --force", `POST /salvor/v1/rescue-images {"force":true,"location":"live.iso","name":"live"}`); !strings.Contains(out, "missing_on") {
		t.Error(out)
	}
}

// TestRescueByRescueImage takes what --image names from the image API, else from the rescue images, of which the UUID is sent.
func TestRescueByRescueImage(t *testing.T) {
	const uuid = "0d1c2b3a-7d9c-4d36-a4f6-0c5f3b5a1a10"
	answers := func() *fakeAPI {
		return &fakeAPI{answers: map[string][]string{
			"GET /compute/v2.1/servers/" + sampleUUID:              {sampleServer},
			"POST /compute/v2.1/servers/" + sampleUUID + "/action": {`{}`},
			"GET /image/v2/images":                                 {`{"images": [{"id": "i1", "name": "debian"}]}`},
			"GET /salvor/v1/rescue-images":                         {`{"rescue_images": [{"id": 3, "uuid": "` + uuid + `", "name": "live"}, {"id": 4, "name": "debian"}]}`},
			"GET /salvor/v1/rescue-images/3":                       {`{"id": 3, "uuid": "` + uuid + `", "name": "live"}`},
			"GET /salvor/v1/rescue-images/" + uuid:                 {`{"id": 3, "uuid": "` + uuid + `", "name": "live"}`},
		}}
	}
	for name, want := range map[string]string{"debian": "i1", "live": uuid, "3": uuid, uuid: uuid} {
		faceAsked(t, answers(), "server rescue "+sampleUUID+" --image "+name,
			"POST /compute/v2.1/servers/"+sampleUUID+`/action {"rescue":{"rescue_image_ref":"`+want+`"}}`)
	}
	for status, want := range map[string]string{"403 {}": "no image has the id or name none", `{"rescue_images": []}`: "no rescue image has the id or name none"} {
		api := answers()
		api.answers["GET /salvor/v1/rescue-images"] = []string{status}
		if _, errs, code := salvor(t, api, "", "server", "rescue", sampleUUID, "--image", "none"); code != kit.StatusFailed || !strings.Contains(errs, want) {
			t.Errorf("status %d, stderr:\n%s", code, errs)
		}
	}
}

// TestFind proves by which question each kind is found: what is no id is looked for by name, in no more of the list than need be.
func TestFind(t *testing.T) {
	sample := func(key string) string { return `{"` + key + `": [{"id": "x1", "name": "a", "label": "a"}]}` }
	answers := map[string][]string{
		"GET /compute/v2.1/servers/detail": {`{"servers": [{"id": "` + sampleUUID + `", "name": "web1.example"}, {"id": "s2", "name": "web1-example"}]}`},
		"GET /compute/v2.1/servers":        {"500 {}"}, "GET /compute/v2.1/servers/" + sampleUUID: {sampleServer},
		"DELETE /compute/v2.1/servers/" + sampleUUID: {"204 "},
		"GET /image/v2/images":                       {sample("images")}, "GET /image/v2/images/x1": {`{"id": "x1"}`},
		"GET /volume/v3/volumes/detail": {sample("volumes")}, "GET /volume/v3/volumes/x1": {`{"volume": {"id": "x1"}}`},
		"GET /salvor/v1/networks": {sample("networks")}, "GET /salvor/v1/networks/x1": {`{"id": "x1"}`},
		"GET /salvor/v1/hosts/vm1": {`{"id": "h1"}`}, "GET /compute/v2.1/os-keypairs/me": {`{"keypair": {"name": "me"}}`},
	}
	for args, want := range map[string]string{
		"server show web1.example": "GET /compute/v2.1/servers/detail?name=%5Eweb1.example%24", "image show a": "GET /image/v2/images?name=a",
		"volume show a": "GET /volume/v3/volumes/detail?name=a", "network show a": "GET /salvor/v1/networks?name=a",
		"server delete " + sampleUUID: "DELETE /compute/v2.1/servers/" + sampleUUID, "server show web1.example -f json": "GET /compute/v2.1/servers/detail?name=%5Eweb1.example%24",
	} {
		faceAsked(t, &fakeAPI{answers: answers}, args, want)
	}
	faceAsked(t, &fakeAPI{answers: answers}, "host show vm1")
	faceAsked(t, &fakeAPI{answers: answers}, "keypair show me")
	if out := faceAsked(t, &fakeAPI{answers: answers}, "volume list -f value -c id -c name"); out != "x1 a\n" {
		t.Errorf("%q", out)
	}
}

// TestFindNothing refuses words that would ask for something else than one record.
func TestFindNothing(t *testing.T) {
	api := func() *fakeAPI {
		return &fakeAPI{answers: map[string][]string{
			"GET /compute/v2.1/servers/": {"{}"}, "GET /compute/v2.1/servers": {"{}"}, "GET /compute/v2.1/servers/detail": {`{"servers": []}`}, "GET /compute/v2.1/flavors/detail": {`{"flavors": []}`},
			"GET /compute/v2.1/": {"{}"}, "GET /compute/v2.1": {"{}"}, "GET /compute/v2.1/flavors/": {"{}"}, "GET /compute/v2.1/flavors": {"{}"},
		}}
	}
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"server", "delete", ""}, kit.StatusUsage, "an empty word names no server"},
		{[]string{"server", "delete", ".."}, kit.StatusFailed, "no server has the id or name ..: see salvor server list"},
		{[]string{"flavor", "delete", ".."}, kit.StatusFailed, "no flavor has the id or name .."},
		{[]string{"server", "show", "detail"}, kit.StatusFailed, "no server has the id or name detail"},
	} {
		if _, errs, status := salvor(t, api(), "", c.args...); status != c.status || !strings.Contains(errs, c.want) {
			t.Errorf("%q: status %d, stderr:\n%s", c.args, status, errs)
		}
	}
}

// TestOutOfError advises what "why" advises for the server in ERROR, and where that says nothing, to ask it.
func TestOutOfError(t *testing.T) {
	for _, c := range []struct{ why, want string }{
		{`{"next": [{"run": "salvor server unrescue web1", "for": "boot its own system"}, {"run": "salvor server delete web1", "for": "give it up"}]}`,
			"what next: salvor server unrescue web1  # boot its own system\n       or: salvor server delete web1  # give it up"},
		{`403 {}`, "what next: salvor why server:" + sampleUUID},
	} {
		_, errs, status := salvor(t, &fakeAPI{answers: map[string][]string{
			"GET /compute/v2.1/servers/" + sampleUUID:              {strings.Replace(sampleServer, `"ACTIVE"`, `"ERROR"`, 1)},
			"POST /compute/v2.1/servers/" + sampleUUID + "/action": {"202 "},
			"GET /salvor/v1/servers/" + sampleUUID + "/why":        {c.why},
		}}, "", "server", "start", sampleUUID, "--wait")
		if status != kit.StatusFailed || !strings.Contains(errs, c.want) {
			t.Errorf("want %q: status %d, stderr:\n%s", c.want, status, errs)
		}
	}
}

// TestAddresses writes the addresses of servers for people, and as they are for programs.
func TestAddresses(t *testing.T) {
	api := &fakeAPI{answers: map[string][]string{"GET /compute/v2.1/servers/detail": {`{"servers": [
		{"id": "s1", "name": "a", "addresses": {"wan": [{"addr": "198.51.100.7", "version": 4}], "lan": [{"addr": "192.0.2.7"}, {"addr": "fd00::7"}]}}, {"id": "s2", "name": "b", "addresses": {}}]}`}}}
	if out := faceAsked(t, api, "server list --deleted --all-projects -f value -c id -c addresses", "GET /compute/v2.1/servers/detail?all_tenants=true&deleted=true"); out != "s1 lan=192.0.2.7, fd00::7; wan=198.51.100.7\ns2 \n" {
		t.Errorf("%q", out)
	}
	if out := faceAsked(t, api, "server list -f json -c addresses"); !strings.Contains(out, `"addr": "192.0.2.7"`) {
		t.Error(out)
	}
}
