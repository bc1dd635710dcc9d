package config

import (
	"bytes"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// valueKind says what the values of a keyword may be.
type valueKind int

const (
	anyValue    valueKind = iota // one or more arguments that are not looked at
	choice                       // one of a list
	number                       // an integer
	portNumber                   // 1 to 65535
	timeSpan                     // 2m, 1h30m, 120; "none" where words allows it
	listenValue                  // an address with or without a port
	startups                     // start:rate:full
	subsystem                    // name and command
	octal                        // a file mode
	methods                      // lists of methods of authentication
	nothing                      // anything or nothing
)

// sshdKeyword is a row of the table of keywords.
type sshdKeyword struct {
	kind   valueKind
	words  string // of a choice, separated by blanks
	global bool   // refused within a Match block
	single bool   // more than one argument is refused
}

const yesNo = "yes no"

// sshdKeywords are those of OpenSSH 8.0 to 10, with the names that it only warns of and those that distributions add.
var sshdKeywords = map[string]sshdKeyword{
	"acceptenv": {}, "addressfamily": {choice, "any inet inet6", true, true}, "allowagentforwarding": {choice, yesNo, false, true},
	"allowgroups": {}, "allowstreamlocalforwarding": {choice, "yes no all local remote", false, true},
	"allowtcpforwarding": {choice, "yes no all local remote", false, true}, "allowusers": {}, "authenticationmethods": {kind: methods},
	"authorizedkeyscommand": {}, "authorizedkeyscommanduser": {single: true}, "authorizedkeysfile": {}, "authorizedkeysfile2": {kind: nothing},
	"authorizedprincipalscommand": {}, "authorizedprincipalscommanduser": {single: true}, "authorizedprincipalsfile": {single: true},
	"banner": {single: true}, "casignaturealgorithms": {single: true}, "challengeresponseauthentication": {choice, yesNo, false, true},
	"channeltimeout": {}, "chrootdirectory": {single: true}, "ciphers": {global: true, single: true}, "clientalivecountmax": {number, "", false, true},
	"clientaliveinterval": {timeSpan, "", false, true}, "compression": {choice, "yes no delayed", true, true}, "debianbanner": {choice, yesNo, true, true},
	"denygroups": {}, "denyusers": {}, "disableforwarding": {choice, yesNo, false, true}, "dsaauthentication": {choice, yesNo, true, true},
	"exposeauthinfo": {choice, yesNo, false, true}, "fingerprinthash": {choice, "md5 sha256", true, true}, "forcecommand": {},
	"gatewayports": {choice, "yes no clientspecified", false, true}, "gssapiauthentication": {choice, yesNo, false, true},
	"gssapicleanupcredentials": {choice, yesNo, true, true}, "gssapikeyexchange": {choice, yesNo, true, true},
	"gssapistrictacceptorcheck": {choice, yesNo, true, true}, "gssapistorecredentialsonrekey": {choice, yesNo, true, true},
	"gssapikexalgorithms": {global: true, single: true}, "gssapienablek5users": {}, "gssapidelegatecredentials": {},
	"hostbasedacceptedalgorithms": {single: true}, "hostbasedacceptedkeytypes": {single: true}, "hostbasedauthentication": {choice, yesNo, false, true},
	"hostbasedusesnamefrompacketonly": {choice, yesNo, false, true}, "hostcertificate": {global: true, single: true}, "hostdsakey": {global: true, single: true},
	"hostkey": {global: true, single: true}, "hostkeyagent": {global: true, single: true}, "hostkeyalgorithms": {global: true, single: true},
	"ignorerhosts": {choice, "yes no shosts-only", false, true}, "ignoreuserknownhosts": {choice, yesNo, true, true}, "include": {}, "ipqos": {},
	"kbdinteractiveauthentication": {choice, yesNo, false, true}, "kbdinteractivelegacyinstructions": {}, "keepalive": {choice, yesNo, true, true},
	"kerberosauthentication": {}, "kerberosgetafstoken": {}, "kerberosorlocalpasswd": {}, "kerberosticketcleanup": {}, "kerberosuniqueccache": {},
	"kerberosusekuserok": {}, "kexalgorithms": {global: true, single: true}, "listenaddress": {listenValue, "", true, false},
	"logingracetime": {timeSpan, "", true, true}, "loglevel": {choice, "quiet fatal error info verbose debug debug1 debug2 debug3", false, true},
	"logverbose": {}, "macs": {global: true, single: true}, "match": {}, "maxauthtries": {number, "", false, true}, "maxsessions": {number, "", false, true},
	"maxstartups": {startups, "", true, true}, "modulifile": {global: true, single: true}, "passwordauthentication": {choice, yesNo, false, true},
	"permitemptypasswords": {choice, yesNo, false, true}, "permitlisten": {}, "permitopen": {},
	"permitrootlogin":            {choice, "yes no without-password prohibit-password forced-commands-only", false, true},
	"permittty":                  {choice, yesNo, false, true},
	"permittunnel":               {choice, "yes no ethernet point-to-point", false, true},
	"permituserenvironment":      {global: true},
	"permituserrc":               {choice, yesNo, false, true},
	"persourcemaxstartups":       {global: true, single: true},
	"persourcenetblocksize":      {global: true, single: true},
	"persourcepenalties":         {global: true},
	"persourcepenaltyexemptlist": {global: true, single: true},
	"pidfile":                    {global: true, single: true}, "port": {portNumber, "", true, true}, "printlastlog": {choice, yesNo, true, true},
	"printmotd": {choice, yesNo, true, true}, "protocol": {kind: nothing}, "pubkeyacceptedalgorithms": {single: true}, "pubkeyacceptedkeytypes": {single: true},
	"pubkeyauthentication": {choice, yesNo, false, true}, "pubkeyauthoptions": {}, "rdomain": {single: true}, "refuseconnection": {}, "rekeylimit": {},
	"requiredrsasize": {number, "", false, true}, "revokedkeys": {single: true}, "rsaminsize": {number, "", false, true}, "securitykeyprovider": {global: true, single: true},
	"setenv": {}, "showpatchlevel": {}, "skeyauthentication": {choice, yesNo, false, true}, "sshdauthpath": {global: true, single: true},
	"sshdsessionpath": {global: true, single: true}, "streamlocalbindmask": {octal, "", false, true}, "streamlocalbindunlink": {choice, yesNo, false, true},
	"strictmodes": {choice, yesNo, true, true}, "subsystem": {kind: subsystem},
	"syslogfacility":    {choice, "daemon user auth authpriv local0 local1 local2 local3 local4 local5 local6 local7", true, true},
	"tcpkeepalive":      {choice, yesNo, true, true},
	"trustedusercakeys": {single: true}, "unusedconnectiontimeout": {timeSpan, "none", false, true}, "usedns": {choice, yesNo, true, true},
	"usepam": {choice, yesNo, true, true}, "versionaddendum": {global: true}, "x11displayoffset": {number, "", false, true},
	"x11forwarding": {choice, yesNo, false, true}, "x11maxdisplays": {}, "x11uselocalhost": {choice, yesNo, false, true}, "xauthlocation": {global: true, single: true},
	// sshd warns of these and starts.
	"afstokenpassing": {kind: nothing}, "checkmail": {kind: nothing}, "kerberostgtpassing": {kind: nothing}, "keyregenerationinterval": {kind: nothing},
	"pamauthenticationviakbdint": {kind: nothing}, "reversemappingcheck": {kind: nothing}, "rhostsauthentication": {kind: nothing},
	"rhostsrsaauthentication": {kind: nothing}, "rsaauthentication": {kind: nothing}, "serverkeybits": {kind: nothing}, "uselogin": {kind: nothing},
	"useprivilegeseparation": {kind: nothing}, "verifyreversemapping": {kind: nothing},
}

// authenticationMethods are those that AuthenticationMethods may name.
var authenticationMethods = strings.Fields("none any publickey password keyboard-interactive hostbased gssapi-with-mic gssapi-keyex")

// matchCriteria are the attributes of a Match line.
var matchCriteria = strings.Fields("user group host localaddress localport rdomain address invalid-user version command tagged")

var (
	timeSpanPattern = regexp.MustCompile(`^([0-9]+[smhdwSMHDW]?)+$`)
	startupsPattern = regexp.MustCompile(`^[0-9]+:[0-9]+:[0-9]+$`)
)

// check says why sshd refuses a line, and how sure that is; empty where it does not.
func (c *SSHDConfig) check(s *SSHDSetting) (problem string, confidence float64) {
	kw, known := sshdKeywords[s.Keyword]
	if !known {
		for name := range sshdKeywords {
			if len(name) > 5 && editDistance(s.Keyword, name) <= 2 {
				return fmt.Sprintf("sshd knows no keyword %q; %s is near", s.Keyword, name), 0.97
			}
		}
		return fmt.Sprintf("%q is no known keyword of sshd", s.Keyword), 0.7
	}
	if s.match && kw.global {
		return s.Keyword + " is not allowed after a Match line", 0.95
	}
	if s.Keyword == "match" {
		return checkMatch(s.Args)
	}
	if kw.kind == nothing {
		return "", 0
	}
	if len(s.Args) == 0 && s.comment {
		return "", 0 // releases differ in what they make of a comment in the place of a value
	}
	if len(s.Args) == 0 || (s.Args[0] == "" && kw.kind != anyValue) {
		return s.Keyword + " has no value", 0.97
	}
	if kw.single && len(s.Args) > 1 {
		return s.Keyword + " has more than one value", 0.95
	}
	return c.checkValue(s, kw)
}

func (c *SSHDConfig) checkValue(s *SSHDSetting, kw sshdKeyword) (problem string, confidence float64) {
	value := s.Args[0]
	bad := fmt.Sprintf("%s cannot be %q", s.Keyword, value)
	switch kw.kind {
	case choice:
		words := strings.Fields(kw.words)
		if !slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, value) }) {
			return bad, 0.97
		}
	case number:
		if _, err := strconv.ParseInt(value, 0, 32); err != nil && !strings.EqualFold(value, "none") {
			return bad, 0.95
		}
	case portNumber:
		if n, err := strconv.Atoi(value); (err != nil && value != "ssh") || (err == nil && (n < 1 || n > 65535)) {
			return bad, 0.97
		}
	case timeSpan:
		if !timeSpanPattern.MatchString(value) && (kw.words == "" || !strings.EqualFold(kw.words, value)) {
			return bad, 0.95
		}
	case octal:
		if value[0] < '0' || value[0] > '7' { // what follows the digits is not looked at
			return bad, 0.95
		}
	case startups:
		if !validStartups(value) {
			return bad, 0.95
		}
	case subsystem:
		if len(s.Args) < 2 {
			return "subsystem has no command", 0.97
		}
		for _, other := range c.settings {
			// Since 9.5 a Match block may define one again.
			if other.Keyword == "subsystem" && len(other.Args) > 0 && other.Args[0] == value && other.match == s.match && !s.match {
				return fmt.Sprintf("subsystem %q is defined twice", value), 0.9
			}
		}
	case methods:
		for _, list := range s.Args {
			for method := range strings.SplitSeq(list, ",") {
				if name, _, _ := strings.Cut(method, ":"); !slices.Contains(authenticationMethods, name) {
					return fmt.Sprintf("authenticationmethods knows no %q", name), 0.95
				}
			}
		}
	case listenValue:
		if host, port, ok := SplitListen(value); !ok || (looksNumeric(host) && !isAddress(host)) || port < 0 {
			return bad, 0.95
		}
	}
	return "", 0
}

