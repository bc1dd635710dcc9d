package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// packages are the Debian packages. dist/debian has a directory for each, with its control file and maintainer scripts.
var packages = []struct {
	name string
	fill func(ctx context.Context, s *source, work, arch, tree string) error
}{
	{"salvor", fillSalvor},
	{"salvor-host", fillHost},
	{"salvor-lab", fillLab},
}

func (s *source) writePackages(ctx context.Context, work, arch, out string) error {
	for _, p := range packages {
		tree := filepath.Join(work, "deb", arch, p.name)
		if err := p.fill(ctx, s, work, arch, tree); err != nil {
			return fmt.Errorf("package %s: %w", p.name, err)
		}
		if err := s.writePackage(ctx, p.name, arch, tree, out); err != nil {
			return fmt.Errorf("package %s: %w", p.name, err)
		}
	}
	return nil
}

// fillSalvor lays out the programs, the control plane's units and all that people read.
func fillSalvor(ctx context.Context, s *source, work, arch, tree string) error {
	for _, p := range productive {
		if err := copyFile(filepath.Join(work, "bin", arch, p), filepath.Join(tree, "usr/bin", p), 0o755); err != nil {
			return err
		}
	}
	if err := s.copyUnits(tree, "salvor.service", "salvor-site.service"); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(s.root, "dist/systemd/salvor.sysusers"), filepath.Join(tree, "usr/lib/sysusers.d/salvor.conf"), 0o644); err != nil {
		return err
	}
	// The program of another architecture does not run here, and would print the same.
	program := filepath.Join(work, "bin", runtime.GOARCH, "salvor")
	for _, printed := range []struct {
		path string
		mode fs.FileMode
		args []string
	}{
		{"etc/salvor/salvor.conf", 0o640, []string{"config", "sample"}},
		{"usr/share/bash-completion/completions/salvor", 0o644, []string{"completion", "bash"}},
		{"usr/share/zsh/vendor-completions/_salvor", 0o644, []string{"completion", "zsh"}},
		{"usr/share/fish/vendor_completions.d/salvor.fish", 0o644, []string{"completion", "fish"}},
	} {
		text, err := runProgram(ctx, "", nil, program, printed.args...)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(tree, printed.path), []byte(text), printed.mode); err != nil {
			return err
		}
	}
	for _, name := range []string{"prometheus/salvor.rules.yml", "prometheus/salvor.rules.test.yml", "grafana/salvor.json"} {
		if err := copyFile(filepath.Join(s.root, "dist", name), filepath.Join(tree, "usr/share/salvor", name), 0o644); err != nil {
			return err
		}
	}
	return s.writeManPages(ctx, program, filepath.Join(work, "man", "salvor"), tree)
}

// fillHost lays out the unit of the agent of VM hosts and its options. The program is that of the package salvor.
func fillHost(_ context.Context, s *source, _, _, tree string) error {
	if err := s.copyUnits(tree, "salvor-host.service"); err != nil {
		return err
	}
	return copyFile(filepath.Join(s.root, "dist/debian/salvor-host/default"), filepath.Join(tree, "etc/default/salvor-host"), 0o644)
}

// fillLab lays out the program of trials and rehearsals, and its manual pages.
func fillLab(ctx context.Context, s *source, work, arch, tree string) error {
	const name = "salvor-lab"
	if err := copyFile(filepath.Join(work, "bin", arch, name), filepath.Join(tree, "usr/bin", name), 0o755); err != nil {
		return err
	}
	// The program of another architecture does not run here, and would print the same.
	return s.writeManPages(ctx, filepath.Join(work, "bin", runtime.GOARCH, name), filepath.Join(work, "man", name), tree)
}

// copyUnits installs units.
func (s *source) copyUnits(tree string, names ...string) error {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(s.root, "dist/systemd", name))
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(tree, "usr/lib/systemd/system", name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writePackage adds what every package has, and packs the tree. dpkg-deb gives files that are newer than the commit the commit's time.
func (s *source) writePackage(ctx context.Context, name, arch, tree, out string) error {
	doc := filepath.Join(tree, "usr/share/doc", name)
	if err := copyFile(filepath.Join(s.root, "LICENSE"), filepath.Join(doc, "copyright"), 0o644); err != nil {
		return err
	}
	changes, err := os.ReadFile(filepath.Join(s.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if err := writeCompressed(filepath.Join(doc, "changelog.gz"), changes); err != nil {
		return err
	}
	if err := s.writeControl(name, arch, tree); err != nil {
		return err
	}
	if err := s.setTimes(tree); err != nil {
		return err
	}
	file := filepath.Join(out, fmt.Sprintf("%s_%s_%s.deb", name, s.debianVersion(), arch))
	env := []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", s.time.Unix())}
	_, err = runProgram(ctx, "", env, "dpkg-deb", "--root-owner-group", "-Zgzip", "-z9", "--build", tree, file)
	return err
}

// writeControl writes the control file, the maintainer scripts, and the lists of configuration files and of digests.
func (s *source) writeControl(name, arch, tree string) error {
	var conffiles, sums strings.Builder
	size := int64(0)
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		inside := strings.TrimPrefix(path, tree+"/")
		if strings.HasPrefix(inside, "etc/") {
			fmt.Fprintf(&conffiles, "/%s\n", inside)
		} else {
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(text), inside)
		}
		size += int64(len(text))
		return nil
	})
	if err != nil {
		return err
	}
	from := filepath.Join(s.root, "dist/debian", name)
	control, err := os.ReadFile(filepath.Join(from, "control"))
	if err != nil {
		return err
	}
	values := strings.NewReplacer("@version@", s.debianVersion(), "@architecture@", arch, "@size@", fmt.Sprint((size+1023)/1024))
	files := map[string]string{"control": values.Replace(string(control)), "conffiles": conffiles.String(), "md5sums": sums.String()}
	for file, text := range files {
		if err := writeFile(filepath.Join(tree, "DEBIAN", file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		if err := copyFile(filepath.Join(from, script), filepath.Join(tree, "DEBIAN", script), 0o755); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// setTimes gives every file and directory the time of the commit, and every directory the same mode under any umask.
func (s *source) setTimes(tree string) error {
	var all []string
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		all = append(all, path)
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o755)
		}
		return err
	})
	slices.Reverse(all)
	for _, path := range all {
		err = errors.Join(err, os.Chtimes(path, s.time, s.time))
	}
	return err
}

// writeManPages has the program write its man pages.
func (s *source) writeManPages(ctx context.Context, program, dir, tree string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_, err := runProgram(ctx, "", []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", s.time.Unix())}, program, "man", dir)
	if err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.[1-8]"))
	if err != nil {
		return err
	}
	if len(pages) == 0 {
		return fmt.Errorf("%s man wrote no page", filepath.Base(program))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		section := "man" + strings.TrimPrefix(filepath.Ext(page), ".")
		if err := writeCompressed(filepath.Join(tree, "usr/share/man", section, filepath.Base(page)+".gz"), text); err != nil {
			return err
		}
	}
	return nil
}

// writeCompressed writes a gzip file that names no time.
func writeCompressed(name string, text []byte) error {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return writeFile(name, b.Bytes(), 0o644)
}
