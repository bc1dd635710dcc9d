package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"salvor/compute"
	"salvor/durable"
	"salvor/problem"
)

// readMarker reads a store's marker; none is os.ErrNotExist.
func readMarker(path string) (string, error) {
	b, err := os.ReadFile(path)
	return markerIn(path, b, err)
}

// haveMarker reads a store's marker, or makes it: of several hosts that make one in a shared directory, the first counts.
func haveMarker(path string) (string, error) {
	b, err := durable.ReadOrMake(path, 0o644, func() ([]byte, error) { return []byte(uuid.NewString() + "\n"), nil })
	return markerIn(path, b, err)
}

// markerIn is the marker that a file holds.
func markerIn(path string, b []byte, err error) (string, error) {
	if err != nil {
		return "", err
	}
	marker := strings.TrimSpace(string(b))
	if uuid.Validate(marker) != nil {
		return "", problem.Invalidf("%s holds no UUID", path)
	}
	return marker, nil
}

// withStoreTimeout does something in a store for as long as storeWithin. A store of which several looks never came back is asked no more until
// one does.
func withStoreTimeout[T any](ctx context.Context, s *diskStore, do func() (T, error)) (T, error) {
	return withStuckLimit(ctx, &s.stuck, s.within, func() error {
		return problem.Unavailablef("disk store %s (%s) does not answer", s.Name, s.Dir)
	}, do)
}

// withFileTimeout is withStoreTimeout for a file that may lie outside of the disk stores, where somebody else put it. The files of a directory there
// share one limit.
func withFileTimeout[T any](ctx context.Context, a *Agent, file string, do func() (T, error)) (T, error) {
	if s := a.storeWith(file); s != nil {
		return withStoreTimeout(ctx, s, do)
	}
	stuck, _ := a.stuckOutside.LoadOrStore(filepath.Dir(file), new(atomic.Int32))
	return withStuckLimit(ctx, stuck.(*atomic.Int32), storeWithin, func() error {
		return problem.Unavailablef("the file system of %s does not answer", file)
	}, do)
}

// withStuckLimit does something that may hang, and gives it up after a time. stuck counts what was given up and goes on: at stuckStore nothing more is
// begun, because each costs a thread.
func withStuckLimit[T any](ctx context.Context, stuck *atomic.Int32, within time.Duration, refusal func() error, do func() (T, error)) (T, error) {
	var none T
	if stuck.Load() >= stuckStore {
		return none, refusal()
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var mu sync.Mutex
	over, late := false, false
	got, err := runWithContext(ctx, func() (T, error) {
		value, err := do()
		mu.Lock()
		defer mu.Unlock()
		if over = true; late {
			stuck.Add(-1)
		}
		return value, err
	})
	mu.Lock()
	defer mu.Unlock()
	if ctx.Err() != nil && !over {
		late = true
		stuck.Add(1)
		return none, refusal()
	}
	return got, err
}

// marker is what the store's marker says at this moment. problem.Conflict: it is not mounted; problem.Unavailable: it cannot be known.
func (s *diskStore) marker(ctx context.Context) (string, error) {
	marker, err := withStoreTimeout(ctx, s, func() (string, error) { return readMarker(filepath.Join(s.Dir, markerFile)) })
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "", problem.Conflictf("disk store %s is not there: %s has no marker; mount it first", s.Name, s.Dir)
	case err != nil && !problem.Is(err, problem.Unavailable):
		return "", problem.Unavailablef("disk store %s: %w", s.Name, err)
	}
	return marker, err
}

// describe tells of all stores as they are now. One that is not mounted has no marker; one that does not answer keeps what it had, but
// for room.
func (all diskStores) describe(ctx context.Context) []compute.DiskStore {
	out := make([]compute.DiskStore, len(all))
	var looks sync.WaitGroup
	for i, s := range all {
		looks.Go(func() { out[i] = s.describe(ctx) })
	}
	looks.Wait()
	return out
}

func (s *diskStore) describe(ctx context.Context) compute.DiskStore {
	now := compute.DiskStore{Name: s.Name, Shared: s.Shared}
	var err error
	if now.Marker, err = s.marker(ctx); err == nil {
		var fs unix.Statfs_t
		if fs, err = withStoreTimeout(ctx, s, func() (fs unix.Statfs_t, err error) { return fs, unix.Statfs(s.Dir, &fs) }); err == nil {
			block := uint64(fs.Bsize)
			now.SizeGiB, now.FreeGiB = int(fs.Blocks*block>>30), int(fs.Bavail*block>>30)
			now.Quarantined, now.QuarantinedGiB, err = s.sumQuarantine(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if problem.Is(err, problem.Unavailable) {
		now.Marker, now.SizeGiB = s.last.Marker, s.last.SizeGiB
		now.Quarantined, now.QuarantinedGiB = s.last.Quarantined, s.last.QuarantinedGiB
	}
	s.last = now
	return now
}
