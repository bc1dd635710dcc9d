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
	"salvor/compute/service"
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
	// Permission is asked before each request to a cluster, an array or a machine; nil: always.
	Permission *job.Permission
	// PowerState asks the BMC of a node; nil: the power of hosts is unknown.
	PowerState func(ctx context.Context, nodeID string) (metal.Power, error)
	// SoftOffTimeout bounds a soft shutdown that names no time of its own.
	SoftOffTimeout time.Duration
	// Compute changes servers.
	Compute *service.Services
	// Hypervisors drive the guests of hosts that have no agent; nil: there are none.
	Hypervisors Hypervisors
	// Clusters are watched; nil: there are none.
	Clusters Clusters
	// Storage serves the volumes of servers; nil: it is not spoken to.
	Storage storage.Storage
	// BareMetal drive servers that are whole machines; nil: there are none.
	BareMetal BareMetalFinder
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

// Definitions lists every operation, command and background job on servers, hosts and clusters.
func (c *Conductor) Definitions() []job.Definition {
	all := []job.Definition{
		c.hosts().hostFence(),
		c.serverCreate(), c.serverDelete(), c.serverPower(), c.serverRescue(), c.serverUnrescue(),
		c.serverRebuild(), c.serverRestoreDisk(), c.serverAttach(), c.serverDetach(), c.serverReconcile(),
		diagnosisOperations{c}.diagnose(),
		c.moves().serverMove(), c.hosts().hostEvacuate(),
		c.moves().serverMigrate(), c.hosts().hostDrain(), c.hosts().hostRestore(), c.storageAccess().hostReadmit(),
		c.bareMetal().createBareMetal(), c.bareMetal().deleteBareMetal(), c.bareMetal().switchBareMetal(), c.bareMetal().rescueBareMetal(), c.bareMetal().unrescueBareMetal(), c.bareMetal().rebuildBareMetal(),
	}
	all = append(job.WithDeadline(all, c.SoftOffTimeout), c.clusters().clusterDefinitions()...)
	for i := range all {
		all[i].Failed = c.withUnknownPower(all[i].Failed)
	}
	return all
}

// withUnknownPower shows a failure. The guest of a server whose job ended without undo is neither started nor stopped until somebody asks for the start
// or the stop, because the job may have left the guest on or off, here or at another host.
func (c *Conductor) withUnknownPower(failed func(context.Context, job.Tx, *job.Job) error) func(context.Context, job.Tx, *job.Job) error {
	return func(ctx context.Context, tx job.Tx, j *job.Job) error {
		if failed != nil {
			if err := failed(ctx, tx, j); err != nil {
				return err
			}
		}
		if !j.EndsWithoutUndo() || j.Class != job.Operation || j.Subject.Kind != compute.Subject("").Kind {
			return nil
		}
		return suppressNotFound(c.Compute.Servers.Edit(ctx, tx, j.Subject.ID, func(s *compute.Server) { s.Wanted = compute.PowerUnknown }))
	}
}

// The types that follow hold the operations of one subject. Each shares all that a Conductor has.

// hostOperations are the operations on hosts: fences, evacuations, drains.
type hostOperations struct{ *Conductor }

func (c *Conductor) hosts() hostOperations { return hostOperations{c} }

// clusterOperations are those on foreign clusters and their servers.
type clusterOperations struct{ *Conductor }

func (c *Conductor) clusters() clusterOperations { return clusterOperations{c} }

// bareMetalOperations are those on servers that are whole machines.
type bareMetalOperations struct{ *Conductor }

func (c *Conductor) bareMetal() bareMetalOperations { return bareMetalOperations{c} }

// storageAccess lets hosts in at the targets of volumes, and shuts them out.
type storageAccess struct{ *Conductor }

func (c *Conductor) storageAccess() storageAccess { return storageAccess{c} }

// moveOperations bring servers to other hosts: evacuations and migrations.
type moveOperations struct{ *Conductor }

func (c *Conductor) moves() moveOperations { return moveOperations{c} }
