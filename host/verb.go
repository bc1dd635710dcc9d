package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"salvor/boot/media"
	"salvor/compute"
	"salvor/durable"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/secret"
)

// orderExecution is one order with what it needs.
type orderExecution struct {
	*Agent
	order  *compute.Order
	secret compute.OrderSecret
	args   compute.Args
}

// verbs are what orders have done. Each may be done again: it reads first, or makes what is as it should be the same again.
var verbs = map[compute.Verb]func(w *orderExecution, ctx context.Context) (compute.Result, error){
	compute.FindFiles: (*orderExecution).findFiles,

	compute.Prepare:  (*orderExecution).prepare,
	compute.Define:   (*orderExecution).define,
	compute.SetPower: (*orderExecution).power,
	compute.Unlock:   (*orderExecution).unlock,
	compute.Attach:   (*orderExecution).attach,
	compute.Detach:   (*orderExecution).detach,
	compute.Release:  (*orderExecution).release,
	compute.Remove:   (*orderExecution).remove,
	compute.Console:  (*orderExecution).console,
	compute.Look:     (*orderExecution).look,
	compute.Export:   (*orderExecution).export,
	compute.Discard:  (*orderExecution).discard,
	compute.Probe:    (*orderExecution).probe,
	compute.Stage:    (*orderExecution).stage,
	compute.Diagnose: (*orderExecution).diagnose,

	compute.RestoreDisk: (*orderExecution).restoreDisk, compute.ListQuarantine: (*orderExecution).listQuarantine, compute.RemoveQuarantined: (*orderExecution).removeQuarantined,

	compute.MigrateBegin: (*orderExecution).migrateBegin, compute.MigratePrepare: (*orderExecution).migratePrepare, compute.MigratePerform: (*orderExecution).migratePerform,
	compute.MigrateFinish: (*orderExecution).migrateFinish, compute.MigrateConfirm: (*orderExecution).migrateConfirm,
}

// do carries an order out, once.
func (a *Agent) do(ctx context.Context, t orderTask) (compute.Result, error) {
	w := &orderExecution{Agent: a, order: t.order, secret: t.secret}
	verb, ok := verbs[t.order.Verb]
	if !ok {
		return compute.Result{}, problem.Unsupportedf("this agent does not know how to %.40q; update salvor on this host", t.order.Verb)
	}
	if len(t.order.Args) > 0 {
		if err := json.Unmarshal(t.order.Args, &w.args); err != nil {
			return compute.Result{}, problem.Invalidf("%s of server %s: arguments: %w", t.order.Verb, t.order.ServerID, err)
		}
	}
	if s := w.args.Spec; s != nil && (s.ServerID != t.order.ServerID || s.Epoch != t.order.Epoch) {
		return compute.Result{}, problem.Invalidf("%s of server %s: the spec is of server %.40q, epoch %d", t.order.Verb, t.order.ServerID, s.ServerID, s.Epoch)
	}
	if t.order.Verb.LeavesDisks(&w.args) {
		g, err := w.guest(ctx, t.order.ServerID)
		if err == nil && g != nil {
			err = g.RefusalToLeave()
		}
		if err != nil {
			return compute.Result{}, err
		}
	}
	return verb(w, ctx)
}

func (w *orderExecution) spec() (*compute.Spec, error) {
	if w.args.Spec == nil {
		return nil, problem.Invalidf("%s of server %s: no spec", w.order.Verb, w.order.ServerID)
	}
	return w.args.Spec, nil
}

// path is that of a file of the server's on this host, outside of the disk stores.
func (w *orderExecution) path(names ...string) string {
	return w.identity.path(append([]string{"servers", w.order.ServerID}, names...)...)
}

// Files of a server.
const (
	driveFile   = "drive.iso"
	consoleFile = "console.log"
	channelFile = "rescue.sock"
)

