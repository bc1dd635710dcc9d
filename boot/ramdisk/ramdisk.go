// Package ramdisk builds the environment in which salvor-agent runs: kernel, initramfs, ISO image and UKI. It builds them from Debian
// packages, without root and without installing anything.
//
// It knows Debian's tools and the layout of the ramdisk. It must not know nodes, networks or secrets, because its products are the same for
// every machine. Data of a single machine reaches the ramdisk only by kernel parameters (see boot/media).
//
// Code that builds another small system of the same parts, such as the lab's tenant system, uses a Source and a Tree. The Source gives the
// kernel, modules, busybox and programs; the Tree takes them.
package ramdisk

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"salvor/problem"
)

//go:embed files
var files embed.FS

// Profile says what the ramdisk holds.
type Profile string

const (
	// Minimal is agent, ssh server and busybox: small, so that it boots fast.
	Minimal Profile = "minimal"
	// Diagnose adds what says why a machine does not boot: the drivers of more disks and file systems, and the tools that assemble and
	// check them.
	Diagnose Profile = "diagnose"
	// Full adds what people repair machines with. It unpacks to some 400 MB in memory,
	// so a machine needs 1 GiB and more.
	Full Profile = "full"
)

// Flavour is a Debian kernel flavour.
type Flavour string

const (
	// Cloud is for virtual machines: it knows virtio, Hyper-V, Xen and NVMe only.
	Cloud Flavour = "cloud-amd64"
	// Generic knows real hardware.
	Generic Flavour = "amd64"
	// CloudARM64 and GenericARM64 are the same for arm64.
	CloudARM64   Flavour = "cloud-arm64"
	GenericARM64 Flavour = "arm64"
)

// Options of a build.
type Options struct {
	// Out is the folder for the products; it is made if missing, and other files in it
	// are left alone.
	Out string
	// Arch is the architecture of the machines. It defaults to that of Kernel, then to this machine's.
	Arch Arch
	// Profile defaults to Minimal.
	Profile Profile
	// Kernel defaults to Cloud for Minimal and Diagnose, and to Generic for Full.
	Kernel Flavour
	// Agent is the path of a static salvor-agent.
	Agent string
	// Cache keeps downloaded packages; by default a folder of the user's cache.
	Cache string
	// Compression of the initramfs; by default what boots fastest for the profile.
	Compression Compression
	// Progress is called with one line per stage; may be nil.
	Progress func(string)
}

