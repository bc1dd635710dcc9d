package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"salvor/compute"
	"salvor/durable"
	"salvor/problem"
)

// This file removes what lies in disk stores. Each removal first proves that the directory is the store that it was.

// there tells whether the directory is the store that it was when this agent opened it. problem.Conflict: it is not.
func (s *diskStore) there(ctx context.Context) error {
	marker, err := s.marker(ctx)
	if err == nil && marker != s.knownMarker {
		err = problem.Conflictf("disk store %s: the marker of %s is %s and was %s: another store is mounted there; mount the right one", s.Name, s.Dir, marker, s.knownMarker)
	}
	return err
}

// removable gives the store and the path of a server's disk, if files may be removed from that store.
func (all diskStores) removable(ctx context.Context, server string, d compute.SpecDisk) (*diskStore, string, error) {
	path, err := all.place(server, d)
	if err != nil {
		return nil, "", err
	}
	s := all.of(d)
	return s, path, s.there(ctx)
}

// erase removes a disk that is proven to be the server's, and what an unfinished one left.
func (all diskStores) erase(ctx context.Context, server string, d compute.SpecDisk) error {
	s, path, err := all.removable(ctx, server, d)
	if err != nil {
		return err
	}
	d.Image = nil // of whatever image it is
	if _, err := hasFinishedDisk(path, server, d); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(s.removeStaged(path), s.removeLeftovers(path))
}

// stagedEnd ends the name of a disk that was made beside the one that it is to replace.
const stagedEnd = ".next"

// removeLeftovers removes what is left at the place of a disk that is gone: its proof, its lease, and what was not finished.
func (s *diskStore) removeLeftovers(path string) error {
	for _, end := range []string{".part", ".json", ".json.new", leaseSuffix, stateSuffix} {
		if err := os.Remove(path + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for _, end := range []string{leaseSuffix, stateSuffix} { // files that a crash left half written
		left, _ := filepath.Glob(path + end + ".*")
		for _, file := range left {
			_ = os.Remove(file)
		}
	}
	left, _ := filepath.Glob(path + ".*" + leaseSuffix) // of overlays that were merged while their host was away
	for _, file := range left {
		if _, err := os.Lstat(diskOf(file)); errors.Is(err, os.ErrNotExist) {
			_ = os.Remove(file)
		}
	}
	if dir := filepath.Dir(path); dir != s.Dir {
		_ = os.Remove(dir) // if it is empty now
	}
	return nil
}

// removeStaged removes the disk that was made beside another one.
func (s *diskStore) removeStaged(path string) error {
	if err := os.Remove(path + stagedEnd); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return s.removeLeftovers(path + stagedEnd)
}

// useStaged puts the disk that was made beside the former one into its place; false: there is none of that image.
func useStaged(ctx context.Context, s *diskStore, server string, d compute.SpecDisk, path string) (bool, error) {
	next := path + stagedEnd
	staged, err := withStoreTimeout(ctx, s, func() (bool, error) { return hasFinishedDisk(next, server, d) })
	switch {
	case problem.Is(err, problem.Conflict):
		return false, s.removeStaged(path)
	case err != nil || !staged:
		return false, err
	}
	p, err := readProof(next)
	if err != nil {
		return false, err
	}
	if err := durable.Write(path+".json", mustEncodeJSON(p), 0o600); err != nil {
		return false, err
	}
	if err := durable.Rename(next, path); err != nil {
		return false, err
	}
	return true, s.removeLeftovers(next)
}

// sweep removes the server's own directory from every store that is there.
func (all diskStores) sweep(ctx context.Context, server string) error {
	var errs []error
	for _, s := range all {
		if s.there(ctx) == nil {
			errs = append(errs, os.RemoveAll(filepath.Join(s.Dir, server)))
		}
	}
	return errors.Join(errs...)
}

// rootDisk is the disk in a store that a server boots from.
func rootDisk(spec *compute.Spec) (compute.SpecDisk, bool) {
	for _, d := range spec.Disks {
		if d.BootIndex == 0 && d.VolumeID == "" {
			return d, true
		}
	}
	return compute.SpecDisk{}, false
}

// stage makes the next root disk while the present one is in use. Where the present one is to be erased, there may be no room for
// both: the image is brought here, and nothing else.
func (w *orderExecution) stage(ctx context.Context) (compute.Result, error) {
	spec, err := w.spec()
	if err != nil {
		return compute.Result{}, err
	}
	d, ok := rootDisk(spec)
	if !ok || d.Image == nil {
		return compute.Result{}, problem.Invalidf("stage of server %s: it has no disk here that is made from an image", spec.ServerID)
	}
	s, path, err := w.stores.removable(ctx, spec.ServerID, d)
	switch {
	case err != nil:
		return compute.Result{}, err
	case w.args.Cancel:
		return compute.Result{}, s.removeStaged(path)
	case w.args.Erase:
		_, release, err := w.images.get(ctx, *d.Image, func(text string) { w.progress(ctx, w.order, "%s", text) })
		if err == nil {
			release()
		}
		return compute.Result{}, err
	}
	staged, err := withStoreTimeout(ctx, s, func() (bool, error) { return hasFinishedDisk(path+stagedEnd, spec.ServerID, d) })
	if problem.Is(err, problem.Conflict) { // of another image, or not whole
		staged, err = false, s.removeStaged(path)
	}
	if err != nil || staged {
		return compute.Result{}, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return compute.Result{}, err
	}
	return compute.Result{}, w.buildDisk(ctx, w.order, spec.ServerID, d, path+stagedEnd)
}
