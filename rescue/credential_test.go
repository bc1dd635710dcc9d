package rescue

import (
	"strings"
	"testing"

	"github.com/go-crypt/crypt"

	"salvor/problem"
	"salvor/secret"
)

func TestHashIsWhatShadowTakes(t *testing.T) {
	for algorithm, prefix := range map[string]string{"": "$5$", SHA256: "$5$", SHA512: "$6$"} {
		hash, err := HashPassword(secret.New("let me in"), algorithm)
		if err != nil || !strings.HasPrefix(hash.Reveal(), prefix) || strings.Contains(hash.Reveal(), ":") {
			t.Fatalf("%s: %v %v", algorithm, hash, err)
		}
		digest, err := crypt.Decode(hash.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		if !digest.Match("let me in") || digest.Match("let me out") {
			t.Errorf("%s: the hash is of another password", algorithm)
		}
		again, err := HashPassword(secret.New("let me in"), algorithm)
		if err != nil || again.Equal(hash) {
			t.Errorf("%s: no salt", algorithm)
		}
	}
}

func TestPasswordsThatAreRefused(t *testing.T) {
	for _, password := range []string{"", " ", "\t", "a\nb", "a\x00b", "a\r", strings.Repeat("x", MaxPassword+1)} {
		if _, err := HashPassword(secret.New(password), SHA256); !problem.Is(err, problem.Invalid) {
			t.Errorf("%q: %v", password, err)
		}
	}
	if _, err := HashPassword(secret.New("fine"), "md5"); !problem.Is(err, problem.Invalid) {
		t.Errorf("md5: %v", err)
	}
}