func (o *Options) complete() error {
	if o.Profile == "" {
		o.Profile = Minimal
	}
	if !slices.Contains([]Profile{Minimal, Diagnose, Full}, o.Profile) {
		return problem.Invalidf("ramdisk profile %q: minimal, diagnose and full are known", string(o.Profile))
	}
	if o.Arch == "" {
		o.Arch = nativeArch()
		if o.Kernel != "" {
			o.Arch = o.Kernel.Arch()
		}
	}
	if _, ok := architectures[o.Arch]; !ok {
		return problem.Invalidf("architecture %q: %s and %s are known", string(o.Arch), AMD64, ARM64)
	}
	if o.Profile == Full && o.Arch != AMD64 {
		return problem.Unsupportedf("ramdisk profile full: it is for %s only; the profiles minimal and diagnose are for %s too", AMD64, o.Arch)
	}
	if o.Kernel == "" {
		o.Kernel = map[Arch]Flavour{AMD64: Cloud, ARM64: CloudARM64}[o.Arch]
		if o.Profile == Full {
			o.Kernel = Generic
		}
	}
	if !slices.Contains([]Flavour{Cloud, Generic, CloudARM64, GenericARM64}, o.Kernel) || o.Kernel.Arch() != o.Arch {
		return problem.Invalidf("kernel flavour %q: cloud-%s and %s are known for %s", string(o.Kernel), o.Arch, o.Arch, o.Arch)
	}
	if o.Compression == "" {
		o.Compression = LZ4
		if o.Profile != Minimal {
			o.Compression = Zstd
		}
	}
	if _, err := o.Compression.writer(discardWriter{}); err != nil {
		return err
	}
	if o.Out == "" {
		return problem.Invalidf("ramdisk: no folder for the products is given")
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return nil
}

type discardWriter struct{}

func (discardWriter) Write(b []byte) (int, error) { return len(b), nil }

// Build makes kernel, initramfs, rescue.iso, rescue.efi and manifest.json in o.Out,
// with the boot loaders from which media for other kernels can be made. Each file
// appears whole or not at all, the manifest last; a failed build leaves the former
// products. Wrong options are problem.Invalid, what the machine lacks (apt, network, a
// package) is problem.Unavailable.
func Build(ctx context.Context, o Options) (Manifest, error) {
	if err := o.complete(); err != nil {
		return Manifest{}, err
	}
	agent, err := checkAgent(o.Agent, o.Arch)
	if err != nil {
		return Manifest{}, err
	}
	src, err := Open(ctx, o.Cache, o.Kernel, o.Progress)
	if err != nil {
		return Manifest{}, fmt.Errorf("build ramdisk: %w", err)
	}
	defer src.Close()
	tree, err := src.rescueTree(ctx, o, agent)
	if err != nil {
		return Manifest{}, fmt.Errorf("build ramdisk: %w", err)
	}
	m, err := src.write(ctx, o, tree)
	if err != nil {
		return Manifest{}, fmt.Errorf("build ramdisk: %w", err)
	}
	return m, nil
}

// checkAgent refuses an agent that cannot run in the ramdisk.
func checkAgent(file string, arch Arch) ([]byte, error) {
	if file == "" {
		return nil, problem.Invalidf("ramdisk: no salvor-agent is given")
	}
	needed, interp, err := elfNeeds(file, arch)
	if err != nil {
		return nil, problem.Invalidf("salvor-agent: %w", err)
	}
	if len(needed) > 0 || interp != "" {
		return nil, problem.Invalidf("salvor-agent %s is not static: build it with CGO_ENABLED=0 GOARCH=%s", file, arch)
	}
	return os.ReadFile(file)
}

// rescueTree fills the initramfs of the profile.
func (s *Source) rescueTree(ctx context.Context, o Options, agent []byte) (*Tree, error) {
	t := NewTree()
	if o.Profile == Full {
		o.Progress("install the repair tools")
		if err := s.addTools(ctx, t); err != nil {
			return nil, err
		}
	}
	o.Progress("fill the initramfs")
	if err := s.AddBusybox(ctx, t); err != nil {
		return nil, err
	}
	if err := s.AddDropbear(ctx, t); err != nil {
		return nil, err
	}
	if err := s.AddISCSI(ctx, t); err != nil {
		return nil, err
	}
	if err := s.AddTrust(ctx, t); err != nil {
		return nil, err
	}
	if o.Profile == Diagnose {
		if err := s.addDiagnosis(ctx, t); err != nil {
			return nil, err
		}
	}
	modules := slices.Concat(minimalModules, ISCSIModules)
	switch o.Profile {
	case Diagnose:
		modules = append(modules, diagnoseModules...)
	case Full:
		modules = append(s.modules.under(fullModuleDirs, fullModulesNot), modules...)
	}
	if err := s.AddModules(t, modules); err != nil {
		return nil, err
	}
	t.accounts()
	t.File("usr/sbin/salvor-agent", 0o755, agent)
	t.File("etc/salvor-ramdisk", 0o644, []byte(fmt.Sprintf("profile=%s\nkernel=%s\n", o.Profile, s.modules.version)))
	for _, f := range []struct{ path, file string }{
		{"init", "init"},
		{"etc/udhcpc/default.script", "default.script"},
		{"usr/sbin/salvor-chroot", "salvor-chroot"},
	} {
		b, err := files.ReadFile("files/" + f.file)
		if err != nil {
			return nil, err
		}
		t.File(f.path, 0o755, b)
	}
	return t, nil
}

// Source is a kernel with its modules and the programs of a ramdisk, unpacked from
// Debian packages into a temporary folder. It is not for concurrent use.
type Source struct {
	archive *debArchive
	modules *moduleSet
	kernel  string
	tools   *os.File // what trees of the full profile read from; may be nil
}

// Open fetches the kernel of a flavour. cache may be empty (the user's cache folder),
// progress nil. Close removes the temporary folder.
func Open(ctx context.Context, cache string, flavour Flavour, progress func(string)) (*Source, error) {
	if progress == nil {
		progress = func(string) {}
	}
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			base = os.TempDir()
		}
		cache = filepath.Join(base, "salvor", "packages")
	}
	// Packages are trusted once their sum is right, but nobody else need write here.
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "salvor-ramdisk-")
	if err != nil {
		return nil, err
	}
	s := &Source{archive: &debArchive{arch: flavour.Arch(), cache: cache, work: work, progress: progress, packages: map[string]*unpackedPackage{}}}
	if err := s.open(ctx, flavour); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Source) open(ctx context.Context, flavour Flavour) error {
	var err error
	if s.archive.apt, err = aptFor(ctx, s.archive.arch, s.archive.cache, s.archive.progress); err != nil {
		return err
	}
	s.archive.progress("find the kernel")
	name, err := s.archive.kernelPackage(ctx, flavour)
	if err != nil {
		return err
	}
	packages := []string{name, "busybox-static", "dropbear-bin"}
	for _, l := range s.archive.arch.Loaders().Files() {
		packages = append(packages, l.Package)
	}
	if err := s.archive.fetch(ctx, packages...); err != nil {
		return err
	}
	dir := s.archive.packages[name].dir
	if s.modules, err = readModules(dir); err != nil {
		return err
	}
	s.kernel = filepath.Join(dir, "boot", "vmlinuz-"+s.modules.version)
	_, err = os.Stat(s.kernel)
	return err
}

