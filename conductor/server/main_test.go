package server

import (
	"testing"

	"salvor/conductor/conductortest"
	"salvor/conductor/node"
	"salvor/job"
)

func TestMain(m *testing.M) { conductortest.Main(m, New(Config{}).Definitions()) }

// allDefinitions are those of both halves: operations on hosts insert jobs on their nodes.
func allDefinitions() []job.Definition {
	return append(node.New(node.Config{}).Definitions(), New(Config{}).Definitions()...)
}
