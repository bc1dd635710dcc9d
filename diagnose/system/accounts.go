package system

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/diagnose"
)

// Files of the accounts.
const (
	passwdPath = "/etc/passwd"
	shadowPath = "/etc/shadow"
	groupPath  = "/etc/group"
)

// account is a line of /etc/passwd.
type account struct {
	name, home, shell string
	uid, gid          uint32
	line              int
	inShadow          bool // its password is in /etc/shadow
	hash              passwordHash
}

// passwordHash says what a password field holds. The field itself is not stored.
type passwordHash struct {
	empty  bool
	locked bool // begins with !: by passwd -l or usermod -L
	usable bool // a hash in a known form
	scheme string
}

// shadowEntry is a line of /etc/shadow. Days count from 1970; -1 stands for an empty field.
type shadowEntry struct {
	name                          string
	line                          int
	hash                          passwordHash
	changed, most, inactive, ends int
}

// brokenEntry is a line that the C library skips.
type brokenEntry struct {
	name string // as far as it can be known
	line int
	why  string
}

// parsePasswd parses /etc/passwd; entries of NIS are left out.
func parsePasswd(lines []string) (all []account, broken []brokenEntry) {
	for i, text := range lines {
		if skipsEntry(text) {
			continue
		}
		fields := strings.Split(text, ":")
		if len(fields) != 7 {
			broken = append(broken, brokenEntry{fields[0], i + 1, "it has " + strconv.Itoa(len(fields)) + " fields and not 7"})
			continue
		}
		uid, err1 := strconv.ParseUint(fields[2], 10, 32)
		gid, err2 := strconv.ParseUint(fields[3], 10, 32)
		switch {
		case fields[0] == "":
			broken = append(broken, brokenEntry{"", i + 1, "it has no name"})
		case err1 != nil || err2 != nil:
			broken = append(broken, brokenEntry{fields[0], i + 1, "its user or group id is no number"})
		default:
			all = append(all, account{
				name: fields[0], uid: uint32(uid), gid: uint32(gid), home: fields[5], shell: fields[6], line: i + 1,
				inShadow: fields[1] == "x", hash: parseHash(fields[1]),
			})
		}
	}
	return all, broken
}

// skipsEntry: blank lines, comments and entries of NIS are no accounts.
func skipsEntry(text string) bool {
	text = strings.TrimSpace(text)
	return text == "" || text[0] == '#' || text[0] == '+' || text[0] == '-'
}

// parseShadow parses /etc/shadow.
func parseShadow(lines []string) (all []shadowEntry, broken []brokenEntry) {
	for i, text := range lines {
		if skipsEntry(text) {
			continue
		}
		fields := strings.Split(text, ":")
		if len(fields) != 9 || fields[0] == "" {
			broken = append(broken, brokenEntry{fields[0], i + 1, "it has " + strconv.Itoa(len(fields)) + " fields and not 9"})
			continue
		}
		e := shadowEntry{name: fields[0], line: i + 1, hash: parseHash(fields[1])}
		bad := false
		for n, into := range map[int]*int{2: &e.changed, 4: &e.most, 6: &e.inactive, 7: &e.ends} {
			*into = -1
			if fields[n] == "" {
				continue
			}
			v, err := strconv.ParseInt(fields[n], 10, 32)
			bad = bad || err != nil
			*into = int(v)
		}
		if bad {
			broken = append(broken, brokenEntry{fields[0], i + 1, "one of its days is no number"})
			continue
		}
		all = append(all, e)
	}
	return all, broken
}

// parseHash looks at the form of a password field.
func parseHash(field string) passwordHash {
	switch {
	case field == "":
		return passwordHash{empty: true}
	case field[0] == '!':
		return passwordHash{locked: true}
	case field[0] == '$':
		scheme, rest, found := strings.Cut(field[1:], "$")
		if !found || len(scheme) > 8 || len(rest) < 8 {
			return passwordHash{}
		}
		return passwordHash{usable: true, scheme: scheme}
	case len(field) == 13 && isCryptText(field): // DES
		return passwordHash{usable: true, scheme: "des"}
	case len(field) == 20 && field[0] == '_' && isCryptText(field[1:]): // BSDi
		return passwordHash{usable: true, scheme: "_"}
	}
	return passwordHash{}
}

func isCryptText(text string) bool {
	return strings.Trim(text, "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == ""
}

// userGroup is a line of /etc/group.
type userGroup struct {
	name    string
	gid     uint32
	members []string
}

// parseGroups parses /etc/group.
func parseGroups(lines []string) (all []userGroup, broken []brokenEntry) {
	for i, text := range lines {
		if skipsEntry(text) {
			continue
		}
		fields := strings.Split(text, ":")
		if len(fields) != 4 || fields[0] == "" {
			broken = append(broken, brokenEntry{fields[0], i + 1, "it has " + strconv.Itoa(len(fields)) + " fields and not 4"})
			continue
		}
		gid, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			broken = append(broken, brokenEntry{fields[0], i + 1, "its group id is no number"})
			continue
		}
		all = append(all, userGroup{fields[0], uint32(gid), strings.Split(fields[3], ",")})
	}
	return all, broken
}

// nonLoginShells are programs that end a login at once.
var nonLoginShells = strings.Fields("nologin false sync halt shutdown true git-shell")

// logsIn says whether the account has a shell for people.
func (a *account) logsIn() bool {
	at := strings.LastIndexByte(a.shell, '/')
	return !slices.Contains(nonLoginShells, a.shell[at+1:])
}

// dayOf counts the days since 1970, as /etc/shadow does; -1 for an unknown time.
func dayOf(now time.Time) int {
	if now.IsZero() {
		return -1
	}
	return int(now.Unix() / 86400)
}

// expired says why no login is possible any more on a day; empty where one is.
func (e *shadowEntry) expired(day int) string {
	switch {
	case day < 0:
		return ""
	case e.ends >= 0 && day >= e.ends:
		return "the account expired on " + dayText(e.ends)
	case e.changed > 0 && e.most >= 0 && e.inactive >= 0 && day-e.changed > e.most+e.inactive:
		return "the password expired on " + dayText(e.changed+e.most) + ", and the days in which it could still be changed are over"
	}
	return ""
}

// mustChange says why the next login has to change the password; empty where it has not.
func (e *shadowEntry) mustChange(day int) string {
	switch {
	case e.changed == 0:
		return "the password has to be changed at the next login"
	case day >= 0 && e.changed > 0 && e.most >= 0 && day-e.changed > e.most:
		return "the password expired on " + dayText(e.changed+e.most)
	}
	return ""
}

func dayText(day int) string { return time.Unix(int64(day)*86400, 0).UTC().Format(time.DateOnly) }

// firstUserID is the least id of people's accounts by /etc/login.defs.
func firstUserID(tree *diagnose.Tree) uint32 {
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
