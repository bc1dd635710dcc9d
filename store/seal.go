package store

import (
	"encoding/json"
	"fmt"
	"strconv"

	"salvor/secret"
)

// sealedMark is the one key of the object that stands for a sealed value. It is
// read back only under keys that are always sealed, so a user's own object of
// that shape elsewhere stays what it is.
const sealedMark = "$sealed"

// seal copies a decoded JSON value with the value under every key that is secret sealed, at
// any depth. place names the value, so a sealed one copied to another row does not open.
func (s *storeCore) seal(v any, place string, isSecret func(key string) bool) (any, error) {
	return replaceSecrets(v, place, isSecret, func(v any, place string) (any, error) {
		plain, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("seal %s: %w", place, err)
		}
		return map[string]any{sealedMark: s.key.Seal(secret.New(string(plain)), place)}, nil
	})
}

// open is the reverse of seal. What lies there in clear, from before its key counted as a
// secret, is taken as it is; the next write seals it.
func (s *storeCore) open(v any, place string, isSecret func(key string) bool) (any, error) {
	return replaceSecrets(v, place, isSecret, func(v any, place string) (any, error) {
		box, _ := v.(map[string]any)
		sealed, ok := box[sealedMark].(string)
		if !ok {
			return v, nil
		}
		plain, err := s.key.Open(sealed, place)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", place, err)
		}
		var out any
		if err := json.Unmarshal([]byte(plain.Reveal()), &out); err != nil {
			return nil, fmt.Errorf("open %s: not JSON", place)
		}
		return out, nil
	})
}

// replaceSecrets copies v and gives the value under each secret key to change.
func replaceSecrets(v any, place string, isSecret func(key string) bool, change func(v any, place string) (any, error)) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return nil, nil
		}
		out := make(map[string]any, len(v))
		for k, e := range v {
			inner := place + "/" + k
			if e != nil && isSecret(k) {
				out[k], err = change(e, inner)
			} else {
				out[k], err = replaceSecrets(e, inner, isSecret, change)
			}
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			if out[i], err = replaceSecrets(e, place+"/"+strconv.Itoa(i), isSecret, change); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}
