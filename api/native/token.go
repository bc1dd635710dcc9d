package native

import (
	"net/http"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// newToken is the body of a creation.
type newToken struct {
	Name string      `json:"name"`
	Role access.Role `json:"role"`
	// Project by name or id; empty: the whole system, or the project of an asker that has no more.
	Project string `json:"project"`
	// ExpiresIn is in seconds; 0: it lasts until it is revoked.
	ExpiresIn int64 `json:"expires_in"`
}

// tokenRoutes are for administrators of the whole system, and for those of a project as far as tokens of the project go.
func (s *server) tokenRoutes() []api.Route {
	if s.Tokens == nil {
		return nil
	}
	k := resourceCollection[access.Token, access.TokenFilter]{
		path: "/tokens", many: "tokens",
		list: func(c *api.Call, f access.TokenFilter, p record.Page) ([]*access.Token, error) {
			return s.Tokens.List(c.R.Context(), f, p)
		},
		get: s.token,
		filter: func(c *api.Call) (f access.TokenFilter, err error) {
			f.Name = c.Query.Get("name")
			f.Project, err = projectOfTokens(c)
			return f, err
		},
		view: func(_ *api.Call, all []*access.Token) ([]map[string]any, error) {
			out := make([]map[string]any, len(all))
			for i, t := range all {
				out[i] = tokenView(t)
			}
			return out, nil
		},
		id: func(t *access.Token) string { return t.ID },
	}
	return append(k.routes(),
		api.Route{Method: http.MethodPost, Path: "/tokens", Do: s.createToken},
		api.Route{Method: http.MethodDelete, Path: "/tokens/{ident}", Do: func(c *api.Call) error {
			t, err := s.token(c, c.Arg("ident"))
			if err != nil {
				return err
			}
			if err := s.Tokens.Revoke(c.R.Context(), t.ID, c.Asker()); err != nil {
				return err
			}
			s.Log.Info("token revoked", "token", t.ID, "name", t.Name, "by", c.Principal.User)
			return c.Empty(http.StatusNoContent)
		}},
	)
}

// projectOfTokens is the project to which the asker's sight of tokens is confined; empty: to none.
func projectOfTokens(c *api.Call) (string, error) {
	switch {
	case c.Admin():
		return "", nil
	case c.Principal.Leads():
		return c.Project(), nil
	}
	return "", problem.Forbiddenf("Tokens are made, listed and revoked by administrators, of the whole system or of a project.")
}

func (s *server) token(c *api.Call, ident string) (*access.Token, error) {
	project, err := projectOfTokens(c)
	if err != nil {
		return nil, err
	}
	t, err := s.Tokens.Get(c.R.Context(), ident)
	if err == nil && project != "" && t.Project != project {
		err = problem.NotFoundf("Token %s could not be found.", ident)
	}
	return t, err
}

func (s *server) createToken(c *api.Call) error {
	var b newToken
	if err := c.ReadExactly(&b); err != nil {
		return err
	}
	confined, err := projectOfTokens(c)
	if err != nil {
		return err
	}
	switch {
	case b.ExpiresIn < 0 || b.ExpiresIn > int64(access.MaxTokenLife/time.Second):
		return problem.Invalidf("Invalid input for field expires_in: want 0 to %d seconds; 0 is until it is revoked.", access.MaxTokenLife/time.Second)
	case confined != "" && b.Project == "":
		b.Project = c.Principal.Scope.ProjectName
	case confined != "" && access.ProjectID(b.Project) != confined:
		return problem.Forbiddenf("An administrator of a project makes tokens for that project alone.")
	}
	t, text, err := s.Tokens.IssueUnder(c.R.Context(), c.Principal, b.Name, b.Role, b.Project, time.Duration(b.ExpiresIn)*time.Second, c.Asker())
	if err != nil {
		return err
	}
	s.Log.Info("token made", "token", t.ID, "name", t.Name, "role", t.Role, "project", t.Project, "by", c.Principal.User)
	made := TokenView(t, text)
	c.W.Header().Set("Cache-Control", "no-store")
	return c.JSON(http.StatusCreated, made)
}

// TokenView is the answer to whoever made a token: its text is told here and never again.
func TokenView(t *access.Token, text secret.Value) map[string]any {
	made := tokenView(t)
	made["token"] = text.Reveal()
	return made
}

func tokenView(t *access.Token) map[string]any {
	scope := "system"
	if t.Project != "" {
		scope = "project"
	}
	return map[string]any{
		"id": t.ID, "name": t.Name, "role": t.Role, "scope": scope, "project": nullIfEmpty(t.ProjectName), "project_id": nullIfEmpty(t.Project),
		"expires_at": timeOrNull(t.ExpiresAt), "used_at": timeOrNull(t.UsedAt), "created_at": timeOrNull(t.CreatedAt), "created_by": t.By,
	}
}

// nullIfEmpty writes an empty word as none.
func nullIfEmpty(word string) any {
	if word == "" {
		return nil
	}
	return word
}
