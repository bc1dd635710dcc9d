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
	"slices"
	"strings"
	"syscall"

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

// or fills empty paths from other loaders.
func (l Loaders) or(o Loaders) Loaders {
	return Loaders{cmp.Or(l.Stub, o.Stub), cmp.Or(l.Isolinux, o.Isolinux), cmp.Or(l.Ldlinux, o.Ldlinux), cmp.Or(l.Shim, o.Shim), cmp.Or(l.Grub, o.Grub)}
}

// imageKind is an image that is made of a kernel and a ramdisk.
type imageKind int

const (
	imageISO imageKind = iota // for firmware of either mode
	imageBIOS
	imageUEFI
	imageSignedISO
	imageEFI
)

// imageKindOf is what a plan gives under the name of an image.
func imageKindOf(plan *metal.BootPlan, name string) imageKind {
	switch {
	case name == metal.BootEFI:
		return imageEFI
	case plan.SecureBoot:
		return imageSignedISO
	case plan.FirmwareMode == "bios":
		return imageBIOS
	case plan.FirmwareMode == "uefi":
		return imageUEFI
	}
	return imageISO
}

// neededLoader is a boot loader that a boot needs.
type neededLoader struct {
	path     string // where it is installed
	pkg      string // the Debian package that brings it
	optional bool   // taken if it is there
	put      func(*media.Parts, media.Blob)
}

// neededLoaders are the loaders of one image.
type neededLoaders struct {
	list   []neededLoader
	beside string // the directory of the kernel, where a loader is looked for first; empty: none
	arch   media.Arch
	mode   string // a remark on why loaders of both firmware modes are needed
}

// needs lists the boot loaders of an image. Whoever makes the image opens them by this list, and so does the check of an operation:
// a loader that is added here is both used and asked for.
func (k imageKind) needs(l Loaders, a media.Arch) []neededLoader {
	debian := a.Loaders()
	var out []neededLoader
	if k == imageSignedISO {
		out = append(out,
			neededLoader{path: l.Shim, pkg: debian.Shim.Package, put: func(p *media.Parts, b media.Blob) { p.Shim = b }},
			neededLoader{path: l.Grub, pkg: debian.Grub.Package, put: func(p *media.Parts, b media.Blob) { p.Grub = b }})
	} else {
		hasOther := k == imageBIOS && l.Isolinux != ""
		out = append(out, neededLoader{path: l.Stub, pkg: debian.Stub.Package, optional: hasOther, put: func(p *media.Parts, b media.Blob) { p.Stub = b }})
	}
	if k == imageEFI || l.Isolinux == "" { // an architecture without BIOS
		return out
	}
	hasOther := k == imageUEFI || k == imageSignedISO
	return append(out,
		neededLoader{path: l.Isolinux, pkg: debian.Isolinux.Package, optional: hasOther, put: func(p *media.Parts, b media.Blob) { p.Isolinux = b }},
		neededLoader{path: l.Ldlinux, pkg: debian.Ldlinux.Package, optional: hasOther, put: func(p *media.Parts, b media.Blob) { p.Ldlinux = b }})
}

// loadersFor are the loaders of an image of a kernel.
func (m *imageCache) loadersFor(kind imageKind, kernel string, arch media.Arch) neededLoaders {
	l, out := m.loaders.forArch(arch), neededLoaders{arch: arch}
	if !isFetched(kernel) {
		out.beside = filepath.Dir(kernel)
	}
	if kind == imageSignedISO && m.signed != nil {
		if shim, grub := m.signed(kernel); shim != "" && grub != "" {
			out.beside, l.Shim, l.Grub = "", shim, grub
		}
	}
	out.list = kind.needs(l, arch)
	if kind == imageISO && len(out.list) > 1 {
		out.mode = modeNotKnown
	}
	return out
}

// open reads the loaders that are needed, and gives the parts that they are. The error names every loader that is not usable, why,
// and the packages that bring them.
func (n neededLoaders) open() (media.Parts, error) {
	var parts media.Parts
	var wrong, packages []string
	for _, l := range n.list {
		if l.optional {
			continue
		}
		b, err := n.read(l)
		if err == nil {
			l.put(&parts, b)
			continue
		}
		if problem.Is(err, problem.Unavailable) {
			return parts, err
		}
		wrong = append(wrong, err.Error())
		if !slices.Contains(packages, l.pkg) {
			packages = append(packages, l.pkg)
		}
	}
	if wrong == nil {
		return parts, nil
	}
	noun := "package "
	if len(packages) > 1 {
		noun = "packages "
	}
	return parts, problem.Invalidf("the boot image cannot be made: %s; install the Debian %s%s, or run salvor ramdisk build --out DIR again%s",
		strings.Join(wrong, "; "), noun, strings.Join(packages, " and "), n.mode)
}

