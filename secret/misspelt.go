package secret

import (
	"strings"
	"sync"
	"unicode"

	"salvor/problem"
)

// shortWords are other words for a password, which count as a whole part of a key only.
var shortWords = map[string]bool{"pass": true, "pwd": true, "pw": true, "pswd": true, "psw": true, "passcode": true, "credential": true, "credentials": true, "creds": true, "kg": true}

// longWords are the markers whose misspellings count, also within a longer part of a key.
var longWords = []string{"password", "passwd", "passphrase", "secret"}

// properWords are near a marker and mean something else.
var properWords = map[string]bool{"passed": true, "taken": true, "weight_kg": true}

// maxMisspelt bounds the keys whose words are compared and remembered, in bytes: the names of keys are the client's.
const maxMisspelt = 64

// remembered are the answers of IsKey, because lists of nodes ask for the same keys again and again.
var remembered = struct {
	sync.RWMutex
	keys map[string]bool
}{keys: map[string]bool{}}

const maxRemembered = 4096

// rememberKey gives the answer for a key, from memory where it is there.
func rememberKey(key string, judge func(string) bool) bool {
	remembered.RLock()
	found, known := remembered.keys[key]
	remembered.RUnlock()
	if known {
		return found
	}
	found = judge(key)
	remembered.Lock()
	defer remembered.Unlock()
	if len(remembered.keys) >= maxRemembered {
		clear(remembered.keys)
	}
	remembered.keys[strings.Clone(key)] = found
	return found
}

// isMisspelt tells whether a key in lower case has a part that is nearly a word for a secret.
func isMisspelt(key string) bool {
	if properWords[key] {
		return false
	}
	for _, word := range strings.FieldsFunc(key, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if properWords[word] {
			continue
		}
		if shortWords[word] || len(word) >= 4 && problem.Distance(word, "token") <= 1 || len(word) >= 6 && problem.Distance(word, "password") <= 2 {
			return true
		}
		for _, long := range longWords {
			if holdsNearly(word, long) {
				return true
			}
		}
	}
	return problem.Distance(key, "ipmi_hex_kg_key") <= 2
}

// holdsNearly tells whether a part of a word differs from another word in one letter. The first letter must be right, which keeps other words
// apart.
func holdsNearly(word, long string) bool {
	for at := range len(word) {
		if word[at] != long[0] {
			continue
		}
		for size := len(long) - 1; size <= len(long)+1 && at+size <= len(word); size++ {
			if part := word[at : at+size]; !properWords[part] && problem.Distance(part, long) <= 1 {
				return true
			}
		}
	}
	return false
}
