package main

import (
	"encoding/json"
	"strings"
	"testing"

	"salvor/cmd/salvor/kit"
	"salvor/test/must"
)

// samplePlan is a plan of every disposition, as the API writes it.
func samplePlan(state, more string) string {
	return `{"id": "` + sampleUUID + `", "number": 3, "host": "vm7", "state": "` + state + `", "one_more": false, "one_more_why": "web2 would find no place", "missing": "salvor fence vm7", "servers": 4, "items": [
		{"server_id": "1", "name": "web1", "state": "active", "disposition": "keep", "destination": "vm8", "why": "same store", "move_state": "` + more + `"},
		{"server_id": "2", "name": "db1", "state": "stopped", "in_rescue": true, "disposition": "reattach", "destination": "vm9", "why": "volumes", "move_state": ""},
		{"server_id": "3", "name": "web3", "state": "active", "disposition": "reimage", "needs_consent": true, "consented": false, "destination": "vm9", "why": "its store was vm7's own", "move_state": ""},
		{"server_id": "4", "name": "web4", "state": "active", "disposition": "cannot", "destination": "", "why": "no bridge\u001b br9", "move_state": "", "problem": ""}]}`
}

const planTable = `Server  State               Disposition              Destination  Why
------  ------------------  -----------------------  -----------  -----------------------
web1    active              keep                     vm8          same store
db1     stopped, in rescue  reattach                 vm9          volumes
web3    active              re-image: needs consent  vm9          its store was vm7's own
web4    active              cannot                   -            no bridge  br9

1 keep, 1 reattach, 1 re-image (DATA LOST), 1 cannot
One more failure: not covered: web2 would find no place
Missing: salvor fence vm7
Stay unless someone consents to the loss of their data: --reimage web3
Nothing was done. To run it: salvor evacuate run 5e8d0b8e-7d9c-4d36-a4f6-0c5f3b5a1a10 --wait
`

func TestEvacuatePlan(t *testing.T) {
	api := &fakeAPI{answers: map[string][]string{"POST /salvor/v1/plans": {samplePlan("drafted", "")}}}
	out := faceAsked(t, api, "evacuate plan vm7 --to vm9 --server web1 --server db1 --reimage web3 --parallel 2",
		`POST /salvor/v1/plans {"consent":["web3"],"destination":"vm9","host":"vm7","parallel":2,"reimage_all":false,"servers":["web1","db1"]}`)
	if out != planTable {
		t.Errorf("it prints:\n%s", out)
	}
	if out := faceAsked(t, api, "evacuate plan vm7 -f value -c server -c disposition"); !strings.HasPrefix(out, "web1 keep\n") {
		t.Error(out)
	}
	if out := faceAsked(t, api, "evacuate plan vm7 -f json"); !strings.Contains(out, `"one_more_why"`) || !strings.Contains(out, `"server_id": "4"`) {
		t.Error(out)
	}
}

