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
	"strings"

	"salvor/problem"
)

// Package is a Debian package that went into a ramdisk.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

// archive downloads Debian packages into a cache and unpacks each into a folder of
// its own. Nothing is installed and no root is needed.
type archive struct {
	cache    string // of .deb files, kept
	work     string // of unpacked packages, temporary
	progress func(string)
	packages map[string]*unpacked
}

type unpacked struct {
	Package
	deb string
	dir string
}

// packageName keeps what apt prints and users give from being taken for an option.
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*$`)

// run executes a Debian tool. The C locale keeps its output parseable.
func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
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

// depends gives the real packages that a package depends on directly; of
// alternatives the first.
func depends(ctx context.Context, name string) ([]string, error) {
	out, err := run(ctx, "", "apt-cache", "depends", "--important", name)
	if err != nil {
		return nil, noLists(name, err)
	}
	var names []string
	alternative := false
	for _, line := range strings.Split(string(out), "\n") {
		kind, pkg, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || !strings.HasSuffix(kind, "Depends") {
			continue
		}
		if !alternative && packageName.MatchString(pkg) {
			names = append(names, pkg)
		}
		alternative = strings.HasPrefix(kind, "|")
	}
	return names, nil
}

func noLists(name string, err error) error {
	return problem.Unavailablef("package %s is not known to apt (run apt-get update; Debian's main archive is needed): %w", name, err)
}

// get makes a package's files available and returns the folder they are in.
func (a *archive) get(ctx context.Context, name string) (string, error) {
	if p := a.packages[name]; p != nil {
		return p.dir, nil
	}
	if !packageName.MatchString(name) {
		return "", problem.Invalidf("%q is no name of a Debian package", name)
	}
	p, err := a.download(ctx, name)
	if err != nil {
		return "", err
	}
	p.dir = filepath.Join(a.work, "pkg", name)
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return "", err
	}
	if _, err := run(ctx, "", "dpkg-deb", "-x", p.deb, p.dir); err != nil {
		return "", fmt.Errorf("unpack package %s: %w", name, err)
	}
	a.packages[name] = p
	return p.dir, nil
}

// download takes the candidate version from the cache, or else from the mirror.
func (a *archive) download(ctx context.Context, name string) (*unpacked, error) {
	// The sandbox user of apt may not enter a private cache folder.
	options := []string{"-q", "-o", "APT::Sandbox::User=root", "download"}
	out, err := run(ctx, a.cache, "apt-get", append(options, "--print-uris", name)...)
	if err != nil {
		return nil, noLists(name, err)
	}
	// 'URL' file size SHA256:hex
	fields := strings.Fields(string(out))
	if len(fields) != 4 || !strings.HasPrefix(fields[3], "SHA256:") || strings.ContainsRune(fields[1], '/') {
		return nil, fmt.Errorf("download package %s: apt-get printed %q", name, out)
	}
	file, sum := fields[1], strings.TrimPrefix(fields[3], "SHA256:")
	deb := filepath.Join(a.cache, file)
	if have, _ := sha256File(deb); have != sum {
		a.progress("download " + file)
		if _, err := run(ctx, a.cache, "apt-get", append(options, name)...); err != nil {
			return nil, problem.Unavailablef("download package %s: %w", name, err)
		}
		have, err := sha256File(deb)
		if err != nil {
			return nil, fmt.Errorf("download package %s: %w", name, err)
		}
		if have != sum {
			return nil, problem.Unavailablef("download package %s: SHA-256 is %s, the archive says %s", name, have, sum)
		}
	}
	version, err := run(ctx, "", "dpkg-deb", "-f", deb, "Version")
	if err != nil {
		return nil, fmt.Errorf("read package %s: %w", name, err)
	}
	return &unpacked{Package: Package{Name: name, Version: strings.TrimSpace(string(version)), SHA256: sum}, deb: deb}, nil
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
