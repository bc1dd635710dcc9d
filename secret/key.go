package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

// KeySize is the length of the master key in bytes.
const KeySize = 32

// Key seals secrets at rest and makes the tokens that are derived instead of stored.
// It is safe for use by several goroutines and cannot be printed.
type Key struct {
	aead cipher.AEAD
	mac  []byte
}

// NewKey derives the working keys from a master key of KeySize bytes.
func NewKey(master []byte) (*Key, error) {
	if len(master) != KeySize {
		return nil, fmt.Errorf("secret key: want %d bytes, have %d", KeySize, len(master))
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
	return &Key{aead: aead, mac: mac}, nil
}

// GenerateKey makes a fresh master key.
func GenerateKey() []byte {
	b := make([]byte, KeySize)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	return b
}

// Seal encrypts a secret for one place: where (a table, row and column, say) is
// bound to it, so that a sealed value moved elsewhere does not open.
func (k *Key) Seal(v Value, where string) string {
	return base64.RawStdEncoding.EncodeToString(k.aead.Seal(nil, nil, []byte(v.plain), []byte(where)))
}

// Open is the reverse of Seal.
func (k *Key) Open(sealed, where string) (Value, error) {
	b, err := base64.RawStdEncoding.DecodeString(sealed)
	if err != nil {
		return Value{}, errors.New("open sealed secret: not base64")
	}
	plain, err := k.aead.Open(nil, nil, b, []byte(where))
	if err != nil {
		return Value{}, errors.New("open sealed secret: wrong key or place")
	}
	return Value{string(plain)}, nil
}

// Token derives a token of 43 URL-safe characters from what it is good for. The
// same words give the same token, so a token need not be stored to be checked.
func (k *Key) Token(words ...string) Value {
	m := hmac.New(sha256.New, k.mac)
	for _, w := range words {
		fmt.Fprintf(m, "%d:%s;", len(w), w)
	}
	return Value{base64.RawURLEncoding.EncodeToString(m.Sum(nil))}
}

// Equal compares two secrets in a time that does not tell where they differ.
func (v Value) Equal(w Value) bool { return hmac.Equal([]byte(v.plain), []byte(w.plain)) }

func (k *Key) String() string { return Mask }

// GoString masks under %#v too.
func (k *Key) GoString() string { return Mask }
