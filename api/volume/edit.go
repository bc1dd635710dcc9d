package volume

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
)

const maxGiB = 1 << 20

// createBody is the body of a creation.
type createBody struct {
	Volume *struct {
		Size               *json.Number       `json:"size"`
		Name               *string            `json:"name"`
		Display            *string            `json:"display_name"`
		Description        *string            `json:"description"`
		DisplayDescription *string            `json:"display_description"`
		Type               *string            `json:"volume_type"`
		Zone               *string            `json:"availability_zone"`
		Metadata           map[string]*string `json:"metadata"`
		Image              *string            `json:"imageRef"`
		Snapshot           *string            `json:"snapshot_id"`
		Source             *string            `json:"source_volid"`
		Backup             *string            `json:"backup_id"`
		Multiattach        *bool              `json:"multiattach"`
	} `json:"volume"`
}

func trimmedText(s *string) string {
	if s == nil {
		return ""
	}
	return strings.TrimSpace(*s)
}

// volume checks the wish and makes it a record.
func (w *createBody) volume(by callerPrivileges) (*compute.Volume, error) {
	g := w.Volume
	if g == nil {
		return nil, problem.Invalidf("Invalid input for field/attribute volume: it is required.")
	}
	for name, from := range map[string]*string{"imageRef": g.Image, "snapshot_id": g.Snapshot, "source_volid": g.Source, "backup_id": g.Backup} {
		if trimmedText(from) != "" {
			return nil, problem.Invalidf("%s: no volume is filled here. %s", name, placeWords)
		}
	}
	if t := trimmedText(g.Type); t != "" && t != typeName && t != typeID && t != "__DEFAULT__" {
		return nil, problem.NotFoundf("Volume type with name %.64s could not be found: there is one, %s.", t, typeName)
	}
	if g.Multiattach != nil && *g.Multiattach {
		return nil, problem.Invalidf("Volumes cannot be attached to several servers.")
	}
	v := &compute.Volume{Name: trimmedText(g.Name), Description: trimmedText(g.Description), Status: compute.VolumeAvailable, Metadata: map[string]string{}}
	if v.Name == "" {
		v.Name = trimmedText(g.Display)
	}
	if v.Description == "" {
		v.Description = trimmedText(g.DisplayDescription)
	}
	if g.Size == nil {
		return nil, problem.Invalidf("Invalid input for field/attribute size: the size in GiB is required, as the storage system has it.")
	}
	n, err := g.Size.Int64()
	if err != nil || n < 1 || n > maxGiB {
		return nil, problem.Invalidf("Invalid input for field/attribute size: want a whole number of GiB from 1 to %d.", maxGiB)
	}
	v.SizeGiB = int(n)
	if err := checkWords(v); err != nil {
		return nil, err
	}
	return v, setMetadata(v, g.Metadata, false, by)
}

func checkWords(v *compute.Volume) error {
	if len(v.Name) > maxText || len(v.Description) > maxText {
		return problem.Invalidf("Invalid input for field/attribute name or description: at most %d bytes are kept.", maxText)
	}
	return nil
}

func (s *server) create(c *api.Call) error {
	var body createBody
	if err := c.ReadInto(&body); err != nil {
		return err
	}
	v, err := body.volume(s.rights(c))
	if err != nil {
		return err
	}
	if v.User = c.Principal.User; v.Project == "" {
		v.Project = c.Project()
	}
	if err := s.Volumes.Create(c.R.Context(), v, c.Asker()); err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, jsonObject{"volume": s.view(c, v)})
}

// edit changes the volume of the path.
func (s *server) edit(c *api.Call, do func(*compute.Volume) error) (*compute.Volume, error) {
	v, err := s.volume(c)
	if err != nil {
		return nil, err
	}
	return s.Volumes.Update(c.R.Context(), v.ID, c.Asker(), func(v *compute.Volume) error {
		v.Metadata, v.ImageProperties = maps.Clone(v.Metadata), maps.Clone(v.ImageProperties)
		return do(v)
	})
}

