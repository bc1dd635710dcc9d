package driver

import (
	"slices"

	"salvor/metal"
	"salvor/problem"
)

// The steps that more than one driver has, as Ironic names them, and their arguments.
var (
	BIOSSteps = []Step{
		{Interface: "bios", Name: "apply_configuration", Restarts: true, ArgsInfo: map[string]ArgInfo{
			"settings": {Description: "A list of settings, each an object with name and value.", Required: true},
		}},
		{Interface: "bios", Name: "factory_reset", Restarts: true},
	}
	RAIDSteps = []Step{
		{Interface: "raid", Name: "create_configuration", ArgsInfo: map[string]ArgInfo{
			"create_root_volume":     {Description: "Whether the root volume is made; true by default."},
			"create_nonroot_volumes": {Description: "Whether the other volumes are made; true by default."},
			"delete_existing":        {Description: "Whether the volumes that are there are deleted first; false by default."},
		}},
		{Interface: "raid", Name: "delete_configuration"},
	}
	FirmwareSteps = []Step{
		{Interface: "firmware", Name: "update", Restarts: true, ArgsInfo: map[string]ArgInfo{
			"settings": {Description: "A list of updates, each an object with component (bios, bmc, ...) and url.", Required: true},
		}},
	}
)

// UpdateFirmware is the step of the management interface that updates firmware from a list of images.
const UpdateFirmware = "update_firmware"

// maxArgs bounds a list in the arguments of a step.
const maxArgs = 1000

// list reads a list of objects out of a step's arguments.
func list(s metal.Step, key string) ([]map[string]any, error) {
	all, ok := s.Args[key].([]any)
	if !ok || len(all) == 0 || len(all) > maxArgs {
		return nil, problem.Invalidf("step %s.%s needs the argument %s, a list of 1 to %d objects", s.Interface, s.Step, key, maxArgs)
	}
	var out []map[string]any
	for _, e := range all {
		o, ok := e.(map[string]any)
		if !ok {
			return nil, problem.Invalidf("step %s.%s: %s holds what is no object", s.Interface, s.Step, key)
		}
		out = append(out, o)
	}
	return out, nil
}

// WantedSettings reads the argument of bios.apply_configuration: values (strings, numbers, booleans) by name.
func WantedSettings(s metal.Step) (map[string]any, error) {
	all, err := list(s, "settings")
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, o := range all {
		name, _ := o["name"].(string)
		value, ok := o["value"]
		if name == "" || !ok {
			return nil, problem.Invalidf("step %s.%s: a setting needs name and value", s.Interface, s.Step)
		}
		switch value.(type) {
		case string, float64, bool:
		default:
			return nil, problem.Invalidf("step %s.%s: the value of %s must be a string, a number or a boolean", s.Interface, s.Step, Sanitize(name))
		}
		out[name] = value
	}
	return out, nil
}

// WantedDisks reads which logical disks of the node's target RAID configuration raid.create_configuration is to make.
func WantedDisks(n *metal.Node, s metal.Step) ([]any, error) {
	disks, _ := n.TargetRAID["logical_disks"].([]any)
	if len(disks) == 0 {
		return nil, problem.Invalidf("node %s has no target RAID configuration: set it by states/raid first", n.ID)
	}
	root, others := s.Args["create_root_volume"] != false, s.Args["create_nonroot_volumes"] != false
	disks = slices.DeleteFunc(slices.Clone(disks), func(d any) bool {
		o, _ := d.(map[string]any)
		if o["is_root_volume"] == true {
			return !root
		}
		return !others
	})
	if len(disks) == 0 {
		return nil, problem.Invalidf("step %s.%s: no logical disk of the target RAID configuration is left to make", s.Interface, s.Step)
	}
	return disks, nil
}

// Update is the firmware of a component, by the URL of its image.
type Update struct{ Component, URL string }

// WantedUpdates reads the argument of firmware.update.
func WantedUpdates(s metal.Step) ([]Update, error) {
	all, err := list(s, "settings")
	if err != nil {
		return nil, err
	}
	var out []Update
	for _, o := range all {
		component, _ := o["component"].(string)
		url, _ := o["url"].(string)
		if component == "" || url == "" {
			return nil, problem.Invalidf("step %s.%s: an update needs component and url", s.Interface, s.Step)
		}
		out = append(out, Update{component, url})
	}
	return out, nil
}

// WantedImages reads the argument firmware_images of management.update_firmware: the URLs, in order. The components are not known.
func WantedImages(s metal.Step) ([]Update, error) {
	all, err := list(s, "firmware_images")
	if err != nil {
		return nil, err
	}
	var out []Update
	for _, o := range all {
		url, _ := o["url"].(string)
		if url == "" {
			return nil, problem.Invalidf("step %s.%s: a firmware image needs url", s.Interface, s.Step)
		}
		out = append(out, Update{URL: url})
	}
	return out, nil
}
