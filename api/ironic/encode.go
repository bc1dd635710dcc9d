package ironic

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"salvor/secret"
)

// The append functions write JSON by hand: a page of 1000 nodes has 60,000 values,
// and reflection over them would cost more than reading them from the store.

func appendKey(b []byte, key string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

// appendString writes a string; an ordinary one without asking encoding/json.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c >= utf8.RuneSelf {
			return appendSlow(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

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

// appendAny writes a value as encoding/json does, keys sorted; the kinds that JSON
// decodes to without asking it.
func appendAny(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		return appendString(b, v)
	case bool:
		return appendBool(b, v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 && (v != 0 || !math.Signbit(v)) {
			return strconv.AppendInt(b, int64(v), 10)
		}
	case map[string]any:
		return appendMap(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendAny(b, e)
		}
		return append(b, ']')
	}
	return appendSlow(b, v)
}

func appendMap(b []byte, m map[string]any) []byte {
	var room [16]string
	keys := room[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k), ':')
		b = appendAny(b, m[k])
	}
	return append(b, '}')
}

func appendSlow(b []byte, v any) []byte {
	j, err := json.Marshal(v)
	if err != nil { // only values that came from JSON get here
		return append(b, "null"...)
	}
	return append(b, j...)
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
