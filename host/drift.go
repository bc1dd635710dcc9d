package host

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"salvor/compute"
	"salvor/durable"
	"salvor/hypervisor"
	"salvor/problem"
)

// This file finds disks that lie elsewhere than where salvor put them: a backup tool took a snapshot, or an administrator moved a disk.
// Each disk of a disk store has a proof beside it that names its server. A file without that proof is somebody else's work.

// maxChain bounds the files that one disk is based on.
const maxChain = 64

// driftCache keeps what was found of guests whose disks have not changed since, so that a look at a quiet guest reads no file.
type driftCache struct {
	mu    sync.Mutex
	known map[string]diskLook
}

type diskLook struct{ now, next []compute.GuestDisk }

// listGuests lists the guests of the hypervisor, with what somebody else changed of salvor's own.
func (a *Agent) listGuests(ctx context.Context) ([]compute.Guest, error) {
	guests, err := a.Hypervisor.Guests(ctx)
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool, len(guests))
	for i := range guests {
		if g := &guests[i]; g.Ours {
			a.addDrift(ctx, g)
			a.addRoom(ctx, g)
			a.copyState(ctx, g)
			there[g.ID] = true
		}
	}
	a.drifts.mu.Lock()
	maps.DeleteFunc(a.drifts.known, func(id string, _ diskLook) bool { return !there[id] })
	a.drifts.mu.Unlock()
	a.states.mu.Lock()
	maps.DeleteFunc(a.states.written, func(id string, _ writtenState) bool { return !there[id] })
	a.states.mu.Unlock()
	return guests, nil
}

// addDrift adds to a guest's drift what its disks show. Disks come first: their data are at stake.
func (a *Agent) addDrift(ctx context.Context, g *compute.Guest) {
	look := diskLook{now: g.Disks, next: g.NextDisks}
	a.drifts.mu.Lock()
	known, seen := a.drifts.known[g.ID]
	a.drifts.mu.Unlock()
	if seen && reflect.DeepEqual(known, look) {
		return
	}
	disks, complete := a.diskDrift(ctx, g)
	if mayRun(g.Power) {
		a.rememberUsedDisks(ctx, g)
	}
	disks = append(disks, a.disksUsedElsewhere(g)...)
	a.drifts.mu.Lock()
	if complete && len(disks) == 0 {
		a.drifts.known[g.ID] = look
	} else {
		delete(a.drifts.known, g.ID)
	}
	a.drifts.mu.Unlock()
	// What the files show of a disk says more than that its definition was changed.
	rest := slices.DeleteFunc(slices.Clone(g.Drift), func(d compute.Drift) bool {
		return slices.ContainsFunc(disks, func(e compute.Drift) bool { return e.Part == d.Part })
	})
	g.Drift, g.DriftUnknown = append(disks, rest...), !complete
}

// diskDrift compares the disks of a guest with the files that salvor made. complete is false where a store could not be read: nothing is
// said of a disk there.
func (a *Agent) diskDrift(ctx context.Context, g *compute.Guest) (out []compute.Drift, complete bool) {
	complete = true
	for _, disk := range g.Disks {
		if next, differs := diskAtNextStart(g, disk); differs {
			out = append(out, differingStart(g, "is in use", "", disk, next))
			continue
		}
		d, known := a.judgeDisk(ctx, g, disk)
		complete = complete && known
		if d != nil {
			out = append(out, *d)
		}
	}
	return out, complete
}

// diskAtNextStart is a disk of a guest as the next start would have it, nil: not at all. differs: that is another file. A guest whose next start the
// hypervisor does not tell differs in nothing.
func diskAtNextStart(g *compute.Guest, now compute.GuestDisk) (next *compute.GuestDisk, differs bool) {
	next = diskNamed(g.NextDisks, now.Name)
	return next, g.NextDisks != nil && (next == nil || next.File != now.File)
}

// differingStart is the drift of a disk that the next start would not have, or have in another file. is and when say how the guest uses its file.
func differingStart(g *compute.Guest, is, when string, now compute.GuestDisk, next *compute.GuestDisk) compute.Drift {
	would := "would not have it"
	if next != nil {
		would = "would use " + next.File
	}
	text := is + " in " + now.File
	if when != "" {
		text += " " + when
	}
	return compute.Drift{Part: "disk " + now.Name, Disk: true, Text: text + ", and the next start " + would, Remedy: "virsh edit " + g.Name}
}

func diskNamed(disks []compute.GuestDisk, name string) *compute.GuestDisk {
	for i := range disks {
		if disks[i].Name == name {
			return &disks[i]
		}
	}
	return nil
}

