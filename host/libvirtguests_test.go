package host

import (
	"os"
	"path/filepath"
	"testing"

	"salvor/test/must"
)

// TestLibvirtGuestsStarts: the settings of libvirt-guests are read as its program reads them.
func TestLibvirtGuestsStarts(t *testing.T) {
	t.Parallel()
	const debian, fedora = "usr/lib/libvirt/libvirt-guests.sh", "usr/libexec/libvirt-guests.sh"
	for name, c := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"not installed":           {nil, false},
		"Debian as it comes":      {map[string]string{debian: "URIS=\"default\"\nON_BOOT=\"ignore\"\nON_SHUTDOWN=\"shutdown\"\n"}, false},
		"Debian, set to start":    {map[string]string{debian: "ON_BOOT=\"ignore\"\n", "etc/default/libvirt-guests": "#ON_BOOT=ignore\nON_BOOT=start # all\n"}, true},
		"Debian, line commented":  {map[string]string{debian: "ON_BOOT=\"ignore\"\n", "etc/default/libvirt-guests": "#ON_BOOT=start\n"}, false},
		"Fedora as it comes":      {map[string]string{fedora: "ON_BOOT=start\n"}, true},
		"Fedora, set to ignore":   {map[string]string{fedora: "ON_BOOT=start\n", "etc/sysconfig/libvirt-guests": "  ON_BOOT='ignore'\n"}, false},
		"ignore with a comment":   {map[string]string{debian: "ON_BOOT=start\n", "etc/default/libvirt-guests": "ON_BOOT=ignore # guests are started by salvor\n"}, false},
		"the last of two counts":  {map[string]string{debian: "ON_BOOT=start\nON_BOOT=ignore\n"}, false},
		"a setting of a function": {map[string]string{debian: "x() { echo ON_BOOT=start; }\nON_BOOT=ignore\n"}, false},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			must.OK(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
			must.OK(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
		}
		if got := libvirtGuestsStarts(root); got != c.want {
			t.Errorf("%s: libvirt-guests starts guests: %v, want %v", name, got, c.want)
		}
	}
}
