package host

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"salvor/durable"
	"salvor/problem"
)

// hostIdentity is what makes this directory the host that it is: a uuid, a key, the
// certificate that the control plane gave, and the lock that keeps a second agent out.
type hostIdentity struct {
	dir, id string
	lock    *os.File
	key     *ecdsa.PrivateKey
	pair    atomic.Pointer[hostCertificate]
}

// hostCertificate is a certificate with the authority that it came from.
type hostCertificate struct {
	cert tls.Certificate
	ca   *x509.Certificate
}

const (
	idFile, keyFile   = "host.id", "host.key"
	certFile, lockDir = "host.crt", "lock"
)

func openIdentity(dir string) (*hostIdentity, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// Others may walk through it, as QEMU must to the files of guests, and list nothing.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, problem.Invalidf("state directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockDir), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, problem.Invalidf("state directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, problem.Conflictf("state directory %s is in use by another salvor host; stop it, or give this one its own --state-dir", dir)
	}
	i := &hostIdentity{dir: dir, lock: lock}
	if err := i.read(); err != nil {
		lock.Close()
		return nil, err
	}
	return i, nil
}

func (i *hostIdentity) read() error {
	id, err := durable.ReadOrMake(i.path(idFile), 0o600, func() ([]byte, error) { return []byte(uuid.NewString() + "\n"), nil })
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	if i.id = strings.TrimSpace(string(id)); uuid.Validate(i.id) != nil {
		return problem.Invalidf("%s holds no UUID", i.path(idFile))
	}
	key, err := durable.ReadOrMake(i.path(keyFile), 0o600, makeKey)
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	block, _ := pem.Decode(key)
	if block == nil {
		return problem.Invalidf("%s holds no key", i.path(keyFile))
	}
	if i.key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
		return problem.Invalidf("%s: %w", i.path(keyFile), err)
	}
	text, err := os.ReadFile(i.path(certFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p, err := i.parse(text)
	if err != nil {
		return problem.Invalidf("%s: %w; remove it and join again", i.path(certFile), err)
	}
	i.pair.Store(p)
	return nil
}

func makeKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// parse takes a certificate with its authority behind it, both PEM, and proves that they are this host's.
func (i *hostIdentity) parse(text []byte) (*hostCertificate, error) {
	var certs []*x509.Certificate
	for len(certs) < 2 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, errors.New("not a certificate with its authority")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, c)
	}
	own, ca := certs[0], certs[1]
	public, ok := own.PublicKey.(*ecdsa.PublicKey)
	if !ok || !public.Equal(i.key.Public()) || own.Subject.CommonName != i.id {
		return nil, errors.New("the certificate is not of this host")
	}
	if err := own.CheckSignatureFrom(ca); err != nil {
		return nil, fmt.Errorf("the certificate is not of its authority: %w", err)
	}
	return &hostCertificate{tls.Certificate{Certificate: [][]byte{own.Raw}, PrivateKey: i.key, Leaf: own}, ca}, nil
}

// admit keeps a certificate that the control plane gave.
func (i *hostIdentity) admit(cert, ca string) error {
	p, err := i.parse([]byte(cert + "\n" + ca))
	if err != nil {
		return problem.Invalidf("certificate from the control plane: %w", err)
	}
	if err := durable.Write(i.path(certFile), []byte(strings.TrimSpace(cert)+"\n"+strings.TrimSpace(ca)+"\n"), 0o600); err != nil {
		return err
	}
	i.pair.Store(p)
	return nil
}

// certified tells whether the host has a certificate that has not ended.
func (i *hostIdentity) certified(now time.Time) bool {
	p := i.pair.Load()
	return p != nil && now.Before(p.cert.Leaf.NotAfter)
}

// request is a signing request for the host's key, PEM.
func (i *hostIdentity) request() (string, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: i.id}}, i.key)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), nil
}

func (i *hostIdentity) path(names ...string) string {
	return filepath.Join(append([]string{i.dir}, names...)...)
}

// makeDir makes a directory through which others may walk.
func (i *hostIdentity) makeDir(names ...string) error {
	return os.MkdirAll(i.path(names...), 0o711)
}

// close gives the lock up.
func (i *hostIdentity) close() error { return durable.Unlock(i.lock) }

func readBootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// sinceBoot counts the machine's sleep too: a lease goes on meanwhile.
func sinceBoot() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano()), err
}