// judgeDisk is the drift of one disk, nil if it is salvor's own; false: its store could not be read.
func (a *Agent) judgeDisk(ctx context.Context, g *compute.Guest, disk compute.GuestDisk) (*compute.Drift, bool) {
	drift := &compute.Drift{Part: "disk " + disk.Name, Disk: true}
	target := cmp.Or(disk.Target, disk.Name)
	own, err := a.isOwnFile(ctx, g.ID, disk.Name, disk.File)
	switch {
	case err != nil:
		return nil, false
	case own && disk.Copying:
		drift.Text, drift.Remedy = "is being copied from "+disk.File+" by a block job of libvirt, and the guest may go on in the copy", "virsh blockjob "+g.Name+" "+target+" --abort"
		return drift, true
	case own && disk.Format != "" && disk.Format != rawFormat:
		drift.Text, drift.Remedy = fmt.Sprintf("is opened as %s, and salvor made %s as raw", disk.Format, disk.File), "virsh edit "+g.Name
		return drift, true
	case own:
		return nil, true
	}
	if chain := a.chainOf(ctx, disk); len(chain) > 0 {
		for _, file := range chain {
			if own, err := a.isOwnFile(ctx, g.ID, disk.Name, file); err == nil && own {
				drift.Text = fmt.Sprintf("lies in %s, an overlay over %s: an external snapshot", disk.File, file)
				drift.Remedy = fmt.Sprintf("virsh blockcommit %s %s --active --pivot --wait", g.Name, target)
				return drift, true
			}
		}
	}
	drift.Text = "lies in " + disk.File + ", which is no disk that salvor made"
	made := a.ownFile(ctx, g.ID, disk.Name)
	_, err = withFileTimeout(ctx, a, disk.File, func() (fs.FileInfo, error) { return os.Stat(disk.File) })
	switch {
	case made == "" && slices.ContainsFunc(g.Drift, func(d compute.Drift) bool { return d.Part == drift.Part && d.Text == compute.DriftAdded }):
		drift.Text = "lies in " + disk.File + ", and someone other than salvor added it"
		drift.Remedy = fmt.Sprintf("virsh detach-disk %s %s --persistent", g.Name, target)
	case made == "":
	case errors.Is(err, fs.ErrNotExist):
		drift.Text = fmt.Sprintf("lies in %s, which is not there now, and salvor made it in %s", disk.File, made)
	case slices.ContainsFunc(g.Disks, func(other compute.GuestDisk) bool { return other.File == made }):
		drift.Text = fmt.Sprintf("lies in %s, and another disk of the guest in %s", disk.File, made)
	default:
		drift.Text = fmt.Sprintf("lies in %s, and salvor made it in %s", disk.File, made)
		drift.Remedy = fmt.Sprintf("virsh blockcopy %s %s --dest %s --format raw --reuse-external --transient-job --wait --pivot", g.Name, target, made)
	}
	return drift, true
}

// useGuestDisks has a domain read the files that the guest uses, where these are others than salvor made.
func useGuestDisks(d *hypervisor.Domain, g *compute.Guest) {
	if g == nil {
		return
	}
	for _, disk := range g.Disks {
		if own, has := d.Paths[disk.Name]; has && own.Path != disk.File {
			d.Paths[disk.Name] = hypervisor.DiskFile{Path: disk.File, Format: cmp.Or(disk.Format, rawFormat)}
		}
	}
}

// storeWith is the disk store that a file lies in; nil: it lies in none. Of stores that lie in each other the inner one has the file.
func (a *Agent) storeWith(file string) *diskStore {
	var in *diskStore
	for _, s := range a.stores {
		if strings.HasPrefix(file, s.Dir+"/") && (in == nil || len(s.Dir) > len(in.Dir)) {
			in = s
		}
	}
	return in
}

// sharedStoreWith is storeWith for stores that other hosts may see.
func (a *Agent) sharedStoreWith(file string) *diskStore {
	if s := a.storeWith(file); s != nil && s.Shared {
		return s
	}
	return nil
}

// isOwnFile tells whether a file is the disk of that name which salvor made for a server. An error: its store cannot be read now.
func (a *Agent) isOwnFile(ctx context.Context, server, name, file string) (bool, error) {
	s := a.storeWith(file)
	if s == nil {
		return false, nil
	}
	p, err := withStoreTimeout(ctx, s, func() (diskProof, error) { return readProof(file) })
	if errors.Is(err, fs.ErrNotExist) {
		return false, s.there(ctx) // a directory that is not mounted holds no proof either
	}
	if problem.Is(err, problem.Unavailable) || errors.As(err, new(*fs.PathError)) {
		return false, err
	}
	return err == nil && p.Server == server && p.Disk == name, nil
}

// ownFile is the file of the disk of that name which salvor made for a server; empty: there is none.
func (a *Agent) ownFile(ctx context.Context, server, name string) string {
	for _, s := range a.stores {
		for _, file := range []string{filepath.Join(s.Dir, server+"-"+name), filepath.Join(s.Dir, server, name+".raw")} {
			if own, err := a.isOwnFile(ctx, server, name, file); err == nil && own {
				return file
			}
		}
	}
	return ""
}

