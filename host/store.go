package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"salvor/compute"
	"salvor/durable"
	"salvor/hypervisor"
	"salvor/problem"
)

// diskStore is an open directory of disks. What lies in it may be on a share that hangs: whoever reads there is bounded.
type diskStore struct {
	Store
	// knownMarker is the marker that it had when it was first used in this directory: without it the directory is another one, or not mounted.
	knownMarker string
	// within bounds a look into it.
	within time.Duration
	stuck  atomic.Int32
	mu     sync.Mutex
	last   compute.DiskStore
}

type diskStores []*diskStore

const (
	// markerFile names a disk store by a UUID: hosts that read the same one share it.
	markerFile = ".salvor-store"
	// knownMarkersFile of the state directory holds the markers by directory.
	knownMarkersFile = "stores.json"
	// storeWithin bounds a look into a store; of those that do not come back at most stuckStore are waited for.
	storeWithin = 3 * time.Second
	stuckStore  = 3
)

func openStores(c Config, id *hostIdentity) (diskStores, error) {
	if len(c.Stores) == 0 {
		if err := id.makeDir("disks"); err != nil {
			return nil, err
		}
		c.Stores = []Store{{Name: "local", Dir: id.path("disks")}}
	}
	known, err := readKnownMarkers(id.path(knownMarkersFile))
	if err != nil {
		return nil, err
	}
	var out diskStores
	for _, given := range c.Stores {
		if !plainName(given.Name) || out.named(given.Name) != nil {
			return nil, problem.Invalidf("disk store %q: each has a plain name of its own", given.Name)
		}
		dir, err := filepath.Abs(given.Dir)
		if err != nil {
			return nil, err
		}
		given.Dir = dir
		s := &diskStore{Store: given, knownMarker: known[dir], within: storeWithin}
		if err := s.open(c.Log); err != nil {
			return nil, err
		}
		known[dir] = s.knownMarker
		out = append(out, s)
	}
	return out, durable.Write(id.path(knownMarkersFile), mustEncodeJSON(known), 0o600)
}

func readKnownMarkers(path string) (map[string]string, error) {
	known := map[string]string{}
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return known, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &known)
	}
	if err != nil {
		return nil, problem.Invalidf("%s: %w", path, err)
	}
	return known, nil
}

// open reads the marker, or makes it in a directory that never had one. A store that was in use and is not there now, or hangs, keeps
// nobody from beginning: its disks are not to be had until it is back.
func (s *diskStore) open(log *slog.Logger) error {
	marker, err := withStoreTimeout(context.Background(), s, func() (string, error) {
		if info, err := os.Stat(s.Dir); err != nil || !info.IsDir() {
			return "", problem.Invalidf("%s is no directory; make it, or mount it first", s.Dir)
		}
		if s.knownMarker == "" {
			return haveMarker(filepath.Join(s.Dir, markerFile))
		}
		return readMarker(filepath.Join(s.Dir, markerFile))
	})
	if err != nil && s.knownMarker != "" {
		log.Error("a disk store is not there; if it is a new one on purpose, remove "+knownMarkersFile+" in the state directory", "store", s.Name, "directory", s.Dir, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("disk store %s: %w", s.Name, err)
	}
	s.knownMarker, s.last.Marker = marker, marker
	return nil
}

func plainName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

func (all diskStores) named(name string) *diskStore {
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// of is the store of a disk; nil: it is not on this host.
func (all diskStores) of(d compute.SpecDisk) *diskStore {
	if s := all.named(d.Store); s != nil || d.Store != "" || len(all) == 0 {
		return s
	}
	return all[0]
}

// place finds where a disk of a server lies.
func (all diskStores) place(server string, d compute.SpecDisk) (string, error) {
	s := all.of(d)
	if s == nil {
		return "", problem.Invalidf("disk %s of server %s: this host has no disk store %q", d.Name, server, d.Store)
	}
	return s.place(server, d)
}

func (s *diskStore) place(server string, d compute.SpecDisk) (string, error) {
	file := d.File
	if file == "" {
		file = filepath.Join(server, d.Name+".raw")
	}
	if !plainName(d.Name) || !filepath.IsLocal(file) || strings.HasPrefix(filepath.Base(file), ".") {
		return "", problem.Invalidf("disk %.40q of server %s: the file %.100q is not one of a disk store", d.Name, server, file)
	}
	return filepath.Join(s.Dir, file), nil
}

// diskProof lies beside a finished disk and says what it is. A disk is finished when it has its name.
type diskProof struct {
	Server string `json:"server"`
	Disk   string `json:"disk"`
	Image  string `json:"image,omitempty"` // digest
	// Epoch is that of the order that made the disk; 0: not known.
	Epoch int64 `json:"epoch,omitempty"`
	// Restored is the id that the disk had in quarantine.
	Restored string `json:"restored,omitempty"`
}

const rawFormat = "raw"

// hasFinishedDisk tells whether a server's finished disk lies at path; another server's, or one of another image, is problem.Conflict.
func hasFinishedDisk(path, server string, d compute.SpecDisk) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, problem.Conflictf("disk %s of server %s: %s is no file", d.Name, server, path)
	}
	p, err := readProof(path)
	if broken := (*fs.PathError)(nil); errors.As(err, &broken) && !errors.Is(err, os.ErrNotExist) {
		return false, err // it could not be read: nothing follows from that
	}
	if err != nil || p.Server != server || p.Disk != d.Name {
		return false, problem.Conflictf("disk %s of server %s: %s is there and is not proven to be it", d.Name, server, path)
	}
	if d.Image != nil && d.Image.Digest != "" && p.Image != d.Image.Digest {
		return false, problem.Conflictf("disk %s of server %s is made of another image; discard it first", d.Name, server)
	}
	return true, nil
}

