package ironic

import "encoding/json"

// Headers of the bare metal API.
const (
	VersionHeader    = "X-OpenStack-Ironic-API-Version"
	MinVersionHeader = "X-OpenStack-Ironic-API-Minimum-Version"
	MaxVersionHeader = "X-OpenStack-Ironic-API-Maximum-Version"
	// WarningHeader carries remarks on a change that was made, such as a key that is probably misspelt: 299 salvor "TEXT" (RFC 7234, 5.5).
	WarningHeader = "Warning"
)

// Link leads to a resource; Rel is "self", "bookmark" or "describedby".
type Link struct {
	Href string `json:"href"`
	Rel  string `json:"rel"`
	Type string `json:"type,omitempty"`
}

// ErrorBody is the body of every error: a JSON text inside of a JSON string, which
// decodes to a Fault or, for errors about the path or the version, to a RouterFault.
type ErrorBody struct {
	Message string `json:"error_message"`
}

// Fault is an error of a handler. Code is "Client" or "Server".
type Fault struct {
	Code      string  `json:"faultcode"`
	String    string  `json:"faultstring"`
	DebugInfo *string `json:"debuginfo"`
}

// RouterFault is an error of the router.
type RouterFault struct {
	Code        int    `json:"code"`
	Title       string `json:"title"`
	Description string `json:"description"`
}

// Root is the body of GET /.
type Root struct {
	Name           string       `json:"name"`
	Description    string       `json:"description"`
	DefaultVersion APIVersion   `json:"default_version"`
	Versions       []APIVersion `json:"versions"`
}

// APIVersion describes v1 and its range of microversions.
type APIVersion struct {
	ID         string `json:"id"`
	Links      []Link `json:"links"`
	Status     string `json:"status"`
	MinVersion string `json:"min_version"`
	Version    string `json:"version"`
}

// ProvisionRequest is the body of PUT /v1/nodes/{node}/states/provision.
type ProvisionRequest struct {
	Target         string          `json:"target"`
	RescuePassword string          `json:"rescue_password,omitempty"` // 1.38
	ConfigDrive    json.RawMessage `json:"configdrive,omitempty"`     // string, or object from 1.56
	CleanSteps     json.RawMessage `json:"clean_steps,omitempty"`     // 1.15
	DeploySteps    json.RawMessage `json:"deploy_steps,omitempty"`    // 1.69
	ServiceSteps   json.RawMessage `json:"service_steps,omitempty"`   // 1.87
	Runbook        string          `json:"runbook,omitempty"`         // 1.92
	DisableRamdisk *bool           `json:"disable_ramdisk,omitempty"` // 1.70
}

// PowerRequest is the body of PUT /v1/nodes/{node}/states/power. Timeout is in seconds.
type PowerRequest struct {
	Target  string `json:"target"`
	Timeout *int   `json:"timeout,omitempty"` // 1.27
}

// MaintenanceRequest is the body of PUT /v1/nodes/{node}/maintenance.
type MaintenanceRequest struct {
	Reason string `json:"reason,omitempty"`
}

// BootDevice is the body of GET and PUT /v1/nodes/{node}/management/boot_device.
type BootDevice struct {
	Device     *string `json:"boot_device"`
	Persistent *bool   `json:"persistent"`
}

// SupportedBootDevices is the body of GET .../management/boot_device/supported.
type SupportedBootDevices struct {
	Devices []string `json:"supported_boot_devices"`
}

// Validation is one interface's part of GET /v1/nodes/{node}/validate. Result is null
// for an interface that the driver does not have.
type Validation struct {
	Result *bool  `json:"result"`
	Reason string `json:"reason,omitempty"`
}

// PatchOperation is one element of a JSON patch.
type PatchOperation struct {
	Op    string          `json:"op"` // add, replace or remove
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// HistoryEvent is one row of GET /v1/nodes/{node}/history.
type HistoryEvent struct {
	UUID      string  `json:"uuid"`
	CreatedAt string  `json:"created_at"`
	Severity  string  `json:"severity"`
	Event     string  `json:"event"`
	EventType string  `json:"event_type,omitempty"`
	Conductor *string `json:"conductor,omitempty"`
	User      *string `json:"user,omitempty"`
	Project   *string `json:"project"`                // 1.113
	State     *string `json:"state"`                  // 1.115: what the node entered
	Target    *string `json:"target_provision_state"` // 1.115
	Duration  *int    `json:"duration_seconds"`       // 1.115: of what has ended
	NodeUUID  string  `json:"node_uuid,omitempty"`
	Links     []Link  `json:"links"`
}

// Conductor is one row of GET /v1/conductors.
type Conductor struct {
	Hostname       string   `json:"hostname,omitempty"`
	ConductorGroup string   `json:"conductor_group"`
	Alive          bool     `json:"alive"`
	Drivers        []string `json:"drivers,omitempty"`
	CreatedAt      *string  `json:"created_at,omitempty"`
	UpdatedAt      *string  `json:"updated_at,omitempty"`
	Links          []Link   `json:"links"`
}