func (w *orderExecution) prepare(ctx context.Context) (compute.Result, error) {
	spec, err := w.spec()
	if err != nil {
		return compute.Result{}, err
	}
	if err := w.identity.makeDir("servers", w.order.ServerID); err != nil {
		return compute.Result{}, err
	}
	// A planned move prepares while its source still runs the guest. An evacuation is refused before anything is made or attached.
	if w.args.Receipt != "" {
		if err := w.leases.acquireAll(ctx, w.filesOf(spec), w.claim(true)); err != nil {
			return compute.Result{}, err
		}
	}
	if w.args.Found {
		if err := w.found(ctx, spec); err != nil {
			return compute.Result{}, err
		}
	}
	if w.args.NeedsState {
		if err := w.requireState(ctx, spec); err != nil {
			return compute.Result{}, err
		}
	}
	for _, d := range spec.Disks {
		if d.VolumeID == "" && !w.args.Found {
			if err := w.makeDisk(ctx, w.order, spec.ServerID, d); err != nil {
				return compute.Result{}, err
			}
		}
	}
	if spec.Drive {
		if err := w.makeDrive(driveFile, w.secret.Drive); err != nil {
			return compute.Result{}, err
		}
	}
	if spec.Rescue != nil {
		return compute.Result{}, w.prepareRescue(ctx, spec.Rescue)
	}
	return compute.Result{}, nil
}

// makeDrive writes a config drive. Without files the one that is there counts.
func (w *orderExecution) makeDrive(name string, files map[string][]byte) error {
	path := w.path(name)
	if len(files) == 0 {
		if _, err := os.Stat(path); err != nil {
			return problem.Invalidf("server %s: its config drive is not here and the order brings none", w.order.ServerID)
		}
		return nil
	}
	content, err := media.ConfigDrive(files)
	if err != nil {
		return fmt.Errorf("config drive of server %s: %w", w.order.ServerID, err)
	}
	return durable.Write(path, content, 0o600)
}

// domain is the spec with where its parts lie on this host.
func (w *orderExecution) domain() (hypervisor.Domain, error) {
	spec, err := w.spec()
	if err != nil {
		return hypervisor.Domain{}, err
	}
	d := hypervisor.Domain{Spec: *spec, ConsolePath: w.path(consoleFile), ChannelPath: w.path(channelFile), CHAP: map[string]secret.Value{}}
	if d.Paths, err = w.stores.paths(spec); err != nil {
		return d, err
	}
	for volume, password := range w.secret.CHAP {
		d.CHAP[volume] = secret.New(password)
	}
	d.State = w.args.State
	if spec.Drive {
		d.DrivePath = w.path(driveFile)
		if _, err := os.Stat(d.DrivePath); err != nil {
			return d, problem.Conflictf("the config drive of server %s is not there; prepare it first", spec.ServerID)
		}
	}
	if spec.Rescue != nil {
		err = w.rescueFiles(&d)
	}
	return d, err
}

func (w *orderExecution) define(ctx context.Context) (compute.Result, error) {
	if err := w.identity.makeDir("servers", w.order.ServerID); err != nil {
		return compute.Result{}, err
	}
	d, err := w.domain()
	if err != nil {
		return compute.Result{}, err
	}
	if w.args.Fresh {
		if err := w.fresh(ctx, &d.Spec); err != nil {
			return compute.Result{}, err
		}
	}
	if err := w.leases.acquireAll(ctx, pathsOf(&d), w.claim(false)); err != nil {
		return compute.Result{}, err
	}
	result := compute.Result{}
	if w.args.CopiedState {
		if result.StateTaken, err = w.takeState(ctx, &d); err != nil {
			return compute.Result{}, err
		}
	}
	return result, w.Hypervisor.Define(ctx, d)
}

// claim is what this order wants the leases of its disks for.
func (w *orderExecution) claim(checkOnly bool) diskLeaseClaim {
	return diskLeaseClaim{server: w.order.ServerID, epoch: w.order.Epoch, receipt: w.args.Receipt, checkOnly: checkOnly}
}

// filesOf are the files of a spec's disks, whether they are there or not.
func (w *orderExecution) filesOf(spec *compute.Spec) []string {
	var out []string
	for _, d := range spec.Disks {
		if path, err := w.stores.place(spec.ServerID, d); err == nil && d.VolumeID == "" {
			out = append(out, path)
		}
	}
	return out
}

func pathsOf(d *hypervisor.Domain) []string {
	var out []string
	for _, f := range d.Paths {
		out = append(out, f.Path)
	}
	return out
}