// openOptional adds the optional loaders that are usable.
func (n neededLoaders) openOptional(parts *media.Parts) {
	for _, l := range n.list {
		if l.optional {
			if b, err := n.read(l); err == nil {
				l.put(parts, b)
			}
		}
	}
}

// modeNotKnown is why loaders are asked for that one of the firmware modes does not need.
const modeNotKnown = "; the firmware mode of the node is not known, so loaders of both modes are needed: " +
	"set boot_mode:uefi or boot_mode:bios in the capabilities of its properties"

// maxLoader bounds what is read into memory of a boot loader's file.
const maxLoader = 16 << 20

// read reads a loader into memory. A loader for another architecture than the kernel's is Invalid.
func (n neededLoaders) read(l neededLoader) (media.Blob, error) {
	f, info, at, err := findLoader(n.beside, l.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := readBlob(f, info.Size())
	if err != nil {
		return nil, err
	}
	if is, known := media.ReadArch(b); known && is != n.arch {
		return nil, problem.Invalidf("%s is for %s, and the kernel is for %s", at, is, n.arch)
	}
	return b, nil
}

// findLoader opens a boot loader and gives its path: in the folder beside, if that is not empty, or where it is installed. The error
// says of each place where the file is and is of no use why that is so.
func findLoader(beside, path string) (f *os.File, info fs.FileInfo, at string, err error) {
	var causes []string
	for _, dir := range []string{beside, filepath.Dir(path)} {
		if dir == "" {
			continue
		}
		at = filepath.Join(dir, filepath.Base(path))
		open := func() (*os.File, fs.FileInfo, error) { return openInstalled(at) }
		if dir == beside { // a user's record may name the directory
			open = func() (*os.File, fs.FileInfo, error) { return openBelow(dir, filepath.Base(path)) }
		}
		if f, info, err = usable(open()); err == nil {
			return f, info, at, nil
		}
		if problem.Is(err, problem.Unavailable) {
			return nil, nil, "", err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			causes = append(causes, fmt.Sprintf("%s: %v", at, plainCause(err)))
		}
	}
	where := "is not installed"
	if beside != "" {
		where = "is neither beside the kernel nor installed"
	}
	if len(causes) > 0 {
		where += " in a form that can be used (" + strings.Join(causes, "; ") + ")"
	}
	return nil, nil, "", problem.Invalidf("%s %s", filepath.Base(path), where)
}

// usable closes a boot loader that is empty or too large.
func usable(f *os.File, info fs.FileInfo, err error) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	switch {
	case info.Size() == 0:
		err = problem.Invalidf("it is empty")
	case info.Size() > maxLoader:
		err = problem.Invalidf("it has %d bytes, at most %d", info.Size(), maxLoader)
	default:
		return f, info, nil
	}
	f.Close()
	return nil, nil, err
}