func readProof(path string) (diskProof, error) {
	var p diskProof
	b, err := os.ReadFile(path + ".json")
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	return p, err
}

// makeDisk has a server's disk in its place: made from its image, or empty. A copy gets its name when it is whole and on the disk.
func (a *Agent) makeDisk(ctx context.Context, o *compute.Order, server string, d compute.SpecDisk) error {
	path, err := a.stores.place(server, d)
	if err != nil {
		return err
	}
	s := a.stores.of(d)
	if _, err := s.marker(ctx); err != nil {
		return fmt.Errorf("make disk %s of server %s: %w", d.Name, server, err)
	}
	if there, err := withStoreTimeout(ctx, s, func() (bool, error) { return hasFinishedDisk(path, server, d) }); err != nil || there {
		return err
	}
	if d.Image != nil {
		if staged, err := useStaged(ctx, s, server, d, path); err != nil || staged {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil { // after useStaged, which may remove the directory with a staged disk
		return err
	}
	return a.buildDisk(ctx, o, server, d, path)
}

// buildDisk makes a disk at a path where none is.
func (a *Agent) buildDisk(ctx context.Context, o *compute.Order, server string, d compute.SpecDisk, path string) error {
	half := path + ".part"
	if err := os.Remove(half); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	p := diskProof{Server: server, Disk: d.Name, Epoch: o.Epoch}
	var err error
	if d.Image != nil {
		p.Image = d.Image.Digest
		err = a.copyImage(ctx, o, d, half)
	} else {
		err = emptyDisk(half, d)
	}
	if err == nil {
		err = durable.Write(path+".json", mustEncodeJSON(p), 0o600)
	}
	if err != nil {
		_ = os.Remove(half)
		return fmt.Errorf("make disk %s of server %s: %w", d.Name, server, err)
	}
	return durable.Rename(half, path)
}

// copyImage fills a new disk from its image.
func (a *Agent) copyImage(ctx context.Context, o *compute.Order, d compute.SpecDisk, to string) error {
	image, release, err := a.images.get(ctx, *d.Image, func(text string) { a.progress(ctx, o, "%s", text) })
	if err != nil {
		return err
	}
	defer release()
	a.progress(ctx, o, "making disk %s", d.Name)
	return toRaw(ctx, image, d.Image.Format, to, int64(d.SizeGiB)<<30)
}

func emptyDisk(path string, d compute.SpecDisk) error {
	if d.SizeGiB <= 0 {
		return problem.Invalidf("an empty disk needs a size")
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(int64(d.SizeGiB)<<30), f.Sync(), f.Close())
}

// paths are the files of a spec's local disks, all of which must be there.
func (all diskStores) paths(spec *compute.Spec) (map[string]hypervisor.DiskFile, error) {
	out := map[string]hypervisor.DiskFile{}
	for _, d := range spec.Disks {
		if d.VolumeID != "" {
			continue
		}
		path, err := all.place(spec.ServerID, d)
		if err != nil {
			return nil, err
		}
		d.Image = nil
		there, err := withStoreTimeout(context.Background(), all.of(d), func() (bool, error) { return hasFinishedDisk(path, spec.ServerID, d) })
		if err != nil {
			return nil, err
		}
		if !there {
			return nil, problem.Conflictf("disk %s of server %s is not there; prepare it first", d.Name, spec.ServerID)
		}
		out[d.Name] = hypervisor.DiskFile{Path: path, Format: rawFormat}
	}
	return out, nil
}
