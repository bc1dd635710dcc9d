package ramdisk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"salvor/problem"
)

// Package is a Debian package that went into a ramdisk.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

// debArchive downloads Debian packages into a cache and unpacks each into a folder of
// its own. Nothing is installed and no root is needed.
type debArchive struct {
	arch     Arch
	apt      []string // options of apt-get and apt-cache
	cache    string   // of .deb files, kept
	work     string   // of unpacked packages, temporary
	progress func(string)
	packages map[string]*unpackedPackage
}

type unpackedPackage struct {
	Package
	deb string
	dir string
}

// packageName keeps what apt prints and users give from being taken for an option.
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*$`)

// runTool executes a Debian tool. The C locale keeps its output parseable.
func runTool(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, problem.Unavailablef("%s is not installed: building a ramdisk needs a Debian system", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLine(stderr.String()))
	}
	return out, nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// kernelPackage is what a kernel's meta package depends on; the ABI name in it changes
// with each update.
func (a *debArchive) kernelPackage(ctx context.Context, flavour Flavour) (string, error) {
	meta := "linux-image-" + string(flavour)
	out, err := runTool(ctx, "", "apt-cache", append(slices.Clone(a.apt), "depends", "--important", meta)...)
	if err != nil {
		return "", noLists(err)
	}
	for _, line := range splitLines(out) {
		if pkg, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok && strings.HasPrefix(pkg, "linux-image-") {
			return pkg, nil
		}
	}
	return "", problem.Unavailablef("package %s depends on no kernel", meta)
}

func noLists(err error) error {
	return problem.Unavailablef("a package is not known to apt (run apt-get update; Debian's main archive is needed): %w", err)
}

// dependencies reads from unpacked packages what they depend on; of alternatives the first.
func (a *debArchive) dependencies(ctx context.Context) ([]string, error) {
	var names []string
	for _, p := range a.packages {
		out, err := runTool(ctx, "", "dpkg-deb", "-f", p.deb, "Pre-Depends", "Depends")
		if err != nil {
			return nil, fmt.Errorf("read package %s: %w", p.Name, err)
		}
		for _, line := range splitLines(out) {
			_, list, _ := strings.Cut(line, ":")
			for _, item := range strings.Split(list, ",") {
				name, _, _ := strings.Cut(strings.TrimSpace(item), " ")
				if name, _, _ = strings.Cut(name, ":"); packageName.MatchString(name) {
					names = append(names, name)
				}
			}
		}
	}
	return names, nil
}

// get makes a package's files available and returns the folder they are in.
func (a *debArchive) get(ctx context.Context, name string) (string, error) {
	if a.packages[name] == nil {
		if err := a.fetch(ctx, name); err != nil {
			return "", err
		}
	}
	return a.packages[name].dir, nil
}

// fetch gets several packages with one question to apt, which takes a second each.
func (a *debArchive) fetch(ctx context.Context, names ...string) error {
	for _, name := range names {
		if !packageName.MatchString(name) {
			return problem.Invalidf("%q is no name of a Debian package", name)
		}
	}
	// Asked elsewhere than in the cache: apt-get says nothing of a file that is there.
	out, err := runTool(ctx, a.work, "apt-get", slices.Concat(a.apt, []string{"-q", "--print-uris", "download"}, names)...)
	if err != nil {
		return noLists(err)
	}
	var offers []packageOffer
	for _, line := range splitLines(out) {
		o, err := readOffer(line)
		if err != nil {
			return err
		}
		offers = append(offers, o)
	}
	if err := a.download(ctx, offers); err != nil {
		return err
	}
	for _, o := range offers {
		p, err := a.unpack(ctx, o)
		if err != nil {
			return err
		}
		a.packages[p.Name] = p
	}
	for _, name := range names {
		if a.packages[name] == nil {
			return problem.Unavailablef("apt-get offers no package %s", name)
		}
	}
	return nil
}

// packageOffer is a package file as the archive offers it.
type packageOffer struct{ name, file, sha256 string }

// readOffer reads a line of apt-get: 'URL' file size SHA256:hex.
func readOffer(line string) (packageOffer, error) {
	fields := strings.Fields(line)
	if len(fields) != 4 || !strings.HasPrefix(fields[3], "SHA256:") || fields[1] != filepath.Base(fields[1]) {
		return packageOffer{}, fmt.Errorf("download a package: apt-get printed %q", line)
	}
	name, _, _ := strings.Cut(fields[1], "_")
	return packageOffer{name, fields[1], strings.TrimPrefix(fields[3], "SHA256:")}, nil
}

// download brings the packages that the cache lacks with one call of apt-get, which takes a second to start.
func (a *debArchive) download(ctx context.Context, offers []packageOffer) error {
	var missing []string
	for _, o := range offers {
		if have, _ := sha256File(filepath.Join(a.cache, o.file)); have != o.sha256 {
			missing = append(missing, o.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	a.progress("download " + strings.Join(missing, " "))
	// The sandbox user of apt may not enter a private cache folder.
	args := []string{"-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3", "download"}
	if _, err := runTool(ctx, a.cache, "apt-get", slices.Concat(a.apt, args, missing)...); err != nil {
		return problem.Unavailablef("download %s: %w", strings.Join(missing, " "), err)
	}
	return nil
}

// unpack checks a downloaded package and unpacks it into a folder of its own.
func (a *debArchive) unpack(ctx context.Context, o packageOffer) (*unpackedPackage, error) {
	file := filepath.Join(a.cache, o.file)
	have, err := sha256File(file)
	if err != nil {
		return nil, fmt.Errorf("download package %s: %w", o.name, err)
	}
	if have != o.sha256 {
		return nil, problem.Unavailablef("download package %s: SHA-256 is %s, the archive says %s", o.name, have, o.sha256)
	}
	version, err := runTool(ctx, "", "dpkg-deb", "-f", file, "Version")
	if err != nil {
		return nil, fmt.Errorf("read package %s: %w", o.name, err)
	}
	dir := filepath.Join(a.work, "pkg", o.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if _, err := runTool(ctx, "", "dpkg-deb", "-x", file, dir); err != nil {
		return nil, fmt.Errorf("unpack package %s: %w", o.name, err)
	}
	return &unpackedPackage{Package: Package{Name: o.name, Version: strings.TrimSpace(string(version)), SHA256: o.sha256}, deb: file, dir: dir}, nil
}

func sha256File(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
