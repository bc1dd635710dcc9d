package native

import (
	"encoding/base64"
	"net/http"
	"slices"

	"salvor/api"
	"salvor/diagnose"
	"salvor/diagnose/machine"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// diagnosisRoutes are for those who may rescue the node: a report holds texts of its disks, so a reader does not get it.
func (s *server) diagnosisRoutes() []api.Route {
	return []api.Route{
		{Method: http.MethodPost, Path: "/nodes/{ident}/diagnoses", Do: s.diagnose},
		{Method: http.MethodGet, Path: "/nodes/{ident}/diagnoses", Do: s.listDiagnoses},
		{Method: http.MethodGet, Path: "/nodes/{ident}/diagnoses/{id}", Do: s.showDiagnosis},
		{Method: http.MethodPost, Path: "/nodes/{ident}/diagnoses/{id}/confirm", Do: s.confirmDiagnosis},
	}
}

// rescuable finds a node that the asker may rescue.
func (s *server) rescuable(c *api.Call) (*metal.Node, error) {
	n, err := s.nodeOf(c, c.Arg("ident"))
	if err != nil {
		return nil, err
	}
	if !s.mayRescueNode(c, n) {
		return nil, problem.Forbiddenf("Only those who may rescue node %s may diagnose it, and read its diagnoses and its console.", c.Arg("ident"))
	}
	return n, nil
}

// diagnosisRequest is the body of a request for a diagnosis.
type diagnosisRequest struct {
	metal.DiagnoseArgs
	// Console is the end of what the machine wrote on its serial line, where somebody records that.
	Console  string           `json:"console"`
	LUKSKeys []luksKeyRequest `json:"luks_keys"`
}

// luksKeyRequest is a key of LUKS containers; no answer has it.
type luksKeyRequest struct {
	UUID string       `json:"uuid"`
	Key  secret.Value `json:"key"` // base64
}

// decodeLUKSKeys reads the keys of a request. Invalid: one is no base64.
func decodeLUKSKeys(requested []luksKeyRequest) ([]diagnose.LUKSKey, error) {
	var keys []diagnose.LUKSKey
	for i, k := range requested {
		key, err := base64.StdEncoding.DecodeString(k.Key.Reveal())
		if err != nil {
			return nil, problem.Invalidf("luks_keys[%d].key is no base64", i)
		}
		keys = append(keys, diagnose.LUKSKey{UUID: k.UUID, Key: secret.New(string(key))})
	}
	return keys, nil
}

func (s *server) diagnose(c *api.Call) error {
	var body diagnosisRequest
	if err := c.ReadExactly(&body); err != nil {
		return err
	}
	args := body.DiagnoseArgs
	var err error
	if args.LUKSKeys, err = decodeLUKSKeys(body.LUKSKeys); err != nil {
		return err
	}
	n, err := s.rescuable(c)
	if err != nil {
		return err
	}
	if len(body.Console) > diagnose.MaxConsole {
		return problem.Invalidf("The text of the console has %d bytes; send its last %d bytes.", len(body.Console), diagnose.MaxConsole)
	}
	args.Console = machine.ConsoleFindings(body.Console)
	d, err := s.Nodes.Diagnose(c.R.Context(), n.ID, args, c.Asker())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, d)
}

// diagnosisSummary is a diagnosis without its report.
type diagnosisSummary struct {
	ID          string         `json:"id"`
	State       diagnose.State `json:"state"`
	Outcome     string         `json:"outcome"`
	Finding     string         `json:"finding"`
	RequestedAt any            `json:"requested_at"`
	FinishedAt  any            `json:"finished_at"`
	RequestedBy string         `json:"requested_by"`
	Problem     string         `json:"problem"`
}

// answerSummaries answers with diagnoses without their reports.
func answerSummaries(c *api.Call, all []diagnose.Record) error {
	out := make([]diagnosisSummary, 0, len(all))
	for _, d := range all {
		out = append(out, diagnosisSummary{ID: d.ID, State: d.State, Outcome: string(d.Report.Verdict.Outcome), Finding: d.Report.Verdict.Finding,
			RequestedAt: timeOrNull(d.RequestedAt), FinishedAt: timeOrNull(d.FinishedAt), RequestedBy: d.RequestedBy, Problem: d.Problem})
	}
	return c.JSON(http.StatusOK, map[string]any{"diagnoses": out})
}

// visibleDiagnoses gives the diagnoses of the node as the asker may see them.
func (s *server) visibleDiagnoses(c *api.Call) ([]metal.Diagnosis, error) {
	n, err := s.rescuable(c)
	if err != nil {
		return nil, err
	}
	kept, err := s.Nodes.Diagnoses(c.R.Context(), nil, n.ID)
	all := slices.Clone(kept)
	if !c.Principal.SeesQuotations() {
		for i := range all {
			redactDiagnosis(&all[i].Record)
		}
	}
	return all, err
}

func (s *server) listDiagnoses(c *api.Call) error {
	all, err := s.visibleDiagnoses(c)
	if err != nil {
		return err
	}
	records := make([]diagnose.Record, len(all))
	for i := range all {
		records[i] = all[i].Record
	}
	return answerSummaries(c, records)
}

// showDiagnosis answers with one; the id "newest" is the newest.
func (s *server) showDiagnosis(c *api.Call) error {
	all, err := s.visibleDiagnoses(c)
	if err != nil {
		return err
	}
	for _, d := range all {
		if id := c.Arg("id"); id == "newest" || d.ID == id {
			return c.JSON(http.StatusOK, d)
		}
	}
	return problem.NotFoundf("Node %s has no diagnosis %s.", c.Arg("ident"), c.Arg("id"))
}

// confirmRequest is the body of a statement that a machine works.
type confirmRequest struct {
	// Words say how the user knows.
	Words string `json:"words"`
}

// confirmDiagnosis takes a user's statement that the node works; the id "newest" is that of the newest diagnosis.
func (s *server) confirmDiagnosis(c *api.Call) error {
	var body confirmRequest
	if err := c.ReadExactly(&body); err != nil {
		return err
	}
	n, err := s.rescuable(c)
	if err != nil {
		return err
	}
	d, err := s.Nodes.ConfirmDiagnosis(c.R.Context(), n.ID, c.Arg("id"), body.Words, c.Asker())
	if err != nil {
		return err
	}
	if !c.Principal.SeesQuotations() {
		redactDiagnosis(&d.Record)
	}
	return c.JSON(http.StatusAccepted, d)
}

// redactDiagnosis takes out what is about the infrastructure below the machine: words of BMCs, and those of operators. What lies on the disks
// stays, since it is the asker's.
func redactDiagnosis(d *diagnose.Record) {
	d.Problem = problem.Redact(d.Problem)
	r := &d.Report
	r.Observed = slices.DeleteFunc(slices.Clone(r.Observed), func(o diagnose.Observation) bool { return o.Name == "maintenance" })
	r.NotExamined = slices.Clone(r.NotExamined)
	for i := range r.NotExamined {
		r.NotExamined[i].Why = problem.Redact(r.NotExamined[i].Why)
	}
	r.Changes = slices.Clone(r.Changes)
	for i := range r.Changes {
		r.Changes[i].Text = problem.Redact(r.Changes[i].Text)
	}
	r.Findings = slices.Clone(r.Findings)
	for i := range r.Findings {
		evidence := slices.Clone(r.Findings[i].Evidence)
		for j, e := range evidence {
			if e.Kind == diagnose.FromEventLog || e.Kind == diagnose.FromBMC {
				evidence[j].Text = problem.Redacted
			}
		}
		r.Findings[i].Evidence = evidence
	}
}
