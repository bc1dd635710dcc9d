package metal

import "net/url"

// What a machine's controller is asked and told beside power and boot device: the
// arguments of these jobs and their answers.

// PowerFailure is the fault of a node whose controller does not answer; the next good reading of its power takes it back.
const PowerFailure = "power failure"

// BIOSSetting is a setting of the firmware with what its registry says of it.
type BIOSSetting struct {
	Name string `json:"name"`
	// Value as text, as Ironic shows it; nil where the BMC gives none.
	Value *string `json:"value"`

	AttributeType   string   `json:"attribute_type,omitempty"` // Enumeration, String, Integer, Boolean, Password
	AllowableValues []string `json:"allowable_values,omitempty"`
	LowerBound      *int64   `json:"lower_bound,omitempty"`
	UpperBound      *int64   `json:"upper_bound,omitempty"`
	MinLength       *int64   `json:"min_length,omitempty"`
	MaxLength       *int64   `json:"max_length,omitempty"`
	ReadOnly        *bool    `json:"read_only,omitempty"`
	ResetRequired   *bool    `json:"reset_required,omitempty"`
	Unique          *bool    `json:"unique,omitempty"`
	Timestamps
}

// FirmwareComponent is a part of the machine that runs firmware.
type FirmwareComponent struct {
	Component          string `json:"component"` // bios, bmc, nic:NAME
	InitialVersion     string `json:"initial_version"`
	CurrentVersion     string `json:"current_version"`
	LastVersionFlashed string `json:"last_version_flashed,omitempty"` // by us
	Vendor             string `json:"vendor,omitempty"`
	Model              string `json:"model,omitempty"`
	SerialNumber       string `json:"serial_number,omitempty"`
	Timestamps
}

// Indicator describes an indicator light.
type Indicator struct {
	ReadOnly bool     `json:"readonly"`
	States   []string `json:"states"`
}

// IndicatorArgs name an indicator, and the state that it is to show.
type IndicatorArgs struct {
	Component string `json:"component"`
	Name      string `json:"name"`
	State     string `json:"state,omitempty"`
}

// Medium is a virtual drive and what is in it.
type Medium struct {
	MediaTypes []string `json:"media_types"`
	Inserted   bool     `json:"inserted"`
	Image      string   `json:"image"` // URL without credentials; empty: nothing, or the BMC does not tell
}

// MediumArgs say what to attach, or from which types of device to detach.
type MediumArgs struct {
	DeviceType string   `json:"device_type,omitempty"` // cdrom, disk, floppy
	ImageURL   string   `json:"image_url,omitempty"`   // without credentials, which are the job's secret
	Types      []string `json:"device_types,omitempty"`
}

// VendorMethod describes a vendor method, as vendor_passthru/methods shows it.
type VendorMethod struct {
	HTTPMethods          []string `json:"http_methods"`
	Async                bool     `json:"async"`
	Description          string   `json:"description"`
	Attach               bool     `json:"attach"`
	RequireExclusiveLock bool     `json:"require_exclusive_lock"`
}

// VendorCall is a call of one.
type VendorCall struct {
	Method     string `json:"method"`
	HTTPMethod string `json:"http_method"`
	Args       Object `json:"args,omitempty"`
}

// BootModeArgs, SecureBootArgs and ConsoleArgs say what is to be from now on.
type (
	BootModeArgs struct {
		Mode string `json:"mode"` // uefi or bios
	}
	SecureBootArgs struct {
		On bool `json:"on"`
	}
	ConsoleArgs struct {
		Enabled bool `json:"enabled"`
	}
)

// Text writes out a scalar of a free-form object as it is shown for a setting; nil is the empty string.
func Text(v any) string { return formatScalar(v) }

// BareURL is a URL without what may be a credential: user, password, query and fragment.
func BareURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}
