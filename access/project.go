package access

import (
	"strings"

	"github.com/google/uuid"

	"salvor/record"
)

// ProjectID is the id under which a project of this name owns things where no Keystone keeps projects: a name has the same
// one always, and a name that is an id is itself.
func ProjectID(name string) string { return IDOf("project", name) }

// IDOf is the id that the name of a kind of thing stands for; the empty name has none.
func IDOf(kind, name string) string {
	if IsID(name) || name == "" {
		return strings.ToLower(name)
	}
	return strings.ReplaceAll(uuid.NewSHA1(uuid.NameSpaceOID, []byte("salvor "+kind+" "+name)).String(), "-", "")
}

// IsID tells whether s is an id as Keystone makes them: 32 hexadecimal digits, or a UUID.
func IsID(s string) bool {
	return record.IsUUID(s) || len(s) == 32 && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}
