package examine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
)

// OverlaySession holds overlays over the disks of the machine, on which a repair is tried. While it is open no other examination of the machine
// runs, and the kernel refuses writes to the disks. It is for one goroutine at a time.
type OverlaySession struct {
	request Request
	lock    io.Closer
	tools   toolRunner
	kept    []*keptDisk     // nil until Mount
	mending *examinationRun // while systems are mounted
	// places are those of the system that the files of each device fit, by its path, as the last examination found them.
	places map[string][]string
}

// keptDisk is a disk with its overlay.
type keptDisk struct {
	examinedDisk
	wwn    string
	node   string // of the overlay, /dev/dm-0
	file   string // that holds what changed
	sector int
}

// MountedSystem is an installed system that is mounted writable on overlays.
type MountedSystem struct {
	*diagnose.System
	// Place is the folder where its root is mounted.
	Place string
	nodes map[string]string
	inUse map[string]bool
}

// Node is the block device of the overlays by which a device of the machine (/dev/sda1) is read and written. problem.Conflict: a file system
// on it is mounted.
func (m *MountedSystem) Node(device string) (string, error) {
	node := m.nodes[device]
	switch {
	case node == "":
		return "", problem.NotFoundf("%s is no device of this machine that has an overlay", device)
	case m.inUse[node]:
		return "", problem.Conflictf("%s: a file system on it is mounted", device)
	}
	return node, nil
}

// Nodes are all devices of the overlays by the paths that the machine gives them, such as /dev/loop1p1 for /dev/sda1.
func (m *MountedSystem) Nodes() map[string]string { return m.nodes }

// Open opens a session. problem.Conflict: an examination runs, or another session is open. What a killed process left is taken down first.
// The session overwrites the keys of the request with zeros when it is closed.
func Open(ctx context.Context, r Request) (*OverlaySession, error) {
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	lock, err := takeLock()
	if err != nil {
		return nil, err
	}
	s := &OverlaySession{request: r, lock: lock, tools: toolRunner{log: r.Log}}
	if err := newRun(r, nil).takeDown(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take down what an earlier examination left: %w", err), lock.Close())
	}
	return s, nil
}

// Examine examines the machine: before Mount its disks, after Unmount the mended overlays. It changes neither.
func (s *OverlaySession) Examine(ctx context.Context) (*diagnose.Examination, error) {
	if s.mending != nil {
		return nil, problem.Conflictf("the systems of this machine are mounted")
	}
	return examineOnce(ctx, s.request, s)
}

// Mount lays the overlays of the session over all disks and mounts the systems on these roots writable, as their own boot would. A root that
// cannot be mounted is left out.
func (s *OverlaySession) Mount(ctx context.Context, roots []string) ([]*MountedSystem, error) {
	if s.kept != nil {
		return nil, problem.Conflictf("the overlays of this session exist already")
	}
	s.kept = []*keptDisk{}
	if _, err := mountStores(keptDir); err != nil {
		return nil, err
	}
	x := newRun(s.request, s)
	x.mending, x.wanted = true, map[string]bool{}
	for _, root := range roots {
		x.wanted[root] = true
	}
	s.mending = x
	var err error
	if x.kernel, err = openKernelLog(); err != nil {
		return nil, err
	}
	if x.errors, err = openKernelLog(); err != nil {
		return nil, err
	}
	defer x.errors.close()
	if _, err := x.assembleAll(ctx); err != nil {
		return nil, err
	}
	s.recallPlaces(x.devices)
	x.refuseExternalJournals()
	x.refuseUsedPools("/sys/fs/btrfs")
	x.mountPools(ctx)
	found := x.systems(ctx, x.facts(ctx))
	x.addReadErrors(found)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []*MountedSystem
	for _, system := range found {
		m := &MountedSystem{System: system, Place: x.roots[system.Root], nodes: map[string]string{}, inUse: x.mounted}
		for i, d := range x.devices {
			if d.node != "" {
				m.nodes[system.Devices[i].Path] = d.node
			}
		}
		out = append(out, m)
	}
	return out, nil
}

// recallPlaces gives devices the places that an examination found. While systems are mended, other file systems are not mounted, and the rules are to decide
// as before.
func (s *OverlaySession) recallPlaces(devices []*device) {
	for _, d := range devices {
		d.Places = s.places[d.Path]
	}
}

// notePlaces keeps for recallPlaces which places the files of a device fit. Outside of a session it does nothing.
func (s *OverlaySession) notePlaces(d *device) {
	if s == nil || len(d.Places) == 0 {
		return
	}
	if s.places == nil {
		s.places = map[string][]string{}
	}
	s.places[d.Path] = d.Places
}

// Unmount takes down everything but the overlays of the session, so that they hold all that was changed.
func (s *OverlaySession) Unmount(ctx context.Context) error {
	if s.mending == nil {
		return nil
	}
	x := s.mending
	x.closeAll()
	x.kernel.close()
	if err := x.takeDown(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.mending = nil
	unix.Sync()
	return nil
}

// Close takes everything down and lets writes to the disks in again. It may be called again after an error.
func (s *OverlaySession) Close(ctx context.Context) error {
	if s.mending != nil {
		s.mending.closeAll()
		s.mending.kernel.close()
		s.mending = nil
	}
	s.request.ClearKeys()
	if s.lock == nil {
		return nil
	}
	if err := newRun(s.request, nil).takeDown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("take down the overlays of a repair: %w", err)
	}
	err := s.lock.Close()
	s.lock = nil
	return err
}

