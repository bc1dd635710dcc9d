package redfish

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// bodyMember is a member of the body of a request.
type bodyMember struct {
	name string
	// values are what it may be, the preferred first: the next is sent where the BMC refuses the one before.
	values []any
	// required: without the member the request makes no sense. Others are left out where the BMC does not take them.
	required bool
	// onDemand: the member is sent only to a BMC that says that it is missing, or that refuses the request without saying why.
	onDemand bool
}

// bodyChoice are the members that are sent, with the index of the value of each.
type bodyChoice map[string]int

func (c bodyChoice) body(members []bodyMember) map[string]any {
	body := map[string]any{}
	for _, m := range members {
		if i, sent := c[m.name]; sent {
			body[m.name] = m.values[i]
		}
	}
	return body
}

// maxBodies bounds how many bodies one request is tried with.
const maxBodies = 8

// negotiate sends a request until the BMC takes its body, which it changes as the refusals say. It gives the body that was taken. Where a
// refusal says nothing that helps, the required members alone are tried, then all members. The error is that of the first body, because
// the later ones are guesses.
func negotiate(members []bodyMember, send func(body map[string]any) error) (map[string]any, error) {
	choice := choose(members, nil, func(m bodyMember) bool { return !m.onDemand })
	var first error
	tried := map[string]bool{}
	for len(tried) < maxBodies {
		body := choice.body(members)
		tried[fmt.Sprint(body)] = true
		err := send(body)
		var refusal *bmcRefusal
		if !errors.As(err, &refusal) || !refusal.isOfBody() {
			return body, err
		}
		if first == nil {
			first = err
		}
		next := []bodyChoice{
			amend(members, choice, refusal),
			choose(members, choice, func(m bodyMember) bool { return m.required }),
			choose(members, choice, func(bodyMember) bool { return true }),
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
func choose(members []bodyMember, before bodyChoice, wanted func(bodyMember) bool) bodyChoice {
	out := bodyChoice{}
	for _, m := range members {
		if wanted(m) {
			out[m.name] = before[m.name]
		}
	}
	return out
}

// amend changes what a refusal names, if anything.
func amend(members []bodyMember, before bodyChoice, refusal *bmcRefusal) bodyChoice {
	out := maps.Clone(before)
	for _, m := range members {
		i, sent := before[m.name]
		badValue := sent && refusal.isAbout(messageValueRefused, m.name)
		switch {
		case !sent && refusal.isAbout(messageMissing, m.name):
			out[m.name] = 0
		case badValue && i+1 < len(m.values):
			out[m.name] = i + 1
		case sent && !m.required && (badValue || refusal.isAbout(messageMemberRefused, m.name)):
			delete(out, m.name)
		}
	}
	return out
}
