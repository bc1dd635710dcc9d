package metal

import (
	"flag"
	"os"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

var update = flag.Bool("update", false, "write docs/states.md again")

func TestStatesAreDrawn(t *testing.T) {
	const path = "../docs/states.md"
	want := StatesMarkdown()
	if *update {
		must.OK(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got := must.Get(os.ReadFile(path))(t)
	if string(got) != want {
		t.Error("docs/states.md is not what metal/provision.go says: run make states")
	}
}

// TestTransitionsAreWhole walks every state with every verb and event.
func TestTransitionsAreWhole(t *testing.T) {
	verbs, events := map[Verb]bool{}, map[Event]bool{}
	reached := map[State]bool{Enroll: true}
	for _, tr := range Transitions {
		if (tr.Verb == "") == (tr.Event == "") {
			t.Errorf("%+v: want a verb or an event", tr)
		}
		if tr.From.Info().State == "" || tr.To.Info().State == "" {
			t.Errorf("%+v: unknown state", tr)
		}
		if tr.Verb != "" && tr.Min == 0 {
			t.Errorf("%+v: a verb has a first microversion", tr)
		}
		if tr.Verb != tr.Verb.Info().Verb || tr.Job != OperationOf(tr.Job).Kind {
			t.Errorf("%+v: its verb or its job has no row", tr)
		}
		verbs[tr.Verb], events[tr.Event], reached[tr.To] = true, true, true
	}
	for _, s := range States {
		if !reached[s.State] {
			t.Errorf("%s cannot be reached", s.State)
		}
		out := 0
		for v := range verbs {
			if tr, ok := ByVerb(s.State, v); ok {
				out++
				if got, err := (&Node{ID: "n", ProvisionState: s.State}).Admit(v, string(v)); err != nil || got != tr {
					t.Errorf("%s in %s is not admitted: %v", v, s.State, err)
				}
			} else if _, err := (&Node{ID: "n", ProvisionState: s.State}).Admit(v, string(v)); v != "" && !problem.Is(err, problem.Invalid) {
				t.Errorf("%s in %s: %v; want Invalid", v, s.State, err)
			}
		}
		for e := range events {
			if tr, err := ByEvent(s.State, e); e != "" && err == nil {
				out++
				if tr.To == s.State {
					t.Errorf("%s on %s stays where it is", e, s.State)
				}
			}
		}
		if out == 0 {
			t.Errorf("%s has no way out", s.State)
		}
		if _, ok := ByVerb(s.State, Abort); ok != (s.Aborted != "") {
			t.Errorf("%s: it takes abort: %t, which ends %q", s.State, ok, s.Aborted)
		}
		if s.Stable != (s.Target == "") {
			t.Errorf("%s: stable states have no target, the others do", s.State)
		}
	}
	if len(States) != 30 || len(Transitions) < 93 {
		t.Errorf("%d states, %d transitions; Ironic has 30 and 93", len(States), len(Transitions))
	}
}

// TestRescueSpecification holds every transition that the rescue specification lists.
func TestRescueSpecification(t *testing.T) {
	for _, c := range []struct {
		from State
		verb Verb
		on   Event
		to   State
	}{
		{Active, ToRescue, "", Rescuing}, {Rescuing, "", DoneEvent, Rescue}, {Rescuing, "", WaitEvent, RescueWait}, {Rescuing, "", FailEvent, RescueFailed},
		{RescueWait, "", ResumeEvent, Rescuing}, {RescueWait, "", FailEvent, RescueFailed}, {RescueWait, Abort, "", RescueFailed}, {RescueWait, Delete, "", Deleting},
		{Rescue, ToRescue, "", Rescuing}, {Rescue, Delete, "", Deleting}, {Rescue, Unrescue, "", Unrescuing},
		{Unrescuing, "", FailEvent, UnrescueFailed}, {Unrescuing, "", DoneEvent, Active},
		{UnrescueFailed, ToRescue, "", Rescuing}, {UnrescueFailed, Unrescue, "", Unrescuing}, {UnrescueFailed, Delete, "", Deleting},
		{RescueFailed, ToRescue, "", Rescuing}, {RescueFailed, Unrescue, "", Unrescuing}, {RescueFailed, Delete, "", Deleting},
	} {
		if got := steps[transitionKey{c.from, c.verb, c.on}]; got.To != c.to {
			t.Errorf("%s by %s%s leads to %q, want %q", c.from, c.verb, c.on, got.To, c.to)
		}
	}
}
