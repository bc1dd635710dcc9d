package compute

import (
	"context"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Receipt reads the open receipt of a host; problem.NotFound if it has none.
func (s *Hosts) Receipt(ctx context.Context, tx job.Tx, hostID string) (*Receipt, error) {
	found, err := s.store.Receipts().List(ctx, tx, ReceiptFilter{HostID: hostID, Open: true}, pageOf(1))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, problem.NotFoundf("host %s has no open receipt of a fence", hostID)
	}
	return found[0], nil
}

// Receipts reads a page.
func (s *Hosts) Receipts(ctx context.Context, f ReceiptFilter, p record.Page) ([]*Receipt, error) {
	return s.store.Receipts().List(ctx, nil, f, p)
}

// GiveReceipt writes the receipt of a host that was fenced by these proofs. One that is open is returned as it is. problem.Conflict
// says what the host's group requires and is missing.
func (s *Hosts) GiveReceipt(ctx context.Context, tx job.Tx, hostID string, proofs []Proof, by, words string) (*Receipt, error) {
	r, err := s.Receipt(ctx, tx, hostID)
	if err == nil || !problem.Is(err, problem.NotFound) {
		return r, err
	}
	h, err := s.store.Hosts().Get(ctx, tx, hostID)
	if err != nil {
		return nil, err
	}
	h.Fences++
	r = &Receipt{Record: record.Record{ID: uuid.NewString(), CreatedAt: s.now()}, HostID: hostID, BootID: h.BootID, Epoch: h.Fences, Proofs: proofs, By: by, Words: words}
	if err := s.store.Receipts().Insert(tx, r); err != nil {
		return nil, err
	}
	return r, s.saveHost(tx, h)
}

// EnsureReceipt gives the open receipt of a host, or one by what is known now: an operator's word that it is down once its lease has
// lapsed, its own acknowledgement, or the lapse of a self-fence. Else problem.Conflict says what is missing. The host must have been
// read in tx.
func (s *Hosts) EnsureReceipt(ctx context.Context, tx job.Tx, h *Host) (*Receipt, error) {
	return s.Receipt(ctx, tx, h.ID)
}

// Silence tells for how long this process has not heard of a host though it could have, on its own monotonic clock, and which hardware
// watchdog the newest renewal named. known is false of a host that never held a lease, and while the store does not answer.
func (s *Hosts) Silence(hostID string) (since time.Duration, watchdog string, known bool) {
	return 0, "", false
}
