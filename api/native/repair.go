package native

import (
	"context"
	"net/http"

	"salvor/api"
	"salvor/diagnose"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/repair"
)

// Repairs repairs machines; metal.NodeRepairs does.
type Repairs interface {
	Begin(ctx context.Context, ident string, args metal.RepairArgs, asker record.Asker) (metal.Repair, error)
	BeginUndo(ctx context.Context, ident, id string, args metal.RepairArgs, asker record.Asker) (metal.Repair, error)
	// Newest lists the kept repairs, newest first.
	Newest(ctx context.Context, ident string) ([]metal.Repair, error)
	// Find gives one by its id, or the one with the id "newest", with its plan as people are shown it, and how it can be taken back.
	Find(ctx context.Context, ident, id string) (metal.Repair, *repair.Plan, metal.UndoMethod, error)
	Consent(ctx context.Context, ident, id string, consent metal.RepairConsent, asker record.Asker) (metal.Repair, error)
	Decline(ctx context.Context, ident, id string, asker record.Asker) (metal.Repair, error)
	Confirm(ctx context.Context, ident, id string, asker record.Asker) (metal.Repair, error)
}

// repairRequests answer requests about repairs.
type repairRequests struct{ *server }

// routes are for those who may rescue the node, as those of diagnoses are: a plan holds texts of its disks.
func (s repairRequests) routes() []api.Route {
	return []api.Route{
		{Method: http.MethodPost, Path: "/nodes/{ident}/repairs", Do: s.repair},
		{Method: http.MethodGet, Path: "/nodes/{ident}/repairs", Do: s.listRepairs},
		{Method: http.MethodGet, Path: "/nodes/{ident}/repairs/{id}", Do: s.showRepair},
		{Method: http.MethodPost, Path: "/nodes/{ident}/repairs/{id}/consent", Do: s.consentRepair},
		{Method: http.MethodPost, Path: "/nodes/{ident}/repairs/{id}/decline", Do: s.declineRepair},
		{Method: http.MethodPost, Path: "/nodes/{ident}/repairs/{id}/confirm", Do: s.confirmRepair},
		{Method: http.MethodPost, Path: "/nodes/{ident}/repairs/{id}/undo", Do: s.undoRepair},
	}
}

// repairRequest is the body of a request of a repair or of an undo.
type repairRequest struct {
	Findings       []string           `json:"findings"`
	Root           string             `json:"root"`
	Consents       []diagnose.Consent `json:"consents"`
	Reboot         bool               `json:"reboot"`
	KeepRescue     bool               `json:"keep_rescue"`
	Digest         string             `json:"digest"`
	WaitForConsent bool               `json:"wait_for_consent"`
	LUKSKeys       []luksKeyRequest   `json:"luks_keys"`
}

func (q *repairRequest) args() (metal.RepairArgs, error) {
	args := metal.RepairArgs{Findings: q.Findings, Root: q.Root, Consents: q.Consents, Reboot: q.Reboot, KeepRescue: q.KeepRescue, Digest: q.Digest, WaitForConsent: q.WaitForConsent}
	var err error
	args.LUKSKeys, err = decodeLUKSKeys(q.LUKSKeys)
	return args, err
}

// shownRepair is a repair with its plan.
type shownRepair struct {
	metal.Repair
	Undo metal.UndoMethod `json:"undo"`
	Plan *repair.Plan     `json:"plan"`
}

// repairable finds a node that the asker may repair.
func (s repairRequests) repairable(c *api.Call) (*metal.Node, error) {
	n, err := s.nodeOf(c, c.Arg("ident"))
	if err != nil {
		return nil, err
	}
	if !s.mayRescueNode(c, n) {
		return nil, problem.Forbiddenf("Only those who may rescue node %s may repair it and read its repairs.", c.Arg("ident"))
	}
	return n, nil
}

// changeRepair reads the body of a request, and answers with the repair that it begins or changes.
func (s repairRequests) changeRepair(c *api.Call, body any, do func(n *metal.Node) (metal.Repair, error)) error {
	if err := c.ReadExactly(body); err != nil {
		return err
	}
	n, err := s.repairable(c)
	if err != nil {
		return err
	}
	r, err := do(n)
	if err != nil {
		return err
	}
	s.redactRepair(c, &r)
	return c.JSON(http.StatusAccepted, r)
}

func (s repairRequests) repair(c *api.Call) error {
	var q repairRequest
	return s.changeRepair(c, &q, func(n *metal.Node) (metal.Repair, error) {
		args, err := q.args()
		if err != nil {
			return metal.Repair{}, err
		}
		return s.Repairs.Begin(c.R.Context(), n.ID, args, c.Asker())
	})
}

func (s repairRequests) undoRepair(c *api.Call) error {
	var q repairRequest
	return s.changeRepair(c, &q, func(n *metal.Node) (metal.Repair, error) {
		args, err := q.args()
		if err != nil {
			return metal.Repair{}, err
		}
		return s.Repairs.BeginUndo(c.R.Context(), n.ID, c.Arg("id"), args, c.Asker())
	})
}

func (s repairRequests) consentRepair(c *api.Call) error {
	var q struct {
		Digest   string             `json:"digest"`
		Consents []diagnose.Consent `json:"consents"`
	}
	return s.changeRepair(c, &q, func(n *metal.Node) (metal.Repair, error) {
		return s.Repairs.Consent(c.R.Context(), n.ID, c.Arg("id"), metal.RepairConsent{Digest: q.Digest, Consents: q.Consents}, c.Asker())
	})
}

func (s repairRequests) declineRepair(c *api.Call) error {
	return s.changeRepair(c, &struct{}{}, func(n *metal.Node) (metal.Repair, error) {
		return s.Repairs.Decline(c.R.Context(), n.ID, c.Arg("id"), c.Asker())
	})
}

func (s repairRequests) confirmRepair(c *api.Call) error {
	return s.changeRepair(c, &struct{}{}, func(n *metal.Node) (metal.Repair, error) {
		return s.Repairs.Confirm(c.R.Context(), n.ID, c.Arg("id"), c.Asker())
	})
}

func (s repairRequests) listRepairs(c *api.Call) error {
	n, err := s.repairable(c)
	if err != nil {
		return err
	}
	all, err := s.Repairs.Newest(c.R.Context(), n.ID)
	if err != nil {
		return err
	}
	out := make([]metal.Repair, 0, len(all))
	for _, r := range all {
		s.redactRepair(c, &r)
		out = append(out, r)
	}
	return c.JSON(http.StatusOK, map[string]any{"repairs": out})
}

// showRepair answers with one; the id "newest" is the newest.
func (s repairRequests) showRepair(c *api.Call) error {
	n, err := s.repairable(c)
	if err != nil {
		return err
	}
	r, plan, undo, err := s.Repairs.Find(c.R.Context(), n.ID, c.Arg("id"))
	if err != nil {
		return err
	}
	s.redactRepair(c, &r)
	return c.JSON(http.StatusOK, shownRepair{Repair: r, Undo: undo, Plan: plan})
}

// redactRepair takes out what BMCs and operators say. What lies on the disks stays, since it is the asker's.
func (s repairRequests) redactRepair(c *api.Call, r *metal.Repair) {
	r.Problem = c.Principal.Redact(r.Problem)
}
