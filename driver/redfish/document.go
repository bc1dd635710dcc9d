package redfish

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"salvor/problem"
)

// resourceLink is a reference to another resource.
type resourceLink struct {
	Path string `json:"@odata.id"`
}

// resourceCollection is a page of a list of links.
type resourceCollection struct {
	Members []resourceLink
	Next    string `json:"Members@odata.nextLink"`
}

// maxPages bounds how many pages of a list are read.
const maxPages = 20

// members reads a list of links, at most most of them, page by page.
func (s *bmcSession) members(path string, most int) ([]resourceLink, error) {
	var out []resourceLink
	for range maxPages {
		var page resourceCollection
		if _, err := s.get(path, &page); err != nil {
			return nil, err
		}
		out = append(out, page.Members...)
		if path = page.Next; path == "" || len(out) >= most || len(page.Members) == 0 {
			break
		}
	}
	return out[:min(len(out), most)], nil
}

// computerSystem is the part of a ComputerSystem that power and boot need.
type computerSystem struct {
	PowerState   string
	Manufacturer string
	Model        string
	Boot         systemBoot
	VirtualMedia resourceLink
	Settings     struct {
		SettingsObject resourceLink
	} `json:"@Redfish.Settings"`
	SecureBoot, Bios, Storage resourceLink
	LogServices               resourceLink
	Status                    systemHealth
	Links                     struct {
		ManagedBy, Chassis []resourceLink
	}
	Actions struct {
		Reset struct {
			Target  string   `json:"target"`
			Allowed []string `json:"ResetType@Redfish.AllowableValues"`
		} `json:"#ComputerSystem.Reset"`
	}
	patchTarget
}

// systemBoot is the Boot object of a ComputerSystem.
type systemBoot struct {
	Target  string   `json:"BootSourceOverrideTarget"`
	Enabled string   `json:"BootSourceOverrideEnabled"`
	Mode    string   `json:"BootSourceOverrideMode"`
	Allowed []string `json:"BootSourceOverrideTarget@Redfish.AllowableValues"`
	// AllowedEnabled are the frequencies that the BMC takes; empty: it does not say.
	AllowedEnabled []string `json:"BootSourceOverrideEnabled@Redfish.AllowableValues"`
	// HTTPBootURI is not nil where the BMC knows the property at all.
	HTTPBootURI json.RawMessage `json:"HttpBootUri"`
}

// virtualMedia is a VirtualMedia resource.
type virtualMedia struct {
	MediaTypes []string
	Image      string
	ImageName  string
	Inserted   *bool
	Actions    struct {
		Insert struct {
			Target string `json:"target"`
			Info   string `json:"@Redfish.ActionInfo"`
		} `json:"#VirtualMedia.InsertMedia"`
		Eject struct {
			Target string `json:"target"`
		} `json:"#VirtualMedia.EjectMedia"`
	}
	path, etag string
}

// serviceRoot is the part of the service root that leads to the systems.
type serviceRoot struct {
	Systems, Managers resourceLink
	Links             struct{ Sessions resourceLink }
}

// maxSystems bounds how many systems of a service are listed.
const maxSystems = 1000

const (
	rootPath     = "/redfish/v1/"
	systemsPath  = "/redfish/v1/Systems"
	sessionsPath = "/redfish/v1/SessionService/Sessions"
)

// read finds the node's system and reads it.
func (s *bmcSession) read() (*computerSystem, error) {
	if s.system == "" {
		path, err := s.find()
		if err != nil {
			return nil, err
		}
		s.system = path
	}
	var doc computerSystem
	etag, err := s.get(s.system, &doc)
	// What the system says of itself now is truer than what was read of it once.
	of := &s.conf.facts.identity
	of.vendor, of.model = cmp.Or(doc.Manufacturer, of.vendor), cmp.Or(doc.Model, of.model)
	doc.patchTarget = patchTarget{path: s.system, etag: etag, settings: doc.Settings.SettingsObject.Path}
	return &doc, err
}

// systems looks where everybody has them; asking the root first would cost a request each time.
func (s *bmcSession) systems() ([]resourceLink, error) {
	all, err := s.members(systemsPath, maxSystems)
	if !errors.Is(err, errMissing) {
		return all, err
	}
	var top serviceRoot
	if _, err := s.get(rootPath, &top); err != nil {
		return all, err
	}
	if top.Systems.Path == "" {
		return all, problem.Invalidf("the service at %s offers no systems", AddressKey)
	}
	return s.members(top.Systems.Path, maxSystems)
}

// find is the path of the system that the record names, or of the only one.
func (s *bmcSession) find() (string, error) {
	if s.conf.system != "" {
		return s.conf.system, nil
	}
	all, err := s.systems()
	if err != nil {
		return "", err
	}
	switch len(all) {
	case 0:
		return "", problem.Invalidf("the service lists no system")
	case 1:
		return all[0].Path, nil
	}
	var names []string
	for _, m := range all {
		names = append(names, m.Path)
	}
	return "", problem.Invalidf("the service has %d systems; set %s to one of them: %s", len(names), SystemKey, s.quote(strings.Join(names, " ")))
}
