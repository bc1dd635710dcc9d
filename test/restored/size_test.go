package restored

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	held "salvor/restored"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// TestSizeOfARelease: a release reaches each machine and each server of a fleet that is larger than a page. With SALVOR_SOAK the fleet
// has 10,000 of each: its memory is that of a tenth of the fleet.
func TestSizeOfARelease(t *testing.T) {
	sizes := []int{1100}
	if os.Getenv("SALVOR_SOAK") != "" {
		sizes = []int{1000, 10000}
	}
	for name, url := range map[string]func(testing.TB) string{
		"sqlite":   func(t testing.TB) string { return "sqlite:" + t.TempDir() + "/salvor.db" },
		"postgres": func(t testing.TB) string { return storetest.NewInstance(t).URL("postgres") },
	} {
		t.Run(name, func(t *testing.T) {
			var list, release []uint64
			for _, n := range sizes {
				a, b := sizeOf(t, url(t), n)
				list, release = append(list, a), append(release, b)
			}
			const most = 48 << 20 // what 9,000 machines and servers more may add: a fraction of their 9,000 * 2 * 5 KiB
			for what, peaks := range map[string][]uint64{"list": list, "release": release} {
				if last := len(peaks) - 1; last > 0 && peaks[last] > peaks[0]+most {
					t.Errorf("memory of the %s grows from %d to %d MiB", what, peaks[0]>>20, peaks[last]>>20)
				}
			}
		})
	}
}

// sizeOf lists and releases a held database of n machines and n servers, and gives the peaks of the heap above its start.
func sizeOf(t *testing.T, url string, n int) (list, release uint64) {
	t.Helper()
	key := must.Get(secret.NewKey(secret.GenerateKey()))(t)
	s := must.Get(store.Open(t.Context(), url, key, store.Options{Logger: slog.New(slog.DiscardHandler), Migrate: store.MigrateEmpty}))(t)
	defer s.Close()
	fillFleet(t, s, n)
	services := service.New(s, s, service.Options{}, time.Now)
	service := held.New(s, services, time.Now)
	must.OK(t, s.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
	began := time.Now()
	list = peakOf(func() {
		r, err := service.Report(t.Context())
		if err != nil || r.Nodes != n || r.Read != n || len(r.Differences) != (n+99)/100 {
			t.Fatalf("%+v %v", r, err)
		}
	})
	listed := time.Since(began)
	began = time.Now()
	release = peakOf(func() {
		must.Get(service.Release(t.Context(), held.Wanted{Decision: held.EndOperations}, record.Asker{User: "op"}))(t)
	})
	took := time.Since(began)
	t.Logf("%d machines and %d servers: list %s, %d MiB; release %s, %d MiB", n, n, listed, list>>20, took, release>>20)
	for _, i := range []int{0, 499, 500, n - 1} {
		node, err := s.Node(t.Context(), nil, id("node", i))
		if err != nil || node.BootNumber < 3+record.NumberStep {
			t.Errorf("node %d: %+v %v", i, node, err)
		}
		if want := map[bool]metal.Power{true: metal.PowerOff, false: metal.PowerOn}[i%100 == 0]; node.PowerState != want {
			t.Errorf("node %d is %q, want %q", i, node.PowerState, want)
		}
		srv, err := s.Servers().Get(t.Context(), nil, id("server", i))
		if err != nil || srv.Epoch < 5+record.NumberStep {
			t.Errorf("server %d: %+v %v", i, srv, err)
		}
	}
	return list, release
}

func id(kind string, i int) string {
	return fmt.Sprintf("%08d-0000-4000-8000-%012d", len(kind), i)
}

// fillFleet makes n machines, each read and a hundredth of them off against the record, and n servers of a host that is no agent's.
func fillFleet(t *testing.T, s *store.Store, n int) {
	t.Helper()
	big := strings.Repeat("a property of the size that inspections leave behind ", 40)
	for from := 0; from < n; from += 500 {
		readings := []metal.HeldReading{}
		err := s.Do(t.Context(), func(tx job.Tx) error {
			readings = readings[:0]
			for i := from; i < min(n, from+500); i++ {
				node := &metal.Node{ID: id("node", i), Name: fmt.Sprintf("node-%d", i), Driver: "fake-hardware", ProvisionState: metal.Active, PowerState: metal.PowerOn,
					BootNumber: 3, Extra: metal.Object{"inventory": big}, DriverInfo: metal.Object{"password": "secret"}}
				if err := s.InsertNode(tx, node); err != nil {
					return err
				}
				srv := &compute.Server{Record: record.Record{ID: id("server", i)}, Name: fmt.Sprintf("server-%d", i), State: compute.Active, Power: compute.PowerOn,
					Wanted: compute.PowerOn, Epoch: 5, Metadata: map[string]string{"words": big}}
				if err := s.Servers().Insert(tx, srv); err != nil {
					return err
				}
				found := metal.PowerOn
				if i%100 == 0 {
					found = metal.PowerOff
				}
				readings = append(readings, metal.HeldReading{NodeID: node.ID, ReadAt: time.Now().Add(time.Minute), Facts: metal.HeldFacts{Power: found}})
			}
			return nil
		})
		if err == nil {
			err = s.SaveReadings(t.Context(), readings)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// peakOf gives how far the heap rises above its size at the begin of a function.
func peakOf(do func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	start, peak := m.HeapAlloc, atomic.Uint64{}
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	do()
	close(stop)
	<-over
	return peak.Load() - min(start, peak.Load())
}
