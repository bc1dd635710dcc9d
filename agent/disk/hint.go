package disk

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"salvor/problem"
	wire "salvor/wire/agent"
)

// smallest is the least disk that is taken without hints, as in the real agent.
const smallest = 4 * gibi

const maxHint = 1024

// Hints are a node's properties.root_device, or an entry of skip_block_devices.
type Hints map[string]hint

// hint is one condition: operator and the values that it compares with.
type hint struct {
	op     string
	values []string
}

type hintKind int

const (
	textHint hintKind = iota
	sizeHint
	boolHint
)

// field tells how a hint is compared and what of the disk it means.
type field struct {
	kind hintKind
	of   func(wire.Disk) *string
}

var fields = map[string]field{
	"size":                 {kind: sizeHint},
	"rotational":           {kind: boolHint},
	"name":                 {of: func(d wire.Disk) *string { return &d.Name }},
	"model":                {of: func(d wire.Disk) *string { return &d.Model }},
	"vendor":               {of: func(d wire.Disk) *string { return d.Vendor }},
	"serial":               {of: func(d wire.Disk) *string { return d.Serial }},
	"wwn":                  {of: func(d wire.Disk) *string { return d.WWN }},
	"wwn_with_extension":   {of: func(d wire.Disk) *string { return d.WWNWithExtension }},
	"wwn_vendor_extension": {of: func(d wire.Disk) *string { return d.WWNVendorExtension }},
	"hctl":                 {of: func(d wire.Disk) *string { return d.HCTL }},
	"by_path":              {of: func(d wire.Disk) *string { return d.ByPath }},
}

// operators of the grammar, longest first where one begins another. "int" before a
// numeric one is taken too.
var operators = []string{"<all-in>", "<range-in>", "<or>", "<in>", "s==", "s!=", "s<=", "s>=", "s<", "s>", "==", "!=", "<=", ">=", "="}

// ParseHints reads the object {"size": ">= 40", "rotational": false, ...}.
func ParseHints(raw map[string]any) (Hints, error) {
	hints := Hints{}
	for name, value := range raw {
		f, ok := fields[name]
		if !ok {
			return nil, problem.Invalidf("root device hints: %.60q is no hint; hints are %s", name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		text, err := hintText(value)
		if err != nil {
			return nil, problem.Invalidf("root device hint %s: %w", name, err)
		}
		h, err := parseHint(f.kind, text)
		if err != nil {
			return nil, problem.Invalidf("root device hint %s: %w", name, err)
		}
		hints[name] = h
	}
	return hints, nil
}

func hintText(value any) (string, error) {
	switch v := value.(type) {
	case string:
		if strings.TrimSpace(v) == "" || len(v) > maxHint {
			return "", problem.Invalidf("want a text of 1 to %d bytes", maxHint)
		}
		return strings.ToLower(strings.TrimSpace(v)), nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case json.Number:
		return v.String(), nil
	case int:
		return strconv.Itoa(v), nil
	}
	return "", problem.Invalidf("%T is no text, number or boolean", value)
}

func parseHint(kind hintKind, text string) (hint, error) {
	if kind == boolHint {
		switch text {
		case "1", "t", "true", "on", "y", "yes":
			return hint{values: []string{"true"}}, nil
		case "0", "f", "false", "off", "n", "no":
			return hint{values: []string{"false"}}, nil
		}
		return hint{}, problem.Invalidf("%.60q is no boolean", text)
	}
	op, rest := splitOperator(text)
	h := hint{op: op, values: []string{rest}}
	switch op {
	case "":
		h.op = "s=="
		if kind == sizeHint {
			h.op = "=="
		}
	case "<or>", "<all-in>":
		h.values = nil
		for _, v := range strings.Split(rest, op) {
			h.values = append(h.values, strings.TrimSpace(v))
		}
	case "<range-in>":
		return hint{}, problem.Invalidf("<range-in> is not taken: use >= and <=")
	}
	for _, v := range h.values {
		if v == "" {
			return hint{}, problem.Invalidf("an operator without a value")
		}
		if n, err := strconv.ParseFloat(v, 64); numeric(h.op, kind) && (err != nil || n <= 0) {
			return hint{}, problem.Invalidf("%.60q is no positive number", v)
		}
	}
	return h, nil
}

func numeric(op string, kind hintKind) bool {
	return kind == sizeHint || slices.Contains([]string{"=", "==", "!=", "<=", ">="}, op)
}

// splitOperator cuts the operator off; one that follows white space only counts there.
func splitOperator(text string) (op, rest string) {
	if after, ok := strings.CutPrefix(text, "int "); ok {
		text = strings.TrimSpace(after)
	}
	for _, o := range operators {
		if after, ok := strings.CutPrefix(text, o); ok {
			return o, strings.TrimSpace(after)
		}
	}
	return "", text
}

// Match tells whether all hints are true of a disk, and which is not.
func (h Hints) Match(d wire.Disk) (bool, string) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !h[name].match(fields[name], d) {
			return false, name
		}
	}
	return true, ""
}

