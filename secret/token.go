package secret

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
)

// NewToken makes a token that nobody can guess. The mark before it tells whoever finds it what it opens.
func NewToken(mark string) Value {
	b := make([]byte, KeySize)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	return New(mark + base64.RawURLEncoding.EncodeToString(b))
}

// Digest is what may be kept of a token in its place. The text is random and long, so no salt is needed.
func (v Value) Digest() string {
	sum := sha256.Sum256([]byte(v.Reveal()))
	return hex.EncodeToString(sum[:])
}
