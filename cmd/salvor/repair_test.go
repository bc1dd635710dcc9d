package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/cmd/salvor/kit"
	"salvor/test/must"
)

// shownPlan is a plan as the API gives it, with a text that a terminal must not get.
const shownPlan = `"plan": {"version": 1, "digest": "d1", "mended": ["fstab-device-missing"], "consents": ["files"],
	"not_mended": [{"finding": "disk-full", "why": "no room can be made"}],
	"files": [{"root": "/dev/sda1", "path": "/etc/fstab", "consent": "files", "before": {}, "after": {}, "diff": "-/dev/gone / ext4\u001b[2J\n+/dev/sda1 / ext4"},
		{"root": "/dev/sda1", "path": "/etc/new", "consent": "files", "after": {}, "made_by": "dracut"}, {"root": "/dev/sda1", "path": "/etc/nologin", "consent": "files", "before": {}}],
	"blocks": [{"device": "/dev/sda", "offset": 512, "length": 1024}], "settings": [{"kind": "boot device", "before": "pxe", "after": "disk"}],
	"disks": [{"path": "/dev/sda", "serial": "S1", "chunks": 2}]}`

// repairIn is a repair in a state, with more of its fields.
func repairIn(state, more string) string {
	return `{"id": "r1", "requested_at": "2026-11-26T10:00:00Z", "state": "` + state + `", "digest": "d1", "needs": ["files"], "undo": "none",
		"args": {"consents": ["settings", "files"], "findings": ["fstab-device-missing"]}` + more + `}`
}

const ended = `, "finished_at": "2026-11-26T10:05:00Z"`

// repairAPI answers about a repair of the node a, whose states follow on each other.
func repairAPI(states ...string) *fakeAPI {
	return &fakeAPI{answers: map[string][]string{
		"POST /salvor/v1/nodes/a/repairs": {"202 " + repairIn("planning", "")}, "POST /salvor/v1/nodes/a/repairs/r0/undo": {"202 " + repairIn("planning", "")},
		"GET /salvor/v1/nodes/a/repairs/r1": states, "POST /salvor/v1/nodes/a/repairs/r1/consent": {"202 " + repairIn("awaiting-consent", "")},
		"POST /salvor/v1/nodes/a/repairs/r1/decline": {"202 " + repairIn("awaiting-consent", "")},
	}}
}

// lookOften has commands that wait look every millisecond until the test ends.
func lookOften(t *testing.T) {
	before := lookInterval
	lookInterval = time.Millisecond
	t.Cleanup(func() { lookInterval = before })
}

// lacks names the texts that are not in another.
func lacks(text string, wants ...string) (missing []string) {
	for _, want := range wants {
		if !strings.Contains(text, want) {
			missing = append(missing, want)
		}
	}
	return missing
}

