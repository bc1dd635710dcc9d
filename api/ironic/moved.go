package ironic

import (
	"maps"
	"reflect"
	"strings"

	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// loginGiven keeps a controller's password from going to another host: who changes where a node's controller is, or what
// proves that it is the one, gives its secrets anew. Those who may create any node know what they do, as with Ironic.
func (c *ironicCall) loginGiven(before, after metal.Object, ops []patchOp) error {
	if c.seesAll("node:create") {
		return nil
	}
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for key := range keys {
		if !placesController(key) || reflect.DeepEqual(after[key], before[key]) {
			continue
		}
		for name, kept := range after {
			if kept != nil && keyFamily(name) == keyFamily(key) && secret.IsKey(name) && reflect.DeepEqual(kept, before[name]) && !patchSetsSecret("driver_info", name, ops) {
				return problem.Invalidf("driver_info/%s changes, so driver_info/%s must be given anew: it is sent to no other host.", truncateInput(key), truncateInput(name))
			}
		}
	}
	return nil
}

// keyFamily tells which keys of driver_info belong to one controller: those with the same beginning. The hardware type ilo has its own,
// and takes those of redfish too.
func keyFamily(key string) string {
	kind, _, _ := strings.Cut(key, "_")
	if kind == "ilo" || kind == "client" {
		return "redfish"
	}
	return kind
}

// placesController tells the keys of driver_info that say where the controller is, and how TLS protects what is sent there.
func placesController(key string) bool {
	return strings.HasSuffix(key, "_address") || strings.HasSuffix(key, "_port") || strings.HasSuffix(key, "_verify_ca") ||
		strings.Contains(key, "_tls_") || strings.HasSuffix(key, "_quirks")
}

// targetPlaces are the properties that say where a volume target is.
var targetPlaces = []string{"target_portal", "target_portals", "target_iqn", "target_iqns"}

// targetMoved keeps the credentials of a volume target from going elsewhere: a patch that changes where it is gives them anew.
func targetMoved(before, after *metal.Target, ops []patchOp) error {
	for _, key := range targetPlaces {
		// What is only taken away leads nowhere else; what is put there later is a change again.
		if after.Properties[key] == nil || reflect.DeepEqual(after.Properties[key], before.Properties[key]) {
			continue
		}
		for name, kept := range after.Properties {
			if kept != nil && metal.VolumeSecret(name) && reflect.DeepEqual(kept, before.Properties[name]) && !patchSetsSecret("properties", name, ops) {
				return problem.Invalidf("properties/%s changes, so properties/%s must be given anew: it is sent to no other target.", key, truncateInput(name))
			}
		}
	}
	return nil
}

// patchSetsSecret tells whether a patch itself says what the secret in an attribute is.
func patchSetsSecret(attr, name string, ops []patchOp) bool {
	for _, o := range ops {
		v := o.Value
		if o.Path == "/"+attr {
			whole, _ := v.(map[string]any)
			v = whole[name]
		} else if o.Path != "/"+attr+"/"+name {
			continue
		}
		if v != nil && v != secret.Mask {
			return true
		}
	}
	return false
}
