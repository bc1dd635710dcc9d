package native

import (
	"net/http"
	"strings"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

func (s *server) planCollection() resourceCollection[compute.Plan, compute.PlanFilter] {
	plans := s.Services.Plans
	return resourceCollection[compute.Plan, compute.PlanFilter]{
		path: "/plans", many: "plans",
		list: func(c *api.Call, f compute.PlanFilter, p record.Page) ([]*compute.Plan, error) {
			return plans.List(c.R.Context(), f, p)
		},
		get: func(c *api.Call, ident string) (*compute.Plan, error) { return plans.Get(c.R.Context(), ident) },
		filter: func(c *api.Call) (f compute.PlanFilter, err error) {
			if f.State, err = oneOf(c, "state", compute.PlanDrafted, compute.PlanRunning, compute.PlanDone, compute.PlanPartly, compute.PlanCancelled); err != nil {
				return f, err
			}
			f.HostID, err = s.hostOf(c, c.Query.Get("host"))
			return f, err
		},
		view: s.viewPlans,
		id:   func(p *compute.Plan) string { return p.ID },
	}
}

func (s *server) plans() []api.Route {
	k := s.planCollection()
	return append(k.routes(),
		api.Route{Method: http.MethodPost, Path: k.path, Do: s.draftPlan},
		api.Route{Method: http.MethodPost, Path: k.path + "/{ident}/run", Do: func(c *api.Call) error {
			var b struct {
				Consent          []string `json:"consent"`
				DiscardVariables bool     `json:"discard_variables"`
			}
			if err := c.ReadExactly(&b); err != nil {
				return err
			}
			p, err := k.get(c, c.Arg("ident"))
			if err != nil {
				return err
			}
			named := map[string][]string{}
			for i := range p.Items {
				named[p.Items[i].Name] = append(named[p.Items[i].Name], p.Items[i].ServerID)
			}
			consent, err := serverIDs(b.Consent, named)
			if err != nil {
				return err
			}
			if p, err = s.Services.Plans.Run(c.R.Context(), p.ID, compute.PlanConsent{Servers: consent, DiscardVariables: b.DiscardVariables}, requesterOf(c)); err != nil {
				return err
			}
			return s.showPlan(c, http.StatusAccepted, p)
		}},
		api.Route{Method: http.MethodPost, Path: k.path + "/{ident}/cancel", Do: withoutBody(func(c *api.Call) error {
			p, err := s.Services.Plans.Cancel(c.R.Context(), c.Arg("ident"), requesterOf(c))
			if err != nil {
				return err
			}
			return s.showPlan(c, http.StatusAccepted, p)
		})},
	)
}

// draftPlan says what would become of a host's servers, and does nothing else.
func (s *server) draftPlan(c *api.Call) error {
	var b struct {
		Host             string   `json:"host"`
		Dest             string   `json:"destination"`
		Servers          []string `json:"servers"`
		Consent          []string `json:"consent"`
		ReimageAll       bool     `json:"reimage_all"`
		Drain            bool     `json:"drain"`
		Parallel         int      `json:"parallel"`
		DiscardVariables bool     `json:"discard_variables"`
	}
	if err := c.ReadExactly(&b); err != nil {
		return err
	}
	if b.Host == "" {
		return problem.Invalidf("Invalid input for field/attribute host: name the host whose servers are to be moved.")
	}
	h, err := s.Services.Hosts.Host(c.R.Context(), b.Host)
	if err != nil {
		return err
	}
	named := map[string][]string{}
	if len(b.Servers)+len(b.Consent) > 0 {
		there, err := s.Services.Servers.List(c.R.Context(), compute.ServerFilter{HostID: h.ID}, record.Page{})
		if err != nil {
			return err
		}
		for _, srv := range there {
			named[srv.Name] = append(named[srv.Name], srv.ID)
		}
	}
	if b.Servers, err = serverIDs(b.Servers, named); err != nil {
		return err
	}
	if b.Consent, err = serverIDs(b.Consent, named); err != nil {
		return err
	}
	p, err := s.Services.Plans.Draft(c.R.Context(), compute.PlanRequest{
		Host: h.ID, Dest: b.Dest, Servers: b.Servers, Consent: b.Consent, ReimageAll: b.ReimageAll, Drain: b.Drain, Parallel: b.Parallel, DiscardVariables: b.DiscardVariables,
	}, requesterOf(c))
	if err != nil {
		return err
	}
	return s.showPlan(c, http.StatusCreated, p)
}

// serverIDs gives the ids of servers that are named by UUID or by a name that only one of the host's has.
func serverIDs(idents []string, named map[string][]string) ([]string, error) {
	out := make([]string, len(idents))
	for i, word := range idents {
		found := named[word]
		switch {
		case len(found) == 1:
			out[i] = found[0]
		case len(found) > 1:
			return nil, problem.Conflictf("%d servers of the host are named %.100q: name one by its UUID: %s", len(found), word, strings.Join(found, ", "))
		case record.IsUUID(word):
			out[i] = strings.ToLower(word)
		default:
			return nil, problem.NotFoundf("the host has no server named %.100q", word)
		}
	}
	return out, nil
}

func (s *server) showPlan(c *api.Call, status int, p *compute.Plan) error {
	return s.planCollection().show(c, status, p)
}

// viewPlans reads the names of hosts once, and the moves of each plan that was run.
func (s *server) viewPlans(c *api.Call, all []*compute.Plan) ([]map[string]any, error) {
	names, err := s.hostNames(c)
	if err != nil {
		return nil, err
	}
	out := make([]map[string]any, len(all))
	for i, p := range all {
		moves := map[string]*compute.Move{}
		if p.State != compute.PlanDrafted {
			found, err := s.Services.Moves.List(c.R.Context(), compute.MoveFilter{PlanID: p.ID}, record.Page{})
			if err != nil {
				return nil, err
			}
			for _, m := range found {
				if was := moves[m.ServerID]; was == nil || was.Num < m.Num {
					moves[m.ServerID] = m
				}
			}
		}
		out[i] = viewPlan(p, names, moves)
	}
	return out, nil
}

func viewPlan(p *compute.Plan, names map[string]string, moves map[string]*compute.Move) map[string]any {
	count := map[compute.Disposition]int{compute.KeepDisk: 0, compute.Reattach: 0, compute.Reimage: 0, compute.Cannot: 0}
	items := make([]map[string]any, len(p.Items))
	unconsented := 0
	for i := range p.Items {
		it := &p.Items[i]
		count[it.Disposition]++
		if it.NeedsConsent && !it.Consented {
			unconsented++
		}
		items[i] = map[string]any{
			"server_id": it.ServerID, "name": it.Name, "project": it.Project, "priority": it.Priority, "disposition": it.Disposition,
			"destination_id": it.DestID, "destination": names[it.DestID], "why": it.Why, "loses_variables": it.LosesVariables, "needs_consent": it.NeedsConsent, "consented": it.Consented,
			"state": it.State, "power": it.Power, "in_rescue": it.InRescue, "move_id": it.MoveID, "problem": it.Problem, "move_state": "", "words": "",
		}
		if m := moves[it.ServerID]; m != nil {
			dest := names[m.DestID]
			items[i]["move_id"], items[i]["move_state"], items[i]["words"] = m.ID, m.Status(), m.Words
			if m.DestID != "" {
				items[i]["destination_id"], items[i]["destination"] = m.DestID, dest
			}
			if it.Problem == "" {
				items[i]["problem"] = m.Problem
			}
		}
	}
	var oneMore any
	if p.OneMore || p.OneMoreWhy != "" {
		oneMore = p.OneMore
	}
	return map[string]any{
		"id": p.ID, "number": p.Num, "host_id": p.HostID, "host": names[p.HostID], "state": p.State, "by": p.By, "drain": p.Drain, "bring_home": p.Home(), "parallel": p.Parallel,
		"missing": p.Missing, "one_more": oneMore, "one_more_why": p.OneMoreWhy, "items": items, "unconsented": unconsented, "dispositions": count,
		"servers": len(p.Items), "created_at": timeOrNull(p.CreatedAt), "ended_at": timeOrNull(p.EndedAt),
	}
}
