package agent

import (
	"encoding/json"
	"strings"

	"salvor/secret"
)

// SessionToken opens the commands that the agent takes while its machine is in rescue, after FinalizeRescue. Printing and logging show a mask; JSON
// has the token itself, so a value is encoded for the agent alone.
type SessionToken struct{ secret.Value }

// MarshalJSON writes the token.
func (t SessionToken) MarshalJSON() ([]byte, error) { return json.Marshal(t.Reveal()) }

// IsZero tells that there is no token.
func (t SessionToken) IsZero() bool { return t.Empty() }

// InSession tells whether an agent takes a command by its SessionToken: examinations and repairs, and nothing else.
func InSession(command string) bool {
	return strings.HasPrefix(command, "diagnose.") || strings.HasPrefix(command, "repair.")
}
