package agent

import (
	"encoding/json"
	"strings"
	"time"
)

// Examine looks at all disks of the machine and changes no byte of them. It runs in the background; its outcome is a diagnose.Examination of at
// most 1 MiB. A ramdisk without the tools for it (profile minimal) fails the command.
const Examine = "diagnose.examine"

// MaxExamination bounds an examination as JSON, in bytes.
const MaxExamination = 1 << 20

// ExamineParams are the params of Examine. A value of this type holds keys in the open: it is made last and never logged.
type ExamineParams struct {
	// NetworkData is the machine's network_data.json, an object; null where none is known.
	NetworkData json.RawMessage `json:"network_data"`
	// Now is the time by the server's clock.
	Now time.Time `json:"now"`
	// LUKSKeys are tried on every LUKS container: passphrases or contents of key files, in base64; at most 16 of at most 8 KiB.
	LUKSKeys [][]byte `json:"luks_keys,omitempty"`
	// LUKSKeysByUUID are tried on the container of their UUID alone, which is in lower case; they count for the same bounds. Agents of former
	// releases refuse this parameter.
	LUKSKeysByUUID map[string][][]byte `json:"luks_keys_by_uuid,omitempty"`
	// OnlyRead: no program of the examined systems runs. Agents of former releases run none, and refuse this parameter.
	OnlyRead bool `json:"only_read,omitempty"`
}

// SplitKeyFile reads how people name the file of a LUKS key: FILE, or UUID=FILE for the container of a UUID alone. The part before an equals
// sign is no UUID where it holds a slash or a dot, as paths do.
func SplitKeyFile(text string) (uuid, path string) {
	if before, after, found := strings.Cut(text, "="); found && !strings.ContainsAny(before, "/.") {
		return before, after
	}
	return "", text
}
