package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/secret"
)

const orderColumns = `id, host_id, boot_id, server_id, epoch, verb, args, COALESCE(secret, ''), within_s, job_id, action, result, progress,
	created_at, sent_at, finished_at, examination`

// InsertOrder is compute.OrderStore's.
func (s hostTables) InsertOrder(t job.Tx, o *compute.Order) (bool, error) {
	tx, err := s.tx(t)
	if err != nil {
		return false, err
	}
	if o.ID == "" {
		o.ID = uuid.NewString()
	}
	if o.CreatedAt.IsZero() {
		o.CreatedAt = s.timestamp()
	}
	var sealed any
	if !o.Secret.Empty() {
		if err := tx.seals(); err != nil {
			return false, err
		}
		sealed = s.key.Seal(o.Secret, orderPlace(o.ID))
	}
	n, err := tx.exec(`INSERT INTO host_order (id, host_id, boot_id, server_id, epoch, verb, args, secret, within_s, job_id, action,
		result, progress, created_at, sent_at, finished_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, '', '', $12, 0, 0)
		ON CONFLICT DO NOTHING`, o.ID, o.HostID, o.BootID, o.ServerID, o.Epoch, string(o.Verb), string(o.Args), sealed,
		int64(o.Within), o.JobID, o.Action, toMicros(o.CreatedAt))
	if err != nil {
		return false, fmt.Errorf("insert order %s of server %s: %w", o.Verb, o.ServerID, err)
	}
	if n == 1 {
		tx.addsOrders = true
		return false, nil
	}
	found, err := s.ordersOf(tx.ctx, tx, `job_id = $1 AND action = $2 AND epoch = $3 AND job_id <> ''`, o.JobID, o.Action, o.Epoch)
	if err != nil {
		return false, err
	}
	if len(found) == 0 {
		return false, problem.Conflictf("An order with ID %s already exists.", o.ID)
	}
	*o = found[0]
	return true, nil
}

func orderPlace(id string) string { return "host_order:" + id }

func examinationPlace(id string) string { return "host_order:" + id + ":examination" }

// ordersOf reads orders, oldest first, at most MaxOpenOrders.
func (s hostTables) ordersOf(ctx context.Context, t job.Tx, where string, args ...any) ([]compute.Order, error) {
	var out []compute.Order
	err := s.read(ctx, t, func(r *sql.Rows) error {
		o, err := s.scanOrder(r)
		out = append(out, o)
		return err
	}, `SELECT `+orderColumns+` FROM host_order WHERE `+where+` ORDER BY num LIMIT `+strconv.Itoa(compute.MaxOpenOrders), args...)
	if err != nil {
		return nil, fmt.Errorf("read orders: %w", err)
	}
	return out, nil
}

func (s hostTables) scanOrder(r *sql.Rows) (o compute.Order, err error) {
	var args, sealed, result, examination string
	var created, sent, finished int64
	err = r.Scan(&o.ID, &o.HostID, &o.BootID, &o.ServerID, &o.Epoch, &o.Verb, &args, &sealed, &o.Within, &o.JobID, &o.Action, &result,
		&o.Progress, &created, &sent, &finished, &examination)
	if err != nil {
		return o, err
	}
	o.Args, o.CreatedAt, o.SentAt, o.FinishedAt = toRawMessage(args), fromMicros(created), fromMicros(sent), fromMicros(finished)
	if result != "" {
		o.Result = &compute.Result{}
		if err := json.Unmarshal([]byte(result), o.Result); err != nil {
			return o, fmt.Errorf("result of order %s: %w", o.ID, err)
		}
	}
	if sealed != "" {
		if o.Secret, err = s.key.Open(sealed, orderPlace(o.ID)); err != nil {
			return o, fmt.Errorf("secret of order %s: %w", o.ID, err)
		}
	}
	if examination != "" && o.Result != nil {
		plain, err := s.key.Open(examination, examinationPlace(o.ID))
		if err != nil {
			return o, fmt.Errorf("examination of order %s: %w", o.ID, err)
		}
		o.Result.Examination = json.RawMessage(plain.Reveal())
	}
	return o, nil
}

