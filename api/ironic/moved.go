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
func (c *call) loginGiven(before, after metal.Object, ops []patchOp) error {
	if c.seesAll("node:create") {
		return nil
	}
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for key := range keys {
		if !placesController(key) || reflect.DeepEqual(after[key], before[key]) {
			continue
		}
		kind, _, _ := strings.Cut(key, "_")
		for name, kept := range after {
			if kept != nil && strings.HasPrefix(name, kind+"_") && secret.IsKey(name) && reflect.DeepEqual(kept, before[name]) && !given(name, ops) {
				return problem.Invalidf("driver_info/%s changes, so driver_info/%s must be given anew: it is sent to no other host.", shorten(key), shorten(name))
			}
		}
	}
	return nil
}

// placesController tells the keys of driver_info that say where the controller is and whether its certificate is looked at.
func placesController(key string) bool {
	return strings.HasSuffix(key, "_address") || strings.HasSuffix(key, "_port") || strings.HasSuffix(key, "_verify_ca")
}

// given tells whether a patch itself says what the secret is.
func given(name string, ops []patchOp) bool {
	for _, o := range ops {
		v := o.Value
		if o.Path == "/driver_info" {
			whole, _ := v.(map[string]any)
			v = whole[name]
		} else if o.Path != "/driver_info/"+name {
			continue
		}
		if v != nil && v != secret.Mask {
			return true
		}
	}
	return false
}
