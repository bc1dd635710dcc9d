// Package tgt is storage by a Linux SCSI target daemon (tgtd), spoken to by tgtadm on
// the machine on which it runs. It knows the daemon's targets, bindings and connections; it
// keeps nothing of its own, and knows no server, no host and no volume beyond the file of its name.
package tgt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"salvor/problem"
	"salvor/storage"
)

// Options say which daemon it is.
type Options struct {
	// Command is tgtadm; empty: found on the path.
	Command string
	// Control is the daemon's control number (tgtd -C).
	Control int
	// Socket is the beginning of its control socket's path, to which the number is added (TGT_IPC_SOCKET); empty: tgt's own.
	Socket string
	// Portal is the ADDRESS:PORT that exports tell.
	Portal string
	// Files is the path of volumes' files, with VOLUMEID in place of the volume; empty: nothing is exported.
	Files string
}

// Bounds of one call of tgtadm, of one method, and of what is read from it.
const (
	callBound   = 5 * time.Second
	methodBound = 20 * time.Second
	maxOutput   = 8 << 20
	// dropBound is how long a connection may take to be gone after it was deleted; settle is the time between the two readings that
	// find none, in which a login that was under way shows.
	dropBound = 5 * time.Second
	settle    = 300 * time.Millisecond
)

// VolumeWord stands for the volume in Options.Files.
const VolumeWord = "VOLUMEID"

// targets is the beginning of the names of targets that are made here.
const targets = "iqn.2026-11.org.salvor.volume:"

// Tgt is storage.Storage, storage.Excluder and storage.Exporter.
type Tgt struct {
	opts Options
	mu   sync.Mutex // makers of targets choose their numbers one after the other
}

// New makes the storage; it asks the daemon nothing yet.
func New(o Options) (*Tgt, error) {
	if o.Command == "" {
		o.Command = "tgtadm"
	}
	switch {
	case o.Control < 0:
		return nil, problem.Invalidf("storage: tgt: control number %d: want 0 or more", o.Control)
	case o.Files != "" && (!filepath.IsAbs(o.Files) || strings.Count(o.Files, VolumeWord) != 1):
		return nil, problem.Invalidf("storage: tgt: files %q: want an absolute path with %s in it, once", o.Files, VolumeWord)
	case o.Files != "" && o.Portal == "":
		return nil, problem.Invalidf("storage: tgt: files are exported, but no portal is named: initiators would not know where")
	}
	return &Tgt{opts: o}, nil
}

// run calls tgtadm once.
func (t *Tgt) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.opts.Command, append([]string{"-C", strconv.Itoa(t.opts.Control), "--lld", "iscsi"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "LC_ALL=C"}
	if t.opts.Socket != "" {
		cmd.Env = append(cmd.Env, "TGT_IPC_SOCKET="+t.opts.Socket)
	}
	out, complaint, err := storage.Output(cmd, maxOutput)
	switch {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist): // asking again cannot help
		return "", problem.Conflictf("the storage tgt (-C %d) cannot be asked: tgtadm was not found as %s; install the package tgt, or name it in [storage]tgt_command", t.opts.Control, t.opts.Command)
	case err != nil:
		return "", problem.Unavailablef("tgtadm %s: %s (%w)", strings.Join(args, " "), strings.TrimPrefix(complaint, "tgtadm: "), err)
	}
	return string(out), nil
}

func (t *Tgt) targets(ctx context.Context) ([]target, error) {
	out, err := t.run(ctx, "--op", "show", "--mode", "target")
	if err != nil {
		return nil, err
	}
	return parseTargets(out)
}

func (t *Tgt) connections(ctx context.Context, tid int) ([]connection, error) {
	out, err := t.run(ctx, "--op", "show", "--mode", "conn", "--tid", strconv.Itoa(tid))
	if err != nil {
		return nil, err
	}
	return parseConnections(out)
}

