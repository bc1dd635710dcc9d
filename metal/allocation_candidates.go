package metal

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"

	"salvor/problem"
	"salvor/record"
)

// maxFitting is how many nodes are looked at in one go: enough that others cannot be faster
// with all that fit of them, and few, for each is read whole.
const maxFitting = 100

// candidateSearch is a look for nodes that fit.
type candidateSearch struct {
	a    *Allocation
	ids  []string // of those that fit
	name string   // the id of the one of the allocation's own name, if it fits
	busy *Node    // one that is worked on and may fit soon: its power is just being switched, say
	free bool     // there is one that would fit if it had the traits
}

// match judges a node.
func (s *candidateSearch) match(n *Node) {
	s.free = s.free || s.a.wants(n)
	if n.Reservation != "" {
		soon := *n
		if n.PowerState == PowerUnknown {
			soon.PowerState = n.TargetPower
		}
		if s.a.fits(&soon) {
			s.busy = n
		}
		return
	}
	switch {
	case !s.a.fits(n):
	case s.a.Name != "" && n.Name == s.a.Name:
		s.name = n.ID
	default:
		s.ids = append(s.ids, n.ID)
	}
}

// matchingNodes lists nodes that fit, in random order so that requests at the same time do not all try
// the same one, a node of the allocation's name first. With none it says why, and gives a busy one.
func (s *Allocations) matchingNodes(ctx context.Context, a *Allocation) (ids []string, busy *Node, why string, err error) {
	look := &candidateSearch{a: a}
	if a.Name != "" {
		err = s.seeNodes(ctx, look, []string{a.Name})
	}
	switch {
	case err != nil:
	case len(a.CandidateNodes) > 0:
		some := slices.Clone(a.CandidateNodes)
		rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		err = s.seeNodes(ctx, look, some)
	default:
		err = s.seeAvailable(ctx, look)
	}
	if err != nil {
		return nil, nil, "", err
	}
	ids = look.ids
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	if look.name != "" {
		ids = slices.Insert(ids, 0, look.name)
	}
	switch {
	case look.free:
		why = "no suitable nodes have the requested traits " + strings.Join(a.Traits, ", ")
	case len(a.CandidateNodes) > 0:
		why = "none of the requested nodes are available and match the resource class " + a.ResourceClass
	default:
		why = "no available nodes match the resource class " + a.ResourceClass
	}
	return ids, look.busy, why, nil
}

// seeNodes looks at the nodes one by one, until enough fit.
func (s *Allocations) seeNodes(ctx context.Context, look *candidateSearch, idents []string) error {
	for _, ident := range idents {
		n, err := s.nodes.store.Node(ctx, nil, ident)
		if problem.Is(err, problem.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if look.match(n); len(look.ids) == maxFitting {
			return nil
		}
	}
	return nil
}

// seeAvailable looks at the nodes that the store finds likely, page by page until some fit.
func (s *Allocations) seeAvailable(ctx context.Context, look *candidateSearch) error {
	no := false
	a, p := look.a, record.Page{Limit: maxFitting}
	f := NodeFilter{ResourceClass: a.ResourceClass, ProvisionState: Available, Associated: &no, Maintenance: &no, Project: a.Owner, Traits: a.Traits, Powered: true}
	for {
		page, err := s.seePage(ctx, look, f, p)
		if err != nil || len(look.ids) > 0 {
			return err
		}
		if len(page) < p.Limit {
			break
		}
		p.Marker = page[len(page)-1].ID
	}
	if len(a.Traits) == 0 || look.free {
		return nil
	}
	f.Traits = nil // one that is there without the traits tells why there is none with them
	_, err := s.seePage(ctx, look, f, record.Page{Limit: 1})
	return err
}

func (s *Allocations) seePage(ctx context.Context, look *candidateSearch, f NodeFilter, p record.Page) ([]*Node, error) {
	page, err := s.nodes.store.Nodes(ctx, nil, f, p)
	if p.Marker != "" && problem.Is(err, problem.NotFound) {
		return nil, record.ErrChanged // the last one of the page before is gone
	}
	for _, n := range page {
		look.match(n)
	}
	return page, err
}
