package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"salvor/test/debian"
	"salvor/test/must"
)

// writeTestPages runs "salvor man" and returns the directory and the command tree that wrote it.
func writeTestPages(t *testing.T) (string, *cobra.Command) {
	t.Helper()
	dir := t.TempDir()
	root := newRootCommand()
	root.SetArgs([]string{"man", dir})
	must.OK(t, root.Execute())
	return dir, root
}

// TestManPages says that each command that help shows has a page with its flags, and that no other page is there.
func TestManPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir, root := writeTestPages(t)
	again, _ := writeTestPages(t)
	pages := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.CommandPath() == "salvor help" {
			return
		}
		pages++
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			return
		}
		if second, err := os.ReadFile(filepath.Join(again, name)); err != nil || string(second) != string(page) {
			t.Errorf("%s differs when it is written again: %v", name, err)
		}
		if title, _, _ := strings.Cut(string(page), "\n"); !strings.Contains(title, " 1 2023-11-14 ") {
			t.Errorf("%s begins with %s", name, title)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if shown := strings.Contains(string(page), `\-\-`+strings.ReplaceAll(f.Name, "-", `\-`)); shown == f.Hidden {
				t.Errorf("%s: is --%s shown? %t", name, f.Name, shown)
			}
		})
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(root)
	if written, err := filepath.Glob(dir + "/*"); err != nil || len(written) != pages || pages < 200 {
		t.Errorf("%d pages were written for %d commands: %v", len(written), pages, err)
	}
}

// TestManPagesAreRight has mandoc read all pages and man format those with the hardest texts.
func TestManPagesAreRight(t *testing.T) {
	mandoc, man := debian.Program(t, "mandoc", "mandoc"), debian.Program(t, "man", "man-db")
	dir, _ := writeTestPages(t)
	pages := must.Get(filepath.Glob(dir + "/*.1"))(t)
	if out, err := exec.CommandContext(t.Context(), mandoc, append([]string{"-T", "lint", "-W", "warning"}, pages...)...).CombinedOutput(); err != nil {
		t.Errorf("mandoc: %v\n%s", err, out)
	}
	for page, want := range map[string]string{
		"salvor-serve": "salvor serve --config /etc/salvor/salvor.conf",
		"salvor-host":  "--store fast=/srv/nvme",
	} {
		cmd := exec.CommandContext(t.Context(), man, "--warnings", "-l", filepath.Join(dir, page+".1"))
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=200", "MAN_KEEP_FORMATTING=")
		var complaints strings.Builder
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil || complaints.Len() > 0 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s; want %q in\n%s", page, err, complaints.String(), want, out)
		}
	}
}

// TestManDate says which date is refused.
func TestManDate(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "today")
	root := newRootCommand()
	root.SetArgs([]string{"man", t.TempDir()})
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), `SOURCE_DATE_EPOCH is "today": want seconds since 1970`) {
		t.Error(err)
	}
}
