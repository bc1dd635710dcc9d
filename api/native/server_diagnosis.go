package native

import (
	"net/http"
	"strings"

	"salvor/api"
	"salvor/compute"
	"salvor/diagnose"
	"salvor/problem"
)

// serverDiagnoses are the requests about diagnoses of servers.
type serverDiagnoses struct{ *server }

func (s serverDiagnoses) routes() []api.Route {
	return []api.Route{
		{Method: http.MethodPost, Path: "/servers/{ident}/diagnoses", Do: s.begin},
		{Method: http.MethodGet, Path: "/servers/{ident}/diagnoses", Do: s.list},
		{Method: http.MethodGet, Path: "/servers/{ident}/diagnoses/{id}", Do: s.show},
		{Method: http.MethodPost, Path: "/servers/{ident}/diagnoses/{id}/confirm", Do: s.confirm},
	}
}

// rescuable finds a server that the asker may rescue.
func (s serverDiagnoses) rescuable(c *api.Call) (*compute.Server, error) {
	srv, err := s.serverOf(c, c.Arg("ident"), "servers:show")
	if err != nil {
		return nil, err
	}
	if !s.mayEnterServer(c) {
		return nil, problem.Forbiddenf("Only those who may rescue server %s may diagnose it and read its diagnoses.", c.Arg("ident"))
	}
	return srv, nil
}

func (s serverDiagnoses) begin(c *api.Call) error {
	var body struct {
		compute.DiagnoseArgs
		LUKSKeys []luksKeyRequest `json:"luks_keys"`
	}
	if err := c.ReadExactly(&body); err != nil {
		return err
	}
	keys, err := decodeLUKSKeys(body.LUKSKeys)
	if err != nil {
		return err
	}
	srv, err := s.rescuable(c)
	if err != nil {
		return err
	}
	d, err := s.Services.Diagnoses.Begin(c.R.Context(), srv.ID, body.DiagnoseArgs, keys, s.requester(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, d)
}

// requester is who asks; members of projects ask within their project.
func (s serverDiagnoses) requester(c *api.Call) compute.Who {
	who := requesterOf(c)
	if !who.Admin {
		who.Project = c.Project()
	}
	return who
}

// confirm takes a user's statement that the server works; the id "newest" is that of the newest diagnosis.
func (s serverDiagnoses) confirm(c *api.Call) error {
	var body confirmRequest
	if err := c.ReadExactly(&body); err != nil {
		return err
	}
	srv, err := s.rescuable(c)
	if err != nil {
		return err
	}
	d, err := s.Services.Diagnoses.Confirm(c.R.Context(), srv.ID, c.Arg("id"), body.Words, s.requester(c))
	if err != nil {
		return err
	}
	hideFrom(c, srv, &d)
	return c.JSON(http.StatusAccepted, d)
}

// hideFrom takes out of a diagnosis what the asker may not see: members of projects see no words of hosts.
func hideFrom(c *api.Call, srv *compute.Server, d *diagnose.Record) {
	if srv.Project != "" && c.Project() != srv.Project {
		hideDiskTexts(d)
	}
	if !c.Principal.SeesQuotations() {
		redactDiagnosis(d)
	}
}

// visible gives the diagnoses of the server as the asker may see them.
func (s serverDiagnoses) visible(c *api.Call) ([]diagnose.Record, error) {
	srv, err := s.rescuable(c)
	if err != nil {
		return nil, err
	}
	all, err := s.Services.Diagnoses.List(c.R.Context(), srv.ID)
	if err != nil {
		return nil, err
	}
	for i := range all {
		hideFrom(c, srv, &all[i])
	}
	return all, nil
}

// hiddenDiskText replaces text that the examination read on a server's disks.
const hiddenDiskText = "(only members of the server's project may read this)"

// hideDiskTexts takes out what the examination read on the disks: that is for members of the server's project only. The findings and their places stay.
func hideDiskTexts(d *diagnose.Record) {
	for i := range d.Report.Findings {
		f := &d.Report.Findings[i]
		f.Title, f.ByHand = "", ""
		if f.Repair != nil {
			f.Repair = &diagnose.Repair{Summary: hiddenDiskText, Consent: f.Repair.Consent}
		}
		for j := range f.Evidence {
			f.Evidence[j].Text, f.Evidence[j].Command = hiddenDiskText, nil
		}
	}
	for _, proof := range []**diagnose.Proof{&d.Report.Proof, &d.Report.Verdict.Proof} {
		if *proof != nil {
			*proof = &diagnose.Proof{Kind: (*proof).Kind, Text: hiddenDiskText}
		}
	}
	for i := range d.Report.Systems {
		d.Report.Systems[i].Name, d.Report.Systems[i].HostKeys = hiddenDiskText, nil
	}
	for i := range d.Report.Asked {
		a := &d.Report.Asked[i]
		a.Command, a.Trouble = a.Command[:min(len(a.Command), 1)], hiddenDiskText
	}
	for i := range d.Report.NotExamined {
		// Gaps that the control plane noted are about "disks" or a "disk NAME"; those of the agent name devices.
		if gap := &d.Report.NotExamined[i]; !strings.HasPrefix(gap.What, "disk") {
			gap.Why = hiddenDiskText
		}
	}
}

func (s serverDiagnoses) list(c *api.Call) error {
	all, err := s.visible(c)
	if err != nil {
		return err
	}
	return answerSummaries(c, all)
}

// show answers with one; the id "newest" is the newest.
func (s serverDiagnoses) show(c *api.Call) error {
	all, err := s.visible(c)
	if err != nil {
		return err
	}
	for _, d := range all {
		if id := c.Arg("id"); id == "newest" || d.ID == id {
			return c.JSON(http.StatusOK, d)
		}
	}
	return problem.NotFoundf("Server %s has no diagnosis %s.", c.Arg("ident"), c.Arg("id"))
}
