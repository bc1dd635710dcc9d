package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor/fake"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/record"
	"salvor/test/must"
)

// moveWorld is a testHost that died, and others to which its server may go. Their shared stores are one.
type moveWorld struct {
	*testHost
	others []*testHost
}

// moveOptions is how a moveWorld begins.
type moveOptions struct {
	hostOptions
	// lone: the server's disks lie in a store that only its host has.
	lone   bool
	others int
}

func newMoveWorld(t *testing.T, y moveOptions) *moveWorld {
	t.Helper()
	if y.others == 0 {
		y.others = 2
	}
	y.silent = true
	s := &moveWorld{testHost: newTestHost(t, y.hostOptions)}
	ctx := context.Background()
	marker := uuid.NewString()
	s.tx(t, func(tx job.Tx) error {
		h, err := s.store.Hosts().Get(ctx, tx, s.host.ID)
		if err != nil {
			return err
		}
		h.UsedVCPUs, h.UsedRAM, h.UsedDisk = 1, 512, 3
		h.Inventory.Stores[0].Marker = marker
		if err := s.store.Hosts().Save(tx, h); err != nil {
			return err
		}
		s.host = h
		for i := range y.others {
			o := &compute.Host{Record: record.Record{ID: uuid.NewString()}, Name: fmt.Sprint("west", i), Kind: compute.AgentHost, BootID: "boot-1", Inventory: h.Inventory}
			o.Inventory.Stores = []compute.DiskStore{{Name: "pool", Marker: marker, SizeGiB: 100, FreeGiB: 100}}
			if y.lone {
				o.Inventory.Stores[0].Marker = uuid.NewString()
			}
			o.Inventory.RAM -= i // the first is the roomiest
			if err := s.store.Hosts().Insert(tx, o); err != nil {
				return err
			}
			next := &testHost{hv: fake.New(), disks: s.disks, store: s.store, services: s.services, con: s.con, host: o, server: s.server, image: s.image, volume: s.volume}
			if y.lone {
				next.disks = map[string]string{}
			}
			s.others = append(s.others, next)
		}
		return nil
	})
	s.renew(t)
	return s
}

// renew has the living hosts renew their leases, for long.
func (s *moveWorld) renew(t *testing.T) {
	t.Helper()
	var leases []compute.Lease
	for _, o := range s.others {
		leases = append(leases, compute.Lease{HostID: o.host.ID, BootID: "boot-1", RenewedAt: time.Now().Add(time.Hour)})
	}
	must.OK(t, s.store.SaveLeases(context.Background(), leases))
}

// sight is what the testHost sees of a disk.
func (h *testHost) sight(p *compute.DiskProbe) compute.DiskSight {
	if _, there := h.hv.State(p.ServerID); there {
		return compute.DiskSight{Sight: compute.SightGuest}
	}
	marker := h.host.Inventory.Stores[0].Marker
	switch {
	case p.Disk == nil || p.Marker != marker:
		return compute.DiskSight{Sight: compute.SightAbsent}
	case h.disks[p.Disk.Name] == "":
		return compute.DiskSight{Sight: compute.SightMissing}
	}
	return compute.DiskSight{Sight: compute.SightSame}
}

// fence gives the receipt of the source.
func (s *moveWorld) fence(t *testing.T) {
	t.Helper()
	later := time.Now().Add(2 * time.Hour) // than the leases, which are long
	s.tx(t, func(tx job.Tx) error {
		_, err := s.services.Fences.Give(context.Background(), tx, s.host.ID, []compute.Proof{{Evidence: compute.Attested, Text: "seen in the rack", At: later}}, "ops", "it burns")
		return err
	})
}

// evacuate asks for the move of the server.
func (s *moveWorld) evacuate(t *testing.T) *compute.Move {
	t.Helper()
	m := must.Get(s.services.Moves.Evacuate(context.Background(), s.server, compute.MoveRequest{}, compute.Who{Admin: true}))(t)
	return m
}

func (s *moveWorld) pokeAll() {
	for _, o := range s.others {
		o.poke()
	}
}

// workAll runs a conductor until nothing is left to be done on the server, nor on the host.
func (s *moveWorld) workAll(t *testing.T) {
	t.Helper()
	stop := s.conduct(t)
	defer stop()
	s.untilEnded(t, s.pokeAll, compute.Subject(s.server), compute.HostSubject(s.host.ID))
}

// lastMove reads the server's newest move.
func (s *moveWorld) lastMove(t *testing.T) *compute.Move {
	t.Helper()
	all := must.Get(s.services.Moves.List(context.Background(), compute.MoveFilter{ServerID: s.server}, record.Page{}))(t)
	if len(all) == 0 {
		t.Fatal("there is no move")
	}
	newest := all[0]
	for _, m := range all {
		if m.Num > newest.Num {
			newest = m
		}
	}
	return newest
}

// whereabouts is the picture of a moveWorld: what is at each host, and the records of moves.
func (s *moveWorld) whereabouts(t *testing.T) string {
	t.Helper()
	ctx := context.Background()
	var out strings.Builder
	fmt.Fprintln(&out, s.picture(t))
	row := s.now(t)
	for _, o := range append([]*testHost{s.testHost}, s.others...) {
		h := must.Get(s.store.Hosts().Get(ctx, nil, o.host.ID))(t)
		open := must.Get(s.store.OpenOrders(ctx, h.ID))(t)
		o.mu.Lock()
		fmt.Fprintf(&out, "%s: lives here %v, used %d %d %d, open orders %d, guest %s, disks %v, copies %v, opened %v\n", h.Name, row.HostID == h.ID, h.UsedVCPUs, h.UsedRAM, h.UsedDisk,
			len(open), o.guest(), o.disks, o.copies, o.opened != "")
		o.mu.Unlock()
	}
	all := must.Get(s.services.Moves.List(ctx, compute.MoveFilter{ServerID: s.server}, record.Page{}))(t)
	for _, m := range all {
		fmt.Fprintf(&out, "move: %s %s clean %q %q %q dest %v\n", m.State, m.Disposition, m.Clean, m.Words, m.Problem, m.DestID == row.HostID)
	}
	return strings.NewReplacer(s.image, "IMAGE", s.volume, "VOLUME", s.server, "SERVER").Replace(out.String())
}

// sweepWorld puts the world before the sweep.
func (s *moveWorld) sweepWorld(kind job.Kind, start, broken func(t *testing.T)) *jobtest.World {
	w := s.world(kind, start, broken)
	w.Poke, w.Picture = s.pokeAll, s.whereabouts
	return w
}
