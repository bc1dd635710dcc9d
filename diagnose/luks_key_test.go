package diagnose

import (
	"fmt"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

// TestLUKSKeys: keys of any bytes come back whole, and no print shows one.
func TestLUKSKeys(t *testing.T) {
	const uuid = "0dd1e5c4-0000-4000-8000-00000000000a"
	keys := []LUKSKey{{Key: secret.New("open sesame")}, {UUID: strings.ToUpper(uuid), Key: secret.New("\x00\xff\n")}}
	packed := must.Get(PackLUKSKeys(keys))(t)
	all, byUUID, err := UnpackLUKSKeys(packed)
	if err != nil || len(all) != 1 || string(all[0]) != "open sesame" || len(byUUID) != 1 || len(byUUID[uuid]) != 1 || string(byUUID[uuid][0]) != "\x00\xff\n" {
		t.Errorf("%q, %q, %v come back", all, byUUID, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", keys, packed, keys[0]); strings.Contains(text, "sesame") {
		t.Error(text)
	}
	none := must.Get(PackLUKSKeys(nil))(t)
	if all, byUUID, err := UnpackLUKSKeys(none); !none.Empty() || err != nil || len(all)+len(byUUID) != 0 {
		t.Errorf("no keys are %q, %q, %v", all, byUUID, err)
	}
}

func TestLUKSKeysThatAreRefused(t *testing.T) {
	for name, keys := range map[string][]LUKSKey{
		"many": make([]LUKSKey, MaxLUKSKeys+1), "empty": {{}}, "large": {{Key: secret.New(strings.Repeat("x", MaxLUKSKey+1))}}, "UUID": {{UUID: "../sda", Key: secret.New("x")}},
	} {
		if _, err := PackLUKSKeys(keys); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := UnpackLUKSKeys(secret.New("{")); !problem.Is(err, problem.Conflict) {
		t.Errorf("%v", err)
	}
}
