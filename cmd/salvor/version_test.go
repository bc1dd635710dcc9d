package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"salvor/version"
)

func TestVersion(t *testing.T) {
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := newRootCommand()
		root.SetArgs(args)
		root.SetOut(&out)
		err := root.Execute()
		return out.String(), err
	}
	want := "salvor " + version.Current().String() + "\n"
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if got, err := run(args...); err != nil || got != want {
			t.Errorf("%v: %q, %v; want %q", args, got, err, want)
		}
	}
	text, err := run("version", "-f", "json")
	var build version.Build
	if err != nil || json.Unmarshal([]byte(text), &build) != nil || build != version.Current() {
		t.Errorf("as JSON: %s, %v", text, err)
	}
	if _, err := run("version", "-f", "yaml"); err == nil || !strings.Contains(err.Error(), "-f yaml: want text or json; see: salvor version --help") {
		t.Errorf("in an unknown format: %v", err)
	}
}
