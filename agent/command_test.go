package agent

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"salvor/agent/network"
	"salvor/problem"
	"salvor/secret"
	wire "salvor/wire/agent"
)

// ask sends a request to the endpoints and gives status and body.
func ask(c *commandServer, method, path, body string) (int, string) {
	w := httptest.NewRecorder()
	c.handler().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func finalizer(err error) (*commandServer, *[]wire.FinalizeParams) {
	var taken []wire.FinalizeParams
	c := newCommands(secret.New(testToken), "salvor-agent/9", time.Unix(5, 0), func(order wire.FinalizeParams) error {
		taken = append(taken, order)
		return err
	})
	return c, &taken
}

const good = `{"name":"rescue.finalize_rescue","params":{"rescue_password":"x","hashed":true}}`

func TestCommandsRefused(t *testing.T) {
	const with = "?agent_token=" + testToken
	for name, r := range map[string]struct {
		method, path, body string
		status             int
		text               string
	}{
		"no token":        {"POST", "/v1/commands/", good, 401, "Token invalid"},
		"wrong token":     {"POST", "/v1/commands/?agent_token=x", good, 401, "Token invalid"},
		"no JSON":         {"POST", "/v1/commands/" + with, "{", 400, "JSON"},
		"empty":           {"POST", "/v1/commands/" + with, "", 400, "JSON"},
		"a list":          {"POST", "/v1/commands/" + with, "[]", 400, "JSON"},
		"two":             {"POST", "/v1/commands/" + with, good + good, 400, "follows"},
		"no name":         {"POST", "/v1/commands/" + with, `{"params":{}}`, 400, "name or params"},
		"name no string":  {"POST", "/v1/commands/" + with, `{"name":1,"params":{}}`, 400, "JSON"},
		"no params":       {"POST", "/v1/commands/" + with, `{"name":"rescue.finalize_rescue"}`, 400, "name or params"},
		"params a list":   {"POST", "/v1/commands/" + with, `{"name":"rescue.finalize_rescue","params":[]}`, 400, "name or params"},
		"params null":     {"POST", "/v1/commands/" + with, `{"name":"rescue.finalize_rescue","params":null}`, 400, "name or params"},
		"no dot":          {"POST", "/v1/commands/" + with, `{"name":"finalize","params":{}}`, 400, "<name>"},
		"other extension": {"POST", "/v1/commands/" + with, `{"name":"standby.sync","params":{}}`, 404, "standby"},
		"other command":   {"POST", "/v1/commands/" + with, `{"name":"rescue.dance","params":{}}`, 400, "dance"},
		"too large":       {"POST", "/v1/commands/" + with, `{"name":"` + strings.Repeat("x", maxCommand) + `"}`, 413, "more than"},
		"no such command": {"GET", "/v1/commands/x", "", 404, "id"},
		"list wrongly":    {"GET", "/v1/commands/?agent_token=x", "", 401, "Token invalid"},
		"no such page":    {"GET", "/v2", "", 404, "not found"},
		"method":          {"DELETE", "/v1/commands/" + with, "", 404, "not found"},
	} {
		c, taken := finalizer(nil)
		status, body := ask(c, r.method, r.path, r.body)
		var fault wire.Fault
		if err := json.Unmarshal([]byte(body), &fault); err != nil || status != r.status || fault.Code != "Client" || !strings.Contains(fault.String, r.text) {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if len(*taken) != 0 || strings.Contains(body, testToken) || strings.Contains(fault.String, "agent_token") {
			t.Errorf("%s: taken %v, answer %s", name, *taken, body)
		}
	}
}

func TestCommandsRead(t *testing.T) {
	c, _ := finalizer(problem.Invalidf("no hash"))
	for _, path := range []string{"/", "/v1", "/v1/", "/v1/status", "/status", "/v1/commands", "/v1/commands/", "/commands/"} {
		status, body := ask(c, "GET", path, "")
		if !json.Valid([]byte(body)) || status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	var status wire.Status
	if _, body := ask(c, "GET", "/v1/status", ""); json.Unmarshal([]byte(body), &status) != nil || status.StartedAt != 5 || status.Version != "salvor-agent/9" {
		t.Errorf("status %+v", status)
	}
	var result wire.Result
	code, body := ask(c, "POST", "/v1/commands?wait=true&agent_token="+testToken, good)
	if err := json.Unmarshal([]byte(body), &result); err != nil || code != 200 || result.Status != wire.Failed || result.Error.Details != "no hash" || result.Error.Type != "InvalidCommandParamsError" {
		t.Fatalf("%d %s", code, body)
	}
	if !strings.Contains(string(result.Params), `"rescue_password":"`+secret.Mask+`"`) {
		t.Errorf("params %s", result.Params)
	}
	var list wire.CommandList
	if _, body := ask(c, "GET", "/v1/commands/", ""); json.Unmarshal([]byte(body), &list) != nil || len(list.Commands) != 1 || list.Commands[0].ID != result.ID {
		t.Errorf("list %s", body)
	}
	if code, body := ask(c, "GET", "/v1/commands/"+result.ID+"?agent_token="+testToken, ""); code != 200 || !strings.Contains(body, result.ID) {
		t.Errorf("%d %s", code, body)
	}
	// Once a server has shown a token, nobody reads without one.
	if code, _ := ask(c, "GET", "/v1/commands/", ""); code != 401 {
		t.Errorf("list without a token after one was used: %d", code)
	}
}

func TestParameters(t *testing.T) {
	for params, want := range map[string]string{
		`{"rescue_password":"x","hashed":true,"new":1}`: "TypeError",
		`{"rescue_password":1}`:                         "InvalidCommandParamsError",
		`{"hashed":"yes"}`:                              "InvalidCommandParamsError",
		`{"salvor":[]}`:                                 "InvalidCommandParamsError",
	} {
		c, taken := finalizer(nil)
		_, body := ask(c, "POST", "/v1/commands/?agent_token="+testToken, `{"name":"rescue.finalize_rescue","params":`+params+`}`)
		var result wire.Result
		if err := json.Unmarshal([]byte(body), &result); err != nil || result.Status != wire.Failed || result.Error.Type != want || len(*taken) != 0 {
			t.Errorf("%s: %s", params, body)
		}
	}
}

func TestFinalizeOnce(t *testing.T) {
	c, taken := finalizer(errors.New("disk full"))
	const path = "/v1/commands/?agent_token=" + testToken
	if code, body := ask(c, "POST", path, good); code != 200 || !strings.Contains(body, `"CommandExecutionError"`) || isClosed(c.done) {
		t.Fatalf("%d %s", code, body)
	}
	c.finalize = func(order wire.FinalizeParams) error { *taken = append(*taken, order); return nil }
	if code, body := ask(c, "POST", path, good); code != 200 || !strings.Contains(body, wire.Succeeded) || !isClosed(c.done) {
		t.Fatalf("%d %s", code, body)
	}
	if code, _ := ask(c, "POST", path, good); code != http.StatusConflict || len(*taken) != 2 {
		t.Errorf("a second finalize: %d, %d taken", code, len(*taken))
	}
}

func TestFinalizeExtras(t *testing.T) {
	f := newIronic(t)
	a, root, _, _ := newAgent(t, f, "")
	order := func(extras wire.Extras) wire.FinalizeParams {
		return wire.FinalizeParams{RescuePassword: testHash, Hashed: true, Salvor: &extras}
	}
	for name, bad := range map[string]wire.FinalizeParams{
		"plain as hash":   {RescuePassword: "open sesame", Hashed: true},
		"hash and a line": {RescuePassword: testHash + "\nroot::0:0:::::", Hashed: true},
		"md5":             {RescuePassword: "$1$salt$qJH7.N4xYta3aEG/dfqo/0", Hashed: true},
		"blank":           {RescuePassword: " \t"},
		"lines":           {RescuePassword: "a\nb"},
		"too long":        {RescuePassword: strings.Repeat("x", maxPassword+1)},
		"no such NIC":     order(wire.Extras{SSHInterfaces: []string{"52:54:00:99:99:99"}}),
		"no MAC":          order(wire.Extras{SSHInterfaces: []string{"eth0"}}),
	} {
		if err := a.finalize(bad); !problem.Is(err, problem.Invalid) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", name, err)
		}
		if shadowOf(t, root) != testShadow {
			t.Fatalf("%s: the shadow file was changed", name)
		}
		if _, err := network.ReadPlan(root); err == nil {
			t.Errorf("%s: a plan was left", name)
		}
	}
	data := json.RawMessage(`{"links":[{"id":"e0","ethernet_mac_address":"52:54:00:AA:00:09"}],"networks":[{"link":"e0","type":"ipv4_dhcp"}]}`)
	err := a.finalize(order(wire.Extras{NetworkData: data, SSHInterfaces: []string{"52:54:00:AA:00:01", "52-54-00-aa-00-09"}, TenantMove: true, RootPassword: true}))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := network.ReadPlan(root)
	if err != nil || plan.Move != network.MoveYes || strings.Join(plan.SSHInterfaces, " ") != "52:54:00:aa:00:01 52:54:00:aa:00:09" || string(plan.NetworkData) != string(data) {
		t.Errorf("plan %+v, %v", plan, err)
	}
	if strings.Count(shadowOf(t, root), testHash) != 2 {
		t.Error("root's password was not set")
	}
}

func FuzzCommand(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"name":"rescue.finalize_rescue","params":{"salvor":{"network_data":{},"ssh_interfaces":["x"]}}}`))
	f.Add([]byte(`{"name":"a.b","params":{"":0}} `))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, taken := finalizer(nil)
		r := httptest.NewRequest("POST", "/v1/commands/?agent_token="+testToken, strings.NewReader(string(body)))
		w := httptest.NewRecorder()
		c.handler().ServeHTTP(w, r)
		text, _ := io.ReadAll(w.Body)
		if !json.Valid(text) || w.Code >= 500 || (isClosed(c.done) != (len(*taken) == 1)) {
			t.Errorf("%d %s", w.Code, text)
		}
	})
}
