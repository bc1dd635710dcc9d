package host_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// TestAHeldHostOnTheWire: it is told to hold and what to clean up, and its poll ends in time without an order, though it has one.
func TestAHeldHostOnTheWire(t *testing.T) {
	r, key := newRegion(t), newKey(t)
	id, cert := r.join(t, key)
	c := r.client(cert)
	renew := func(in wire.Renewal) (out wire.Renewed) {
		t.Helper()
		status, body, err := post(c, r.url+wire.RenewPath, in)
		if err != nil || status != http.StatusOK {
			t.Fatal(status, string(body), err)
		}
		must.OK(t, json.Unmarshal(body, &out))
		return out
	}
	renew(wire.Renewal{BootID: "b1", Name: "h"})
	server, move := uuid.NewString(), &compute.Move{Record: record.Record{ID: uuid.NewString()}, SourceID: id, State: compute.MoveDone, Clean: compute.CleanGuest, Epoch: 3}
	move.ServerID = server
	must.OK(t, r.store.Do(t.Context(), func(tx job.Tx) error {
		if _, err := r.services.Fences.Give(t.Context(), tx, id, []compute.Proof{{Evidence: compute.StorageRevoked, Text: "out", At: time.Now()}}, "", ""); err != nil {
			return err
		}
		if err := r.store.Moves().Insert(tx, move); err != nil {
			return err
		}
		_, err := r.store.InsertOrder(tx, &compute.Order{ID: uuid.NewString(), HostID: id, BootID: "b1", ServerID: server, Verb: compute.Look,
			JobID: uuid.NewString(), Action: "look", Args: []byte("{}")})
		return err
	}))
	guests, _ := json.Marshal([]compute.Guest{{ID: server, Ours: true, Epoch: 2}})
	out := renew(wire.Renewal{BootID: "b2", Name: "h", Guests: guests, Watchdog: "dog", Neighbours: []wire.Neighbour{{HostID: id, Address: "x"}}})
	if told := out.Clean[server]; !out.Hold || out.Servers != nil || told.Do != string(compute.CleanGuest) || told.Epoch != 3 || len(told.Spec) == 0 {
		t.Fatalf("%+v", out)
	}
	began := time.Now()
	answer := must.Get(c.Get(r.url + wire.OrdersPath + "?wait=20&all=1"))(t)
	text, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	if took := time.Since(began); string(text) != `{"orders":[]}` || took < time.Second || took > 15*time.Second {
		t.Errorf("%s after %s", text, took)
	}
	out = renew(wire.Renewal{BootID: "b2", Name: "h", Cleaned: []wire.Cleaned{{ServerID: server, Epoch: 3}}})
	if out.Hold || !out.Resend {
		t.Fatalf("%+v", out)
	}
	answer = must.Get(c.Get(r.url + wire.OrdersPath + "?wait=20&all=1"))(t)
	defer answer.Body.Close()
	var orders wire.Orders
	if err := json.NewDecoder(answer.Body).Decode(&orders); err != nil || len(orders.Orders) != 1 {
		t.Errorf("%d orders after the admission, %v", len(orders.Orders), err)
	}
	for _, bad := range []wire.Renewal{
		{BootID: "b2", Watchdog: string(make([]byte, 300))}, {BootID: "b2", Cleaned: make([]wire.Cleaned, 1001)}, {BootID: "b2", Neighbours: make([]wire.Neighbour, 65)},
	} {
		if status, _, err := post(c, r.url+wire.RenewPath, bad); err != nil || status != http.StatusBadRequest {
			t.Errorf("%d %v", status, err)
		}
	}
}
