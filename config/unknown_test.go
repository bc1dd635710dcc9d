package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"salvor/test/must"
)

// refusalOf loads a file with one option that its section does not have, and gives the words after "is not an option; ".
func refusalOf(t *testing.T, section, option string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "salvor.conf")
	must.OK(t, os.WriteFile(file, []byte("["+section+"]\n"+option+" = 1\n"), 0o600))
	_, _, err := Load(Source{File: file})
	if err == nil {
		t.Fatalf("[%s]%s was taken", section, option)
	}
	_, hint, ok := strings.Cut(err.Error(), `"`+option+`" is not an option; `)
	if !ok {
		t.Fatalf("[%s]%s: %v", section, option, err)
	}
	return hint
}

func TestUnknownOptionNamesTheRightPlace(t *testing.T) {
	for _, c := range []struct{ section, option, want string }{
		{"api", "listen", "the flag --listen sets [api]host_ip and [api]port; [health], [hosts] and [ramdisk] have an option of this name"},
		{"netboot", "listen", "the flag --listen sets [api]host_ip and [api]port; [health], [hosts] and [ramdisk] have an option of this name"},
		{"api", "host", "did you mean host_ip?; [DEFAULT] has an option of this name"},
		{"api", "bind_host", "did you mean host_ip?"},
		{"api", "bind_port", "did you mean port?"},
		{"api", "roles", "the flag --roles sets [DEFAULT]roles"},
		{"conductor", "state-dir", "the flag --state-dir sets [DEFAULT]state_path"},
		{"DEFAULT", "state_dir", "the flag --state-dir sets [DEFAULT]state_path"},
		{"DEFAULT", "database", "the flag --database sets [database]connection"},
		{"site", "site_token", "the flag --site-token sets [site]token_file"},
		{"conductor", "centre", "the flag --centre sets [site]centre"},
		{"conductor", "max_limit", "[api] has an option of this name"},
		{"hosts", "key_file", "[api] and [secrets] have an option of this name"},
		{"conductor", "rescuing_network", "[bridge] and [neutron] have an option of this name"},
		{"cyclades", "path", "[image] has an option of this name"},
		{"glance", "time_out", "did you mean timeout?"},
	} {
		if got := refusalOf(t, c.section, c.option); got != c.want {
			t.Errorf("[%s]%s: %q, want %q", c.section, c.option, got, c.want)
		}
	}
}

// TestUnknownOptionNamesEachPlace puts each option that several sections have into each section that lacks it.
func TestUnknownOptionNamesEachPlace(t *testing.T) {
	places := map[string][]string{}
	for _, o := range Options() {
		places[o.Name] = append(places[o.Name], o.Section)
	}
	sections := buildSections()
	for name, has := range places {
		if len(has) < 2 {
			continue
		}
		for section, s := range sections {
			if s.lax || s.options[name] != nil || slices.Contains(s.ignored, name) {
				continue
			}
			hint := refusalOf(t, section, name)
			for _, place := range has {
				if !strings.Contains(hint, "["+place+"]") {
					t.Errorf("[%s]%s: %q does not name [%s]", section, name, hint, place)
				}
			}
		}
	}
}