// TestRepairCommand proves what salvor repair sends, prints and ends with, without a terminal.
func TestRepairCommand(t *testing.T) {
	lookOften(t)
	planning, waiting := repairIn("planning", `, "step": "the machine is booted"`), repairIn("awaiting-consent", ","+shownPlan)
	consent := `POST /salvor/v1/nodes/a/repairs/r1/consent {"digest":"d1","consents":["files"]}`
	for name, c := range map[string]struct {
		args   string
		states []string
		sent   []string
		status int
		out    []string
		errs   []string
	}{
		"plan": {"repair a fstab-device-missing --plan", []string{planning, repairIn("planned", ended+","+shownPlan)},
			[]string{`POST /salvor/v1/nodes/a/repairs {"findings":["fstab-device-missing"],"consents":["settings","files"]}`}, 0,
			[]string{"a: repair r1 is planned", "mends: fstab-device-missing", "leaves disk-full: no room can be made", "/dev/sda1 (files): changes /etc/fstab", "+/dev/sda1 / ext4",
				"makes /etc/new", "made by dracut", "removes /etc/nologin", "/dev/sda: changes 1024 bytes at 512", `boot device: from "pxe" to "disk"`, "/dev/sda S1: 2 chunks",
				"needs the consent: files", "digest: d1", "next: salvor repair a fstab-device-missing --digest d1 --consent settings,files"}, []string{"the machine is booted"}},
		"no terminal is no consent": {"repair a", []string{repairIn("planned", ended+","+shownPlan)}, []string{`POST /salvor/v1/nodes/a/repairs {"consents":["settings","files"]}`}, 0, []string{"is planned"}, nil},
		"yes": {"repair a --yes --consent files", []string{planning, waiting}, []string{`POST /salvor/v1/nodes/a/repairs {"consents":["files"],"wait_for_consent":true}`, consent}, 0,
			[]string{"is awaiting-consent"}, []string{"a: accepted: the repair is written; to see how far it is: salvor repair show a"}},
		"yes and wait": {"repair a --yes --wait --reboot --keep-rescue", []string{planning, waiting, repairIn("writing", ""), repairIn("proven", ended+`, "proven_by": "its sshd answers", "undo": "files"`)},
			[]string{`POST /salvor/v1/nodes/a/repairs {"consents":["settings","files"],"reboot":true,"keep_rescue":true,"wait_for_consent":true}`, consent}, 0, []string{"is proven", "its sshd answers", "undo: files"}, nil},
		"nothing to write": {"repair a --yes", []string{repairIn("planned", ended+`, "problem": "there is nothing to repair"`)}, nil, 0, []string{"there is nothing to repair"}, nil},
		"digest": {"repair a --digest d1", nil, []string{`POST /salvor/v1/nodes/a/repairs {"consents":["settings","files"],"digest":"d1"}`}, 0, nil,
			[]string{"a: accepted: repair; to see how far it is: salvor repair show a"}},
		"digest and wait": {"repair a --digest d1 --wait", []string{repairIn("writing", ""), repairIn("written", ended+`, "undo": "exact"`)}, nil, 0, []string{"next: salvor node unrescue a"}, nil},
		"failed":          {"repair a --plan", []string{repairIn("failed", ended+`, "problem": "the machine is on\u001b[2J"`)}, nil, kit.StatusFailed, nil, []string{"a: the repair is failed: the machine is on"}},
		"rolled back":     {"repair a --yes --wait", []string{waiting, repairIn("rolled-back", ended+`, "problem": "no room"`)}, nil, kit.StatusFailed, nil, []string{"the repair is rolled-back: no room"}},
		"unproven": {"repair a --yes --wait", []string{waiting, repairIn("unproven", ended+`, "problem": "it did not prove itself", "undo": "files"`)}, nil, kit.StatusFailed,
			[]string{"next: salvor repair confirm a if it works; salvor repair undo a --reboot if it does not"}, []string{"the repair is unproven: it did not"}},
		"failed after it was written": {"repair a --yes --wait", []string{waiting, repairIn("unproven", ended+`, "problem": "the disks are written, and the unrescue failed", "undo": "exact"`)}, nil, kit.StatusFailed,
			[]string{"next: salvor node unrescue a"}, []string{"the repair is unproven: the disks are written"}},
		"interrupted": {"repair a --yes --wait", []string{waiting, repairIn("interrupted", ended+`, "problem": "half-written", "undo": "exact"`)}, nil, kit.StatusFailed, []string{"next: salvor repair undo a"}, nil},
		"unknown":     {"repair a --yes --wait", []string{waiting, repairIn("interrupted", ended+`, "problem": "nobody knows"`)}, nil, kit.StatusFailed, []string{"next: salvor diagnose a"}, nil},
		"undo":        {"repair undo a r0 --plan", []string{repairIn("planned", ended+`, "args": {"undoes": "r0"}`)}, []string{`POST /salvor/v1/nodes/a/repairs/r0/undo {"consents":["settings","files"]}`}, 0, []string{"is planned"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := repairAPI(c.states...)
			out, errs, status := salvor(t, f, "", strings.Fields(c.args)...)
			if status != c.status {
				t.Errorf("status %d, want %d: %s", status, c.status, errs)
			}
			if missing := append(lacks(out, c.out...), lacks(errs, c.errs...)...); missing != nil {
				t.Errorf("lacks %q:\n%s\n%s", missing, out, errs)
			}
			if strings.Contains(out+errs, "\x1b[2J") {
				t.Errorf("an escape sequence reaches the terminal: %q", out+errs)
			}
			if c.sent != nil && strings.Join(f.asked, "\n") != strings.Join(c.sent, "\n") {
				t.Errorf("sent %q", f.asked)
			}
		})
	}
}

// TestRepairAsksAtATerminal: the plan is shown, and only y is the consent.
func TestRepairAsksAtATerminal(t *testing.T) {
	lookOften(t)
	for typed, consents := range map[string]bool{"y\n": true, "n\n": false, "\n": false} {
		f := repairAPI(repairIn("awaiting-consent", ","+shownPlan))
		errs, status := atTerminal(t, f, typed, "repair", "a")
		missing := lacks(errs, "+/dev/sda1 / ext4", "digest: d1", "salvor repair a: writes this to the disks. Go on? [y/N] ")
		last := f.asked[len(f.asked)-1]
		if (status == 0) != consents || len(f.asked) != 2 || strings.Contains(last, "/r1/consent ") != consents || strings.Contains(last, "/r1/decline ") == consents || !strings.Contains(f.asked[0], `"wait_for_consent":true`) || missing != nil {
			t.Errorf("%q: status %d, sent %q, lacks %q: %s", typed, status, f.asked, missing, errs)
		}
	}
	f := repairAPI(repairIn("planned", ended+","+shownPlan))
	if errs, status := atTerminal(t, f, "", "repair", "a", "--plan"); status != 0 || len(f.asked) != 1 || strings.Contains(f.asked[0], "wait_for_consent") || strings.Contains(errs, "Go on?") {
		t.Errorf("--plan: status %d, sent %q: %s", status, f.asked, errs)
	}
}

