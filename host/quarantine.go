package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/durable"
	"salvor/problem"
)

const (
	// quarantineDir of a disk store holds disks that their servers gave up. It is in the store, so that a rename brings a disk there.
	quarantineDir = ".salvor-quarantine"
	// quarantineTime is the form of the time that begins the name of a quarantined disk.
	quarantineTime = "20060102T150405.000000Z"
	// maxQuarantineList bounds the disks of one answer. A client that reads page after page gets all disks.
	maxQuarantineList = 4000
	// orphanAge is after how long the record of a disk that never came is removed.
	orphanAge = time.Hour
)

// quarantineID is the name of a quarantined disk: time, server and disk. The name alone is enough to list it.
var quarantineID = regexp.MustCompile(`^([0-9]{8}T[0-9]{6}\.[0-9]{6}Z)_([0-9a-f-]{36})_([A-Za-z0-9_-]{1,64})$`)

// quarantineRecord lies beside a quarantined disk and tells what its name does not.
type quarantineRecord struct {
	Reason string `json:"reason"`
	Image  string `json:"image,omitempty"` // digest
	File   string `json:"file"`            // where it lay in the store
}

// quarantine moves a disk that is proven to be the server's into the quarantine of its store, and removes what an unfinished disk left.
func (a *Agent) quarantine(ctx context.Context, server string, d compute.SpecDisk, reason string) error {
	s, path, err := a.stores.removable(ctx, server, d)
	if err != nil {
		return err
	}
	d.Image = nil // of whatever image it is
	there, err := hasFinishedDisk(path, server, d)
	if err != nil {
		return err
	}
	if there {
		if err := s.quarantine(path, server, d, reason, a.controllerTime()); err != nil {
			return problem.New(problem.KindOf(err), "disk %s of server %s cannot be put into quarantine: %w", d.Name, server, err)
		}
		a.Log.Info("put a disk into quarantine", "server", server, "disk", d.Name, "store", s.Name, "reason", reason)
		a.observed.storesChanged()
	}
	return s.removeLeftovers(path)
}

// quarantine writes the record and then renames the disk: after a crash the disk is in its place, or in quarantine with its record.
func (s *diskStore) quarantine(path, server string, d compute.SpecDisk, reason string, at time.Time) error {
	p, err := readProof(path)
	if err != nil {
		return err
	}
	file, err := filepath.Rel(s.Dir, path)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.Dir, quarantineDir)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	to := ""
	for ; ; at = at.Add(time.Microsecond) { // a rename would replace a disk of that name
		to = filepath.Join(dir, at.UTC().Format(quarantineTime)+"_"+server+"_"+d.Name)
		if _, err := os.Lstat(to); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
	}
	if err := durable.Write(to+".json", mustEncodeJSON(quarantineRecord{Reason: reason, Image: p.Image, File: file}), 0o600); err != nil {
		return err
	}
	if err := durable.Rename(path, to); err != nil {
		return err
	}
	return durable.Names(filepath.Dir(path))
}

