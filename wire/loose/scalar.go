package loose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// checkSyntax refuses a text that is no JSON. A text whose only fault are control characters within quotation marks is returned with blanks in
// their place.
func checkSyntax(text []byte) ([]byte, error) {
	if json.Valid(text) {
		return text, nil
	}
	cleaned := blankControls(text)
	if json.Valid(cleaned) {
		return cleaned, nil
	}
	var any json.RawMessage
	return nil, fmt.Errorf("%w: %w", errNoJSON, json.Unmarshal(text, &any))
}

func blankControls(text []byte) []byte {
	out := append([]byte(nil), text...)
	inside := false
	for i := 0; i < len(out); i++ {
		switch {
		case out[i] == '"':
			inside = !inside
		case inside && out[i] == '\\':
			i++
		case inside && out[i] < ' ':
			out[i] = ' '
		}
	}
	return out
}

// isPlain tells whether a JSON text stands for the bytes between its quotation marks, all of them ASCII.
func (v value) isPlain() bool {
	for _, c := range v {
		if c >= utf8.RuneSelf || c == '\\' {
			return false
		}
	}
	return true
}

// textOf decodes a JSON text with its quotation marks; a byte that is no UTF-8 becomes the replacement character.
func textOf(v value) string {
	if v.isPlain() {
		return string(v[1 : len(v)-1])
	}
	var s string
	_ = json.Unmarshal(v, &s) // the syntax is known to be right
	return s
}

// untoldWords are what peers write where they have no value, in lower case.
var untoldWords = []string{"n/a", "na", "none", "null", "nil", "unknown", "not available", "not applicable", "-", "--", ""}

// maxUntold is the length of the longest of untoldWords.
const maxUntold = len("not applicable")

// isUntold tells whether a value stands for none. For a text only null and N/A do, because every other word may be meant.
func (v value) isUntold(forText bool) bool {
	if v.kind() != isText {
		return v.kind() == isNull
	}
	words := untoldWords
	if forText {
		words = words[:1]
	}
	if !v.isPlain() {
		return slices.Contains(words, strings.ToLower(strings.TrimSpace(textOf(v))))
	}
	word := bytes.TrimSpace(v[1 : len(v)-1])
	return len(word) <= maxUntold && slices.ContainsFunc(words, func(w string) bool { return len(w) == len(word) && strings.EqualFold(w, string(word)) })
}

// asText gives a text, number or bool as text.
func (v value) asText() (string, bool) {
	switch v.kind() {
	case isText:
		return textOf(v), true
	case isNumber:
		return string(v), len(v) <= maxNumber
	case isBool:
		return string(v), true
	}
	return "", false
}

// asBool gives a bool, also as text or as the numbers 0 and 1.
func (v value) asBool() (is, ok bool) {
	text, ok := v.asText()
	if !ok {
		return false, false
	}
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "yes", "on", "enabled", "1":
		return true, true
	case "false", "no", "off", "disabled", "0":
		return false, true
	}
	return false, false
}

// number gives the text of a number, or of a text that holds one.
func (v value) number() (string, bool) {
	if k := v.kind(); k != isNumber && k != isText {
		return "", false
	}
	text, _ := v.asText()
	if text = strings.TrimSpace(text); len(text) > maxNumber || strings.ContainsAny(text, "_xXpPnN") { // what ParseFloat takes beyond JSON
		return "", false
	}
	return text, true
}

// setNumber sets a target of a numeric kind; false: the value is no number, or does not fit.
func (v value) setNumber(target reflect.Value) bool {
	if i, ok := v.smallInt(); ok && target.CanInt() && !target.OverflowInt(i) {
		target.SetInt(i)
		return true
	}
	text, ok := v.number()
	if !ok {
		return false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return false
	}
	whole := f == math.Trunc(f) && math.Abs(f) <= 1<<53 // up to where each whole number has a float64 of its own
	switch {
	case target.CanInt():
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil && whole {
			i, err = int64(f), nil // 16.0 and 1e3
		}
		if err != nil || target.OverflowInt(i) {
			return false
		}
		target.SetInt(i)
	case target.CanUint():
		u, err := strconv.ParseUint(text, 10, 64)
		if err != nil && whole && f >= 0 {
			u, err = uint64(f), nil
		}
		if err != nil || target.OverflowUint(u) {
			return false
		}
		target.SetUint(u)
	default:
		if target.OverflowFloat(f) {
			return false
		}
		target.SetFloat(f)
	}
	return true
}

// smallInt is a number of some digits alone.
func (v value) smallInt() (i int64, ok bool) {
	if len(v) > 18 {
		return 0, false
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		i = 10*i + int64(c-'0')
	}
	return i, true
}

// anyAt decodes the value that begins at a place as encoding/json decodes into an interface, and gives the place behind the value; false: a
// number is too large.
func anyAt(text []byte, at int) (out any, end int, ok bool) {
	switch kindsOf[text[at]] {
	case isObject:
		object := map[string]any{}
		for at = skipBlanks(text, at+1); text[at] != '}'; at = skipComma(text, at) {
			end = textEnd(text, at)
			name := textOf(text[at:end])
			at = skipBlanks(text, skipBlanks(text, end)+1) // the colon
			if object[name], at, ok = anyAt(text, at); !ok {
				return nil, at, false
			}
		}
		return object, at + 1, true
	case isList:
		list := []any{}
		for at = skipBlanks(text, at+1); text[at] != ']'; at = skipComma(text, at) {
			var element any
			if element, at, ok = anyAt(text, at); !ok {
				return nil, at, false
			}
			list = append(list, element)
		}
		return list, at + 1, true
	}
	end = valueEnd(text, at)
	v := value(text[at:end])
	switch v.kind() {
	case isNull:
		return nil, end, true
	case isBool:
		return v[0] == 't', end, true
	case isText:
		return textOf(v), end, true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	return f, end, err == nil
}
