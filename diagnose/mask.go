package diagnose

import (
	"regexp"
	"slices"
	"strings"
)

// Masked stands where a secret was.
const Masked = "******"

// secretForms are texts that are secrets by their form, or by the words around them. The first group stays, the second is the secret, and a third stays.
var secretForms = []*regexp.Regexp{
	// Hashes of crypt(3), as in /etc/shadow.
	regexp.MustCompile(`()(\$[0-9a-zA-Z]{1,7}\$[^\s:]{8,})`),
	// A private key, or a line of one.
	regexp.MustCompile(`()(-----BEGIN [A-Z ]*PRIVATE KEY.*)`),
	regexp.MustCompile(`()([A-Za-z0-9+=_-]{60,})`),
	// Tokens of well-known services and of JWT.
	regexp.MustCompile(`()(\b(?:gh[a-z]_|github_pat_|glpat-|xox[a-z]-|hf_|sk-|AKIA|ASIA|eyJ)[A-Za-z0-9_.-]{12,})`),
	// user:password@host with or without a scheme. The password may hold slashes.
	regexp.MustCompile(`(//[^\s:@/"'<>]*:)([^\s"'<>]+)(@)`),
	regexp.MustCompile(`([A-Za-z0-9_.-]+:)([^\s@"'<>/:][^\s@"'<>:]*:[^\s@"'<>]+)(@)`),
	// A token in the place of the user. A user's name is short and of small letters.
	regexp.MustCompile(`(//)([^\s/@"'<>:]*[^\s/@"'<>:a-z][^\s/@"'<>:]*|[a-z]{17,})(@)`),
	// user%password, as Samba takes it.
	regexp.MustCompile(`(?i)(\buser(?:name)?=[^\s%,]*%)([^\s,]+)`),
	regexp.MustCompile(`(?i)(authorization["']?\s*[:=]+\s*["']?)([^"']+)`),
	regexp.MustCompile(`(?i)(\bbearer\s+)([A-Za-z0-9._~+/=-]{8,})`),
	// Lines of ipsec.secrets.
	regexp.MustCompile(`(?i)(:\s*(?:PSK|XAUTH|EAP|NTLM|P12|RSA|ECDSA|PKCS8|PIN)\s+)(\S.*)`),
	// Arguments of programs.
	regexp.MustCompile(`(?i)(\bauth\s+[\w.-]+:)(\S+)`),
	regexp.MustCompile(`(\bsshpass\s+-p\s*)(\S+)`),
	regexp.MustCompile(`(\b(?:mysql\w*|mariadb\w*)\s(?:.*\s)?-p)([^\s-]\S*)`),
	regexp.MustCompile(`(\bldap\w+\s(?:.*\s)?-w\s*)(\S+)`),
	regexp.MustCompile(`(\bcurl\s(?:.*\s)?(?:-u|--user)\s*\S+?:)(\S+)`),
	// snmpd, chpasswd, and the positional secrets of ppp.
	regexp.MustCompile(`(?i)(\bcreateUser\s+\S+\s+)(\S.*)`),
	regexp.MustCompile(`(?i)(\b(?:com2sec6?\s+\S+\s+\S+|r[ow]community6?|trapcommunity|trap2?sink\s+\S+|informsink\s+\S+)\s+)(\S+)`),
	regexp.MustCompile(`(?i)(\bchpasswd\b[^\w]*(?:list|users)["']?\s*:\s*)([^\s|>].*)`),
	regexp.MustCompile(`(^["'#;\s]*[\w.@-]+["']?\s+\*\s+)(\S.*)`),
	// An element of XML whose name is that of a secret.
	regexp.MustCompile(`(?i)(<[^<>]*(?:passw|secret|token|passphrase|apikey)[^<>]*>)([^<]+)(<|$)`),
}

// pair is a name with its value, as configurations write them: the name, what stands between, and all that follows.
var (
	pairName  = regexp.MustCompile(`[\pL\pN_][\pL\pN_.-]*`)
	pairSign  = regexp.MustCompile(`^["'\]]{0,2}\s*(?:=>|:=|[:=])\s*`)
	pairBlank = regexp.MustCompile(`^["']?\s+`)
	// pairNext is where the next pair begins behind a value with blanks.
	pairNext = regexp.MustCompile(`[\s,;]["']?[\pL_][\pL\pN_.-]*["']?\s*=`)
	// leadIn is what may stand before the first name of a line.
	leadIn = regexp.MustCompile(`^[\s"'#;+{<-]*(?:export\s+|set\s+|setenv\s+|declare\s+)?$`)
)

