package native

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	wire "salvor/wire/native"
)

// fleetRoutes look over the machines. They are for all whom the policy shows machines, as Ironic's own lists are.
func (s *server) fleetRoutes() []api.Route {
	return []api.Route{
		{Method: http.MethodGet, Path: "/states", Do: listStates},
		{Method: http.MethodGet, Path: "/fleet", Do: s.fleet},
		{Method: http.MethodGet, Path: "/fleet/nodes", Do: s.fleetNodes},
	}
}

// listStates shows the table by which nodes go forward, from which pictures of it are drawn.
func listStates(c *api.Call) error {
	var out wire.States
	for _, s := range metal.States {
		out.States = append(out.States, wire.State{State: string(s.State), Stable: s.Stable, Target: string(s.Target)})
	}
	for _, t := range metal.Transitions {
		out.Transitions = append(out.Transitions, wire.Transition{
			From: string(t.From), Verb: string(t.Verb), Event: string(t.Event), To: string(t.To), Min: int(t.Min), Job: string(t.Job),
		})
	}
	return c.JSON(http.StatusOK, out)
}

// project is the one to whose machines the asker is confined; empty: to none.
func (s *server) project(c *api.Call) (string, error) {
	switch {
	case s.Policy.SeesFleet(c.Principal):
		return "", nil
	case c.Project() != "" && s.Policy.Allows("node:list", c.Principal, access.Target{}):
		return c.Project(), nil
	}
	return "", problem.Forbiddenf("Access was denied to the following resource: baremetal:node:list_all")
}

func (s *server) fleet(c *api.Call) error {
	project, err := s.project(c)
	if err != nil {
		return err
	}
	counts, err := s.Fleet.FleetCounts(c.R.Context(), project)
	if err != nil {
		return err
	}
	failing, err := s.Fleet.FailingBMCs(c.R.Context(), project, s.PowerReadSince(), 0)
	if err != nil {
		return err
	}
	out := viewFleet(counts)
	out.SilentBMCs, out.RefusingBMCs = failing.Silent, failing.Refusing
	return c.JSON(http.StatusOK, out)
}

func viewFleet(counts []metal.FleetCount) wire.Fleet {
	out := wire.Fleet{States: []wire.FleetState{}}
	of := map[metal.State]*wire.FleetState{}
	for _, n := range counts {
		one := of[n.State]
		if one == nil {
			one = &wire.FleetState{State: string(n.State)}
			of[n.State] = one
		}
		one.Count += n.Count
		if n.Maintenance {
			one.Maintenance += n.Count
		}
		if n.Faulty {
			one.Faulty += n.Count
		}
	}
	for _, s := range metal.States {
		if one := of[s.State]; one != nil {
			out.States = append(out.States, *one)
			out.Total, out.Maintenance, out.Faulty = out.Total+one.Count, out.Maintenance+one.Maintenance, out.Faulty+one.Faulty
		}
	}
	return out
}

// Bounds of a search and of a page.
const (
	maxSearch    = 255
	fleetDefault = 100
)

func (s *server) fleetNodes(c *api.Call) error {
	f, err := s.fleetFilter(c)
	if err != nil {
		return err
	}
	if f.Project, err = s.project(c); err != nil {
		return err
	}
	limit := fleetDefault
	if text := c.Query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			return problem.Invalidf("Invalid value for limit: %.40q; want 1 to %d.", text, maxPage)
		}
	}
	found, err := s.Fleet.FleetNodes(c.R.Context(), f, record.Page{Limit: limit + 1, Marker: strings.ToLower(c.Query.Get("marker"))})
	if err != nil {
		return err
	}
	out := wire.FleetPage{Nodes: []wire.FleetNode{}, More: len(found) > limit}
	for _, n := range found[:min(limit, len(found))] {
		out.Nodes = append(out.Nodes, viewFleetNode(n, f.PowerReadSince))
	}
	return c.JSON(http.StatusOK, out)
}

func viewFleetNode(n metal.FleetNode, readSince time.Time) wire.FleetNode {
	out := wire.FleetNode{
		UUID: n.ID, Name: n.Name, State: string(n.State), Target: string(n.Target), Power: string(n.Power), TargetPower: string(n.TargetPower),
		Maintenance: n.Maintenance, Fault: n.Fault, ConductorGroup: n.ConductorGroup, Failed: n.LastError != "", Since: utcOrNil(n.Since), BMC: string(n.Contact.BMCState(readSince)), PowerFresh: !n.Contact.PowerReadAt.Before(readSince),
	}
	if n.Contact.PowerRead == n.Power {
		out.PowerReadAt = utcOrNil(n.Contact.PowerReadAt)
	}
	return out
}

func (s *server) fleetFilter(c *api.Call) (f metal.NodeFilter, err error) {
	f.ProvisionState = metal.State(c.Query.Get("state"))
	if f.ProvisionState != "" && f.ProvisionState.Info().State == "" {
		return f, problem.Invalidf("Invalid value for state: %.40q is no provision state.", f.ProvisionState)
	}
	f.PowerReadSince = s.PowerReadSince()
	if word := c.Query.Get("bmc"); word != "" {
		if f.BMC, err = metal.ParseBMCState(word); err != nil {
			return f, err
		}
	}
	if ids := c.Query.Get("uuid"); ids != "" {
		f.IDs = strings.Split(strings.ToLower(ids), ",")
	}
	if len(f.IDs) > maxPage {
		return f, problem.Invalidf("Invalid value for uuid: it names more than %d nodes.", maxPage)
	}
	if f.Search = strings.TrimSpace(c.Query.Get("search")); len(f.Search) > maxSearch {
		return f, problem.Invalidf("Invalid value for search: it is longer than %d bytes.", maxSearch)
	}
	for name, to := range map[string]**bool{"maintenance": &f.Maintenance, "faulty": &f.Faulty} {
		on, err := parseBoolQuery(c, name)
		if err != nil {
			return f, err
		}
		if on {
			*to = &on
		}
	}
	return f, nil
}
