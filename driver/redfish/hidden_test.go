package redfish

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"salvor/metal"
	"salvor/secret"
)

// TestSecretsInRefusals: a BMC that repeats what it refuses, as the Base registry words it, does not get a secret shown.
func TestSecretsInRefusals(t *testing.T) {
	docs := map[string]string{
		"/redfish/v1/":                  `{"Systems": {"@odata.id": "/redfish/v1/Systems"}}`,
		"/redfish/v1/Systems":           `{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}`,
		"/redfish/v1/Systems/1":         `{"@odata.id": "/redfish/v1/Systems/1", "Id": "1", "PowerState": "Off", "Bios": {"@odata.id": "/redfish/v1/Systems/1/Bios"}, "NetworkInterfaces": {"@odata.id": "/redfish/v1/Systems/1/N"}}`,
		"/redfish/v1/Systems/1/Bios":    `{"Attributes": {"AdminPassword": null, "Turbo": "On"}}`,
		"/redfish/v1/Systems/1/N":       `{"Members": [{"@odata.id": "/redfish/v1/Systems/1/N/1"}]}`,
		"/redfish/v1/Systems/1/N/1":     `{"NetworkDeviceFunctions": {"@odata.id": "/redfish/v1/Systems/1/N/1/F"}}`,
		"/redfish/v1/Systems/1/N/1/F":   `{"Members": [{"@odata.id": "/redfish/v1/Systems/1/N/1/F/1"}]}`,
		"/redfish/v1/Systems/1/N/1/F/1": `{"NetDevFuncType": "iSCSI", "iSCSIBoot": {}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPatch {
			body, _ := io.ReadAll(r.Body)
			w.WriteHeader(http.StatusBadRequest)
			words := strings.NewReplacer(`"`, " ", `\`, " ").Replace(string(body))
			_, _ = io.WriteString(w, `{"error": {"code": "Base.1.0.GeneralError", "message": "no", "@Message.ExtendedInfo": [{"MessageId": "Base.1.0.PropertyValueFormatError", "Message": "wrong: `+words[strings.Index(words, "Secret"):]+`"}]}}`)
			return
		}
		doc, ok := docs[r.URL.Path]
		if !ok {
			doc, ok = docs[r.URL.Path+"/"]
		}
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, doc)
	}))
	defer server.Close()
	n := node(server.URL)
	d := &Driver{}
	login := metal.Login{Username: "u", Password: secret.New("chap-hush-1")}
	plan := metal.VolumePlan{Initiator: "iqn.2026-11.org:a", Root: &metal.Volume{
		Type: metal.ISCSI, Login: login, Mutual: metal.Login{Username: "m", Password: secret.New("chap-hush-2")},
		Paths: []metal.VolumePath{{Host: "10.0.0.1", Port: 3260, IQN: "iqn.2026-11.org:t"}},
	}}
	_, bios := BIOS{d}.RunStep(t.Context(), n, step("bios", "apply_configuration", metal.Object{"settings": []any{map[string]any{"name": "AdminPassword", "value": "Secret-hush"}}}))
	for what, err := range map[string]error{"initiator": (&Media{Driver: d}).PrepareVolumes(t.Context(), n, plan), "BIOS": bios} {
		if err == nil || !strings.Contains(err.Error(), "wrong:") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
