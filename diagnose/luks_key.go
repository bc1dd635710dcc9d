package diagnose

import (
	"encoding/json"
	"regexp"
	"strings"

	"salvor/problem"
	"salvor/secret"
)

// Bounds of the LUKS keys of a diagnosis or a repair: their number, and the bytes of each.
const (
	MaxLUKSKeys = 16
	MaxLUKSKey  = 8 << 10
)

// LUKSKey opens LUKS containers on the disks of a machine.
type LUKSKey struct {
	// UUID is that of the only container that the key is tried on; empty: it is tried on each.
	UUID string
	// Key is a passphrase or what a key file holds, byte by byte.
	Key secret.Value
}

// packedLUKSKey is a key as it lies sealed in a row.
type packedLUKSKey struct {
	UUID string `json:"uuid,omitempty"`
	Key  []byte `json:"key"`
}

// containerUUID is the form that cryptsetup gives the UUID of a container.
var containerUUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// PackLUKSKeys gives keys as one secret; without keys it is empty. Invalid: there are too many, one is empty or too large, or a UUID is none.
func PackLUKSKeys(keys []LUKSKey) (secret.Value, error) {
	if len(keys) == 0 {
		return secret.Value{}, nil
	}
	if len(keys) > MaxLUKSKeys {
		return secret.Value{}, problem.Invalidf("there are %d LUKS keys; at most %d are taken", len(keys), MaxLUKSKeys)
	}
	packed := make([]packedLUKSKey, 0, len(keys))
	for i, k := range keys {
		if n := len(k.Key.Reveal()); n == 0 || n > MaxLUKSKey {
			return secret.Value{}, problem.Invalidf("LUKS key %d has %d bytes; want 1 to %d", i+1, n, MaxLUKSKey)
		}
		uuid := strings.ToLower(k.UUID)
		if uuid != "" && !containerUUID.MatchString(uuid) {
			return secret.Value{}, problem.Invalidf("LUKS key %d: %.60q is no UUID of a LUKS container; cryptsetup luksUUID prints it", i+1, k.UUID)
		}
		packed = append(packed, packedLUKSKey{uuid, []byte(k.Key.Reveal())})
	}
	text, err := json.Marshal(packed)
	return secret.New(string(text)), err
}

// UnpackLUKSKeys is the reverse of PackLUKSKeys: the keys for each container, and those for one alone by its UUID. The caller owns the bytes.
// Conflict: v is no packed keys.
func UnpackLUKSKeys(v secret.Value) (keys [][]byte, byUUID map[string][][]byte, err error) {
	if v.Empty() {
		return nil, nil, nil
	}
	var packed []packedLUKSKey
	if json.Unmarshal([]byte(v.Reveal()), &packed) != nil {
		return nil, nil, problem.Conflictf("the stored LUKS keys cannot be read; ask again, and give the keys")
	}
	for _, p := range packed {
		if p.UUID == "" {
			keys = append(keys, p.Key)
			continue
		}
		if byUUID == nil {
			byUUID = map[string][][]byte{}
		}
		byUUID[p.UUID] = append(byUUID[p.UUID], p.Key)
	}
	return keys, byUUID, nil
}
