package host

import (
	"context"
	"time"

	"salvor/compute"
	wire "salvor/wire/host"
)

// losesMemory tells whether the order to set a guest's power gives saved memory up, in this try or in a former one. It writes that into the journal before
// the memory goes: a guest that is off does not show that it had any.
func (w *orderExecution) losesMemory(ctx context.Context) (bool, error) {
	lost, err := w.journal.lostMemory(w.order.ServerID)
	if err != nil {
		return false, err
	}
	if lost != nil && lost.Order != w.order.ID { // an order that was never answered
		w.noteLostMemory(w.order.ServerID, lost)
		if err := w.journal.setLostMemory(w.order.ServerID, nil); err != nil {
			return false, err
		}
		lost = nil
	}
	if lost != nil || w.args.KeepSaved || w.args.Power != compute.PowerOff && !w.args.Restart {
		return lost != nil, nil
	}
	before, err := w.guest(ctx, w.order.ServerID)
	if err != nil || before == nil || before.Power != compute.PowerSaved || !before.Ours {
		return false, err
	}
	return true, w.journal.setLostMemory(w.order.ServerID, &lostMemory{Order: w.order.ID, At: time.Now().UTC()})
}

// lookAfterFailure bounds the look at a guest whose order failed.
const lookAfterFailure = 5 * time.Second

// tellMemoryOfFailed tells the server's timeline that a failed order gave the guest's saved memory up, unless the memory is still there.
func (a *Agent) tellMemoryOfFailed(ctx context.Context, o *compute.Order) {
	lost, err := a.journal.lostMemory(o.ServerID)
	if err != nil || lost == nil || lost.Order != o.ID {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookAfterFailure)
	defer cancel()
	g, err := runWithContext(ctx, func() (*compute.Guest, error) { return a.guest(ctx, o.ServerID) })
	if err == nil && g != nil && g.Power == compute.PowerSaved {
		return
	}
	a.noteLostMemory(o.ServerID, lost)
}

func (a *Agent) noteLostMemory(server string, lost *lostMemory) {
	a.lease.note(wire.LocalAction{ServerID: server, Text: "gave its saved memory up, in an order to switch it off that failed or was broken off", At: lost.At})
}
