package redfish

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
)

// BenchmarkPower1000 reads the power of 1,000 machines once, as power sync does, eight at a time. Driver and BMCs share the machine.
func BenchmarkPower1000(b *testing.B) {
	bmc := drivertest.NewBMC("admin", password)
	one := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, drivertest.SystemPath, nil)
	r.SetBasicAuth("admin", password)
	bmc.ServeHTTP(one, r)
	page := one.Body.Bytes()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
	defer server.Close()
	var nodes []*metal.Node
	for i := range 1000 {
		n := node(server.URL)
		n.ID = fmt.Sprintf("node-%d", i)
		n.DriverInfo[SystemKey] = drivertest.SystemPath
		nodes = append(nodes, n)
	}
	d := &Driver{Logins: &driver.Logins{}}
	b.ReportAllocs()
	for b.Loop() {
		var wg sync.WaitGroup
		for at := range 8 {
			wg.Go(func() {
				for i := at; i < len(nodes); i += 8 {
					if power, _, err := d.ReadPowerAndHealth(b.Context(), nodes[i]); err != nil || power != metal.PowerOff {
						b.Errorf("%s: %q, %v", nodes[i].ID, power, err)
					}
				}
			})
		}
		wg.Wait()
	}
}
