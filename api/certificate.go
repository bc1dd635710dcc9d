package api

import (
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
	"sync/atomic"
	"time"

	"salvor/problem"
	"salvor/record"
)

const (
	certificateRecheck  = time.Second
	certificateMaxBytes = 1 << 20
	// CertificateNotice is how long before its end a certificate is warned of.
	CertificateNotice = 14 * 24 * time.Hour
	certificateNag    = 24 * time.Hour
)

// CertificateFiles are what a listener with TLS stands on, in PEM.
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

	// used is what serves now: whoever needs it waits for no file.
	used atomic.Pointer[loadedCertificates]

	mu      sync.Mutex // held by who reads the files
	checked time.Time
	stamps  []fileStamp
	nagged  time.Time
}

// loadedCertificates are files as they were read.
type loadedCertificates struct {
	conf    *tls.Config
	clients map[string]bool // the authorities of clients, by their DER
	ends    time.Time       // of the first in the chain that ends
	broken  error           // why newer files are not in use
}

// NewCertificates reads the files; files that cannot be used are Invalid.
func NewCertificates(f CertificateFiles, now func() time.Time, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{files: f, now: now, log: log}
	c.checked, c.stamps = now(), c.stampAll()
	first, err := f.read()
	if err != nil {
		return nil, err
	}
	c.used.Store(&first)
	return c, nil
}

// TLS is the configuration of a listener.
func (c *Certificates) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current().conf, nil },
	}
}

// Trusts tells whether one of the chains by which a client's certificate was proved when its connection began is good now: a
// connection may outlive its certificate, and the authority may be none any more.
func (c *Certificates) Trusts(chains [][]*x509.Certificate) bool {
	used, now := c.current(), c.now()
	return slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool {
		return len(chain) > 0 && used.clients[string(chain[len(chain)-1].Raw)] &&
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

// current is what serves now. One of those who ask looks at the files meanwhile: where their disk hangs, that one does alone.
func (c *Certificates) current() *loadedCertificates {
	if c.mu.TryLock() {
		defer c.mu.Unlock()
		c.refresh()
	}
	return c.used.Load()
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
	was := c.used.Load()
	if slices.Equal(stamps, c.stamps) && was.broken == nil {
		return
	}
	next, err := c.files.read()
	if err != nil {
		if was.broken == nil || err.Error() != was.broken.Error() {
			c.log.Error("the new certificate cannot be used: the one of before stays in use", "error", err, "expires", was.ends)
		}
		next = *was
		next.broken = err
	} else {
		if was.broken != nil || !slices.Equal(stamps, c.stamps) {
			c.log.Info("certificate read", "file", c.files.Cert, "expires", next.ends)
		}
		c.nagged = time.Time{}
	}
	c.stamps = stamps
	c.used.Store(&next)
}

// State tells when the certificate in use ends, and what an operator has to do about it; empty: nothing. outside is that for
// strangers, without names of files.
func (c *Certificates) State() (ends time.Time, outside, warning string) {
	used := c.current()
	left, at := used.ends.Sub(c.now()), record.Moment(used.ends)
	var told, said []string
	tell := func(file, text, rest string) {
		told, said = append(told, "the certificate"+text), append(said, "the certificate "+file+text+rest)
	}
	switch {
	case left <= 0:
		tell(c.files.Cert, " expired at "+at, ": clients refuse it; put a new one there, no restart is needed")
	case left < CertificateNotice:
		tell(c.files.Cert, fmt.Sprintf(" expires in %d days, at %s", int(left/(24*time.Hour)), at), ": put a new one there, no restart is needed")
	}
	if used.broken != nil {
		const text = "the new certificate cannot be used, the one of before stays in use"
		told, said = append(told, text), append(said, text+": "+used.broken.Error())
	}
	return used.ends, strings.Join(told, "; "), strings.Join(said, "; ")
}

// Nag logs once a day what State warns of. It is to be called from time to time.
func (c *Certificates) Nag() {
	_, _, warning := c.State()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); warning != "" && now.Sub(c.nagged) >= certificateNag {
		c.nagged = now
		c.log.Warn(warning)
	}
}

// read reads all of the files.
func (f CertificateFiles) read() (out loadedCertificates, err error) {
	if out.conf, out.ends, err = f.load(); err == nil {
		out.clients, err = f.authorities()
	}
	return out, err
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
