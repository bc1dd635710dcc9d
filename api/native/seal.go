package native

import (
	"context"
	"net/http"

	"salvor/api"
	"salvor/record"
	"salvor/wire/native"
)

// Seal is what seals the secrets of the database.
type Seal interface {
	Status(ctx context.Context) (native.Seal, error)
	// Rotate begins to change the key for another one; problem.Conflict while a change goes on.
	Rotate(ctx context.Context, asker record.Asker) error
}

func (s *server) secrets() []api.Route {
	if s.Seal == nil {
		return nil
	}
	return []api.Route{
		{Method: http.MethodGet, Path: "/secrets", Do: func(c *api.Call) error { return s.showSeal(c, http.StatusOK) }},
		{Method: http.MethodPost, Path: "/secrets/rotate", Do: withoutBody(func(c *api.Call) error {
			if err := s.Seal.Rotate(c.R.Context(), c.Asker()); err != nil {
				return err
			}
			return s.showSeal(c, http.StatusAccepted)
		})},
	}
}

func (s *server) showSeal(c *api.Call, status int) error {
	seal, err := s.Seal.Status(c.R.Context())
	if err != nil {
		return err
	}
	return c.JSON(status, seal)
}
