// Package server holds the long operations on servers, and on the hosts and clusters that run them. Each has a file, which opens with its
// list of actions. The package composes the rules of servers with hosts' orders, hypervisors and storage, through their contracts. It
// names no hypervisor, drives no BMC and answers no API call: only the row of a job reaches it.
package server

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/storage"
)

// Store is what operations on servers need of a store.
type Store interface {
	metal.Store
	job.Store
	compute.Store
}

// Config is what a Conductor is made of.
type Config struct {
	Store Store
	Nodes *metal.Nodes
	Log   *slog.Logger
	Now   func() time.Time
	// Lease is asked before each request to a cluster, an array or a machine.
	Lease *job.Lease
	// PowerState asks the BMC of a node; nil: no BMC is within reach.
	PowerState func(ctx context.Context, nodeID string) (metal.Power, error)
	// SoftOffTimeout bounds a soft shutdown that names no time of its own.
	SoftOffTimeout time.Duration
	// Compute changes servers.
	Compute *compute.Services
	// Hypervisors drive the guests of hosts that have no agent; nil: there are none.
	Hypervisors Hypervisors
	// Clusters are watched; nil: there are none.
	Clusters Clusters
	// Storage serves the volumes of servers; nil: it is not spoken to.
	Storage storage.Storage
	// Metals drive servers that are whole machines; nil: there are none.
	Metals Metals
	// NodeTimeout bounds what such a machine is asked for; 0: an hour. FirstLook is the pause before the first of the looks at it, which
	// become more seldom; 0: 100 ms.
	NodeTimeout, FirstLook time.Duration
	// LendImage is a URL at which a machine fetches an image's bytes, by their digest, for a while; empty: they are not lent.
	LendImage func(digest string) string
	// RescueImagePath is the directory of rescue images on the hosts that Hypervisors drive.
	RescueImagePath string
}

// Conductor runs operations on servers, hosts and clusters.
type Conductor struct {
	Config
	targets targetLocks
}

// New makes a conductor.
func New(c Config) *Conductor {
	c.SoftOffTimeout = cmp.Or(c.SoftOffTimeout, metal.DefaultSoftOffTimeout)
	return &Conductor{Config: c}
}

// Definitions lists every operation, command and ask on servers, hosts and clusters.
func (c *Conductor) Definitions() []job.Definition {
	all := []job.Definition{
		c.hostFence(),
		c.serverCreate(), c.serverDelete(), c.serverPower(), c.serverRescue(), c.serverUnrescue(),
		c.serverRebuild(), c.serverRestoreDisk(), c.serverAttach(), c.serverDetach(), c.serverReconcile(),
		c.serverMove(), c.hostEvacuate(),
		c.serverMigrate(), c.hostDrain(), c.hostRestore(), c.hostReadmit(),
		c.metalCreate(), c.metalDelete(), c.metalPower(), c.metalRescue(), c.metalUnrescue(), c.metalRebuild(),
	}
	return append(job.WithDeadline(all, c.SoftOffTimeout), c.clusterDefinitions()...)
}
