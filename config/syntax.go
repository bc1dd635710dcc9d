package config

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/secret"
)

// valueSyntax is the form of a value: how it is read and how it is described to somebody
// who wrote something else.
type valueSyntax[T any] struct {
	allowed string
	parse   func(string) (T, error)
	many    bool
}

// errForm stands for "not of this form" where the description says all.
var errForm = errors.New("wrong form")

const maxSeconds = 10 * 365 * 24 * 3600

func integerSyntax(low, high int) valueSyntax[int] {
	return valueSyntax[int]{allowed: "a whole number from " + strconv.Itoa(low) + " to " + strconv.Itoa(high), parse: func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return 0, errForm
		}
		return n, nil
	}}
}

func secondsSyntax(low int) valueSyntax[time.Duration] {
	return valueSyntax[time.Duration]{allowed: "whole seconds, at least " + strconv.Itoa(low), parse: func(s string) (time.Duration, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > maxSeconds {
			return 0, errForm
		}
		return time.Duration(n) * time.Second, nil
	}}
}

// cipherSuite is one of IPMI 2.0 that authenticates; 0 stands for auto.
var cipherSuite = valueSyntax[int]{allowed: "auto, 2, 3, 7, 8, 11, 12, 16 or 17: the others authenticate no answer, or encrypt by RC4", parse: func(s string) (int, error) {
	switch s {
	case "auto":
		return 0, nil
	case "2", "3", "7", "8", "11", "12", "16", "17":
		return strconv.Atoi(s)
	}
	return 0, errForm
}}

// boolean reads the words that oslo.config reads.
var boolean = valueSyntax[bool]{allowed: "true or false", parse: func(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "1", "on", "yes":
		return true, nil
	case "false", "0", "off", "no":
		return false, nil
	}
	return false, errForm
}}

// fixedBoolSyntax is a boolean of Ironic's of which salvor does just one; why says the reason.
func fixedBoolSyntax(want bool, why string) valueSyntax[bool] {
	return valueSyntax[bool]{allowed: "only " + strconv.FormatBool(want) + ": " + why, parse: func(s string) (bool, error) {
		b, err := boolean.parse(s)
		if err != nil || b != want {
			return want, errForm
		}
		return b, nil
	}}
}

func oneOf(words ...string) valueSyntax[string] {
	return valueSyntax[string]{allowed: strings.Join(words, " or "), parse: func(s string) (string, error) {
		if !slices.Contains(words, s) {
			return "", errForm
		}
		return s, nil
	}}
}

var text = valueSyntax[string]{allowed: "text in one line", parse: func(s string) (string, error) {
	if strings.ContainsAny(s, "\n\r\x00") {
		return "", errForm
	}
	return s, nil
}}

// hiddenText is text in one line that no error repeats.
var hiddenText = valueSyntax[secret.Value]{allowed: text.allowed, parse: func(s string) (secret.Value, error) {
	v, err := text.parse(s)
	return secret.New(v), err
}}

// nameSyntax is a name without spaces; empty is allowed.
var nameSyntax = valueSyntax[string]{allowed: "a name of letters, digits and . _ - only", parse: func(s string) (string, error) {
	if !isWord(s) {
		return "", errForm
	}
	return s, nil
}}

func isWord(s string) bool {
	return len(s) <= 255 && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
}

// list is of names, by commas or lines.
var list = valueSyntax[[]string]{many: true, allowed: "names separated by commas", parse: func(s string) ([]string, error) {
	names := splitList(s)
	for _, n := range names {
		if !isWord(n) {
			return nil, errForm
		}
	}
	return names, nil
}}

func splitList(s string) []string {
	var out []string
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '\n' }) {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(out, part) {
			out = append(out, part)
		}
	}
	return out
}

var path = valueSyntax[string]{allowed: "an absolute path", parse: func(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	if !filepath.IsAbs(s) || strings.ContainsAny(s, "\n\x00") {
		return "", errForm
	}
	return filepath.Clean(s), nil
}}

var paths = valueSyntax[[]string]{many: true, allowed: "absolute paths separated by commas", parse: func(s string) ([]string, error) {
	out := splitList(s)
	for i, p := range out {
		clean, err := path.parse(p)
		if err != nil {
			return nil, err
		}
		out[i] = clean
	}
	return out, nil
}}

// bootFile is a kernel or a ramdisk.
var bootFile = valueSyntax[string]{allowed: "an absolute path, or a file, http or https URL", parse: func(s string) (string, error) {
	if s == "" || filepath.IsAbs(s) && !strings.ContainsAny(s, "\n\x00") {
		return s, nil
	}
	u, err := url.Parse(s)
	if err != nil || !(u.Scheme == "file" && filepath.IsAbs(u.Path) || isWeb(u)) {
		return "", errForm
	}
	return s, nil
}}

// bootFilesByArch are ARCH:FILE by commas.
var bootFilesByArch = valueSyntax[map[string]string]{many: true, allowed: "ARCH:FILE separated by commas, with an absolute path, or a file, http or https URL, as FILE", parse: func(s string) (map[string]string, error) {
	out := map[string]string{}
	for _, one := range splitList(s) {
		arch, file, _ := strings.Cut(one, ":")
		arch, file = strings.TrimSpace(arch), strings.TrimSpace(file)
		if _, err := bootFile.parse(file); err != nil || arch == "" || file == "" || out[arch] != "" {
			return nil, errForm
		}
		out[arch] = file
	}
	return out, nil
}}

func isWeb(u *url.URL) bool { return (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" }

var webURL = valueSyntax[string]{allowed: "http://host[:port][/path] or https://..., without user, query or fragment", parse: func(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	if err != nil || !isWeb(u) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errForm
	}
	return strings.TrimRight(s, "/"), nil
}}

var address = valueSyntax[netip.Addr]{allowed: "an IP address or localhost", parse: func(s string) (netip.Addr, error) {
	if s == "localhost" {
		s = "127.0.0.1"
	}
	return netip.ParseAddr(s)
}}

// listen is where a listener of its own is put.
var listen = valueSyntax[string]{allowed: "ADDRESS:PORT, [IPv6]:PORT or :PORT", parse: func(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", errForm
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return "", errForm
	}
	if host != "" && host != "localhost" {
		if _, err := netip.ParseAddr(host); err != nil {
			return "", errForm
		}
	}
	return s, nil
}}

var connection = valueSyntax[secret.Value]{allowed: "sqlite:PATH or postgres://user@host/database", parse: func(s string) (secret.Value, error) {
	if file, isFile := strings.CutPrefix(s, "sqlite:"); isFile && file != "" && !strings.ContainsAny(s, "\n\x00") {
		return secret.New(s), nil
	}
	return postgresURL.parse(s)
}}

var postgresURL = valueSyntax[secret.Value]{allowed: "postgres://user@host/database", parse: func(s string) (secret.Value, error) {
	switch {
	case s == "":
		return secret.New(s), nil
	case strings.HasPrefix(s, "postgres://"), strings.HasPrefix(s, "postgresql://"):
		if _, err := url.Parse(s); err == nil {
			return secret.New(s), nil
		}
	}
	return secret.Value{}, errForm
}}
