package api

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/problem"
)

const (
	certificateRecheck  = time.Second
	certificateMaxBytes = 1 << 20
	// CertificateNotice is how long before its end a certificate is warned of.
	CertificateNotice = 14 * 24 * time.Hour
	certificateNag    = 24 * time.Hour
)

// CertificateFiles are what a door with TLS stands on, in PEM.
type CertificateFiles struct {
	Cert, Key string
	// CA holds the authorities of clients; empty: no client is asked for a certificate.
	CA string
}

// Certificates serve TLS by files that are read again when they change. Where new ones are broken those of before stay in use. It
// is safe for use by several goroutines.
type Certificates struct {
	files CertificateFiles
	now   func() time.Time
	log   *slog.Logger

	mu      sync.Mutex
	checked time.Time
	stamps  []fileStamp
	conf    *tls.Config
	clients map[string]bool // the authorities of clients, by their DER
	ends    time.Time       // of the first in the chain that ends
	broken  error           // why the newest files are not in use
	nagged  time.Time
}

// NewCertificates reads the files; files that cannot be used are Invalid.
func NewCertificates(f CertificateFiles, now func() time.Time, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{files: f, now: now, log: log}
	c.checked, c.stamps = now(), c.stampAll()
	var err error
	if c.conf, c.ends, err = f.load(); err == nil {
		c.clients, err = f.authorities()
	}
	return c, err
}

// TLS is the configuration of a listener.
func (c *Certificates) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.refresh()
			return c.conf, nil
		},
	}
}

// Trusts tells whether one of the chains by which a client's certificate was proved when its connection began is good now: a
// connection may outlive its certificate, and the authority may be none any more.
func (c *Certificates) Trusts(chains [][]*x509.Certificate) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refresh()
	now := c.now()
	return slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool {
		return len(chain) > 0 && c.clients[string(chain[len(chain)-1].Raw)] &&
			!slices.ContainsFunc(chain, func(one *x509.Certificate) bool { return now.After(one.NotAfter) })
	})
}

// stampAll tells one state of the files from others. A file that is not there has the zero stamp.
func (c *Certificates) stampAll() []fileStamp {
	var out []fileStamp
	for _, name := range []string{c.files.Cert, c.files.Key, c.files.CA} {
		var s fileStamp
		if info, err := os.Stat(name); name != "" && err == nil {
			s = fileStamp{info.ModTime(), info.Size()}
		}
		out = append(out, s)
	}
	return out
}

// refresh reads the files if they changed. The caller holds mu.
func (c *Certificates) refresh() {
	now := c.now()
	if now.Sub(c.checked) < certificateRecheck {
		return
	}
	c.checked = now
	// A key and its certificate are two files, so for a moment they may not fit: what did not fit is tried again.
	stamps := c.stampAll()
	if slices.Equal(stamps, c.stamps) && c.broken == nil {
		return
	}
	conf, ends, err := c.files.load()
	clients, badCA := c.files.authorities()
	if err = cmp.Or(err, badCA); err != nil {
		if c.broken == nil || err.Error() != c.broken.Error() {
			c.log.Error("the new certificate cannot be used: the one of before stays in use", "error", err, "expires", c.ends)
		}
		c.stamps, c.broken = stamps, err
		return
	}
	if c.broken != nil || !slices.Equal(stamps, c.stamps) {
		c.log.Info("certificate read", "file", c.files.Cert, "expires", ends)
	}
	c.stamps, c.conf, c.clients, c.ends, c.broken = stamps, conf, clients, ends, nil
	c.nagged = time.Time{}
}

// State tells when the certificate in use ends, and what an operator has to do about it; empty: nothing.
func (c *Certificates) State() (ends time.Time, warning string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refresh()
	left := c.ends.Sub(c.now())
	var said []string
	switch {
	case left <= 0:
		said = append(said, fmt.Sprintf("the certificate %s expired at %s: clients refuse it; put a new one there, no restart is needed", c.files.Cert, c.ends.UTC().Format(time.RFC3339)))
	case left < CertificateNotice:
		said = append(said, fmt.Sprintf("the certificate %s expires in %d days, at %s: put a new one there, no restart is needed", c.files.Cert, int(left/(24*time.Hour)), c.ends.UTC().Format(time.RFC3339)))
	}
	if c.broken != nil {
		said = append(said, "the new certificate cannot be used, the one of before stays in use: "+c.broken.Error())
	}
	return c.ends, strings.Join(said, "; ")
}

// Nag logs once a day what State warns of. It is to be called from time to time.
func (c *Certificates) Nag() {
	_, warning := c.State()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); warning != "" && now.Sub(c.nagged) >= certificateNag {
		c.nagged = now
		c.log.Warn(warning)
	}
}

func (f CertificateFiles) load() (*tls.Config, time.Time, error) {
	var ends time.Time
	cert, err := readPEM("cert_file", f.Cert)
	if err != nil {
		return nil, ends, err
	}
	key, err := readPEM("key_file", f.Key)
	if err != nil {
		return nil, ends, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, ends, problem.Invalidf("[api]cert_file %s and key_file %s: %w", f.Cert, f.Key, err)
	}
	for _, der := range pair.Certificate {
		one, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, ends, problem.Invalidf("[api]cert_file %s: %w", f.Cert, err)
		}
		if ends.IsZero() || one.NotAfter.Before(ends) {
			ends = one.NotAfter
		}
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if f.CA != "" {
		b, err := readPEM("ca_file", f.CA)
		if err != nil {
			return nil, ends, err
		}
		conf.ClientCAs = x509.NewCertPool()
		if !conf.ClientCAs.AppendCertsFromPEM(b) {
			return nil, ends, problem.Invalidf("[api]ca_file %s holds no certificate", f.CA)
		}
		// Ramdisks and users with a token come without one; one that is shown must be good.
		conf.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return conf, ends, nil
}

// authorities are those of clients.
func (f CertificateFiles) authorities() (map[string]bool, error) {
	if f.CA == "" {
		return nil, nil
	}
	b, err := readPEM("ca_file", f.CA)
	out := map[string]bool{}
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		out[string(block.Bytes)] = true
	}
	return out, err
}

// readPEM reads a file of at most a bounded size. What is in it is in no error.
func readPEM(option, name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, problem.Invalidf("[api]%s: %w", option, err)
	}
	if info.Size() > certificateMaxBytes || !info.Mode().IsRegular() {
		return nil, problem.Invalidf("[api]%s: %s is no file of at most %d bytes", option, name, certificateMaxBytes)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, problem.Invalidf("[api]%s: %w", option, err)
	}
	if block, _ := pem.Decode(b); block == nil {
		return nil, problem.Invalidf("[api]%s: %w", option, errors.New(name+" holds no PEM"))
	}
	return b, nil
}
