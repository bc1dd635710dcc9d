// Package debian finds the programs and files of Debian packages that tests use. Only tests and package test/program import it.
package debian

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// Program gives the path of a program that the named Debian package brings; it looks in the directories of administrators too.
// A missing program fails the test. Under -short, as "make check" runs, the test is skipped instead.
func Program(t testing.TB, program, debianPackage string) string {
	t.Helper()
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + program); err == nil {
			return path
		}
	}
	missing(t, program, debianPackage)
	return ""
}

// File requires a file that the named Debian package brings, by the rule of Program.
func File(t testing.TB, path, debianPackage string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		missing(t, path, debianPackage)
	}
}

func missing(t testing.TB, what, debianPackage string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("%s is missing: the Debian package %s brings it", what, debianPackage)
	}
	t.Fatalf("%s is missing: install the Debian package %s, or run make packages", what, debianPackage)
}

// ExtractISO writes the tree of an ISO image to a new directory with xorriso, which shares no code with us, and returns the directory.
func ExtractISO(t testing.TB, image string, options ...string) string {
	t.Helper()
	xorriso := Program(t, "xorriso", "xorriso")
	to := filepath.Join(t.TempDir(), "tree")
	t.Cleanup(func() { // directories of images may not be written to, so only root can remove what is in them
		_ = filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return err
		})
	})
	args := append(slices.Clone(options), "-osirrox", "on", "-indev", image, "-extract", "/", to)
	if out, err := exec.Command(xorriso, args...).CombinedOutput(); err != nil {
		t.Fatalf("xorriso: %v: %s", err, out)
	}
	return to
}