func (t *Tgt) find(ctx context.Context, name string) (*target, error) {
	all, err := t.targets(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(x target) bool { return x.name == name })
	if i < 0 {
		return nil, problem.NotFoundf("there is no target %s", name)
	}
	return &all[i], nil
}

// initiatorForm is what is handed to tgtadm as a name: RFC 3720's three kinds.
var initiatorForm = regexp.MustCompile(`^(iqn|eui|naa)\.[A-Za-z0-9.:_-]{1,219}$`)

func checkInitiator(name string) error {
	if !initiatorForm.MatchString(name) {
		return problem.Invalidf("%.250q is no name of an iSCSI initiator", name)
	}
	return nil
}

// binding changes who may log in to a target; kind is "name" or "address".
func (t *Tgt) binding(ctx context.Context, op string, tid int, kind, who string) error {
	_, err := t.run(ctx, "--op", op, "--mode", "target", "--tid", strconv.Itoa(tid), "--initiator-"+kind, who)
	return err
}

// Allow is storage.Storage's.
func (t *Tgt) Allow(ctx context.Context, name, initiator string) error {
	ctx, cancel := context.WithTimeout(ctx, methodBound)
	defer cancel()
	if err := checkInitiator(initiator); err != nil {
		return err
	}
	x, err := t.find(ctx, name)
	if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	if err := t.admit(ctx, x, initiator); err != nil {
		return fmt.Errorf("storage: allow %s on %s: %w", initiator, name, err)
	}
	return nil
}

// admit binds the name first: nobody who may log in is kept out meanwhile. Two who do the same at a time are told by the read-back.
func (t *Tgt) admit(ctx context.Context, x *target, initiator string) error {
	if slices.Contains(x.allowed, initiator) && !slices.Contains(x.allowed, everybody) {
		return nil
	}
	var failed error
	if !slices.Contains(x.allowed, initiator) {
		failed = t.binding(ctx, "bind", x.tid, "name", initiator)
	}
	if slices.Contains(x.allowed, everybody) {
		failed = errors.Join(failed, t.binding(ctx, "unbind", x.tid, "address", everybody))
	}
	now, err := t.find(ctx, x.name)
	if err != nil {
		return err
	}
	if slices.Contains(now.allowed, initiator) && !slices.Contains(now.allowed, everybody) {
		return nil
	}
	if failed == nil {
		failed = problem.Unavailablef("the daemon shows %v as allowed", now.allowed)
	}
	return failed
}

// Revoke is storage.Storage's. A target that admits addresses lets whoever comes from there in by any name: that is told, after
// all else was taken away.
func (t *Tgt) Revoke(ctx context.Context, initiators ...string) error {
	ctx, cancel := context.WithTimeout(ctx, methodBound)
	defer cancel()
	for _, i := range initiators {
		if err := checkInitiator(i); err != nil {
			return err
		}
	}
	if err := t.revoke(ctx, setOf(initiators)); err != nil {
		return fmt.Errorf("storage: revoke %s: %w", strings.Join(initiators[:min(len(initiators), 3)], ", "), err)
	}
	return nil
}

func setOf(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, n := range names {
		out[n] = true
	}
	return out
}

func (t *Tgt) revoke(ctx context.Context, initiators map[string]bool) error {
	all, err := t.targets(ctx)
	if err != nil {
		return err
	}
	for _, x := range all {
		for _, bound := range x.allowed {
			if !initiators[bound] {
				continue
			}
			if err := t.binding(ctx, "unbind", x.tid, "name", bound); err != nil {
				return err
			}
		}
	}
	if err := t.dropTwice(ctx, func(i string) bool { return initiators[i] }); err != nil {
		return err
	}
	if all, err = t.targets(ctx); err != nil {
		return err
	}
	for _, x := range all {
		for _, bound := range x.allowed {
			if initiators[bound] {
				return problem.Unavailablef("target %s still allows %s", x.name, bound)
			}
		}
		if at := x.address(); at != "" {
			return problem.Conflictf("target %s admits %s by address, so the initiator could come back by any name. "+
				"Bind initiators by name, and take the address off with: tgtadm -C %d --lld iscsi --op unbind --mode target --tid %d --initiator-address %s",
				x.name, at, t.opts.Control, x.tid, at)
		}
	}
	return nil
}

