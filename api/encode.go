package api

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The append functions write JSON by hand: a page of 1000 nodes has 60,000 values,
// and reflection over them would cost more than reading them from the store.

// AppendKey begins a field of an object: a comma where one is needed, and its name.
func AppendKey(b []byte, key string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

// AppendString writes a string; an ordinary one without asking encoding/json.
func AppendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c >= utf8.RuneSelf {
			return appendSlow(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// AppendAny writes a value as encoding/json does, keys sorted; the kinds that JSON
// decodes to without asking it.
func AppendAny(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		return AppendString(b, v)
	case bool:
		return strconv.AppendBool(b, v)
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
			b = AppendAny(b, e)
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
		b = append(AppendString(b, k), ':')
		b = AppendAny(b, m[k])
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
