package identity

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"salvor/api"
	"salvor/problem"
	"salvor/secret"
)

// named by id or by name.
type reference struct {
	ID     string     `json:"id"`
	Name   string     `json:"name"`
	Domain *reference `json:"domain"`
}

// request is the body of a request for a token.
type request struct {
	Auth *struct {
		Identity *struct {
			Methods  []string `json:"methods"`
			Password *struct {
				User struct {
					reference
					Password secret.Value `json:"password"`
				} `json:"user"`
			} `json:"password"`
			Token *struct {
				ID secret.Value `json:"id"`
			} `json:"token"`
		} `json:"identity"`
		Scope *scope `json:"scope"`
	} `json:"auth"`
}

type scope struct {
	Project  *reference `json:"project"`
	Domain   *reference `json:"domain"`
	Unscoped any        `json:"unscoped"`
	System   *struct {
		All bool `json:"all"`
	} `json:"system"`
	Trust any `json:"OS-TRUST:trust"`
	word  string
}

// UnmarshalJSON takes the word "unscoped" beside an object.
func (s *scope) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		s.word = strings.Trim(string(b), `"`)
		return nil
	}
	type plain scope
	return json.Unmarshal(b, (*plain)(s))
}

// defaultProject is where a user works that names none: everybody has it.
const defaultProject = "admin"

// authenticate makes a token.
func (s *server) authenticate(c *api.Call) error {
	var body request
	if err := c.ReadInto(&body); err != nil {
		return err
	}
	if body.Auth == nil || body.Auth.Identity == nil || len(body.Auth.Identity.Methods) == 0 {
		return problem.Invalidf("Expecting to find identity.methods in auth: the body is no request for a token.")
	}
	now := s.Now().UTC().Truncate(time.Microsecond)
	said := &statement{Issued: now, Expires: now.Add(Lifetime)}
	for _, method := range body.Auth.Identity.Methods {
		var err error
		switch method {
		case "password":
			err = s.byPassword(c, &body, said)
		case "token":
			err = s.byToken(&body, said)
		default:
			err = unauthorized("Attempted to authenticate with an unsupported method: salvor itself serves password and token; others need a Keystone (auth_strategy = keystone).")
		}
		if err != nil {
			return err
		}
		if !slices.Contains(said.Methods, method) {
			said.Methods = append(said.Methods, method)
		}
	}
	if err := said.scopeTo(body.Auth.Scope); err != nil {
		return err
	}
	token, err := s.Tokens.issue(said)
	if err != nil {
		return err
	}
	c.W.Header().Set(subjectHeader, token.Reveal())
	return s.show(c, http.StatusCreated, said)
}

func (s *server) byPassword(c *api.Call, body *request, said *statement) error {
	p := body.Auth.Identity.Password
	if p == nil {
		return problem.Invalidf("Expecting to find password in identity.")
	}
	user := p.User.Name
	if user == "" {
		user = p.User.ID
	}
	if err := checkName("user", user); err != nil {
		return err
	}
	if d := p.User.Domain; d != nil && !isDomain(d.ID+d.Name) {
		return unauthorized("The request you have made requires authentication: there is one domain, default.")
	}
	if said.User != "" && said.User != user {
		return unauthorized("The request you have made requires authentication: its methods name several users.")
	}
	said.User = user
	return s.Tokens.login(c.R, user, p.User.Password)
}

func (s *server) byToken(body *request, said *statement) error {
	if body.Auth.Identity.Token == nil {
		return problem.Invalidf("Expecting to find token in identity.")
	}
	old, err := s.Tokens.open(body.Auth.Identity.Token.ID.Reveal())
	if err != nil {
		return err
	}
	if said.User != "" && said.User != old.User {
		return unauthorized("The request you have made requires authentication: its methods name several users.")
	}
	said.User, said.Methods = old.User, append(said.Methods, old.Methods...)
	if old.Expires.Before(said.Expires) { // a token is not made longer by another
		said.Expires = old.Expires
	}
	return nil
}

// scopeTo settles what the token is good for.
func (s *statement) scopeTo(wish *scope) error {
	switch {
	case wish == nil:
		s.ProjectName = defaultProject
	case wish.word == "unscoped", wish.Unscoped != nil:
		return nil
	case wish.word != "":
		return problem.Invalidf("auth.scope %.40q is not known.", wish.word)
	case wish.Domain != nil, wish.Trust != nil:
		return unauthorized("Tokens for a domain or a trust are not served: name a project.")
	case wish.System != nil:
		s.System = wish.System.All
		return nil
	case wish.Project == nil:
		return problem.Invalidf("auth.scope names nothing: want project, system or unscoped.")
	default:
		if d := wish.Project.Domain; d != nil && !isDomain(d.ID+d.Name) {
			return unauthorized("The request you have made requires authentication: there is one domain, default.")
		}
		if s.ProjectName = wish.Project.Name; s.ProjectName == "" {
			s.ProjectName = wish.Project.ID
		}
	}
	s.Project = ProjectID(s.ProjectName)
	return checkName("project", s.ProjectName)
}

func isDomain(word string) bool { return strings.EqualFold(word, domainID) }

// checkName refuses what cannot be a user or a project.
func checkName(what, name string) error {
	if name == "" || len(name) > maxName || strings.ContainsAny(name, ":\r\n") {
		return problem.Invalidf("Invalid input for field '%s': want a name of 1 to %d bytes without colon.", what, maxName)
	}
	return api.CheckText(name)
}

// show answers with what a token says.
func (s *server) show(c *api.Call, status int, said *statement) error {
	domain := object{"id": domainID, "name": domainName}
	token := object{
		"methods": said.Methods, "audit_ids": []string{said.ID}, "issued_at": timeText(said.Issued), "expires_at": timeText(said.Expires),
		"user": object{"id": UserID(said.User), "name": said.User, "domain": domain, "password_expires_at": nil},
	}
	if said.Project != "" {
		token["project"] = object{"id": said.Project, "name": said.ProjectName, "domain": domain}
		token["is_domain"] = false
	}
	if said.System {
		token["system"] = object{"all": true}
	}
	if said.Project != "" || said.System {
		var have []object
		for _, r := range roles {
			have = append(have, object{"id": idOf("role", r), "name": r})
		}
		token["roles"] = have
		if !c.Query.Has("nocatalog") {
			token["catalog"] = s.services(c.Base, said.Project)
		}
	}
	c.W.Header().Add("Vary", tokenHeader)
	return c.JSON(status, object{"token": token})
}

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// subject is the token that a request is about.
func (s *server) subject(c *api.Call) (*statement, error) {
	said, err := s.Tokens.open(c.R.Header.Get(subjectHeader))
	if api.Status(err) == http.StatusUnauthorized {
		return nil, problem.NotFoundf("Could not find token: it is not good, or not any longer.")
	}
	return said, err
}

func (s *server) validate(c *api.Call) error {
	said, err := s.subject(c)
	if err != nil {
		return err
	}
	c.W.Header().Set(subjectHeader, c.R.Header.Get(subjectHeader))
	return s.show(c, http.StatusOK, said)
}

func (s *server) revoke(c *api.Call) error {
	said, err := s.subject(c)
	if err != nil {
		return err
	}
	if err := s.Tokens.revoke(said); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}
