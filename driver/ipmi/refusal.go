package ipmi

import (
	"strings"

	"salvor/driver"
	"salvor/problem"
)

// refusalKind says what a BMC refuses when it opens no session. Of several refusals, as of several cipher suites, the lowest kind counts.
type refusalKind int

const (
	ofName refusalKind = iota
	ofPassword
	ofRole
	ofNow // it passes by itself
	ofSuite
	ofRequest // the BMC does not understand the request
)

// sessionRefusal is a status code of Open Session, RAKP 2 or RAKP 4 (IPMI 2.0, table 13-15).
type sessionRefusal struct {
	code byte
	kind refusalKind
	says string
	tool string // ipmitool's words
}

// sessionRefusals are all status codes but 0, by kind.
var sessionRefusals = []sessionRefusal{
	{0x0c, ofName, "it takes no name of this length", "invalid name length"},
	{0x0d, ofName, "it knows no such user, or the user has no access over LAN", "unauthorized name"},
	{0x0f, ofPassword, "what the password proves is wrong", "invalid integrity check value"},
	{0x09, ofRole, "it knows no such level", "invalid role"},
	{0x0a, ofRole, "the user or the channel may not have the level", "unauthorized role requested"},
	{0x01, ofNow, "it has no session free", "insufficient resources for session"},
	{0x0b, ofNow, "it has no session of this privilege level free", "insufficient resources for role"},
	{0x02, ofNow, "it has lost the session", "invalid session ID"},
	{0x08, ofNow, "it has ended the session", "inactive session ID"},
	{0x04, ofSuite, "it lacks the algorithm of authentication", "invalid authentication algorithm"},
	{0x05, ofSuite, "it lacks the algorithm of integrity", "invalid integrity algorithm"},
	{0x06, ofSuite, "no algorithm of authentication is common", "no matching authentication algorithm"},
	{0x07, ofSuite, "no algorithm of integrity is common", "no matching integrity payload"},
	{0x10, ofSuite, "it lacks the algorithm of encryption", "invalid confidentiality algorithm"},
	{0x11, ofSuite, "no cipher suite is common", "no matching cipher suite"},
	{0x03, ofRequest, "it knows no such payload", "invalid payload type"},
	{0x0e, ofRequest, "it does not accept its own GUID", "unauthorized GUID"},
	{0x12, ofRequest, "it does not know a parameter", "illegal parameter"},
}

// findRefusal gives the first refusal, by kind, for which a condition holds.
func findRefusal(holds func(sessionRefusal) bool) (sessionRefusal, bool) {
	for _, r := range sessionRefusals {
		if holds(r) {
			return r, true
		}
	}
	return sessionRefusal{}, false
}

// fault makes an error that names the key of driver_info that helps.
func (r sessionRefusal) fault(conf ipmiSettings) error {
	switch r.kind {
	case ofName:
		return problem.Invalidf("%w %s: %s (status 0x%02x)", driver.ErrLogin, UsernameKey, r.says, r.code)
	case ofPassword:
		return wrongPassword()
	case ofRole:
		return problem.Invalidf("%w %s: %s (status 0x%02x); set %s to a lower level, or %s to another user", errNoRole, conf.level, r.says, r.code, PrivKey, UsernameKey)
	case ofNow:
		return problem.Unavailablef("the BMC opens no session for now: %s (status 0x%02x)", r.says, r.code)
	case ofSuite:
		return problem.Invalidf("the BMC takes none of the cipher suites %v: %s (status 0x%02x); set %s: %w", conf.ciphers, r.says, r.code, CipherKey, errCipher)
	}
	return problem.Tries(fewTries, problem.Unavailablef("the BMC does not understand the login: %s (status 0x%02x); set %s, often to 3, or %s", r.says, r.code, CipherKey, PrivKey))
}

func wrongPassword() error {
	return problem.Invalidf("%w %s or %s", driver.ErrLogin, UsernameKey, PasswordKey)
}

// wrongBMCKey is the error of a BMC that takes the password and proves itself with another key than the session's.
func wrongBMCKey() error {
	return problem.Invalidf("%w %s: it takes the password, and its own key (Kg) is another one; set the key where the BMC has one, and remove it where the BMC has none", driver.ErrLogin, BMCKeyKey)
}

// toolRefusal finds a refusal in the words of ipmitool, or nil.
func toolRefusal(output string, conf ipmiSettings) error {
	switch {
	case strings.Contains(output, "RAKP 4 message has invalid integrity check value"):
		return wrongBMCKey()
	case strings.Contains(output, "HMAC is invalid"), strings.Contains(output, "Password invalid"):
		return wrongPassword()
	case strings.Contains(output, "Set Session Privilege Level to") && strings.Contains(output, "failed"):
		if strings.Contains(output, "Node busy") || strings.Contains(output, "Timeout") {
			return problem.Unavailablef("the BMC opens no session for now: it is busy")
		}
		return problem.Invalidf("%w %s; set %s to a lower level, or %s to another user", errNoRole, conf.level, PrivKey, UsernameKey)
	}
	if r, found := findRefusal(func(r sessionRefusal) bool { return strings.Contains(output, r.tool) }); found {
		return r.fault(conf)
	}
	return nil
}
