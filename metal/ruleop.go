package metal

import (
	"cmp"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/problem"
)

var (
	valuesShape = argumentShape{required: []string{"values"}, optional: []string{"force_strings"}, filled: []string{"values"}, check: checkValues, listsValues: true}
	valueShape  = argumentShape{required: []string{"value"}, filled: []string{"value"}}
	regexShape  = argumentShape{required: []string{"value", "regex"}, filled: []string{"value"}, check: func(a Object) error {
		_, err := ruleRegex(a["regex"])
		return err
	}}
	pathShape = argumentShape{required: []string{"path"}}
)

// conditionShapes are the conditions that rules know. Ironic has no ne, le and ge; rules that
// were written for ironic-inspector have.
var conditionShapes = map[string]argumentShape{
	"eq": valuesShape, "ne": valuesShape, "lt": valuesShape, "gt": valuesShape, "le": valuesShape, "ge": valuesShape,
	"is-empty": valueShape, "is-none": valueShape, "is-true": valueShape, "is-false": valueShape,
	"matches": regexShape, "contains": regexShape,
	"in-net": {required: []string{"address", "subnet"}, filled: []string{"address", "subnet"}},
	"one-of": {required: []string{"value"}, optional: []string{"values"}, filled: []string{"value"}},
}

var conditions = map[string]func(Object) (bool, error){
	"eq": inRow(func(a, b any) (bool, error) { return sameValue(a, b), nil }),
	"ne": inRow(func(a, b any) (bool, error) { return !sameValue(a, b), nil }),
	"lt": inRow(newComparison(func(c int) bool { return c < 0 })),
	"gt": inRow(newComparison(func(c int) bool { return c > 0 })),
	"le": inRow(newComparison(func(c int) bool { return c <= 0 })),
	"ge": inRow(newComparison(func(c int) bool { return c >= 0 })),
	"is-empty": func(a Object) (bool, error) {
		return slices.Contains([]string{"", "None", "[]", "{}"}, pythonText(a["value"])), nil
	},
	"is-none":  func(a Object) (bool, error) { return a["value"] == nil, nil },
	"is-true":  func(a Object) (bool, error) { return isTruthy(a["value"], "yes", "true"), nil },
	"is-false": func(a Object) (bool, error) { return isFalsy(a["value"]), nil },
	"matches":  matchesWholeRegex,
	"contains": matchesRegex,
	"in-net":   inNet,
	"one-of": func(a Object) (bool, error) {
		list, ok := a["values"].([]any)
		if !ok && a["values"] != nil {
			return false, problem.Invalidf("values must be a list")
		}
		return slices.ContainsFunc(list, func(e any) bool { return sameValue(a["value"], e) }), nil
	},
}

func checkValues(a Object) error {
	if _, ok := a["values"].([]any); !ok {
		return problem.Invalidf("values must be a list")
	}
	return nil
}

// inRow holds if the relation does between each value and the next one.
func inRow(relation func(a, b any) (bool, error)) func(Object) (bool, error) {
	return func(args Object) (bool, error) {
		if err := checkValues(args); err != nil {
			return false, err
		}
		values := args["values"].([]any)
		if force, _ := args["force_strings"].(bool); force {
			values = slices.Clone(values)
			for i, v := range values {
				values[i] = pythonText(v)
			}
		}
		for i := 1; i < len(values); i++ {
			if ok, err := relation(values[i-1], values[i]); err != nil || !ok {
				return false, err
			}
		}
		return true, nil
	}
}

// sameValue compares as JSON does; a number that a text was filled with is equal to the
// number. (In Ironic it is not, so that every such condition fails unless it is quoted.)
func sameValue(a, b any) bool {
	if x, y, ok := bothNumbers(a, b); ok {
		return x == y
	}
	return reflect.DeepEqual(a, b)
}

// bothNumbers reads both as numbers if one of them is a number and the other one can be read as one.
func bothNumbers(a, b any) (x, y float64, ok bool) {
	x, isX := a.(float64)
	y, isY := b.(float64)
	var err error
	switch {
	case isX && isY:
		return x, y, true
	case isX:
		word, isText := b.(string)
		y, err = strconv.ParseFloat(word, 64)
		return x, y, isText && err == nil
	case isY:
		word, isText := a.(string)
		x, err = strconv.ParseFloat(word, 64)
		return x, y, isText && err == nil
	}
	return 0, 0, false
}

func newComparison(want func(int) bool) func(a, b any) (bool, error) {
	return func(a, b any) (bool, error) {
		if x, y, ok := bothNumbers(a, b); ok {
			return want(cmp.Compare(x, y)), nil
		}
		x, ok1 := a.(string)
		y, ok2 := b.(string)
		if !ok1 || !ok2 {
			return false, problem.Invalidf("%.40v and %.40v have no order", a, b)
		}
		return want(strings.Compare(x, y)), nil
	}
}

func isTruthy(v any, words ...string) bool {
	switch v := v.(type) {
	case bool:
		return v
	case float64:
		return v != 0
	case string:
		return slices.Contains(words, strings.ToLower(v))
	}
	return false
}

func isFalsy(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case float64:
		return v == 0
	case string:
		return slices.Contains([]string{"no", "false"}, strings.ToLower(v))
	}
	return false
}

// ruleRegex compiles an expression. They are RE2: those of Python that look around are refused.
func ruleRegex(v any) (*regexp.Regexp, error) {
	text, ok := v.(string)
	if !ok || text == "" || len(text) > 1000 {
		return nil, problem.Invalidf("regex must be a string of 1 to 1000 characters")
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, problem.Invalidf("invalid regular expression: %.200v", err)
	}
	return re, nil
}

// matchesWholeRegex wants the expression to be the whole text.
func matchesWholeRegex(a Object) (bool, error) {
	text, _ := a["regex"].(string)
	if _, err := ruleRegex(text); err != nil {
		return false, err
	}
	re, err := ruleRegex("^(?:" + strings.TrimSuffix(text, "$") + ")$")
	if err != nil { // the end that was taken off had a meaning: \$
		if re, err = ruleRegex("^(?:" + text + ")$"); err != nil {
			return false, err
		}
	}
	return re.MatchString(pythonText(a["value"])), nil
}

func matchesRegex(a Object) (bool, error) {
	re, err := ruleRegex(a["regex"])
	if err != nil {
		return false, err
	}
	return re.MatchString(pythonText(a["value"])), nil
}

func inNet(a Object) (bool, error) {
	subnet := pythonText(a["subnet"])
	if !strings.Contains(subnet, "/") {
		if one, err := netip.ParseAddr(subnet); err == nil {
			subnet += "/" + strconv.Itoa(one.BitLen())
		}
	}
	network, err := netip.ParsePrefix(subnet)
	if err != nil {
		return false, problem.Invalidf("invalid subnet %.60q", subnet)
	}
	address, err := netip.ParseAddr(pythonText(a["address"]))
	if err != nil {
		return false, problem.Invalidf("invalid address %.60q", pythonText(a["address"]))
	}
	return network.Contains(address.Unmap()) || network.Contains(address), nil
}