// coverDisk returns a loop device over what a run sees of a disk: an overlay over the disk, or over the session's overlay, or that overlay
// itself where the disk is mended.
func (s *OverlaySession) coverDisk(ctx context.Context, x *examinationRun, d *examinedDisk, wwn string) (string, error) {
	if s == nil || s.kept == nil {
		return x.coverDisk(ctx, d)
	}
	i := slices.IndexFunc(s.kept, func(k *keptDisk) bool { return k.Path == d.Path })
	switch {
	case i < 0 && !x.mending:
		return "", problem.Unsupportedf("it has no overlay for a repair")
	case i < 0:
		k, err := s.keepDisk(ctx, d, wwn)
		if err != nil {
			return "", err
		}
		return x.showPartitions(k.node, k.sector)
	}
	k := s.kept[i]
	return x.cover(ctx, d, k.node, filepath.Base(d.Path), k.sector)
}

// keepDisk lays the session's overlay over a disk.
func (s *OverlaySession) keepDisk(ctx context.Context, d *examinedDisk, wwn string) (*keptDisk, error) {
	sector, err := protectDisk(d)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(d.Path)
	k := &keptDisk{examinedDisk: *d, wwn: wwn, file: filepath.Join(keptDir, "overlay-"+name), sector: sector}
	if k.node, err = s.tools.layOverlay(ctx, d.Path, k.file, keptPrefix+name, persistentOverlay); err != nil {
		return nil, err
	}
	s.kept = append(s.kept, k)
	return k, nil
}

// CoveredDisk is a disk of the machine with what a repair changed of it.
type CoveredDisk struct {
	Path, Serial, WWN string
	Size              int64 // bytes
	// Overlay is the block device that shows the disk as it is after the repair.
	Overlay string
	// Chunks lists the offsets of the chunks of repair.ChunkSize bytes that were written, in ascending order. The last chunk of a disk may be short.
	Chunks []int64
}

// Changes lists the disks of which something was written on the overlays, and where. problem.Unavailable: an overlay is full.
func (s *OverlaySession) Changes(ctx context.Context) ([]CoveredDisk, error) {
	if s.mending != nil {
		return nil, problem.Conflictf("the systems of this machine are mounted")
	}
	if len(s.kept) == 0 {
		return nil, nil
	}
	status, err := s.tools.must(ctx, "dmsetup", "status", "--target", "snapshot")
	if err != nil {
		return nil, err
	}
	var out []CoveredDisk
	for _, k := range s.kept {
		if _, whole := snapshotStatus(status, keptPrefix+filepath.Base(k.Path)); !whole {
			return nil, problem.Unavailablef("%s: its overlay in memory is full: a machine with more memory has room for the repair", k.Path)
		}
		f, err := os.Open(k.file)
		if err != nil {
			return nil, err
		}
		chunks, err := readExceptions(f, (k.Size+repair.ChunkSize-1)/repair.ChunkSize)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%s: read what changed in its overlay: %w", k.Path, err)
		}
		if len(chunks) == 0 {
			continue
		}
		for i := range chunks {
			chunks[i] *= repair.ChunkSize
		}
		out = append(out, CoveredDisk{Path: k.Path, Serial: k.Serial, WWN: k.wwn, Size: k.Size, Overlay: k.node, Chunks: chunks})
	}
	return out, nil
}

// SetWritable lets writes to a disk of the session in; Close does that for all disks.
func (s *OverlaySession) SetWritable(disk string) error {
	if !slices.ContainsFunc(s.kept, func(k *keptDisk) bool { return k.Path == disk }) {
		return problem.NotFoundf("%s has no overlay of this repair", disk)
	}
	return setWritable(disk)
}

// TakeDown takes down what a killed process left, so that the disks can be written. problem.Conflict: an examination runs or a session is
// open. The returned function lets others in again.
func TakeDown(ctx context.Context, log *slog.Logger) (release func() error, err error) {
	lock, err := takeLock()
	if err != nil {
		return nil, err
	}
	if err := newRun(Request{Log: log}, nil).takeDown(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take down what an earlier examination left: %w", err), lock.Close())
	}
	return lock.Close, nil
}

// isMendable says whether the root to mend may be on a device. The path of a LUKS container is known only once its system's crypttab is read.
func (x *examinationRun) isMendable(d *device) bool {
	if _, ok := fileSystems[d.FS]; !ok || !x.mending || d.node == "" || d.NotExamined != "" {
		return false
	}
	return x.wanted[d.Path] || d.Kind == diagnose.CryptDevice
}

// mountPools mounts the tops of btrfs with roots to mend, by which subvolumes are listed.
func (x *examinationRun) mountPools(ctx context.Context) {
	for _, d := range x.mountable() {
		if d.FS != "btrfs" || !x.isMendable(d) {
			continue
		}
		place, err := x.mountDevice(ctx, d, "subvolid=5")
		if err != nil {
			continue
		}
		d.at = place
		x.volumes[d.Path] = x.subvolumes(ctx, d)
	}
}

// readMounted reads of a mounted file system what mountAll reads of one that is mounted by itself.
func (x *examinationRun) readMounted(d *diagnose.Device, of *device, place string) {
	d.Space = x.space(of, place)
	if tree, closer, err := OpenTree(place); err == nil {
		x.closers = append(x.closers, closer)
		d.Tree = tree
	}
}
