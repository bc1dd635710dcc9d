// Package service changes the records of servers, hosts, images, volumes and networks by the rules of package compute. A service takes a store,
// checks a request against the rules, and writes records, jobs and events in one transaction.
package service

import (
	"context"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
)

// Options are the choices that configuration makes for servers.
type Options struct {
	// RescueTimeout ends sessions that name no end of their own; 0: they last.
	RescueTimeout time.Duration
	// SoftOffTimeout bounds how long a guest's system is asked to power off.
	SoftOffTimeout time.Duration
	// PasswordLength of generated passwords; HashAlgorithm of rescue.HashPassword.
	PasswordLength int
	HashAlgorithm  string
	// DefaultStore names the disk store of local disks; empty: the first of the host.
	DefaultStore string
	// RescueImagePath is the directory of rescue images on every VM host.
	RescueImagePath string
	// QuarantineDays is after how many days VM hosts remove disks from quarantine; 0: never.
	QuarantineDays int
	// HeadURL tells whether a URL answers HEAD with 200; nil: it is not asked.
	HeadURL func(url string) error
	// FindFilesWithin is how long hosts may take to say whether they have the file of a new rescue image; 0: they are not asked.
	FindFilesWithin time.Duration
	// Held gives the cause of the hold of the database; nil, or a nil result: it is not held.
	Held func() *record.Held
	// Incarnation gives the id of the database's incarnation; nil or an empty result: it is not known, and salvor ends no stale guest.
	Incarnation func() string
	// ReleaseNode lets the node that a fenced host is be switched on again (see Host.NodeID); nil: there are no nodes here.
	ReleaseNode func(ctx context.Context, tx job.Tx, nodeID string) error
}

// Services are all that changes servers and what they are made of.
type Services struct {
	// Servers are records; Actions are what users ask of one, Moves bring them to other hosts.
	Servers *Servers
	Actions *Actions
	Moves   *Moves
	// Observer, Reconciler and GuestReports take what hypervisors, clusters and hosts report of servers.
	Observer     *Observer
	Reconciler   *Reconciler
	GuestReports *GuestReports
	// Hosts are records; Leases and Liveness tell which of them live, Fences prove that one is off, and Plans empty one.
	Hosts        *Hosts
	Leases       *Leases
	Liveness     *Liveness
	Fences       *Fences
	Plans        *Plans
	Quarantine   *Quarantine
	Diagnoses    *Diagnoses
	HeldDatabase *HeldDatabase

	Flavors      *Flavors
	Images       *Images
	Keypairs     *Keypairs
	Networks     *Networks
	Volumes      *Volumes
	Clusters     *Clusters
	JoinTokens   *JoinTokens
	RescueImages *RescueImages
	HostGroups   *HostGroups
}

// Services of kinds that have no rules beyond those of their records.
type (
	Flavors  = record.Collection[compute.Flavor, compute.FlavorFilter]
	Images   = record.Collection[compute.Image, compute.ImageFilter]
	Keypairs = record.Collection[compute.Keypair, compute.KeypairFilter]
	Networks = record.Collection[compute.Network, compute.NetworkFilter]
	Volumes  = record.Collection[compute.Volume, compute.VolumeFilter]
	Clusters = record.Collection[compute.Cluster, compute.ClusterFilter]
	// HostGroups are what operators decide for several hosts at once.
	HostGroups = record.Collection[compute.HostGroup, compute.HostGroupFilter]
)

// serviceCore is what the services share.
type serviceCore struct {
	store compute.Store
	jobs  record.Jobs
	opts  Options
	now   func() time.Time
}

// New makes the services.
func New(store compute.Store, jobs record.Jobs, opts Options, now func() time.Time) *Services {
	if opts.PasswordLength <= 0 {
		opts.PasswordLength = 12
	}
	c := &serviceCore{store: store, jobs: jobs, opts: opts, now: now}
	s := &Services{Flavors: newFlavors(c), Images: newImages(c), Keypairs: newKeypairs(c), Networks: newNetworks(c), Volumes: newVolumes(c), Clusters: newClusters(c),
		JoinTokens: newJoinTokens(c), HostGroups: newHostGroups(c)}
	cache := newHostCache(now())
	s.Liveness = &Liveness{serviceCore: c, cache: cache}
	s.RescueImages = newRescueImages(c, s.Liveness)
	s.Diagnoses = &Diagnoses{serviceCore: c}
	s.GuestReports = &GuestReports{serviceCore: c, liveness: s.Liveness}
	s.Fences = &Fences{serviceCore: c, cache: cache, liveness: s.Liveness, reports: s.GuestReports}
	s.Hosts = newHosts(c, cache, s.Fences)
	s.addServers(c, cache)
	s.Leases = newLeases(c, cache, s)
	s.HeldDatabase = &HeldDatabase{serviceCore: c, cache: cache}
	return s
}

// addServers makes the services of servers above those of hosts.
func (s *Services) addServers(c *serviceCore, cache *hostCache) {
	placement := &hostPlacement{serviceCore: c, cache: cache, liveness: s.Liveness}
	inputs := &planInputs{serviceCore: c, liveness: s.Liveness, reports: s.GuestReports}
	s.Servers = &Servers{serviceCore: c, reports: s.GuestReports, placement: placement}
	s.Observer = &Observer{serviceCore: c, reports: s.GuestReports, servers: s.Servers}
	s.Reconciler = &Reconciler{serviceCore: c, servers: s.Servers, observer: s.Observer}
	s.Moves = &Moves{serviceCore: c, liveness: s.Liveness, reports: s.GuestReports, fences: s.Fences, placement: placement, inputs: inputs, servers: s.Servers}
	s.Actions = &Actions{serviceCore: c, reports: s.GuestReports, images: s.RescueImages, servers: s.Servers, moves: s.Moves, reconciler: s.Reconciler}
	s.Plans = &Plans{serviceCore: c, liveness: s.Liveness, fences: s.Fences, hosts: s.Hosts, moves: s.Moves, inputs: inputs}
	s.Quarantine = &Quarantine{serviceCore: c, liveness: s.Liveness, reports: s.GuestReports, servers: s.Servers}
}

// pageOf is a page of at most so many, from the beginning.
func pageOf(limit int) record.Page { return record.Page{Limit: limit} }
