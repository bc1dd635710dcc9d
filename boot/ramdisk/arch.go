package ramdisk

import (
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"salvor/boot/media"
	"salvor/problem"
)

// Arch is a processor architecture by Debian's name.
type Arch = media.Arch

// The architectures that ramdisks are built for.
const (
	AMD64 = media.AMD64
	ARM64 = media.ARM64
)

// architecture is what differs between them.
type architecture struct {
	machine elf.Machine
	// triplet is Debian's multiarch folder of shared libraries.
	triplet string
}

var architectures = map[Arch]architecture{AMD64: {elf.EM_X86_64, "x86_64-linux-gnu"}, ARM64: {elf.EM_AARCH64, "aarch64-linux-gnu"}}

// nativeArch is the architecture of this machine; AMD64 where ramdisks are built for it only.
func nativeArch() Arch {
	if runtime.GOARCH == string(ARM64) {
		return ARM64
	}
	return AMD64
}

// Arch is the architecture of a kernel flavour.
func (f Flavour) Arch() Arch {
	if strings.HasSuffix(string(f), string(ARM64)) {
		return ARM64
	}
	return AMD64
}

// listsFresh is how long package lists of a foreign architecture are used.
const listsFresh = 24 * time.Hour

// aptFor gives the options by which apt looks at packages of another architecture than this machine's. Their lists lie in the cache:
// the machine itself is not made to know the architecture.
func aptFor(ctx context.Context, arch Arch, cache string, progress func(string)) ([]string, error) {
	if arch == nativeArch() {
		return nil, nil
	}
	dir := filepath.Join(cache, "apt-"+string(arch))
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	// No package of the architecture is installed.
	status := filepath.Join(dir, "status")
	if err := os.WriteFile(status, nil, 0o600); err != nil {
		return nil, err
	}
	options := []string{
		"-o", "APT::Architecture=" + string(arch), "-o", "APT::Architectures=" + string(arch), "-o", "APT::Sandbox::User=root",
		"-o", "Dir::State=" + filepath.Join(dir, "state"), "-o", "Dir::State::status=" + status, "-o", "Dir::Cache=" + filepath.Join(dir, "cache"),
	}
	stamp := filepath.Join(dir, "updated")
	if info, err := os.Stat(stamp); err == nil && time.Since(info.ModTime()) < listsFresh {
		return options, nil
	}
	progress("read the package lists of " + string(arch))
	if _, err := runTool(ctx, "", "apt-get", append(options, "-q", "-o", "Acquire::Retries=3", "--error-on=any", "update")...); err != nil {
		return nil, problem.Unavailablef("read the package lists of %s: %w", arch, err)
	}
	return options, os.WriteFile(stamp, nil, 0o600)
}
