package metal

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// unnamedFields are fields of a Node that no request changes by itself: salvor sets them.
var unnamedFields = []string{"ID", "Version", "InternalInfo", "CreatedAt", "UpdatedAt", "Reservation", "Conductor", "BootNumber", "Plan", "Rescue"}

// apiNames are the names of fields in the API where they do not follow from those in Node.
var apiNames = map[string]string{"TargetRAID": "target_raid_config", "ProvisionedAt": "provision_updated_at", "AllocationID": "allocation_uuid",
	"TargetPower": "target_power_state", "TargetProvision": "target_provision_state"}

// Bounds of the names that an event lists: keys are texts of users.
const (
	maxChangedNames = 20
	maxChangedName  = 80
)

// changedFields names the fields that differ, as the API calls them, in the order of the alphabet: driver_info/redfish_address. It never tells values.
func changedFields(old, now *Node) []string {
	var out []string
	a, b := reflect.ValueOf(old).Elem(), reflect.ValueOf(now).Elem()
	for i := range a.NumField() {
		field := a.Type().Field(i).Name
		if slices.Contains(unnamedFields, field) || reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			continue
		}
		name := apiName(field)
		switch before := a.Field(i).Interface().(type) {
		case Object:
			for _, key := range changedKeys(before, b.Field(i).Interface().(Object)) {
				out = append(out, name+"/"+key)
			}
		case map[string]string:
			for _, key := range changedKeys(before, b.Field(i).Interface().(map[string]string)) {
				out = append(out, key+"_interface")
			}
		default:
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// changedKeys are the keys whose values differ, or that only one of the maps has.
func changedKeys[V any](before, after map[string]V) []string {
	keys := map[string]bool{}
	for _, side := range []map[string]V{before, after} {
		for key := range side {
			a, had := before[key]
			b, has := after[key]
			if had != has || !reflect.DeepEqual(a, b) {
				keys[key] = true
			}
		}
	}
	return slices.Collect(maps.Keys(keys))
}

// apiName writes DriverInfo as driver_info.
func apiName(field string) string {
	if name, ok := apiNames[field]; ok {
		return name
	}
	runes := []rune(field)
	var out strings.Builder
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// updatedText is the event of a change.
func updatedText(old, now *Node) string {
	names := changedFields(old, now)
	if len(names) == 0 {
		return "record updated: nothing differs"
	}
	rest := ""
	if n := len(names) - maxChangedNames; n > 0 {
		names, rest = names[:maxChangedNames], fmt.Sprintf(" and %d more", n)
	}
	for i, name := range names {
		if len(name) > maxChangedName {
			name = strings.ToValidUTF8(name[:maxChangedName], "") + "..."
		}
		names[i] = strings.Map(func(r rune) rune {
			if unicode.IsGraphic(r) {
				return r
			}
			return '?'
		}, name)
	}
	return "record updated: " + strings.Join(names, ", ") + rest
}
