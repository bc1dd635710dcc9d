package compute

import (
	"context"

	"salvor/problem"
)

// MoveWish is what an administrator asks of the evacuation of one server.
type MoveWish struct {
	// DestHost is a UUID or a name; empty: the best host. Force: it is not judged, and there is no other.
	DestHost string
	Force    bool
}

// Evacuate moves one server away from a host that is fenced. Its name is the consent to re-image it, unless its host's group says never.
// The problems carry the Compute API's own texts.
func (s *Servers) Evacuate(ctx context.Context, id string, w MoveWish, who Who) (*Move, error) {
	return nil, problem.Unsupportedf("no evacuation yet")
}