// maskSecrets masks what looks like a secret.
func maskSecrets(text string, prose bool) string {
	for _, p := range secretForms {
		text = p.ReplaceAllStringFunc(text, func(found string) string {
			groups := p.FindStringSubmatch(found)
			if groups[2] == Masked {
				return found
			}
			out := groups[1] + Masked
			if len(groups) > 3 {
				out += groups[3]
			}
			return out
		})
	}
	return maskPairs(text, prose)
}

// maskPairs masks the values whose names are those of secrets.
func maskPairs(text string, prose bool) string {
	var out strings.Builder
	for text != "" {
		at := pairName.FindStringIndex(text)
		if at == nil {
			break
		}
		name, rest := text[at[0]:at[1]], text[at[1]:]
		isFirst := out.Len() == 0 && leadIn.MatchString(text[:at[0]]) || leadIn.MatchString(out.String()+text[:at[0]])
		out.WriteString(text[:at[1]])
		text = rest
		if !isSecretName(name) {
			continue
		}
		sign := pairSign.FindString(rest)
		if sign == "" && (!prose || isTechnical(name)) {
			sign = pairBlank.FindString(rest)
		}
		value := rest[len(sign):]
		if sign == "" || value == "" || isHarmlessValue(name, sign, value) {
			continue
		}
		out.WriteString(sign)
		end := valueEnd(value, isFirst && (strings.Contains(sign, "=") || !prose))
		if before := opening(out.String(), name, sign); before != 0 && before != value[0] { // "NAME=a value with blanks"
			if end = strings.IndexByte(value, before); end < 0 {
				end = len(value)
			}
		}
		out.WriteString(Masked)
		text = value[end:]
	}
	return out.String() + text
}

// opening is the quotation mark directly before a name that was written last; 0: there is none, or the mark ends with the name.
func opening(written, name, sign string) byte {
	before := strings.TrimSuffix(strings.TrimSuffix(written, sign), name)
	if before == "" || strings.ContainsAny(sign, `"'`) {
		return 0
	}
	if quote := before[len(before)-1]; quote == '"' || quote == '\'' {
		return quote
	}
	return 0
}

// valueEnd is where a value ends: at its closing quotation mark, or else at a blank. The first value of a line may hold blanks, as in the
// files of NetworkManager, and ends where the next pair begins.
func valueEnd(value string, isFirst bool) int {
	if quote := value[0]; quote == '"' || quote == '\'' {
		if end := strings.IndexByte(value[1:], quote); end >= 0 {
			return end + 2
		}
		return len(value)
	}
	if isFirst {
		if next := pairNext.FindStringIndex(value); next != nil {
			return next[0]
		}
		return len(value)
	}
	if end := strings.IndexAny(value, " "); end >= 0 {
		return end
	}
	return len(value)
}

