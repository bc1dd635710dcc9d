package nova

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"salvor/problem"
	"salvor/record"
)

// schemaRule holds a decoded JSON value to a schema; at names the value in errors, as Nova does.
type schemaRule func(at string, v any, minor int) error

// schemaProperty is a property of an object.
type schemaProperty struct {
	name         string
	since, until int // microversions that know it; 0 until: all later ones
	required     bool
	rule         schemaRule
}

func invalidValueError(at string, v any, format string, args ...any) error {
	return problem.Invalidf("Invalid input for field/attribute %s. Value: %s. %s", at, shownValue(v), fmt.Sprintf(format, args...))
}

// shownValue shows of a value what an error may repeat: no object, for a password may hide in it.
func shownValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case string:
		return truncateText(v)
	case bool, float64:
		return fmt.Sprint(v)
	case []any:
		return "[...]"
	}
	return "{...}"
}

// truncateText keeps a hostile word from filling an error.
func truncateText(s string) string {
	if len(s) <= 100 {
		return s
	}
	end := 100
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

// objectSchema takes the named properties and no others.
func objectSchema(props ...schemaProperty) schemaRule { return objectOf(false, props) }

// openObject takes other properties too, and looks at the named ones.
func openObject(props ...schemaProperty) schemaRule { return objectOf(true, props) }

func objectOf(open bool, props []schemaProperty) schemaRule {
	return func(at string, v any, minor int) error {
		o, ok := v.(map[string]any)
		if !ok {
			return invalidValueError(at, v, "%s is not of type 'object'", shownValue(v))
		}
		known := make(map[string]bool, len(props))
		for _, p := range props {
			if minor < p.since || p.until != 0 && minor > p.until {
				continue
			}
			known[p.name] = true
			value, there := o[p.name]
			if !there {
				if p.required {
					return invalidValueError(at, v, "'%s' is a required property", p.name)
				}
				continue
			}
			if err := p.rule(p.name, value, minor); err != nil {
				return err
			}
		}
		if open {
			return nil
		}
		var odd []string
		for name := range o {
			if !known[name] {
				odd = append(odd, "'"+truncateText(name)+"'")
			}
		}
		if len(odd) == 0 {
			return nil
		}
		slices.Sort(odd)
		odd = odd[:min(len(odd), 10)]
		verb := "was"
		if len(odd) > 1 {
			verb = "were"
		}
		return invalidValueError(at, v, "Additional properties are not allowed (%s %s unexpected)", strings.Join(odd, ", "), verb)
	}
}

// arraySchema takes least to most values, each held to the rule.
func arraySchema(least, most int, each schemaRule) schemaRule {
	return func(at string, v any, minor int) error {
		l, ok := v.([]any)
		switch {
		case !ok:
			return invalidValueError(at, v, "%s is not of type 'array'", shownValue(v))
		case len(l) < least:
			return invalidValueError(at, v, "%s is too short", shownValue(v))
		case len(l) > most:
			return invalidValueError(at, v, "%s is too long", shownValue(v))
		}
		for i, e := range l {
			if err := each(at+"."+strconv.Itoa(i), e, minor); err != nil {
				return err
			}
		}
		return nil
	}
}

// uniqueItems adds to a list that no text comes twice.
func uniqueItems(inner schemaRule) schemaRule {
	return func(at string, v any, minor int) error {
		if err := inner(at, v, minor); err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, e := range v.([]any) {
			if s, ok := e.(string); ok && seen[s] {
				return invalidValueError(at, v, "%s has non-unique elements", shownValue(v))
			} else if ok {
				seen[s] = true
			}
		}
		return nil
	}
}

// stringSchema takes a string of least to most characters.
func stringSchema(least, most int) schemaRule {
	return func(at string, v any, _ int) error {
		s, ok := v.(string)
		if !ok {
			return invalidValueError(at, v, "%s is not of type 'string'", shownValue(v))
		}
		switch n := utf8.RuneCountInString(s); {
		case n < least:
			return invalidValueError(at, v, "'%s' is too short", shownValue(v))
		case n > most:
			return invalidValueError(at, v, "'%s' is too long", shownValue(v))
		}
		return nil
	}
}

// secretSchema takes a string of any content that no error repeats.
func secretSchema(most int) schemaRule {
	return func(at string, v any, _ int) error {
		if s, ok := v.(string); !ok || len(s) > most {
			return problem.Invalidf("Invalid input for field/attribute %s. It must be a string of at most %d bytes.", at, most)
		}
		return nil
	}
}

// patternSchema takes a string that the expression matches.
func patternSchema(least, most int, expression string) schemaRule {
	length, form := stringSchema(least, most), regexp.MustCompile(expression)
	return func(at string, v any, minor int) error {
		if err := length(at, v, minor); err != nil {
			return err
		}
		if s := v.(string); !form.MatchString(s) {
			return invalidValueError(at, v, "'%s' does not match '%s'", shownValue(v), expression)
		}
		return nil
	}
}

// nameSchema takes what Nova takes for a name: printable, no space at its ends.
func nameSchema(at string, v any, minor int) error {
	if err := stringSchema(1, 255)(at, v, minor); err != nil {
		return err
	}
	s := v.(string)
	if strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return invalidValueError(at, v, "'%s' does not match a name: printable characters without leading or trailing whitespace", shownValue(v))
	}
	return nil
}

