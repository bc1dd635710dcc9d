package host

import (
	"context"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

// The steps of a live migration. Each is one order to one side; what goes on between them lives in the hypervisor's daemon, tied to
// this agent's connection to it: an agent that starts anew in between makes the next step fail, and the guest stays where it ran.

func (w *orderExecution) migrator() (hypervisor.Migrator, error) {
	m, able := w.Hypervisor.(hypervisor.Migrator)
	if !able {
		return nil, problem.Unsupportedf("the hypervisor of this host moves no running guest")
	}
	return m, nil
}

func (w *orderExecution) migrateBegin(ctx context.Context) (compute.Result, error) {
	m, err := w.migrator()
	if err != nil {
		return compute.Result{}, err
	}
	cookie, err := m.Begin(ctx, w.order.ServerID)
	return compute.Result{Cookie: cookie}, err
}

// migratePrepare listens at the address by which this host reaches the control plane. Its disks must be seen here: that was proven before.
func (w *orderExecution) migratePrepare(ctx context.Context) (compute.Result, error) {
	m, err := w.migrator()
	if err != nil {
		return compute.Result{}, err
	}
	if err := w.identity.makeDir("servers", w.order.ServerID); err != nil {
		return compute.Result{}, err
	}
	d, err := w.domain()
	if err != nil {
		return compute.Result{}, err
	}
	w.leases.setArriving(w.order.ServerID, true)
	cookie, peer, err := m.Prepare(ctx, d, w.address(), w.args.Cookie)
	return compute.Result{Cookie: cookie, Peer: peer}, err
}

func (w *orderExecution) migratePerform(ctx context.Context) (compute.Result, error) {
	m, err := w.migrator()
	if err != nil {
		return compute.Result{}, err
	}
	cookie, err := m.Perform(ctx, w.order.ServerID, w.args.Peer, w.args.Cookie)
	if err == nil { // it is held here, and writes no more: the destination may have its disks
		w.leases.free(ctx, w.order.ServerID, nil)
	}
	return compute.Result{Cookie: cookie}, err
}

func (w *orderExecution) migrateFinish(ctx context.Context) (compute.Result, error) {
	m, err := w.migrator()
	if err != nil {
		return compute.Result{}, err
	}
	d, err := w.domain()
	if err != nil {
		return compute.Result{}, err
	}
	if !w.args.Cancel {
		if err := w.leases.acquireAll(ctx, pathsOf(&d), w.claim(false)); err != nil {
			return compute.Result{}, err
		}
	}
	cookie, err := m.Finish(ctx, d, w.args.Cookie, w.args.Cancel)
	if err == nil {
		w.leases.setArriving(w.order.ServerID, false)
	}
	return compute.Result{Cookie: cookie}, err
}

func (w *orderExecution) migrateConfirm(ctx context.Context) (compute.Result, error) {
	m, err := w.migrator()
	if err != nil {
		return compute.Result{}, err
	}
	if w.args.Cancel { // it goes on here
		if err := w.ownDisks(ctx, w.order.ServerID, w.claim(false)); err != nil {
			return compute.Result{}, err
		}
	}
	return compute.Result{}, m.Confirm(ctx, w.order.ServerID, w.args.Cookie, w.args.Cancel)
}