// Close removes what was unpacked; the cache stays.
func (s *Source) Close() error {
	if s.tools != nil {
		s.tools.Close()
	}
	return os.RemoveAll(s.archive.work)
}

// Kernel is the path of the kernel, valid until Close.
func (s *Source) Kernel() string { return s.kernel }

// KernelVersion is the name of its modules' folder.
func (s *Source) KernelVersion() string { return s.modules.version }

// AddModules puts the named modules, all they need, and the index of modprobe into a
// tree. Names that the kernel does not have are passed over: they are built in, or
// for other hardware.
func (s *Source) AddModules(t *Tree, names []string) error {
	return s.modules.install(t, s.modules.closure(names))
}

// AddBusybox puts busybox at /usr/bin/busybox with links for its applets.
func (s *Source) AddBusybox(ctx context.Context, t *Tree) error {
	dir, err := s.archive.get(ctx, "busybox-static")
	if err != nil {
		return err
	}
	file, runs := busyboxIn(dir), busyboxIn(dir)
	if s.archive.arch != nativeArch() { // the package of this machine has the same applets
		native := &debArchive{arch: nativeArch(), cache: s.archive.cache, work: filepath.Join(s.archive.work, "native"), progress: s.archive.progress, packages: map[string]*unpackedPackage{}}
		if err := os.MkdirAll(native.work, 0o755); err != nil {
			return err
		}
		if dir, err = native.get(ctx, "busybox-static"); err != nil {
			return err
		}
		runs = busyboxIn(dir)
	}
	out, err := runTool(ctx, "", runs, "--list")
	if err != nil {
		return err
	}
	return t.busybox(file, splitLines(out))
}

func busyboxIn(dir string) string {
	file := filepath.Join(dir, "bin/busybox")
	if _, err := os.Stat(file); err != nil {
		return filepath.Join(dir, "usr/bin/busybox")
	}
	return file
}

// AddDropbear puts the ssh server, dropbearkey, and their libraries into a tree.
func (s *Source) AddDropbear(ctx context.Context, t *Tree) error {
	for _, file := range []string{"usr/sbin/dropbear", "usr/bin/dropbearkey"} {
		if err := t.program(ctx, s.archive, "dropbear-bin", file); err != nil {
			return err
		}
	}
	return nil
}

// loaders are the boot loaders of media, from their packages.
func (s *Source) loaders(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	for _, l := range s.archive.arch.Loaders().Files() {
		dir, err := s.archive.get(ctx, l.Package)
		if err != nil {
			return nil, err
		}
		found[l.Name()] = filepath.Join(dir, l.Path)
	}
	return found, nil
}

// mediaName is what firmware menus show.
func (s *Source) mediaName(p Profile) string {
	return fmt.Sprintf("salvor rescue (%s, Linux %s)", p, s.modules.version)
}
