package record

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// FieldNames says how the API calls the fields of a record in Go, where the name in the API does not follow from the name in Go.
type FieldNames struct {
	// Unnamed are fields that no request changes by itself, because salvor sets them.
	Unnamed []string
	// Names are names in the API, by the name of the field in Go.
	Names map[string]string
	// Keys are formats of the names of a map's keys, by the name of the field in Go. A map without a format shows its key below its
	// own name: driver_info/redfish_address.
	Keys map[string]string
}

// commonNames are names in the API of fields that several kinds of records have.
var commonNames = map[string]string{"VCPUs": "vcpus", "SizeGiB": "size", "NodeID": "node_uuid", "PortgroupID": "portgroup_uuid", "LocalLink": "local_link_connection",
	"TargetOS": "target_os", "OSFamily": "os_family", "TargetOSFamily": "target_os_family"}

// Bounds of the names that an event lists: keys are texts of users.
const (
	maxChangedNames = 20
	maxChangedName  = 80
)

// Changed names the fields in which two records of one type differ, in the order of the alphabet, and never tells their values. old
// and now are pointers.
func (f FieldNames) Changed(old, now any) []string {
	var out []string
	a, b := reflect.ValueOf(old).Elem(), reflect.ValueOf(now).Elem()
	for i := range a.NumField() {
		field := a.Type().Field(i)
		if !field.IsExported() || field.Type == reflect.TypeFor[Record]() || slices.Contains(f.Unnamed, field.Name) || sameField(a.Field(i), b.Field(i)) {
			continue
		}
		name := f.apiName(field.Name)
		if a.Field(i).Kind() != reflect.Map {
			out = append(out, name)
			continue
		}
		format := f.Keys[field.Name]
		if format == "" {
			format = name + "/%s"
		}
		for _, key := range changedKeys(a.Field(i), b.Field(i)) {
			out = append(out, fmt.Sprintf(format, key))
		}
	}
	slices.Sort(out)
	return out
}

// sameField tells whether a field has one value in both records. No list and an empty list are the same.
func sameField(a, b reflect.Value) bool {
	if a.Kind() == reflect.Slice && a.Len()+b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// changedKeys are the keys whose values differ, or that only one of the maps has.
func changedKeys(before, after reflect.Value) []string {
	keys := map[string]bool{}
	for _, side := range []reflect.Value{before, after} {
		for _, key := range side.MapKeys() {
			a, b := before.MapIndex(key), after.MapIndex(key)
			if a.IsValid() != b.IsValid() || !reflect.DeepEqual(a.Interface(), b.Interface()) {
				keys[fmt.Sprint(key.Interface())] = true
			}
		}
	}
	return slices.Collect(maps.Keys(keys))
}

// apiName writes DriverInfo as driver_info.
func (f FieldNames) apiName(field string) string {
	for _, names := range []map[string]string{f.Names, commonNames} {
		if name, ok := names[field]; ok {
			return name
		}
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

// Updated is the end of the text of an event about a change: "updated: bridge, mtu".
func (f FieldNames) Updated(old, now any) string {
	return "updated: " + ListNames(f.Changed(old, now))
}

// ListNames writes names into the text of an event, bounded in number and length.
func ListNames(names []string) string {
	if len(names) == 0 {
		return "nothing differs"
	}
	rest := ""
	if n := len(names) - maxChangedNames; n > 0 {
		names, rest = names[:maxChangedNames], fmt.Sprintf(" and %d more", n)
	}
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = eventName(name)
	}
	return strings.Join(out, ", ") + rest
}

// eventName bounds a name that a user chose, and takes out of it what moves the cursor of a terminal.
func eventName(name string) string {
	if len(name) > maxChangedName {
		name = strings.ToValidUTF8(name[:maxChangedName], "") + "..."
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return '?'
	}, name)
}
