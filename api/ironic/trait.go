package ironic

import (
	"net/http"
	"slices"

	"salvor/metal"
	"salvor/problem"
)

// maxTraits is how many traits a node may have, as in Ironic.
const maxTraits = 50

func (s *server) getTraits(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	n, err := s.Nodes.Node(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	traits := n.Traits
	if traits == nil {
		traits = []string{}
	}
	return c.JSON(http.StatusOK, map[string][]string{"traits": traits})
}

// changeTraits edits the traits and answers 204.
func (c *ironicCall) changeTraits(edit func(old []string) ([]string, error)) error {
	_, err := c.s.Nodes.Update(c.R.Context(), c.Args[0], c.Asker(), func(n *metal.Node) error {
		if err := c.rescueGate(n); err != nil {
			return err
		}
		traits, err := edit(slices.Clone(n.Traits))
		if err != nil {
			return err
		}
		slices.Sort(traits)
		if traits = slices.Compact(traits); len(traits) > maxTraits {
			return problem.Invalidf("Node %s can not have more than %d traits", n.ID, maxTraits)
		}
		n.Traits = traits
		return nil
	})
	if err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

func (s *server) setTraits(c *ironicCall) error {
	traits, err := c.traitList()
	if err != nil {
		return err
	}
	return c.changeTraits(func([]string) ([]string, error) { return traits, nil })
}

// traitList reads a body that holds traits and nothing else.
func (c *ironicCall) traitList() ([]string, error) {
	body, err := c.object()
	if err != nil {
		return nil, err
	}
	if _, ok := body["traits"].([]any); !ok || len(body) != 1 {
		return nil, problem.Invalidf("The body must hold traits, a list of strings, and nothing else.")
	}
	return wantWords("traits", body["traits"], metal.CheckTrait)
}

func (s *server) clearTraits(c *ironicCall) error {
	return c.changeTraits(func([]string) ([]string, error) { return nil, nil })
}

func (s *server) addTrait(c *ironicCall) error {
	word := c.Args[1]
	if err := metal.CheckTrait(word); err != nil {
		return err
	}
	c.location("nodes/" + c.Args[0] + "/traits/" + word)
	return c.changeTraits(func(old []string) ([]string, error) { return append(old, word), nil })
}

func (s *server) removeTrait(c *ironicCall) error {
	word := c.Args[1]
	return c.changeTraits(func(old []string) ([]string, error) {
		i := slices.Index(old, word)
		if i < 0 {
			return nil, problem.NotFoundf("Node %s doesn't have a trait '%s'", c.Args[0], truncateInput(word))
		}
		return slices.Delete(old, i, i+1), nil
	})
}