func TestEvacuateRun(t *testing.T) {
	path := "/salvor/v1/plans/" + sampleUUID
	answers := func(looks ...string) *fakeAPI {
		return &fakeAPI{answers: map[string][]string{
			"POST /salvor/v1/plans": {samplePlan("drafted", "")}, "POST " + path + "/run": {samplePlan("running", "accepted")},
			"GET " + path: looks,
		}}
	}
	api := answers(samplePlan("drafted", ""), samplePlan("running", "pre-migrating"), samplePlan("done", "completed"))
	out, errs, status := salvor(t, api, "", "evacuate", "run", sampleUUID, "--reimage", "all", "--wait")
	if status != 0 || !strings.Contains(errs, "vm7     0 s  0 of 4 moved, 1 under way, 1 needs consent, 1 cannot") || !strings.Contains(out, "web1    active              keep                     vm8          moved          same store") {
		t.Errorf("status %d\n%s%s", status, errs, out)
	}
	if got := strings.Join(api.asked, "\n"); got != `POST `+path+`/run {"consent":["3"]}` {
		t.Error(got)
	}
	out, errs, status = salvor(t, answers(samplePlan("partly done", "failed")), "", "evacuate", "run", "vm7", "--wait")
	if status != kit.StatusFailed || !strings.Contains(errs, "is partly done") || !strings.Contains(out, "failed         same store") {
		t.Errorf("status %d\n%s%s", status, errs, out)
	}
	const lacking = "Stay for want of consent to the loss of their data: salvor evacuate run vm7 --reimage web3\n"
	if !strings.Contains(out, "vm9          needs consent  its store") || !strings.Contains(out, lacking) || !strings.Contains(out, "0 of 4 moved, 1 failed, 1 needs consent, 1 cannot") {
		t.Error(out)
	}
	if _, errs, status = salvor(t, answers(samplePlan("running", "accepted")), "", "evacuate", "run", "vm7", "--wait=1"); status != kit.StatusTimedOut || !strings.Contains(errs, "it has not ended") {
		t.Errorf("status %d\n%s", status, errs)
	}
	if _, errs, status = salvor(t, answers(samplePlan("drafted", "")), "", "evacuate", "run", sampleUUID, "--to", "vm9"); status != kit.StatusUsage {
		t.Errorf("status %d\n%s", status, errs)
	}
	api = &fakeAPI{answers: map[string][]string{"POST /salvor/v1/plans": {samplePlan("drafted", "")}, "POST " + path + "/run": {`409 {"error": {"code": 409, "message": "no receipt: salvor fence vm7"}}`}}}
	if _, errs, status = salvor(t, api, "", "evacuate", "run", "vm7"); status != kit.StatusFailed || !strings.Contains(errs, "no receipt: salvor fence vm7") {
		t.Errorf("status %d\n%s", status, errs)
	}
}

func TestEvacuateCancel(t *testing.T) {
	path := "/salvor/v1/plans"
	older := strings.Replace(samplePlan("done", ""), sampleUUID, "older", 1)
	refused := strings.Replace(strings.Replace(samplePlan("drafted", ""), sampleUUID, "refused", 1), `"number": 3`, `"number": 4`, 1)
	api := &fakeAPI{answers: map[string][]string{
		"GET " + path: {`{"plans": [` + strings.Replace(older, `"number": 3`, `"number": 2`, 1) + `, ` + samplePlan("running", "") + `, ` + refused + `]}`},
		"POST " + path + "/" + sampleUUID + "/cancel": {samplePlan("cancelled", "")},
	}}
	faceAsked(t, api, "evacuate cancel vm7", "GET "+path+"?host=vm7", "POST "+path+"/"+sampleUUID+"/cancel")
	if out := faceAsked(t, api, "evacuate list --state running -f value -c id -c servers", "GET "+path+"?state=running"); !strings.Contains(out, sampleUUID+" 4") {
		t.Error(out)
	}
}

