package refusal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Member is a member of the body of a request.
type Member struct {
	Name string
	// Values are what it may be, the preferred first: the next is sent where the BMC refuses the one before.
	Values []any
	// Required: without the member the request makes no sense. Others are left out where the BMC does not take them.
	Required bool
	// OnDemand: the member is sent only to a BMC that says that it is missing, or that refuses the request without saying why.
	OnDemand bool
}

// bodyChoice are the members that are sent, with the index of the value of each.
type bodyChoice map[string]int

func (c bodyChoice) body(members []Member) map[string]any {
	body := map[string]any{}
	for _, m := range members {
		if i, sent := c[m.Name]; sent {
			body[m.Name] = m.Values[i]
		}
	}
	return body
}

// maxBodies bounds how many bodies one request is tried with.
const maxBodies = 8

// Negotiate sends a request until the BMC takes its body, which it changes as the refusals say. It gives the body that was taken. Where a
// refusal says nothing that helps, the required members alone are tried, then all members. The error is that of the first body, because
// the later ones are guesses.
func Negotiate(members []Member, send func(body map[string]any) error) (map[string]any, error) {
	choice := choose(members, nil, func(m Member) bool { return !m.OnDemand })
	var first error
	tried := map[string]bool{}
	for len(tried) < maxBodies {
		body := choice.body(members)
		tried[fmt.Sprint(body)] = true
		err := send(body)
		var refusal *Refusal
		if !errors.As(err, &refusal) || !refusal.isOfBody() {
			return body, err
		}
		if first == nil {
			first = err
		}
		next := []bodyChoice{
			amend(members, choice, refusal),
			choose(members, choice, func(m Member) bool { return m.Required }),
			choose(members, choice, func(Member) bool { return true }),
		}
		i := slices.IndexFunc(next, func(c bodyChoice) bool { return !tried[fmt.Sprint(c.body(members))] })
		if i < 0 {
			break
		}
		choice = next[i]
	}
	return nil, first
}

// choose takes the members that wanted wants, with the values that they have in before.
func choose(members []Member, before bodyChoice, wanted func(Member) bool) bodyChoice {
	out := bodyChoice{}
	for _, m := range members {
		if wanted(m) {
			out[m.Name] = before[m.Name]
		}
	}
	return out
}

// amend changes what a refusal names, if anything.
func amend(members []Member, before bodyChoice, refusal *Refusal) bodyChoice {
	out := maps.Clone(before)
	for _, m := range members {
		i, sent := before[m.Name]
		badValue := sent && refusal.isAbout(ValueRefused, m.Name)
		switch {
		case !sent && refusal.isAbout(Lacks, m.Name):
			out[m.Name] = 0
		case badValue && i+1 < len(m.Values):
			out[m.Name] = i + 1
		case sent && !m.Required && (badValue || refusal.isAbout(MemberRefused, m.Name)):
			delete(out, m.Name)
		}
	}
	return out
}
