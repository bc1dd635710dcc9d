package host

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/problem"
	wire "salvor/wire/host"
)

// orderRunner pulls orders and carries them out: one at a time for each server, in the order in
// which they came, and a bounded number of servers at once.
type orderRunner struct {
	agent *Agent
	slots chan struct{}
	// helpers are the slots of examinations. A helper takes memory that no placement counts, and whoever may ask for many of them must not
	// hold up the orders of others.
	helpers chan struct{}
	wakeup  chan struct{}

	mu      sync.Mutex
	known   map[string]bool // ids from their sight until their result is taken
	queues  map[string][]orderTask
	running map[string]orderTask // what is worked on now
	last    map[string]int64     // the sequence of each server's newest order
	count   int64
	workers sync.WaitGroup

	// runCtx ends when nothing may be carried out any more; what is in hand is broken off then, and asked for again in the next one.
	runCtx context.Context
	stop   context.CancelFunc
	// inProgress counts what may change guests now. lastUnconfirmed is when something was given up of which the hypervisor may still do its part.
	inProgress      int
	lastUnconfirmed time.Duration
}

type orderTask struct {
	runCtx context.Context
	order  *compute.Order
	secret compute.OrderSecret
	// superseded is closed when an order came that makes this one needless; nil: none can.
	superseded chan struct{}
}

// cancel ends a task, whether it is in hand or waits, once.
func (t orderTask) cancel() {
	select {
	case <-t.superseded:
	default:
		close(t.superseded)
	}
}

func (t orderTask) isSuperseded() bool {
	select {
	case <-t.superseded:
		return true
	default:
		return false
	}
}

// supersedesOrder tells whether an order makes an earlier one of the same server needless: what is to be removed need not be made, and
// an owner who has lost the server has no say. Nothing waits for an examination: it ends where something else is to be done.
func supersedesOrder(next, earlier *compute.Order) bool {
	ends := next.Verb == compute.Remove && earlier.Verb != compute.Remove || earlier.Verb == compute.Diagnose && next.Verb != compute.Diagnose
	return next.Epoch > earlier.Epoch || next.Epoch == earlier.Epoch && ends
}

const (
	defaultWithin = 10 * time.Minute
	maxWithin     = 4 * time.Hour
	// relistEvery has every so many polls list all open orders, so that none that was sent and not received is forgotten.
	relistEvery = 10
)

// helpersAtOnce is how many servers of a host are examined at a time.
const helpersAtOnce = 1

func newOrders(a *Agent) *orderRunner {
	return &orderRunner{agent: a, slots: make(chan struct{}, a.Orders), helpers: make(chan struct{}, helpersAtOnce), wakeup: make(chan struct{}, 1),
		known: map[string]bool{}, queues: map[string][]orderTask{}, running: map[string]orderTask{}, last: map[string]int64{}}
}

func (s *orderRunner) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// sequence is the number of the newest order; newest that of a server's.
func (s *orderRunner) sequence() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *orderRunner) newest(server string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[server]
}

// run polls until ctx ends; orders in hand are broken off then, and begin again with the next start.
func (s *orderRunner) run(ctx context.Context) error {
	defer s.workers.Wait()
	all, wait := 1, time.Duration(0)
	for n := 0; ctx.Err() == nil; n++ {
		// Before a renewal was answered, the orders are still those of the former boot.
		if !s.agent.mayWork() {
			if !s.idle(ctx, time.Second) {
				return nil
			}
			all = 1
			continue
		}
		runCtx := s.begin(ctx)
		var got wire.Orders
		path := fmt.Sprintf("%s?wait=%d&all=%d", wire.OrdersPath, int(poll/time.Second), all)
		if err := s.agent.controlPlane.call(runCtx, http.MethodGet, path, nil, &got); err != nil {
			if wait = min(max(2*wait, 500*time.Millisecond), 10*time.Second); !s.idle(ctx, wait) {
				return nil
			}
			all = 1
			continue
		}
		all, wait = 0, 0
		if n%relistEvery == relistEvery-1 {
			all = 1
		}
		left := false
		for _, o := range got.Orders {
			left = !s.take(runCtx, o) || left
		}
		if left {
			all = 1
			if !s.idle(ctx, compute.RenewEvery) {
				return nil
			}
		}
	}
	return nil
}

// idle waits, or until something has it try at once.
func (s *orderRunner) idle(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-s.wakeup:
	case <-t.C:
	}
	return true
}

