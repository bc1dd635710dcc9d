package diagnose

import (
	"slices"
	"time"
)

// Question is a program of an examined system that checks a part of its own system, and how it is called.
type Question struct {
	// Command begins with the absolute path of the program.
	Command []string
	// Folders are made below /run before, as the boot of the system makes them.
	Folders []string
}

// Answer is how a program of an examined system ended.
type Answer struct {
	Command []string `json:"command"`
	// Exit is the exit status; -1 where the program did not end by itself.
	Exit int `json:"exit"`
	// Trouble says why the program did not end by itself, or could not begin; empty where it ended.
	Trouble string  `json:"trouble,omitempty"`
	Seconds float64 `json:"seconds"`
	// Output is the end of what the program said, at most 4 KiB. Findings quote lines of it.
	Output string `json:"-"`
}

// Asker runs programs of an examined system. The programs change nothing, reach nobody, and have bounds of time and memory.
type Asker interface {
	Ask(q Question) Answer
}

// AskedProgram is a program of an installed system that ran during the diagnosis.
type AskedProgram struct {
	// System is the device that holds the root of the system.
	System string `json:"system"`
	Answer
}

// maxAsked bounds the programs of one system that a report lists.
const maxAsked = 40

// Ask asks a program of the system. ok is false where no program of the system may run. The time of the program does not count as time of the rule.
func (s *System) Ask(q Question) (a Answer, ok bool) {
	if s.Asker == nil || len(s.Asked) >= maxAsked {
		return Answer{}, false
	}
	began := time.Now()
	a = s.Asker.Ask(q)
	if s.Files != nil {
		s.Files.watch.extend(time.Since(began))
	}
	a.Command = slices.Clone(q.Command)
	s.Asked = append(s.Asked, a)
	return a, true
}

// sanitizeAnswers gives answers with texts that are safe to store and to show.
func sanitizeAnswers(answers []Answer) []Answer {
	var out []Answer
	for _, a := range answers[:min(len(answers), maxAsked)] {
		out = append(out, Answer{Command: excerptAll(a.Command), Exit: ClampExit(a.Exit), Trouble: Sentence(a.Trouble), Seconds: max(0, min(a.Seconds, maxSeconds))})
	}
	return out
}

// joinWitnesses gives the evidence of checkers to the findings that say the same. A checker's own finding stays where no rule found the fault.
func joinWitnesses(rules []Rule, findings []Finding) []Finding {
	supports := map[string][]string{}
	for _, rule := range rules {
		for _, id := range rule.IDs {
			supports[id] = append(supports[id], rule.Supports...)
		}
	}
	var out, witnesses []Finding
	for _, f := range findings {
		if slices.ContainsFunc(findings, func(other Finding) bool { return other.Severity != Info && slices.Contains(supports[f.ID], other.ID) }) {
			witnesses = append(witnesses, f)
		} else {
			out = append(out, f)
		}
	}
	for _, w := range witnesses {
		i := slices.IndexFunc(out, func(f Finding) bool { return f.Severity != Info && slices.Contains(supports[w.ID], f.ID) })
		for _, e := range w.Evidence {
			if i >= 0 && e.Kind == FromTool && len(out[i].Evidence) < maxFindings {
				out[i].Evidence = append(slices.Clone(out[i].Evidence), e)
			}
		}
	}
	return out
}
