package store

import (
	"database/sql"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/secret"
	"salvor/test/must"
)

// FuzzSeal: whatever object users send comes back as it was, and nothing under a secret key is written plainly.
func FuzzSeal(f *testing.F) {
	for _, seed := range []string{`{}`, `{"password":"x"}`, `{"a":[{"token":{"b":null}},1e300]}`, `{"$sealed":"x"}`, `{"secret":{"$sealed":"x"}}`,
		`{"SECRET":null,"passwd":[]}`, `{"a/password":"x","a":{"password":"y"}}`, `{"":{"":[[[{"psk":false}]]]}}`, `{"p\u0000assword":"z"}`} {
		f.Add(seed)
	}
	key := must.Get(secret.NewKey(secret.GenerateKey()))(f)
	s := &storeCore{key: key}
	f.Fuzz(func(t *testing.T, text string) {
		var v metal.Object
		if json.Unmarshal([]byte(text), &v) != nil || v == nil {
			t.Skip()
		}
		sealed := must.Get(s.seal(v, "place", secret.IsKey))(t)
		row := must.Get(json.Marshal(sealed))(t)
		var read any
		must.OK(t, json.Unmarshal(row, &read))
		for k := range v {
			box, _ := read.(map[string]any)[k].(map[string]any)
			if secret.IsKey(k) && v[k] != nil && (len(box) != 1 || box[sealedMark] == nil) {
				t.Fatalf("plain under %q: %s", k, row)
			}
		}
		plain := must.Get(s.open(read, "place", secret.IsKey))(t)
		if d := cmp.Diff(v, plain.(map[string]any)); d != "" {
			t.Fatalf("differs (-want +have):\n%s", d)
		}
	})
}

// TestSealedToItsPlace: a sealed value that somebody copies into another row does not open there.
func TestSealedToItsPlace(t *testing.T) {
	s := openHere(t)
	must.OK(t, s.Do(t.Context(), func(j job.Tx) error {
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
	}))
	must.Get(s.Node(t.Context(), nil, "a"))(t)
	_, nodeErr := s.Node(t.Context(), nil, "b")
	if nodeErr == nil || !strings.Contains(nodeErr.Error(), "wrong key or place") {
		t.Errorf("opened in another row: %v", nodeErr)
	}
	j, err := s.Job(t.Context(), nil, "b")
	if err != nil || !j.Secret.Empty() || !strings.Contains(j.Damage, "wrong key or place") {
		t.Errorf("opened in another row: %q %v", j.Damage, err)
	}
}

// TestExaminationsAreSealed: what a host found on a guest's disks comes back from its order, and no row has it in the open.
func TestExaminationsAreSealed(t *testing.T) {
	s := openHere(t)
	o := &compute.Order{HostID: "h", BootID: "b", ServerID: "v", Epoch: 1, Verb: compute.SetPower}
	found := `{"text":"words of a disk"}`
	must.OK(t, s.Do(t.Context(), func(j job.Tx) error {
		if _, err := s.InsertOrder(j, o); err != nil {
			return err
		}
		done, err := s.FinishOrder(j, o.ID, "h", "b", 1, compute.Result{Examination: json.RawMessage(found)})
		if err != nil {
			return err
		}
		if string(done.Result.Examination) != found {
			t.Errorf("the order has %s", done.Result.Examination)
		}
		tx, err := s.tx(j)
		if err != nil {
			return err
		}
		var result, examination string
		read := func(rows *sql.Rows) error { return rows.Scan(&result, &examination) }
		if err := tx.each(read, `SELECT result, examination FROM host_order WHERE id = $1`, o.ID); err != nil {
			return err
		}
		if examination == "" || strings.Contains(result+examination, "words") {
			t.Errorf("stored as %s and %s", result, examination)
		}
		return nil
	}))
}
