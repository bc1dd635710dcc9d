package host

import (
	"testing"

	"salvor/api"
	"salvor/problem"
	wire "salvor/wire/host"
)

// FuzzBodies: whatever a host sends is taken or refused as its fault.
func FuzzBodies(f *testing.F) {
	f.Add([]byte(`{"boot_id":"b","name":"n","inventory":{"vcpus":1},"guests":[{"id":"x","power":"on"}],"did":[{"server_id":"s","text":"t"}]}`))
	f.Add([]byte(`{"boot_id":"b","epoch":1,"result":{"error_kind":"conflict","error":"x","guest":{"id":"x"}}}`))
	f.Add([]byte(`{"csr":"-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----"}`))
	f.Add([]byte(`{"result":null,"guests":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		refused := func(err error) {
			if status := api.Status(err); status < 400 || status >= 500 {
				t.Fatalf("%d: %v", status, err)
			}
		}
		var renewal wire.Renewal
		if err := unmarshalObject(body, &renewal); err != nil {
			refused(err)
		} else if got, err := renewalOf(renewal); err != nil {
			refused(err)
		} else if len(got.Guests) > maxGuests {
			t.Fatal("too many guests")
		}
		var report wire.Report
		if unmarshalObject(body, &report) == nil {
			if r, err := resultOf(report); err != nil {
				refused(err)
			} else if r.Error != "" && problem.ParseKind(r.ErrorKind).String() != r.ErrorKind {
				t.Fatalf("kind %q", r.ErrorKind)
			}
		}
		var join wire.Join
		if unmarshalObject(body, &join) == nil {
			if _, err := parseSigningRequest(join.CSR); err != nil {
				refused(err)
			}
		}
	})
}
