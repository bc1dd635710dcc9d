// Package secret holds values that must not be printed, the rule that tells which
// keys of a record are secret, and the key that seals secrets at rest. It does no
// I/O: whoever starts the program reads the key file.
package secret

import (
	"encoding/json"
	"fmt"
	"log/slog"
)

// Mask is what is shown in place of every secret.
const Mask = "******"

// Value is a string that no printing, logging or JSON encoding shows. The zero
// Value is empty. Only Reveal gives the string away, so a search for it finds
// every place where a secret leaves.
//
// The string lies behind a pointer: fmt calls no method of a value in an unexported field, and would print a string there.
// Values are compared by Equal.
type Value struct {
	_     [0]func() // == would compare pointers
	plain *string
}

// New wraps a secret.
func New(plain string) Value {
	if plain == "" {
		return Value{}
	}
	return Value{plain: &plain}
}

// Reveal gives the secret itself.
func (v Value) Reveal() string {
	if v.plain == nil {
		return ""
	}
	return *v.plain
}

// Empty reports whether there is no secret.
func (v Value) Empty() bool { return v.plain == nil }

func (v Value) String() string {
	if v.plain == nil {
		return ""
	}
	return Mask
}

// Format masks under every verb of fmt, %#v and %x included.
func (v Value) Format(s fmt.State, _ rune) { fmt.Fprint(s, v.String()) }

// MarshalJSON writes the mask: a record that must carry the secret says so by Reveal.
func (v Value) MarshalJSON() ([]byte, error) { return json.Marshal(v.String()) }

// UnmarshalJSON takes a plain string.
func (v *Value) UnmarshalJSON(b []byte) error {
	var plain string
	if err := json.Unmarshal(b, &plain); err != nil {
		return err
	}
	*v = New(plain)
	return nil
}

// LogValue masks in structured logs.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }
