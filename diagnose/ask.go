package diagnose

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// maxFindings of one rule: a file with a million wrong lines is one fact, not a million.
const maxFindings = 20

// ruleTime bounds the time of one rule where the system does not say.
const ruleTime = 20 * time.Second

// stopWatch ends a rule that takes too long, when the rule next opens a file or reads from an open file. A rule works on files of a bounded size, so it
// soon asks for the next one.
type stopWatch struct {
	mu    sync.Mutex
	limit time.Duration // 0: no rule runs
	until time.Time
	late  bool             // a read was refused, because the rule has taken too long
	clock func() time.Time // nil: time.Now
}

// overrunWords begin the reason of a gap that a rule leaves which has taken too long.
const overrunWords = "it took more than "

// IsOverrun says whether a gap is that of a rule that has taken too long.
func (g *Gap) IsOverrun() bool {
	return strings.HasPrefix(g.What, ruleGap) && strings.HasPrefix(g.Why, overrunWords)
}

// ruleGap begins the name of a gap that a rule leaves.
const ruleGap = "the rule for "

// errOverrun is the error of a read by a rule that has taken too long. What the rule makes of the error is dropped.
var errOverrun = errors.New("the rule has taken too long")

// ruleOverrun is what a stopWatch panics with.
type ruleOverrun struct{ limit time.Duration }

func (w *stopWatch) now() time.Time {
	if w.clock != nil {
		return w.clock()
	}
	return time.Now()
}

func (w *stopWatch) start(limit time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit, w.until, w.late = limit, w.now().Add(limit), false
}

// extend lets the running rule take so much longer.
func (w *stopWatch) extend(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = w.until.Add(by)
}

// overrun is errOverrun once the running rule has taken longer than it may, and nil before.
func (w *stopWatch) overrun() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limit == 0 || !w.now().After(w.until) {
		return nil
	}
	w.late = true
	return errOverrun
}

// wasLate says whether a read of the running rule was refused.
func (w *stopWatch) wasLate() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.late
}

func (w *stopWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = 0
}

// check panics if the running rule has taken longer than it may.
func (w *stopWatch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if limit := w.limit; limit != 0 && w.now().After(w.until) {
		w.limit = 0
		panic(ruleOverrun{limit})
	}
}

// askRule runs one rule. Its findings leave with texts that are safe to show.
func askRule(rule Rule, s *System) (found []Finding, gap *Gap) {
	if s.Files != nil {
		s.Files.watch.start(cmp.Or(s.RuleTime, ruleTime))
		defer s.Files.watch.end()
	}
	defer func() {
		if p := recover(); p != nil {
			if over, ok := p.(ruleOverrun); ok {
				found = nil
				gap = &Gap{What: ruleGap + strings.Join(rule.IDs, ", "), Why: fmt.Sprintf(overrunWords+"%s: the files that it reads are too many or too large", over.limit)}
				return
			}
			found, gap = nil, &Gap{What: ruleGap + strings.Join(rule.IDs, ", "), Why: "it failed: " + Excerpt(fmt.Sprint(p))}
		}
	}()
	found = rule.Look(s)
	if s.Files != nil && s.Files.watch.wasLate() {
		panic(ruleOverrun{cmp.Or(s.RuleTime, ruleTime)})
	}
	if len(found) > maxFindings {
		gap = &Gap{What: fmt.Sprintf("%d more findings of the rule for %s", len(found)-maxFindings, rule.IDs[0]), Why: "a report lists the first 20 of a rule"}
		found = found[:maxFindings]
	}
	for i := range found {
		found[i] = withoutIdleRepair(sanitizeFinding(found[i]))
	}
	return found, gap
}

// withoutIdleRepair takes the repair from a finding that harms nothing, and leaves its summary as what a person can do.
func withoutIdleRepair(f Finding) Finding {
	if f.Severity == Info && f.Repair != nil {
		f.ByHand, f.Repair = cmp.Or(f.ByHand, f.Repair.Summary), nil
	}
	return f
}
