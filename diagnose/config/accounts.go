package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/diagnose"
)

// Files of the accounts.
const (
	PasswdPath = "/etc/passwd"
	ShadowPath = "/etc/shadow"
	GroupPath  = "/etc/group"
)

// Account is a line of /etc/passwd.
type Account struct {
	Name, Home, Shell string
	UID, GID          uint32
	Line              int
	InShadow          bool // its password is in /etc/shadow
	ReturnAtEnd       bool // the line ends with a carriage return, which the C library takes for a part of the shell's name
	Hash              PasswordHash
}

// PasswordHash says what a password field holds. The field itself is not stored.
type PasswordHash struct {
	Empty  bool
	Locked bool // begins with !: by passwd -l or usermod -L
	Usable bool // a hash in a known form
	Scheme string
}

// ShadowEntry is a line of /etc/shadow. Days count from 1970; -1 stands for an empty field.
type ShadowEntry struct {
	Name                          string
	Line                          int
	Hash                          PasswordHash
	changed, most, inactive, Ends int
}

// BrokenEntry is a line that the C library skips.
type BrokenEntry struct {
	Name string // as far as it can be known
	Line int
	Why  string
}

// ParsePasswd parses /etc/passwd; entries of NIS are left out.
func ParsePasswd(lines []string) (all []Account, broken []BrokenEntry) {
	for i, text := range lines {
		if skipsEntry(text) {
			continue
		}
		fields := strings.Split(text, ":")
		if len(fields) != 7 {
			broken = append(broken, BrokenEntry{fields[0], i + 1, "it has " + strconv.Itoa(len(fields)) + " fields and not 7"})
			continue
		}
		uid, err1 := strconv.ParseUint(fields[2], 10, 32)
		gid, err2 := strconv.ParseUint(fields[3], 10, 32)
		switch {
		case fields[0] == "":
			broken = append(broken, BrokenEntry{"", i + 1, "it has no name"})
		case err1 != nil || err2 != nil:
			broken = append(broken, BrokenEntry{fields[0], i + 1, "its user or group id is no number"})
		default:
			all = append(all, Account{
				Name: fields[0], UID: uint32(uid), GID: uint32(gid), Home: fields[5], Shell: fields[6], Line: i + 1,
				InShadow: fields[1] == "x", Hash: parseHash(fields[1]),
			})
		}
	}
	return all, broken
}

// ReadAccounts parses /etc/passwd of a system. Unlike Tree.Lines, the C library drops no carriage return.
func ReadAccounts(tree *diagnose.Tree) []Account {
	text, err := tree.Read(PasswdPath)
	if err != nil {
		return nil
	}
	all, _ := ParsePasswd(strings.Split(string(text), "\n"))
	for i := range all {
		all[i].Shell, all[i].ReturnAtEnd = strings.CutSuffix(all[i].Shell, "\r")
	}
	return all
}

// skipsEntry: blank lines, comments and entries of NIS are no accounts.
func skipsEntry(text string) bool {
	text = strings.TrimSpace(text)
	return text == "" || text[0] == '#' || text[0] == '+' || text[0] == '-'
}

// ParseShadow parses /etc/shadow.
func ParseShadow(lines []string) (all []ShadowEntry, broken []BrokenEntry) {
	for i, text := range lines {
		if skipsEntry(text) {
			continue
		}
		fields := strings.Split(text, ":")
		if len(fields) != 9 || fields[0] == "" {
			broken = append(broken, BrokenEntry{fields[0], i + 1, "it has " + strconv.Itoa(len(fields)) + " fields and not 9"})
			continue
		}
		e := ShadowEntry{Name: fields[0], Line: i + 1, Hash: parseHash(fields[1])}
		bad := false
		for n, into := range map[int]*int{2: &e.changed, 4: &e.most, 6: &e.inactive, 7: &e.Ends} {
			*into = -1
			if fields[n] == "" {
				continue
			}
			v, err := strconv.ParseInt(fields[n], 10, 32)
			bad = bad || err != nil
			*into = int(v)
		}
		if bad {
			broken = append(broken, BrokenEntry{fields[0], i + 1, "one of its days is no number"})
			continue
		}
		all = append(all, e)
	}
	return all, broken
}

