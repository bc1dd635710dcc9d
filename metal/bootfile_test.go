package metal

import (
	"strings"
	"testing"
	"time"

	"salvor/job"
)

// TestWhyTellsOfARefusedBootFile, until the file was fetched or the ramdisk was heard, and to strangers without its words.
func TestWhyTellsOfARefusedBootFile(t *testing.T) {
	now := time.Now()
	at := func(change func(*StatusInput)) string {
		in := StatusInput{Now: now, Node: &Node{ID: "n", ProvisionState: RescueWait, BootNumber: 4, Plan: &BootPlan{Method: BootMedia, BootNumber: 4,
			Refusal: &BootRefusal{File: BootISO, Why: "secret words", At: now.Add(-time.Minute)}}},
			Jobs: []job.Job{{Kind: "rescue", Class: job.Operation, State: job.Waiting, Subject: job.Node("n"), WaitFor: "it"}}}
		change(&in)
		for _, p := range in.Why().Problems {
			if strings.Contains(p, "boot file") {
				return p
			}
		}
		return ""
	}
	const told = "the machine asked for its boot file boot.iso and did not get it: secret words"
	for name, c := range map[string]struct {
		change func(*StatusInput)
		want   string
	}{
		"refused":              {func(*StatusInput) {}, told},
		"fetched before":       {func(s *StatusInput) { s.Contact.BootWord, s.Contact.BootAt = "fetching boot.iso", now.Add(-time.Hour) }, told},
		"another file fetched": {func(s *StatusInput) { s.Contact.BootWord, s.Contact.BootAt = "fetching kernel", now }, told},
		"fetched since":        {func(s *StatusInput) { s.Contact.BootWord, s.Contact.BootAt = "fetching boot.iso", now }, ""},
		"the ramdisk runs":     {func(s *StatusInput) { s.Contact.AgentBoot = 4 }, ""},
		"an earlier boot":      {func(s *StatusInput) { s.Node.BootNumber = 5 }, ""},
		"a stranger asks":      {func(s *StatusInput) { *s = s.Outside() }, strings.Replace(told, "secret words", hidden, 1)},
	} {
		if got := at(c.change); got != c.want {
			t.Errorf("%s: why tells %q, want %q", name, got, c.want)
		}
	}
}
