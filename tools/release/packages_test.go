package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// member is a file or directory of an archive.
type member struct {
	tar.Header
	text string
}

// archive reads the tar archive that a command prints, by path without the leading "./".
func archive(t *testing.T, args ...string) map[string]member {
	t.Helper()
	printed, err := exec.CommandContext(t.Context(), args[0], args[1:]...).Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	all := map[string]member{}
	for r := tar.NewReader(bytes.NewReader(printed)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[path.Clean(h.Name)] = member{*h, string(text)}
	}
}

// testSource is this source tree, as if an earlier commit of it had been built. Its programs are scripts that print what they are asked.
func testSource(t *testing.T, work string) *source {
	t.Helper()
	s := &source{root: "../..", commit: strings.Repeat("0123abcd", 5), time: time.Unix(1_700_000_000, 0).UTC(), release: "0.2.0-dev"}
	script := "#!/bin/sh\nif [ \"$1\" = man ]; then echo .TH SALVOR >$2/${0##*/}.1; else echo \"$*\"; fi\n"
	for _, arch := range architectures {
		for _, p := range programs {
			if err := writeFile(filepath.Join(work, "bin", arch, p), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// TestPackages unpacks the packages and looks at what an administrator relies on.
func TestPackages(t *testing.T) {
	work, out := t.TempDir(), t.TempDir()
	// Below this directory, files of root belong to a group of their own: none of it may reach a package.
	if os.Getuid() == 0 {
		if err := errors.Join(os.Chown(work, 0, 12345), os.Chmod(work, 0o755|os.ModeSetgid)); err != nil {
			t.Fatal(err)
		}
	}
	s := testSource(t, work)
	modes := map[string]map[string]int64{
		"salvor": {
			"usr/bin/salvor": 0o755, "usr/bin/salvor-agent": 0o755,
			"usr/lib/systemd/system/salvor.service": 0o644, "usr/lib/systemd/system/salvor-site.service": 0o644,
			"usr/lib/sysusers.d/salvor.conf": 0o644, "etc/salvor/salvor.conf": 0o640,
			"usr/share/man/man1/salvor.1.gz": 0o644, "usr/share/bash-completion/completions/salvor": 0o644,
			"usr/share/zsh/vendor-completions/_salvor": 0o644, "usr/share/fish/vendor_completions.d/salvor.fish": 0o644,
			"usr/share/salvor/prometheus/salvor.rules.yml": 0o644, "usr/share/salvor/prometheus/salvor.rules.test.yml": 0o644,
			"usr/share/salvor/grafana/salvor.json": 0o644,
			"usr/share/doc/salvor/copyright":       0o644, "usr/share/doc/salvor/changelog.gz": 0o644,
		},
		"salvor-host": {
			"usr/lib/systemd/system/salvor-host.service": 0o644, "etc/default/salvor-host": 0o644,
			"usr/share/doc/salvor-host/copyright": 0o644, "usr/share/doc/salvor-host/changelog.gz": 0o644,
		},
		"salvor-lab": {
			"usr/bin/salvor-lab": 0o755, "usr/share/man/man1/salvor-lab.1.gz": 0o644,
			"usr/share/doc/salvor-lab/copyright": 0o644, "usr/share/doc/salvor-lab/changelog.gz": 0o644,
		},
	}
	for _, arch := range architectures {
		if err := s.writePackages(t.Context(), work, arch, out); err != nil {
			t.Fatal(err)
		}
		owner := map[string]string{}
		for name, files := range modes {
			deb := filepath.Join(out, name+"_"+s.debianVersion()+"_"+arch+".deb")
			control := archive(t, "dpkg-deb", "--ctrl-tarfile", deb)
			for _, field := range []string{"Package: " + name, "Version: " + s.debianVersion(), "Architecture: " + arch} {
				if !slices.Contains(strings.Split(control["control"].text, "\n"), field) {
					t.Errorf("%s: no field %q in\n%s", deb, field, control["control"].text)
				}
			}
			if strings.Contains(control["control"].text, "@version@") || strings.Contains(control["control"].text, "@size@") {
				t.Errorf("%s: a value is missing in\n%s", deb, control["control"].text)
			}
			checkScripts(t, deb, control)
			contents := archive(t, "dpkg-deb", "--fsys-tarfile", deb)
			checkContents(t, s, deb, contents, files)
			var configuration []string
			for file, m := range contents {
				if m.Typeflag == tar.TypeDir {
					continue
				}
				if other := owner[file]; other != "" {
					t.Errorf("%s is in %s and in %s", file, other, name)
				}
				owner[file] = name
				if strings.HasPrefix(file, "etc/") {
					configuration = append(configuration, "/"+file)
				}
			}
			slices.Sort(configuration)
			if got := strings.Fields(control["conffiles"].text); !slices.Equal(got, configuration) {
				t.Errorf("%s: dpkg asks before it replaces %v; the configuration files are %v", deb, got, configuration)
			}
		}
	}
}

// checkContents compares a package with the files that it must have, and no others.
func checkContents(t *testing.T, s *source, deb string, contents map[string]member, files map[string]int64) {
	t.Helper()
	for file, m := range contents {
		if m.Uid != 0 || m.Gid != 0 || !m.ModTime.Equal(s.time) {
			t.Errorf("%s: %s is of %d:%d at %v", deb, file, m.Uid, m.Gid, m.ModTime)
		}
		mode, wanted := files[file]
		if m.Typeflag == tar.TypeDir {
			mode, wanted = 0o755, true
		}
		if !wanted || m.Mode&0o7777 != mode {
			t.Errorf("%s: %s has the mode %o, want %o", deb, file, m.Mode, mode)
		}
		if strings.HasSuffix(file, ".service") && !strings.Contains(m.text, "\nExecStart=/usr/bin/salvor ") {
			t.Errorf("%s: %s does not start /usr/bin/salvor", deb, file)
		}
		if strings.HasSuffix(file, ".gz") {
			if r, err := gzip.NewReader(strings.NewReader(m.text)); err != nil || !r.ModTime.IsZero() {
				t.Errorf("%s: %s names a time, or is no gzip file: %v", deb, file, err)
			}
		}
	}
	for file := range files {
		if _, ok := contents[file]; !ok {
			t.Errorf("%s: there is no %s", deb, file)
		}
	}
}

// checkScripts has a shell read the maintainer scripts, which stop at their first error.
func checkScripts(t *testing.T, deb string, control map[string]member) {
	t.Helper()
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		m, ok := control[name]
		if !ok && strings.Contains(deb, "salvor-lab_") { // it has no unit, no user and no state
			continue
		}
		if !ok || m.Mode&0o777 != 0o755 || !strings.Contains(m.text, "\nset -e\n") {
			t.Errorf("%s: %s is missing, is no program, or goes on after an error", deb, name)
		}
		shell := exec.CommandContext(t.Context(), "sh", "-n")
		shell.Stdin = strings.NewReader(m.text)
		if said, err := shell.CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v: %s", deb, name, err, said)
		}
	}
}

// TestDebianVersions: dpkg takes the versions, and an upgrade goes from each to the next.
func TestDebianVersions(t *testing.T) {
	early, late := time.Unix(1_700_000_000, 0).UTC(), time.Unix(1_700_000_001, 0).UTC()
	order := []string{"0.1.0"}
	for _, s := range []source{
		{release: "0.2.0-dev", commit: "ffffffffffff", time: early},
		{release: "0.2.0-dev", commit: "000000000000", time: late},
		{release: "0.2.0-dev", commit: "000000000000+changes", time: late},
		{release: "0.2.0-rc.1", commit: "000000000000", time: late},
		{release: "0.2.0", commit: "000000000000", time: early},
		{release: "0.10.0", commit: "000000000000", time: early},
	} {
		order = append(order, s.debianVersion())
	}
	for i := range order[1:] {
		if said, err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", order[i], "lt", order[i+1]).CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%s is not before %s: %v %s", order[i], order[i+1], err, said)
		}
	}
}

// TestChecksums: sha256sum accepts the list, which names every file.
func TestChecksums(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeChecksums(dir); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dir
	if said, err := check.CombinedOutput(); err != nil || string(said) != "a: OK\nb: OK\n" {
		t.Errorf("sha256sum: %v\n%s", err, said)
	}
}
