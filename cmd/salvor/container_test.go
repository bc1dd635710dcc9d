package main

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"salvor/test/must"
)

// TestContainerfile says that what the container file copies is there, that it builds programs of this project with a Go that is new
// enough and starts them where it has put them, and that the program takes the words that it is started with.
func TestContainerfile(t *testing.T) {
	const root = "../.."
	text := must.Get(os.ReadFile(root + "/dist/Containerfile"))(t)
	var built, installed, command []string
	var entry []string
	list := func(words string) (out []string) {
		if err := json.Unmarshal([]byte(words), &out); err != nil || len(out) == 0 {
			t.Errorf("%s: %v", words, err)
		}
		return out
	}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		words := strings.Fields(rest)
		switch verb {
		case "COPY":
			from, to := words[:len(words)-1], words[len(words)-1]
			if strings.HasPrefix(from[0], "--from=build") {
				for _, name := range from[1:] {
					if !slices.Contains(built, name) {
						t.Errorf("%s is copied and not built; built are %v", name, built)
					}
					installed = append(installed, path.Join(to, path.Base(name)))
				}
				continue
			}
			for _, name := range from {
				if _, err := os.Stat(filepath.Join(root, name)); err != nil {
					t.Error(err)
				}
			}
		case "RUN":
			if out := regexp.MustCompile(`go build .*-o (/\S+/) `).FindStringSubmatch(rest + " "); out != nil {
				for _, name := range words[slices.Index(words, "-o")+2:] {
					if _, err := os.Stat(filepath.Join(root, name, "main.go")); err != nil {
						t.Error(err)
					}
					built = append(built, path.Join(out[1], path.Base(name)))
				}
			}
		case "FROM":
			if _, version, ok := strings.Cut(words[0], "golang:"); ok {
				mod := must.Get(os.ReadFile(root + "/go.mod"))(t)
				version, _, _ = strings.Cut(version, "-")
				if !regexp.MustCompile(`(?m)^go ` + regexp.QuoteMeta(version) + `(\.\d+)?$`).Match(mod) {
					t.Errorf("it is built with Go %s, which go.mod does not name", version)
				}
			}
		case "ENTRYPOINT":
			entry = list(rest)
		case "CMD":
			command = list(rest)
		}
	}
	if len(entry) != 1 || !slices.Contains(installed, entry[0]) {
		t.Errorf("it starts %v; installed are %v", entry, installed)
	}
	cmd, rest, err := newRootCommand().Find(command)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || cmd.Name() != "serve" || len(cmd.Flags().Args()) > 0 {
		t.Errorf("salvor %v: %v", command, err)
	}
}
