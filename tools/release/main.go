// Command release builds what a release of salvor consists of: static programs, Debian packages, a container image, lists of the linked
// modules, and checksums. The same commit and the same Go give the same bytes, in whatever directory they are built.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	out := flag.String("out", "build/release", "directory for the release; its former content is removed")
	root := flag.String("root", ".", "the source tree: a git clone")
	arches := flag.String("arch", "amd64,arm64", "the architectures, separated by commas")
	flag.Parse()
	architectures = strings.Split(*arches, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := buildRelease(ctx, *root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// architectures are those of Go; Debian and OCI name these two in the same way.
var architectures = []string{"amd64", "arm64"}

// programs are the commands of the source tree that a release has, and productive those of the control plane's package and image.
var (
	programs   = []string{"salvor", "salvor-agent", "salvor-lab"}
	productive = programs[:2]
)

func buildRelease(ctx context.Context, root, out string) error {
	src, err := readSource(ctx, root)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "salvor-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)

	if !slices.Contains(architectures, runtime.GOARCH) {
		return fmt.Errorf("build the release on %s: one of its programs prints the sample configuration and the completions", strings.Join(architectures, " or "))
	}
	for _, arch := range architectures {
		if err := src.compile(ctx, filepath.Join(work, "bin", arch), arch); err != nil {
			return err
		}
	}
	if src.release, err = releaseOf(ctx, filepath.Join(work, "bin", runtime.GOARCH, "salvor")); err != nil {
		return err
	}
	for _, arch := range architectures {
		for _, program := range programs {
			name := fmt.Sprintf("%s-%s-linux-%s", program, src.release, arch)
			built := filepath.Join(work, "bin", arch, program)
			if err := copyFile(built, filepath.Join(out, name), 0o755); err != nil {
				return err
			}
			if err := src.writeModules(built, program, filepath.Join(out, name+".cdx.json")); err != nil {
				return err
			}
		}
		if err := src.writePackages(ctx, work, arch, out); err != nil {
			return err
		}
	}
	if err := src.writeImage(work, out); err != nil {
		return err
	}
	return writeChecksums(out)
}

// writeChecksums writes SHA256SUMS in the format of sha256sum(1).
func writeChecksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		sum, err := fileDigest(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum, e.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

func fileDigest(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return sum.Sum(nil), err
}

// writeFile writes a file with exactly this mode, whatever the umask is, and makes the directories above it.
func writeFile(name string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(name, content, mode); err != nil {
		return err
	}
	return os.Chmod(name, mode)
}

func copyFile(from, to string, mode os.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, content, mode)
}
