package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"salvor/access"
	"salvor/problem"
	"salvor/secret"
)

const (
	htpasswdRecheck  = time.Second
	htpasswdMaxBytes = 1 << 20
	// bcryptAtOnce bounds the processors that guessers of passwords can keep busy.
	bcryptAtOnce  = 2
	rememberUsers = 1024
	maxPassword   = 72 // all that bcrypt reads
)

// HTTPBasic authenticates by HTTP basic authentication against an htpasswd file of
// bcrypt hashes. The file is read again when it changes. It is safe for use by several goroutines.
type HTTPBasic struct {
	path  string
	now   func() time.Time
	slots chan struct{}
	key   []byte // of the proofs below; new in each process

	mu      sync.Mutex
	checked time.Time
	stamp   fileStamp
	hashes  map[string][]byte
	nobody  []byte            // compared for users that do not exist, so that time does not tell them apart
	proven  map[string][]byte // by user: the MAC of the password that bcrypt accepted
}

type fileStamp struct {
	modified time.Time
	size     int64
}

// NewHTTPBasic reads the file; a file without a user or with a line that is no bcrypt hash is Invalid.
func NewHTTPBasic(path string) (*HTTPBasic, error) {
	h := &HTTPBasic{path: path, now: time.Now, slots: make(chan struct{}, bcryptAtOnce), key: make([]byte, 32)}
	_, _ = rand.Read(h.key) // never fails: it ends the program instead
	return h, h.load()
}

// load reads the file; the caller holds mu or is alone.
func (h *HTTPBasic) load() error {
	info, err := os.Stat(h.path)
	if err != nil {
		return problem.Invalidf("htpasswd file: %w", err)
	}
	stamp := fileStamp{info.ModTime(), info.Size()}
	if h.hashes != nil && stamp == h.stamp {
		return nil
	}
	if info.Size() > htpasswdMaxBytes {
		return problem.Invalidf("htpasswd file %s is larger than %d bytes", h.path, htpasswdMaxBytes)
	}
	b, err := os.ReadFile(h.path)
	if err != nil {
		return problem.Invalidf("htpasswd file: %w", err)
	}
	hashes, err := parseHtpasswd(b)
	if err != nil {
		return fmt.Errorf("htpasswd file %s: %w", h.path, err)
	}
	nobody, err := hashOfNobody(hashes)
	if err != nil {
		return fmt.Errorf("htpasswd file %s: %w", h.path, err)
	}
	h.hashes, h.nobody, h.stamp, h.proven = hashes, nobody, stamp, map[string][]byte{}
	return nil
}

// hashOfNobody makes a hash that costs as much as the dearest of the users.
func hashOfNobody(hashes map[string][]byte) ([]byte, error) {
	dearest := bcrypt.MinCost
	for _, hash := range hashes {
		if cost, err := bcrypt.Cost(hash); err == nil {
			dearest = max(dearest, cost)
		}
	}
	return bcrypt.GenerateFromPassword([]byte(rand.Text()), dearest)
}

func parseHtpasswd(b []byte) (map[string][]byte, error) {
	hashes := map[string][]byte{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		user, hash, ok := strings.Cut(line, ":")
		if _, err := bcrypt.Cost([]byte(hash)); !ok || user == "" || err != nil {
			return nil, problem.Invalidf("line %d is not USER:BCRYPT-HASH (make one with htpasswd -nB USER)", n)
		}
		hashes[user] = []byte(hash)
	}
	if err := lines.Err(); err != nil {
		return nil, problem.Invalidf("%w", err)
	}
	if len(hashes) == 0 {
		return nil, problem.Invalidf("it names no user")
	}
	return hashes, nil
}

// Authenticate checks the Authorization header.
func (h *HTTPBasic) Authenticate(r *http.Request) (access.Principal, error) {
	user, password, ok := r.BasicAuth()
	if !ok || len(password) > maxPassword {
		return access.Principal{}, errUnauthorized
	}
	proof := h.proof(user, password)
	known, hash, proven, err := h.look(user, proof)
	if err != nil {
		return access.Principal{}, err
	}
	if !proven {
		if err := h.compare(r.Context(), hash, password); err != nil {
			return access.Principal{}, err
		}
		if !known {
			return access.Principal{}, errUnauthorized
		}
		h.remember(user, hash, proof)
	}
	return access.Principal{User: user, Role: access.Admin}, nil
}

// Stamp is a secret that changes with the user's password; empty: there is no such user.
func (h *HTTPBasic) Stamp(user string) (secret.Value, error) {
	known, hash, _, err := h.look(user, nil)
	if err != nil || !known {
		return secret.Value{}, err
	}
	return secret.New(string(hash)), nil
}

// look finds the user's hash, or one for nobody, and whether this very password was accepted before.
func (h *HTTPBasic) look(user string, proof []byte) (known bool, hash []byte, proven bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); now.Sub(h.checked) >= htpasswdRecheck {
		if err := h.load(); err != nil {
			return false, nil, false, problem.Unavailablef("users cannot be told apart now: %w", err)
		}
		h.checked = now
	}
	if hash, known = h.hashes[user]; !known {
		return false, h.nobody, false, nil
	}
	return true, hash, hmac.Equal(h.proven[user], proof), nil
}

func (h *HTTPBasic) compare(ctx context.Context, hash []byte, password string) error {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return problem.Unavailablef("too many log-ins at once; ask again")
	}
	if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil {
		return errUnauthorized
	}
	return nil
}

// remember spares the next request bcrypt's work, unless the user's hash changed meanwhile.
func (h *HTTPBasic) remember(user string, hash, proof []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.proven) < rememberUsers && bytes.Equal(h.hashes[user], hash) {
		h.proven[user] = proof
	}
}

func (h *HTTPBasic) proof(user, password string) []byte {
	m := hmac.New(sha256.New, h.key)
	fmt.Fprintf(m, "%d:%s:%s", len(user), user, password)
	return m.Sum(nil)
}

var errUnauthorized = &Error{
	Status: http.StatusUnauthorized, Text: "Authorization required.",
	Header: http.Header{"Www-Authenticate": {`Basic realm="Baremetal API"`}},
}
