package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/access"
	"salvor/api/host"
	"salvor/api/nova"
	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/record"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// region is a control plane with VM hosts that joined by its own door and servers on them.
type region struct {
	tb       testing.TB
	s        *store.Store
	services *service.Services
	door     string // URL
	nova     string
	hosts    []*vmHost
}

// vmHost is a host with its certificate and its own connection.
type vmHost struct {
	id, boot string
	client   *http.Client
}

// newRegion opens a store on SQLite as production does, and serves it. Its leases are written as they are there.
func newRegion(tb testing.TB, hosts, servers int) *region {
	tb.Helper()
	d := storetest.OnSQLite(tb)
	log := slog.New(slog.DiscardHandler)
	s := must.Get(store.Open(tb.Context(), d.URL, d.Key, store.Options{Logger: log}))(tb)
	r := &region{tb: tb, s: s, services: service.New(s, s, service.Options{}, time.Now)}
	authority := must.Get(host.OpenAuthority(tb.Context(), s, time.Now))(tb)
	var turns sync.WaitGroup
	face := httptest.NewServer(nova.New(nova.Config{Services: r.services, Timeline: s, Auth: fixture.FixedAuth{Principal: access.Principal{User: "root", Role: access.Admin}}, Log: log}))
	r.nova = face.URL
	leases, stop := context.WithCancel(context.Background())
	turns.Go(func() { r.services.Leases.RunLeases(leases, func(err error) { tb.Errorf("leases: %v", err) }) })
	tb.Cleanup(func() {
		face.Close()
		stop()
		turns.Wait()
		_ = s.Close()
	})
	r.door = "https://" + fixture.ServeHosts(tb, authority, host.New(host.Config{Hosts: r.services.Hosts, Leases: r.services.Leases, Orders: s, Jobs: s, Authority: authority, Log: log}))
	r.join(hosts)
	r.fill(servers)
	return r
}

// atOnce runs n calls, sixteen at a time, and ends the test at the first that fails.
func (r *region) atOnce(n int, call func(i int) error) {
	r.tb.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	var failed atomic.Value
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := call(i); err != nil {
					failed.Store(fmt.Errorf("%d: %w", i, err))
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		r.tb.Fatal(err)
	}
}

func (r *region) join(n int) {
	r.tb.Helper()
	r.hosts = make([]*vmHost, n)
	r.atOnce(n, func(i int) error {
		_, token, err := r.services.JoinTokens.Issue(context.Background(), time.Hour, "", record.Asker{})
		if err == nil {
			r.hosts[i], err = joined(r.door, token, fmt.Sprint("vm", i))
		}
		return err
	})
}

// joined is a host that has its certificate.
func joined(door string, token secret.Value, name string) (*vmHost, error) {
	h := &vmHost{id: uuid.NewString(), boot: uuid.NewString()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	var given wire.Certificate
	if err := post(stranger, door+wire.JoinPath, wire.Join{Token: token.Reveal(), HostID: h.id, Name: name, CSR: string(text)}, &given); err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(given.Certificate))
	roots := x509.NewCertPool()
	if block == nil || !roots.AppendCertsFromPEM([]byte(given.CA)) {
		return nil, fmt.Errorf("no certificate: %+v", given)
	}
	own := tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
	h.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}, MaxIdleConnsPerHost: 1,
	}}
	return h, nil
}

func post(c *http.Client, url string, in, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	resp, err := c.Post(url, "application/json", strings.NewReader(string(b)))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if b, err = io.ReadAll(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d %.200s", url, resp.StatusCode, b)
	}
	return json.Unmarshal(b, out)
}

// renew renews the lease of a host; nothing changed on it.
func (r *region) renew(i int) error {
	h := r.hosts[i%len(r.hosts)]
	var out wire.Renewed
	return post(h.client, r.door+wire.RenewPath, wire.Renewal{BootID: h.boot, Name: fmt.Sprint("vm", i%len(r.hosts))}, &out)
}

// fill puts servers on the hosts, in turn.
func (r *region) fill(n int) {
	r.tb.Helper()
	for from := 0; from < n; from += 1000 {
		must.OK(r.tb, r.s.Do(r.tb.Context(), func(tx job.Tx) error {
			for i := from; i < min(n, from+1000); i++ {
				err := r.s.Servers().Insert(tx, &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: fmt.Sprint("web-", i), Project: "p", User: "u",
					State: compute.Active, Power: compute.PowerOn, Wanted: compute.PowerOn, HostID: r.hosts[i%len(r.hosts)].id, GuestName: fmt.Sprint("salvor-", i),
					Flavor: compute.Flavor{Ref: "small", Name: "small", VCPUs: 1, RAM: 512}, LaunchedAt: time.Now(), Metadata: map[string]string{"role": "web"},
					Disks: []compute.Disk{{Name: "vda", Store: "local", SizeGiB: 5}},
					NICs:  []compute.NIC{{ID: uuid.NewString(), Bridge: "br0", MAC: "52:54:00:12:34:56", Addresses: []string{"192.0.2.7"}}}})
				if err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// list reads a page of servers and gives its length, and the marker of the next.
func (r *region) list(path string) (n int, last string) {
	r.tb.Helper()
	resp := must.Get(http.Get(r.nova + "/compute/v2.1" + path))(r.tb)
	defer resp.Body.Close()
	var page struct{ Servers []struct{ ID string } }
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil || resp.StatusCode != http.StatusOK || len(page.Servers) == 0 {
		r.tb.Fatalf("%s answers %d with %d servers: %v", path, resp.StatusCode, len(page.Servers), err)
	}
	return len(page.Servers), page.Servers[len(page.Servers)-1].ID
}

// TestRegion: hosts that renew at once are all up, and a walk over all pages sees every server once.
func TestRegion(t *testing.T) {
	const hosts, servers = 40, 1100
	r := newRegion(t, hosts, servers)
	r.atOnce(2*hosts, r.renew)
	lives := must.Get(r.services.Liveness.All(t.Context()))(t)
	up := 0
	for _, life := range lives {
		if life.Up && life.Servers > 0 {
			up++
		}
	}
	if up != hosts {
		t.Errorf("%d of %d hosts are up", up, hosts)
	}
	n, last := r.list("/servers/detail?all_tenants=1")
	rest, _ := r.list("/servers/detail?all_tenants=1&marker=" + last)
	if n != 1000 || n+rest != servers {
		t.Errorf("pages of %d and %d servers of %d", n, rest, servers)
	}
}

// BenchmarkRegion is the figure: 2,000 hosts with 50,000 servers; the client's work is in it.
func BenchmarkRegion(b *testing.B) {
	r := newRegion(b, 2000, 50_000)
	r.atOnce(len(r.hosts), r.renew) // connections and first words
	b.Run("renewals", func(b *testing.B) {
		r.tb = b
		cpu := used()
		r.atOnce(b.N, r.renew)
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "renewals/s")
		b.ReportMetric(float64((used()-cpu).Microseconds())/float64(b.N), "cpu-us/op")
	})
	for name, path := range map[string]string{"list 1000": "/servers/detail?all_tenants=1&limit=1000", "names 1000": "/servers?all_tenants=1&limit=1000"} {
		b.Run(name, func(b *testing.B) {
			r.tb = b
			cpu := used()
			for range b.N {
				if n, _ := r.list(path); n != 1000 {
					b.Fatal(n)
				}
			}
			b.ReportMetric(float64((used()-cpu).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// used is the time that processors worked for this process.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
