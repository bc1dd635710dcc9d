package host

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"salvor/compute"
	"salvor/problem"
	wire "salvor/wire/host"
)

// perform gives the result of an order; false: it was broken off and is no matter of this run of the agent any more.
func (a *Agent) perform(ctx context.Context, t orderTask) (compute.Result, bool) {
	o := t.order
	now, err := a.Alive()
	if err != nil {
		return newFailedResult(err), true
	}
	began := now
	if isJournaled(o.Verb) {
		var done *compute.Result
		if done, began, err = a.journal.begin(o, a.boot, now); err != nil {
			return newFailedResult(err), true
		}
		if done != nil {
			a.Log.Info("an order came again", "order", o.ID, "verb", o.Verb, "server", o.ServerID)
			return *done, true
		}
	}
	within := time.Duration(o.Within) * time.Second
	if within <= 0 {
		within = defaultWithin
	}
	left := began + min(within, maxWithin) - now
	bounded, cancel := context.WithTimeout(ctx, max(left, time.Second))
	defer cancel()
	if t.superseded != nil {
		go func() {
			select {
			case <-t.superseded:
				cancel()
			case <-bounded.Done():
			}
		}()
	}
	start := time.Now()
	r, err := a.tryUntil(bounded, t)
	if ctx.Err() != nil || !isReadOnlyVerb(o.Verb) && err != nil && a.halted() {
		return compute.Result{}, false
	}
	if err != nil && t.isSuperseded() {
		err = newSupersededError(o)
	}
	if err != nil {
		r = newFailedResult(err)
		if o.Verb == compute.SetPower {
			a.tellMemoryOfFailed(ctx, o)
		}
	}
	a.Log.Info("order", "order", o.ID, "verb", o.Verb, "server", o.ServerID, "epoch", o.Epoch, "took", time.Since(start).Round(time.Millisecond), "error", r.Error)
	if isJournaled(o.Verb) {
		if err := a.journal.end(o, a.boot, began, r); err != nil {
			// Not told: whoever cannot remember that it was done must not say so.
			a.Log.Error("write a result down", "order", o.ID, "error", err)
			return compute.Result{}, false
		}
	}
	return r, true
}

// tryUntil repeats what is unavailable, as a hypervisor that restarts, until the order's bound. It tells the control plane why.
func (a *Agent) tryUntil(ctx context.Context, t orderTask) (compute.Result, error) {
	told := ""
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		if t.isSuperseded() || a.journal.stale(t.order) {
			return compute.Result{}, newSupersededError(t.order)
		}
		if a.halted() { // the clock may have gone on while this process did not
			return compute.Result{}, problem.Unavailablef("this host may do nothing now")
		}
		r, err := a.do(ctx, t)
		if err == nil || !problem.Is(err, problem.Unavailable) && ctx.Err() == nil {
			return r, err
		}
		if ctx.Err() != nil || !sleepContext(ctx, wait) {
			return r, problem.Unavailablef("%s of server %s was not done in its time: %w", t.order.Verb, t.order.ServerID, err)
		}
		if err.Error() != told { // it may be a reason that somebody can end, such as a disk store without room
			told = err.Error()
			a.progress(ctx, t.order, "it tries again, because of %s", problem.Quote(told))
		}
		a.Log.Info("an order is tried again", "order", t.order.ID, "verb", t.order.Verb, "server", t.order.ServerID, "error", err)
	}
}

func newSupersededError(o *compute.Order) error {
	return problem.Conflictf("order %s is overtaken by a newer order for server %s", o.ID, o.ServerID)
}

func newFailedResult(err error) compute.Result {
	text := err.Error()
	if len(text) > 2000 {
		text = text[:2000]
	}
	return compute.Result{ErrorKind: problem.KindOf(err).String(), Error: text}
}

// report tells a result until it is taken, or refused for good.
func (s *orderRunner) report(ctx context.Context, o *compute.Order, r compute.Result) {
	report := wire.Report{BootID: s.agent.boot, Epoch: o.Epoch, Result: mustEncodeJSON(r)}
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		err := s.agent.controlPlane.call(ctx, http.MethodPost, wire.OrdersPath+"/"+o.ID+"/result", report, nil)
		switch {
		case err == nil:
			return
		case problem.Is(err, problem.Conflict), problem.Is(err, problem.NotFound), problem.Is(err, problem.Invalid):
			s.agent.Log.Warn("a result is not wanted any more", "order", o.ID, "error", err)
			return
		}
		if !sleepContext(ctx, wait) {
			return
		}
	}
}

// progress tells a word on a long order; nothing depends on it.
func (a *Agent) progress(ctx context.Context, o *compute.Order, format string, args ...any) {
	_ = a.controlPlane.call(ctx, http.MethodPost, wire.OrdersPath+"/"+o.ID+"/progress", wire.Progress{Text: fmt.Sprintf(format, args...)}, nil)
}
