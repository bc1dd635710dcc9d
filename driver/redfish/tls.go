package redfish

import (
	"crypto/tls"
	"slices"
	"strings"

	"salvor/metal"
	"salvor/problem"
)

// Keys of driver_info for old BMCs.
const (
	TLSMinimumKey = "redfish_tls_minimum_version"
	TLSLegacyKey  = "redfish_tls_legacy"
)

// tlsVersionNames are the values of TLSMinimumKey, the oldest first.
var tlsVersionNames = []string{"1.0", "1.1", "1.2", "1.3"}

var tlsVersions = map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// newTLSConfig is how TLS is spoken to a node's BMC. minimum is the oldest version where the record names none; empty: 1.2.
func newTLSConfig(n *metal.Node, minimum string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if text := n.Info(TLSMinimumKey); text != "" {
		minimum = text
	}
	if minimum != "" {
		version, known := tlsVersions[minimum]
		if !known {
			return nil, problem.Invalidf("%s must be one of %s", TLSMinimumKey, strings.Join(tlsVersionNames, ", "))
		}
		c.MinVersion = version
	}
	legacy, err := truth(TLSLegacyKey, n.DriverInfo[TLSLegacyKey])
	if err != nil {
		return nil, err
	}
	if legacy { // RSA key exchange and the like, which crypto/tls leaves out unless it is asked for
		for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
			if !strings.Contains(suite.Name, "RC4") {
				c.CipherSuites = append(c.CipherSuites, suite.ID)
			}
		}
	}
	return c, verifyBy(c, n.DriverInfo[VerifyKey])
}

// truth reads a value that is true or false, in JSON or as text; nil is false.
func truth(key string, v any) (bool, error) {
	switch v := v.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	case string:
		switch strings.ToLower(v) {
		case "true", "yes", "1", "on":
			return true, nil
		case "", "false", "no", "0", "off":
			return false, nil
		}
	}
	return false, problem.Invalidf("%s must be true or false", key)
}

// refusedTLS tells, of an error without an answer, that the BMC and salvor have no version or cipher suite of TLS in common, with the option
// that helps. Nobody but an operator can change that, so the error is Invalid. nil: it is something else.
func refusedTLS(err error) error {
	text := err.Error()
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
	}
	switch {
	case has("protocol version not supported", "unsupported protocol version", "server selected unsupported protocol"):
		return problem.Invalidf("the BMC speaks no version of TLS that is allowed; set %s to an older one (%s)", TLSMinimumKey, strings.Join(tlsVersionNames[:2], ", "))
	case has("remote error: tls: handshake failure", "remote error: tls: insufficient security level", "no mutually supported", "server chose an unconfigured cipher suite", "unsupported curve"):
		return problem.Invalidf("the BMC and salvor have no cipher suite of TLS in common; set %s to true for RSA key exchange, or %s to an older version. A BMC that takes DHE suites alone is not reachable: update its firmware", TLSLegacyKey, TLSMinimumKey)
	case has("negative serial number"):
		return problem.Invalidf("the certificate of the BMC has a negative serial number, which Go's TLS takes under no option: give the BMC a new certificate")
	case has("tls: failed to parse certificate", "tls: invalid server", "tls: server's certificate contains an unsupported", "tls: invalid signature"):
		return problem.Invalidf("the certificate of the BMC cannot be used; give it a new one: %s", problem.Quote(text))
	}
	return nil
}
