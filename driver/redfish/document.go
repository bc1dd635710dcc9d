package redfish

import (
	"encoding/json"
	"errors"
	"strings"

	"salvor/problem"
)

// link is a reference to another resource.
type link struct {
	Path string `json:"@odata.id"`
}

// collection is a list of links.
type collection struct {
	Members []link
}

// system is the part of a ComputerSystem that power and boot need.
type system struct {
	PowerState   string
	Boot         boot
	VirtualMedia link
	Settings     struct {
		SettingsObject link
	} `json:"@Redfish.Settings"`
	SecureBoot, Bios, Storage link
	Status                    health
	Links                     struct {
		ManagedBy, Chassis []link
	}
	Actions struct {
		Reset struct {
			Target  string   `json:"target"`
			Allowed []string `json:"ResetType@Redfish.AllowableValues"`
		} `json:"#ComputerSystem.Reset"`
	}
	etag string
}

// boot is the Boot object of a ComputerSystem.
type boot struct {
	Target  string   `json:"BootSourceOverrideTarget"`
	Enabled string   `json:"BootSourceOverrideEnabled"`
	Mode    string   `json:"BootSourceOverrideMode"`
	Allowed []string `json:"BootSourceOverrideTarget@Redfish.AllowableValues"`
	// HTTPBootURI is not nil where the BMC knows the property at all.
	HTTPBootURI json.RawMessage `json:"HttpBootUri"`
}

// overrides are the Boot members that salvor writes; what is empty is left alone.
type overrides struct {
	Target      string `json:"BootSourceOverrideTarget,omitempty"`
	Enabled     string `json:"BootSourceOverrideEnabled,omitempty"`
	Mode        string `json:"BootSourceOverrideMode,omitempty"`
	HTTPBootURI string `json:"HttpBootUri,omitempty"`
}

// medium is a VirtualMedia resource.
type medium struct {
	MediaTypes []string
	Image      string
	ImageName  string
	Inserted   *bool
	Actions    struct {
		Insert struct {
			Target string `json:"target"`
		} `json:"#VirtualMedia.InsertMedia"`
		Eject struct {
			Target string `json:"target"`
		} `json:"#VirtualMedia.EjectMedia"`
	}
	path, etag string
}

// root is the part of the service root that leads to the systems.
type root struct {
	Systems, Managers link
}

const (
	rootPath    = "/redfish/v1/"
	systemsPath = "/redfish/v1/Systems"
)

// read finds the node's system and reads it.
func (s *session) read() (*system, error) {
	if s.system == "" {
		path, err := s.find()
		if err != nil {
			return nil, err
		}
		s.system = path
	}
	var doc system
	etag, err := s.get(s.system, &doc)
	doc.etag = etag
	return &doc, err
}

// systems looks where everybody has them; asking the root first would cost a request each time.
func (s *session) systems() (collection, error) {
	var all collection
	_, err := s.get(systemsPath, &all)
	if !errors.Is(err, errMissing) {
		return all, err
	}
	var top root
	if _, err := s.get(rootPath, &top); err != nil {
		return all, err
	}
	if top.Systems.Path == "" {
		return all, problem.Invalidf("the service at %s offers no systems", AddressKey)
	}
	_, err = s.get(top.Systems.Path, &all)
	return all, err
}

// find is the path of the system that the record names, or of the only one.
func (s *session) find() (string, error) {
	if s.conf.system != "" {
		return s.conf.system, nil
	}
	all, err := s.systems()
	if err != nil {
		return "", err
	}
	switch len(all.Members) {
	case 0:
		return "", problem.Invalidf("the service lists no system")
	case 1:
		return all.Members[0].Path, nil
	}
	var names []string
	for _, m := range all.Members {
		names = append(names, m.Path)
	}
	return "", problem.Invalidf("the service has %d systems; set %s to one of them: %s", len(names), SystemKey, s.said(strings.Join(names, " ")))
}
