package host

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"

	"salvor/compute"
	"salvor/durable"
	"salvor/problem"
)

// This file remembers which files a guest used last, where the guest's next start would use others. The hypervisor forgets that once the guest has ended.

// usedDisksFile, among the files of a server, holds a map from the name of a disk to its file.
const usedDisksFile = "used-disks.json"

// rememberUsedDisks writes down the files of a guest that may run, where its next start would use others; else it forgets them. A disk that salvor did not make,
// and that the next start would not have, is no disk of the server.
func (a *Agent) rememberUsedDisks(ctx context.Context, g *compute.Guest) {
	used := map[string]string{}
	for _, disk := range g.Disks {
		next, differs := diskAtNextStart(g, disk)
		lent := next == nil && a.ownFile(ctx, g.ID, disk.Name) == "" // by somebody, to the running guest
		if differs && !lent {
			used[disk.Name] = disk.File
		}
	}
	before, err := a.usedDisks(g.ID)
	if err == nil && maps.Equal(before, used) {
		return
	}
	path := a.identity.path("servers", g.ID, usedDisksFile)
	if len(used) == 0 {
		err = os.Remove(path)
	} else if err = a.identity.makeDir("servers", g.ID); err == nil {
		err = durable.Write(path, mustEncodeJSON(used), 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.Log.Warn("write down which files a guest uses", "server", g.ID, "error", err)
	}
}

// usedDisks are the files that rememberUsedDisks wrote down.
func (a *Agent) usedDisks(server string) (map[string]string, error) {
	text, err := os.ReadFile(a.identity.path("servers", server, usedDisksFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	used := map[string]string{}
	if err == nil {
		err = json.Unmarshal(text, &used)
	}
	return used, err
}

// disksUsedElsewhere are the drifts of a guest that has ended and whose next start would not use the files that it used last.
func (a *Agent) disksUsedElsewhere(g *compute.Guest) (out []compute.Drift) {
	if mayRun(g.Power) {
		return nil
	}
	used, err := a.usedDisks(g.ID)
	if err != nil {
		a.Log.Warn("read which files a guest used last", "server", g.ID, "error", err)
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if next := diskNamed(g.NextDisks, name); next == nil || next.File != used[name] {
			out = append(out, differingStart(g, "was in use", "when the guest ended", compute.GuestDisk{Name: name, File: used[name]}, next))
		}
	}
	return out
}

// refusalToStart is Conflict where a start of a guest that has ended would not use the files that the guest used last. Saved memory brings its own files.
func (a *Agent) refusalToStart(g *compute.Guest) error {
	if g.Power == compute.PowerSaved {
		return nil
	}
	for _, d := range a.disksUsedElsewhere(g) {
		return problem.Conflictf("start guest %s: %s; the writes since then would be lost. To go on with them, name that file on its host: %s. To give them up: virsh start %s",
			g.Name, d, d.Remedy, g.Name)
	}
	return nil
}

// prepareStart looks once at a guest that is about to start, or to restart: it refuses where the start would lose writes, has this host own the guest's
// disks, and marks the start in the console log. A guest that is not there is not started.
func (a *Agent) prepareStart(ctx context.Context, c diskLeaseClaim, restart bool) error {
	g, err := a.guest(ctx, c.server)
	if err != nil || g == nil {
		return err
	}
	if err := a.refusalToStart(g); err != nil {
		return err
	}
	if err := a.leases.acquireAll(ctx, g.Files, c); err != nil {
		return err
	}
	a.markStart(g, restart)
	return nil
}
