package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// maxKeys bounds what a key file may name: more than two at a time is a mistake, but a harmless one.
const maxKeys = 16

// ParseKeys reads master keys as a key file holds them or a key command prints them: one a line, in base64 or hexadecimal digits,
// with empty lines and lines that begin with # left out; or KeySize bytes that are one key as it is. No error quotes any of it.
func ParseKeys(text []byte) ([][]byte, error) {
	if len(text) == KeySize {
		return [][]byte{bytes.Clone(text)}, nil
	}
	var out [][]byte
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key := parseKey(line)
		if key == nil {
			return nil, fmt.Errorf("line %d is no key: want %d bytes in base64 or hexadecimal digits", n, KeySize)
		}
		if out = append(out, key); len(out) > maxKeys {
			return nil, fmt.Errorf("more than %d keys", maxKeys)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there is no key: want %d bytes in base64 or hexadecimal digits, one key a line", KeySize)
	}
	return out, nil
}

func parseKey(line string) []byte {
	for _, decode := range []func(string) ([]byte, error){hex.DecodeString, base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString} {
		if b, err := decode(line); err == nil && len(b) == KeySize {
			return b
		}
	}
	return nil
}

// FormatKeys is the reverse of ParseKeys, each key behind a comment with its id.
func FormatKeys(masters [][]byte) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Keys of salvor: who has this file reads every secret in the database. Keep a copy apart from it.\n")
	for _, m := range masters {
		id, err := KeyID(m)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "# %s\n%s\n", id, base64.StdEncoding.EncodeToString(m))
	}
	return b.Bytes(), nil
}
