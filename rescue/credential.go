package rescue

import (
	"strings"

	"github.com/go-crypt/crypt/algorithm/shacrypt"

	"salvor/problem"
	"salvor/secret"
)

// Hash algorithms of crypt(3) that a rescue password may be hashed with.
const (
	SHA256 = "sha256"
	SHA512 = "sha512"
)

// MaxPassword bounds a rescue password in bytes, so that hashing cannot be made a burden.
const MaxPassword = 1024

// HashPassword turns a password into a crypt(3) hash ($5$ or $6$) that /etc/shadow
// takes. A blank or overlong password, one with a NUL or a line break, and an unknown algorithm are Invalid.
func HashPassword(password secret.Value, algorithm string) (secret.Value, error) {
	plain := password.Reveal()
	if strings.TrimSpace(plain) == "" {
		return secret.Value{}, problem.Invalidf(`A non-empty "rescue_password" is required when setting target provision state to rescue`)
	}
	if len(plain) > MaxPassword || strings.ContainsAny(plain, "\x00\n\r") {
		return secret.Value{}, problem.Invalidf(`"rescue_password" must be one line of at most %d bytes`, MaxPassword)
	}
	opts := []shacrypt.Opt{shacrypt.WithIterations(5000)}
	switch algorithm {
	case SHA256, "":
		opts = append(opts, shacrypt.WithVariant(shacrypt.VariantSHA256))
	case SHA512:
		opts = append(opts, shacrypt.WithVariant(shacrypt.VariantSHA512))
	default:
		return secret.Value{}, problem.Invalidf("rescue password: unknown hash algorithm %q; want sha256 or sha512", algorithm)
	}
	hasher, err := shacrypt.New(opts...)
	if err != nil {
		return secret.Value{}, err
	}
	digest, err := hasher.Hash(plain)
	if err != nil {
		return secret.Value{}, err
	}
	return secret.New(digest.Encode()), nil
}
