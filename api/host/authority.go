package host

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"sync"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/secret"
)

// Vault keeps a secret under a name for good: where there is none yet, fresh is kept, of
// several that come at once one. It gives the one that is kept; an empty fresh only asks.
type Vault interface {
	GetOrCreateSecret(ctx context.Context, name string, fresh secret.Value) (secret.Value, error)
}

const (
	vaultName = "hosts_authority"
	// certificateLife is that of hosts' certificates; they are renewed at half of it.
	certificateLife = 30 * 24 * time.Hour
	authorityLife   = 30 * 365 * 24 * time.Hour
	// skew is by how much a host's clock may be slow.
	skew = 24 * time.Hour
)

// Authority is the certificate authority of this control plane's hosts.
type Authority struct {
	key  crypto.Signer
	cert *x509.Certificate
	now  func() time.Time

	mu     sync.Mutex
	server *tls.Certificate // of the listener
}

// OpenAuthority reads the authority from the vault, or makes it.
func OpenAuthority(ctx context.Context, vault Vault, now func() time.Time) (*Authority, error) {
	stored, err := vault.GetOrCreateSecret(ctx, vaultName, secret.Value{})
	if err == nil && stored.Empty() {
		var fresh secret.Value
		if fresh, err = makeAuthority(now()); err == nil {
			stored, err = vault.GetOrCreateSecret(ctx, vaultName, fresh)
		}
	}
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair([]byte(stored.Reveal()), []byte(stored.Reveal()))
	if err != nil {
		return nil, problem.Invalidf("the authority of hosts in the database cannot be read")
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, problem.Invalidf("the authority of hosts in the database has no key")
	}
	return &Authority{key: key, cert: pair.Leaf, now: now}, nil
}

func makeAuthority(now time.Time) (secret.Value, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return secret.Value{}, err
	}
	template := &x509.Certificate{
		SerialNumber: newSerial(), Subject: pkix.Name{CommonName: "salvor hosts"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return secret.Value{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return secret.Value{}, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	return secret.New(string(text)), nil
}

// newSerial is random: who numbers certificates in turn tells how many there are, and needs a counter.
func newSerial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	b[0] = b[0]&0x7f | 0x40
	return new(big.Int).SetBytes(b)
}

// Pin is the digest of the authority's certificate. A join token ends in "." and the pin, so a host knows the
// control plane at their first contact.
func (a *Authority) Pin() string {
	sum := sha256.Sum256(a.cert.Raw)
	return hex.EncodeToString(sum[:])
}

// JoinToken is what is given to an operator for a token of service.JoinTokens.
func (a *Authority) JoinToken(token secret.Value) secret.Value {
	return secret.New(token.Reveal() + "." + a.Pin())
}

// certificate is the authority's own, PEM.
func (a *Authority) certificate() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// parseSigningRequest reads a signing request and gives the key that it is for.
func parseSigningRequest(text string) (crypto.PublicKey, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return nil, problem.Invalidf("csr: want one certificate request, PEM")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		return nil, problem.Invalidf("csr: %w", err)
	}
	key, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, problem.Invalidf("csr: want a key of ECDSA P-256")
	}
	return key, nil
}

// keyDigest names a public key, hexadecimal.
func keyDigest(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), err
}

// noted is what a host's row tells of the certificate that sign makes now.
func (a *Authority) noted(serial *big.Int) compute.Certificate {
	return compute.Certificate{Serial: serial.Text(16), Ends: a.now().Add(certificateLife).UTC().Truncate(time.Second)}
}

// sign makes a host's certificate. Of the request only the key counts.
func (a *Authority) sign(key crypto.PublicKey, hostID string, serial *big.Int) (string, error) {
	der, err := a.issue(&x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: hostID}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), err
}

func (a *Authority) issue(template *x509.Certificate, key crypto.PublicKey) ([]byte, error) {
	now := a.now()
	template.NotBefore, template.NotAfter = now.Add(-skew), now.Add(certificateLife)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	return x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
}

// TLS is the listener's: names are all by which hosts reach it. The listener's certificate is made anew before it ends.
func (a *Authority) TLS(names []string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
		// One renewal every two seconds on a connection of its own is dearer with HTTP/2.
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.listenerCertificate(names) },
		Time:           a.now,
	}
}

// listenerCertificate gives the listener's certificate, with the authority behind it for those who know only its digest.
func (a *Authority) listenerCertificate(names []string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.server != nil && a.now().Before(a.server.Leaf.NotAfter.Add(-certificateLife/2)) {
		return a.server, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: newSerial(), Subject: pkix.Name{CommonName: "salvor"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if name != "" {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if len(template.IPAddresses)+len(template.DNSNames) == 0 {
		return nil, errors.New("the listener of hosts has no name")
	}
	der, err := a.issue(template, key.Public())
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a.server = &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}
	return a.server, nil
}

// Names are those by which a listener at an address is reached: the configured ones, the
// address, and, if it is a wildcard, all addresses of the machine and its name.
func Names(listen string, configured []string, hostname string) ([]string, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, problem.Invalidf("[hosts]listen %q: want ADDRESS:PORT", listen)
	}
	names := append([]string{}, configured...)
	ip := net.ParseIP(host)
	if host != "" && (ip == nil || !ip.IsUnspecified()) {
		names = append(names, host)
		if ip != nil && ip.IsLoopback() {
			names = append(names, "localhost")
		}
		return names, nil
	}
	names = append(names, "localhost", hostname)
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			names = append(names, n.IP.String())
		}
	}
	return names, nil
}
