package metal

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestChangedFields: each field of a node has a name in the event of a change, or stands among those that salvor sets.
func TestChangedFields(t *testing.T) {
	kind := reflect.TypeOf(Node{})
	for i := range kind.NumField() {
		field := kind.Field(i)
		old, now := &Node{}, &Node{}
		at := reflect.ValueOf(now).Elem().Field(i)
		switch at.Interface().(type) {
		case Object:
			at.Set(reflect.ValueOf(Object{"key": "canary"}))
		case map[string]string:
			at.Set(reflect.ValueOf(map[string]string{"boot": "canary"}))
		case time.Time:
			at.Set(reflect.ValueOf(time.Unix(1, 0)))
		default:
			switch at.Kind() {
			case reflect.String:
				at.SetString("canary")
			case reflect.Bool:
				at.SetBool(true)
			case reflect.Int64:
				at.SetInt(7)
			case reflect.Pointer:
				at.Set(reflect.New(at.Type().Elem()))
			case reflect.Slice:
				at.Set(reflect.ValueOf([]string{"canary"}))
			default:
				t.Fatalf("field %s: the test has no value of type %s", field.Name, at.Type())
			}
		}
		text := updatedText(old, now)
		if named := text != "record updated: nothing differs"; named == slices.Contains(nodeFields.Unnamed, field.Name) || strings.Contains(text, "canary") {
			t.Errorf("a change of %s is told as %q", field.Name, text)
		}
	}
	old := &Node{Name: "a", DriverInfo: Object{"redfish_address": "x", "redfish_password": "old"}, Interfaces: map[string]string{"boot": "pxe"}}
	now := &Node{Name: "a", Owner: "p", TargetRAID: Object{"x": 1}, DriverInfo: Object{"redfish_password": "new", "k\x1b[31m": 1, strings.Repeat("k", 500): 1}, Interfaces: map[string]string{"boot": "ipxe"}}
	const want = "record updated: boot_interface, driver_info/k?[31m, driver_info/kkk"
	if got := updatedText(old, now); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, ", driver_info/redfish_address, driver_info/redfish_password, owner, target_raid_config/x") ||
		strings.Contains(got, "\x1b") || len(got) > 400 || strings.Contains(got, "new") {
		t.Errorf("got %q", got)
	}
	for i := range 30 {
		now.Extra = Object{}
		for j := range i {
			now.Extra[strings.Repeat("e", j+1)] = 1
		}
	}
	if got := updatedText(old, now); !strings.HasSuffix(got, " and 16 more") {
		t.Errorf("many changes are told as %q", got)
	}
}
