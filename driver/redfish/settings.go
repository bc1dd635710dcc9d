package redfish

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"io"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// Keys of driver_info.
const (
	AddressKey  = "redfish_address"
	SystemKey   = "redfish_system_id"
	UsernameKey = "redfish_username"
	PasswordKey = "redfish_password"
	VerifyKey   = "redfish_verify_ca"
	AuthKey     = "redfish_auth_type"
)

// Properties describes the keys of driver_info.
var Properties = map[string]string{
	AddressKey:  "The URL of the Redfish service: scheme and authority; https:// where no scheme is given. An IPv6 address with a port needs brackets. Required.",
	SystemKey:   "The canonical path of the ComputerSystem, such as /redfish/v1/Systems/1. Needed only where the service has several.",
	UsernameKey: "User account with access to the service.",
	PasswordKey: "User account's password.",
	VerifyKey:   "Whether the service's certificate is verified: true (the default), false, or the path of a file with the CA certificates to trust.",
	AuthKey:     "How to log in: basic (the default), session, or auto (session, then basic).",

	TLSMinimumKey: "The oldest version of TLS to speak with the BMC: 1.0, 1.1, 1.2 (the default) or 1.3.",
	TLSLegacyKey:  "Whether old cipher suites are taken, such as those with RSA key exchange: true or false (the default).",
	QuirksKey:     "What this BMC does that the standard does not say, as kind=value, such as cd_target=UsbCd; it overrules salvor's table. An empty value switches a row of the table off.",
}

// maxCA bounds the CA file that a record may name.
const maxCA = 1 << 20

// redfishSettings are what a node's record says of its BMC.
type redfishSettings struct {
	base     *url.URL
	system   string // path, or empty
	username string
	password secret.Value
	auth     string
	tls      *tls.Config
	facts    bmcFacts
	// usernameKey and passwordKey are where the record has those.
	usernameKey, passwordKey string
}

// ILO is the hardware type whose records have keys of their own, and ILOAddressKey the one that it requires.
const (
	ILO           = "ilo"
	ILOAddressKey = "ilo_address"
)

// iloKeys are those keys, by the keys whose meaning they have.
var iloKeys = map[string]string{AddressKey: ILOAddressKey, UsernameKey: "ilo_username", PasswordKey: "ilo_password", VerifyKey: "ilo_verify_ca"}

// ILOProperties describes the keys of driver_info of the hardware type ilo.
var ILOProperties = func() map[string]string {
	out := map[string]string{"client_port": "The port of the Redfish service, where ilo_address has none; 443 by default."}
	for key, text := range Properties {
		out[cmp.Or(iloKeys[key], key)] = text
	}
	return out
}()

// Address is the address of a node's BMC as the node's record has it, under the keys of its hardware type; empty: it has none.
func Address(n *metal.Node) string {
	if n.Driver == ILO {
		n = withRedfishKeys(n)
	}
	return n.Info(AddressKey)
}

// withRedfishKeys gives a node of the hardware type ilo the keys of redfish.
func withRedfishKeys(n *metal.Node) *metal.Node {
	c := *n
	c.DriverInfo = maps.Clone(n.DriverInfo)
	for key, theirs := range iloKeys {
		if v, ok := n.DriverInfo[theirs]; ok {
			c.DriverInfo[key] = v
		}
	}
	address, err := withBrackets(strings.TrimRight(c.Info(AddressKey), "/"))
	if port := n.Info("client_port"); port != "" && address != "" && err == nil {
		if _, _, err := net.SplitHostPort(address[strings.LastIndex(address, "/")+1:]); err != nil {
			c.DriverInfo[AddressKey] = address + ":" + port
		}
	}
	return &c
}

// parseDriverInfo takes the settings out of a record. All errors are Invalid.
func parseDriverInfo(n *metal.Node) (*redfishSettings, error) {
	usernameKey, passwordKey := UsernameKey, PasswordKey
	if n.Driver == ILO {
		n, usernameKey, passwordKey = withRedfishKeys(n), iloKeys[UsernameKey], iloKeys[PasswordKey]
	}
	base, err := parseAddress(n.Info(AddressKey))
	if err != nil {
		return nil, err
	}
	s := &redfishSettings{base: base, username: n.Info(UsernameKey), password: secret.New(n.Info(PasswordKey)), auth: n.Info(AuthKey), usernameKey: usernameKey, passwordKey: passwordKey}
	if s.facts, err = factsOf(n); err != nil {
		return nil, err
	}
	switch s.auth {
	case "":
		s.auth = cmp.Or(s.facts.fact(quirkAuth), conversation.Basic)
	case conversation.Basic, conversation.Session, conversation.Auto:
	default:
		return nil, problem.Invalidf("%s must be basic, session or auto", AuthKey)
	}
	if s.system, err = systemPath(n.Info(SystemKey)); err != nil {
		return nil, err
	}
	if base.Scheme == "https" {
		s.tls, err = newTLSConfig(n, s.facts.fact(quirkTLSMinimum))
	}
	return s, err
}