func validStartups(value string) bool {
	if !strings.Contains(value, ":") {
		return value[0] >= '1' && value[0] <= '9' // what follows the digits is not looked at
	}
	if !startupsPattern.MatchString(value) {
		return false
	}
	parts := strings.Split(value, ":")
	begin, err := strconv.Atoi(parts[0])
	if err != nil || begin < 1 {
		return false
	}
	rate, err1 := strconv.Atoi(parts[1])
	full, err2 := strconv.Atoi(parts[2])
	return err1 == nil && err2 == nil && rate >= 1 && rate <= 100 && full >= begin
}

// SplitListen splits the value of a ListenAddress; the port is 0 where none is named and -1 where it is no number.
func SplitListen(value string) (host string, port int, ok bool) {
	if a, err := netip.ParseAddr(value); err == nil {
		return a.String(), 0, true
	}
	host = value
	if inner, after, found := strings.Cut(strings.TrimPrefix(value, "["), "]"); found && value[0] == '[' {
		host, value = inner, after
		if after == "" {
			return host, 0, true
		}
	} else if strings.Count(value, ":") != 1 {
		return host, 0, strings.Count(value, ":") == 0 && value != ""
	} else {
		host, value, _ = strings.Cut(value, ":")
		value = ":" + value
	}
	n, err := strconv.Atoi(strings.TrimPrefix(value, ":"))
	if err != nil || n < 1 || n > 65535 {
		n = -1
	}
	return host, n, true
}

