package loose_test

import (
	"encoding/json"
	"testing"

	"salvor/wire/loose"
)

// aSystem is a ComputerSystem as a BMC in order shows it.
const aSystem = `{"@odata.type":"#ComputerSystem.v1_13_0.ComputerSystem","@odata.id":"/redfish/v1/Systems/1","Id":"1","Name":"System","Manufacturer":"Acme","Model":"One","SerialNumber":"S1",
"UUID":"4c4c4544-0042-3510-8052-b4c04f4e3732","PowerState":"On","BiosVersion":"2.1","Status":{"Health":"OK","HealthRollup":"OK","State":"Enabled"},
"Boot":{"BootSourceOverrideTarget":"None","BootSourceOverrideEnabled":"Disabled","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget@Redfish.AllowableValues":["None","Pxe","Cd","Hdd","BiosSetup","UefiHttp"]},
"ProcessorSummary":{"Count":2,"Model":"Acme 4T"},"MemorySummary":{"TotalSystemMemoryGiB":256},
"Links":{"ManagedBy":[{"@odata.id":"/redfish/v1/Managers/bmc"}],"Chassis":[{"@odata.id":"/redfish/v1/Chassis/1"}]},"Storage":{"@odata.id":"/redfish/v1/Systems/1/Storage"},
"Actions":{"#ComputerSystem.Reset":{"target":"/redfish/v1/Systems/1/Actions/ComputerSystem.Reset","ResetType@Redfish.AllowableValues":["On","ForceOff","GracefulShutdown","ForceRestart","Nmi"]}}}`

// aSystemDoc is what a driver reads of a ComputerSystem.
type aSystemDoc struct {
	PowerState, Manufacturer, Model string
	Status                          struct{ Health, HealthRollup string }
	Boot                            struct {
		Target  string   `json:"BootSourceOverrideTarget"`
		Enabled string   `json:"BootSourceOverrideEnabled"`
		Mode    string   `json:"BootSourceOverrideMode"`
		Allowed []string `json:"BootSourceOverrideTarget@Redfish.AllowableValues"`
	}
	ProcessorSummary struct{ Count int }
	Storage          link
	Links            struct{ ManagedBy, Chassis []link }
	Actions          struct {
		Reset struct {
			Target  string   `json:"target"`
			Allowed []string `json:"ResetType@Redfish.AllowableValues"`
		} `json:"#ComputerSystem.Reset"`
	}
}

// BenchmarkDecode decodes a document without an oddity, by Decode and by encoding/json.
func BenchmarkDecode(b *testing.B) {
	text := []byte(aSystem)
	for name, decode := range map[string]func(any) error{
		"loose":         func(v any) error { _, err := loose.Decode(text, v); return err },
		"encoding-json": func(v any) error { return json.Unmarshal(text, v) },
	} {
		for kind, fresh := range map[string]func() any{
			"struct": func() any { return new(aSystemDoc) },
			"any":    func() any { return new(any) },
		} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					if err := decode(fresh()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
