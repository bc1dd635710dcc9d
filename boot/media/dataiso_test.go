package media

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
)

// fileOf makes a File of bytes in memory.
func fileOf(name string, content []byte) File { return File{Path: name, Data: bytesBlob(content)} }

func TestDataISOReadsBack(t *testing.T) {
	want := map[string]string{
		"openstack/latest/meta_data.json":    `{"uuid": "x"}`,
		"openstack/latest/network_data.json": "{}",
		"openstack/latest/user_data":         strings.Repeat("#cloud-config\n", 4000),
		"openstack/content/0000":             "",
	}
	for i := range 100 { // directories of several sectors
		want[fmt.Sprintf("many/a-rather-long-name-%03d", i)] = fmt.Sprint(i)
	}
	var files []File
	for name, text := range want {
		files = append(files, fileOf(name, []byte(text)))
	}
	made := must.Get(DataISO("config-2", files))(t)
	image := filepath.Join(t.TempDir(), "d.iso")
	b := must.Get(io.ReadAll(made))(t)
	must.OK(t, os.WriteFile(image, b, 0o600))
	if got := string(bytes.TrimRight(b[0x8028:0x8048], " ")); got != "config-2" {
		t.Errorf("label %q", got)
	}
	joliet := debian.ExtractISO(t, image, "-read_fs", "norock")
	plain := debian.ExtractISO(t, image, "-read_fs", "ecma119", "-ecma119_map", "lowercase")
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(joliet, name))
		if err != nil || string(got) != text {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if got, err = os.ReadFile(filepath.Join(plain, name)); err != nil || string(got) != text {
			t.Errorf("plain %s: %d bytes, %v", name, len(got), err)
		}
	}
}

func TestDataISORefuses(t *testing.T) {
	for _, paths := range [][]string{{"../a"}, {"/a"}, {"a//b"}, {""}, {"a", "A"}, {"a", "a/b"}, {"a/b", "a"}, {"ä"}, {strings.Repeat("n", 31)}, {"a/b/c/d/e/f/g/h/i"}} {
		var files []File
		for _, p := range paths {
			files = append(files, fileOf(p, nil))
		}
		if _, err := DataISO("config-2", files); !problem.Is(err, problem.Invalid) {
			t.Errorf("%q: %v", paths, err)
		}
	}
	if _, err := DataISO("a label that is too long", nil); !problem.Is(err, problem.Invalid) {
		t.Error(err)
	}
}
