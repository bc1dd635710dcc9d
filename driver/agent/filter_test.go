package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

// TestFilter: the values of the named members are left out at their depth only, whatever lies in them, and however the text is cut into reads.
func TestFilter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"command_params":{"a":[1,"}"]},"id":"1"}`:          `{"command_params":0,"id":"1"}`,
		`{"id":"command_params","x":{"command_params":7}}`:   `{"id":"command_params","x":{"command_params":7}}`,
		`{"command_params" : "a\"},b" }`:                     `{"command_params" :0}`,
		`{"a":["command_params"],"command_params":[[],[]]}`:  `{"a":["command_params"],"command_params":0}`,
		`{"command_params":{},"command_params":null,"b":[]}`: `{"command_params":0,"command_params":0,"b":[]}`,
		`{"command_params":,"command_params":}`:              `{"command_params":,"command_params":}`, // no JSON, and no longer than it came
		`{"command_params":`:                                 `{"command_params":`,
		`]]]{"command_params":1`:                             `]]]{"command_params":1`,
		"":                                                   "",
	} {
		for name, from := range map[string]io.Reader{"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
			if got := must.Get(io.ReadAll(withoutMembers(from, commandDepth, paramsMember)))(t); string(got) != want {
				t.Errorf("%s, %s: want %s, got %s", text, name, want, got)
			}
		}
	}
}

// TestFilterOfAnyJSON: what is not left out is the same as without the filter, for lists of commands of any content.
func TestFilterOfAnyJSON(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		commands, want := []any{}, []any{}
		for range random.IntN(4) {
			c, kept := map[string]any{}, map[string]any{}
			for range random.IntN(5) {
				name := []string{"id", paramsMember, outcomeMember, "x", `"`}[random.IntN(5)]
				c[name] = anyJSON(random, 3)
				kept[name] = c[name]
				if name == paramsMember || name == outcomeMember {
					kept[name] = 0.0
				}
			}
			commands, want = append(commands, c), append(want, kept)
		}
		text := must.Get(json.Marshal(map[string]any{"commands": commands, paramsMember: 1.0}))(t)
		var got any
		filtered := must.Get(io.ReadAll(withoutMembers(iotest.HalfReader(bytes.NewReader(text)), listDepth, paramsMember, outcomeMember)))(t)
		must.OK(t, json.Unmarshal(filtered, &got))
		if wanted := any(map[string]any{"commands": want, paramsMember: 1.0}); !reflect.DeepEqual(got, wanted) {
			t.Fatalf("%s:\nwant %v\ngot  %v", text, wanted, got)
		}
	}
}

func anyJSON(random *rand.Rand, depth int) any {
	switch k := random.IntN(6); {
	case k == 0 || depth == 0:
		return float64(random.IntN(100))
	case k == 1:
		return []string{`a"b`, `\`, "{[", "command_params", `},"x":1`}[random.IntN(5)]
	case k == 2:
		return nil
	case k < 5:
		list := []any{}
		for range random.IntN(3) {
			list = append(list, anyJSON(random, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range random.IntN(3) {
		object[[]string{paramsMember, "a:b", `"`}[random.IntN(3)]] = anyJSON(random, depth-1)
	}
	return object
}

// TestLyingAgent: an answer of 15 MiB whose millions of values mean nothing costs no more memory than one that is refused, wherever the values lie.
func TestLyingAgent(t *testing.T) { // not parallel: it counts the allocations of the process
	bomb := "[" + strings.Repeat("[],", 5_000_000) + "[]]"
	command := `{"id":"1","command_name":"x","command_status":"RUNNING"`
	for name, c := range map[string]struct {
		answer string
		ok     bool
	}{
		"params":        {`{"commands":[` + command + `,"command_params":{"a":` + bomb + `}}]}`, true},
		"outcome":       {`{"commands":[` + command + `,"command_result":` + bomb + `}]}`, true},
		"unknown":       {`{"commands":[` + command + `,"more":` + bomb + `}]}`, false},
		"error":         {`{"commands":[` + command + `,"command_error":` + bomb + `}]}`, false},
		"beside":        {`{"more":` + bomb + `,"commands":[` + command + `}]}`, false},
		"many commands": {`{"commands":` + strings.ReplaceAll(bomb, "[],", "{},") + `}`, false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.answer) }))
		at := driver.Agent{URL: server.URL, Version: wire.Product + "1", Token: secret.New("token")}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		list, err := Orders{}.List(t.Context(), &metal.Node{ID: "n"}, at)
		runtime.ReadMemStats(&after)
		server.Close()
		if c.ok && (err != nil || len(list) != 1 || list[0].ID != "1" || list[0].Outcome != nil) {
			t.Errorf("%s: want the one command without its outcome, got %v, %v", name, list, err)
		}
		if !c.ok && !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s: want an error Unavailable, got %v", name, err)
		}
		if got := int64(after.TotalAlloc-before.TotalAlloc) >> 20; got > 64 {
			t.Errorf("%s: want at most 64 MiB allocated for one answer, got %d MiB", name, got)
		}
	}
}
