package diagnose_test

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/test/must"
)

// TestHostKeys: only whole keys of sshd are listed.
func TestHostKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base, ok := os.DirFS(dir).(fs.ReadLinkFS)
	if !ok {
		t.Fatal("the folder's file system reads no links")
	}
	tree := diagnose.NewTree(base)
	const key = "AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"
	must.OK(t, os.MkdirAll(filepath.Join(dir, "etc/ssh"), 0o755))
	for name, text := range map[string]string{
		"ssh_host_ed25519_key.pub": "ssh-ed25519 " + key + " root@patient\nmore\n",
		"ssh_host_copy_key.pub":    "ssh-ed25519 " + key + "\n",
		"ssh_host_rsa_key.pub":     "ssh-rsa " + key + "\n",
		"ssh_host_cut_key.pub":     "ssh-ed25519 " + key[:16] + "\n",
		"ssh_host_odd_key.pub":     "\x1b[2Jssh-ed25519 " + key + "\n",
		"ssh_host_none_key.pub":    "",
		"ssh_host_long_key.pub":    "ssh-ed25519 " + key + strings.Repeat(" ", 8<<10),
		"ssh_host_private_key":     "ssh-ed25519 " + key,
		"other.pub":                "ssh-ed25519 " + key,
	} {
		must.OK(t, os.WriteFile(filepath.Join(dir, "etc/ssh", name), []byte(text), 0o644))
	}
	must.OK(t, os.Mkdir(filepath.Join(dir, "etc/ssh/ssh_host_dir_key.pub"), 0o755))
	if got := diagnose.HostKeys(tree); !slices.Equal(got, []string{"ssh-ed25519 " + key}) {
		t.Errorf("%q", got)
	}
	for i := range diagnose.MaxHostKeys + 3 {
		blob := append([]byte{0, 0, 0, 11}, fmt.Sprintf("ssh-ed25519%032d", i)...)
		must.OK(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("etc/ssh/ssh_host_%d_key.pub", i)), []byte("ssh-ed25519 "+base64.StdEncoding.EncodeToString(blob)), 0o644))
	}
	if got := diagnose.HostKeys(tree); len(got) != diagnose.MaxHostKeys {
		t.Errorf("%d keys", len(got))
	}
}

// TestReportKeepsHostKeys: the report of an examination has the public keys of each system, and nothing else that an agent sends in their place.
func TestReportKeepsHostKeys(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"
	odd := []string{"", "ssh-ed25519", key + " root@patient", key + "\n", "-----BEGIN OPENSSH PRIVATE KEY-----", "ssh-rsa " + key[12:], "ssh-ed25519 " + strings.Repeat("A", 1<<20)}
	var many []string
	for range 100 {
		many = append(many, key)
	}
	var report diagnose.Report
	report.Add(&diagnose.Examination{Systems: []diagnose.ExaminedSystem{{Root: "/dev/sda1", HostKeys: append(odd, key)}, {Root: "/dev/sdb1", HostKeys: many}, {Root: "/dev/sdc1"}}})
	for i, want := range []int{1, diagnose.MaxHostKeys, 0} {
		if got := report.Systems[i].HostKeys; len(got) != want || slices.ContainsFunc(got, func(k string) bool { return k != key }) {
			t.Errorf("system %s has the keys %q, want %d times %q", report.Systems[i].Root, got, want, key)
		}
	}
}