// looksNumeric says whether a host is written as an IPv4 address. A number without dots is one too.
func looksNumeric(host string) bool {
	return strings.Contains(host, ".") && strings.Trim(host, "0123456789.") == ""
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func checkMatch(args []string) (problem string, confidence float64) {
	if len(args) == 0 {
		return "Match has no condition", 0.95
	}
	for i := 0; i < len(args); i++ {
		name, _, withValue := strings.Cut(args[i], "=")
		name = strings.ToLower(name)
		switch {
		case name == "all" || name == "final" || name == "canonical" || name == "invalid-user":
			if name == "all" && len(args) > 1 {
				return "Match all stands with other conditions", 0.9
			}
			continue
		case !slices.Contains(matchCriteria, name):
			return fmt.Sprintf("Match knows no condition %q", name), 0.85
		}
		if !withValue {
			if i++; i >= len(args) {
				return fmt.Sprintf("the condition %s of Match has no value", name), 0.95
			}
		}
	}
	return "", 0
}

// algorithmKeywords take lists of names that the program itself has to know.
var algorithmKeywords = strings.Fields("ciphers macs kexalgorithms hostkeyalgorithms pubkeyacceptedalgorithms pubkeyacceptedkeytypes hostbasedacceptedalgorithms casignaturealgorithms")

// CompareKeywords corrects the problems by the table of keywords in the system's own sshd. A program in which that table cannot be read
// changes nothing.
func (c *SSHDConfig) CompareKeywords(program []byte) []SSHDProblem {
	has := func(keyword string) bool { return bytes.Contains(program, []byte(keyword+"\x00")) }
	if !has("permitrootlogin") || !has("authorizedkeysfile") || !has("x11displayoffset") {
		return c.Problems
	}
	var out []SSHDProblem
	for _, p := range c.Problems {
		if p.keyword == "" || !bytes.Contains(program, []byte("\x00"+p.keyword+"\x00")) {
			if p.keyword != "" {
				p.Confidence = max(p.Confidence, 0.95)
			}
			out = append(out, p)
		}
	}
	for _, s := range c.settings {
		if slices.Contains(algorithmKeywords, s.Keyword) && has("aes128-ctr") && len(s.Args) == 1 && s.Args[0] != "" && s.Args[0][0] != '-' {
			for name := range strings.SplitSeq(strings.TrimLeft(s.Args[0], "+^"), ",") {
				if !strings.ContainsAny(name, "*?!") && !has(name) {
					out = append(out, SSHDProblem{File: s.File, Line: s.Line, Text: fmt.Sprintf("the installed release of sshd knows no %q for %s", name, s.Keyword), Confidence: 0.9})
					break
				}
			}
		}
		if !has(s.Keyword) && sshdKeywords[s.Keyword].kind != nothing {
			out = append(out, SSHDProblem{File: s.File, Line: s.Line, Text: "the installed release of sshd knows no keyword " + s.Keyword, Confidence: 0.9})
		}
	}
	return out
}

// SettingOf is the first setting of a keyword that counts outside of Match blocks; the zero value without one.
func (c *SSHDConfig) SettingOf(keywords ...string) SSHDSetting {
	if set := c.All(keywords...); len(set) > 0 {
		return set[0]
	}
	return SSHDSetting{}
}

// IsYes says whether a keyword has the value yes.
func (c *SSHDConfig) IsYes(keyword, otherwise string) bool {
	return strings.EqualFold(c.First(keyword, otherwise), "yes")
}

// takesKeyType says whether PubkeyAcceptedAlgorithms takes keys of a type; at is the setting where it does not.
func (c *SSHDConfig) takesKeyType(kind string) (takes bool, at SSHDSetting) {
	return takesAlgorithms(c.SettingOf("pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes"), kind)
}

// OffersKeyType says whether HostKeyAlgorithms has an algorithm for host keys of a type; at is the setting where it has none.
func (c *SSHDConfig) OffersKeyType(kind string) (offers bool, at SSHDSetting) {
	return takesAlgorithms(c.SettingOf("hostkeyalgorithms"), kind)
}

// takesAlgorithms says whether a list of algorithms has one for keys of a type.
func takesAlgorithms(at SSHDSetting, kind string) (takes bool, _ SSHDSetting) {
	if at.Keyword == "" || at.Args[0] == "" {
		return true, at
	}
	list := at.Args[0]
	for _, algorithm := range keyAlgorithms(kind) {
		switch {
		case list[0] == '+' || list[0] == '^':
			return true, at
		case list[0] == '-':
			takes = takes || !matchesList(list[1:], algorithm) && (algorithm != "ssh-rsa" && !strings.HasPrefix(algorithm, "ssh-rsa-cert"))
		default:
			takes = takes || matchesList(list, algorithm)
		}
	}
	return takes, at
}

// ExpandTokens replaces the tokens of paths in sshd's configuration.
func ExpandTokens(pattern string, a *Account) string {
	return strings.NewReplacer("%%", "%", "%h", a.Home, "%u", a.Name, "%U", strconv.FormatUint(uint64(a.UID), 10)).Replace(pattern)
}

// MatchPattern compares a name with a pattern of sshd_config, in which * and ? stand for any letters.
func MatchPattern(pattern, name string) bool {
	pattern = strings.NewReplacer(`\`, `\\`, `[`, `\[`).Replace(pattern)
	ok, _ := path.Match(pattern, strings.ReplaceAll(name, "/", "_"))
	return ok
}

// keyAlgorithms are the signatures by which sshd takes a key of a type. Releases since 8.8 take no ssh-rsa, unless it is named.
func keyAlgorithms(kind string) []string {
	switch kind {
	case "ssh-rsa":
		return []string{"rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"}
	case "ssh-rsa-cert-v01@openssh.com":
		return []string{"rsa-sha2-512-cert-v01@openssh.com", "rsa-sha2-256-cert-v01@openssh.com", kind}
	case "sk-ecdsa-sha2-nistp256@openssh.com":
		return []string{kind, "webauthn-sk-ecdsa-sha2-nistp256@openssh.com"}
	}
	return []string{kind}
}

// matchesList says whether a name matches a comma-separated list of patterns, in which ! excludes.
func matchesList(list, name string) bool {
	matched := false
	for pattern := range strings.SplitSeq(list, ",") {
		excluded, isExclusion := strings.CutPrefix(pattern, "!")
		switch {
		case isExclusion && MatchPattern(excluded, name):
			return false
		case !isExclusion && MatchPattern(pattern, name):
			matched = true
		}
	}
	return matched
}
