package tgt

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/problem"
	"salvor/storage"
)

// exportLUN is where a volume is in its target; LUN 0 is the daemon's own.
const exportLUN = 1

var volumeForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)

// file is where a volume lies.
func (t *Tgt) file(volumeID string) (string, error) {
	if t.opts.Files == "" {
		return "", problem.Unsupportedf("volumes are not exported here: [storage]tgt_files names no files")
	}
	if !volumeForm.MatchString(volumeID) {
		return "", problem.Invalidf("%.120q is no id of a volume", volumeID)
	}
	return strings.ReplaceAll(t.opts.Files, VolumeWord, volumeID), nil
}

// Export is storage.Exporter's.
func (t *Tgt) Export(ctx context.Context, volumeID, initiator string) (storage.Export, error) {
	ctx, cancel := context.WithTimeout(ctx, methodBound)
	defer cancel()
	e := storage.Export{VolumeID: volumeID, Portal: t.opts.Portal, IQN: targets + strings.ToLower(volumeID), LUN: exportLUN}
	path, err := t.file(volumeID)
	if err == nil {
		err = checkInitiator(initiator)
	}
	if err != nil {
		return e, err
	}
	if _, err := os.Stat(path); err != nil {
		return e, problem.NotFoundf("export volume %s: %w", volumeID, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.export(ctx, e.IQN, path, initiator); err != nil {
		return e, fmt.Errorf("storage: export volume %s to %s: %w", volumeID, initiator, err)
	}
	return e, nil
}

func (t *Tgt) export(ctx context.Context, name, path, initiator string) error {
	if err := t.onlyTarget(ctx, name, path); err != nil {
		return err
	}
	x, err := t.find(ctx, name)
	if problem.Is(err, problem.NotFound) {
		x, err = t.make(ctx, name)
	}
	if err != nil {
		return err
	}
	at := slices.IndexFunc(x.luns, func(l lun) bool { return l.number == exportLUN })
	switch {
	case at >= 0 && x.luns[at].path != path:
		return problem.Conflictf("target %s shows %s, not %s", name, x.luns[at].path, path)
	case at < 0:
		if _, err := t.run(ctx, "--op", "new", "--mode", "logicalunit", "--tid", strconv.Itoa(x.tid), "--lun", strconv.Itoa(exportLUN), "-b", path); err != nil {
			return err
		}
	}
	if err := t.exclude(ctx, x, func(other string) bool { return other != initiator }); err != nil {
		return err
	}
	if err := t.admit(ctx, x, initiator); err != nil {
		return err
	}
	return t.exclusive(ctx, name, initiator)
}

// onlyTarget refuses a file that is a LUN of another target. Each target has its own list of initiators, so two targets of a file let in
// two writers. problem.Conflict.
func (t *Tgt) onlyTarget(ctx context.Context, name, path string) error {
	all, err := t.targets(ctx)
	if err != nil {
		return err
	}
	file, err := os.Stat(path)
	if err != nil {
		return err
	}
	for _, x := range all {
		for _, l := range x.luns {
			if x.name == name {
				continue
			}
			if other, err := os.Stat(l.path); l.path == path || err == nil && os.SameFile(file, other) {
				return problem.Conflictf("%s is shown by target %s already; detach it there, or take it off with: tgtadm -C %d --lld iscsi --op delete --mode logicalunit --tid %d --lun %d",
					path, x.name, t.opts.Control, x.tid, l.number)
			}
		}
	}
	return nil
}

// exclusive reads back that a target lets in one initiator and nobody else.
func (t *Tgt) exclusive(ctx context.Context, name, initiator string) error {
	x, err := t.find(ctx, name)
	if err != nil {
		return err
	}
	for _, other := range x.allowed {
		if other != initiator {
			return problem.Conflictf("target %s lets in %s beside %s; take it off with: tgtadm -C %d --lld iscsi --op unbind --mode target --tid %d", name, other, initiator, t.opts.Control, x.tid)
		}
	}
	return nil
}

// make adds a target that nobody may log in to.
func (t *Tgt) make(ctx context.Context, name string) (*target, error) {
	all, err := t.targets(ctx)
	if err != nil {
		return nil, err
	}
	tid := 1
	for _, x := range all {
		tid = max(tid, x.tid+1)
	}
	if _, err := t.run(ctx, "--op", "new", "--mode", "target", "--tid", strconv.Itoa(tid), "-T", name); err != nil {
		return nil, err
	}
	return t.find(ctx, name)
}

// Unexport is storage.Exporter's.
func (t *Tgt) Unexport(ctx context.Context, volumeID, initiator string) error {
	ctx, cancel := context.WithTimeout(ctx, methodBound)
	defer cancel()
	_, err := t.file(volumeID)
	if err == nil {
		err = checkInitiator(initiator)
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.unexport(ctx, targets+strings.ToLower(volumeID), initiator); err != nil && !problem.Is(err, problem.NotFound) {
		return fmt.Errorf("storage: unexport volume %s from %s: %w", volumeID, initiator, err)
	}
	return nil
}

func (t *Tgt) unexport(ctx context.Context, name, initiator string) error {
	x, err := t.find(ctx, name)
	if err != nil {
		return err
	}
	if slices.Contains(x.allowed, initiator) {
		if err := t.binding(ctx, "unbind", x.tid, "name", initiator); err != nil {
			return err
		}
	}
	if err := t.drop(ctx, func(i string) bool { return i == initiator }, x.name); err != nil {
		return err
	}
	x, err = t.find(ctx, name)
	switch {
	case err != nil:
		return err
	case slices.Contains(x.allowed, initiator):
		return problem.Unavailablef("target %s still allows %s", name, initiator)
	case len(x.allowed) > 0:
		return nil
	}
	_, err = t.run(ctx, "--op", "delete", "--mode", "target", "--tid", strconv.Itoa(x.tid))
	return err
}
