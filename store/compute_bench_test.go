package store_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// A region as the issue asks for it.
const (
	benchServers = 50_000
	benchHosts   = 2_000
)

// BenchmarkServers measures lists, leases, orders and addresses in a store with all hosts and servers of a region.
func BenchmarkServers(b *testing.B) {
	for _, engine := range []struct {
		name  string
		fresh func(testing.TB) storetest.Database
	}{{"sqlite", storetest.CopiedSQLite}, {"postgres", storetest.CopiedPostgres}} {
		b.Run(engine.name, func(b *testing.B) {
			d := engine.fresh(b)
			s := must.Get(store.Open(b.Context(), d.URL, d.Key, store.Options{}))(b)
			defer s.Close()
			region(b, s)
			for _, c := range []struct {
				name string
				run  func(*testing.B, *store.Store)
			}{
				{"list 1000", listServers(compute.ServerFilter{})}, {"list 1000 of a project", listServers(compute.ServerFilter{Project: "p1"})},
				{"marks 1000 of a project", markServers}, {"get", getServer}, {"rescue image use", rescueUse}, {"host use", hostUse},
				{"leases of all hosts", saveLeases},
				{"order there and back", orders}, {"address", addresses},
			} {
				b.Run(c.name, func(b *testing.B) { c.run(b, s) })
			}
		})
	}
}

func benchServer(i int) *compute.Server {
	v := &compute.Server{Record: record.Record{ID: nodeID(i)}, Name: fmt.Sprint("web-", i), Project: fmt.Sprint("p", i%10), User: "u", State: compute.Active,
		Power: compute.PowerOn, HostID: fmt.Sprint("host", i%benchHosts), GuestName: fmt.Sprintf("salvor-%x", i), Zone: "nova",
		Metadata: map[string]string{"role": "web"}, ImageID: nodeID(1), ImageProperties: map[string]string{"os_distro": "debian", "os_type": "linux"},
		OS: "debian", OSFamily: "linux", KeyName: "key", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5ufsvc4vW0h4SSwcXkGmSqIBr2bLUUsZdQxBZ0XbXm",
		Flavor: compute.Flavor{Record: record.Record{ID: nodeID(2)}, Ref: "m1.small", Name: "m1.small", VCPUs: 2, RAM: 2048, Disk: 20},
		NICs:   []compute.NIC{{ID: nodeID(i), NetworkID: nodeID(3), Bridge: "br0", MAC: "52:54:00:12:34:56", Addresses: []string{"192.0.2.17"}}},
		Disks:  []compute.Disk{{Name: "vda", Store: "local", SizeGiB: 20, ImageID: nodeID(1)}}, LaunchedAt: time.Now()}
	if i%100 == 0 {
		v.Rescue = &rescue.Session{State: rescue.Ready, StartedAt: time.Now(), Source: &rescue.Source{ImageID: 1 + int64(i)%7, Kind: rescue.ISO},
			Credential: rescue.Credential{Hash: secret.New("$5$rounds=5000$x$y")}}
	}
	if i%10 == 0 {
		v.UserData = secret.New("I2Nsb3VkLWNvbmZpZwo=")
	}
	return v
}

func region(b *testing.B, s *store.Store) {
	b.Helper()
	insert := func(n int, one func(tx job.Tx, i int) error) {
		for from := 0; from < n; from += 1000 {
			must.OK(b, s.Do(b.Context(), func(tx job.Tx) error {
				for i := from; i < min(n, from+1000); i++ {
					if err := one(tx, i); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	insert(benchHosts, func(tx job.Tx, i int) error {
		return s.Hosts().Insert(tx, &compute.Host{Record: record.Record{ID: fmt.Sprint("host", i)}, Kind: compute.AgentHost, Name: fmt.Sprint("vm", i)})
	})
	insert(benchServers, func(tx job.Tx, i int) error { return s.Servers().Insert(tx, benchServer(i)) })
	insert(1, func(tx job.Tx, i int) error {
		return s.Networks().Insert(tx, &compute.Network{Record: record.Record{ID: "net"}, CIDR: "10.0.0.0/8"})
	})
}

func listServers(f compute.ServerFilter) func(*testing.B, *store.Store) {
	return func(b *testing.B, s *store.Store) {
		for range b.N {
			got, err := s.Servers().List(b.Context(), nil, f, record.Page{Limit: 1000, Marker: nodeID(20_001)})
			if err != nil || len(got) != 1000 {
				b.Fatal(len(got), err)
			}
		}
	}
}

func markServers(b *testing.B, s *store.Store) {
	for range b.N {
		got, err := s.Servers().Marks(b.Context(), compute.ServerFilter{Project: "p1"}, record.Page{Limit: 1000})
		if err != nil || len(got) != 1000 {
			b.Fatal(len(got), err)
		}
	}
}

func getServer(b *testing.B, s *store.Store) {
	for i := range b.N {
		must.Get(s.Servers().Get(b.Context(), nil, nodeID(i%benchServers)))(b)
	}
}

func rescueUse(b *testing.B, s *store.Store) {
	for range b.N {
		if got, err := s.RescueImageUse(b.Context(), nil); err != nil || len(got) != 7 {
			b.Fatal(got, err)
		}
	}
}

func hostUse(b *testing.B, s *store.Store) {
	for range b.N {
		if got, err := s.HostUse(b.Context()); err != nil || len(got) != benchHosts {
			b.Fatal(len(got), err)
		}
	}
}

func saveLeases(b *testing.B, s *store.Store) {
	leases := make([]compute.Lease, benchHosts)
	for n := range b.N {
		for i := range leases {
			leases[i] = compute.Lease{HostID: fmt.Sprint("host", i), BootID: "boot", RenewedAt: time.Now(), Renewals: int64(n)}
		}
		must.OK(b, s.SaveLeases(b.Context(), leases))
	}
	b.ReportMetric(float64(b.N*benchHosts)/b.Elapsed().Seconds(), "renewals/s")
}

// orders inserts an order, hands it to its host and takes the result, eight hosts at once.
func orders(b *testing.B, s *store.Store) {
	var next atomic.Int64
	done := make(chan error, 8)
	for range 8 {
		go func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					done <- nil
					return
				}
				if err := oneOrder(b, s, n); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	for range 8 {
		must.OK(b, <-done)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}

func oneOrder(b *testing.B, s *store.Store, n int64) error {
	host := fmt.Sprint("host", n%benchHosts)
	o := &compute.Order{HostID: host, BootID: "boot", ServerID: nodeID(int(n)), Epoch: 1, Verb: compute.SetPower, Args: []byte(`{"power":"on"}`),
		Secret: secret.New("{}"), JobID: fmt.Sprint(b.Name(), b.N, "-", n), Action: "power"}
	if err := s.Do(b.Context(), func(tx job.Tx) error { _, err := s.InsertOrder(tx, o); return err }); err != nil {
		return err
	}
	if _, err := s.OpenOrders(b.Context(), host); err != nil {
		return err
	}
	return s.Do(b.Context(), func(tx job.Tx) error {
		_, err := s.FinishOrder(tx, o.ID, host, "boot", 1, compute.Result{})
		return err
	})
}

func addresses(b *testing.B, s *store.Store) {
	net := &compute.Network{Record: record.Record{ID: "net"}, CIDR: "10.0.0.0/8"}
	for i := range b.N {
		must.OK(b, s.Do(b.Context(), func(tx job.Tx) error {
			_, err := s.AllocateAddress(tx, net, compute.Address{ServerID: fmt.Sprint(i)}, "")
			return err
		}))
	}
}