func TestFence(t *testing.T) {
	host := `{"id": "h", "name": "vm7", "servers": 2, "fenced": {"how": ["power"], "since": "now", "waits_for": "the host to come back", "proofs": [{"evidence": "power", "text": "BMC 192.0.2.1 is off, read twice"}]}}`
	api := &fakeAPI{answers: map[string][]string{
		"POST /salvor/v1/hosts/vm7/fence": {`{"job": "j1"}`}, "GET /salvor/v1/hosts/vm7": {host},
		"GET /salvor/v1/jobs/j1": {`{"state": "running", "action": "read the BMC"}`, `{"state": "ended"}`},
	}}
	out, errs, status := salvor(t, api, "", "fence", "vm7", "--wait", "--attest", "cable pulled")
	if status != 0 || !strings.Contains(errs, "read the BMC") || out != "vm7 is fenced:\n  power: BMC 192.0.2.1 is off, read twice\nwhat next: salvor evacuate run vm7 --wait moves its servers (2); salvor evacuate plan vm7 says how\n" {
		t.Errorf("status %d\n%s%s", status, errs, out)
	}
	if api.asked[0] != `POST /salvor/v1/hosts/vm7/fence {"attest":"cable pulled"}` {
		t.Error(api.asked)
	}
	api.answers["GET /salvor/v1/jobs/j1"] = []string{`{"state": "ended", "problem": "power: the BMC does not answer. Missing: one evidence"}`}
	if _, errs, status = salvor(t, api, "", "fence", "vm7", "--wait"); status != kit.StatusFailed || !strings.Contains(errs, "vm7: power: the BMC does not answer") {
		t.Errorf("status %d\n%s", status, errs)
	}
	api.answers["GET /salvor/v1/hosts/vm7/history"] = []string{`{"events": [{"at": "now", "severity": "error", "text": "power: the BMC\u001b does not answer", "type": "action", "user": "boss", "job": "j1"}]}`}
	if out := faceAsked(t, api, "host history vm7 -f value"); out != "now error power: the BMC  does not answer\n" {
		t.Error(out)
	}
	if _, errs, _ = salvor(t, api, "", "fence", "vm7"); !strings.Contains(errs, "salvor host history vm7") {
		t.Error(errs)
	}
	if _, _, status = salvor(t, api, "", "fence", "vm7", "--attest", " "); status != kit.StatusUsage {
		t.Error(status)
	}
	if out := faceAsked(t, api, "host show vm7 -f value -c fenced"); out != "by power, since now; waits for the host to come back\n" {
		t.Error(out)
	}
}

// TestFenceDisputes: the codes go out with the word of who attests, and never without it; the refusal that names them is shown whole.
func TestFenceDisputes(t *testing.T) {
	path := "POST /salvor/v1/hosts/vm7/fence"
	const refusal = `its attestation is contradicted by bmc-reads-on (it is on). If you know better, run: salvor fence vm7 --attest "who saw what" --dispute bmc-reads-on`
	api := &fakeAPI{answers: map[string][]string{path: {`{"job": "j1"}`}}}
	faceAsked(t, api, "fence vm7 --attest unplugged --dispute bmc-reads-on,joined-again", path+` {"attest":"unplugged","disputes":["bmc-reads-on","joined-again"]}`)
	asked := len(api.asked)
	if _, errs, status := salvor(t, api, "", "fence", "vm7", "--dispute", "bmc-reads-on"); status != kit.StatusUsage || !strings.Contains(errs, "--attest") || len(api.asked) != asked {
		t.Errorf("status %d, asked %v\n%s", status, api.asked[asked:], errs)
	}
	text := must.Get(json.Marshal(map[string]any{"error": map[string]any{"code": 409, "message": refusal}}))(t)
	api.answers[path] = []string{"409 " + string(text)}
	if _, errs, status := salvor(t, api, "", "fence", "vm7", "--attest", "unplugged"); status == 0 || !strings.Contains(errs, "--dispute bmc-reads-on") {
		t.Errorf("status %d\n%s", status, errs)
	}
}

// TestHostRemoveLost: the reason goes out as it was typed.
func TestHostRemoveLost(t *testing.T) {
	api := &fakeAPI{answers: map[string][]string{"GET /salvor/v1/hosts/vm7": {`{"id": "vm7", "name": "vm7"}`}, "DELETE /salvor/v1/hosts/vm7": {"204 "}}}
	faceAsked(t, api, "host remove vm7", "DELETE /salvor/v1/hosts/vm7")
	faceAsked(t, api, "host remove vm7 --lost sold", "DELETE /salvor/v1/hosts/vm7?lost=sold")
}