func parseAddress(text string) (*url.URL, error) {
	if text == "" {
		return nil, problem.Invalidf("driver_info lacks %s", AddressKey)
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	text, err := withBrackets(text)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil, problem.Invalidf("%s is not a URL with a host", AddressKey)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, problem.Invalidf("%s must begin with http:// or https://", AddressKey)
	}
	if u.User != nil {
		return nil, problem.Invalidf("%s must not hold a user or password; they have their own keys", AddressKey)
	}
	if path := strings.Trim(u.Path, "/"); (path != "" && path != "redfish" && path != "redfish/v1") || u.RawQuery != "" || u.Fragment != "" {
		return nil, problem.Invalidf("%s must not hold a path; the system's is %s", AddressKey, SystemKey)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// withBrackets puts the brackets of a URL around an IPv6 address that has none. An address whose last group may be a port is refused.
func withBrackets(text string) (string, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "", text
	} else {
		scheme += "://"
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	begin := strings.LastIndexByte(rest[:end], '@') + 1
	host := rest[begin:end]
	if strings.Count(host, ":") < 2 || strings.HasPrefix(host, "[") {
		return text, nil
	}
	before, port := host[:strings.LastIndexByte(host, ':')], host[strings.LastIndexByte(host, ':')+1:]
	_, wholeErr := netip.ParseAddr(host)
	_, beforeErr := netip.ParseAddr(before)
	_, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case wholeErr != nil:
		return "", problem.Invalidf("%s: an IPv6 address with a port needs brackets, such as https://[2001:db8::7]:8443", AddressKey)
	case beforeErr == nil && portErr == nil:
		return "", problem.Invalidf("%s %s may be an address or an address with a port; write [%s] or [%s]:%s", AddressKey, driver.Sanitize(host), driver.Sanitize(host), driver.Sanitize(before), port)
	}
	return scheme + rest[:begin] + "[" + host + "]" + rest[end:], nil
}

func systemPath(id string) (string, error) {
	switch {
	case id == "":
		return "", nil
	case !strings.HasPrefix(id, "/"):
		if strings.ContainsAny(id, "/?#") {
			return "", problem.Invalidf("%s must be an absolute path or a bare id", SystemKey)
		}
		return "/redfish/v1/Systems/" + url.PathEscape(id), nil
	case !isPath(id):
		return "", problem.Invalidf("%s is not a path on the service", SystemKey)
	}
	return strings.TrimRight(id, "/"), nil
}

// verifyBy sets how the certificate of the BMC is verified.
func verifyBy(c *tls.Config, v any) error {
	path, isPath := v.(string)
	switch on, err := truth(VerifyKey, v); {
	case v == nil || isPath && path == "":
	case err == nil:
		c.InsecureSkipVerify = !on
	case !isPath:
		return problem.Invalidf("%s must be true, false or a path", VerifyKey)
	default:
		if c.RootCAs, err = loadCertPool(path); err != nil {
			return err
		}
	}
	return nil
}

func loadCertPool(path string) (*x509.CertPool, error) {
	// One answer for all that may be wrong: users of projects name the path, and are not to learn which files there are.
	bad := problem.Invalidf("%s %s is not a readable file of CA certificates", VerifyKey, driver.Sanitize(path))
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxCA {
		return nil, bad
	}
	pem, err := readLimited(path)
	p := x509.NewCertPool()
	if err != nil || !p.AppendCertsFromPEM(pem) {
		return nil, bad
	}
	return p, nil
}

// readLimited reads a file up to its bound: a file of /proc says that it has no bytes.
func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCA+1))
	if err == nil && len(b) > maxCA {
		err = problem.Invalidf("it has more than %d bytes", maxCA)
	}
	return b, err
}
