package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"salvor/conductor"
	"salvor/conductor/node"
	"salvor/conductor/server"
	"salvor/metal"
	"salvor/test/must"
)

// TestEveryJobHasItsActions proves that each kind of job that a verb starts is known to the conductor.
func TestEveryJobHasItsActions(t *testing.T) {
	known := map[string]bool{}
	for _, d := range conductor.New(nil, node.Config{}, server.Config{}).Definitions() {
		if err := d.Check(); err != nil {
			t.Error(err)
		}
		known[string(d.Kind)] = true
	}
	for _, tr := range metal.Transitions {
		if tr.Job != "" && !known[string(tr.Job)] {
			t.Errorf("%s in %s starts a job %q that nobody knows", tr.Verb, tr.From, tr.Job)
		}
	}
}

// TestEveryVerbHasACommand: each verb of the provision state machine is a command.
func TestEveryVerbHasACommand(t *testing.T) {
	for _, v := range metal.Verbs {
		if !slices.ContainsFunc(provisionVerbs, func(p provisionVerb) bool { return p.target == string(v.Verb) }) {
			t.Errorf("no row of provisionVerbs has the target %q", v.Verb)
		}
	}
}

// TestEveryResourceHasCommands: each resource of the Bare Metal API that clients create and change has a family of commands.
func TestEveryResourceHasCommands(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/api/openapi.json"))(t)
	var api struct{ Paths map[string]map[string]any }
	must.OK(t, json.Unmarshal(text, &api))
	collections, commands := readText(t, "../../client/resource.go"), readText(t, "resource_table.go")
	for at, methods := range api.Paths {
		if methods["post"] == nil || api.Paths[at+"/{id}"]["patch"] == nil {
			continue
		}
		name := regexp.MustCompile(`(\w+)\s+= Collection\{"` + regexp.QuoteMeta(at) + `",`).FindStringSubmatch(collections)
		if name == nil {
			t.Errorf("package client has no Collection of %s", at)
		} else if !strings.Contains(commands, "at: client."+name[1]+",") {
			t.Errorf("no resource of resource_table.go is at client.%s", name[1])
		}
	}
}

// TestEveryResourceCompletes: the argument that names a resource is completed.
func TestEveryResourceCompletes(t *testing.T) {
	for _, m := range regexp.MustCompile(`ident: "([^"]+)"`).FindAllStringSubmatch(readText(t, "resource_table.go"), -1) {
		if completed[m[1]] == nil {
			t.Errorf("no names complete the argument %s", m[1])
		}
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	b := must.Get(os.ReadFile(file))(t)
	return string(b)
}
