package access

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"salvor/problem"
)

// Rules are those of a policy file, which go over the defaults. They are exchanged as a whole while requests are served; the zero
// Rules change nothing.
type Rules struct {
	now atomic.Pointer[map[string]check]
	// texts are the expressions of now, changed the names of the rules that the last Read changed. Only the goroutine that calls Read
	// uses them.
	texts   map[string]string
	changed []string
}

// Changed names the rules that the last Read added, removed or gave another expression.
func (r *Rules) Changed() []string { return r.changed }

// common are names that policy files use, and which no request is held to by itself.
var common = map[string]string{
	"is_node_owner": "project_id:%(node.owner)s", "is_node_lessee": "project_id:%(node.lessee)s", "is_allocation_owner": "project_id:%(allocation.owner)s",
	"is_admin": "is_admin:True", "admin_api": "is_admin:True", "admin_required": "is_admin:True", "context_is_admin": "is_admin:True", "public_api": "!",
	"admin_or_owner": "is_admin:True or project_id:%(project_id)s", "default": "rule:admin_api",
	"project_admin_api": "role:admin and project_id:%(project_id)s", "project_manager_api": "role:manager and project_id:%(project_id)s",
	"project_member_api": "role:member and project_id:%(project_id)s", "project_reader_api": "role:reader and project_id:%(project_id)s",
	"project_member_or_admin": "rule:project_member_api or rule:admin_api", "project_reader_or_admin": "rule:project_reader_api or rule:admin_api",
	"system_admin_api": "role:admin and system_scope:all", "system_reader_api": "role:reader and system_scope:all",
}

// commons are the checks of common.
var commons map[string]check

func init() {
	commons = make(map[string]check, len(common))
	for name, text := range common {
		c, _, err := parseCheck(text, nil)
		if err != nil {
			panic("access: " + name + ": " + err.Error())
		}
		commons[name] = c
	}
}

// The beginnings of the names of rules that requests are held to.
const (
	bareMetal = "baremetal:"
	// ComputeRules begin the names of Nova's.
	ComputeRules = "os_compute_api:"
)

func isRule(name string) bool {
	rest, ok := strings.CutPrefix(name, bareMetal)
	return ok && Known(rest)
}

// Read takes over the text of a policy file: a flat map, in YAML or JSON, of rules' names to expressions. known tells of the names
// of other services whether requests are held to them. What is not good changes nothing and is Invalid, nor
// is it good that nothing is there where rules were: so looks a file that is just being written. Warnings are of what does nothing.
func (r *Rules) Read(text string, known func(name string) bool) (warnings []string, err error) {
	found, err := readMap(text)
	if err != nil {
		return nil, err
	}
	defined := map[string]bool{}
	for name := range found {
		defined[name] = true
	}
	if was := r.now.Load(); len(found) == 0 && was != nil && len(*was) > 0 && !strings.Contains(text, "{}") {
		return nil, problem.Invalidf("it has no rule any more: write {} to mean that")
	}
	out, uses := make(map[string]check, len(found)), map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if out[name], uses[name], err = parseCheck(found[name], defined); err != nil {
			return nil, problem.Invalidf("rule %.80s: %w", name, err)
		}
	}
	weights := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if _, err := weigh(name, uses, weights); err != nil {
			return nil, err
		}
		used := slices.ContainsFunc(slices.Collect(maps.Values(uses)), func(of []string) bool { return slices.Contains(of, name) })
		if !isRule(name) && !known(name) && common[name] == "" && !used {
			warnings = append(warnings, "no request is held to the rule "+name+": it does nothing")
		}
	}
	r.changed = nil
	for name := range found {
		if was, had := r.texts[name]; !had || was != found[name] {
			r.changed = append(r.changed, name)
		}
	}
	for name := range r.texts {
		if _, has := found[name]; !has {
			r.changed = append(r.changed, name)
		}
	}
	slices.Sort(r.changed)
	r.texts = found
	r.now.Store(&out)
	return warnings, nil
}

// maxWeight bounds how many rules an answer may have to look at.
const maxWeight = 1000