func (h hint) match(f field, d wire.Disk) bool {
	switch f.kind {
	case boolHint:
		return strconv.FormatBool(d.Rotational) == h.values[0]
	case sizeHint:
		return h.compareNumber(float64(d.Size) / gibi)
	}
	text := f.of(d)
	if text == nil || strings.TrimSpace(*text) == "" {
		return false
	}
	is := strings.ToLower(strings.TrimSpace(*text))
	first := h.values[0]
	switch h.op {
	case "<or>":
		return slices.Contains(h.values, is)
	case "<all-in>":
		return !slices.ContainsFunc(h.values, func(v string) bool { return !strings.Contains(is, v) })
	case "<in>":
		return strings.Contains(is, first)
	case "s==":
		return is == first
	case "s!=":
		return is != first
	case "s<":
		return is < first
	case "s<=":
		return is <= first
	case "s>":
		return is > first
	case "s>=":
		return is >= first
	}
	n, err := strconv.ParseFloat(is, 64)
	return err == nil && h.compareNumber(n)
}

func (h hint) compareNumber(is float64) bool {
	want := make([]float64, len(h.values))
	for i, v := range h.values {
		want[i], _ = strconv.ParseFloat(v, 64) // checked by parseHint
	}
	switch h.op {
	case "==", "s==":
		return is == want[0]
	case "!=", "s!=":
		return is != want[0]
	case "<=", "s<=":
		return is <= want[0]
	case "=", ">=", "s>=": // a lone = has always meant at least
		return is >= want[0]
	case "s<":
		return is < want[0]
	case "s>":
		return is > want[0]
	case "<or>", "<in>", "<all-in>":
		return slices.Contains(want, is)
	}
	return false
}

// Choose gives the disk that a system goes to: the first that all hints fit, without
// hints the smallest of 4 GiB and more. problem.NotFound says what was there.
func Choose(disks []Found, h Hints) (Found, error) {
	usable := slices.DeleteFunc(slices.Clone(disks), func(d Found) bool { return d.ReadOnly })
	if len(h) > 0 {
		var missed []string
		for _, d := range usable {
			ok, hint := h.Match(d.Disk)
			if ok {
				return d, nil
			}
			missed = append(missed, fmt.Sprintf("%s (%s)", d.Name, hint))
		}
		return Found{}, problem.NotFoundf("no disk fits the root device hints; disks and the hint that each misses: %s", none(missed))
	}
	slices.SortStableFunc(usable, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name))
	})
	var small []string
	for _, d := range usable {
		if d.Size >= smallest {
			return d, nil
		}
		small = append(small, fmt.Sprintf("%s (%d MiB)", d.Name, d.Size/mebi))
	}
	return Found{}, problem.NotFoundf("no disk of 4 GiB or more is there; disks: %s", none(small))
}

func none(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
