package main

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/record"
	"salvor/wire/native"
)

// powerAgeBatch is how many nodes one request for readings of the power names: its URL stays below 4 KiB.
const powerAgeBatch = 100

// addPowerAges puts the age of its reading beside the power state of each node, for tables. With every, all readings get their age, else those only
// that are old or failed. Another server than salvor knows no ages: its power states stay as they are.
func addPowerAges(c *kit.Call, o *kit.Output, records []client.Record, every bool) {
	if o.Format != "table" {
		return
	}
	of := map[string]client.Record{}
	var ids []string
	for _, r := range records {
		if id := r.Text("uuid"); id != "" && r.Text("power_state") != "" {
			of[id], ids = r, append(ids, id)
		}
	}
	for batch := range slices.Chunk(ids, powerAgeBatch) {
		var page native.FleetPage
		if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, "/fleet/nodes", url.Values{"uuid": {strings.Join(batch, ",")}}, nil, &page); err != nil {
			return
		}
		for _, n := range page.Nodes {
			if r, ok := of[n.UUID]; ok && r.Text("power_state") == n.Power {
				r["power_state"] = powerWithAge(n, time.Now(), every)
			}
		}
	}
}

// powerWithAge says the power of a node, and how old the reading is. An old reading is not told as the present.
func powerWithAge(n native.FleetNode, now time.Time, every bool) string {
	failed := ""
	if n.BMC == "silent" || n.BMC == "refusing" {
		failed = "; BMC " + n.BMC
	}
	switch {
	case n.PowerReadAt == nil && n.PowerFresh:
		return n.Power + parenthesis(failed)
	case n.PowerReadAt == nil:
		return n.Power + parenthesis("age of the reading not known"+failed)
	case !n.PowerFresh:
		return "was " + n.Power + " " + record.Ago(*n.PowerReadAt, now) + parenthesis(failed)
	case every || failed != "":
		return n.Power + parenthesis("read "+record.Ago(*n.PowerReadAt, now)+failed)
	}
	return n.Power
}

// parenthesis is a note behind a word; empty for none.
func parenthesis(note string) string {
	if note = strings.TrimPrefix(note, "; "); note == "" {
		return ""
	}
	return " (" + note + ")"
}