// plainCause is an error of the operating system without the call and the path.
func plainCause(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// networkLoaders lists the files of the TFTP directory from which firmware of a mode, or of both where it is not known, boots.
func (s *Server) networkLoaders(mode string) []string {
	switch mode {
	case "bios":
		return []string{s.cfg.BIOSLoader}
	case "uefi":
		return []string{s.cfg.UEFILoader}
	}
	return []string{s.cfg.BIOSLoader, s.cfg.UEFILoader}
}

// openNetworkLoader opens a file of networkLoaders.
func (s *Server) openNetworkLoader(name string) (*os.File, fs.FileInfo, error) {
	f, info, err := usable(openInstalled(filepath.Join(s.cfg.TFTPDir, name)))
	if err == nil && name == s.cfg.UEFILoader {
		if is, known := media.ReadArch(io.NewSectionReader(f, 0, info.Size())); known && is != media.AMD64 {
			f.Close()
			err = problem.Invalidf("it is for %s, and UEFI firmware is served here for %s", is, media.AMD64)
		}
	}
	if err != nil {
		return nil, nil, problem.Invalidf("the boot loader %s cannot be served over TFTP: %v; install the Debian package ipxe, or name the directory that holds it by [netboot]tftp_root",
			filepath.Join(s.cfg.TFTPDir, name), plainCause(err))
	}
	return f, info, nil
}

// CheckPlan tells why the machine of a plan would not get what its firmware asks for here: a boot loader is missing or of no use, an
// image cannot be made, or firmware that enforces Secure Boot would refuse the image. It opens what the serving of the plan's files
// opens, by the same lists, and makes the image. Of a kernel behind a URL it reads no more than the header, and only where it must;
// cpuArch is the property cpu_arch of the node, which tells the architecture of such a kernel. ours tells whether the machine
// fetches from this server; what another server has is not known, except that a site gets the signed boot loaders from here.
func (s *Server) CheckPlan(ctx context.Context, plan *metal.BootPlan, cpuArch string, ours bool) error {
	switch {
	case plan.Volumes, plan.Method == metal.BootIPXE:
		if !ours || len(s.cfg.Interfaces) == 0 {
			return nil // the loader comes from a server that is not known here
		}
		var all []error
		for _, name := range s.networkLoaders(plan.FirmwareMode) {
			f, _, err := s.openNetworkLoader(name)
			if err == nil {
				f.Close()
			} else if plan.FirmwareMode == "" {
				err = problem.Invalidf("%w%s", err, modeNotKnown)
			}
			all = append(all, err)
		}
		return errors.Join(all...)
	case plan.ISO != "":
		return nil // an image of its own needs no loader of ours
	}
	name := metal.BootISO
	if plan.Method == metal.BootHTTP {
		name = plan.HTTPFile()
	}
	kind := imageKindOf(plan, name)
	if kind != imageSignedISO && !ours {
		return nil
	}
	if isFetched(plan.Kernel) {
		return s.checkFetched(ctx, kind, plan.Kernel, cpuArch)
	}
	return s.checkImage(ctx, kind, plan)
}

// checkImage makes the image of a kernel of this machine. A ramdisk behind a URL is not fetched for that.
func (s *Server) checkImage(ctx context.Context, kind imageKind, plan *metal.BootPlan) error {
	k, err := s.images.source(ctx, plan.Kernel)
	if err != nil {
		return err
	}
	defer k.leave()
	var ramdisk media.Blob = io.NewSectionReader(strings.NewReader("stands for the ramdisk"), 0, 22)
	if !isFetched(plan.Ramdisk) {
		r, err := s.images.source(ctx, plan.Ramdisk)
		if err != nil {
			return err
		}
		defer r.leave()
		ramdisk = r.blob()
	}
	if _, err = s.images.build(kind, plan.Kernel, k.blob(), ramdisk); err != nil {
		return err
	}
	if kind == imageSignedISO {
		return checkKernelSigned(plan.Kernel, k.blob())
	}
	return nil
}

// checkFetched looks at the loaders for a kernel behind a URL. Where nothing tells its architecture, one whose loaders are here is enough.
func (s *Server) checkFetched(ctx context.Context, kind imageKind, kernel, cpuArch string) error {
	loaders := func(a media.Arch) error {
		need := s.images.loadersFor(kind, kernel, a)
		parts, err := need.open()
		if err != nil {
			return err
		}
		if parts.Stub != nil {
			err = media.CheckStub(parts.Stub, a)
		}
		return err
	}
	arch, known := archNamed(cpuArch), cpuArch != ""
	err := loaders(arch)
	if kind != imageSignedISO && (err == nil || known) {
		return err
	}
	header, unread := s.images.downloads.header(ctx, kernel)
	if unread == nil {
		if is, ok := media.ReadArch(header); ok && is != arch {
			known, err = true, loaders(is)
		} else if ok {
			known = true
		}
	}
	switch {
	case kind == imageSignedISO && unread == nil:
		return errors.Join(err, checkKernelSigned(redactURL(kernel), header))
	case kind != imageSignedISO && !known && loaders(media.ARM64) == nil:
		return nil
	}
	return err
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
	kernel, arch := n.Plan.Kernel, archNamed(metal.Text(n.Properties["cpu_arch"]))
	if !isFetched(kernel) {
		f, info, err := openFile(s.images.roots, kernel)
		if err != nil {
			return "", ""
		}
		defer f.Close()
		arch = media.ArchOf(io.NewSectionReader(f, 0, info.Size()))
	}
	dir := ""
	if !isFetched(kernel) {
		dir = filepath.Dir(kernel)
	}
	var at [2]string
	for i, l := range imageSignedISO.needs(s.images.loaders.forArch(arch), arch) {
		if f, _, path, err := findLoader(dir, l.path); err == nil {
			f.Close()
			at[i] = path
		}
	}
	return at[0], at[1]
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
