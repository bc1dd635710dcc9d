package agent

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"salvor/driver"
	"salvor/problem"
	wire "salvor/wire/agent"
)

// TestLooseResults: a value of another type costs itself only, unless it says which command is meant; an error as text keeps its words.
func TestLooseResults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text    string
		status  string // empty: the answer is refused
		message string
	}{
		{`{"id":"1","command_name":"a","command_status":"FAILED","command_error":"no disk"}`, wire.Failed, "no disk"},
		{`{"id":"1","command_name":"a","command_status":"FAILED","command_error":{"message":"no disk","code":"500","details":["x","y"]}}`, wire.Failed, "no disk"},
		{`{"id":"1","command_name":"a","command_status":"FAILED","command_error":["no disk"]}`, wire.Failed, "no disk"},
		{`{"id":"1","command_name":"a","command_status":"SUCCEEDED","command_error":null,"command_params":"none","command_result":7}`, wire.Succeeded, ""},
		{`{"id":17,"command_name":"a","command_status":"RUNNING","command_params":[1]}`, wire.Running, ""},
		{`{"id":{"a":1},"command_name":"a","command_status":"RUNNING"}`, "", ""},
		{`{"id":"1","command_name":["a","b"],"command_status":"RUNNING"}`, "", ""},
		{`{"id":"1","command_name":"a","command_status":{}}`, "", ""},
		{`[]`, "", ""},
	} {
		for _, list := range []bool{false, true} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				text := c.text
				if list {
					text = `{"commands":[` + text + `]}`
				}
				_, _ = w.Write([]byte(text))
			}))
			var got wire.Result
			var err error
			if list {
				var all []wire.Result
				if all, err = (Orders{Locks: &driver.AddressLocks{}}).List(t.Context(), node, agentAt(server.URL)); err == nil {
					got = all[0]
				}
			} else {
				got, err = Orders{Locks: &driver.AddressLocks{}}.Give(t.Context(), node, agentAt(server.URL), "a", struct{}{})
			}
			server.Close()
			switch {
			case c.status == "":
				if !problem.Is(err, problem.Unavailable) {
					t.Errorf("%s, list %v: %+v, %v; want unavailable", c.text, list, got, err)
				}
			case err != nil || got.Status != c.status || (got.Error != nil) != (c.message != "") || got.Error != nil && got.Error.Message != c.message:
				t.Errorf("%s, list %v: %+v, error %+v, %v; want status %s and message %q", c.text, list, got, got.Error, err, c.status, c.message)
			}
		}
	}
}
