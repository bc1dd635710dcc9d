package store

import (
	"encoding/json"

	"salvor/rescue"
	"salvor/secret"
)

// plainSecret is a secret in a body, in clear: its key must be one that the kind seals. An empty one is left out.
type plainSecret struct{ *secret.Value }

// MarshalJSON gives the secret itself to be sealed.
func (p plainSecret) MarshalJSON() ([]byte, error) {
	if p.Empty() {
		return []byte("null"), nil
	}
	return json.Marshal(p.Reveal())
}

// UnmarshalJSON is the reverse.
func (p plainSecret) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	return p.Value.UnmarshalJSON(b)
}

// rescueSession is a server's session in its body, with the credential that the session's own JSON leaves out.
type rescueSession struct{ at **rescue.Session }

type rescueBody struct {
	Session *rescue.Session
	// Credential is sealed; a session that is closed has none.
	Credential *rescueCredential `json:",omitempty"`
}

type rescueCredential struct {
	Hash     string   `json:",omitempty"`
	Keys     []string `json:",omitempty"`
	LUKSKeys string   `json:",omitempty"`
}

// credentialKey is the key of what rescueBody has sealed.
const credentialKey = "Credential"

// MarshalJSON writes an open session with its credential.
func (r rescueSession) MarshalJSON() ([]byte, error) {
	s := *r.at
	if s == nil {
		return []byte("null"), nil
	}
	b := rescueBody{Session: s}
	if c := s.Credential; s.State.Open() && (!c.Hash.Empty() || len(c.Keys) > 0 || !c.LUKSKeys.Empty()) {
		b.Credential = &rescueCredential{c.Hash.Reveal(), c.Keys, c.LUKSKeys.Reveal()}
	}
	return json.Marshal(b)
}

// UnmarshalJSON is the reverse.
func (r rescueSession) UnmarshalJSON(text []byte) error {
	var b rescueBody
	if err := json.Unmarshal(text, &b); err != nil {
		return err
	}
	if b.Session != nil && b.Credential != nil {
		b.Session.Credential = rescue.Credential{Hash: secret.New(b.Credential.Hash), Keys: b.Credential.Keys, LUKSKeys: secret.New(b.Credential.LUKSKeys)}
	}
	*r.at = b.Session
	return nil
}
