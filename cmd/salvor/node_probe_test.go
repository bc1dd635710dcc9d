package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/cmd/salvor/kit"
	"salvor/test/must"
)

const probed = `{"protocol": "Redfish 1.6.0", "abilities": [], "quirks": []}`

// TestRecordedTree: each resource is a file at the place of its name, links are followed once, and what cannot be read is counted.
func TestRecordedTree(t *testing.T) {
	f := &fakeAPI{answers: map[string][]string{
		"GET /salvor/v1/nodes/a/probe": {probed},
		"POST /salvor/v1/nodes/a/recording": {
			`[{"path": "/redfish/v1", "name": "/redfish/v1", "document": {"A": "hidden"}, "links": ["/redfish/v1/Systems", "/redfish/v1/Gone"]}]`,
			`[{"path": "/redfish/v1/Systems", "name": "/redfish/v1/Systems", "document": {"B": true}, "links": ["/redfish/v1", "/redfish/v1/Systems/J1007XK2"]}]`,
			`[{"path": "/redfish/v1/Gone", "name": "/redfish/v1/Gone", "problem": "Not Found"}, {"path": "/redfish/v1/Systems/J1007XK2", "name": "/redfish/v1/Systems/x1", "document": {"C": 0}}]`,
		},
	}}
	dir := filepath.Join(t.TempDir(), "tree")
	out, errs, status := salvor(t, f, "", "node", "probe", "a", "--record", dir)
	if status != 0 || !strings.Contains(errs, "3 resources, 1 could not be read") || !strings.Contains(out, "Redfish 1.6.0") {
		t.Fatalf("%d %s %s", status, out, errs)
	}
	for name, want := range map[string]string{"index.json": `"A": "hidden"`, "Systems/index.json": `"B": true`, "Systems/x1/index.json": `"C": 0`} {
		if text := string(must.Get(os.ReadFile(filepath.Join(dir, "redfish/v1", name)))(t)); !strings.Contains(text, want) {
			t.Errorf("%s has %s, want %s", name, text, want)
		}
	}
	if _, errs, status := salvor(t, f, "", "node", "probe", "a", "--record", dir); status == 0 || !strings.Contains(errs, "not empty") {
		t.Errorf("a second recording in one directory: %d %s", status, errs)
	}
}

// TestRecordedTreeStaysInItsDirectory: an API that lies writes nothing elsewhere, and cannot keep the command busy for ever.
func TestRecordedTreeStaysInItsDirectory(t *testing.T) {
	for _, answer := range []string{
		`[{"path": "/redfish/v1", "name": "/redfish/v1/../../../x", "document": {}}]`,
		`[{"path": "/redfish/v1", "name": "", "document": {}}]`,
		`[]`,
		`[{"path": "a", "name": "a", "document": {}}, {"path": "b", "name": "b", "document": {}}]`,
	} {
		top := t.TempDir()
		f := &fakeAPI{answers: map[string][]string{"GET /salvor/v1/nodes/a/probe": {probed}, "POST /salvor/v1/nodes/a/recording": {answer}}}
		if _, errs, status := salvor(t, f, "", "node", "probe", "a", "--record", filepath.Join(top, "deep", "tree")); status != kit.StatusFailed {
			t.Errorf("%s: %d %s", answer, status, errs)
		}
		if found := must.Get(os.ReadDir(top))(t); len(found) != 1 {
			t.Errorf("%s: %v", answer, found)
		}
	}
	endless := `[{"path": "/redfish/v1", "name": "/redfish/v1", "document": {}, "links": ["/redfish/v1/A", "/redfish/v1/B", "/redfish/v1/C"]}]`
	f := &fakeAPI{answers: map[string][]string{"GET /salvor/v1/nodes/a/probe": {probed}, "POST /salvor/v1/nodes/a/recording": {endless}}}
	if _, errs, status := salvor(t, f, "", "node", "probe", "a", "--limit", "2", "--record", filepath.Join(t.TempDir(), "tree")); status != 0 || !strings.Contains(errs, "--limit says") {
		t.Errorf("%d %s", status, errs)
	}
}
