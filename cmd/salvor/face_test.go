package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
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
