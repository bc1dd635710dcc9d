package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"salvor/problem"
)

const kernelPackage = "linux-image-cloud-amd64"

// kernel is Debian's kernel for virtual machines, unpacked.
type kernel struct {
	Dir     string // holds boot/ and lib/modules/
	Version string
}

func (k kernel) image() string { return filepath.Join(k.Dir, "boot", "vmlinuz-"+k.Version) }

// fetchKernel unpacks the kernel into the cache, or finds the one that is there.
func fetchKernel(ctx context.Context, cache string) (kernel, error) {
	dir := filepath.Join(cache, "kernel")
	if k, err := findKernel(dir); err == nil {
		return k, nil
	}
	work, err := os.MkdirTemp(cache, "kernel-*")
	if err != nil {
		return kernel{}, fmt.Errorf("fetch kernel: %w", err)
	}
	defer os.RemoveAll(work)
	name, err := kernelPackageName(ctx)
	if err != nil {
		return kernel{}, err
	}
	if _, err := output(ctx, work, "apt-get", "download", "-q", name); err != nil {
		return kernel{}, problem.Unavailablef("fetch kernel: %w", err)
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != 1 {
		return kernel{}, fmt.Errorf("fetch kernel: apt-get download left %d packages (%v)", len(debs), err)
	}
	tree := filepath.Join(work, "tree")
	if _, err := output(ctx, work, "dpkg-deb", "-x", debs[0], tree); err != nil {
		return kernel{}, fmt.Errorf("unpack kernel: %w", err)
	}
	k, err := findKernel(tree)
	if err != nil {
		return kernel{}, err
	}
	if _, err := output(ctx, work, "/usr/sbin/depmod", "-b", tree, k.Version); err != nil {
		return kernel{}, fmt.Errorf("index kernel modules: %w", err)
	}
	if err := os.Rename(tree, dir); err != nil {
		if k, findErr := findKernel(dir); findErr == nil {
			return k, nil // another lab was faster
		}
		return kernel{}, fmt.Errorf("keep kernel: %w", err)
	}
	return findKernel(dir)
}

func findKernel(dir string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return kernel{}, fmt.Errorf("%d kernel images in %s (%v)", len(images), dir, err)
	}
	return kernel{Dir: dir, Version: strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")}, nil
}

// kernelPackageName follows the metapackage to the kernel of the day.
func kernelPackageName(ctx context.Context) (string, error) {
	out, err := output(ctx, "", "apt-cache", "depends", kernelPackage)
	if err != nil {
		return "", problem.Unavailablef("look up %s: %w", kernelPackage, err)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		if _, name, found := strings.Cut(lines.Text(), "Depends: linux-image-"); found {
			return "linux-image-" + strings.TrimSpace(name), nil
		}
	}
	return "", problem.Unavailablef("look up %s: apt knows no kernel; run apt-get update", kernelPackage)
}

// modules lists the files of the named modules with all that they need, in the order of loading.
// What is built into the kernel is left out.
func (k kernel) modules(ctx context.Context, names ...string) ([]string, error) {
	var files []string
	seen := map[string]bool{}
	for _, name := range names {
		out, err := output(ctx, "", "/usr/sbin/modprobe", "-d", k.Dir, "-S", k.Version, "--show-depends", name)
		if err != nil {
			return nil, fmt.Errorf("kernel module %s: %w", name, err)
		}
		for _, line := range strings.Split(string(out), "\n") {
			fields := strings.Fields(line)
			if len(fields) >= 2 && fields[0] == "insmod" && !seen[fields[1]] {
				seen[fields[1]] = true
				files = append(files, fields[1])
			}
		}
	}
	return files, nil
}

// output runs a program and returns what it prints; its complaints go into the error.
func output(ctx context.Context, dir string, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MTOOLS_SKIP_CHECK=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(program), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}
