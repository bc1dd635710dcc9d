package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/client"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/wire/native"
)

// keysOf lists the matches of a pattern in a file of the console.
func keysOf(t *testing.T, file, pattern string) (out []string) {
	t.Helper()
	text := must.Get(os.ReadFile("../../api/console/static/" + file))(t)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	return out
}

// press sends what a button of the console sends, and gives the status and the answer.
func (w *remedyWalk) press(method, path, body string) (int, string) {
	w.Helper()
	a := fixture.Send(w, method, strings.Replace(w.url, "://", "://admin:password@", 1)+path, body, "X-OpenStack-Ironic-API-Version", "1.110", "OpenStack-API-Version", "compute 2.88")
	return a.Status, a.Body
}

// accepts reads the requests that why lists as accepted for a subject.
func (w *remedyWalk) accepts(path string) []string {
	w.Helper()
	c := must.Get(client.New(client.Config{Endpoint: w.url, Username: "admin", Password: secret.New("password")}))(w)
	var why native.Why
	must.OK(w, c.Ask(w.Context(), client.Native, http.MethodGet, path+"/why", nil, nil, &why))
	return why.Accepts
}

// TestEveryButtonOfAMachineIsAccepted walks the states and situations of machines: the console offers a request exactly where it is taken.
func TestEveryButtonOfAMachineIsAccepted(t *testing.T) {
	t.Parallel()
	w := working(t, "node_locked_retry_attempts = 0") // a request for a locked machine is answered at once
	verbs := append(keysOf(t, "machine.js", `(?m)^  (\w+): \{label`), "rescue")
	powers := keysOf(t, "machine.js", `\{target: "([^"]+)", label`)
	if len(verbs) < 8 || len(powers) < 5 {
		t.Fatalf("the console offers %v %v", verbs, powers)
	}
	offered, hidden := 0, 0
	for _, info := range metal.States {
		for _, in := range plights {
			n := w.place(info.State, in)
			open := w.accepts("/nodes/" + n.ID)
			buttons := append(slices.Clone(verbs), powers...)
			// A refused request changes nothing, so one machine is enough for all refusals.
			slices.SortStableFunc(buttons, func(a, b string) int {
				return strings.Compare(fmt.Sprint(slices.Contains(open, a)), fmt.Sprint(slices.Contains(open, b)))
			})
			used := false
			for _, b := range buttons {
				shown := slices.Contains(open, b)
				again := fmt.Sprint(in.name, b, shown)
				if w.ran[again]++; w.ran[again] > 3 && os.Getenv("SALVOR_SOAK") == "" {
					continue // each accepted request is an operation that is worked off
				}
				if used {
					n = w.place(info.State, in)
				}
				used = shown
				what, body := "provision", fmt.Sprintf(`{"target": %q}`, b)
				if slices.Contains(powers, b) {
					what = "power"
				} else if b == "rescue" {
					body = `{"target": "rescue", "rescue_password": "let me in"}`
				}
				status, answer := w.press(http.MethodPut, "/v1/nodes/"+n.ID+"/states/"+what, body)
				if shown {
					offered++
				} else {
					hidden++
				}
				if shown != (status < 300) {
					t.Errorf("%s, %s: %s: shown %t, and it is answered %d %s", info.State, in.name, b, shown, status, answer)
				}
			}
		}
	}
	t.Logf("%d requests offered, %d not", offered, hidden)
}

// TestEveryButtonOfAServerIsAccepted walks the states and situations of servers.
func TestEveryButtonOfAServerIsAccepted(t *testing.T) {
	t.Parallel()
	w := working(t)
	must.OK(t, w.p.Store.Do(t.Context(), func(tx job.Tx) error {
		return w.p.Store.RescueImages().Insert(tx, &rescue.Image{Record: record.Record{ID: uuid.NewString()}, Name: "suits all", Default: true,
			Source: rescue.Source{Kind: rescue.ISO, Access: rescue.NoAccess, LocationType: rescue.LocationFile, Location: "r.iso"}})
	}))
	bodies := map[string]string{
		"start": `{"os-start": null}`, "stop": `{"os-stop": null}`, "reboot": `{"reboot": {"type": "SOFT"}}`, "hard reboot": `{"reboot": {"type": "HARD"}}`,
		"rescue": `{"rescue": {"adminPass": "let me in"}}`, "unrescue": `{"unrescue": null}`,
	}
	for _, action := range keysOf(t, "server.js", `action: "([^"]+)"`) {
		if bodies[action] == "" {
			t.Fatalf("the console offers %q", action)
		}
	}
	offered, hidden := 0, 0
	for _, state := range slices.Sorted(maps.Keys(vmStates)) {
		for _, in := range serverPlights {
			s, _ := w.placeServer(vmStates[state], in)
			open := w.accepts("/servers/" + s.ID)
			actions := slices.Sorted(maps.Keys(bodies))
			slices.SortStableFunc(actions, func(a, b string) int {
				return strings.Compare(fmt.Sprint(slices.Contains(open, a)), fmt.Sprint(slices.Contains(open, b)))
			})
			used := false
			for _, a := range actions {
				shown := slices.Contains(open, a)
				if used {
					s, _ = w.placeServer(vmStates[state], in)
				}
				used = shown
				status, answer := w.press(http.MethodPost, "/compute/v2.1/servers/"+s.ID+"/action", bodies[a])
				if shown {
					offered++
				} else {
					hidden++
				}
				if shown != (status < 300) {
					t.Errorf("%s, %s: %s: shown %t, and it is answered %d %s", state, in.name, a, shown, status, answer)
				}
			}
		}
	}
	t.Logf("%d requests offered, %d not", offered, hidden)
}
