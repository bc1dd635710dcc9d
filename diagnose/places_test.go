package diagnose

import (
	"slices"
	"testing"
	"testing/fstest"
)

// TestPlacesOf: a file system fits a place by several of its usual names, and one of data fits none.
func TestPlacesOf(t *testing.T) {
	for name, tc := range map[string]struct{ files, want []string }{
		"kernels":       {[]string{"vmlinuz-6.1.0-27-amd64", "config-6.1.0-27-amd64"}, []string{"/boot"}},
		"the menu":      {[]string{"grub/grub.cfg"}, []string{"/boot"}},
		"a Pi":          {[]string{"bootcode.bin", "config.txt"}, []string{"/boot/firmware"}},
		"programs":      {[]string{"bin/env", "lib/os-release", "share/doc/x"}, []string{"/usr"}},
		"another root":  {[]string{"bin/env", "lib/x", "sbin/init", "usr/bin/env", "etc/passwd", "vmlinuz"}, nil},
		"state":         {[]string{"lib/dpkg/status", "log/syslog", "spool/cron/x"}, []string{"/var"}},
		"configuration": {[]string{"passwd", "fstab", "ssh/sshd_config"}, []string{"/etc"}},
		"a database":    {[]string{"mysql/ibdata1", "mysql/undo_001"}, nil},
		"backups":       {[]string{"web-7/etc/passwd", "web-7/boot/vmlinuz"}, nil},
		"nothing":       {nil, nil},
	} {
		files := fstest.MapFS{}
		for _, file := range tc.files {
			files[file] = &fstest.MapFile{}
		}
		if got := PlacesOf(NewTree(files)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: want the places %q, got %q", name, tc.want, got)
		}
	}
}