// weigh counts the rules of the file that a rule leads to, each as often as it does; a rule that leads to itself is Invalid.
func weigh(name string, uses map[string][]string, weights map[string]int) (int, error) {
	const underway = -1
	switch w, known := weights[name]; {
	case w == underway:
		return 0, problem.Invalidf("rule %.80s leads to itself", name)
	case known:
		return w, nil
	}
	weights[name] = underway
	sum := 1
	for _, next := range uses[name] {
		w, err := weigh(next, uses, weights)
		if err != nil {
			return 0, err
		}
		if sum += w; sum > maxWeight {
			return 0, problem.Invalidf("rule %.80s leads to more than %d others", name, maxWeight)
		}
	}
	weights[name] = sum
	return sum, nil
}

// of is the check of a rule of the file; nil: the file has none.
func (r *Rules) of(name string) check {
	if r == nil {
		return nil
	}
	all := r.now.Load()
	if all == nil {
		return nil
	}
	return (*all)[name]
}

// byName is what a rule says that another one names.
func (p Policy) byName(name string, q *question) bool {
	if c := p.Rules.of(name); c != nil {
		return c(q)
	}
	if c := commons[name]; c != nil {
		return c(q)
	}
	return p.byDefault(strings.TrimPrefix(name, bareMetal), q.principal, q.target)
}

// Overruled tells what the policy file says of a rule of another service than Ironic, and whether it says anything.
func (p Policy) Overruled(name string, principal Principal, t Target) (allowed, decided bool) {
	c := p.Rules.of(name)
	if c == nil || principal.Role != Scoped {
		return false, false
	}
	return c(&question{p, principal, t}), true
}

const maxRules = 2000

// readMap reads a flat map of words, as JSON if it begins so, else as the YAML that policy files are written in: a pair a line.
func readMap(text string) (map[string]string, error) {
	out := map[string]string{}
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		var words map[string]*string // null must not become the empty expression, which lets everybody in
		if err := json.Unmarshal([]byte(text), &words); err != nil || len(words) > maxRules {
			return nil, problem.Invalidf("it is no JSON object of at most %d words: %v", maxRules, err)
		}
		for name, word := range words {
			if word == nil {
				return nil, problem.Invalidf("the rule %.80s is null; one that lets everybody in is \"\"", name)
			}
			out[name] = *word
		}
		return out, nil
	}
	n := 0
	for line := range strings.Lines(text) {
		n++
		bare := strings.TrimSpace(line)
		if bare == "" || strings.HasPrefix(bare, "#") || bare == "---" || bare == "{}" {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' || line[0] == '-' {
			return nil, problem.Invalidf("line %d: want \"NAME\": \"EXPRESSION\" in one line, not indented and no list", n)
		}
		name, rest, err := scalar(bare)
		if err == nil && !strings.HasPrefix(rest, ":") {
			err = problem.Invalidf("a colon is missing after the name")
		}
		var value string
		if err == nil {
			value, rest, err = scalar(strings.TrimSpace(rest[1:]))
		}
		if err == nil && rest != "" && !strings.HasPrefix(rest, "#") {
			err = problem.Invalidf("%.40q is too much", rest)
		}
		if _, twice := out[name]; err == nil && twice {
			err = problem.Invalidf("the rule %.80s is there twice", name)
		}
		if err != nil {
			return nil, problem.Invalidf("line %d: %w", n, err)
		}
		if out[name] = value; len(out) > maxRules {
			return nil, problem.Invalidf("more than %d rules", maxRules)
		}
	}
	return out, nil
}

// scalar reads a word at the beginning of a line: in quotes, or up to a colon before a space, a comment or the end.
func scalar(s string) (word, rest string, err error) {
	if s == "" {
		return "", "", problem.Invalidf("an expression is missing; one that lets everybody in is \"\"")
	}
	if quote := s[:1]; quote == `"` || quote == "'" {
		word, rest, ok := strings.Cut(s[1:], quote)
		if !ok {
			return "", "", problem.Invalidf("a quote is not closed")
		}
		if strings.Contains(word, `\`) {
			return "", "", problem.Invalidf("a backslash has no meaning in a rule")
		}
		return word, strings.TrimSpace(rest), nil
	}
	if strings.ContainsAny(s[:1], "!@&*|>[{%") {
		return "", "", problem.Invalidf("%.40q must be in quotes", s)
	}
	end := len(s)
	for _, mark := range []string{": ", " #"} {
		if i := strings.Index(s, mark); i >= 0 && i < end {
			end = i
		}
	}
	if end == len(s) && strings.HasSuffix(s, ":") {
		end--
	}
	return strings.TrimSpace(s[:end]), strings.TrimSpace(s[end:]), nil
}
