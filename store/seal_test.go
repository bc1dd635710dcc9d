package store

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"salvor/job"
	"salvor/metal"
	"salvor/secret"
)

// FuzzSeal: whatever object users send comes back as it was, and nothing under a secret key is written plainly.
func FuzzSeal(f *testing.F) {
	for _, seed := range []string{`{}`, `{"password":"x"}`, `{"a":[{"token":{"b":null}},1e300]}`, `{"$sealed":"x"}`, `{"secret":{"$sealed":"x"}}`,
		`{"SECRET":null,"passwd":[]}`, `{"a/password":"x","a":{"password":"y"}}`, `{"":{"":[[[{"psk":false}]]]}}`, `{"p\u0000assword":"z"}`} {
		f.Add(seed)
	}
	key, err := secret.NewKey(secret.GenerateKey())
	if err != nil {
		f.Fatal(err)
	}
	s := &storeCore{key: key}
	f.Fuzz(func(t *testing.T, text string) {
		var v metal.Object
		if json.Unmarshal([]byte(text), &v) != nil || v == nil {
			t.Skip()
		}
		sealed, err := s.seal(v, "place", secret.IsKey)
		if err != nil {
			t.Fatal(err)
		}
		row, err := json.Marshal(sealed)
		if err != nil {
			t.Fatal(err)
		}
		var read any
		if err := json.Unmarshal(row, &read); err != nil {
			t.Fatal(err)
		}
		for k := range v {
			box, _ := read.(map[string]any)[k].(map[string]any)
			if secret.IsKey(k) && v[k] != nil && (len(box) != 1 || box[sealedMark] == nil) {
				t.Fatalf("plain under %q: %s", k, row)
			}
		}
		plain, err := s.open(read, "place", secret.IsKey)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(v, plain.(map[string]any)); d != "" {
			t.Fatalf("differs (-want +have):\n%s", d)
		}
	})
}

// TestSealedToItsPlace: a sealed value that somebody copies into another row does not open there.
func TestSealedToItsPlace(t *testing.T) {
	s := openHere(t)
	err := s.Do(t.Context(), func(j job.Tx) error {
		for _, id := range []string{"a", "b"} {
			n := node(id)
			n.DriverInfo = metal.Object{"redfish_password": "of " + id}
			if err := s.InsertNode(j, n); err != nil {
				return err
			}
			if err := s.Insert(j, &job.Job{ID: id, Kind: "work", Subject: job.Node(id), Secret: secret.New("of " + id)}); err != nil {
				return err
			}
		}
		tx, err := s.tx(j)
		if err != nil {
			return err
		}
		if _, err := tx.exec(`UPDATE node SET body = (SELECT body FROM node WHERE id = 'a') WHERE id = 'b'`); err != nil {
			return err
		}
		_, err = tx.exec(`UPDATE job SET secret = (SELECT secret FROM job WHERE id = 'a') WHERE id = 'b'`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Node(t.Context(), nil, "a"); err != nil {
		t.Fatal(err)
	}
	_, nodeErr := s.Node(t.Context(), nil, "b")
	if nodeErr == nil || !strings.Contains(nodeErr.Error(), "wrong key or place") {
		t.Errorf("opened in another row: %v", nodeErr)
	}
	j, err := s.Job(t.Context(), nil, "b")
	if err != nil || !j.Secret.Empty() || !strings.Contains(j.Damage, "wrong key or place") {
		t.Errorf("opened in another row: %q %v", j.Damage, err)
	}
}
