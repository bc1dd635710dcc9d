package ironic

// Hidden stands in a lookup answer for a token that was told before: the ramdisk
// that reads it is not the first one that asked since this boot.
const Hidden = "******"

// LookupAnswer is the body of GET /v1/lookup, and, with HeartbeatTimeout at its top
// instead of Config, of the vendor passthru that came before it.
type LookupAnswer struct {
	Node             LookupNode    `json:"node"`
	Config           *LookupConfig `json:"config,omitempty"`
	HeartbeatTimeout int           `json:"heartbeat_timeout,omitempty"`
}

// LookupNode is the part of a node that a ramdisk may see.
type LookupNode struct {
	UUID               string         `json:"uuid"`
	Properties         map[string]any `json:"properties"`
	InstanceInfo       map[string]any `json:"instance_info"`
	DriverInternalInfo map[string]any `json:"driver_internal_info"`
	Links              []RamdiskLink  `json:"links"`
}

// RamdiskLink is one link of a LookupNode.
type RamdiskLink struct {
	Href string `json:"href"`
	Rel  string `json:"rel"`
}

// LookupConfig is what the server wants of the ramdisk.
type LookupConfig struct {
	// HeartbeatTimeout is in seconds.
	HeartbeatTimeout int `json:"heartbeat_timeout"`
	// AgentToken is the token, Hidden, or null.
	AgentToken         *string        `json:"agent_token"`
	AgentTokenRequired bool           `json:"agent_token_required"`
	MD5ChecksumEnable  bool           `json:"agent_md5_checksum_enable"`
	NoImageInspection  bool           `json:"disable_deep_image_inspection"`
	ImageFormats       []string       `json:"permitted_image_formats"`
	Metrics            map[string]any `json:"metrics"`
	MetricsStatsd      map[string]any `json:"metrics_statsd"`
}

// Heartbeat is the body of POST /v1/heartbeat/{node}. A field that the spoken
// version does not know makes the whole heartbeat a 400, so it is left out.
type Heartbeat struct {
	CallbackURL   string  `json:"callback_url"`
	AgentVersion  string  `json:"agent_version,omitempty"`   // 1.36
	AgentToken    *string `json:"agent_token,omitempty"`     // 1.62
	AgentVerifyCA string  `json:"agent_verify_ca,omitempty"` // 1.68, PEM
	AgentStatus   string  `json:"agent_status,omitempty"`    // 1.72: start, end or error
	StatusMessage string  `json:"agent_status_message,omitempty"`
}

// PassthruLookup is the body of POST /v1/drivers/{driver}/vendor_passthru/lookup.
type PassthruLookup struct {
	Version   string            `json:"version"` // "2"
	Inventory PassthruInventory `json:"inventory"`
	NodeUUID  string            `json:"node_uuid,omitempty"`
}

// PassthruInventory is the part of an inventory by which a node is found.
type PassthruInventory struct {
	Interfaces []PassthruInterface `json:"interfaces"`
}

// PassthruInterface is one NIC of a PassthruInventory.
type PassthruInterface struct {
	Name       string `json:"name,omitempty"`
	MACAddress string `json:"mac_address"`
}

// PassthruHeartbeat is the body of POST /v1/nodes/{uuid}/vendor_passthru/heartbeat.
type PassthruHeartbeat struct {
	AgentURL string `json:"agent_url"`
}
