package main

import (
	"fmt"
	"io"
	"maps"
	"strings"
	"unicode/utf8"

	"salvor/client"
	"salvor/cmd/salvor/kit"
)

// What became of a server of a plan.
const (
	waits    = "waiting"
	underWay = "under way"
	moved    = "moved"
	failed   = "failed"
	stays    = "cannot"
	unagreed = "needs consent"
)

// outcomes are by the state of a server's move.
var outcomes = map[string]string{
	"accepted": underWay, "pre-migrating": underWay, "running": underWay, "done": moved, "completed": moved, "failed": failed, "error": failed, "cancelled": failed,
}

func moveOutcome(it client.Record) string {
	if word, ok := outcomes[it.Text("move_state")]; ok {
		return word
	}
	switch {
	case it.Text("disposition") == "cannot":
		return stays
	case it.Text("problem") != "":
		return failed
	case lacksConsent(it):
		return unagreed
	}
	return waits
}

// lacksConsent tells whether a server stays because nobody consented to the loss of its data or of its UEFI variables.
func lacksConsent(it client.Record) bool {
	return it["needs_consent"] == true && it["consented"] != true
}

// planColumns are those of a plan's servers; outcome is there once it was run.
var planColumns = []kit.Column{{Field: "name", Title: "Server"}, {Field: "was", Title: "State"}, {Field: "what", Title: "Disposition"}, {Field: "destination", Title: "Destination"}, {Field: "why", Title: "Why"}}

// plan prints a plan: its servers for eyes, with a summary, or all of it as JSON.
func printPlan(o *kit.Output, w io.Writer, p client.Record) error {
	if _, ok := p["items"]; !ok {
		return errNoItems
	}
	if o.Format == "json" && len(o.Columns) == 0 {
		return kit.WriteJSON(w, p)
	}
	drafted, columns := p.Text("state") == "drafted", planColumns
	if !drafted {
		columns = append(columns[:4:4], kit.Column{Field: "outcome", Title: "Outcome"}, kit.Column{Field: "why", Title: "Why"})
	}
	rows := planItems(p)
	for _, it := range rows {
		it["was"], it["what"], it["outcome"] = wasWords(it), whatWords(it), moveOutcome(it)
		if it.Text("destination") == "" {
			it["destination"] = "-"
		}
		if !drafted {
			it["why"] = kit.FirstOf(it.Text("problem"), it.Text("words"), it.Text("why"))
		}
	}
	if o.Format != "table" {
		return o.List(w, columns, rows)
	}
	if err := o.List(w, columns, wrapReasonRows(rows)); err != nil {
		return err
	}
	_, err := io.WriteString(w, planSummary(p, rows))
	return err
}

// whyWidth is how much of a reason stands in one line.
const whyWidth = 80

// wrapReasonRows gives rows whose reasons go on in rows of their own: they are whole sentences, and nothing of them may be lost.
func wrapReasonRows(rows []client.Record) []client.Record {
	var out []client.Record
	for _, it := range rows {
		row := maps.Clone(it)
		out = append(out, row)
		line := ""
		for _, word := range strings.Fields(it.Text("why")) {
			if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > whyWidth {
				row["why"], line = line, ""
				row = client.Record{"name": "", "was": "", "what": "", "destination": "", "outcome": ""}
				out = append(out, row)
			}
			line = strings.TrimSpace(line + " " + word)
		}
		row["why"] = line
	}
	return out
}

func wasWords(it client.Record) string {
	if it["in_rescue"] == true && it.Text("state") != "rescued" {
		return it.Text("state") + ", in rescue"
	}
	return it.Text("state")
}

// whatWords says what becomes of a server's disk.
func whatWords(it client.Record) string {
	what := it.Text("disposition")
	if what == "reimage" {
		what = kit.Reimaged
	}
	if lacksConsent(it) {
		what += ": needs consent"
	}
	return what
}

// planSummary says what a plan comes to, what it lacks, and what to do next.
func planSummary(p client.Record, rows []client.Record) string {
	var b strings.Builder
	say := func(format string, args ...any) {
		b.WriteString("\n" + kit.StripControlChars(fmt.Sprintf(format, args...)))
	}
	count, named, variables := map[string]int{}, []string{}, []string{}
	for _, it := range rows {
		count[it.Text("disposition")]++
		switch {
		case !lacksConsent(it):
		case it.Text("disposition") == "reimage":
			named = append(named, it.Text("name"))
		default:
			variables = append(variables, it.Text("name"))
		}
	}
	say("%d keep, %d reattach, %d re-image (DATA LOST), %d cannot", count["keep"], count["reattach"], count["reimage"], count["cannot"])
	if p["one_more"] == true {
		say("One more failure: after it, one more host may die, too")
	} else if why := p.Text("one_more_why"); why != "" {
		say("One more failure: not covered: %s", why)
	}
	id, host := p.Text("id"), p.Text("host")
	if p.Text("state") != "drafted" {
		if len(named) > 0 {
			say("Stay for want of consent to the loss of their data: salvor evacuate run %s --reimage %s", host, strings.Join(named, " --reimage "))
		}
		if len(variables) > 0 {
			say("Stay for want of consent to the loss of their UEFI variables (%s): salvor evacuate run %s --discard-variables", strings.Join(variables, ", "), host)
		}
		say("Plan %s of %s: %s; %s", id, host, p.Text("state"), planProgress(p))
		return b.String() + "\n"
	}
	if missing := p.Text("missing"); missing != "" {
		say("Missing: %s", missing)
	}
	if len(named) > 0 {
		say("Stay unless someone consents to the loss of their data: --reimage %s", strings.Join(named, " --reimage "))
	}
	if len(variables) > 0 {
		say("Stay unless someone consents to the loss of their UEFI variables (%s): --discard-variables", strings.Join(variables, ", "))
	}
	say("Nothing was done. To run it: salvor evacuate run %s --wait", id)
	return b.String() + "\n"
}