// chainOf are the files that a disk is based on, as the hypervisor tells them, or else as the heads of the files tell them.
func (a *Agent) chainOf(ctx context.Context, disk compute.GuestDisk) []string {
	if len(disk.Chain) > 0 {
		return disk.Chain
	}
	var out []string
	if disk.Format == rawFormat {
		return nil // its first bytes are the guest's
	}
	for file := disk.File; len(out) < maxChain; {
		s := a.storeWith(file)
		if s == nil {
			break
		}
		below, err := withStoreTimeout(ctx, s, func() (string, error) { return backingFile(file) })
		if err != nil || below == "" || slices.Contains(out, below) {
			break
		}
		out = append(out, below)
		file = below
	}
	return out
}

// Head of a qcow2 file: the magic number, and where the name of the backing file stands (QEMU's docs/interop/qcow2).
const (
	qcow2Magic   = "QFI\xfb"
	qcow2Head    = 20
	maxQcow2Name = 1023
)

// backingFile is the absolute path of the file that a qcow2 file is based on; empty: it is no qcow2, or based on none.
func backingFile(file string) (string, error) {
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
		return "", err // a pipe would hold whoever opens it
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, qcow2Head)
	if _, err := io.ReadFull(f, head); err != nil || string(head[:4]) != qcow2Magic {
		return "", nil
	}
	at, size := binary.BigEndian.Uint64(head[8:]), binary.BigEndian.Uint32(head[16:])
	if at == 0 || size == 0 || size > maxQcow2Name || at > 1<<20 {
		return "", nil
	}
	name := make([]byte, size)
	if _, err := f.ReadAt(name, int64(at)); err != nil {
		return "", err
	}
	path := strings.TrimPrefix(string(name), "file:")
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(file), path)
	}
	return filepath.Clean(path), nil
}

// overlaysOf are the files in disk stores that tools of others made for the disks of a guest: overlays, and copies that the guest went on in.
// Their names begin as the name of the disk does, so that no image which several guests share is among them. left are the others.
func (a *Agent) overlaysOf(ctx context.Context, g *compute.Guest, disks []compute.SpecDisk) (overlays, left []string) {
	if g == nil {
		return nil, nil
	}
	var own []string
	for _, d := range disks {
		if path, err := a.stores.place(g.ID, d); err == nil && d.VolumeID == "" {
			own = append(own, path)
		}
	}
	for _, disk := range slices.Concat(g.Disks, g.NextDisks) {
		for _, file := range append([]string{disk.File}, a.chainOf(ctx, disk)...) {
			file = filepath.Clean(file)
			belongs := slices.ContainsFunc(own, func(path string) bool { return strings.HasPrefix(file, path) })
			switch {
			case slices.Contains(own, file) || slices.Contains(overlays, file) || slices.Contains(left, file):
			case belongs && a.storeWith(file) != nil:
				overlays = append(overlays, file)
			default:
				left = append(left, file)
			}
		}
	}
	return overlays, left
}

// dropOverlays takes the overlays of a server's disks away with the disks: into quarantine, or for good.
func (a *Agent) dropOverlays(ctx context.Context, server string, overlays []string, erase bool, reason string) error {
	for i, file := range overlays {
		s := a.storeWith(file)
		if s == nil {
			return problem.Conflictf("remove %s, which lies over a disk of server %s: it is in no disk store of this host any more", file, server)
		}
		if err := s.there(ctx); err != nil {
			return err
		}
		if _, err := withStoreTimeout(ctx, s, func() (bool, error) {
			if !erase {
				d := compute.SpecDisk{Name: fmt.Sprint("overlay", i)}
				proof := mustEncodeJSON(diskProof{Server: server, Disk: d.Name})
				if err := durable.Write(file+".json", proof, 0o600); err != nil {
					return false, err
				}
				if err := s.quarantine(file, server, d, reason, a.controllerTime()); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return false, err
				}
			} else if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
			return true, s.removeLeftovers(file)
		}); err != nil {
			return fmt.Errorf("remove %s, which lies over a disk of server %s: %w", file, server, err)
		}
		a.Log.Info("removed an overlay with its disk", "server", server, "file", file, "erased", erase)
	}
	return nil
}

// overlaysFile lists the overlays of a server that is being removed: once its guest is gone, nothing else tells of them.
const overlaysFile = "overlays.json"

// rememberOverlays finds the overlays of a guest before it is removed, and writes them down. Without a guest it gives those that were written
// down by a try that a crash cut short.
func (a *Agent) rememberOverlays(ctx context.Context, server string, g *compute.Guest, disks []compute.SpecDisk) (overlays, left []string, err error) {
	path := a.identity.path("servers", server, overlaysFile)
	if g == nil {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, nil
		}
		if err == nil {
			err = json.Unmarshal(text, &overlays)
		}
		return overlays, nil, err
	}
	overlays, left = a.overlaysOf(ctx, g, disks)
	if len(overlays) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		return nil, left, nil
	}
	if err := a.identity.makeDir("servers", server); err != nil {
		return nil, nil, err
	}
	return overlays, left, durable.Write(path, mustEncodeJSON(overlays), 0o600)
}