// OrdersNaming is compute.OrderStore's.
func (s hostTables) OrdersNaming(ctx context.Context, hostID, text string) ([]compute.Order, error) {
	return s.ordersOf(ctx, nil, `host_id = $1 AND finished_at = 0 AND replace(args, $2, '') <> args`, hostID, text)
}

// OpenOrders is compute.OrderStore's. Most looks find nothing new, and a look is cheaper than a transaction.
func (s hostTables) OpenOrders(ctx context.Context, hostID string) ([]compute.Order, error) {
	out, err := s.ordersOf(ctx, nil, `host_id = $1 AND finished_at = 0`, hostID)
	if len(out) == compute.MaxOpenOrders && !slices.ContainsFunc(out, func(o compute.Order) bool { return o.SentAt.IsZero() }) {
		out, err = s.ordersOf(ctx, nil, `host_id = $1 AND finished_at = 0 AND sent_at = 0`, hostID)
	}
	if err != nil {
		return nil, err
	}
	c, now := &whereClause{}, s.timestamp()
	sent := c.arg(toMicros(now))
	var unsent []string
	for i := range out {
		if out[i].SentAt.IsZero() {
			out[i].SentAt = now
			unsent = append(unsent, out[i].ID)
		}
	}
	if len(unsent) == 0 {
		return out, nil
	}
	err = s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err == nil {
			c.args = c.args[:1]
			_, err = tx.exec(`UPDATE host_order SET sent_at = `+sent+` WHERE finished_at = 0 AND `+c.in("id", unsent), c.args...)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("mark the orders of host %s as sent: %w", hostID, err)
	}
	return out, nil
}

// Order is compute.OrderStore's.
func (s hostTables) Order(ctx context.Context, t job.Tx, id string) (*compute.Order, error) {
	found, err := s.ordersOf(ctx, t, `id = $1`, id)
	if err == nil && len(found) == 0 {
		err = problem.NotFoundf("Order %s could not be found.", id)
	}
	if err != nil {
		return nil, err
	}
	return &found[0], nil
}

// FinishOrder is compute.OrderStore's. An order of another host is one that is not there. An examination is
// sealed, because it holds texts of a guest's disks.
func (s hostTables) FinishOrder(t job.Tx, id, hostID, bootID string, epoch int64, r compute.Result) (*compute.Order, error) {
	tx, err := s.tx(t)
	if err != nil {
		return nil, err
	}
	examination := ""
	if len(r.Examination) > 0 {
		if err := tx.seals(); err != nil {
			return nil, err
		}
		examination, r.Examination = s.key.Seal(secret.New(string(r.Examination)), examinationPlace(id)), nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, problem.Invalidf("result of order %s: %w", id, err)
	}
	if _, err := tx.exec(`UPDATE host_order SET result = $5, finished_at = $6, secret = NULL, examination = $7
		WHERE id = $1 AND host_id = $2 AND boot_id = $3 AND epoch = $4 AND finished_at = 0`,
		id, hostID, bootID, epoch, string(text), toMicros(s.timestamp()), examination); err != nil {
		return nil, fmt.Errorf("finish order %s: %w", id, err)
	}
	o, err := s.orderOf(tx, id, hostID)
	if err != nil {
		return nil, err
	}
	if o.BootID != bootID || o.Epoch != epoch {
		return nil, problem.Conflictf("Order %s is of boot %s and epoch %d; a result of boot %s and epoch %d does not count.",
			id, o.BootID, o.Epoch, bootID, epoch)
	}
	return o, nil
}

