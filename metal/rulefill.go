package metal

import (
	"slices"
	"strconv"
	"strings"

	"salvor/secret"
)

// fill replaces {node...}, {inventory...}, {plugin_data...} and, in a loop, {item...} in
// the arguments of an operation: Python's format strings, as Ironic's rules have them.
func (f *Findings) fill(s argumentShape, op ruleOp, item any) (Object, error) {
	w := &templateFiller{Findings: f, missingIsNone: op.op == "is-empty"}
	if op.loop != nil { // an item may name what was found; what was found is never read for names itself
		w.item, w.loop = w.value(item), true
	}
	out := make(Object, len(op.args))
	for k, v := range op.args {
		if w.loop || slices.Contains(s.filled, k) {
			v = w.value(v)
		}
		out[k] = v
	}
	if _, ok := out["values"]; ok && w.loop && slices.Contains(s.optional, "force_strings") {
		out["force_strings"] = true // items were filled in as text
	}
	return out, nil
}

type templateFiller struct {
	*Findings
	item          any
	loop          bool
	missingIsNone bool
}

func (w *templateFiller) value(v any) any {
	switch v := v.(type) {
	case string:
		return w.text(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = w.value(e)
		}
		return out
	case map[string]any:
		out := make(Object, len(v))
		for k, e := range v {
			key, ok := w.text(k).(string)
			if !ok {
				key = k
			}
			out[key] = w.value(e)
		}
		return out
	}
	return v
}

// maxFilled bounds a text with all filled in.
const maxFilled = 1 << 20

// text fills one text. One that names what is not there stays as it is, but is nil where
// the condition asks just that.
func (w *templateFiller) text(s string) any {
	var b strings.Builder
	for rest := s; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:i])
		if len(rest) > i+1 && rest[i+1] == rest[i] { // {{ and }} stand for themselves
			b.WriteByte(rest[i])
			rest = rest[i+2:]
			continue
		}
		end := strings.IndexByte(rest, '}')
		if rest[i] == '}' || end < 0 {
			return s
		}
		v, found := w.look(rest[i+1 : end])
		if !found {
			if w.missingIsNone {
				return nil
			}
			return s
		}
		b.WriteString(pythonText(v))
		if b.Len() > maxFilled {
			return s
		}
		rest = rest[end+1:]
	}
	return b.String()
}

// look finds a field such as inventory[cpu][count] or node.driver_info[ipmi_address].
// Secrets are not told: who may write rules may not read them.
func (w *templateFiller) look(field string) (any, bool) {
	field = strings.TrimSuffix(field, "!s")
	end := strings.IndexAny(field, ".[")
	if end < 0 {
		end = len(field)
	}
	name, rest := field[:end], field[end:]
	var v any
	switch {
	case name == "node":
		attr, below, ok := nextKey(rest)
		if !ok {
			return nil, false
		}
		if v, ok = nodeValue(w.Node, attr); !ok {
			return nil, false
		}
		rest = below
	case name == "inventory":
		v = w.Inventory
	case name == "plugin_data":
		v = w.Plugin
	case name == "item" && w.loop:
		v = w.item
	default:
		return nil, false
	}
	for rest != "" {
		key, below, ok := nextKey(rest)
		if !ok {
			return nil, false
		}
		switch at := v.(type) {
		case map[string]any:
			if v, ok = at[key]; !ok {
				return nil, false
			}
			if v != nil && secret.IsKey(key) {
				return "***", true
			}
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
		rest = below
	}
	return secret.Masked(v), true
}

// nextKey takes .key or [key] off the front of a field.
func nextKey(s string) (key, rest string, ok bool) {
	switch {
	case strings.HasPrefix(s, "["):
		key, rest, ok = strings.Cut(s[1:], "]")
		return key, rest, ok && key != ""
	case strings.HasPrefix(s, "."):
		end := strings.IndexAny(s[1:], ".[")
		if end < 0 {
			return s[1:], "", len(s) > 1
		}
		return s[1 : end+1], s[end+1:], end > 0
	}
	return "", "", false
}

// pythonText writes a value as Python's str does, for which rules are written.
func pythonText(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		return v
	}
	var b strings.Builder
	pythonRepr(&b, v)
	return b.String()
}

func pythonRepr(b *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		b.WriteString("'" + strings.ReplaceAll(strings.ReplaceAll(v, `\`, `\\`), "'", `\'`) + "'")
	case float64:
		b.WriteString(strconv.FormatFloat(v, 'f', -1, 64))
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			pythonRepr(b, e)
		}
		b.WriteByte(']')
	case map[string]any:
		b.WriteByte('{')
		for i, k := range sortedKeys(v) {
			if i > 0 {
				b.WriteString(", ")
			}
			pythonRepr(b, k)
			b.WriteString(": ")
			pythonRepr(b, v[k])
		}
		b.WriteByte('}')
	default:
		b.WriteString(pythonText(v))
	}
}