// ownDisks has this host own the disks of a guest that is about to run.
func (a *Agent) ownDisks(ctx context.Context, server string, c diskLeaseClaim) error {
	if !a.leases.anyShared() {
		return nil
	}
	g, err := a.guest(ctx, server)
	if err != nil || g == nil {
		return err // a guest that is not there is not started
	}
	return a.leases.acquireAll(ctx, g.Files, c)
}

func (w *orderExecution) power(ctx context.Context) (compute.Result, error) {
	switch w.args.Power {
	case compute.PowerOn, compute.PowerOff, compute.PowerPaused, compute.PowerSaved:
	default:
		return compute.Result{}, problem.Invalidf("power of server %s: %.40q is no state to be brought to", w.order.ServerID, w.args.Power)
	}
	if w.args.Power == compute.PowerOn {
		if err := w.prepareStart(ctx, w.claim(false), w.args.Restart); err != nil {
			return compute.Result{}, err
		}
	}
	lost, err := w.losesMemory(ctx)
	if err != nil {
		return compute.Result{}, err
	}
	soft, err := w.Hypervisor.SetPower(ctx, w.order.ServerID, hypervisor.Power{
		State: w.args.Power, Soft: w.args.Soft, Restart: w.args.Restart, KeepSaved: w.args.KeepSaved, Within: time.Duration(w.args.Within) * time.Second,
	})
	if err != nil {
		return compute.Result{}, err
	}
	// How it is now is told as well; that it is done is known without it.
	g, err := w.guest(ctx, w.order.ServerID)
	if err != nil {
		w.Log.Debug("read a guest after its power was set", "server", w.order.ServerID, "error", err)
	}
	if g != nil && !mayRun(g.Power) {
		w.leases.free(ctx, w.order.ServerID, g.Files)
	}
	return compute.Result{Soft: soft, Guest: g, MemoryLost: lost}, nil
}

func (w *orderExecution) attach(ctx context.Context) (compute.Result, error) {
	return w.plug(ctx, true)
}
func (w *orderExecution) detach(ctx context.Context) (compute.Result, error) {
	return w.plug(ctx, false)
}

func (w *orderExecution) plug(ctx context.Context, on bool) (compute.Result, error) {
	p, ok := w.Hypervisor.(hypervisor.Plugger)
	if !ok {
		return compute.Result{}, problem.Unsupportedf("the hypervisor of this host changes no disks of a guest")
	}
	if w.args.Disk == nil {
		return compute.Result{}, problem.Invalidf("%s of server %s: no disk is named", w.order.Verb, w.order.ServerID)
	}
	g, err := w.guest(ctx, w.order.ServerID)
	if err != nil {
		return compute.Result{}, err
	}
	if g != nil && g.Power == compute.PowerSaved {
		return compute.Result{}, hypervisor.RefusalToChangeSaved(g.Name, w.args.Disk.Name)
	}
	d, err := w.domain()
	if err != nil {
		return compute.Result{}, err
	}
	return compute.Result{}, p.Plug(ctx, d, w.args.Disk.Name, on)
}

func (w *orderExecution) look(ctx context.Context) (compute.Result, error) {
	g, err := w.guest(ctx, w.order.ServerID)
	if err == nil && g == nil {
		err = problem.NotFoundf("server %s is not on this host", w.order.ServerID)
	}
	return compute.Result{Guest: g}, err
}

// export gives what of the guest lies here alone.
func (w *orderExecution) export(ctx context.Context) (compute.Result, error) {
	e, able := w.Hypervisor.(hypervisor.Exporter)
	if !able {
		return compute.Result{}, nil
	}
	state, err := e.Export(ctx, w.order.ServerID, false)
	return compute.Result{State: state}, err
}

// discard has the root disk, or the one that is named, give way to another one. A guest that runs keeps its disks.
func (w *orderExecution) discard(ctx context.Context) (compute.Result, error) {
	if err := w.isOff(ctx); err != nil {
		return compute.Result{}, err
	}
	d := w.args.Disk
	if d == nil {
		spec, err := w.spec()
		if err != nil {
			return compute.Result{}, err
		}
		root, ok := rootDisk(spec)
		if !ok {
			return compute.Result{}, nil
		}
		d = &root
	}
	if err := w.disksAreOurs(ctx, *d); err != nil {
		return compute.Result{}, err
	}
	if w.args.Erase {
		return compute.Result{}, w.stores.erase(ctx, w.order.ServerID, *d)
	}
	return compute.Result{}, w.quarantine(ctx, w.order.ServerID, *d, cmp.Or(w.args.Reason, compute.QuarantineRebuild))
}

