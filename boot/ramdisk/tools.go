package ramdisk

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"salvor/boot/media"
	"salvor/problem"
)

// toolPackages is what people repair machines with; the full profile holds them.
var toolPackages = []string{
	"bash", "bsdutils", "coreutils", "util-linux", "mount", "procps", "iproute2", "kmod", "less", "nano", "grep", "sed", "tar", "gzip", "xz-utils", "zstd", "pciutils",
	"fdisk", "gdisk", "parted", "e2fsprogs", "xfsprogs", "btrfs-progs", "dosfstools", "dmsetup", "lvm2", "mdadm", "cryptsetup-bin",
	"rsync", "curl", "ca-certificates", "openssh-client", "efibootmgr", "grub2-common", "grub-pc-bin", "grub-efi-amd64-bin", "gddrescue", "smartmontools", "nvme-cli",
}

// unwanted is left out of the ramdisk: documentation, lists, and what only an
// installed system needs.
var unwanted = []string{
	"usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "usr/share/bug",
	"usr/share/bash-completion", "usr/share/zoneinfo", "var/cache", "var/lib/apt", "var/lib/dpkg/info", "var/log", "dev", "proc", "sys", "run", "tmp", "boot",
	"etc/machine-id", "etc/passwd", "etc/shadow", "etc/group", "etc/gshadow", "etc/passwd-", "etc/shadow-", "etc/group-", "etc/gshadow-",
	"etc/resolv.conf", "etc/hostname", "usr/lib/systemd", "usr/lib/udev",
	"usr/lib/python3", "usr/lib/python3.11", "usr/lib/python3.13", "usr/share/perl", "usr/lib/x86_64-linux-gnu/perl", "usr/lib/x86_64-linux-gnu/gconv",
}

// addTools has mmdebstrap install the packages without root and copies the result.
func (s *Source) addTools(ctx context.Context, t *Tree) error {
	suite, err := releaseOf("/etc/os-release")
	if err != nil {
		return err
	}
	file := filepath.Join(s.archive.work, "tools.tar")
	_, err = runTool(ctx, s.archive.work, "mmdebstrap", "--quiet", "--mode="+installMode(), "--variant=essential",
		"--include="+strings.Join(toolPackages, ","), "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*", "--aptopt=Apt::Install-Recommends false", suite, file)
	if err != nil {
		return problem.Unavailablef("install the repair tools: %w", err)
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	// The tree reads its files from it until it is written.
	s.tools = f
	return t.addTar(f)
}

// installMode: root needs no user namespace, which containers often deny.
func installMode() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return "unshare"
}

// releaseOf reads the code name of the building machine's Debian: the tools are of
// the same release as the kernel that apt knows.
func releaseOf(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", problem.Unavailablef("find the Debian release: %w", err)
	}
	for _, line := range splitLines(b) {
		if name, ok := strings.CutPrefix(line, "VERSION_CODENAME="); ok {
			if name = strings.Trim(name, `"`); packageName.MatchString(name) {
				return name, nil
			}
		}
	}
	return "", problem.Unavailablef("find the Debian release: %s names no VERSION_CODENAME", file)
}

// addTar puts the files of an uncompressed tar archive into the tree.
func (t *Tree) addTar(f *os.File) error {
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "" || isUnwanted(name) {
			continue
		}
		switch h.Typeflag {
		case tar.TypeDir:
			t.Dir(name, fs.FileMode(h.Mode))
		case tar.TypeSymlink:
			t.Symlink(name, h.Linkname)
		case tar.TypeReg:
			// The reader does not buffer: the file stands at the first byte of the content.
			at, err := f.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			t.put(media.Entry{Path: name, Mode: fs.FileMode(h.Mode).Perm(), Data: io.NewSectionReader(f, at, h.Size)})
		case tar.TypeLink:
			target, ok := t.entries[strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")]
			if !ok {
				continue
			}
			target.Path = name
			t.put(target)
		}
	}
}

func isUnwanted(name string) bool {
	for _, u := range unwanted {
		if name == u || strings.HasPrefix(name, u+"/") {
			return true
		}
	}
	return false
}
