package netboot

import (
	"context"
	"fmt"
	"sync"

	"salvor/boot/media"
	"salvor/problem"
)

// maxImages bounds how many base images are held open: one or two per ramdisk in use.
const maxImages = 8

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
	need := m.loadersFor(kind, kernel, media.ArchOf(k))
	parts, err := need.open()
	if err != nil {
		return nil, err
	}
	make := func(p media.Parts) (*media.Image, error) {
		p.Kernel, p.Initrd, p.Name = k, r, "salvor"
		if kind == imageEFI {
			return media.UKI(p)
		}
		return media.ISO(p)
	}
	whole := parts
	need.openOptional(&whole)
	image, err := make(whole)
	if err != nil && whole != parts { // a loader of the other firmware mode is no reason
		image, err = make(parts)
	}
	if err != nil {
		return nil, problem.Invalidf("the boot image cannot be made: %w", err)
	}
	return image, nil
}