// disksAreOurs proves that no other host renews the leases of disks that are about to go. A lease that nobody renews keeps no disk.
func (w *orderExecution) disksAreOurs(ctx context.Context, disks ...compute.SpecDisk) error {
	c := w.claim(true)
	c.removes = true
	return w.leases.acquireAll(ctx, w.filesOf(&compute.Spec{ServerID: w.order.ServerID, Disks: disks}), c)
}

// remove takes everything of the server away. Its disks go only after the hypervisor has let go of it, and nothing goes while a store of
// them is not there.
func (w *orderExecution) remove(ctx context.Context) (compute.Result, error) {
	var disks []compute.SpecDisk
	if spec := w.args.Spec; spec != nil && !w.args.KeepDisks {
		disks = slices.DeleteFunc(slices.Clone(spec.Disks), func(d compute.SpecDisk) bool { return d.VolumeID != "" })
	}
	g, err := w.guest(ctx, w.order.ServerID)
	if err != nil {
		return compute.Result{}, err
	}
	if w.args.SameEpoch && g != nil && (!g.Ours || g.Epoch != w.order.Epoch) {
		return compute.Result{}, nil
	}
	for _, d := range disks {
		if _, _, err := w.stores.removable(ctx, w.order.ServerID, d); err != nil {
			return compute.Result{}, err
		}
	}
	overlays, left, err := w.rememberOverlays(ctx, w.order.ServerID, g, disks)
	if err != nil {
		return compute.Result{}, err
	}
	if err := w.Hypervisor.Remove(ctx, w.order.ServerID); err != nil {
		return compute.Result{}, err
	}
	w.leases.setArriving(w.order.ServerID, false)
	if g != nil {
		w.leases.free(ctx, w.order.ServerID, g.Files)
	}
	if !w.args.KeepDisks {
		if err := w.disksAreOurs(ctx, disks...); err != nil {
			return compute.Result{}, err
		}
		if err := w.removeDisks(ctx, disks); err != nil {
			return compute.Result{}, fmt.Errorf("remove the disks of server %s: %w", w.order.ServerID, err)
		}
		if err := w.dropOverlays(ctx, w.order.ServerID, overlays, !w.args.SameEpoch, compute.QuarantineReimage); err != nil {
			return compute.Result{}, err
		}
		if len(left) > 0 {
			w.progress(ctx, w.order, "left where they are, because salvor did not make them: %s", strings.Join(left, ", "))
		}
	}
	return compute.Result{}, os.RemoveAll(w.path())
}

// removeDisks removes the disks of a server that is deleted, at once, and those that its owner had replaced.
func (w *orderExecution) removeDisks(ctx context.Context, disks []compute.SpecDisk) error {
	for _, d := range disks {
		if err := w.removeDisk(ctx, d); err != nil {
			return err
		}
	}
	w.observed.storesChanged()
	if w.args.SameEpoch {
		return nil
	}
	return errors.Join(w.stores.dropReplaced(ctx, w.order.ServerID), w.stores.sweep(ctx, w.order.ServerID))
}

// removeDisk erases a disk; one that another epoch made goes into quarantine, where only those of this one are to be removed.
func (w *orderExecution) removeDisk(ctx context.Context, d compute.SpecDisk) error {
	_, path, err := w.stores.removable(ctx, w.order.ServerID, d)
	if err != nil {
		return err
	}
	if p, err := readProof(path); w.args.SameEpoch && err == nil && p.Epoch != w.order.Epoch {
		return w.quarantine(ctx, w.order.ServerID, d, compute.QuarantineReimage)
	}
	return w.stores.erase(ctx, w.order.ServerID, d)
}

// release removes what a rescue left.
func (w *orderExecution) release(context.Context) (compute.Result, error) {
	entries, err := os.ReadDir(w.path())
	if errors.Is(err, os.ErrNotExist) {
		return compute.Result{}, nil
	}
	var errs []error
	for _, e := range entries {
		if isRescueFile(e.Name()) {
			errs = append(errs, os.Remove(w.path(e.Name())))
		}
	}
	return compute.Result{}, errors.Join(append(errs, err)...)
}