func nullableSchema(inner schemaRule) schemaRule {
	return func(at string, v any, minor int) error {
		if v == nil {
			return nil
		}
		return inner(at, v, minor)
	}
}

func anySchema(string, any, int) error { return nil }

func uuidSchema(at string, v any, _ int) error {
	if s, ok := v.(string); !ok || !record.IsUUID(s) {
		return invalidValueError(at, v, "'%s' is not a 'uuid'", shownValue(v))
	}
	return nil
}

func uuidOrNothing(at string, v any, minor int) error {
	if v == "" {
		return nil
	}
	return uuidSchema(at, v, minor)
}

func ipAddressSchema(at string, v any, _ int) error {
	s, ok := v.(string)
	if _, err := netip.ParseAddr(s); !ok || err != nil {
		return invalidValueError(at, v, "'%s' is not an IP address", shownValue(v))
	}
	return nil
}

func oneOf(words ...string) schemaRule {
	return func(at string, v any, _ int) error {
		if s, ok := v.(string); !ok || !slices.Contains(words, s) {
			return invalidValueError(at, v, "'%s' is not one of ['%s']", shownValue(v), strings.Join(words, "', '"))
		}
		return nil
	}
}

// boolWords are what Nova takes for booleans beside true and false.
var boolWords = map[string]bool{
	"True": true, "TRUE": true, "true": true, "1": true, "ON": true, "On": true, "on": true, "YES": true, "Yes": true, "yes": true, "t": true, "y": true,
	"False": false, "FALSE": false, "false": false, "0": false, "OFF": false, "Off": false, "off": false, "NO": false, "No": false, "no": false, "f": false, "n": false,
}

func booleanSchema(at string, v any, _ int) error {
	if _, ok := boolOf(v); !ok {
		return invalidValueError(at, v, "%s is not a boolean", shownValue(v))
	}
	return nil
}

func boolOf(v any) (value, ok bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case string:
		value, ok = boolWords[v]
		return value, ok
	}
	return false, false
}

// integerSchema takes a whole number, or its digits, from least to most.
func integerSchema(least, most int) schemaRule {
	return func(at string, v any, _ int) error {
		n, ok := intOf(v)
		switch {
		case !ok:
			return invalidValueError(at, v, "%s is not an integer", shownValue(v))
		case n < least:
			return invalidValueError(at, v, "%d is less than the minimum of %d", n, least)
		case n > most:
			return invalidValueError(at, v, "%d is greater than the maximum of %d", n, most)
		}
		return nil
	}
}

func intOf(v any) (int, bool) {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int(v), true
		}
	case string:
		n, err := strconv.Atoi(v)
		return n, err == nil
	}
	return 0, false
}

// stringMapSchema takes an object of strings, with keys of at most 255 characters.
func stringMapSchema(most int) schemaRule {
	keyForm := regexp.MustCompile(`^[a-zA-Z0-9-_:. ]{1,255}$`)
	value := stringSchema(0, most)
	return func(at string, v any, minor int) error {
		o, ok := v.(map[string]any)
		if !ok {
			return invalidValueError(at, v, "%s is not of type 'object'", shownValue(v))
		}
		if len(o) > maxMetadata {
			return problem.Forbiddenf("Quota exceeded, too many items: %d of at most %d in %s", len(o), maxMetadata, at)
		}
		for k, e := range o {
			if !keyForm.MatchString(k) {
				return invalidValueError(at, v, "'%s' is no key: 1 to 255 of letters, digits, '-', '_', ':', '.' and spaces", truncateText(k))
			}
			if err := value(k, e, minor); err != nil {
				return err
			}
		}
		return nil
	}
}

// maxMetadata bounds the items of an object of texts.
const maxMetadata = 128

// stringProperty gives a property's string; empty where there is none.
func stringProperty(o map[string]any, name string) string {
	s, _ := o[name].(string)
	return s
}

// wordsOf gives a list's strings.
func wordsOf(v any) []string {
	l, _ := v.([]any)
	out := make([]string, 0, len(l))
	for _, e := range l {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// mapOf gives an object's strings.
func mapOf(v any) map[string]string {
	o, _ := v.(map[string]any)
	out := make(map[string]string, len(o))
	for k, e := range o {
		if s, ok := e.(string); ok {
			out[k] = s
		}
	}
	return out
}
