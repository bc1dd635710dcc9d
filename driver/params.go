package driver

import (
	"strings"

	"salvor/boot/media"
	"salvor/metal"
	"salvor/problem"
)

// AppendKey is where instance_info (first) and driver_info add kernel parameters, as in Ironic.
const AppendKey = "kernel_append_params"

// maxParams leaves room for the agent token and what a boot loader adds.
const maxParams = media.MaxParams - 200

// defaultParams stands for the configured ones in a node's own.
const defaultParams = "%default%"

// ours are the parameters that only a road may set: who could choose them could
// call the agent to another server, token and all.
var ours = map[string]bool{"ipa-api-url": true, "ipa-agent-token": true, "bootif": true, "initrd": true, "--": true}

// params joins the road's own parameters, the caller's and the node's.
func (f BootFiles) params(n *metal.Node, extra []string) ([]string, error) {
	text, own := f.Append, n.InstanceInfo[AppendKey]
	if own == nil {
		own = n.DriverInfo[AppendKey]
	}
	if own != nil {
		s, ok := own.(string)
		if !ok {
			return nil, problem.Invalidf("%s must be a string", AppendKey)
		}
		text = strings.ReplaceAll(s, defaultParams, f.Append)
	}
	if err := checkNode(text); err != nil {
		return nil, err
	}
	out := append([]string{"ipa-api-url=" + f.APIURL}, extra...)
	for _, p := range out {
		if strings.ContainsAny(p, " \t") || p == "" {
			return nil, problem.Invalidf("a kernel parameter is empty or holds a blank")
		}
	}
	out = append(out, strings.Fields(text)...)
	all := strings.Join(out, " ")
	if len(all) > maxParams {
		return nil, problem.Invalidf("the kernel parameters take %d bytes; at most %d fit", len(all), maxParams)
	}
	return out, media.CheckParams(all)
}

// checkNode refuses kernel parameters of a record that are more than one line, or that
// only a road may set.
func checkNode(text string) error {
	if strings.ContainsAny(text, "\n\r\v\f\x00") {
		return problem.Invalidf("%s must be one line", AppendKey)
	}
	for _, p := range strings.Fields(text) {
		name, _, _ := strings.Cut(p, "=")
		if ours[strings.ToLower(name)] {
			return problem.Invalidf("%s may not set %s", AppendKey, name)
		}
	}
	return nil
}

// BootMode is the firmware mode that a node's record asks for: "uefi", "bios" or
// empty where it says nothing. Capabilities are "key:value,key:value" or an object, as in Ironic.
func BootMode(n *metal.Node) string {
	for _, v := range []any{n.InstanceInfo["capabilities"], n.Properties["capabilities"]} {
		if mode := metal.Capability(v, "boot_mode"); mode == "uefi" || mode == "bios" {
			return mode
		}
	}
	if n.BootMode == "uefi" || n.BootMode == "bios" {
		return n.BootMode
	}
	return ""
}
