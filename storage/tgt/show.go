package tgt

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"salvor/problem"
)

// What tgtadm shows is indented text for people. What it holds of initiators was said by them: a line that is not as it must be is
// an error, for a connection that is overlooked would be taken for none.

// target is one target as the daemon shows it.
type target struct {
	tid     int
	name    string
	allowed []string // addresses and names
	luns    []lun
}

type lun struct {
	number int
	path   string
}

// connection is one of a target's.
type connection struct{ sid, cid, initiator, address string }

// everybody is the address that admits every initiator.
const everybody = "ALL"

// address is one that admits whoever comes from there, by any name; "": there is none.
func (x *target) address() string {
	i := slices.IndexFunc(x.allowed, func(s string) bool { return !initiatorForm.MatchString(s) })
	if i < 0 {
		return ""
	}
	return x.allowed[i]
}

func odd(line string) error {
	return problem.Unavailablef("tgtadm says %.200q, which is not understood", line)
}

// sections of a target, by their headings.
const (
	system  = "System information:"
	nexus   = "I_T nexus information:"
	units   = "LUN information:"
	account = "Account information:"
	acl     = "ACL information:"
)

var sectionOrder = []string{system, nexus, units, account, acl}

// parseTargets reads "show --mode target".
func parseTargets(text string) ([]target, error) {
	var out []target
	section := -1
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		word := strings.TrimSpace(line)
		depth := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case word == "":
		case depth == 0:
			if len(out) > 0 && section != len(sectionOrder)-1 {
				return nil, odd(line)
			}
			x, ok := heading(line)
			if !ok {
				return nil, odd(line)
			}
			out, section = append(out, x), -1
		case len(out) == 0:
			return nil, odd(line)
		case depth == 4:
			// Each heading once and in its place: none is made by what an initiator says of itself.
			if section++; section >= len(sectionOrder) || word != sectionOrder[section] {
				return nil, odd(line)
			}
		case section >= 0:
			if err := out[len(out)-1].take(sectionOrder[section], depth, word); err != nil {
				return nil, err
			}
		}
	}
	if len(out) > 0 && section != len(sectionOrder)-1 {
		return nil, problem.Unavailablef("tgtadm was cut off in the middle of target %s", out[len(out)-1].name)
	}
	return out, nil
}

// heading reads "Target 1: iqn...".
func heading(line string) (target, bool) {
	rest, ok := strings.CutPrefix(line, "Target ")
	number, name, found := strings.Cut(rest, ": ")
	tid, err := strconv.Atoi(number)
	return target{tid: tid, name: name}, ok && found && err == nil && tid > 0 && name != "" && !strings.ContainsAny(name, " \t")
}

// take reads a line of a section.
func (x *target) take(section string, depth int, word string) error {
	switch section {
	case acl:
		if depth != 8 || !binding(word) {
			return odd(word)
		}
		x.allowed = append(x.allowed, word)
	case units:
		if rest, ok := strings.CutPrefix(word, "LUN: "); ok && depth == 8 {
			n, err := strconv.Atoi(rest)
			if err != nil {
				return odd(word)
			}
			x.luns = append(x.luns, lun{number: n})
		}
		if path, ok := strings.CutPrefix(word, "Backing store path: "); ok && len(x.luns) > 0 {
			x.luns[len(x.luns)-1].path = path
		}
	}
	return nil
}

// binding tells whether a line is an address or a name that may be bound.
func binding(word string) bool {
	if word == everybody || initiatorForm.MatchString(word) {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(word, "[]")); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(strings.Trim(word, "[]"))
	return err == nil
}

// parseConnections reads "show --mode conn".
func parseConnections(text string) ([]connection, error) {
	var out []connection
	sid := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		word := strings.TrimSpace(line)
		depth := len(line) - len(strings.TrimLeft(line, " "))
		name, value, _ := strings.Cut(word, ": ")
		last := len(out) - 1
		switch {
		case word == "":
		case depth == 0 && name == "Session" && isNumber(value):
			sid = value
		case depth == 4 && name == "Connection" && isNumber(value) && sid != "":
			out = append(out, connection{sid: sid, cid: value})
		case depth == 8 && name == "Initiator" && last >= 0 && out[last].initiator == "" && initiatorForm.MatchString(value):
			out[last].initiator = value
		case depth == 8 && name == "IP Address" && last >= 0 && out[last].address == "":
			out[last].address = value
		default:
			return nil, odd(line)
		}
	}
	for _, c := range out {
		if c.initiator == "" {
			return nil, problem.Unavailablef("tgtadm does not say whose connection %s of session %s is", c.cid, c.sid)
		}
	}
	return out, nil
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}