// Exclude implements storage.Excluder.
func (t *Tgt) Exclude(ctx context.Context, name string, isStale func(initiator string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, methodBound)
	defer cancel()
	x, err := t.find(ctx, name)
	if err == nil {
		err = t.exclude(ctx, x, isStale)
	}
	if err != nil {
		return fmt.Errorf("storage: exclude initiators from %s: %w", name, err)
	}
	return nil
}

// exclude takes initiators off a target. It also drops connections of initiators that the list has not any more: a call that was cut off
// may have left them.
func (t *Tgt) exclude(ctx context.Context, x *target, isStale func(initiator string) bool) error {
	list, err := t.connections(ctx, x.tid)
	if err != nil {
		return err
	}
	found := slices.ContainsFunc(list, func(c connection) bool { return isStale(c.initiator) })
	for _, name := range x.allowed {
		if !initiatorForm.MatchString(name) || !isStale(name) {
			continue
		}
		found = true
		if err := t.binding(ctx, "unbind", x.tid, "name", name); err != nil {
			return err
		}
	}
	if !found {
		return nil
	}
	if err := t.dropTwice(ctx, isStale, x.name); err != nil {
		return err
	}
	now, err := t.find(ctx, x.name)
	if err != nil {
		return err
	}
	for _, name := range now.allowed {
		if initiatorForm.MatchString(name) && isStale(name) {
			return problem.Unavailablef("target %s still allows %s", x.name, name)
		}
	}
	return nil
}

// dropTwice drops connections, and looks again after a time in which a login that was under way shows.
func (t *Tgt) dropTwice(ctx context.Context, whose func(initiator string) bool, only ...string) error {
	for reading := range 2 {
		if reading > 0 && !pause(ctx, settle) {
			return problem.Unavailablef("no time was left to look again")
		}
		if err := t.drop(ctx, whose, only...); err != nil {
			return err
		}
	}
	return nil
}

// drop ends the connections of initiators, on these targets or on all, and returns when none is left.
func (t *Tgt) drop(ctx context.Context, whose func(initiator string) bool, only ...string) error {
	for end := time.Now().Add(dropBound); ; {
		all, err := t.targets(ctx)
		if err != nil {
			return err
		}
		left := 0
		for _, x := range all {
			if len(only) > 0 && !slices.Contains(only, x.name) {
				continue
			}
			list, err := t.connections(ctx, x.tid)
			if err != nil {
				return err
			}
			for _, c := range list {
				if !whose(c.initiator) {
					continue
				}
				left++
				// One that is gone meanwhile is an error of tgtadm's; the next reading tells.
				_, _ = t.run(ctx, "--op", "delete", "--mode", "conn", "--tid", strconv.Itoa(x.tid), "--sid", c.sid, "--cid", c.cid)
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) || !pause(ctx, 50*time.Millisecond) {
			return problem.Unavailablef("%d connections remain", left)
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Sessions is storage.Storage's.
func (t *Tgt) Sessions(ctx context.Context) ([]storage.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, methodBound)
	defer cancel()
	all, err := t.targets(ctx)
	if err != nil {
		return nil, fmt.Errorf("storage: sessions: %w", err)
	}
	out := []storage.Session{}
	for _, x := range all {
		list, err := t.connections(ctx, x.tid)
		if err != nil {
			return nil, fmt.Errorf("storage: sessions: %w", err)
		}
		for _, c := range list {
			out = append(out, storage.Session{Target: x.name, Initiator: c.initiator, Address: c.address})
		}
	}
	return out, nil
}
