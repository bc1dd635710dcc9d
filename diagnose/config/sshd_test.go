package config

import (
	"testing"
	"testing/fstest"

	"salvor/diagnose"
)

func FuzzSSHDConfig(f *testing.F) {
	f.Add("Port #22\nListenAddress\nHostKey\nSubsystem\nSubsystem sftp x\n")
	f.Add("Port 22\nMatch User a\n PermitRootLogin no\n")
	f.Add("Include *.conf\nSubsystem sftp \"a b\nListenAddress [::]:x\nMaxStartups 1:2:3\n")
	f.Fuzz(func(t *testing.T, text string) {
		tree := diagnose.NewTree(fstest.MapFS{"etc/ssh/sshd_config": {Data: []byte(text)}, "etc/ssh/a.conf": {Data: []byte("Include *.conf\n" + text)}})
		c := ReadSSHDConfig(tree)
		if c.files > MaxConfigFiles+1000 {
			t.Errorf("the configuration %q: %d files read, want %d at most", text, c.files, MaxConfigFiles+1000)
		}
		for _, s := range c.settings {
			if s.Line < 1 || s.Keyword == "" {
				t.Errorf("the configuration %q: a setting with line %d and keyword %q, want a line from 1 on and a keyword", text, s.Line, s.Keyword)
			}
		}
		c.Ports()
		c.CompareKeywords([]byte(text))
	})
}
