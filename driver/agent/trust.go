package agent

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"salvor/problem"
)

// maxCA bounds the PEM text of an agent's certificates in bytes.
const maxCA = 64 << 10

var errUntrusted = errors.New("the agent does not show the certificate that its heartbeat named")

// trust accepts exactly the certificates that the heartbeat gave, or what they have
// signed; without any, what the system trusts. The very certificate that was given
// needs neither a name nor a fitting clock: whoever shows it holds its key, and
// ramdisks often believe that it is 1970.
func trust(ca string) (*tls.Config, error) {
	if ca == "" {
		return &tls.Config{MinVersion: tls.VersionTLS12}, nil
	}
	pinned, err := certificates(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	for _, c := range pinned {
		roots.AddCert(c)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection does it, stricter in who and laxer in names
		VerifyConnection: func(state tls.ConnectionState) error {
			return verify(state, pinned, roots)
		},
	}, nil
}

func verify(state tls.ConnectionState, pinned []*x509.Certificate, roots *x509.CertPool) error {
	if len(state.PeerCertificates) == 0 {
		return &tls.CertificateVerificationError{Err: errUntrusted}
	}
	leaf := state.PeerCertificates[0]
	if slices.ContainsFunc(pinned, func(c *x509.Certificate) bool { return bytes.Equal(c.Raw, leaf.Raw) }) {
		return nil
	}
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range state.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	if len(leaf.DNSNames)+len(leaf.IPAddresses) > 0 {
		opts.DNSName = state.ServerName
	}
	if _, err := leaf.Verify(opts); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: fmt.Errorf("%w: %w", errUntrusted, err)}
	}
	return nil
}

func certificates(text string) ([]*x509.Certificate, error) {
	if len(text) > maxCA {
		return nil, problem.Invalidf("its agent_verify_ca is longer than %d bytes", maxCA)
	}
	var out []*x509.Certificate
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, problem.Invalidf("its agent_verify_ca holds a certificate that cannot be read")
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, problem.Invalidf("its agent_verify_ca holds no certificate")
	}
	return out, nil
}
