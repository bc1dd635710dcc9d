package ironic

import (
	"slices"

	"salvor/problem"
	"salvor/secret"
)

// maskRule tells which keys of an object hold a secret.
type maskRule func(key string) bool

// secretKeys is the rule of driver_info, properties and the like.
var secretKeys maskRule = secret.IsKey

// appendMap writes an object with the mask over its secrets, at any depth; none is {}.
func (hides maskRule) appendMap(b []byte, o map[string]any) []byte {
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k), ':')
		if v := o[k]; v != nil && hides(k) {
			b = appendString(b, secret.Mask)
		} else {
			b = hides.appendAny(b, v)
		}
	}
	return append(b, '}')
}

func (hides maskRule) appendAny(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		return hides.appendMap(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = hides.appendAny(b, e)
		}
		return append(b, ']')
	}
	return appendAny(b, v)
}

// keep puts the stored secret back where a client returns the mask that it read, so that
// no mask is ever stored; a mask over nothing is refused. It changes o.
func (hides maskRule) keep(path string, o, old map[string]any) (map[string]any, error) {
	for k, v := range o {
		here := path + "/" + k
		switch v := v.(type) {
		case string:
			if v == secret.Mask && hides(k) {
				stored, ok := old[k]
				if !ok || stored == nil {
					return nil, errMask(here)
				}
				o[k] = stored
			}
		case map[string]any:
			below, _ := old[k].(map[string]any)
			if _, err := hides.keep(here, v, below); err != nil {
				return nil, err
			}
		case []any:
			below, _ := old[k].([]any)
			if err := hides.keepList(here, v, below); err != nil {
				return nil, err
			}
		}
	}
	return o, nil
}

// keepList compares element by element; a list that changed its order cannot be matched and its masks are refused.
func (hides maskRule) keepList(path string, list, old []any) error {
	for i, v := range list {
		var before any
		if i < len(old) {
			before = old[i]
		}
		switch v := v.(type) {
		case map[string]any:
			below, _ := before.(map[string]any)
			if _, err := hides.keep(path, v, below); err != nil {
				return err
			}
		case []any:
			below, _ := before.([]any)
			if err := hides.keepList(path, v, below); err != nil {
				return err
			}
		}
	}
	return nil
}

func errMask(path string) error {
	return problem.Invalidf("%s is %q, which only stands for a secret that is not shown, and no secret is stored there", shorten(path), secret.Mask)
}