// TestHostList tells a host that is fenced, or suspected, from one that is merely down.
func TestHostList(t *testing.T) {
	api := &fakeAPI{answers: map[string][]string{"GET /salvor/v1/hosts": {`{"hosts": [
		{"id": "1", "name": "vm7", "kind": "agent", "state": "down", "status": "enabled", "fenced": {"how": ["power", "storage"], "since": "now"}, "suspected": false, "servers": 2, "misplaced": 3, "drifted": 1},
		{"id": "2", "name": "vm8", "kind": "agent", "state": "down", "status": "enabled", "fenced": null, "suspected": true, "thought": "its BMC says off", "servers": 1, "misplaced": 0, "drifted": 0}]}`}}}
	const want = `ID  Name  Kind   State  Status   Fenced             Suspected  Servers  Misplaced  Drifted
--  ----  -----  -----  -------  -----------------  ---------  -------  ---------  -------
1   vm7   agent  down   enabled  by power, storage  False      2        3          1
2   vm8   agent  down   enabled  None               True       1        0          0
`
	if out := faceAsked(t, api, "host list"); out != want {
		t.Error(out)
	}
}

func TestHostGroup(t *testing.T) {
	path := "/salvor/v1/host-groups"
	api := &fakeAPI{answers: map[string][]string{
		"GET " + path: {`{"host_groups": []}`}, "POST " + path: {`{"id": "g", "name": "a"}`},
	}}
	faceAsked(t, api, "host group set a --healing --require power,storage --max-share 30", `POST `+path+` {"healing":true,"max_share":30,"name":"a","require":["power","storage"]}`)
	api.answers["GET "+path+"/a"], api.answers["PATCH "+path+"/a"] = []string{`{"id": "g", "name": "a"}`}, []string{`{"id": "g", "name": "a"}`}
	faceAsked(t, api, "host group set a --healing=false --require=", `PATCH `+path+`/a {"healing":false,"require":[]}`)
}

func TestDrain(t *testing.T) {
	api := &fakeAPI{answers: map[string][]string{
		"POST /salvor/v1/hosts/vm7/drain": {samplePlan("running", "accepted")}, "GET /salvor/v1/plans/" + sampleUUID: {samplePlan("done", "completed")},
		"POST /salvor/v1/hosts/vm7/restore": {`{"name": "vm7", "state": "up"}`},
	}}
	if out := faceAsked(t, api, "host drain vm7 --wait"); !strings.Contains(out, "Plan "+sampleUUID+" of vm7: done; 1 of 4 moved, 1 needs consent, 1 cannot") {
		t.Error(out)
	}
	partly := func(more string) []string {
		return []string{strings.Replace(samplePlan("partly done", "failed"), `{"id"`, `{`+more+`"id"`, 1)}
	}
	api.answers["GET /salvor/v1/plans/"+sampleUUID] = partly(`"drain": true, `)
	if _, errs, status := salvor(t, api, "", "host", "drain", "vm7", "--wait"); status != kit.StatusFailed || !strings.Contains(errs, "mended: salvor host drain vm7 --wait\n") {
		t.Errorf("status %d\n%s", status, errs)
	}
	api.answers["GET /salvor/v1/plans/"+sampleUUID] = partly(`"drain": true, "bring_home": true, `)
	if _, errs, status := salvor(t, api, "", "host", "drain", "vm7", "--wait"); status != kit.StatusFailed || !strings.Contains(errs, "mended: salvor host restore vm7 --return-servers --wait\n") {
		t.Errorf("status %d\n%s", status, errs)
	}
	api.answers["GET /salvor/v1/plans/"+sampleUUID] = []string{samplePlan("done", "completed")}
	if out := faceAsked(t, api, "host restore vm7 -f value -c state"); out != "up\n" {
		t.Error(out)
	}
	api.answers["GET /salvor/v1/hosts/vm7"] = []string{`{"name": "vm7", "state": "down"}`, `{"name": "vm7", "state": "up"}`}
	api.answers["POST /salvor/v1/hosts/vm7/bring-home"] = []string{samplePlan("running", "accepted")}
	faceAsked(t, api, "host restore vm7 --return-servers --wait", "POST /salvor/v1/hosts/vm7/bring-home")
	api.answers["GET /salvor/v1/hosts/vm7"] = []string{`{"name": "vm7", "state": "down"}`}
	if _, errs, status := salvor(t, api, "", "host", "restore", "vm7", "--wait=1"); status != kit.StatusTimedOut {
		t.Errorf("status %d\n%s", status, errs)
	}
}
