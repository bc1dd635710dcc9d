package image

import (
	"context"
	"net/http"
	"slices"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

func (s *server) remove(c *api.Call) error {
	i, err := s.ownImage(c)
	if err != nil {
		return err
	}
	if i.Protected {
		return problem.Forbiddenf("Image %s is protected and cannot be deleted.", i.ID)
	}
	s.bytes.Lock()
	defer s.bytes.Unlock()
	if err := s.Images.Remove(c.R.Context(), i.ID, c.Asker()); err != nil {
		return err
	}
	if err := s.forget(c.R.Context(), i); err != nil {
		s.Log.Error("remove the bytes of a deleted image", "image", i.ID, "digest", i.Digest, "error", err)
	}
	return c.Empty(http.StatusNoContent)
}

// forget removes the bytes of a deleted image that nobody else has. The caller holds s.bytes.
func (s *server) forget(ctx context.Context, i *compute.Image) error {
	if i.Digest == "" || i.URL != "" {
		return nil
	}
	others, err := s.Images.List(ctx, compute.ImageFilter{OSHash: i.SHA512}, record.Page{Limit: 2})
	if err != nil || slices.ContainsFunc(others, func(o *compute.Image) bool { return o.ID != i.ID && o.Digest == i.Digest }) {
		return err
	}
	if s.Held != nil {
		if held, err := s.Held(ctx, i.Digest); err != nil || held {
			return err
		}
	}
	return s.Blobs.Remove(ctx, i.Digest)
}
