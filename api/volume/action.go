package volume

import (
	"net/http"
	"time"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
)

// actions of a volume; each changes the row alone.
var actions = map[string]func(c *api.Call, v *compute.Volume, args map[string]any) error{
	"os-set_bootable": func(_ *api.Call, v *compute.Volume, args map[string]any) error {
		on, ok := args["bootable"].(bool)
		if !ok {
			return problem.Invalidf("Invalid input for field/attribute bootable: want true or false.")
		}
		v.Bootable = on
		return nil
	},
	"os-reset_status":         resetStatus,
	"os-set_image_metadata":   setImageMetadata,
	"os-unset_image_metadata": unsetImageMetadata,
	"os-extend": func(_ *api.Call, v *compute.Volume, args map[string]any) error {
		size, ok := args["new_size"].(float64)
		if !ok || size != float64(int(size)) || int(size) <= v.SizeGiB || size > maxGiB {
			return problem.Invalidf("Invalid input received: New size for extend must be greater than current size (%d GiB): grow the volume at its storage system first.", v.SizeGiB)
		}
		if v.Status != compute.VolumeAvailable {
			return problem.Invalidf("Volume %s is %s: only an available one can be extended.", v.ID, v.Status)
		}
		v.SizeGiB = int(size)
		return nil
	},
}

// resetStatus lets an administrator mend what an operation left behind.
func resetStatus(c *api.Call, v *compute.Volume, args map[string]any) error {
	if !c.Admin() {
		return problem.Forbiddenf("Only administrators reset the status of volumes.")
	}
	status, _ := args["status"].(string)
	attach, _ := args["attach_status"].(string)
	switch compute.VolumeStatus(status) {
	case "":
	case compute.VolumeAvailable, compute.VolumeError, compute.VolumeInUse:
		v.Status = compute.VolumeStatus(status)
	default:
		return problem.Invalidf("Must specify a valid status, not %.40q: available, error or in-use.", status)
	}
	switch attach {
	case "", "attached":
	case "detached":
		v.ServerID, v.Device, v.AttachedAt = "", "", time.Time{}
	default:
		return problem.Invalidf("Must specify a valid attach_status, not %.40q: attached or detached.", attach)
	}
	if v.Status == compute.VolumeAvailable && v.ServerID != "" {
		return problem.Invalidf("Volume %s is attached to server %s: detach it, or reset attach_status to detached too.", v.ID, v.ServerID)
	}
	return nil
}

func setImageMetadata(_ *api.Call, v *compute.Volume, args map[string]any) error {
	given, ok := args["metadata"].(map[string]any)
	if !ok {
		return problem.Invalidf("Malformed request body: metadata is required.")
	}
	if v.ImageProperties == nil {
		v.ImageProperties = map[string]string{}
	}
	for k, value := range given {
		text, ok := value.(string)
		if !ok || k == "" || len(k) > maxText || len(text) > maxText {
			return problem.Invalidf("Invalid input for field/attribute metadata: want text of at most %d bytes.", maxText)
		}
		v.ImageProperties[k] = text
	}
	if len(v.ImageProperties) > maxMetadata {
		return problem.Invalidf("At most %d image properties are kept.", maxMetadata)
	}
	return nil
}

func unsetImageMetadata(_ *api.Call, v *compute.Volume, args map[string]any) error {
	key, _ := args["key"].(string)
	if _, ok := v.ImageProperties[key]; !ok {
		return problem.NotFoundf("Volume %s has no image property %.64s.", v.ID, key)
	}
	delete(v.ImageProperties, key)
	return nil
}

func (s *server) act(c *api.Call) error {
	var body map[string]any
	if err := c.ReadInto(&body); err != nil {
		return err
	}
	if len(body) != 1 {
		return problem.Invalidf("There is no such action: the body must name one.")
	}
	for name, value := range body {
		if err := c.Permitted(s.Policy, actionRules[name]); err != nil {
			return err
		}
		args, _ := value.(map[string]any)
		switch name {
		case "os-force_delete", "os-unmanage":
			if err := c.Permitted(s.Policy, rules["DELETE /volumes/{volume}"]); err != nil {
				return err
			}
			return s.remove(c)
		case "os-attach", "os-detach", "os-reserve", "os-unreserve", "os-begin_detaching", "os-roll_detaching", "os-initialize_connection",
			"os-terminate_connection", "os-force_detach":
			return refuseAttachment(c)
		case "os-show_image_metadata":
			return s.imageMetadata(c)
		}
		do, ok := actions[name]
		if !ok {
			return problem.Invalidf("There is no such action: %.64s", name)
		}
		v, err := s.edit(c, func(v *compute.Volume) error { return do(c, v, args) })
		if err != nil {
			return err
		}
		if name == "os-set_image_metadata" {
			return c.JSON(http.StatusOK, jsonObject{"metadata": v.ImageProperties})
		}
		if name == "os-set_bootable" || name == "os-unset_image_metadata" {
			return c.Empty(http.StatusOK)
		}
	}
	return c.Empty(http.StatusAccepted)
}

func (s *server) imageMetadata(c *api.Call) error {
	v, err := s.volume(c)
	if err != nil {
		return err
	}
	have := v.ImageProperties
	if have == nil {
		have = map[string]string{}
	}
	return c.JSON(http.StatusOK, jsonObject{"metadata": have})
}
