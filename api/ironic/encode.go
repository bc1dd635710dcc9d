package ironic

import (
	"strconv"
	"time"

	"salvor/api"
	"salvor/secret"
)

// The append functions write JSON by hand, see api.AppendKey.

func appendKey(b []byte, key string) []byte { return api.AppendKey(b, key) }

func appendString(b []byte, s string) []byte { return api.AppendString(b, s) }

func appendAny(b []byte, v any) []byte { return api.AppendAny(b, v) }

// appendText writes a string, and null for an empty one.
func appendText(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendString(b, s)
}

func appendBool(b []byte, v bool) []byte { return strconv.AppendBool(b, v) }

func appendBoolPtr(b []byte, v *bool) []byte {
	if v == nil {
		return append(b, "null"...)
	}
	return appendBool(b, *v)
}

// timeLayout is how Ironic writes times on reads: no fraction.
const timeLayout = "2006-01-02T15:04:05+00:00"

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, timeLayout)
	return append(b, '"')
}

// timeText writes a time for a struct; nil where there is none.
func timeText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(timeLayout)
	return &s
}

// appendObject writes a free-form object; none is {}.
func appendObject(b []byte, o map[string]any) []byte {
	if len(o) == 0 {
		return append(b, "{}"...)
	}
	return appendAny(b, o)
}

// appendMasked writes a free-form object without its secrets.
func appendMasked(b []byte, o map[string]any) []byte {
	if len(o) == 0 {
		return append(b, "{}"...)
	}
	return appendAny(b, secret.Masked(o))
}

// appendLinks writes the two links of a resource.
func appendLinks(b []byte, host, path, below string) []byte {
	b = append(b, `[{"href":`...)
	b = appendString(b, host+"/v1/"+path+below)
	b = append(b, `,"rel":"self"},{"href":`...)
	b = appendString(b, host+"/"+path+below)
	return append(b, `,"rel":"bookmark"}]`...)
}
