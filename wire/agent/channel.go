package agent

import "encoding/json"

// The rescue channel is a virtio-serial port of a virtual machine. The host writes one
// line of JSON (Unlock) and reads one (Unlocked); it may ask again at any time.

// ChannelName is what the port is called in the guest.
const ChannelName = "org.salvor.rescue.0"

// ChannelVersion is the version of both lines.
const ChannelVersion = 1

// ChannelWord in the kernel's command line makes the ramdisk wait for its credential at the channel and ask no network.
const ChannelWord = "salvor.rescue=channel"

// MaxUnlock bounds an Unlock as a line, in bytes: the most keys that a session takes, and addresses.
const MaxUnlock = 1 << 20

// Unlock opens a rescue system. A value of this type holds a credential in the open: it is made last and never logged.
type Unlock struct {
	Version int `json:"version"`
	// Examine asks for an examination of the disks. The system stays closed then, and all fields below are absent.
	Examine *ExamineParams `json:"examine,omitempty"`
	// Hash is a crypt(3) hash, Keys are ssh public keys; at least one of both is there.
	Hash string   `json:"hash,omitempty"`
	Keys []string `json:"keys,omitempty"`
	// NetworkData is an OpenStack network_data.json object; absent: the config drive is read, and without one DHCP asked.
	NetworkData json.RawMessage `json:"network_data,omitempty"`
}

// Unlocked answers it once ssh answers: with Error nothing was opened. An Examine is answered twice: at once with Examining, and at its end.
type Unlocked struct {
	Version int `json:"version"`
	// Fingerprint of the ssh host key, "SHA256:...".
	Fingerprint string `json:"fingerprint,omitempty"`
	// HostKey is that key, "TYPE BASE64 COMMENT"; agents of former releases do not tell it.
	HostKey string `json:"host_key,omitempty"`
	Agent   string `json:"agent"`
	Error   string `json:"error,omitempty"`
	// Examining: the agent has begun the examination.
	Examining bool `json:"examining,omitempty"`
	// Examination is a diagnose.Examination of at most MaxExamination bytes.
	Examination json.RawMessage `json:"examination,omitempty"`
	// Retry: what came was no whole line, so that it says nothing of the credential; it should be sent again.
	Retry bool `json:"retry,omitempty"`
}