// quarantined lists the disks in quarantine, oldest first.
func (s *diskStore) quarantined() ([]compute.QuarantinedDisk, error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, quarantineDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var out []compute.QuarantinedDisk
	for _, e := range entries {
		parts := quarantineID.FindStringSubmatch(e.Name())
		if parts == nil {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		at, err := time.Parse(quarantineTime, parts[1])
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		var r quarantineRecord
		if b, err := os.ReadFile(s.quarantinePath(e.Name()) + ".json"); err == nil {
			_ = json.Unmarshal(b, &r)
		}
		out = append(out, compute.QuarantinedDisk{ID: e.Name(), Store: s.Name, Marker: s.knownMarker, ServerID: parts[2], Disk: parts[3], Reason: r.Reason, Image: r.Image, Bytes: info.Size(), At: at})
	}
	slices.SortFunc(out, byQuarantineID)
	return out, nil
}

// byQuarantineID orders disks by time, because an id begins with its time.
func byQuarantineID(x, y compute.QuarantinedDisk) int { return cmp.Compare(x.ID, y.ID) }

// sumQuarantine counts the disks in quarantine and their size in GiB.
func (s *diskStore) sumQuarantine(ctx context.Context) (int, int, error) {
	found, err := withStoreTimeout(ctx, s, s.quarantined)
	size := 0
	for i := range found {
		size += found[i].SizeGiB()
	}
	return len(found), size, err
}

func (s *diskStore) quarantinePath(id string) string { return filepath.Join(s.Dir, quarantineDir, id) }

// listQuarantine lists what is in quarantine in the stores that can be read, oldest first; it fails where none can.
func (w *orderExecution) listQuarantine(ctx context.Context) (compute.Result, error) {
	out, read := []compute.QuarantinedDisk{}, 0
	var unread error
	for _, s := range w.stores {
		var found []compute.QuarantinedDisk
		err := s.there(ctx)
		if err == nil {
			found, err = withStoreTimeout(ctx, s, s.quarantined)
		}
		if err != nil {
			unread = problem.New(problem.KindOf(err), "list the quarantine of disk store %s: %w", s.Name, err)
			w.Log.Warn("a disk store is left out of the list of its quarantine", "store", s.Name, "error", err)
			continue
		}
		for _, d := range found {
			if d.ID > w.args.After && (w.args.Quarantine == "" || d.ID == w.args.Quarantine) {
				out = append(out, d)
			}
		}
		read++
	}
	if read == 0 && unread != nil {
		return compute.Result{}, unread
	}
	slices.SortFunc(out, byQuarantineID)
	most := maxQuarantineList
	if w.args.Limit > 0 {
		most = min(most, w.args.Limit)
	}
	return compute.Result{Quarantine: out[:min(len(out), most)]}, nil
}

// inQuarantine finds a quarantined disk by its id.
func (all diskStores) inQuarantine(ctx context.Context, id string) (*diskStore, fs.FileInfo, error) {
	if !quarantineID.MatchString(id) {
		return nil, nil, problem.Invalidf("%.150q is no id of a disk in quarantine", id)
	}
	var unread error
	for _, s := range all {
		if err := s.there(ctx); err != nil {
			unread = err
			continue
		}
		info, err := withStoreTimeout(ctx, s, func() (fs.FileInfo, error) { return os.Lstat(s.quarantinePath(id)) })
		switch {
		case err == nil && info.Mode().IsRegular():
			return s, info, nil
		case err != nil && !errors.Is(err, os.ErrNotExist):
			unread = err
		}
	}
	if unread != nil {
		return nil, nil, unread
	}
	return nil, nil, problem.NotFoundf("there is no disk %s in quarantine on this host", id)
}

// removeQuarantined removes a disk from quarantine. One that is not there was removed before.
func (w *orderExecution) removeQuarantined(ctx context.Context) (compute.Result, error) {
	s, _, err := w.stores.inQuarantine(ctx, w.args.Quarantine)
	if err != nil {
		return compute.Result{}, err
	}
	w.observed.storesChanged()
	return compute.Result{}, s.dropQuarantined(w.args.Quarantine)
}

func (s *diskStore) dropQuarantined(id string) error {
	path := s.quarantinePath(id)
	// The disk first: a record without a disk lists nothing.
	for _, name := range []string{path, path + ".json"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// restoreDisk moves a disk out of quarantine to be a further disk of a server that is off.
func (w *orderExecution) restoreDisk(ctx context.Context) (compute.Result, error) {
	d, server := w.args.Disk, w.order.ServerID
	if d == nil {
		return compute.Result{}, problem.Invalidf("restore a disk to server %s: no disk is named", server)
	}
	if err := w.isOff(ctx); err != nil {
		return compute.Result{}, err
	}
	to, path, err := w.stores.removable(ctx, server, *d)
	if err != nil {
		return compute.Result{}, err
	}
	there, err := hasFinishedDisk(path, server, *d)
	if err != nil {
		return compute.Result{}, err
	}
	id := w.args.Quarantine
	if there {
		if p, err := readProof(path); err != nil || p.Restored != id {
			return compute.Result{}, problem.Conflictf("disk %s of server %s is there already", d.Name, server)
		}
		return compute.Result{}, nil
	}
	s, _, err := w.stores.inQuarantine(ctx, id)
	switch {
	case err != nil:
		return compute.Result{}, err
	case s.knownMarker != to.knownMarker:
		return compute.Result{}, problem.Conflictf("disk %s lies in store %s, and was to be restored in store %s", id, s.Name, to.Name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil { // its other disks may lie in other stores
		return compute.Result{}, err
	}
	if err := durable.Write(path+".json", mustEncodeJSON(diskProof{Server: server, Disk: d.Name, Restored: id}), 0o600); err != nil {
		return compute.Result{}, err
	}
	if err := durable.Rename(s.quarantinePath(id), path); err != nil {
		return compute.Result{}, err
	}
	w.observed.storesChanged()
	return compute.Result{}, s.dropQuarantined(id)
}

// isOff refuses while the guest has its disks in use.
func (w *orderExecution) isOff(ctx context.Context) error {
	g, err := w.guest(ctx, w.order.ServerID)
	if err == nil && g != nil && g.Power != compute.PowerOff && g.Power != compute.PowerCrashed {
		err = problem.Conflictf("server %s is %s: its disks are in use", w.order.ServerID, g.Power)
	}
	return err
}

// dropReplaced removes the quarantined disks of a server that its owner replaced, and now deletes.
func (all diskStores) dropReplaced(ctx context.Context, server string) error {
	for _, s := range all {
		if s.there(ctx) != nil {
			continue
		}
		found, err := s.quarantined()
		if err != nil {
			return err
		}
		for _, d := range found {
			if d.ServerID == server && d.Reason == compute.QuarantineRebuild {
				if err := s.dropQuarantined(d.ID); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// expireQuarantine removes what was in quarantine for as long as the control plane says. It needs a lease, and a clock that agrees with
// the control plane's.
func (a *Agent) expireQuarantine(ctx context.Context) {
	a.lease.mu.Lock()
	days, held := a.lease.lastResponse.QuarantineDays, a.lease.held && !a.lease.lastResponse.Hold
	a.lease.mu.Unlock()
	if days <= 0 || !held {
		return
	}
	now := a.controllerTime()
	if own := time.Now(); own.Before(now) { // by the earlier of both clocks: one that is wrong removes nothing before its time
		now = own
	}
	before := now.AddDate(0, 0, -days)
	for _, s := range a.stores {
		if s.there(ctx) != nil {
			continue
		}
		found, err := withStoreTimeout(ctx, s, s.quarantined)
		for _, d := range found {
			if err == nil && d.At.Before(before) {
				err = s.dropQuarantined(d.ID)
				a.Log.Info("removed a disk from quarantine", "store", s.Name, "disk", d.ID, "days", days)
				a.observed.storesChanged()
			}
		}
		if err == nil {
			err = s.removeOrphans(time.Now().Add(-orphanAge))
		}
		if err != nil {
			a.Log.Warn("remove what was long enough in quarantine", "store", s.Name, "error", err)
		}
	}
}

// removeOrphans removes old records whose disks never came, or are gone.
func (s *diskStore) removeOrphans(before time.Time) error {
	entries, err := os.ReadDir(filepath.Join(s.Dir, quarantineDir))
	if err != nil {
		return ignoreNotExist(err)
	}
	for _, e := range entries {
		id, isRecord := strings.CutSuffix(e.Name(), ".json")
		info, err := e.Info()
		if !isRecord || err != nil || !info.ModTime().Before(before) {
			continue
		}
		if _, err := os.Lstat(s.quarantinePath(id)); errors.Is(err, os.ErrNotExist) {
			if err := os.Remove(s.quarantinePath(e.Name())); ignoreNotExist(err) != nil {
				return err
			}
		}
	}
	return nil
}

func ignoreNotExist(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// controllerTime is the control plane's time as its newest answer told it; this machine's own before it did.
func (a *Agent) controllerTime() time.Time {
	now, err := a.Alive()
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	if at := a.lease.lastResponse.Now; err == nil && !at.IsZero() {
		return at.Add(now - a.lease.from).UTC()
	}
	return time.Now().UTC()
}
