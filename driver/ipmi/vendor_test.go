package ipmi

import (
	"bytes"
	"strings"
	"testing"

	"salvor/metal"
	"salvor/problem"
)

func TestVendorCommands(t *testing.T) {
	for _, c := range []struct {
		method string
		args   metal.Object
		want   []byte
	}{
		{"send_raw", metal.Object{"raw_bytes": "0x00 0x01"}, []byte{0, 1}},
		{"send_raw", metal.Object{"raw_bytes": " 6 0x38\t255 "}, []byte{6, 0x38, 255}},
		{"bmc_reset", nil, []byte{6, 3}},
		{"bmc_reset", metal.Object{"warm": "False"}, []byte{6, 2}},
		{"bmc_reset", metal.Object{"warm": true}, []byte{6, 3}},
		{"bmc_reset", metal.Object{"warm": "maybe"}, nil},
		{"send_raw", nil, nil},
		{"send_raw", metal.Object{"raw_bytes": "0x00"}, nil},
		{"send_raw", metal.Object{"raw_bytes": "0x00 0x100"}, nil},
		{"send_raw", metal.Object{"raw_bytes": "0x07 0x01"}, nil},
		{"send_raw", metal.Object{"raw_bytes": "0x00 0x01; reboot"}, nil},
		{"send_raw", metal.Object{"raw_bytes": strings.Repeat("0 ", maxRaw+1)}, nil},
		{"send_raw", metal.Object{"raw_bytes": 7.0}, nil},
		{"bogus", nil, nil},
	} {
		netFn, command, data, err := decodeVendorCall(metal.VendorCall{Method: c.method, Args: c.args})
		if c.want == nil {
			if !problem.Is(err, problem.Invalid) {
				t.Errorf("%s %v: %v, want invalid", c.method, c.args, err)
			}
			continue
		}
		if got := append([]byte{netFn, command}, data...); err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s %v: % x, %v", c.method, c.args, got, err)
		}
	}
}
