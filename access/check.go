package access

import (
	"regexp"
	"slices"
	"strings"

	"salvor/problem"
)

// check is an expression of oslo.policy's language: role:member and project_id:%(node.owner)s or rule:is_admin.
type check func(q *question) bool

// question is what a check is asked about.
type question struct {
	policy    Policy
	principal Principal
	target    Target
}

// What keeps a hostile or mistaken file from costing much.
const (
	maxRuleText  = 8 << 10
	maxRuleDepth = 50
)

// parser reads one expression; it has a token of lookahead.
type parser struct {
	words []string
	rules map[string]bool // those of the file
	uses  []string        // of the expression
	depth int
}

// parseCheck reads an expression, and tells which other rules it names. defined are the rules of the file.
func parseCheck(text string, defined map[string]bool) (check, []string, error) {
	if len(text) > maxRuleText {
		return nil, nil, problem.Invalidf("it is longer than %d bytes", maxRuleText)
	}
	p := &parser{words: wordsOf(text), rules: defined}
	if len(p.words) == 0 { // as oslo.policy has it
		return always, nil, nil
	}
	c, err := p.or()
	if err == nil && len(p.words) > 0 {
		err = problem.Invalidf("%.40q is not expected there", p.words[0])
	}
	return c, p.uses, err
}

func always(*question) bool { return true }

// wordsOf takes parentheses at the ends of words for words of their own; those of %(...)s are not at an end.
func wordsOf(text string) []string {
	var out []string
	for _, word := range strings.Fields(text) {
		for strings.HasPrefix(word, "(") {
			out, word = append(out, "("), word[1:]
		}
		closed := 0
		for strings.HasSuffix(word, ")") {
			word, closed = word[:len(word)-1], closed+1
		}
		if word != "" {
			out = append(out, word)
		}
		out = append(out, slices.Repeat([]string{")"}, closed)...)
	}
	return out
}

// take gives the next word if it is this one, in any case.
func (p *parser) take(word string) bool {
	if len(p.words) > 0 && strings.EqualFold(p.words[0], word) {
		p.words = p.words[1:]
		return true
	}
	return false
}

func (p *parser) or() (check, error) {
	left, err := p.and()
	for err == nil && p.take("or") {
		var right check
		a := left
		if right, err = p.and(); err == nil {
			left = func(q *question) bool { return a(q) || right(q) }
		}
	}
	return left, err
}

func (p *parser) and() (check, error) {
	left, err := p.not()
	for err == nil && p.take("and") {
		var right check
		a := left
		if right, err = p.not(); err == nil {
			left = func(q *question) bool { return a(q) && right(q) }
		}
	}
	return left, err
}

func (p *parser) not() (check, error) {
	if p.depth++; p.depth > maxRuleDepth {
		return nil, problem.Invalidf("it is nested more than %d deep", maxRuleDepth)
	}
	defer func() { p.depth-- }()
	switch {
	case p.take("not"):
		c, err := p.not()
		return func(q *question) bool { return !c(q) }, err
	case p.take("("):
		c, err := p.or()
		if err == nil && !p.take(")") {
			err = problem.Invalidf("a parenthesis is not closed")
		}
		return c, err
	case len(p.words) == 0:
		return nil, problem.Invalidf("it ends where a check is expected")
	}
	word := p.words[0]
	p.words = p.words[1:]
	return p.atom(word)
}

// credential are the words of who asks that a check may compare.
var credential = map[string]func(Principal) string{
	"project_id": func(w Principal) string { return w.Scope.Project }, "tenant_id": func(w Principal) string { return w.Scope.Project },
	"project_name": func(w Principal) string { return w.Scope.ProjectName }, "project_domain_id": func(w Principal) string { return w.Scope.ProjectDomain },
	"domain_id": func(w Principal) string { return w.Scope.Domain }, "user_name": userName,
	"system_scope": func(w Principal) string {
		if w.Scope.System {
			return "all"
		}
		return ""
	},
	"is_admin":      func(w Principal) string { return pythonBool(w.Rank(false) == Oversight) },
	"is_public_api": func(Principal) string { return "False" },
}

// userName is the name of a user that nobody but an administrator of all gave: names of tokens of a project are chosen by whoever
// administers that, so theirs have the project before them.
func userName(w Principal) string {
	if w.Scope.Project != "" && strings.HasPrefix(w.UserID, tokenUser) {
		return w.Scope.ProjectName + "/" + w.User
	}
	return w.User
}

func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// attribute are the words of the object that a check may name as %(...)s.
var attribute = map[string]func(Target) string{
	"node.owner": func(t Target) string { return t.Owner }, "node.lessee": func(t Target) string { return t.Lessee },
	"allocation.owner": func(t Target) string { return t.Owner }, "runbook.owner": func(t Target) string { return t.Owner },
	"project_id": func(t Target) string { return t.Owner }, "tenant_id": func(t Target) string { return t.Owner },
}

var ofTarget = regexp.MustCompile(`^%\(([a-z_.]+)\)s$`)

func (p *parser) atom(word string) (check, error) {
	kind, match, ok := strings.Cut(word, ":")
	switch {
	case word == "@":
		return always, nil
	case word == "!":
		return func(*question) bool { return false }, nil
	case !ok || kind == "" || match == "":
		return nil, problem.Invalidf("%.60q is no check: want KIND:VALUE, as role:member or rule:is_admin, or @ or !", word)
	case kind == "role":
		return func(q *question) bool { return slices.Contains(q.principal.Scope.Roles, strings.ToLower(match)) }, nil
	case kind == "rule":
		if !p.rules[match] && !isRule(match) && common[match] == "" {
			return nil, problem.Invalidf("there is no rule %.80q", match)
		}
		p.uses = append(p.uses, match)
		return func(q *question) bool { return q.policy.byName(match, q) }, nil
	}
	var left func(Principal) string
	if literal, quoted := strings.CutPrefix(kind, "'"); quoted {
		literal = strings.TrimSuffix(literal, "'")
		left = func(Principal) string { return literal }
	} else if left = credential[kind]; left == nil {
		return nil, problem.Invalidf("%.60q: nobody who asks has a %.40q", word, kind)
	}
	if m := ofTarget.FindStringSubmatch(match); m != nil {
		of := attribute[m[1]]
		if of == nil {
			return nil, problem.Invalidf("%.60q: no object has a %.40q", word, m[1])
		}
		return func(q *question) bool { // what is not there equals nothing
			have := left(q.principal)
			return have != "" && have == of(q.target)
		}, nil
	}
	return func(q *question) bool { return left(q.principal) == match }, nil
}