// Parts of names of secrets. Those of the first list count wherever they stand in a name, those of the second as a word or at the end of one, and those
// of the third as a word.
var (
	secretParts = []string{"passw", "passphrase", "passcode", "secret", "token", "apikey", "privatekey", "presharedkey", "accesskey", "authkey", "encryptionkey",
		"sharedkey", "secretkey", "authtok", "bindpw", "rootpw", "wirelesskey", "wepkey", "keyphrase", "accountkey", "masterkey", "signingkey", "sessionkey", "masterauth", "credential", "parol", "kennwort"}
	secretEnds  = []string{"pass", "pwd", "pw", "psk", "passwd"}
	secretWords = []string{"pin", "psk", "wep", "cred", "sshkey", "storagekey", "pass", "pw", "pwd", "md5key", "cookie"}
	// technicalNames are names of secrets that are no words of English, so that a blank behind them begins a value in a sentence too.
	technicalNames = []string{"wpapsk", "wpapassphrase", "wepkey", "wirelesskey", "bindpw", "rootpw", "authtok", "ldapdefaultauthtok", "psk", "wpapskpassphrase", "passwordpbkdf2"}
	// publicNames look like names of secrets, and are none.
	publicNames = []string{"passwordauthentication", "permitemptypasswords", "kbdinteractiveauthentication", "challengeresponseauthentication", "nopasswd", "passwdtries", "passwdtimeout",
		"passprompt", "passwdchat", "passwdprogram", "unixpasswordsync", "lockpasswd", "sshpwauth", "pwauth", "passmaxdays", "passmindays", "passwarnage", "passminlen", "passmaxlen", "passno",
		"passalwayswarn", "passchangetries", "bypass", "compass", "trespass", "encompass", "overpass", "passwordless", "obscurechecksenab", "pampassword", "minpasswordlength", "encryptpasswords",
		"nullpasswords", "passthrough", "pwquality", "pwhistory", "passwdhash", "passwordhashingalgorithm", "hashedpasswd", "tokenlifetime", "tokenttl", "pskflags", "passwordflags", "authenticationmethods",
		"sudoedittokens", "targetpw", "runaspw", "tokenizer", "tokens", "permitrootlogin", "wepkeyflags", "weptxkeyidx", "weptxkey", "weptxkeyindex", "weptype", "secretflags", "pinflags"}
	// countedParts end names whose value is a number, a place or a choice.
	countedParts = []string{"tries", "timeout", "age", "days", "len", "length", "min", "max", "policy", "type", "lifetime", "ttl", "count", "size", "interval", "expire", "expiry", "limit", "enabled", "required"}
	// placedParts end names whose value is the path of a file.
	placedParts = []string{"file", "path", "dir", "folder", "credentials", "cred", "creds", "credential", "keytab", "database", "socket", "command", "program"}
)

var separators = strings.NewReplacer("_", "", "-", "", ".", "")

// bareName is a name in small letters without its separators.
func bareName(name string) string { return separators.Replace(strings.ToLower(name)) }

// isSecretName tells whether the value of a name is a secret.
func isSecretName(name string) bool {
	plain := strings.TrimRight(bareName(name), "0123456789")
	if slices.Contains(publicNames, plain) || plain == "" {
		return false
	}
	for _, part := range secretParts {
		if strings.Contains(plain, part) {
			return true
		}
	}
	for word := range strings.FieldsFuncSeq(strings.ToLower(name), func(r rune) bool { return r == '_' || r == '-' || r == '.' }) {
		word = strings.TrimRight(word, "0123456789")
		if slices.Contains(secretWords, word) || slices.ContainsFunc(secretEnds, func(end string) bool { return len(word) > len(end)+1 && strings.HasSuffix(word, end) }) && !slices.Contains(publicNames, word) {
			return true
		}
	}
	return false
}

func isTechnical(name string) bool {
	return slices.Contains(technicalNames, strings.TrimRight(bareName(name), "0123456789"))
}

var (
	number       = regexp.MustCompile(`^["']?-?[0-9]+[smhd%]?["']?(?:[\s,;)]|$)`)
	choice       = regexp.MustCompile(`(?i)^["']?(?:yes|no|true|false|on|off|none|null|never|always|optional|required)["']?(?:[\s,;)]|$)`)
	absolutePath = regexp.MustCompile(`^["']?(?:[\w.-]+:)?/[\w./@%-]*["']?(?:[\s,;)]|$)`)
	// pamControl follows the type "password" in files of PAM, and nameService the database "passwd" in nsswitch.conf.
	pamControl  = regexp.MustCompile(`^(?:required|requisite|sufficient|optional|include|substack|\[[a-z0-9_= ]+\])\s`)
	nameService = regexp.MustCompile(`^(?:(?:files|compat|systemd|sss|ldap|nis|nisplus|db|winbind|hesiod|dns|extrausers|\[[A-Za-z=!]+\])(?:\s+|$))+$`)
)

// isHarmlessValue tells whether what follows a name of a secret is none.
func isHarmlessValue(name, sign, value string) bool {
	plain := bareName(name)
	hasEnd := func(ends []string) bool {
		return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(plain, end) })
	}
	switch {
	case strings.HasPrefix(value, Masked):
		return true
	case hasEnd(placedParts):
		return absolutePath.MatchString(value) || choice.MatchString(value)
	case hasEnd(countedParts):
		return number.MatchString(value) || choice.MatchString(value)
	case plain == "password" && strings.TrimSpace(sign) == "":
		return pamControl.MatchString(value)
	case plain == "passwd" && strings.TrimSpace(sign) == ":":
		return nameService.MatchString(value)
	}
	return false
}
