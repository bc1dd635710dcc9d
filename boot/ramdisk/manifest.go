package ramdisk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"salvor/boot/media"
	"salvor/problem"
)

// Names of the products in the folder of a build.
const (
	FileKernel    = "kernel"
	FileInitramfs = "initramfs"
	FileISO       = "rescue.iso"
	FileUKI       = "rescue.efi"
	FileManifest  = "manifest.json"
)

// Manifest tells what a build made.
type Manifest struct {
	Arch          Arch        `json:"arch"` // empty in those of former releases: amd64
	Profile       Profile     `json:"profile"`
	Kernel        string      `json:"kernel"`
	Compression   Compression `json:"compression"`
	DefaultParams string      `json:"default_params"`
	// Files by name, without the manifest itself.
	Files map[string]Product `json:"files"`
	// Packages that were unpacked, in the order of their names. The tools of the full
	// profile are not among them: mmdebstrap installs those.
	Packages []Package `json:"packages"`
}

// Product is one file of a build.
type Product struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Fields are the places of the kernel parameters in an image.
	Fields []media.Field `json:"fields,omitempty"`
}

// Layout is what media.NewImage needs for a product that is an image.
func (p Product) Layout() media.Layout { return media.Layout{Size: p.Size, Fields: p.Fields} }

const maxManifest = 1 << 20

// ReadManifest reads the manifest of an earlier build in dir: problem.NotFound if
// there is none, problem.Invalid if it cannot be understood.
func ReadManifest(dir string) (Manifest, error) {
	var m Manifest
	f, err := os.Open(filepath.Join(dir, FileManifest))
	if os.IsNotExist(err) {
		return m, problem.NotFoundf("no ramdisk is built in %s (salvor ramdisk build --out %s)", dir, dir)
	}
	if err != nil {
		return m, err
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxManifest)).Decode(&m); err != nil {
		return m, problem.Invalidf("ramdisk manifest in %s: %w", dir, err)
	}
	for name := range m.Files {
		if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
			return m, problem.Invalidf("ramdisk manifest in %s: file name %q", dir, name)
		}
	}
	return m, nil
}

// openParts opens the products of a build in dir for its images. The files stay open until close is called.
func openParts(dir string, arch Arch) (p media.Parts, closeAll func(), err error) {
	var open []*os.File
	closeAll = func() {
		for _, f := range open {
			f.Close()
		}
	}
	l := arch.Loaders()
	to := map[string]*media.Blob{FileKernel: &p.Kernel, FileInitramfs: &p.Initrd, l.Stub.Name(): &p.Stub, l.Shim.Name(): &p.Shim, l.Grub.Name(): &p.Grub}
	if arch == AMD64 {
		to[l.Isolinux.Name()], to[l.Ldlinux.Name()] = &p.Isolinux, &p.Ldlinux
	}
	for name, to := range to {
		h, blob, err := openBlob(filepath.Join(dir, name))
		if err != nil {
			closeAll()
			return media.Parts{}, func() {}, err
		}
		open = append(open, h)
		*to = blob
	}
	return p, closeAll, nil
}

func openBlob(file string) (*os.File, media.Blob, error) {
	f, err := os.Open(file)
	if os.IsNotExist(err) {
		return nil, nil, problem.NotFoundf("ramdisk: %w", err)
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, io.NewSectionReader(f, 0, info.Size()), nil
}

// write makes all products in a folder beside the final ones and moves them over.
func (s *Source) write(ctx context.Context, o Options, tree *Tree) (Manifest, error) {
	m := Manifest{Arch: o.Arch, Profile: o.Profile, Kernel: s.modules.version, Compression: o.Compression,
		DefaultParams: o.Arch.DefaultParams(), Files: map[string]Product{}}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return m, err
	}
	// In the same file system, so that the moves are renames.
	temp, err := os.MkdirTemp(o.Out, ".build-")
	if err != nil {
		return m, err
	}
	defer os.RemoveAll(temp)
	if err := s.writeParts(ctx, o, tree, temp); err != nil {
		return m, err
	}
	images, err := s.writeImages(o, temp)
	if err != nil {
		return m, err
	}
	names := []string{FileKernel, FileInitramfs, FileISO, FileUKI}
	for _, l := range o.Arch.Loaders().Files() {
		names = append(names, l.Name())
	}
	for _, name := range names {
		if m.Files[name], err = describeProduct(filepath.Join(temp, name), images[name]); err != nil {
			return m, err
		}
	}
	for _, p := range s.archive.packages {
		m.Packages = append(m.Packages, p.Package)
	}
	sort.Slice(m.Packages, func(i, j int) bool { return m.Packages[i].Name < m.Packages[j].Name })
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, err
	}
	if err := os.WriteFile(filepath.Join(temp, FileManifest), append(text, '\n'), 0o644); err != nil {
		return m, err
	}
	for _, name := range append(names, FileManifest) {
		if err := os.Rename(filepath.Join(temp, name), filepath.Join(o.Out, name)); err != nil {
			return m, err
		}
	}
	return m, nil
}

// writeParts writes kernel, initramfs and boot loaders.
func (s *Source) writeParts(ctx context.Context, o Options, tree *Tree, dir string) error {
	if err := s.WriteParts(ctx, dir); err != nil {
		return err
	}
	o.Progress(fmt.Sprintf("pack the initramfs (%s)", o.Compression))
	return writeFile(filepath.Join(dir, FileInitramfs), func(w io.Writer) error { return tree.Initramfs(w, o.Compression) })
}

// WriteParts puts the kernel (FileKernel) and the boot loaders that images are made with into a folder.
func (s *Source) WriteParts(ctx context.Context, dir string) error {
	parts, err := s.loaders(ctx)
	if err != nil {
		return err
	}
	parts[FileKernel] = s.kernel
	for name, from := range parts {
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeImages writes ISO image and UKI and returns their layouts.
func (s *Source) writeImages(o Options, dir string) (map[string]media.Layout, error) {
	o.Progress("write the images")
	parts, closeAll, err := openParts(dir, o.Arch)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	parts.Name = s.mediaName(o.Profile)
	layouts := map[string]media.Layout{}
	for name, make := range map[string]func(media.Parts) (*media.Image, error){FileISO: media.ISO, FileUKI: media.UKI} {
		image, err := make(parts)
		if err != nil {
			return nil, err
		}
		layouts[name] = image.Layout()
		err = writeFile(filepath.Join(dir, name), func(w io.Writer) error {
			_, err := io.Copy(w, image.Base())
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return layouts, nil
}

// writeFile makes a file and sees it on the disk before it gets its final name.
func writeFile(path string, content func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := content(f); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

func describeProduct(path string, layout media.Layout) (Product, error) {
	sum, err := sha256File(path)
	if err != nil {
		return Product{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return Product{}, err
	}
	return Product{Size: info.Size(), SHA256: sum, Fields: layout.Fields}, nil
}

func splitLines(b []byte) []string { return strings.Split(strings.TrimSpace(string(b)), "\n") }
