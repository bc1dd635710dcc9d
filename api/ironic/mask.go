package ironic

import (
	"maps"
	"reflect"
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

// restoreSecrets puts the stored secret back where a client returns the mask that it read, so that
// no mask is ever stored; a mask over nothing is refused. It changes o.
func (hides maskRule) restoreSecrets(path string, o, old map[string]any) (map[string]any, error) {
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
			if _, err := hides.restoreSecrets(here, v, below); err != nil {
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

// keepList puts the stored secrets back into a list. The list as it was shown gets them by place. Else an item with a mask takes
// those of the stored item that was shown like it; where there is none, or several with other secrets, it is refused. Apart names a
// key of items that may differ.
func (hides maskRule) keepList(path string, list, old []any, apart ...string) error {
	if !hides.masks(list) {
		return nil
	}
	if hides.shownAs(list, old) {
		copy(list, old)
		return nil
	}
	for i, v := range list {
		if !hides.masks(v) {
			continue
		}
		stored, err := hides.match(path, v, old)
		if err == nil && stored == nil && len(apart) > 0 {
			stored, err = hides.matchApart(path, v, old, apart)
		}
		switch {
		case err != nil:
			return err
		case stored == nil:
			return problem.Invalidf("%s: an item with %q is none of the stored ones as they are shown, so no secret is stored for it; give its secrets anew", truncateInput(path), secret.Mask)
		}
		list[i] = stored
	}
	return nil
}

// match finds the stored item that was shown as v; nil if there is none.
func (hides maskRule) match(path string, v any, old []any) (found any, err error) {
	for _, o := range old {
		if !hides.shownAs(v, o) {
			continue
		}
		if found != nil && !reflect.DeepEqual(found, o) {
			return nil, problem.Invalidf("%s: an item with %q may be any of several stored ones with other secrets; give its secrets anew", truncateInput(path), secret.Mask)
		}
		found = o
	}
	return found, nil
}

// matchApart is match without regard to the keys apart, which stay as v has them.
func (hides maskRule) matchApart(path string, v any, old []any, apart []string) (any, error) {
	without := func(v any) any {
		o, ok := v.(map[string]any)
		if !ok {
			return v
		}
		o = maps.Clone(o)
		for _, key := range apart {
			delete(o, key)
		}
		return o
	}
	bare := make([]any, len(old))
	for i := range old {
		bare[i] = without(old[i])
	}
	stored, err := hides.match(path, without(v), bare)
	item, ok := stored.(map[string]any)
	if !ok || err != nil {
		return nil, err
	}
	item = maps.Clone(item)
	for _, key := range apart {
		if value, ok := v.(map[string]any)[key]; ok {
			item[key] = value
		}
	}
	return item, nil
}

// masks tells whether a value holds a mask where a secret would be.
func (hides maskRule) masks(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e == secret.Mask && hides(k) || hides.masks(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hides.masks)
	}
	return false
}

// shownAs tells whether v is the stored value as it is shown, or with some of its secrets in clear.
func (hides maskRule) shownAs(v, stored any) bool {
	switch v := v.(type) {
	case map[string]any:
		o, ok := stored.(map[string]any)
		if !ok || len(v) != len(o) {
			return false
		}
		for k, e := range v {
			was, ok := o[k]
			if !ok || !(e == secret.Mask && was != nil && hides(k)) && !hides.shownAs(e, was) {
				return false
			}
		}
		return true
	case []any:
		o, ok := stored.([]any)
		return ok && slices.EqualFunc(v, o, hides.shownAs)
	}
	return reflect.DeepEqual(v, stored)
}

func errMask(path string) error {
	return problem.Invalidf("%s is %q, which only stands for a secret that is not shown, and no secret is stored there", truncateInput(path), secret.Mask)
}
