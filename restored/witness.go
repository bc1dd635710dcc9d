package restored

import (
	"context"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Witness is a witness and its agreement with the database.
type Witness struct {
	record.SeenWitness
	// Contradicts is how it contradicts the database, and holds it unless it is held already; empty: they agree. A release accepts the
	// contradiction: what the witness remembers then does not hold the database again.
	Contradicts string
}

// seenWitnesses reads the witnesses that this process sees.
func (s *Service) seenWitnesses() []record.SeenWitness {
	if s.Witnesses == nil {
		return nil
	}
	return s.Witnesses()
}

// compare compares witnesses with the database.
func (s *Service) compare(ctx context.Context, tx job.Tx, i record.Incarnation, all []record.SeenWitness) ([]Witness, error) {
	if len(all) == 0 {
		return nil, nil
	}
	former, err := s.store.FormerIncarnationsIn(ctx, tx)
	if err != nil {
		return nil, err
	}
	var out []Witness
	for _, seen := range all {
		if seen.HostID != "" {
			host, err := s.servers.HeldDatabase.HeldHost(ctx, tx, seen.HostID)
			if problem.Is(err, problem.NotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			seen.Name = "host " + host
		}
		w := Witness{SeenWitness: seen}
		_, w.Contradicts = i.Judge(seen.Witness, seen.Name, former)
		out = append(out, w)
	}
	return out, nil
}
