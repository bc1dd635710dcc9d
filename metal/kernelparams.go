package metal

import (
	"reflect"
	"strings"

	"salvor/problem"
)

const (
	// AppendKey is where instance_info (first) and driver_info add kernel parameters, as in Ironic.
	AppendKey = "kernel_append_params"
	// DefaultParams stands for the configured kernel parameters in a node's own.
	DefaultParams = "%default%"
)

// ReservedParam tells whether only a boot method may set a kernel parameter: a record that sets it could send the ramdisk,
// with its agent token, to another server. The kernel takes _ and - for the same character, and so does an agent.
func ReservedParam(word string) bool {
	name, _, _ := strings.Cut(strings.ReplaceAll(word, `"`, ""), "=")
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	switch name {
	case "bootif", "initrd", "--":
		return true
	}
	return strings.HasPrefix(name, "ipa-") || strings.HasPrefix(name, "salvor")
}

// CheckAppendParams refuses kernel parameters of a record that are no text of one line, or that only a boot method may set.
func CheckAppendParams(v any) error {
	text, ok := v.(string)
	if !ok {
		return problem.Invalidf("%s must be a string", AppendKey)
	}
	if strings.ContainsAny(text, "\n\r\v\f\x00") {
		return problem.Invalidf("%s must be one line", AppendKey)
	}
	// The configured parameters may be empty, or end in a blank: both readings of the placeholder are looked at.
	for _, filler := range []string{"", " "} {
		for _, word := range strings.Fields(strings.ReplaceAll(text, DefaultParams, filler)) {
			if ReservedParam(word) {
				name, _, _ := strings.Cut(word, "=")
				return problem.Invalidf("%s cannot set the kernel parameter %.60q: names that begin with ipa- or salvor, BOOTIF, initrd and -- are set by the boot method alone; remove it", AppendKey, name)
			}
		}
	}
	return nil
}

// checkAppendParams looks at the kernel parameters of a record that are new: a stored record from an earlier release can still be edited.
func checkAppendParams(n, old *Node) error {
	for _, o := range []struct {
		field    string
		now, was Object
	}{{"instance_info", n.InstanceInfo, old.InstanceInfo}, {"driver_info", n.DriverInfo, old.DriverInfo}} {
		v, was := o.now[AppendKey], o.was[AppendKey]
		if v == nil || reflect.DeepEqual(v, was) {
			continue
		}
		if err := CheckAppendParams(v); err != nil {
			return problem.Invalidf("%s/%w", o.field, err)
		}
	}
	return nil
}
