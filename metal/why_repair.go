package metal

import (
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/record"
)

// addRepair names a repair that waits for somebody: a repair that left the disks half-written, or else the newest repair.
func (s *StatusInput) addRepair(w *record.Why) {
	node := s.Node.label()
	if r := interruptedRepair(s.Repairs, ""); r != nil {
		w.Block("its disks are half-written by repair "+r.ID+", and its own system must not boot", undoCommand(node, r.ID, ""))
		return
	}
	if len(s.Repairs) == 0 {
		return
	}
	r := &s.Repairs[0]
	confirm := record.Command{Run: fmt.Sprintf("salvor repair confirm %s %s", node, r.ID), For: "state that it works"}
	switch {
	case r.State == RepairAwaitingConsent && r.Consent == nil:
		awaitSomebody(w, "until "+record.Moment(r.ConsentUntil)+", repair "+r.ID+" waits for a consent to its plan",
			record.Command{Run: fmt.Sprintf("salvor repair show %s %s", node, r.ID), For: "read the plan"},
			record.Command{Run: fmt.Sprintf("salvor repair consent %s %s --digest %s --consent %s", node, r.ID, r.Digest, joinConsents(r.Needs, ",")), For: "have it written"})
		for _, loss := range r.Losses {
			w.Notes = append(w.Notes, "with "+loss.Finding+", the plan may lose: "+strings.TrimSuffix(loss.Text, "."))
		}
	case r.State == RepairBooting:
		awaitSomebody(w, "until "+record.Moment(r.ProofUntil)+", its own system has to prove that it works since repair "+r.ID, confirm)
	case r.State == RepairInterrupted:
		w.Problems = append(w.Problems, "repair "+r.ID+": "+r.Problem)
		w.Next = append([]record.Command{{Run: "salvor diagnose " + node, For: "look at its disks"}}, w.Next...)
	case r.State == RepairUnproven:
		problem := "it has not proved that it works since repair " + r.ID
		if r.Problem != "" {
			problem += ": " + r.Problem
		}
		w.Problems = append(w.Problems, problem)
		s.addUnprovenSteps(w, r, confirm)
	case r.State == RepairWritten && !r.IsRunning() && r.Args.Undoes == "":
		w.Notes = append(w.Notes, "repair "+r.ID+" is written, and nothing has proved since that it works")
		s.addUnprovenSteps(w, r, confirm)
	}
}

// addUnprovenSteps names what leads to a proof: the boot of the machine's own system, and then a person who confirms; or the undo.
func (s *StatusInput) addUnprovenSteps(w *record.Why, r *Repair, confirm record.Command) {
	if !r.Booted && s.Node.ProvisionState.Info().InRescue {
		confirm = record.Command{Run: "salvor node unrescue " + s.Node.label(), For: "boot its own system"}
	}
	if !slices.ContainsFunc(w.Next, func(c record.Command) bool { return c.Run == confirm.Run }) {
		w.Next = append([]record.Command{confirm}, w.Next...)
	}
	switch r.Undo(s.Node) {
	case UndoExact:
		w.Next = append(w.Next, undoCommand(s.Node.label(), r.ID, ""))
	case UndoFiles:
		w.Next = append(w.Next, undoCommand(s.Node.label(), r.ID, " --reboot"))
	case UndoNone:
		if lost := r.UndoLost(); lost != "" {
			w.Notes = append(w.Notes, "repair "+r.ID+" cannot be taken back: "+lost)
		}
	}
}

// awaitSomebody says that a repair waits, before other notes.
func awaitSomebody(w *record.Why, note string, next ...record.Command) {
	if w.Status == record.Idle {
		w.Status = record.Waiting
	}
	w.Notes = append([]string{note}, w.Notes...)
	w.Next = append(next, w.Next...)
}

func undoCommand(node, id, flags string) record.Command {
	return record.Command{Run: fmt.Sprintf("salvor repair undo %s %s%s", node, id, flags), For: "take the repair back"}
}

func joinConsents(consents []diagnose.Consent, separator string) string {
	texts := make([]string, 0, len(consents))
	for _, c := range consents {
		texts = append(texts, string(c))
	}
	return strings.Join(texts, separator)
}
