package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// A rescued machine's clock may be years off, and a server that finds the
// certificate "not yet valid" cannot rescue it. The key lives for one boot, so the
// dates guard nothing: they are fixed.
var (
	validFrom = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	validTo   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// newCertificate makes a key (P-256: RSA takes seconds on a slow processor) and a
// certificate that it signs itself, for one address. The second value is its PEM,
// by which the server knows exactly this agent.
func newCertificate(address net.IP) (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("make key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("make serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		Subject:      pkix.Name{CommonName: address.String()},
		NotBefore:    validFrom,
		NotAfter:     validTo,
		IPAddresses:  []net.IP{address},
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// It is its own authority: strict verifiers ask for that of a trust anchor.
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("make certificate: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(text), nil
}
