package redfish

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/problem"
)

// computerSystem is the part of a ComputerSystem that power and boot need.
type computerSystem struct {
	PowerState   string
	Manufacturer string
	Model        string
	Boot         systemBoot
	VirtualMedia link.Link
	Settings     struct {
		SettingsObject link.Link
	} `json:"@Redfish.Settings"`
	SecureBoot, Bios, Storage link.Link
	LogServices               link.Link
	Status                    systemHealth
	Links                     struct {
		ManagedBy, Chassis link.Links
	}
	Actions struct {
		Reset struct {
			Target  string   `json:"target"`
			Info    string   `json:"@Redfish.ActionInfo"`
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
	HTTPBootURI conversation.Raw `json:"HttpBootUri"`
}

// useStandardWords writes the words of the standard in the standard's case, which some BMCs do not keep to.
func (b *systemBoot) useStandardWords() {
	words := []string{enabledOnce, enabledForever, enabledNever, targetNone, modeUEFI, modeBIOS}
	for _, d := range devices {
		words = append(words, d.target)
	}
	use := func(text *string) {
		if i := slices.IndexFunc(words, func(word string) bool { return strings.EqualFold(word, *text) }); i >= 0 {
			*text = words[i]
		}
	}
	use(&b.Target)
	use(&b.Enabled)
	use(&b.Mode)
	for _, list := range [][]string{b.Allowed, b.AllowedEnabled} {
		for i := range list {
			use(&list[i])
		}
	}
	if !slices.ContainsFunc(b.Allowed, func(target string) bool { return slices.Contains(words, target) }) {
		b.Allowed = nil // a list without one word of the standard tells nothing
	}
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
	Systems, Managers link.Link
}

// maxSystems bounds how many systems of a service are listed.
const maxSystems = 1000

const systemsPath = "/redfish/v1/Systems"

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
	etag, err := s.bmc.Get(s.system, &doc)
	if errors.Is(err, conversation.ErrMissing) {
		err = problem.New(problem.KindOf(err), "%w; is %s right?", err, SystemKey)
	}
	// What the system says of itself now is truer than what was read of it once.
	of := &s.conf.facts.identity
	of.vendor, of.model = cmp.Or(doc.Manufacturer, of.vendor), cmp.Or(doc.Model, of.model)
	doc.Boot.useStandardWords()
	for _, others := range []*link.Links{&doc.Links.ManagedBy, &doc.Links.Chassis} { // a link to the system itself names neither a manager nor a chassis
		*others = slices.DeleteFunc(*others, func(l link.Link) bool { return link.Same(l.Path, s.system) })
	}
	doc.patchTarget = patchTarget{path: s.system, etag: etag, settings: doc.Settings.SettingsObject.Path}
	return &doc, err
}

// systems looks where everybody has them; asking the root first would cost a request each time.
func (s *bmcSession) systems() ([]link.Link, error) {
	all, err := s.bmc.Members(systemsPath, maxSystems)
	if !errors.Is(err, conversation.ErrMissing) {
		return all, err
	}
	var top serviceRoot
	if _, err := s.bmc.Get(conversation.RootPath, &top); err != nil {
		return all, err
	}
	if top.Systems.Path == "" {
		return all, problem.Invalidf("the service at %s offers no systems", AddressKey)
	}
	return s.bmc.Members(top.Systems.Path, maxSystems)
}

// find is the path of the system that the record names, or of the only one.
func (s *bmcSession) find() (string, error) {
	if s.conf.system != "" {
		return s.conf.system, nil
	}
	before := s.bmc.Unread()
	all, err := s.systems()
	switch {
	case err != nil:
		return "", err
	case len(all) == 1 && s.bmc.Unread() > before:
		return "", problem.Unavailablef("the list of systems cannot be read whole, so its only readable system may be another machine; set %s", SystemKey)
	case len(all) == 1:
		return all[0].Path, nil
	case len(all) == 0 && s.bmc.Had(systemsPath):
		return "", problem.Unavailablef("the service lists no system now, and listed one a short time ago; the BMC may be starting")
	case len(all) == 0:
		return "", problem.Invalidf("the service lists no system")
	}
	var names []string
	for _, m := range all {
		names = append(names, m.Path)
	}
	return "", problem.Invalidf("the service has %d systems; set %s to one of them: %s", len(names), SystemKey, s.bmc.Quote(strings.Join(names, " ")))
}
