package compute

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// GuestReport is a guest with our mark that is not off, as its host, or the cluster of its host, told it in its newest list.
type GuestReport struct {
	HostID, ServerID string
	// BootID is the boot of the host that told it; Epoch is the one in the guest's mark, 0 where that tells none.
	BootID string
	Epoch  int64
	// Incarnation is the incarnation of the database that gave Epoch, as the guest's mark names it; empty: the mark names none.
	Incarnation string
	Power       Power
	// SeenAt is when it was first told as it is now.
	SeenAt time.Time
}

// GuestReportFilter narrows a list of reports; zero fields do not narrow.
type GuestReportFilter struct {
	HostID, ServerID string
	// OfHostID keeps the guests of that host's servers that another host tells.
	OfHostID string
	// Misplaced keeps the guests of servers that are deleted, that live on another host, or that nobody knows.
	Misplaced bool
}

// ProvenOff tells whether a guest in this power holds no disk: no process of it runs.
func (p Power) ProvenOff() bool { return p == PowerOff || p == PowerSaved || p == PowerCrashed }

// AnswersFor tells whether a receipt proves that a guest of its host is off. Either the boot that reported the guest was fenced and
// has not spoken since, or the host was proven off after another boot reported it. A former receipt answers for no guest.
func (r *Receipt) AnswersFor(g GuestReport) bool {
	return r.Proves() && (r.BootID == g.BootID || r.OtherBootProvenOff(g.SeenAt))
}

// Describe names the host, its boot and the guest. current is the incarnation of the database.
func (g GuestReport) Describe(h *Host, current string) string {
	boot := ""
	if g.BootID != "" {
		boot = ", boot " + g.BootID + ","
	}
	report := fmt.Sprintf("host %s (%s)%s reports guest %s: power %s, epoch %d", OrID(h), h.ID, boot, g.ServerID, g.power(), g.Epoch)
	if why := g.leftAlone(current); why != "" && g.BootID != "" { // clusters mark no incarnation, and salvor ends nothing there
		report += " (" + why + ")"
	}
	return report
}

// leftAlone gives the reason why salvor does not end the guest by itself, although its epoch may be lower than the server's. Epochs
// are compared within one incarnation of the database only. Empty: the guest's epoch is of the current one.
func (g GuestReport) leftAlone(current string) string {
	switch g.Incarnation {
	case current:
		return ""
	case "":
		return "its mark names no incarnation of the database, so nothing ends it by itself"
	}
	return fmt.Sprintf("its epoch is of incarnation %.12s of the database, which is %.12s now, so nothing ends it by itself", g.Incarnation, current)
}

func (g GuestReport) power() string {
	if g.Power == PowerUnknown {
		return "unknown"
	}
	return string(g.Power)
}

// fenceCommands are the commands that prove hosts off.
func fenceCommands(hosts []string) string {
	var out []string
	for _, id := range hosts {
		if line := "salvor fence " + id; !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "; ")
}

// HeldMove is the refusal of a move because of a guest that heldBy found.
func HeldMove(serverID, by string, hosts []string) string {
	return "server " + serverID + " may run already: " + by + ". End that guest, or prove its host off with: " + fenceCommands(hosts)
}

// LeftUnfinished tells whether a report is of a guest that a planned move was bringing to its destination when it failed, before it handed the
// server over. Such a guest is paused, has not got all of its memory, and does not run by itself.
func (m *Move) LeftUnfinished(g GuestReport) bool {
	return m.IsPlanned() && m.State == MoveFailed && m.Clean == "" && g.HostID == m.DestID && g.Power == PowerPaused &&
		!g.SeenAt.Before(m.CreatedAt) && !g.SeenAt.After(m.EndedAt)
}

// HasUnsettledGuests tells whether a host is to tell its guests again soon: one of them runs beside its server, or may be found to.
func HasUnsettledGuests(instructions map[string]Clean) bool {
	for _, c := range instructions {
		if c.Do == CleanGuest || c.Do == CleanAsk && c.Epoch != 0 {
			return true
		}
	}
	return false
}
