package ironic

import (
	"encoding/json"
	"net/http"
	"slices"

	"salvor/metal"
	"salvor/problem"
)

// What is kept of a machine's firmware and of its inspection is shown as it was told last.

// settingFields are the fields of a setting; those after the first two are of the registry.
var settingFields = []string{
	"name", "value", "attribute_type", "allowable_values", "lower_bound", "max_length", "min_length", "read_only", "reset_required", "unique", "upper_bound",
}

const (
	briefSetting    = 2  // how many of the fields an undetailed list has
	registrySetting = 74 // the version that shows the others
)

// shownSetting gives the fields of a setting by name.
func (c *ironicCall) shownSetting(nodeID string, b *metal.BIOSSetting, names []string) map[string]any {
	all := map[string]any{
		"name": b.Name, "value": b.Value, "attribute_type": orNil(b.AttributeType), "allowable_values": b.AllowableValues,
		"lower_bound": b.LowerBound, "upper_bound": b.UpperBound, "min_length": b.MinLength, "max_length": b.MaxLength,
		"read_only": b.ReadOnly, "reset_required": b.ResetRequired, "unique": b.Unique,
	}
	return c.settingDocument(all, names, b.Timestamps, "nodes/"+nodeID+"/bios/"+b.Name)
}

// settingDocument adds the times, and the links if it has any, to the named fields.
func (c *ironicCall) settingDocument(all map[string]any, names []string, t metal.Timestamps, path string) map[string]any {
	out := map[string]any{"created_at": timeText(t.CreatedAt), "updated_at": timeText(t.UpdatedAt)}
	for _, name := range names {
		out[name] = all[name]
	}
	if path != "" {
		out["links"] = c.links(path)
	}
	return out
}

// chosen reads the fields argument of a list of told things.
func (c *ironicCall) chosen(known, brief []string) ([]string, error) {
	names, err := c.fieldNames()
	if err != nil || names == nil {
		return brief, err
	}
	for _, name := range names {
		if !slices.Contains(known, name) && name != "created_at" && name != "updated_at" && name != "links" {
			return nil, unknownField(name, append([]string{"created_at", "updated_at", "links"}, known...))
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(known, name) }), nil
}

func (s *server) listBIOS(c *ironicCall) error {
	if err := c.only("fields", "detail"); err != nil {
		return err
	}
	if c.has("fields") && c.version < registrySetting {
		return newerField("fields", registrySetting)
	}
	names, err := c.chosen(settingFields, settingFields[:briefSetting])
	if err != nil {
		return err
	}
	var subset []string
	if c.has("fields") {
		subset = names
	}
	detail, err := c.detailSince(subset, registrySetting)
	if err != nil {
		return err
	}
	if detail {
		names = settingFields
	}
	n, err := s.Nodes.Node(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	settings, err := s.Nodes.BIOSSettings(c.R.Context(), n.ID)
	if err != nil {
		return err
	}
	list := make([]map[string]any, len(settings))
	for i := range settings {
		list[i] = c.shownSetting(n.ID, &settings[i], names)
	}
	return c.JSON(http.StatusOK, map[string]any{"bios": list})
}

func (s *server) getBIOS(c *ironicCall) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	settings, err := s.Nodes.BIOSSettings(c.R.Context(), n.ID)
	if err != nil {
		return err
	}
	name := c.Args[1]
	i := slices.IndexFunc(settings, func(b metal.BIOSSetting) bool { return b.Name == name })
	if i < 0 {
		return problem.NotFoundf("Node %s doesn't have a BIOS setting '%s'", n.ID, truncateInput(name))
	}
	names := settingFields[:briefSetting]
	if c.version >= registrySetting {
		names = settingFields
	}
	return c.JSON(http.StatusOK, map[string]any{name: c.shownSetting(n.ID, &settings[i], names)})
}

// componentFields are the fields of a firmware component; the last ones, of its maker, came later.
var componentFields = []string{"component", "initial_version", "current_version", "last_version_flashed", "vendor", "model", "serial_number"}

const (
	briefComponent = 4
	makerComponent = 114
)

func (s *server) listFirmware(c *ironicCall) error {
	if err := c.only("fields", "detail"); err != nil {
		return err
	}
	known := componentFields
	if c.version < makerComponent {
		known = componentFields[:briefComponent]
	}
	names, err := c.chosen(known, known)
	if err != nil {
		return err
	}
	if _, err := c.boolean("detail"); err != nil {
		return err
	}
	n, err := s.Nodes.Node(c.R.Context(), c.Args[0])
	if err != nil {
		return err
	}
	components, err := s.Nodes.Firmware(c.R.Context(), n.ID)
	if err != nil {
		return err
	}
	list := make([]map[string]any, len(components))
	for i, f := range components {
		list[i] = c.settingDocument(map[string]any{
			"component": f.Component, "initial_version": f.InitialVersion, "current_version": f.CurrentVersion, "last_version_flashed": orNil(f.LastVersionFlashed),
			"vendor": orNil(f.Vendor), "model": orNil(f.Model), "serial_number": orNil(f.SerialNumber),
		}, names, f.Timestamps, "")
	}
	return c.JSON(http.StatusOK, map[string]any{"firmware": list})
}

func (s *server) getInventory(c *ironicCall) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	found, err := s.Nodes.Document(c.R.Context(), n.ID, metal.Inventory)
	if problem.Is(err, problem.NotFound) {
		return problem.NotFoundf("Inventory record for node '%s' could not be found.", n.ID)
	}
	if err != nil {
		return err
	}
	beside, err := s.Nodes.Document(c.R.Context(), n.ID, metal.PluginData)
	if problem.Is(err, problem.NotFound) {
		beside.Body, err = json.RawMessage("{}"), nil
	}
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]json.RawMessage{"inventory": found.Body, "plugin_data": beside.Body})
}
