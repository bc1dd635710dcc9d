package driver

import (
	"slices"
	"strings"

	"salvor/boot/media"
	"salvor/metal"
	"salvor/problem"
)

// AppendKey is where instance_info (first) and driver_info add kernel parameters, as in Ironic.
const AppendKey = metal.AppendKey

// maxParams leaves room for the agent token and what a boot loader adds.
const maxParams = media.MaxParams - 200

// configured are parameters that not even the configuration may set for every boot.
var configured = []string{"ipa-api-url", "ipa-agent-token", "ipa-inspection-callback-url", "bootif", "initrd", "--"}

// params joins the node's parameters, the caller's and the boot method's own. Of two parameters of one name agents and the
// kernel take the last, so what a record says never replaces the server's URL; the token follows when the plan is rendered.
func (f BootFiles) params(n *metal.Node, extra []string) ([]string, error) {
	text, own := f.Append, n.InstanceInfo[AppendKey]
	if own == nil {
		own = n.DriverInfo[AppendKey]
	}
	if own != nil {
		if err := metal.CheckAppendParams(own); err != nil {
			return nil, err
		}
		text = f.fill(own.(string))
	}
	if strings.ContainsAny(text, "\n\r\v\f\x00") {
		return nil, problem.Invalidf("[pxe]%s must be one line", AppendKey)
	}
	params := strings.Fields(text)
	for _, w := range params {
		if err := f.allow(w); err != nil {
			return nil, err
		}
	}
	for _, p := range extra {
		if strings.ContainsAny(p, " \t") || p == "" {
			return nil, problem.Invalidf("a kernel parameter is empty or holds a blank")
		}
	}
	if strings.ContainsAny(f.APIURL, " \t") {
		return nil, problem.Invalidf("the URL of the API holds a blank: correct [service_catalog]endpoint_override")
	}
	params = append(append(params, extra...), "ipa-api-url="+f.APIURL)
	all := strings.Join(params, " ")
	if len(all) > maxParams {
		return nil, problem.Invalidf("the kernel parameters take %d bytes; at most %d fit", len(all), maxParams)
	}
	return params, media.CheckParams(all)
}

// fill puts the configured parameters where a record asks for them.
func (f BootFiles) fill(text string) string {
	return strings.ReplaceAll(text, metal.DefaultParams, f.Append)
}

// allow refuses a reserved parameter, unless the configuration sets it: a record could make one of a placeholder and what stands beside it.
func (f BootFiles) allow(word string) error {
	if !metal.ReservedParam(word) {
		return nil
	}
	name, _, _ := strings.Cut(word, "=")
	plain := strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(name, "_", "-"), `"`, ""))
	if slices.Contains(configured, plain) || !slices.Contains(strings.Fields(f.Append), word) {
		return problem.Invalidf("%s cannot set the kernel parameter %s: only the boot method sets it", AppendKey, Sanitize(name))
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

// SecureBoot tells whether the firmware of a node starts only what is signed: as its BMC says, or where that does not tell, as the
// capability secure_boot of instance_info says. The capability false overrides the BMC, for firmware with an operator's own keys.
func SecureBoot(n *metal.Node) bool {
	asked := strings.ToLower(metal.Capability(n.InstanceInfo["capabilities"], "secure_boot"))
	if BootMode(n) == "bios" || asked == "false" || strings.EqualFold(metal.Capability(n.Properties["capabilities"], "secure_boot"), "false") {
		return false
	}
	if n.SecureBoot != nil {
		return *n.SecureBoot
	}
	return asked == "true"
}
