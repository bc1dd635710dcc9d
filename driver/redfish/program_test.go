package redfish

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/rescue"
	"salvor/test/must"
)

// TestAgainstProgram runs the operations of a rescue against a Redfish service that somebody else wrote, at SALVOR_REDFISH, such as
// http://127.0.0.1:8000 of sushy-tools; SALVOR_REDFISH_USER and SALVOR_REDFISH_PASSWORD log in.
func TestAgainstProgram(t *testing.T) {
	address := os.Getenv("SALVOR_REDFISH")
	if address == "" {
		t.Skip("SALVOR_REDFISH names no service")
	}
	image := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", 1<<20)))
	}))
	defer image.Close()
	n := node(address)
	n.DriverInfo[UsernameKey], n.DriverInfo[PasswordKey] = os.Getenv("SALVOR_REDFISH_USER"), os.Getenv("SALVOR_REDFISH_PASSWORD")
	d := &Driver{Locks: &driver.AddressLocks{}}
	m := &Media{Driver: d, Files: driver.BootFiles{URL: image.URL, APIURL: image.URL}}
	ctx, notes := driver.WithNotes(t.Context())
	step := func(name string, do func() error) {
		began := time.Now()
		must.OK(t, do())
		t.Logf("%s: %s", name, time.Since(began).Round(time.Millisecond))
	}
	step("describe", func() error {
		b, err := d.DescribeBMC(ctx, n)
		metal.KeepBMC(n, b)
		t.Logf("%+v", b)
		return err
	})
	step("power off", func() error { return d.SetPower(ctx, n, metal.PowerOff) })
	n.Plan = must.Get(m.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r"}))(t)
	step("prepare ramdisk", func() error { return m.PrepareRamdisk(ctx, n) })
	step("power on", func() error { return d.SetPower(ctx, n, metal.PowerOn) })
	step("clean up ramdisk", func() error { return m.CleanUpRamdisk(ctx, n) })
	step("prepare instance", func() error { return m.PrepareInstance(ctx, n, rescue.Boot{Device: "disk", Persistent: true}) })
	step("power off", func() error { return d.SetPower(ctx, n, metal.PowerOff) })
	for _, text := range notes.Texts() {
		t.Logf("note: %s", text)
	}
}
