package compute

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/problem"
	"salvor/record"
)

// ErrServerBusy: somebody works on the server this very moment; it is to be asked again.
var ErrServerBusy = problem.Conflictf("the server is being worked on just now; ask again")

// CopyServer takes in how the server is.
func (m *Move) CopyServer(srv *Server, now time.Time) {
	m.Record = record.Record{ID: uuid.NewString(), CreatedAt: now}
	if m.Kind == "" {
		m.Kind = Evacuation
	}
	m.ServerID, m.SourceID, m.State = srv.ID, srv.HostID, MoveAccepted
	m.SourceEpoch, m.WasState, m.WasTask, m.WasPower = srv.Epoch, srv.State, srv.Task, srv.Power
	m.User, m.Project = srv.User, srv.Project
	m.Wanted, m.Words = restorablePower(srv)
	m.Words = JoinWords(m.Words, srv.DescribeLoss(m.Kind, m.Disposition))
}

// DescribeLoss tells in words what of the server lies on its host alone and does not come with a move of the kind; empty: nothing is known to be
// lost. A live migration brings everything along, and a planned move of a server that is off brings the UEFI variables.
func (s *Server) DescribeLoss(kind MoveKind, disposition Disposition) string {
	var lost []string
	if kind == Evacuation && s.StandsStill() {
		lost = append(lost, "it stood still ("+s.Pause.Describe()+"): its memory is lost, it begins anew and runs")
	}
	if s.losesVariables(kind, disposition) {
		lost = append(lost, "its UEFI variables lie on its host alone: it begins with new ones, without the boot entries and keys that it had")
	}
	var parts []string
	for _, d := range s.Drift {
		if !d.Disk && kind != LiveMigration {
			parts = append(parts, d.String())
		}
	}
	if len(parts) > 0 {
		lost = append(lost, "what someone other than salvor changed of its guest stays behind: "+strings.Join(parts, ", "))
	}
	return strings.Join(lost, "; ")
}

// losesVariables tells whether the UEFI variables of the server lie on its host alone and do not come with a move of the kind.
func (s *Server) losesVariables(kind MoveKind, disposition Disposition) bool {
	return kind == Evacuation && s.Firmware == UEFI && (disposition != KeepDisk || !s.StateCopied)
}

// restorablePower tells which power a server that begins anew elsewhere has in the end, and in words what of its state cannot be kept: memory
// died with the host.
func restorablePower(srv *Server) (Power, string) {
	wanted := srv.Wanted
	if wanted == PowerUnknown {
		wanted = srv.Power
	}
	switch wanted {
	case PowerPaused:
		return PowerOn, "it was paused: its memory is lost, it begins anew and runs"
	case PowerSaved:
		return PowerOn, "it was suspended: its memory is lost, it begins anew and runs"
	case PowerOn:
		return PowerOn, ""
	}
	return PowerOff, ""
}

func (m *Move) RefusalToBegin(receipt *Receipt) string {
	text := "is moved away from its host (" + string(m.Kind) + ")"
	if receipt != nil {
		text = "its host was fenced: it is moved to another one"
	}
	if m.Disposition == Reimage {
		text += "; its disk died with the host: it is made anew from its image, its data are lost"
	}
	if m.Words != "" {
		text += "; " + m.Words
	}
	return text
}

func JoinWords(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// FindsState tells whether the destination may find a copy of the guest's state beside its disk. A planned move brings the state itself along.
func (m *Move) FindsState() bool {
	return m.Kind == Evacuation && m.Disposition == KeepDisk && !m.WasBuilding()
}

// WasBuilding tells whether the server was being made, or made anew, when the move began: its disks need not be there.
func (m *Move) WasBuilding() bool { return wasBuilding(m.WasState, m.WasTask) }

func wasBuilding(state VMState, task Task) bool {
	return state == Building || task == Rebuilding || task == Spawning || task == Scheduling
}

// RecordEpoch notes the epoch that a move gave its server. One of a former incarnation keeps the epoch that it had at the release: the
// clean-up of its source ends older guests of that incarnation, and the lost history may have given later epochs to guests there.
func (m *Move) RecordEpoch(epoch int64) {
	if m.Incarnation != "" {
		epoch = min(epoch, max(m.Epoch, m.SourceEpoch+1))
	}
	m.Epoch = epoch
}