// parseOrder reads an order as it came.
func parseOrder(w wire.Order) (orderTask, error) {
	t := orderTask{order: &compute.Order{}}
	if err := json.Unmarshal(w.Order, t.order); err != nil {
		return t, problem.Invalidf("an order is not understood: %w", err)
	}
	o := t.order
	if uuid.Validate(o.ID) != nil || len(o.ID) != 36 || uuid.Validate(o.ServerID) != nil || len(o.ServerID) != 36 {
		return t, problem.Invalidf("an order without id or server")
	}
	if len(w.Secret) > 0 {
		if json.Unmarshal(w.Secret, &t.secret) != nil { // its text would show the secret
			return t, problem.Invalidf("the secret of order %s is not understood", o.ID)
		}
	}
	return t, nil
}

// take queues an order that is not in hand already; false: it was left and is to be asked for again.
func (s *orderRunner) take(runCtx context.Context, w wire.Order) bool {
	t, err := parseOrder(w)
	if err != nil {
		s.agent.Log.Error("order", "error", err)
		return true
	}
	o := t.order
	t.runCtx = runCtx
	// An order for another boot comes again once the control plane knows of this one.
	if o.HostID != s.agent.identity.id || o.BootID != s.agent.boot {
		s.agent.Log.Warn("an order for another host or boot is left", "order", o.ID, "boot", o.BootID)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[o.ID] {
		return true
	}
	s.known[o.ID] = true
	if isReadOnlyVerb(o.Verb) {
		s.workers.Go(func() { s.carryOut(t) })
		return true
	}
	s.count++
	s.last[o.ServerID] = s.count
	t.superseded = make(chan struct{})
	queue, working := s.queues[o.ServerID]
	for _, earlier := range queue {
		if supersedesOrder(o, earlier.order) {
			earlier.cancel()
		}
	}
	if earlier, ok := s.running[o.ServerID]; ok && supersedesOrder(o, earlier.order) {
		earlier.cancel()
	}
	s.queues[o.ServerID] = append(queue, t)
	if !working {
		s.workers.Go(func() { s.work(o.ServerID) })
	}
	return true
}

// isReadOnlyVerb tells whether a verb only looks: it waits for nothing and is not written down.
func isReadOnlyVerb(v compute.Verb) bool {
	return v == compute.Console || v == compute.Look || v == compute.Export || v == compute.Probe || v == compute.FindFiles || v == compute.ListQuarantine
}

// isJournaled tells whether what came of an order is written down, for when it comes again. An examination is not: it changes nothing, and it
// holds texts of a guest's disks, which do not belong on those of the host.
func isJournaled(v compute.Verb) bool { return !isReadOnlyVerb(v) && v != compute.Diagnose }

// work carries a server's orders out until none is left.
func (s *orderRunner) work(server string) {
	for {
		s.mu.Lock()
		queue := s.queues[server]
		delete(s.running, server)
		if len(queue) == 0 {
			delete(s.queues, server)
			s.mu.Unlock()
			return
		}
		next := queue[0]
		s.queues[server], s.running[server] = queue[1:], next
		s.mu.Unlock()
		slots, needless := s.slots, (chan struct{})(nil)
		if next.order.Verb == compute.Diagnose {
			slots, needless = s.helpers, next.superseded
		}
		select {
		case slots <- struct{}{}:
			s.turn(next)
			<-slots
		case <-needless: // it ends at once, and is reported
			s.turn(next)
		case <-next.runCtx.Done():
			s.forget(next)
		}
	}
}

// turn carries out an order when it has the server to itself.
func (s *orderRunner) turn(t orderTask) {
	unlock, ok := s.agent.lock(t.order.ServerID)
	for !ok && sleepContext(t.runCtx, 20*time.Millisecond) { // a mending is about to end
		unlock, ok = s.agent.lock(t.order.ServerID)
	}
	if !ok {
		s.forget(t)
		return
	}
	defer unlock()
	s.carryOut(t)
}

// carryOut does an order, or finds that it was done, and reports until that is taken.
func (s *orderRunner) carryOut(t orderTask) {
	defer s.forget(t)
	leave := func(bool) {}
	if !isReadOnlyVerb(t.order.Verb) {
		var ok bool
		if leave, ok = s.admit(); !ok {
			return
		}
	}
	r, ok := s.agent.perform(t.runCtx, t)
	t.secret.ClearLUKSKeys()
	leave(ok && r.ErrorKind != problem.Unavailable.String())
	if ok {
		s.agent.observed.look()
		s.report(t.runCtx, t.order, r)
	}
}

// forget lets an order come again.
func (s *orderRunner) forget(t orderTask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, t.order.ID)
}
