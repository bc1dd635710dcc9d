package lab

import (
	"os"
	"path/filepath"
	"testing"

	"salvor/test/must"
)

// Only the state of a guest without a QEMU is forgotten.
func TestForgetUnstarted(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.xml": "<!-- x -->\n<domstatus state='paused' reason='starting up' pid='0'>\n",
		"b.xml": "<domstatus state='running' reason='booted' pid='812'>\n  <vcpu id='0' pid='0'/>\n",
		"c.pid": "0",
	} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	forgetUnstarted(dir)
	for name, want := range map[string]bool{"a.xml": false, "b.xml": true, "c.pid": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
	}
}