// TestRepairPrintsOneJSON: a program reads one value, also when a plan comes before the end.
func TestRepairPrintsOneJSON(t *testing.T) {
	lookOften(t)
	for args, states := range map[string][]string{
		"repair a --plan -f json":       {repairIn("planned", ended+","+shownPlan)},
		"repair a --yes -f json":        {repairIn("awaiting-consent", ","+shownPlan)},
		"repair a --yes --wait -f json": {repairIn("awaiting-consent", ","+shownPlan), repairIn("proven", ended+","+shownPlan)},
		"repair show a r1 -f json":      {repairIn("proven", ended+","+shownPlan)},
	} {
		out, errs, status := salvor(t, repairAPI(states...), "", strings.Fields(args)...)
		var got struct {
			State string
			Plan  struct{ Digest string }
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 || got.Plan.Digest != "d1" || !strings.Contains(states[len(states)-1], got.State) {
			t.Errorf("%s: status %d, %v, %s%s", args, status, err, out, errs)
		}
	}
}

// TestRepairRecords shows, lists and changes repairs that are kept.
func TestRepairRecords(t *testing.T) {
	answers := map[string][]string{
		"GET /salvor/v1/nodes/a/repairs":                 {`{"repairs": [` + repairIn("unproven", `, "problem": "no sshd\u001b[2J"`) + `]}`},
		"GET /salvor/v1/nodes/a/repairs/newest":          {repairIn("awaiting-consent", `, "undo": "none", "consent": {"digest": "d1", "consents": ["files"], "by": "ann"},`+shownPlan)},
		"POST /salvor/v1/nodes/a/repairs/newest/confirm": {"202 " + repairIn("proven", "")}, "POST /salvor/v1/nodes/a/repairs/r1/consent": {"202 " + repairIn("awaiting-consent", "")},
	}
	for args, c := range map[string]struct {
		sent string
		out  []string
	}{
		"repair list a":    {"", []string{"r1  ", "unproven         no sshd"}},
		"repair show a":    {"", []string{"consent: files by ann to d1", "undo: none", "next: salvor repair consent a --digest d1 --consent files"}},
		"repair confirm a": {"POST /salvor/v1/nodes/a/repairs/newest/confirm {}", []string{"a: the repair is proven"}},
		"repair consent a r1 --digest d1 --consent files,boot": {`POST /salvor/v1/nodes/a/repairs/r1/consent {"consents":["files","boot"],"digest":"d1"}`, []string{"a: the repair is awaiting-consent"}},
	} {
		f := &fakeAPI{answers: maps.Clone(answers)}
		out, errs, status := salvor(t, f, "", strings.Fields(args)...)
		if missing := lacks(out, c.out...); status != 0 || strings.Join(f.asked, "\n") != c.sent || missing != nil || strings.Contains(out, "\x1b") {
			t.Errorf("%s: status %d, sent %q, lacks %q: %q%s", args, status, f.asked, missing, out, errs)
		}
	}
	for args, want := range map[string]string{
		"repair a --plan --yes": "[plan yes]", "repair a --plan --digest d1": "[digest plan]", "repair": "NODE is missing", "repair consent a": `required flag(s) "digest"`,
		"repair a -f yaml": "want text or json", "repair undo": "NODE is missing",
	} {
		if _, errs, status := salvor(t, &fakeAPI{}, "", strings.Fields(args)...); status != kit.StatusUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d: %s", args, status, errs)
		}
	}
}

// TestRepairSendsLUKSKeys: they go with the request in base64, a file byte by byte and a passphrase as one line.
func TestRepairSendsLUKSKeys(t *testing.T) {
	lookOften(t)
	file := filepath.Join(t.TempDir(), "key")
	must.OK(t, os.WriteFile(file, []byte("raw\x00"), 0o600))
	f := repairAPI(repairIn("planned", ended))
	out, errs, status := salvor(t, f, "open sesame\n", "repair", "a", "--luks-key", "0dd1e5c4-0000-4000-8000-00000000000a="+file, "--luks-key", "-")
	if status != 0 || len(f.asked) != 1 || !strings.Contains(f.asked[0], `"luks_keys":[{"uuid":"0dd1e5c4-0000-4000-8000-00000000000a","key":"cmF3AA=="},{"key":"b3BlbiBzZXNhbWU="}]`) {
		t.Errorf("status %d, sent %q: %s", status, f.asked, errs)
	}
	if strings.Contains(out+errs, "sesame") {
		t.Error("a key is printed")
	}
	if _, errs, status := salvor(t, f, "", "repair", "a", "--luks-key", file+".none"); status == 0 || len(f.asked) != 1 || !strings.Contains(errs, "--luks-key "+file+".none") {
		t.Errorf("status %d, sent %q: %s", status, f.asked, errs)
	}
}
