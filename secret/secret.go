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
type Value struct{ plain string }

// New wraps a secret.
func New(plain string) Value { return Value{plain} }

// Reveal gives the secret itself.
func (v Value) Reveal() string { return v.plain }

// Empty reports whether there is no secret.
func (v Value) Empty() bool { return v.plain == "" }

func (v Value) String() string {
	if v.plain == "" {
		return ""
	}
	return Mask
}

// Format masks under every verb of fmt, %#v and %x included.
func (v Value) Format(s fmt.State, _ rune) { fmt.Fprint(s, v.String()) }

// MarshalJSON writes the mask: a record that must carry the secret says so by Reveal.
func (v Value) MarshalJSON() ([]byte, error) { return json.Marshal(v.String()) }

// UnmarshalJSON takes a plain string.
func (v *Value) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &v.plain) }

// LogValue masks in structured logs.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }
