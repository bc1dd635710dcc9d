package netboot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"salvor/boot/media"
	"salvor/metal"
	"salvor/problem"
)

// Loaders are the files that images need beside kernel and ramdisk. A file of the same
// name beside the kernel goes first.
type Loaders struct {
	Stub     string // systemd's linuxx64.efi.stub
	Isolinux string // isolinux.bin of syslinux 6
	Ldlinux  string // ldlinux.c32 of syslinux 6
	Shim     string // shimx64.efi.signed
	Grub     string // gcdx64.efi.signed
}

// DebianLoaders are where Debian's packages put them.
var DebianLoaders = loadersOf(media.AMD64)

func loadersOf(a media.Arch) Loaders {
	l := a.Loaders()
	return Loaders{Stub: l.Stub.Path, Isolinux: l.Isolinux.Path, Ldlinux: l.Ldlinux.Path, Shim: l.Shim.Path, Grub: l.Grub.Path}
}

// forArch gives the loaders for kernels of an architecture.
func (l Loaders) forArch(a media.Arch) Loaders {
	if a == media.ARM64 {
		return loadersOf(a)
	}
	return l
}

// maxImages bounds how many base images are held open: one or two per ramdisk in use.
const maxImages = 8

type imageKind int

const (
	imageISO imageKind = iota
	imageSignedISO
	imageEFI
)

// imageCache holds the base images that are shared by all machines with the same kernel and
// ramdisk. An image is not a file: it refers to the open kernel and ramdisk.
type imageCache struct {
	roots     []string
	loaders   Loaders
	signed    func(kernel string) (shim, grub string) // is Config.SignedLoaders
	downloads *downloadCache

	mu   sync.Mutex
	open map[imageKey]*baseImage
	turn int64
}

// imageKey tells images apart, and a kernel or ramdisk from the one that replaced it.
type imageKey struct {
	kind            imageKind
	kernel, ramdisk string
	versions        string
}

type baseImage struct {
	image *media.Image
	parts []*sharedFile
	users int // in work, plus one while it is in the cache
	used  int64
}

// get gives the image of a kind; release must be called when it is no longer read.
func (m *imageCache) get(ctx context.Context, kind imageKind, kernel, ramdisk string) (img *media.Image, release func(), err error) {
	k, err := m.source(ctx, kernel)
	if err != nil {
		return nil, nil, err
	}
	r, err := m.source(ctx, ramdisk)
	if err != nil {
		k.leave()
		return nil, nil, err
	}
	parts := []*sharedFile{k, r}
	key := imageKey{kind, kernel, ramdisk, k.version + ", " + r.version}
	if kind == imageSignedISO && m.signed != nil {
		shim, grub := m.signed(kernel)
		key.versions += ", " + shim + ", " + grub
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.open[key]
	if b != nil {
		leaveAll(parts)
	} else {
		image, err := m.build(kind, kernel, k.blob(), r.blob())
		if err != nil {
			leaveAll(parts)
			return nil, nil, err
		}
		b = &baseImage{image: image, parts: parts, users: 1}
		m.addLocked(key, b)
	}
	b.users++
	m.turn++
	b.used = m.turn
	return b.image, func() { m.mu.Lock(); defer m.mu.Unlock(); b.leave() }, nil
}

// source opens a kernel or ramdisk, wherever the plan says it is.
func (m *imageCache) source(ctx context.Context, ref string) (*sharedFile, error) {
	if isFetched(ref) {
		return m.downloads.get(ctx, ref)
	}
	f, info, err := openFile(m.roots, ref)
	if err != nil {
		return nil, err
	}
	return &sharedFile{file: f, size: info.Size(), version: fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size()), users: 1}, nil
}

// addLocked makes room by dropping the image that was not used for longest.
func (m *imageCache) addLocked(key imageKey, b *baseImage) {
	if m.open == nil {
		m.open = map[imageKey]*baseImage{}
	}
	for len(m.open) >= maxImages {
		var oldest imageKey
		for k, v := range m.open {
			if m.open[oldest] == nil || v.used < m.open[oldest].used {
				oldest = k
			}
		}
		m.open[oldest].leave()
		delete(m.open, oldest)
	}
	m.open[key] = b
}

// close drops all images; those being read stay open until they are released.
func (m *imageCache) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.open {
		b.leave()
	}
	m.open = nil
	m.downloads.close()
}

func (b *baseImage) leave() {
	if b.users--; b.users == 0 {
		leaveAll(b.parts)
	}
}

// build lays out a base image: it reads no more of kernel and ramdisk than their sizes.
func (m *imageCache) build(kind imageKind, kernel string, k, r media.Blob) (*media.Image, error) {
	parts := media.Parts{Kernel: k, Initrd: r, Name: "salvor"}
	loaders := m.loaders.forArch(media.ArchOf(k))
	dir := filepath.Dir(kernel)
	var err error
	if isFetched(kernel) {
		dir = ""
	}
	if kind == imageSignedISO {
		if m.signed != nil {
			if shim, grub := m.signed(kernel); shim != "" && grub != "" {
				dir, loaders.Shim, loaders.Grub = "", shim, grub
			}
		}
		parts.Shim, parts.Grub, err = openSigned(dir, loaders)
	} else {
		parts.Stub, err = openLoader(dir, loaders.Stub)
	}
	if err != nil {
		return nil, err
	}
	if kind == imageEFI {
		return media.UKI(parts)
	}
	if loaders.Isolinux == "" {
		return media.ISO(parts)
	}
	if parts.Isolinux, err = openLoader(dir, loaders.Isolinux); err != nil {
		return nil, err
	}
	if parts.Ldlinux, err = openLoader(dir, loaders.Ldlinux); err != nil {
		return nil, err
	}
	return media.ISO(parts)
}

// KernelArch is the architecture of a kernel as the property cpu_arch of nodes spells it; empty where it cannot be read.
func (s *Server) KernelArch(kernel string) string {
	if isFetched(kernel) {
		return ""
	}
	f, info, err := openFile(s.images.roots, kernel)
	if err != nil {
		return ""
	}
	defer f.Close()
	a, _ := media.ReadArch(io.NewSectionReader(f, 0, info.Size()))
	return map[media.Arch]string{media.AMD64: "x86_64", media.ARM64: "aarch64"}[a]
}

// archNamed is the architecture that the property cpu_arch of a node names; AMD64 where it names none.
func archNamed(cpuArch string) media.Arch {
	if cpuArch == "aarch64" {
		return media.ARM64
	}
	return media.AMD64
}

// CheckSigned tells why firmware that enforces Secure Boot would refuse the CD image of a kernel. It looks for signatures; whose they
// are only the firmware knows. Of a kernel behind a URL it reads the header; where that cannot be read, cpuArch tells its architecture.
// Sites get the boot loaders from here.
func (s *Server) CheckSigned(ctx context.Context, kernel, cpuArch string) error {
	if isFetched(kernel) {
		header, err := s.images.downloads.header(ctx, kernel)
		if err != nil {
			return s.checkLoaders("", archNamed(cpuArch))
		}
		arch, ok := media.ReadArch(header)
		if !ok {
			arch = archNamed(cpuArch)
		}
		return errors.Join(s.checkLoaders("", arch), checkKernelSigned(redactURL(kernel), header))
	}
	f, info, err := openFile(s.images.roots, kernel)
	if err != nil {
		return err
	}
	defer f.Close()
	blob := io.NewSectionReader(f, 0, info.Size())
	if err := s.checkLoaders(filepath.Dir(kernel), media.ArchOf(blob)); err != nil {
		return err
	}
	return checkKernelSigned(kernel, blob)
}

// checkLoaders tells that the signed boot loaders of an architecture are missing.
func (s *Server) checkLoaders(dir string, arch media.Arch) error {
	if _, _, err := openSigned(dir, s.images.loaders.forArch(arch)); err != nil {
		return problem.Invalidf("the signed boot loaders are missing: run salvor ramdisk build --out DIR again, or install the Debian packages shim-signed and grub-efi-%s-signed (%w)", arch, err)
	}
	return nil
}

// checkKernelSigned tells that a kernel has no signature.
func checkKernelSigned(kernel string, blob media.Blob) error {
	signed, err := media.IsSigned(blob)
	switch {
	case err != nil:
		return problem.Invalidf("the kernel %s: %w", kernel, err)
	case !signed:
		return problem.Invalidf("the kernel %s has no signature: use Debian's signed kernel, which salvor ramdisk build --out DIR takes", kernel)
	}
	return nil
}

// SignedLoaders are the paths of the signed boot loaders for a node's plan, for sites that build its CD image; empty where one is missing.
func (s *Server) SignedLoaders(n *metal.Node) (shim, grub string) {
	kernel, dir, arch := n.Plan.Kernel, "", archNamed(metal.Text(n.Properties["cpu_arch"]))
	if !isFetched(kernel) {
		f, info, err := openFile(s.images.roots, kernel)
		if err != nil {
			return "", ""
		}
		defer f.Close()
		dir, arch = filepath.Dir(kernel), media.ArchOf(io.NewSectionReader(f, 0, info.Size()))
	}
	l := s.images.loaders.forArch(arch)
	find := func(path string) string {
		f, _, at, err := findLoader(dir, path)
		if err != nil {
			return ""
		}
		f.Close()
		return at
	}
	return find(l.Shim), find(l.Grub)
}

// openSigned opens the signed boot loaders; Unavailable where one is missing.
func openSigned(dir string, l Loaders) (shim, grub media.Blob, err error) {
	if shim, err = openLoader(dir, l.Shim); err != nil {
		return nil, nil, err
	}
	grub, err = openLoader(dir, l.Grub)
	return shim, grub, err
}

// maxLoader bounds what is read into memory of a boot loader's file.
const maxLoader = 16 << 20

// findLoader opens a boot loader and gives its path: in the folder beside, if that is not empty, or where it is installed.
func findLoader(beside, path string) (f *os.File, info fs.FileInfo, at string, err error) {
	for _, dir := range []string{beside, filepath.Dir(path)} {
		if dir == "" {
			continue
		}
		at = filepath.Join(dir, filepath.Base(path))
		if f, info, err = openBelow(dir, filepath.Base(path)); err == nil {
			return f, info, at, nil
		}
	}
	return nil, nil, "", err
}

func openLoader(beside, path string) (media.Blob, error) {
	name := filepath.Base(path)
	f, info, _, err := findLoader(beside, path)
	if err != nil {
		return nil, problem.Unavailablef("make boot image: %s is neither beside the kernel nor installed: %w", name, err)
	}
	defer f.Close()
	if info.Size() > maxLoader {
		return nil, problem.Invalidf("make boot image: %s has %d bytes, at most %d", name, info.Size(), maxLoader)
	}
	return readBlob(f, info.Size())
}

// or fills empty paths from other loaders.
func (l Loaders) or(o Loaders) Loaders {
	return Loaders{cmp.Or(l.Stub, o.Stub), cmp.Or(l.Isolinux, o.Isolinux), cmp.Or(l.Ldlinux, o.Ldlinux), cmp.Or(l.Shim, o.Shim), cmp.Or(l.Grub, o.Grub)}
}
