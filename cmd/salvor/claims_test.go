package main

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/client"
	"salvor/metal"
	"salvor/secret"
	"salvor/test/must"
	"salvor/wire/native"
)

// claim finds the words with which a sentence says that all is well, or that somebody sees to that.
var claim = regexp.MustCompile(`(?i)\b(ok|healthy|done|mends?|mended|repaired|fine|well|works|all right|nothing (?:need|needs|to do|is wrong|is known|was found)|no reason|by itself|goes on)\b`)

// looks are the sentences that may claim something, each with the look that makes it true. holds, if it is there, compares the
// situation with the sentence.
var looks = []struct {
	says  string
	look  string
	holds func(why native.Why) bool
}{
	{`^nothing need be done, as far as was last heard$`, "the last word of each party was good, and no problem is stored", func(why native.Why) bool {
		return why.Job == nil && len(why.Problems) == 0 && len(why.Contacts) > 0 && !slices.ContainsFunc(why.Contacts, func(c native.LastContact) bool { return !c.OK })
	}},
	{`^the check of its records, and of the files that can be looked at from here, gives no reason against it; the machine was not asked$`, "the check that the operation's first action makes", nil},
	{`\b(when|once) (it|that) is mended\b`, "a condition: who reads it looks", nil},
	{`\bmend (it|the|how)\b`, "names what the reader mends", nil},
	{`\bnothing works on it, although its (state|task)\b`, "no job of the subject is open", func(why native.Why) bool { return why.Job == nil }},
	{`\bno operation works on that$`, "no job of the subject is open", func(why native.Why) bool { return why.Job == nil }},
	{`\bits rescue session ends by itself at\b`, "the janitor ends the session at the stored time", nil},
	{`\bwould not be done\b`, "no conductor is known to live", nil},
	{`\bit goes on where it stood as soon as one starts\b`, "a job row is open, and a conductor claims open rows", func(why native.Why) bool { return why.Job != nil }},
	{`\blet the step go on\b|\bgo on without an inspection\b`, "a command's use: the request is taken where it is printed (the walk of remedies types it)", nil},
	{`\bwhat its host may have done is not taken back$`, "a denial", nil},
	{`\bso nothing ends it by itself$`, "a denial", nil},
}

// claims collects sentences that claim something.
type claims struct {
	*testing.T
	sentences  map[string]bool // those that claim, without names
	situations int
	read       int
}

var momentText = regexp.MustCompile(`\d{4}-\d{2}-\d{2}[T ][0-9:.]+(?:Z| UTC|[+-]\d\d:\d\d)?|\b\d+(?:\.\d+)? (?:s|min|h|d)\b`)

// hear looks at each sentence of a text.
func (c *claims) hear(where, text string, why native.Why) {
	c.Helper()
	for _, s := range regexp.MustCompile(`(?:\. |\n|: |\(|\))+`).Split(text, -1) {
		s = strings.TrimSuffix(strings.TrimSpace(s), ".")
		if c.read++; !claim.MatchString(s) {
			continue
		}
		plain := momentText.ReplaceAllString(names.ReplaceAllString(s, "IT"), "TIME")
		c.sentences[plain] = true
		found := false
		for _, l := range looks {
			if !regexp.MustCompile(`(?i)` + l.says).MatchString(s) {
				continue
			}
			if found = true; l.holds != nil && !l.holds(why) {
				c.Errorf("%s: %q is said without its look (%s)", where, s, l.look)
			}
		}
		if !found {
			c.Errorf("%s: %q has no look that makes it true; all of it: %s", where, s, text)
		}
	}
}

func (c *claims) hearWhy(where string, why native.Why) {
	c.Helper()
	c.situations++
	c.hear(where, why.Text, why)
	for _, s := range slices.Concat(why.Problems, why.Notes) {
		c.hear(where, s, why)
	}
	for _, next := range why.Next {
		c.hear(where, next.For, why)
	}
}

