package stress

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// TestModelRefuses: histories in which something was not right are told from the one in which all was.
func TestModelRefuses(t *testing.T) {
	start := time.Now()
	var n int64
	tx := uint32(0)
	next := func(c change) change {
		n++
		c.n, c.node, c.job, c.at = n, "node", "job", start.Add(time.Duration(n)*time.Second)
		c.committed = c.at
		c.tx = tx
		return c
	}
	insert := change{what: "insert", writer: "a", newState: "ready"}
	claim := change{what: "update", writer: "a", newOwner: "A/1", newFence: 1, oldState: "ready", newState: "running"}
	word := change{what: "update", writer: "a", oldOwner: "A/1", newOwner: "A/1", oldFence: 1, newFence: 2, oldState: "running", newState: "running"}
	freed := change{what: "update", writer: "b", oldOwner: "A/1", oldFence: 2, newFence: 2, oldState: "running", newState: "ready", crashes: 1}
	again := change{what: "update", writer: "b", newOwner: "B/1", oldFence: 2, newFence: 3, oldState: "ready", newState: "running"}
	moved := change{what: "node", writer: "a", oldState: "active", newState: "rescuing"}
	told := change{what: "event", writer: "a"}
	with := func(c change, edit func(*change)) change { edit(&c); return c }
	known := func() lives {
		return lives{process: map[string]string{"A/1": "a", "A/2": "a", "B/1": "b"}, ended: map[string]time.Time{}, beats: map[string][]time.Time{"A/1": {start.Add(-time.Hour), start.Add(-selfStop)}}}
	}
	for name, c := range map[string]struct {
		steps [][]change
		reads []read
		lives func(lives)
		right bool
	}{
		"all is right":                        {steps: [][]change{{insert, moved}, {claim}, {word, told}, {freed}, {again}}, right: true},
		"a stale owner's word":                {steps: [][]change{{insert}, {claim}, {word}, {freed}, {again}, {with(word, func(c *change) { c.oldFence, c.newFence = 2, 3 })}}},
		"a stale owner's effect":              {steps: [][]change{{insert}, {claim}, {word}, {freed}, {again}, {told}}},
		"two owners":                          {steps: [][]change{{insert}, {claim}, {with(claim, func(c *change) { c.writer, c.newOwner = "b", "B/1" })}}},
		"a claim in another name":             {steps: [][]change{{insert}, {with(claim, func(c *change) { c.writer = "b" })}}},
		"a claim in no name":                  {steps: [][]change{{insert}, {with(claim, func(c *change) { c.newOwner = "A/3" })}}},
		"a word of an incarnation that ended": {steps: [][]change{{insert}, {claim}, {word}}, lives: func(l lives) { l.ended["A/1"] = start.Add(-time.Minute) }},
		"one that has not heard of its end":   {steps: [][]change{{insert}, {claim}, {word}}, lives: func(l lives) { l.ended["A/1"] = start.Add(time.Second) }, right: true},
		"taken from one that lives":           {steps: [][]change{{insert}, {claim}, {word}, {freed}}, lives: func(l lives) { l.beats["A/1"] = append(l.beats["A/1"], start) }},
		"freed by its own process":            {steps: [][]change{{insert}, {claim}, {word}, {with(freed, func(c *change) { c.writer = "a" })}}, lives: func(l lives) { l.beats["A/1"] = append(l.beats["A/1"], start) }, right: true},
		"an orphan": {steps: [][]change{{insert}, {claim}, {word}, {freed}}, lives: func(l lives) {
			l.beats["A/1"], l.ended["A/1"] = append(l.beats["A/1"], start), start.Add(time.Second)
		}, right: true},
		"written twice":          {steps: [][]change{{insert}, {claim}, {word}, {word}}},
		"a state by nobody":      {steps: [][]change{{moved}}},
		"two operations":         {steps: [][]change{{insert}, {insert}}},
		"a true answer":          {steps: [][]change{{insert, moved}}, reads: []read{{"node", start.Add(time.Minute), start.Add(2 * time.Minute), look{"rescuing", true}}}, right: true},
		"an answer of yesterday": {steps: [][]change{{insert, moved}}, reads: []read{{"node", start.Add(time.Minute), start.Add(2 * time.Minute), look{"active", false}}}},
	} {
		n = 0
		var made []change
		for _, s := range c.steps {
			tx++
			for _, one := range s {
				made = append(made, next(one))
			}
		}
		ops := histories(made, c.reads)["node"]
		all := known()
		if c.lives != nil {
			c.lives(all)
		}
		if got := porcupine.CheckOperations(model(all), ops); got != c.right {
			t.Errorf("%s: judged %v", name, got)
		}
	}
}