func (s *server) update(c *api.Call) error {
	var body struct {
		Volume *struct {
			Name               *string            `json:"name"`
			Display            *string            `json:"display_name"`
			Description        *string            `json:"description"`
			DisplayDescription *string            `json:"display_description"`
			Metadata           map[string]*string `json:"metadata"`
		} `json:"volume"`
	}
	if err := c.ReadInto(&body); err != nil {
		return err
	}
	if body.Volume == nil {
		return problem.Invalidf("Invalid input for field/attribute volume: it is required.")
	}
	v, err := s.edit(c, func(v *compute.Volume) error {
		for _, name := range []*string{body.Volume.Display, body.Volume.Name} {
			if name != nil {
				v.Name = trimmedText(name)
			}
		}
		for _, words := range []*string{body.Volume.DisplayDescription, body.Volume.Description} {
			if words != nil {
				v.Description = trimmedText(words)
			}
		}
		if err := checkWords(v); err != nil || body.Volume.Metadata == nil {
			return err
		}
		return setMetadata(v, body.Volume.Metadata, false, s.rights(c))
	})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, jsonObject{"volume": s.view(c, v)})
}

// remove deletes the row; the storage system keeps the volume.
func (s *server) remove(c *api.Call) error {
	v, err := s.volume(c)
	if err != nil {
		return err
	}
	if err := s.Volumes.Remove(c.R.Context(), v.ID, c.Asker()); err != nil {
		return err
	}
	return c.Empty(http.StatusAccepted)
}

type metadataBody struct {
	Metadata map[string]*string `json:"metadata"`
}

func (s *server) getMetadata(c *api.Call) error {
	v, err := s.volume(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, jsonObject{"metadata": metadataOf(v, c.Admin())})
}

func (s *server) mergeMetadata(c *api.Call) error { return s.writeMetadata(c, true) }

func (s *server) replaceMetadata(c *api.Call) error { return s.writeMetadata(c, false) }

func (s *server) writeMetadata(c *api.Call, merge bool) error {
	var body metadataBody
	if err := c.ReadInto(&body); err != nil {
		return err
	}
	if body.Metadata == nil {
		return problem.Invalidf("Invalid input for field/attribute metadata: it is required.")
	}
	v, err := s.edit(c, func(v *compute.Volume) error { return setMetadata(v, body.Metadata, merge, s.rights(c)) })
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, jsonObject{"metadata": metadataOf(v, c.Admin())})
}

func (s *server) getKey(c *api.Call) error {
	v, err := s.volume(c)
	if err != nil {
		return err
	}
	value, ok := metadataOf(v, c.Admin())[c.Arg("key")]
	if !ok {
		return noKey(v, c.Arg("key"))
	}
	return c.JSON(http.StatusOK, jsonObject{"meta": jsonObject{c.Arg("key"): value}})
}

func noKey(v *compute.Volume, key string) error {
	return problem.NotFoundf("Volume %s has no metadata with key %.64s.", v.ID, key)
}

func (s *server) putKey(c *api.Call) error {
	var body struct {
		Meta map[string]*string `json:"meta"`
	}
	if err := c.ReadInto(&body); err != nil {
		return err
	}
	key := c.Arg("key")
	if value, ok := body.Meta[key]; !ok || len(body.Meta) != 1 || value == nil {
		return problem.Invalidf("The request body and URI mismatch: want the key of the path alone.")
	}
	if _, err := s.edit(c, func(v *compute.Volume) error { return setMetadata(v, body.Meta, true, s.rights(c)) }); err != nil {
		return err
	}
	if key == keyPassword {
		return c.JSON(http.StatusOK, jsonObject{"meta": jsonObject{}})
	}
	return c.JSON(http.StatusOK, jsonObject{"meta": body.Meta})
}

func (s *server) removeKey(c *api.Call) error {
	key := c.Arg("key")
	_, err := s.edit(c, func(v *compute.Volume) error {
		refused := !c.Admin() && strings.HasPrefix(key, prefix) // setMetadata returns the error
		if _, ok := metadataOf(v, c.Admin())[key]; !ok && !refused && (key != keyPassword || v.CHAPUser == "") {
			return noKey(v, key)
		}
		gone := map[string]*string{key: nil}
		if key == keyUser || key == keyPassword { // one is nothing without the other
			gone = map[string]*string{keyUser: nil, keyPassword: nil}
		}
		return setMetadata(v, gone, true, s.rights(c))
	})
	if err != nil {
		return err
	}
	return c.Empty(http.StatusOK)
}
