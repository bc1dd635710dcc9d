package ipmi

import (
	"context"
	"strconv"
	"strings"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// Vendor is the vendor interface: commands as bytes, and a reset of the BMC itself.
type Vendor struct{ Driver *Driver }

var _ driver.Vendor = Vendor{}

// Methods describes what can be called.
var Methods = map[string]metal.VendorMethod{
	"send_raw":  {HTTPMethods: []string{"POST"}, Async: true, RequireExclusiveLock: true, Description: "Sends raw bytes to the BMC. Required argument: 'raw_bytes' - a string of bytes, such as '0x00 0x01': network function, command, data."},
	"bmc_reset": {HTTPMethods: []string{"POST"}, Async: true, RequireExclusiveLock: true, Description: "Resets the BMC. Argument: 'warm' (boolean) - a warm (true, the default) or a cold (false) reset."},
}

// Commands of the BMC itself (IPMI 2.0, chapter 20).
const (
	commandColdReset = 0x02
	commandWarmReset = 0x03
)

// maxRaw bounds the bytes of a raw command.
const maxRaw = 200

// Call runs a method.
func (v Vendor) Call(ctx context.Context, n *metal.Node, c metal.VendorCall) (any, error) {
	netFn, command, data, err := decodeVendorCall(c)
	if err != nil {
		return nil, problem.Invalidf("vendor method %s of node %s: ipmi: %w", driver.Sanitize(c.Method), n.ID, err)
	}
	return nil, v.Driver.with(ctx, n, "vendor method "+c.Method, func(ctx context.Context, ch commandSender) error {
		_, err := ch.send(ctx, netFn, command, data...)
		return err
	})
}

// decodeVendorCall makes a command of a method and its arguments.
func decodeVendorCall(c metal.VendorCall) (netFn, command byte, data []byte, err error) {
	switch c.Method {
	case "bmc_reset":
		warm, err := strconv.ParseBool(strings.ToLower(metal.Text(c.Args["warm"])))
		if err != nil && c.Args["warm"] != nil {
			return 0, 0, nil, problem.Invalidf("warm must be true or false")
		}
		if warm || c.Args["warm"] == nil {
			return netFnApp, commandWarmReset, nil, nil
		}
		return netFnApp, commandColdReset, nil, nil
	case "send_raw":
		text, _ := c.Args["raw_bytes"].(string)
		bytes, err := rawBytes(text)
		if err != nil {
			return 0, 0, nil, err
		}
		return bytes[0], bytes[1], bytes[2:], nil
	}
	return 0, 0, nil, problem.Invalidf("there is no such method")
}

func rawBytes(text string) ([]byte, error) {
	fields := strings.Fields(text)
	if len(fields) < 2 || len(fields) > maxRaw {
		return nil, problem.Invalidf("raw_bytes must be 2 to %d bytes, such as '0x00 0x01'", maxRaw)
	}
	var out []byte
	for _, word := range fields {
		b, err := strconv.ParseUint(word, 0, 8)
		if err != nil {
			return nil, problem.Invalidf("raw_bytes holds %s, which is no byte", driver.Sanitize(word))
		}
		out = append(out, byte(b))
	}
	if out[0]&1 == 1 || out[0] > 0x3e {
		return nil, problem.Invalidf("raw_bytes begins with %#x, which is no network function of a request", out[0])
	}
	return out, nil
}