// orderOf reads an order of the host.
func (s hostTables) orderOf(tx *Tx, id, hostID string) (*compute.Order, error) {
	o, err := s.Order(tx.ctx, tx, id)
	if err == nil && o.HostID != hostID {
		err = problem.NotFoundf("Order %s could not be found.", id)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// OrderProgress is compute.OrderStore's. A word that comes after the result is dropped.
func (s hostTables) OrderProgress(t job.Tx, id, hostID, text string) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	n, err := tx.exec(`UPDATE host_order SET progress = $3 WHERE id = $1 AND host_id = $2 AND finished_at = 0`, id, hostID, text)
	if err == nil && n == 0 {
		_, err = s.orderOf(tx, id, hostID)
		return err
	}
	if err != nil {
		return fmt.Errorf("progress of order %s: %w", id, err)
	}
	return nil
}

// MoveOrders is compute.OrderStore's. They count as not sent, so that the new boot hears of them.
func (s hostTables) MoveOrders(t job.Tx, hostID, bootID string) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	n, err := tx.exec(`UPDATE host_order SET boot_id = $2, sent_at = 0 WHERE host_id = $1 AND finished_at = 0`, hostID, bootID)
	if err != nil {
		return fmt.Errorf("give the orders of host %s to its new boot: %w", hostID, err)
	}
	tx.addsOrders = tx.addsOrders || n > 0
	return nil
}

// VoidOrders is compute.OrderStore's.
func (s hostTables) VoidOrders(t job.Tx, serverID string, below int64) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	return s.voidOrders(tx, problem.Conflictf("void: the server's epoch is %d now", below), `server_id = $3 AND epoch < $4`, serverID, below)
}

// VoidAllOrders is compute.OrderStore's.
func (s hostTables) VoidAllOrders(t job.Tx, cause error) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	return s.voidOrders(tx, cause, `EXISTS (SELECT 1 FROM server v WHERE v.id = host_order.server_id AND v.state <> 'deleted')`)
}

// voidOrders ends the open orders for which a condition holds. Its arguments begin with $3.
func (s hostTables) voidOrders(tx *Tx, cause error, where string, args ...any) error {
	text, err := json.Marshal(compute.Result{ErrorKind: problem.KindOf(cause).String(), Error: cause.Error()})
	if err != nil {
		return err
	}
	if _, err := tx.exec(`UPDATE host_order SET result = $1, finished_at = $2, secret = NULL WHERE finished_at = 0 AND `+where,
		append([]any{string(text), toMicros(s.timestamp())}, args...)...); err != nil {
		return fmt.Errorf("end open orders: %w", err)
	}
	return nil
}

// DropOrder is compute.OrderStore's.
func (s hostTables) DropOrder(t job.Tx, id string) error {
	return s.dropOrders(t, `id = $1`, id)
}

// DropJobOrders is compute.OrderStore's.
func (s hostTables) DropJobOrders(t job.Tx, jobID string) error {
	return s.dropOrders(t, `job_id = $1 AND job_id <> ''`, jobID)
}

func (s hostTables) dropOrders(t job.Tx, where, id string) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	if _, err := tx.exec(`DELETE FROM host_order WHERE `+where, id); err != nil {
		return fmt.Errorf("drop the orders of %s: %w", id, err)
	}
	return nil
}

// PruneOrders is compute.OrderStore's.
func (s hostTables) PruneOrders(ctx context.Context, before time.Time) (int, error) {
	n, err := s.execInBatches(ctx, pruneSlice, `DELETE FROM host_order WHERE num IN (SELECT num FROM host_order WHERE finished_at > 0 AND finished_at < $1 LIMIT $2)`,
		toMicros(before), pruneSlice)
	if err != nil {
		return n, fmt.Errorf("prune finished orders: %w", err)
	}
	return n, nil
}

// HostsWithOrders is compute.OrderStore's.
func (s hostTables) HostsWithOrders(ctx context.Context) ([]string, error) {
	var out []string
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var id string
		err := r.Scan(&id)
		out = append(out, id)
		return err
	}, `SELECT DISTINCT host_id FROM host_order WHERE finished_at = 0 AND sent_at = 0`)
	if err != nil {
		return nil, fmt.Errorf("list hosts with orders: %w", err)
	}
	return out, nil
}

// OrdersWoken is compute.OrderStore's.
func (s hostTables) OrdersWoken() <-chan struct{} { return s.ordersChanged.wait() }

// broadcaster wakes all who wait at once. The zero value is ready.
type broadcaster struct {
	mu   sync.Mutex
	gate chan struct{}
}

func (c *broadcaster) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gate == nil {
		c.gate = make(chan struct{})
	}
	return c.gate
}

func (c *broadcaster) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gate != nil {
		close(c.gate)
		c.gate = nil
	}
}