// TestEveryClaimHasALook walks the situations of the remedies. Each sentence of why, validate, doctor and --wait that says ok, healthy, done,
// mended or nothing to do is one of those whose look is known, and says it only where the look came out so.
func TestEveryClaimHasALook(t *testing.T) {
	t.Parallel()
	w := working(t)
	c := &claims{T: t, sentences: map[string]bool{}}
	api := must.Get(client.New(client.Config{Endpoint: w.url, Username: "admin", Password: secret.New("password")}))(t)
	heard := append(slices.Clone(plights), plight{name: "its BMC answered a minute ago"})
	for _, info := range metal.States {
		for i, in := range heard {
			n := w.place(info.State, in)
			if i >= len(plights) {
				read := metal.PowerReading{NodeID: n.ID, At: time.Now().Add(-time.Minute), Power: metal.PowerOn}
				must.OK(t, w.p.Store.SavePower(t.Context(), []metal.PowerReading{read}))
			}
			var why native.Why
			must.OK(t, api.Ask(t.Context(), client.Native, http.MethodGet, "/nodes/"+n.ID+"/why", nil, nil, &why))
			where := string(info.State) + ", " + in.name
			c.hearWhy(where, why)
			seen := must.Get(api.Node(t.Context(), n.ID))(t)
			c.hear(where+", --wait", goesOn(n.Name, seen), why)
			if !client.Working(seen.ProvisionState) {
				c.hear(where+", --wait", nextStep(t.Context(), api, seen), why)
			}
			if i == 0 {
				out, _ := w.run("salvor doctor --node "+n.Name, "")
				for line := range strings.Lines(out) {
					level, text, _ := strings.Cut(strings.TrimSpace(line), " ")
					_, text, _ = strings.Cut(text, ": ")
					if level == "ok" && text != noReason {
						t.Errorf("%s: doctor calls ok what it says %q of", where, text)
					}
					c.hear(where+", doctor", text, why)
				}
				out, _ = w.run("salvor node validate "+n.Name, "")
				c.hear(where+", validate", strings.ReplaceAll(out, "|", "\n"), why)
			}
		}
	}
	for _, state := range slices.Sorted(maps.Keys(vmStates)) {
		for _, in := range serverPlights {
			s, h := w.placeServer(vmStates[state], in)
			for _, path := range []string{"/servers/" + s.ID + "/why", "/hosts/" + h.ID + "/why"} {
				var why native.Why
				must.OK(t, api.Ask(t.Context(), client.Native, http.MethodGet, path, nil, nil, &why))
				c.hearWhy(state+", "+in.name, why)
			}
		}
	}
	for _, s := range slices.Sorted(maps.Keys(c.sentences)) {
		t.Logf("claims: %s", s)
	}
	t.Logf("%d situations, %d sentences read, %d different ones claim something, %d looks", c.situations, c.read, len(c.sentences), len(looks))
}

// TestEveryClaimOfTheConsoleHasALook: the words of the console that call something good belong to a word of the server that has a look.
func TestEveryClaimOfTheConsoleHasALook(t *testing.T) {
	known := map[string]string{
		"Nothing was found that hinders it": "the verdict healthy: all disks and parts were examined, and no finding hinders the machine",
	}
	texts := regexp.MustCompile(`["` + "`" + `]([A-Z][^"` + "`" + `]*)["` + "`" + `]`)
	for _, file := range must.Get(filepath.Glob("../../api/console/static/*.js"))(t) {
		for _, m := range texts.FindAllStringSubmatch(string(must.Get(os.ReadFile(file))(t)), -1) {
			if s := m[1]; regexp.MustCompile(`\b(OK|ok|healthy|mended|repaired|fine|[Nn]othing (?:need|is wrong|to do|was found))\b`).MatchString(s) && known[s] == "" {
				t.Errorf("%s says %q, and no look is known that makes it true", filepath.Base(file), s)
			}
		}
	}
}
