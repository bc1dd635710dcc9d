// Package conductor joins the operations on machines (package node) and those on servers (package server).
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

// New makes a conductor. Both halves act with the same permission; nil: always. Operations on servers read the power of hosts through
// those on nodes. So New sets Permission and PowerState of the configurations, whatever they hold.
func New(p *job.Permission, n node.Config, s server.Config) *Conductor {
	n.Permission, s.Permission = p, p
	nodes := node.New(n)
	s.PowerState = nodes.PowerState
	return &Conductor{Nodes: nodes, Servers: server.New(s)}
}

// Definitions lists every operation, command and background job that a conductor knows.
func (c *Conductor) Definitions() []job.Definition {
	return append(c.Nodes.Definitions(), c.Servers.Definitions()...)
}

// Versions are those of the lists of every operation, for whoever asks for work without running it.
func Versions() map[job.Kind]int {
	return job.Versions(New(nil, node.Config{}, server.Config{}).Definitions())
}
