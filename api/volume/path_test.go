package volume

import (
	"strings"
	"testing"

	"salvor/api"
	"salvor/compute"
)

// FuzzPlace: what is kept of where a volume is reached can be spoken to an initiator word for word.
func FuzzPlace(f *testing.F) {
	f.Add("192.0.2.7", "iqn.2001-04.com.example:x", "1", "u", "p")
	f.Add("[::1]:3260", "eui.0123456789abcdef", "0", "", "")
	f.Add("x:y:z", "naa.", "-1", "\n", "\x00")
	f.Fuzz(func(t *testing.T, portal, iqn, lun, user, password string) {
		v := &compute.Volume{}
		err := setMetadata(v, map[string]*string{keyPortal: &portal, keyIQN: &iqn, keyLUN: &lun, keyUser: &user, keyPassword: &password}, false, callerPrivileges{admin: true})
		if err != nil {
			if api.Status(err) != 400 {
				t.Fatalf("%v", err)
			}
			return
		}
		if strings.ContainsAny(v.Portal+v.IQN+v.CHAPUser, "\r\n\x00") || strings.ContainsAny(v.Portal+v.IQN, " ,;/'\"") || v.LUN < 0 || (v.CHAPUser == "") != v.CHAPPassword.Empty() {
			t.Fatalf("%+v", v)
		}
	})
}

// FuzzPairs reads what clients send as filters of metadata.
func FuzzPairs(f *testing.F) {
	for _, seed := range []string{"{}", "{'a': 'b'}", "{u'a': u\"b\", 'c':'d'}", "{'a'", "{'a':'b' 'c'}", "{'':''}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parsePairs(text); err != nil && api.Status(err) != 400 {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
