// Package conductor is the part of a process that runs jobs: the operations on machines (package node) and those on servers (package server).
package conductor

import (
	"salvor/conductor/node"
	"salvor/conductor/server"
	"salvor/job"
)

// Conductor runs every operation.
type Conductor struct {
	Nodes   *node.Conductor
	Servers *server.Conductor
}

// New makes a conductor. Operations on servers read the power of hosts by way of those on nodes.
func New(n node.Config, s server.Config) *Conductor {
	nodes := node.New(n)
	s.PowerState = nodes.PowerState
	return &Conductor{Nodes: nodes, Servers: server.New(s)}
}

// Definitions lists every operation, command and ask that a conductor knows.
func (c *Conductor) Definitions() []job.Definition {
	return append(c.Nodes.Definitions(), c.Servers.Definitions()...)
}

// Versions are those of the lists of every operation, for whoever asks for work without running it.
func Versions() map[job.Kind]int {
	return job.Versions(New(node.Config{}, server.Config{}).Definitions())
}
