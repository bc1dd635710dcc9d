package ironic

import (
	"net/http"
	"slices"

	"salvor/access"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// allocations are claims on any node that fits.
var allocations = defineKind(recordKind[metal.Allocation, metal.AllocationFilter]{
	name: "allocation", path: "allocations", list: "allocations", since: 52,
	service: func(s *server) *record.Collection[metal.Allocation, metal.AllocationFilter] {
		return s.Allocations.Collection
	},
	blank: func(c *ironicCall) *metal.Allocation { return &metal.Allocation{Owner: c.owner} },
	fields: slices.Concat([]recordField[metal.Allocation]{
		idField[metal.Allocation](),
		wordField("name", 1, settable|ordered, 255, func(a *metal.Allocation) *string { return &a.Name }),
		shownOnly(nodeRef(ordered, func(a *metal.Allocation) *string { return &a.NodeID })),
		wordField("resource_class", 1, creatable|ordered, 80, func(a *metal.Allocation) *string { return &a.ResourceClass }),
		{name: "state", since: 1, use: ordered, write: func(b []byte, a *metal.Allocation, _ *ironicCall) []byte { return appendText(b, string(a.State)) }},
		wordsField("traits", 1, creatable, metal.CheckTrait, func(a *metal.Allocation) *[]string { return &a.Traits }),
		wordsField("candidate_nodes", 1, creatable, nil, func(a *metal.Allocation) *[]string { return &a.CandidateNodes }),
		shownOnly(wordField("last_error", 1, ordered, maxText, func(a *metal.Allocation) *string { return &a.LastError })),
		wordField("owner", 60, creatable|ordered, 255, func(a *metal.Allocation) *string { return &a.Owner }),
		freeField("extra", 1, settable, func(a *metal.Allocation) *metal.Object { return &a.Extra }),
	}, lateFields[metal.Allocation]("allocations")),
	filters: []queryFilter[metal.AllocationFilter]{
		{name: "node", since: 1, set: func(c *ironicCall, f *metal.AllocationFilter, ident string) error {
			n, err := c.nodeNamed(ident)
			if problem.Is(err, problem.NotFound) {
				return problem.Invalidf("Node %s could not be found.", truncateInput(ident))
			}
			if err == nil {
				f.NodeID = n.ID
			}
			return err
		}},
		wordFilter("resource_class", 1, func(f *metal.AllocationFilter) *string { return &f.ResourceClass }),
		{name: "state", since: 1, set: func(_ *ironicCall, f *metal.AllocationFilter, value string) error {
			f.State = metal.AllocationState(value)
			return nil
		}},
		wordFilter("owner", 60, func(f *metal.AllocationFilter) *string { return &f.Owner }),
	},
})

// shownOnly takes from a field that clients may set it.
func shownOnly[R any](f recordField[R]) recordField[R] {
	f.use &^= settable
	f.get, f.set = nil, nil
	return f
}

// wordsField is a list of strings; none is [].
func wordsField[R any](name string, since metal.Version, u fieldUse, check func(string) error, at func(*R) *[]string) recordField[R] {
	return recordField[R]{
		name: name, since: since, use: u,
		write: func(b []byte, r *R, _ *ironicCall) []byte { return appendTraits(b, *at(r)) },
		get: func(r *R) any {
			out := make([]any, len(*at(r)))
			for i, word := range *at(r) {
				out[i] = word
			}
			return out
		},
		set: func(_ *ironicCall, r *R, v any) (err error) { *at(r), err = wantWords(name, v, check); return err },
	}
}

func wantWords(name string, v any, check func(string) error) ([]string, error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, wrongType(name, v, "a list of strings")
	}
	names := make([]string, len(list))
	for i, e := range list {
		word, ok := e.(string)
		if !ok || len(word) > maxIdent {
			return nil, wrongType(name, v, "a list of strings")
		}
		if check != nil {
			if err := check(word); err != nil {
				return nil, err
			}
		}
		names[i] = word
	}
	return names, nil
}

// allocationRoutes are those of the kind, but for what came later and what needs more than its table.
func (s *server) allocationRoutes() []apiRoute {
	routes := allocations.routes()
	for i := range routes {
		switch routes[i].method {
		case http.MethodPost:
			routes[i].do = s.createAllocation
		case http.MethodPatch:
			routes[i].since = 57
		}
	}
	return append(routes,
		apiRoute{method: "GET", path: "/v1/nodes/{node}/allocation", need: access.Read, since: 52, do: s.getNodeAllocation},
		apiRoute{method: "DELETE", path: "/v1/nodes/{node}/allocation", since: 52, do: s.removeNodeAllocation},
	)
}

func (s *server) createAllocation(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	body, err := c.object()
	if err != nil {
		return err
	}
	node, err := wantText("node", body["node"])
	if err != nil {
		return err
	}
	if node != "" && c.version < 58 {
		return problem.Invalidf("Cannot set node when creating an allocation in this API version")
	}
	delete(body, "node")
	a := allocations.blank(c)
	if err := allocations.fill(c, a, body); err != nil {
		return err
	}
	if err := s.Allocations.Create(c.R.Context(), a, node, c.Asker()); err != nil {
		return err
	}
	c.location("allocations/" + a.ID)
	if node == "" {
		// What came of it is in the row already. Clients expect to see a claim begin and then
		// to ask for it until it has ended.
		a.State, a.NodeID, a.LastError = metal.Allocating, "", ""
	}
	return allocations.show(c, http.StatusCreated, a)
}

func (s *server) getNodeAllocation(c *ironicCall) error {
	if err := c.only("fields"); err != nil {
		return err
	}
	fields, err := allocations.choose(c, false)
	if err != nil {
		return err
	}
	a, err := s.Allocations.OfNode(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	return c.Raw(http.StatusOK, allocations.append(make([]byte, 0, 1024), c, a, fields))
}

func (s *server) removeNodeAllocation(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	a, err := s.Allocations.OfNode(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	if err := s.Allocations.Remove(c.R.Context(), a.ID, c.Asker()); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}
