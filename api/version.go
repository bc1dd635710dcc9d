package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Microversions is the range Major.Min to Major.Max that a dialect serves and how its clients name one.
type Microversions struct {
	Major, Min, Max int
	Service         string // in the standard header: "baremetal"
	Header          string // the dialect's own header
}

// Range writes the range as "[1.1, 1.82]".
func (m Microversions) Range() string { return fmt.Sprintf("[%s, %s]", m.Text(m.Min), m.Text(m.Max)) }

// Text writes a version as "1.82".
func (m Microversions) Text(minor int) string {
	return strconv.Itoa(m.Major) + "." + strconv.Itoa(minor)
}

// maxVersionHeader bounds what is parsed: no honest header is longer.
const maxVersionHeader = 1024

// BadVersion is why a version was not taken. InRange false and Parsed true: a well-formed version outside of the range.
type BadVersion struct {
	Parsed bool
	Text   string
}

func (e *BadVersion) Error() string { return e.Text }

// Parse reads the version that a request speaks, as N of Major.N; none named is Min. The
// standard header goes over the dialect's own, as in the other services.
func (m Microversions) Parse(h http.Header) (int, error) {
	word := ""
	for _, value := range h.Values("OpenStack-API-Version") {
		if len(value) > maxVersionHeader {
			return 0, m.bad("")
		}
		for one := range strings.SplitSeq(value, ",") {
			f := strings.Fields(one)
			if len(f) == 2 && strings.EqualFold(f[0], m.Service) {
				word = f[1]
			}
		}
	}
	if word == "" {
		word = strings.TrimSpace(h.Get(m.Header))
	}
	switch {
	case word == "":
		return m.Min, nil
	case strings.EqualFold(word, "latest"):
		return m.Max, nil
	}
	major, minor, ok := strings.Cut(word, ".")
	a, errA := parseNumber(major)
	b, errB := parseNumber(minor)
	if !ok || errA != nil || errB != nil {
		return 0, m.bad(word)
	}
	if a != m.Major || b < m.Min || b > m.Max {
		return 0, &BadVersion{Parsed: true, Text: fmt.Sprintf("Version %d.%d was requested but the supported API version range is: %s.", a, b, m.Range())}
	}
	return b, nil
}

func (m Microversions) bad(word string) error {
	if len(word) > 40 {
		word = word[:40]
	}
	return &BadVersion{Text: fmt.Sprintf("Invalid value %q for the header %s: want %d.N or latest; the supported API version range is: %s.", word, m.Header, m.Major, m.Range())}
}

func parseNumber(s string) (int, error) {
	if s == "" || len(s) > 6 || strings.TrimLeft(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(s)
}
