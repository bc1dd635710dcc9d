package node

import (
	"testing"

	"salvor/conductor/conductortest"
)

func TestMain(m *testing.M) { conductortest.Main(m, New(Config{}).Definitions()) }
