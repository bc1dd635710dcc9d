package config

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/diagnose"
)

// AccessRule is a line of pam_access's file.
type AccessRule struct {
	Grants         bool
	Users, Origins []string
	Line           int
	Text           string
}

// ReadAccessRules reads a file of pam_access. Lines that pam_access skips are left out.
func ReadAccessRules(tree *diagnose.Tree, file string) []AccessRule {
	return diagnose.Once(tree, "access "+file, func() []AccessRule { return parseAccessRules(tree.Lines(file)) })
}

func parseAccessRules(lines []string) []AccessRule {
	var out []AccessRule
	for i, line := range lines {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.SplitN(line, ":", 3)
		if len(fields) != 3 {
			continue
		}
		if len(out) >= MaxTableLines {
			break
		}
		sign := strings.TrimSpace(fields[0])
		if sign == "+" || sign == "-" {
			out = append(out, AccessRule{sign == "+", strings.Fields(fields[1]), strings.Fields(fields[2]), i + 1, strings.TrimSpace(line)})
		}
	}
	return out
}

// RefusingRule returns the rule by which pam_access refuses an account from every place outside of the machine; nil where it lets the account in
// from somewhere, or where a netgroup decides.
func RefusingRule(rules []AccessRule, a *Account, groups []string) *AccessRule {
	user := func(word string) answer {
		switch {
		case word == "ALL" || word == a.Name:
			return yes
		case strings.HasPrefix(word, "@"):
			return unknown
		case slices.Contains(groups, strings.Trim(word, "()")):
			return yes
		}
		return no
	}
	origin := func(word string) answer {
		switch {
		case word == "ALL":
			return yes
		case slices.Contains([]string{"LOCAL", "cron", "crond", ":0", "127.0.0.1", "::1", "localhost"}, word) || strings.HasPrefix(word, "tty"):
			return no
		}
		return unknown
	}
	for i := range rules {
		who, from := exceptList(rules[i].Users, user), exceptList(rules[i].Origins, origin)
		switch {
		case who == no || from == no:
		case rules[i].Grants:
			return nil
		case who == yes && from == yes:
			return &rules[i]
		}
	}
	return nil
}

// exceptList applies a list of words such as "ALL EXCEPT root" to what is.
func exceptList(words []string, is func(string) answer) answer {
	at := slices.Index(words, "EXCEPT")
	if at >= 0 {
		in, out := exceptList(words[:at], is), exceptList(words[at+1:], is)
		switch {
		case in == no || out == yes:
			return no
		case in == yes && out == no:
			return yes
		}
		return unknown
	}
	result := no
	for _, word := range words {
		switch is(word) {
		case yes:
			return yes
		case unknown:
			result = unknown
		}
	}
	return result
}

// timeDays are the days of pam_time's file, as bits from Sunday on.
var timeDays = map[string]int{"Su": 1, "Mo": 2, "Tu": 4, "We": 8, "Th": 16, "Fr": 32, "Sa": 64, "Wk": 62, "Wd": 65, "Al": 127}

// TimeRule is a line of pam_time's file.
type TimeRule struct {
	Services, Terminals, Users, Times string
	Line                              int
	Text                              string
	never                             bool // no minute of any week satisfies it
}

// ReadTimeRules reads pam_time's file.
func ReadTimeRules(tree *diagnose.Tree) []TimeRule {
	return diagnose.Once(tree, "times", func() []TimeRule { return parseTimeRules(tree.Lines("/etc/security/time.conf")) })
}

func parseTimeRules(lines []string) []TimeRule {
	var out []TimeRule
	for i := 0; i < len(lines) && len(out) < MaxTableLines; i++ {
		at, text := i+1, ""
		text, i = JoinLines(lines, i, Unchanged)
		text, _, _ = strings.Cut(text, "#")
		fields := strings.Split(strings.Join(strings.Fields(text), ""), ";")
		if len(fields) == 4 {
			r := TimeRule{fields[0], fields[1], fields[2], fields[3], at, strings.TrimSpace(text), false}
			r.never = r.isNever()
			out = append(out, r)
		}
	}
	return out
}

