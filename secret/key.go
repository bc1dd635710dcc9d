package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// KeySize is the length of a master key in bytes.
const KeySize = 32

// Key seals secrets at rest and makes the tokens that are derived instead of stored. It may know
// several master keys: one of them seals, all of them open. It is safe for use by several
// goroutines and cannot be printed.
type Key struct {
	mu    sync.RWMutex
	known []*working // in the order in which they were learnt
	seals *working
	ended map[string]time.Time // by id: since when a key seals and signs no more
}

// working is what is derived from one master key.
type working struct {
	id   string
	aead cipher.AEAD
	mac  []byte
}

// NewKey takes master keys of KeySize bytes each, one at least; the first one seals until Use says otherwise.
func NewKey(masters ...[]byte) (*Key, error) {
	k := &Key{ended: map[string]time.Time{}}
	for _, m := range masters {
		if _, err := k.Add(m); err != nil {
			return nil, err
		}
	}
	if len(k.known) == 0 {
		return nil, errors.New("secret key: none is given")
	}
	k.seals = k.known[0]
	return k, nil
}

// KeyID names a master key; it tells nothing of it. Every sealed value begins with the id of its key.
func KeyID(master []byte) (string, error) {
	if len(master) != KeySize {
		return "", fmt.Errorf("secret key: want %d bytes, have %d", KeySize, len(master))
	}
	id, err := hkdf.Key(sha256.New, master, nil, "salvor key id 1", 4)
	return hex.EncodeToString(id), err
}

func derive(master []byte) (*working, error) {
	id, err := KeyID(master)
	if err != nil {
		return nil, err
	}
	seal, err := hkdf.Key(sha256.New, master, nil, "salvor seal 1", KeySize)
	if err != nil {
		return nil, err
	}
	mac, err := hkdf.Key(sha256.New, master, nil, "salvor token 1", KeySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(seal)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &working{id: id, aead: aead, mac: mac}, nil
}

// GenerateKey makes a fresh master key.
func GenerateKey() []byte {
	b := make([]byte, KeySize)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	return b
}

// Add lets one more master key open what is sealed with it. It gives the key's id.
func (k *Key) Add(master []byte) (string, error) {
	w, err := derive(master)
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID(w.id) == nil {
		k.known = append(k.known, w)
	}
	return w.id, nil
}

// Use makes a known key the one that seals; false: it is not known.
func (k *Key) Use(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.byID(id)
	if w != nil {
		k.seals = w
	}
	return w != nil
}

// End notes since when a key seals and signs no more. It opens still: what it sealed is being sealed anew.
func (k *Key) End(id string, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended[id] = since
}

// Forget drops a key unless it is the one that seals.
func (k *Key) Forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known = slices.DeleteFunc(slices.Clone(k.known), func(w *working) bool { return w.id == id && w != k.seals })
}

// ID is the id of the key that seals.
func (k *Key) ID() string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.seals.id
}

// IDs are the ids of all known keys.
func (k *Key) IDs() []string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var out []string
	for _, w := range k.known {
		out = append(out, w.id)
	}
	return out
}

// byID is nil for a key that is not known. The caller holds the lock.
func (k *Key) byID(id string) *working {
	for _, w := range k.known {
		if w.id == id {
			return w
		}
	}
	return nil
}

// all are the known keys, the one that seals first.
func (k *Key) all() []*working {
	k.mu.RLock()
	defer k.mu.RUnlock()
	out := []*working{k.seals}
	for _, w := range k.known {
		if w != k.seals {
			out = append(out, w)
		}
	}
	return out
}

// idMark stands between the id of a key and what is sealed with it; base64 has none.
const idMark = "."

// SealedBy is the id of the key of a sealed value; empty: it is from before keys had ids.
func SealedBy(sealed string) string {
	id, _, ok := strings.Cut(sealed, idMark)
	if !ok {
		return ""
	}
	return id
}

// Seal encrypts a secret for one place: where (a table, row and column, say) is
// bound to it, so that a sealed value moved elsewhere does not open.
func (k *Key) Seal(v Value, where string) string {
	w := k.all()[0]
	return w.id + idMark + base64.RawStdEncoding.EncodeToString(w.aead.Seal(nil, nil, []byte(v.Reveal()), []byte(where)))
}

// Open is the reverse of Seal, with whichever known key it was sealed.
func (k *Key) Open(sealed, where string) (Value, error) {
	v, _, err := k.OpenedBy(sealed, where)
	return v, err
}

// OpenedBy is Open, and tells the id of the key that opened.
func (k *Key) OpenedBy(sealed, where string) (Value, string, error) {
	id := SealedBy(sealed)
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimPrefix(sealed, id+idMark))
	if err != nil {
		return Value{}, "", errors.New("open sealed secret: not base64")
	}
	for _, w := range k.all() {
		if id != "" && id != w.id {
			continue
		}
		if plain, err := w.aead.Open(nil, nil, b, []byte(where)); err == nil {
			return New(string(plain)), w.id, nil
		}
	}
	return Value{}, "", errors.New("open sealed secret: wrong key or place")
}

// Token derives a token of 43 URL-safe characters from what it is good for. The
// same words give the same token, so a token need not be stored to be checked.
func (k *Key) Token(parts ...string) Value { return k.all()[0].token(parts) }

// TokenBy is Token as the key id derived it, for tokens that somebody holds while the key is changed. Where that key is not
// known it is Token; an empty id is that of a time without ids, so the oldest key's.
func (k *Key) TokenBy(id string, parts ...string) Value {
	keys := k.all()
	if id == "" {
		return keys[len(keys)-1].token(parts)
	}
	for _, w := range keys {
		if w.id == id {
			return w.token(parts)
		}
	}
	return keys[0].token(parts)
}

// Life is how long a token lives at most that a key derived before it ended, and what time it is.
type Life struct {
	Now time.Time
	For time.Duration
}

// Derived tells whether a token is Token's for the words, by a key that may sign, or by one that ended no longer ago than a token
// lives: what is older is nobody's who got it while the key was good.
func (k *Key) Derived(life Life, token Value, parts ...string) bool {
	good := false
	for _, w := range k.all() {
		good = w.token(parts).Equal(token) && k.signs(w.id, life) || good
	}
	return good
}

func (k *Key) signs(id string, life Life) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	since, ended := k.ended[id]
	return !ended || life.For > 0 && life.Now.Before(since.Add(life.For))
}

func (w *working) token(parts []string) Value {
	m := hmac.New(sha256.New, w.mac)
	for _, word := range parts {
		fmt.Fprintf(m, "%d:%s;", len(word), word)
	}
	return New(base64.RawURLEncoding.EncodeToString(m.Sum(nil)))
}

// Equal compares two secrets in a time that does not tell where they differ.
func (v Value) Equal(w Value) bool { return hmac.Equal([]byte(v.Reveal()), []byte(w.Reveal())) }

func (k *Key) String() string { return Mask }

// GoString masks under %#v too.
func (k *Key) GoString() string { return Mask }
