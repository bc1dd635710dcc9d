package restored

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Witness is a witness and its agreement with the database.
type Witness struct {
	record.SeenWitness
	// Contradicts is how it contradicts the database, and holds it unless it is held already; empty: they agree.
	Contradicts string
}

// AllHosts names the witnesses of all hosts.
const AllHosts = "hosts"

// lostShown bounds the list of witnesses that were declared lost.
const lostShown = 100

// incarnationID is the form of the id of a database.
var incarnationID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// witnesses compares the witnesses that this process sees with the database.
func (s *Service) witnesses(ctx context.Context, tx job.Tx, i record.Incarnation) ([]Witness, error) {
	if s.Witnesses == nil {
		return nil, nil
	}
	former, err := s.store.FormerIncarnationsIn(ctx, tx)
	if err != nil {
		return nil, err
	}
	var out []Witness
	for _, seen := range s.Witnesses() {
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

// names tells whether a word of an operator names the witness.
func (w *Witness) names(word string) bool {
	return word == All || word == w.Name || w.HostID != "" && (word == AllHosts || word == w.HostID || "host "+word == w.Name)
}

// LoseWitnesses declares witnesses lost or wrong: what they remember now does not hold the database again. It ends no hold. A word is the
// path of a file, the name or id of a host, "hosts", "all", or the id of a database that a witness elsewhere remembers. It returns a line
// for each witness. problem.NotFound if a word names none.
func (s *Service) LoseWitnesses(ctx context.Context, names []string, dryRun bool, asker record.Asker) (lines []string, err error) {
	err = s.store.Do(ctx, func(tx job.Tx) error {
		lines = nil
		i, err := s.store.IncarnationIn(ctx, tx)
		if err != nil {
			return err
		}
		all, err := s.witnesses(ctx, tx, i)
		if err != nil {
			return err
		}
		lost, err := namedWitnesses(all, names)
		for _, w := range lost {
			switch {
			case err != nil:
			case w.Unreadable != "":
				err = problem.Conflictf("Witness %s: %s", w.Name, w.Unreadable)
			case w.Contradicts == "":
				lines = append(lines, w.Name+": agrees with the database, so nothing is to be declared")
			case dryRun:
				lines = append(lines, fmt.Sprintf("%s: would be declared lost: %s", w.Name, w.Contradicts))
			default:
				lines = append(lines, fmt.Sprintf("%s: is declared lost: %s; that does not hold the database again", w.Name, w.Contradicts))
				err = s.store.LoseWitness(tx, record.LostWitness{Name: w.Name, Witness: w.Witness, User: asker.User})
			}
		}
		return err
	})
	return lines, err
}

func namedWitnesses(all []Witness, names []string) ([]Witness, error) {
	var out []Witness
	for _, word := range names {
		found := slices.DeleteFunc(slices.Clone(all), func(w Witness) bool { return !w.names(word) })
		if len(found) == 0 && incarnationID.MatchString(word) {
			found = []Witness{{SeenWitness: record.SeenWitness{Name: "elsewhere", Witness: record.Witness{ID: word}}, Contradicts: "it remembers the database " + word}}
		}
		if len(found) == 0 && word != All && word != AllHosts {
			names := make([]string, len(all))
			for i, w := range all {
				names[i] = w.Name
			}
			return nil, problem.NotFoundf("No witness is called %.100q. This process sees: %s. Name one of them, \"hosts\", \"all\", or the id of the database that a witness elsewhere remembers.", word, some(names))
		}
		for _, w := range found {
			if !slices.ContainsFunc(out, func(o Witness) bool { return o.Name == w.Name && o.ID == w.ID }) {
				out = append(out, w)
			}
		}
	}
	return out, nil
}
