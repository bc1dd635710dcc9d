package config

import (
	"fmt"
	"slices"
	"strings"

	"salvor/problem"
)

// OptionRef names an option: [Section]Name.
type OptionRef struct{ Section, Name string }

func (r OptionRef) String() string { return "[" + r.Section + "]" + r.Name }

// ServeFlag is a flag of "salvor serve" that sets options.
type ServeFlag struct {
	Name string // without dashes
	// Sets are the options that the flag sets. A flag with two options, which is --listen, takes ADDRESS:PORT.
	Sets []OptionRef
}

// ServeFlags lists the flags of "salvor serve" that set options.
func ServeFlags() []ServeFlag {
	return []ServeFlag{
		{"listen", []OptionRef{{"api", "host_ip"}, {"api", "port"}}},
		{"database", []OptionRef{{"database", "connection"}}},
		{"state-dir", []OptionRef{{"DEFAULT", "state_path"}}},
		{"roles", []OptionRef{{"DEFAULT", "roles"}}},
		{"centre", []OptionRef{{"site", "centre"}}},
		{"site-token", []OptionRef{{"site", "token_file"}}},
	}
}

// otherNames are names that other services have for an option of the same section.
var otherNames = map[OptionRef]string{
	{"api", "host"}: "host_ip", {"api", "address"}: "host_ip", {"api", "bind_host"}: "host_ip", {"api", "listen_address"}: "host_ip",
	{"api", "bind_port"}: "port", {"api", "listen_port"}: "port",
}

// guess names what the user of an unknown option may have meant: a flag of "salvor serve", a name in the same section, and every other
// section with an option of the same name. Options of one name have different meanings, so guess does not say that the value belongs there.
func (l *configLoader) guess(sectionName, name string) string {
	var hints []string
	elsewhere := l.sectionsWith(name)
	if f := serveFlag(name); f != nil {
		set := make([]string, len(f.Sets))
		for i, o := range f.Sets {
			set[i] = o.String()
			if o.Name == name {
				elsewhere = slices.DeleteFunc(elsewhere, func(s string) bool { return s == o.Section })
			}
		}
		hints = append(hints, "the flag --"+f.Name+" sets "+joinAnd(set))
	}
	here := l.sections[sectionName].names()
	switch meant := otherNames[OptionRef{sectionName, name}]; {
	case meant != "":
		hints = append(hints, "did you mean "+meant+"?")
	case len(hints)+len(elsewhere) > 0:
	case problem.Nearest(name, here) != "":
		hints = append(hints, "did you mean "+problem.Nearest(name, here)+"?")
	default:
		hints = append(hints, "this section has: "+strings.Join(here, ", "))
	}
	if len(elsewhere) > 0 {
		for i, s := range elsewhere {
			elsewhere[i] = "[" + s + "]"
		}
		have := "has"
		if len(elsewhere) > 1 {
			have = "have"
		}
		hints = append(hints, fmt.Sprintf("%s %s an option of this name", joinAnd(elsewhere), have))
	}
	return "; " + strings.Join(hints, "; ")
}

// sectionsWith lists the sections that have an option of this name, sorted.
func (l *configLoader) sectionsWith(name string) []string {
	var out []string
	for section, s := range l.sections {
		if s.options[name] != nil {
			out = append(out, section)
		}
	}
	slices.Sort(out)
	return out
}

// serveFlag gives the flag of "salvor serve" that somebody wrote as an option: state-dir, or state_dir; nil if it is none.
func serveFlag(name string) *ServeFlag {
	for _, f := range ServeFlags() {
		if f.Name == strings.ReplaceAll(name, "_", "-") {
			return &f
		}
	}
	return nil
}

// joinAnd writes words as "a", "a and b" or "a, b and c".
func joinAnd(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
