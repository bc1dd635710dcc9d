package native

import (
	"net/http"
	"strings"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// rescueImage is the body of a creation and of a change; what is absent stays as it is.
type rescueImage struct {
	Name           *string `json:"name"`
	Location       *string `json:"location"`
	LocationType   *string `json:"location_type"`
	ImageID        *string `json:"image_id"`
	OS             *string `json:"os"`
	OSFamily       *string `json:"os_family"`
	TargetOS       *string `json:"target_os"`
	TargetOSFamily *string `json:"target_os_family"`
	Default        *bool   `json:"default"`
	Kind           *string `json:"kind"`
	Access         *string `json:"access"`
	Ramdisk        *string `json:"ramdisk"`
	Append         *string `json:"append"`
	Digest         *string `json:"digest"`
	RamdiskDigest  *string `json:"ramdisk_digest"`
	// Force takes an image whose files no host has.
	Force bool `json:"force"`
}

// fill puts what was said into an image.
func (b *rescueImage) fill(img *rescue.Image) error {
	for from, to := range map[*string]*string{
		b.Name: &img.Name, b.Location: &img.Source.Location, b.LocationType: &img.Source.LocationType, b.ImageID: &img.Source.ImageUUID,
		b.OS: &img.OS, b.OSFamily: &img.OSFamily, b.TargetOS: &img.TargetOS, b.TargetOSFamily: &img.TargetOSFamily,
		b.Ramdisk: &img.Source.Ramdisk, b.Append: &img.Source.Append, b.Digest: &img.Source.Digest, b.RamdiskDigest: &img.Source.RamdiskDigest,
	} {
		if from != nil {
			*to = *from
		}
	}
	if b.Kind != nil {
		img.Source.Kind = rescue.Kind(*b.Kind)
	}
	if b.Access != nil {
		img.Source.Access = rescue.Access(*b.Access)
	}
	if b.Default != nil {
		img.Default = *b.Default
	}
	return nil
}

func (s *server) rescueImageCollection() resourceCollection[rescue.Image, rescue.ImageFilter] {
	images := s.Services.RescueImages
	return resourceCollection[rescue.Image, rescue.ImageFilter]{
		path: "/rescue-images", many: "rescue_images",
		list: func(c *api.Call, f rescue.ImageFilter, p record.Page) ([]*rescue.Image, error) {
			return images.List(c.R.Context(), f, p)
		},
		get: func(c *api.Call, ident string) (*rescue.Image, error) { return images.Get(c.R.Context(), ident) },
		filter: func(c *api.Call) (f rescue.ImageFilter, err error) {
			f.Name = c.Query.Get("name")
			if f.Deleted, err = parseBoolQuery(c, "deleted"); err == nil && f.Deleted && !c.Admin() {
				err = problem.Forbiddenf("Only administrators see rescue images that were removed.")
			}
			return f, err
		},
		view: s.viewRescueImages,
		id:   func(img *rescue.Image) string { return img.ID },
	}
}

// rescueImageLists are open to all who may ask at all: who rescues a server must know by what.
func (s *server) rescueImageLists() []api.Route {
	k := s.rescueImageCollection()
	return append(k.routes()[:1], api.Route{Method: http.MethodGet, Path: "/rescue-images/{ident}", Do: func(c *api.Call) error {
		img, err := k.get(c, c.Arg("ident"))
		switch {
		case err != nil:
			return err
		case c.Admin():
			return s.showRescueImage(c, img)
		case img.Deleted():
			return problem.NotFoundf("Rescue image %.64s not found", c.Arg("ident"))
		}
		return k.show(c, http.StatusOK, img)
	}})
}

// publicRescueImage is what everybody may know of one: neither where it lies nor who uses it.
func publicRescueImage(img *rescue.Image) map[string]any {
	return map[string]any{
		"id": img.Num, "uuid": img.ID, "name": img.Name, "default": img.Default, "kind": img.Source.Kind, "access": img.Source.Access,
		"os": img.OS, "os_family": img.OSFamily, "target_os": img.TargetOS, "target_os_family": img.TargetOSFamily,
	}
}

// rescueImages are the routes that change them.
func (s *server) rescueImages() []api.Route {
	images := s.Services.RescueImages
	return []api.Route{
		{Method: http.MethodPost, Path: "/rescue-images", Do: func(c *api.Call) error {
			var b rescueImage
			if err := c.ReadExactly(&b); err != nil {
				return err
			}
			img := &rescue.Image{}
			if err := b.fill(img); err != nil {
				return err
			}
			found, err := images.Search(c.R.Context(), *img, b.Force)
			if err != nil {
				return err
			}
			if err := images.Create(c.R.Context(), img, c.Asker()); err != nil {
				return err
			}
			return s.showFound(c, http.StatusCreated, img, found)
		}},
		{Method: http.MethodPatch, Path: "/rescue-images/{ident}", Do: func(c *api.Call) error {
			var b rescueImage
			if err := c.ReadExactly(&b); err != nil {
				return err
			}
			found, err := s.searchChanged(c, &b)
			if err != nil {
				return err
			}
			img, err := images.Update(c.R.Context(), c.Arg("ident"), c.Asker(), b.fill)
			if err != nil {
				return err
			}
			return s.showFound(c, http.StatusOK, img, found)
		}},
		{Method: http.MethodDelete, Path: "/rescue-images/{ident}", Do: func(c *api.Call) error {
			force, err := parseBoolQuery(c, "force")
			if err != nil {
				return err
			}
			if err := images.Remove(c.R.Context(), c.Arg("ident"), force, c.Asker()); err != nil {
				return err
			}
			return c.Empty(http.StatusNoContent)
		}},
	}
}

// searchChanged looks for the files of an image that a change names; nil: it names none.
func (s *server) searchChanged(c *api.Call, b *rescueImage) (*compute.FileSearch, error) {
	if b.Location == nil && b.Ramdisk == nil {
		return nil, nil
	}
	old, err := s.Services.RescueImages.Get(c.R.Context(), c.Arg("ident"))
	if err != nil {
		return nil, err
	}
	img := *old
	if b.Location != nil && *b.Location != old.Source.Location && b.LocationType == nil {
		img.Source.LocationType = "" // of the new one
	}
	if b.Location != nil && *b.Location != "" {
		img.Source.ImageUUID = ""
	}
	if err := b.fill(&img); err != nil {
		return nil, err
	}
	return s.Services.RescueImages.Search(c.R.Context(), img, b.Force)
}

// showFound shows an image with what hosts said of its files.
func (s *server) showFound(c *api.Call, status int, img *rescue.Image, found *compute.FileSearch) error {
	views, err := s.viewRescueImages(c, []*rescue.Image{img})
	if err != nil {
		return err
	}
	if found != nil && len(found.Found)+len(found.Missing)+len(found.Unknown) > 0 {
		views[0]["found_on"], views[0]["missing_on"], views[0]["unknown_on"] = strings.Join(found.Found, ", "), strings.Join(found.Missing, ", "), strings.Join(found.Unknown, ", ")
	}
	return c.JSON(status, views[0])
}

// viewRescueImages counts the servers that use them by one query for all.
func (s *server) viewRescueImages(c *api.Call, all []*rescue.Image) ([]map[string]any, error) {
	out := make([]map[string]any, len(all))
	if !c.Admin() {
		for i, img := range all {
			out[i] = publicRescueImage(img)
		}
		return out, nil
	}
	use, err := s.Services.RescueImages.Use(c.R.Context())
	if err != nil {
		return nil, err
	}
	for i, img := range all {
		src := img.Source
		out[i] = map[string]any{
			"id": img.Num, "uuid": img.ID, "name": img.Name, "default": img.Default, "deleted": img.Deleted(),
			"os": img.OS, "os_family": img.OSFamily, "target_os": img.TargetOS, "target_os_family": img.TargetOSFamily,
			"kind": src.Kind, "access": src.Access, "location": src.Location, "location_type": src.LocationType, "image_id": src.ImageUUID,
			"ramdisk": src.Ramdisk, "append": src.Append, "digest": src.Digest, "ramdisk_digest": src.RamdiskDigest,
			"servers": use[img.Num], "created_at": timeOrNull(img.CreatedAt), "updated_at": timeOrNull(img.UpdatedAt),
		}
	}
	return out, nil
}

// showRescueImage names the servers whose session uses it.
func (s *server) showRescueImage(c *api.Call, img *rescue.Image) error {
	views, err := s.viewRescueImages(c, []*rescue.Image{img})
	if err != nil {
		return err
	}
	users, err := s.Services.Servers.List(c.R.Context(), compute.ServerFilter{RescueImage: img.Num}, record.Page{Limit: maxPage})
	if err != nil {
		return err
	}
	names := []map[string]any{}
	for _, u := range users {
		names = append(names, map[string]any{"id": u.ID, "name": u.Name})
	}
	view := views[0]
	view["used_by"] = names
	return c.JSON(http.StatusOK, view)
}
