package odd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func becomesValue(v any) func(any, *http.Request) (any, bool) {
	return func(any, *http.Request) (any, bool) { return v, true }
}

// valueKind is a kind that changes values of a sort.
func valueKind(name, source string, suits func(any) bool, change func(any, *http.Request) (any, bool)) *BMCKind {
	return &BMCKind{Name: "value: " + name, Source: source, Scope: ScopeMember, Cost: CostMember, suits: suits, serve: changeValues(suits, change)}
}

func removeValue(any, *http.Request) (any, bool) { return nil, false }

func isDate(v any) bool {
	text, _ := v.(string)
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}

func isMany(v any) bool { list, ok := v.([]any); return ok && len(list) > 0 }

func isEnum(v any) bool {
	text, _ := v.(string)
	return text != "" && !strings.ContainsAny(text, "/:. ") && strings.ToLower(text) != text
}

var valueKinds = []*BMCKind{
	valueKind("a number as text", "Cisco CIMC: gofish 409", isNumber, func(v any, _ *http.Request) (any, bool) { return strconv.FormatFloat(v.(float64), 'f', -1, 64), true }),
	valueKind("a number with its unit", "fishymetrics 68", isNumber, func(v any, _ *http.Request) (any, bool) { return fmt.Sprint(v, " MHz"), true }),
	valueKind("N/A for a number", "Cisco CIMC: gofish 409", isNumber, becomesValue("N/A")),
	valueKind("a text as number", "gofish 99: MemberId; Model 4029", isText, becomesValue(4029)),
	valueKind("a text in a list", "libredfish", isText, func(v any, _ *http.Request) (any, bool) { return []any{v}, true }),
	valueKind("a text as object", "redfish_exporter 9", isText, func(v any, _ *http.Request) (any, bool) { return map[string]any{"Value": v}, true }),
	valueKind("a number in a list", "redfish_exporter 27", isNumber, func(v any, _ *http.Request) (any, bool) { return []any{v}, true }),
	valueKind("a number as object", "redfish_exporter 27", isNumber, func(v any, _ *http.Request) (any, bool) { return map[string]any{"Value": v}, true }),
	valueKind("one for a list", "gofish 63", isMany, func(v any, _ *http.Request) (any, bool) { return v.([]any)[0], true }),
	valueKind("null", "many, while the machine is off", func(v any) bool { return isScalar(v) || isList(v) || isObject(v) }, becomesValue(nil)),
	valueKind("absent", "many", func(v any) bool { return isScalar(v) || isList(v) || isObject(v) }, removeValue),
	valueKind("an empty text", "Cisco CIMC", func(v any) bool { return isScalar(v) || isList(v) || isObject(v) || isLink(v) }, becomesValue("")),
	valueKind("a bool as text", "Supermicro: Inserted \"false\"", isBool, func(v any, _ *http.Request) (any, bool) { return fmt.Sprint(v), true }),
	valueKind("a bool as number", "old Supermicro", isBool, func(v any, _ *http.Request) (any, bool) {
		if v == true {
			return 1, true
		}
		return 0, true
	}),
	valueKind("an object as text", "Status: OK", isObject, becomesValue("OK")),
	valueKind("an object as empty list", "PHP: Actions []", func(v any) bool { return isObject(v) || isLink(v) }, becomesValue([]any{})),
	valueKind("an object as true", "hostile", isObject, becomesValue(true)),
	valueKind("a list as object", "libredfish 27", isMany, func(v any, _ *http.Request) (any, bool) {
		out := map[string]any{}
		for i, e := range v.([]any) {
			out[strconv.Itoa(i)] = e
		}
		return out, true
	}),
	valueKind("a list as text with spaces", "redfish_exporter", isMany, func(v any, _ *http.Request) (any, bool) {
		parts := []string{}
		for _, e := range v.([]any) {
			parts = append(parts, fmt.Sprint(e))
		}
		return strings.Join(parts, " "), true
	}),
	valueKind("a list with null in it", "OpenBMC", isMany, func(v any, _ *http.Request) (any, bool) { return append([]any{nil}, v.([]any)...), true }),
	valueKind("a list with a number in it", "hostile", isMany, func(v any, _ *http.Request) (any, bool) { return append([]any{7}, v.([]any)...), true }),
	valueKind("another case", "Quanta: on, uefi", isEnum, func(v any, _ *http.Request) (any, bool) { return strings.ToLower(v.(string)), true }),
	valueKind("spaces around", "SMBIOS texts", isText, func(v any, _ *http.Request) (any, bool) { return " " + v.(string) + "  ", true }),
	valueKind("an unknown word", "newer schema versions", isEnum, becomesValue("OddValue")),
	valueKind("a huge number", "sensors: 1e300", isNumber, becomesValue(json.Number("1e300"))),
	valueKind("a negative number", "sensors and sizes: -1", isNumber, becomesValue(-1)),
	valueKind("a fraction", "HPE: counts as 2.5", isNumber, func(v any, _ *http.Request) (any, bool) { return v.(float64) + 0.5, true }),
	valueKind("a date without zone", "iDRAC: 2026-03-04T05:06:07", isDate, becomesValue("2026-03-04T05:06:07")),
	valueKind("a date of another sort", "AMI: 03/04/2026 05:06:07 AM", isDate, becomesValue("03/04/2026 05:06:07 AM")),
	valueKind("a date as number", "seconds since 1970", isDate, becomesValue(1772600767)),
	valueKind("a long text", "hostile: 64 KiB", isText, func(v any, _ *http.Request) (any, bool) { return v.(string) + strings.Repeat("x", 64<<10), true }),
	valueKind("a text for the terminal", "hostile: escape codes", isText, func(v any, _ *http.Request) (any, bool) { return v.(string) + "\x1b[2J\r\n", true }),
}