// parseHash looks at the form of a password field.
func parseHash(field string) PasswordHash {
	switch {
	case field == "":
		return PasswordHash{Empty: true}
	case field[0] == '!':
		return PasswordHash{Locked: true}
	case field[0] == '$':
		scheme, rest, found := strings.Cut(field[1:], "$")
		if !found || len(scheme) > 8 || len(rest) < 8 {
			return PasswordHash{}
		}
		return PasswordHash{Usable: true, Scheme: scheme}
	case len(field) == 13 && isCryptText(field): // DES
		return PasswordHash{Usable: true, Scheme: "des"}
	case len(field) == 20 && field[0] == '_' && isCryptText(field[1:]): // BSDi
		return PasswordHash{Usable: true, Scheme: "_"}
	}
	return PasswordHash{}
}

func isCryptText(text string) bool {
	return strings.Trim(text, "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == ""
}

// UserGroup is a line of /etc/group.
type UserGroup struct {
	Name    string
	GID     uint32
	Members []string
}

// ParseGroups parses /etc/group.
func ParseGroups(lines []string) (all []UserGroup, broken []BrokenEntry) {
	for i, text := range lines {
		if skipsEntry(text) {
			continue
		}
		fields := strings.Split(text, ":")
		if len(fields) != 4 || fields[0] == "" {
			broken = append(broken, BrokenEntry{fields[0], i + 1, "it has " + strconv.Itoa(len(fields)) + " fields and not 4"})
			continue
		}
		gid, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			broken = append(broken, BrokenEntry{fields[0], i + 1, "its group id is no number"})
			continue
		}
		all = append(all, UserGroup{fields[0], uint32(gid), strings.Split(fields[3], ",")})
	}
	return all, broken
}

// nonLoginShells are programs that end a login at once.
var nonLoginShells = strings.Fields("nologin false sync halt shutdown true git-shell")

// LogsIn says whether the account has a shell for people.
func (a *Account) LogsIn() bool {
	at := strings.LastIndexByte(a.Shell, '/')
	return !slices.Contains(nonLoginShells, a.Shell[at+1:])
}

// DayOf counts the days since 1970, as /etc/shadow does; -1 for an unknown time.
func DayOf(now time.Time) int {
	if now.IsZero() {
		return -1
	}
	return int(now.Unix() / 86400)
}

// Expired says why no login is possible any more on a day; empty where one is.
func (e *ShadowEntry) Expired(day int) string {
	switch {
	case day < 0:
		return ""
	case e.Ends >= 0 && day >= e.Ends:
		return "the account expired on " + dayText(e.Ends)
	case e.changed > 0 && e.most >= 0 && e.inactive >= 0 && day-e.changed > e.most+e.inactive:
		return "the password expired on " + dayText(e.changed+e.most) + ", and the days in which it could still be changed are over"
	}
	return ""
}

// MustChange says why the next login has to change the password; empty where it has not.
func (e *ShadowEntry) MustChange(day int) string {
	switch {
	case e.changed == 0:
		return "the password has to be changed at the next login"
	case day >= 0 && e.changed > 0 && e.most >= 0 && day-e.changed > e.most:
		return "the password expired on " + dayText(e.changed+e.most)
	}
	return ""
}

func dayText(day int) string { return time.Unix(int64(day)*86400, 0).UTC().Format(time.DateOnly) }

// FirstUserID is the least id of people's accounts by /etc/login.defs.
func FirstUserID(tree *diagnose.Tree) uint32 {
	for _, line := range tree.Lines("/etc/login.defs") {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "UID_MIN" {
			if n, err := strconv.ParseUint(fields[1], 10, 32); err == nil && n > 0 {
				return uint32(n)
			}
		}
	}
	return 1000
}

// BrokenAccountLines lists the lines of a file such as /etc/passwd, from 1, that the C library skips, and whether the file is one of those that
// are known.
func BrokenAccountLines(file string, lines []string) (broken []int, known bool) {
	var entries []BrokenEntry
	switch file {
	case PasswdPath:
		_, entries = ParsePasswd(lines)
	case ShadowPath:
		_, entries = ParseShadow(lines)
	case GroupPath:
		_, entries = ParseGroups(lines)
	default:
		return nil, false
	}
	for _, e := range entries {
		broken = append(broken, e.Line)
	}
	return broken, true
}
