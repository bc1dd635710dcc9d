package loose

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
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

// textOf decodes a JSON text with its quotation marks; a byte that is no UTF-8 becomes the replacement character.
func textOf(raw []byte) string {
	var s string
	_ = json.Unmarshal(raw, &s) // the syntax is known to be right
	return s
}

// untoldWords are what peers write where they have no value, in lower case.
var untoldWords = []string{"n/a", "na", "none", "null", "nil", "unknown", "not available", "not applicable", "-", "--", ""}

// untold tells whether a value stands for none. For a text only null and N/A do, because every other word may be meant.
func (v value) untold(forText bool) bool {
	if v.kind != isText {
		return v.kind == isNull
	}
	word := strings.ToLower(strings.TrimSpace(textOf(v.raw)))
	if forText {
		return word == untoldWords[0]
	}
	for _, w := range untoldWords {
		if word == w {
			return true
		}
	}
	return false
}

// asText gives a text, number or bool as text.
func (v value) asText() (string, bool) {
	switch v.kind {
	case isText:
		return textOf(v.raw), true
	case isNumber:
		return string(v.raw), len(v.raw) <= maxNumber
	case isBool:
		return string(v.raw), true
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
	if v.kind != isNumber && v.kind != isText {
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
