package redfish

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// FuzzAnswer has a BMC answer every GET with the same bytes and every change with
// success: whatever it says, each operation ends in time with a kind, and nothing panics.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `[]`, `{}`, `{"PowerState":"On"}`, `{"PowerState":7}`, `{"Systems":{"@odata.id":"/redfish/v1/"},"Members":[{"@odata.id":"/x"}],"PowerState":"Off","Boot":null}`,
		`{"Systems":{"@odata.id":"@evil/"},"Links":null,"Actions":[]}`,
		`{"Systems":{"@odata.id":"/s"},"Members":[{"@odata.id":"/a"}],"Actions":{"#ComputerSystem.Reset":{"target":"http://evil/"}},"PowerState":"Off"}`,
		`{"Systems":{"@odata.id":"/s"},"Members":[{"@odata.id":"/a"}],"VirtualMedia":{"@odata.id":"/v"},"MediaTypes":["CD"],"Inserted":true,"Image":"http://x/boot/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/boot.iso","Links":{"ManagedBy":[{"@odata.id":"/m"}]}}`,
		`{"error":{"message":"` + password + `"}}`, "{\"PowerState\":\"\xff\x00\"}", `{"ProcessorSummary":{"Count":1e308},"MemorySummary":{"TotalSystemMemoryGiB":-1}}`,
		strings.Repeat(`{"a":`, 2000),
		`{"Bios":{"@odata.id":"/b"},"Attributes":{"ProcTurbo":[1],"x":{}},"AttributeRegistry":"../..","Storage":{"@odata.id":"/s"},"Volumes":{"@odata.id":"/v"},"Members":[{"@odata.id":"/a"}],"Links":{"Chassis":[{"@odata.id":"/c"}]},"Id":"1","IndicatorLED":"Odd","EventService":{"@odata.id":"/e"},"Subscriptions":{"@odata.id":"/u"}}`,
		`{"LogServices":{"@odata.id":"/l"},"Id":"SEL","Entries":{"@odata.id":"/e?$skip=1"},"Members":[{"@odata.id":"/a","Id":"1","Message":7,"Oem":{"x":{"RawEventData":[]}}},7],"Members@odata.count":1e300,"Members@odata.nextLink":"/e?$skip=2","Links":{"Chassis":[{"@odata.id":"/c"}]},"Thermal":{"@odata.id":"/t"},"Fans":[{"Status":{"Health":"Critical","Conditions":[1,{}]}},null],"Status":{"Health":[]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write(body)
		}))
		defer server.Close()
		n := node(server.URL)
		n.DriverInfo[SystemKey] = "/redfish/v1/Systems/1"
		n.Plan = &metal.BootPlan{URL: "http://192.0.2.1", Path: "p"}
		d := &Driver{}
		m := &Media{Driver: d, Files: files}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		var errs []error
		keep := func(err error) { errs = append(errs, err) }
		_, err := d.PowerState(ctx, n)
		keep(err)
		_, err = d.BootDevice(ctx, n)
		keep(err)
		_, err = d.Inspect(ctx, n)
		keep(err)
		keep(d.SetPower(ctx, n, metal.PowerOn))
		keep(d.SetBootDevice(ctx, n, rescue.Boot{Device: "pxe"}))
		keep(m.CleanUpRamdisk(ctx, n))
		_, err = d.ReadEventLog(ctx, n, 10)
		keep(err)
		_, err = d.ReadHealth(ctx, n)
		keep(err)
		_, err = BIOS{d}.BIOSSettings(ctx, n)
		keep(err)
		_, err = RAID{d}.RAIDConfig(ctx, n)
		keep(err)
		_, err = Firmware{d}.Components(ctx, n)
		keep(err)
		_, err = d.Indicators(ctx, n)
		keep(err)
		_, err = d.Media(ctx, n)
		keep(err)
		_, err = BIOS{d}.RunStep(ctx, n, wantTurbo("x"))
		keep(err)
		_, err = Vendor{d}.Call(ctx, n, metal.VendorCall{Method: "create_subscription", Args: metal.Object{"Destination": "http://x/y"}})
		keep(err)
		for _, err := range errs {
			if err == nil {
				continue
			}
			if problem.Is(err, problem.Internal) {
				t.Errorf("an error without a kind: %v", err)
			}
			if strings.Contains(err.Error(), password) || strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("an error that tells or breaks: %q", err)
			}
		}
	})
}

// FuzzRecord: a record is Invalid, or names a host and nothing else.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{"https://bmc", "bmc:8443", "http://[::1]:8000/redfish/v1/", "https://a@b", "//x", "https://h/%2e%2e", "\x00", "/redfish/v1/Systems/1"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, address, system string) {
		n := node(address)
		n.DriverInfo[SystemKey] = system
		s, err := parseDriverInfo(n)
		if err != nil {
			if !problem.Is(err, problem.Invalid) {
				t.Error(err)
			}
			return
		}
		if s.base.Host == "" || s.base.User != nil || s.base.Path != "" || (s.system != "" && !isPath(s.system)) {
			t.Errorf("%q, %q: %+v", address, system, s)
		}
	})
}