// IsForAccount says whether a rule is about a service, a terminal such as ssh, and a user.
func (r *TimeRule) IsForAccount(service, terminal, user string) bool {
	return logicList(r.Services, matchesName(service)) && logicList(r.Terminals, matchesName(terminal)) && logicList(r.Users, matchesName(user))
}

// IsNever says whether no minute of any week satisfies the rule.
func (r *TimeRule) IsNever() bool { return r.never }

// maxTimes bounds the text of the times that are tried minute by minute.
const maxTimes = 200

// isNever tries the minutes of a week, of which it takes each fifth. Words that are no times count as always.
func (r *TimeRule) isNever() bool {
	if len(r.Times) > maxTimes {
		return false
	}
	for day := range 7 {
		for minute := 0; minute < 24*60; minute += 5 {
			if logicList(r.Times, func(word string) bool { return isInTime(word, time.Weekday(day), minute) }) {
				return false
			}
		}
	}
	return true
}

// isInTime says whether a minute of a day lies in a time such as Wk0800-1800.
func isInTime(word string, day time.Weekday, minute int) bool {
	days := 0
	for len(word) >= 2 && timeDays[word[:2]] != 0 {
		days ^= timeDays[word[:2]]
		word = word[2:]
	}
	from, to, found := strings.Cut(word, "-")
	begin, err1 := strconv.Atoi(from)
	end, err2 := strconv.Atoi(to)
	if !found || err1 != nil || err2 != nil {
		return true
	}
	begin, end = begin/100*60+begin%100, end/100*60+end%100
	if begin < end {
		return days&(1<<day) != 0 && minute >= begin && minute < end
	}
	return days&(1<<day) != 0 && minute >= begin || days&(1<<((day+6)%7)) != 0 && minute < end
}

func matchesName(name string) func(string) bool {
	return func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return matched && err == nil
	}
}

// logicList applies a list such as "a&!b|c" to what is, from left to right.
func logicList(list string, is func(string) bool) bool {
	result, or := true, false
	for list != "" {
		at := strings.IndexAny(list, "&|")
		word, sign := list, byte(0)
		if at >= 0 {
			word, sign, list = list[:at], list[at], list[at+1:]
		} else {
			list = ""
		}
		plain, negated := strings.CutPrefix(word, "!")
		holds := is(plain) != negated
		if or {
			result = result || holds
		} else {
			result = result && holds
		}
		or = sign == '|'
	}
	return result
}

// ReadLimit returns the hard limit that pam_limits sets for an account: of the items, the last line of the strongest kind of name counts. set is
// false where no line names the item for the account.
func ReadLimit(tree *diagnose.Tree, a *Account, groups []string, item string) (value int, at diagnose.Evidence, set bool) {
	strength := 0
	for _, l := range diagnose.Once(tree, "limits", func() []limitLine { return readLimits(tree) }) {
		if l.item != item {
			continue
		}
		kind, group := 0, strings.TrimLeft(l.domain, "@%")
		switch {
		case l.domain == a.Name:
			kind = 3
		case l.domain != group && slices.Contains(groups, group):
			kind = 2
		case l.domain == "*" && a.UID != 0: // the wildcard is not for root
			kind = 1
		}
		if kind == 0 || kind < strength {
			continue
		}
		n, err := strconv.Atoi(l.value)
		strength, set = kind, err == nil
		value, at = n, FileEvidence(l.file, l.line, l.text)
	}
	return value, at, set
}

// limitLine is a line of pam_limits that sets a hard limit.
type limitLine struct {
	domain, item, value, text, file string
	line                            int
}

// readLimits reads the files of pam_limits.
func readLimits(tree *diagnose.Tree) []limitLine {
	var out []limitLine
	for _, file := range append([]string{"/etc/security/limits.conf"}, tree.Match("/etc/security/limits.d", "*.conf")...) {
		for i, line := range tree.Lines(file) {
			line, _, _ = strings.Cut(line, "#")
			fields := strings.Fields(line)
			if len(fields) == 4 && (fields[1] == "hard" || fields[1] == "-") && len(out) < MaxTableLines {
				out = append(out, limitLine{fields[0], fields[2], fields[3], strings.Join(fields, " "), file, i + 1})
			}
		}
	}
	return out
}
