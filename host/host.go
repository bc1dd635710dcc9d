// Package host is "salvor host": the part of salvor on a machine that runs servers. It keeps the host's identity and its lease, and fetches
// orders and carries each out once. It owns the disks, images and config drives on the machine, and mends guests that differ from their
// wanted state. It knows no store, and no HTTP API but the control plane's API for hosts. The hypervisor tells it which guests run.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"salvor/hypervisor"
	"salvor/secret"
	wire "salvor/wire/host"
)

// Config is what an agent needs. StateDir, Controller and Hypervisor must be set.
type Config struct {
	// StateDir holds identity, journal, images and the files of guests; one agent at a time uses it.
	StateDir string
	// Controller is the URL of the hosts' door.
	Controller string
	// Token lets the host in for the first time; later it is not looked at.
	Token secret.Value
	// Name is told for people; it proves nothing.
	Name       string
	Hypervisor hypervisor.Hypervisor
	// Stores are the directories of disks; none: one in the state directory, "local".
	Stores []Store
	// RescueDir holds the rescue images of location type "file".
	RescueDir string
	// ImageBytes bounds the kept images of which no guest has a copy in use; ConsoleBytes a guest's console log.
	ImageBytes, ConsoleBytes int64
	// Orders bounds how many servers are worked on at a time.
	Orders  int
	Version string
	Log     *slog.Logger
	// Watchdog resets the machine where the host's group fences itself; nil: none does.
	Watchdog Watchdog
	// Web fetches images and rescue images that lie elsewhere than with the control plane; nil: none is fetched.
	Web *http.Client
	// BootID and Alive are the machine's: the id of its boot, and the time since then, sleep included.
	BootID func() (string, error)
	Alive  func() (time.Duration, error)
	// Working runs while the joined agent works, until ctx ends; nil: nothing does.
	Working func(ctx context.Context, a *Agent)
}

// Store is a directory of disks. Hosts that see the same marker in it share it.
type Store struct {
	Name, Dir string
	Shared    bool
}

func (c *Config) complete() error {
	if c.StateDir == "" || c.Controller == "" || c.Hypervisor == nil {
		return errors.New("host: state directory, controller and hypervisor are needed")
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.BootID == nil {
		c.BootID = readBootID
	}
	if c.Alive == nil {
		c.Alive = sinceBoot
	}
	if c.RescueDir == "" {
		c.RescueDir = "/usr/share/salvor/rescue-images"
	}
	if c.ImageBytes <= 0 {
		c.ImageBytes = 20 << 30
	}
	if c.ConsoleBytes <= 0 {
		c.ConsoleBytes = 1 << 20
	}
	if c.Orders <= 0 {
		c.Orders = 8
	}
	return nil
}

// Agent is a running host.
type Agent struct {
	Config
	identity     *hostIdentity
	boot         string
	controlPlane *controlPlaneClient
	journal      *orderJournal
	stores       diskStores
	images       *imageCache
	lease        hostLease
	observed     observedState
	// busy holds a lock for each server: orders and reconciliation never work on one at a time.
	busy sync.Map
	// provenFiles are the rescue images whose digest was read, by proofKey.
	provenFiles sync.Map
	orders      *orderRunner
	witness     *storedWitness
	leases      *diskLeases
	// renewing has one renewal sent at a time.
	renewing sync.Mutex
	cleaner  cleanupTracker
	looking  atomic.Bool
	drifts   driftCache
	states   stateCopies
	// stuckOutside counts, by directory, the looks at files outside of the disk stores that never came back.
	stuckOutside sync.Map
}

// Open takes the state directory, reads or makes the host's identity and opens its disk
// stores; it starts nothing. A directory in use by another agent is problem.Conflict.
func Open(c Config) (*Agent, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	id, err := openIdentity(c.StateDir)
	if err != nil {
		return nil, err
	}
	a := &Agent{Config: c, identity: id}
	if err := a.open(); err != nil {
		_ = id.close()
		return nil, err
	}
	return a, nil
}

func (a *Agent) open() error {
	var err error
	if a.boot, err = a.BootID(); err != nil {
		return fmt.Errorf("boot id: %w", err)
	}
	if a.journal, err = openJournal(a.identity.path("journal")); err != nil {
		return err
	}
	if a.stores, err = openStores(a.Config, a.identity); err != nil {
		return err
	}
	if a.controlPlane, err = newControlPlaneClient(a.Controller, a.identity, a.Web); err != nil {
		return err
	}
	if a.images, err = openImages(a.identity.path("images"), a.ImageBytes, a.controlPlane); err != nil {
		return err
	}
	a.orders, a.leases = newOrders(a), newDiskLeases(a)
	a.lease.wakeup, a.lease.cleaned = make(chan struct{}, 1), map[string]wire.Cleaned{}
	a.cleaner = newCleaner()
	a.drifts.known, a.states.written = map[string]diskLook{}, map[string]writtenState{}
	a.witness = openWitness(a.identity.path(witnessFile))
	a.observed.changed = make(chan struct{}, 1)
	return a.identity.makeDir("servers")
}

// ID of the host, from its disk.
func (a *Agent) ID() string { return a.identity.id }

// Close gives the state directory up. Guests keep running.
func (a *Agent) Close() error {
	a.controlPlane.close()
	return a.identity.close()
}

// Run joins where the host has no certificate yet, and works until ctx ends or the control
// plane says that the host may not go on. Guests keep running then.
func (a *Agent) Run(ctx context.Context) error {
	leased, unlease := context.WithCancel(ctx)
	var leasing sync.WaitGroup
	defer leasing.Wait()
	defer unlease()
	leasing.Go(func() { a.runDiskLeases(leased) })
	if err := a.join(ctx); err != nil {
		return err
	}
	if libvirtGuestsStarts("/") {
		a.Log.Warn("libvirt-guests starts guests when this machine starts, also guests that were moved away meanwhile and would run twice; set ON_BOOT=ignore in its settings",
			"settings", libvirtGuestsFiles[2:])
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	guarded, unguard := context.WithCancel(context.WithoutCancel(ctx))
	var running, guarding sync.WaitGroup
	defer guarding.Wait()
	defer unguard()
	guarding.Go(func() { a.runSelfFence(guarded) })
	guarding.Go(func() { a.runWatchdog(guarded) })
	for _, loop := range []func(context.Context) error{a.runLease, a.runCertificate, a.observe, a.orders.run, a.runHousekeeping} {
		running.Go(func() {
			if err := loop(ctx); err != nil && ctx.Err() == nil {
				stop(err)
			}
		})
	}
	if a.Working != nil {
		running.Go(func() { a.Working(ctx, a) })
	}
	<-ctx.Done()
	a.leave(guarded)
	unguard() // nobody renews any more: what follows is no silence
	running.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// lock has the server to itself until the returned function is called; false: it is taken.
func (a *Agent) lock(server string) (func(), bool) {
	if _, taken := a.busy.LoadOrStore(server, true); taken {
		return nil, false
	}
	return func() { a.busy.Delete(server) }, true
}

// runHousekeeping trims what grows: console logs, old journals, and images that nobody uses.
func (a *Agent) runHousekeeping(ctx context.Context) error {
	for {
		if !sleepContext(ctx, 30*time.Second) {
			return nil
		}
		a.trimConsoles()
		a.expireQuarantine(ctx)
		if err := a.journal.prune(30 * 24 * time.Hour); err != nil {
			a.Log.Warn("remove old journals", "error", err)
		}
	}
}

// sleepContext waits; false: ctx ended before.
func sleepContext(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
