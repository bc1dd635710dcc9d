package identity

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/problem"
	"salvor/secret"
)

// named by id or by name.
type identityReference struct {
	ID     string             `json:"id"`
	Name   string             `json:"name"`
	Domain *identityReference `json:"domain"`
}

// tokenRequest is the body of a request for a token.
type tokenRequest struct {
	Auth *struct {
		Identity *struct {
			Methods  []string `json:"methods"`
			Password *struct {
				User struct {
					identityReference
					Password secret.Value `json:"password"`
				} `json:"user"`
			} `json:"password"`
			Token *struct {
				ID secret.Value `json:"id"`
			} `json:"token"`
			Credential *struct {
				identityReference
				Secret secret.Value `json:"secret"`
			} `json:"application_credential"`
		} `json:"identity"`
		Scope *tokenScope `json:"scope"`
	} `json:"auth"`
}

type tokenScope struct {
	Project  *identityReference `json:"project"`
	Domain   *identityReference `json:"domain"`
	Unscoped any                `json:"unscoped"`
	System   *struct {
		All bool `json:"all"`
	} `json:"system"`
	Trust any `json:"OS-TRUST:trust"`
	word  string
}

// UnmarshalJSON takes the word "unscoped" beside an object.
func (s *tokenScope) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		s.word = strings.Trim(string(b), `"`)
		return nil
	}
	type plain tokenScope
	return json.Unmarshal(b, (*plain)(s))
}

// defaultProject is where a user works that names none: everybody has it.
const defaultProject = "admin"

// authenticate makes a token.
func (s *server) authenticate(c *api.Call) error {
	var body tokenRequest
	if err := c.ReadInto(&body); err != nil {
		return err
	}
	if body.Auth == nil || body.Auth.Identity == nil || len(body.Auth.Identity.Methods) == 0 {
		return problem.Invalidf("Expecting to find identity.methods in auth: the body is no request for a token.")
	}
	now := s.Now().UTC().Truncate(time.Microsecond)
	claims := &tokenClaims{Issued: now, Expires: now.Add(Lifetime), roles: roles}
	for _, method := range body.Auth.Identity.Methods {
		var err error
		switch method {
		case "password":
			err = s.byPassword(c, &body, claims)
		case "token":
			err = s.byToken(c, &body, claims)
		case "application_credential":
			err = s.byCredential(c, &body, claims)
		default:
			err = unauthorizedError("Attempted to authenticate with an unsupported method: salvor itself serves password, token and application_credential; others need a Keystone (auth_strategy = keystone).")
		}
		if err != nil {
			return err
		}
		if !slices.Contains(claims.Methods, method) {
			claims.Methods = append(claims.Methods, method)
		}
	}
	if err := claims.scopeTo(body.Auth.Scope); err != nil {
		return err
	}
	token := claims.text
	if token.Empty() {
		var err error
		if token, err = s.Tokens.issue(claims); err != nil {
			return err
		}
	}
	c.W.Header().Set(subjectHeader, token.Reveal())
	return s.show(c, http.StatusCreated, claims)
}

func (s *server) byPassword(c *api.Call, body *tokenRequest, claims *tokenClaims) error {
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
		return unauthorizedError("The request you have made requires authentication: there is one domain, default.")
	}
	if claims.User != "" && claims.User != user {
		return unauthorizedError("The request you have made requires authentication: its methods name several users.")
	}
	apiTokens, err := s.Tokens.login(c.R, user, p.User.Password)
	if err != nil {
		return err
	}
	if apiTokens != nil {
		return claims.become(apiTokens)
	}
	claims.User = user
	return nil
}

// byCredential takes a token of the API as the secret of an application credential, which clients know how to keep.
func (s *server) byCredential(c *api.Call, body *tokenRequest, claims *tokenClaims) error {
	p := body.Auth.Identity.Credential
	if p == nil {
		return problem.Invalidf("Expecting to find application_credential in identity.")
	}
	if !access.IsToken(p.Secret.Reveal()) {
		return unauthorizedError("The request you have made requires authentication: the secret of an application credential is a token that \"salvor token create\" made.")
	}
	called := p.ID
	if called == "" {
		called = p.Name
	}
	apiTokens, err := s.Tokens.keptAs(c.R.Context(), called, p.Secret)
	if err != nil {
		return err
	}
	return claims.become(apiTokens)
}

// become takes over what a token of the API says: it is itself what is issued, so that it ends with its row.
func (s *tokenClaims) become(apiTokens *tokenClaims) error {
	if s.User != "" && s.User != apiTokens.User || !s.text.Empty() && s.ID != apiTokens.ID {
		return unauthorizedError("The request you have made requires authentication: its methods name several users.")
	}
	methods := s.Methods
	*s = *apiTokens
	s.Methods = methods
	return nil
}

func (s *server) byToken(c *api.Call, body *tokenRequest, claims *tokenClaims) error {
	if body.Auth.Identity.Token == nil {
		return problem.Invalidf("Expecting to find token in identity.")
	}
	old, err := s.Tokens.open(c.R.Context(), body.Auth.Identity.Token.ID.Reveal())
	if err != nil {
		return err
	}
	if !old.text.Empty() {
		return claims.become(old)
	}
	if claims.User != "" && claims.User != old.User {
		return unauthorizedError("The request you have made requires authentication: its methods name several users.")
	}
	claims.User, claims.Methods = old.User, append(claims.Methods, old.Methods...)
	if old.Expires.Before(claims.Expires) { // a token is not made longer by another
		claims.Expires = old.Expires
	}
	return nil
}

// scopeTo settles what the token is good for.
func (s *tokenClaims) scopeTo(scope *tokenScope) error {
	if !s.text.Empty() {
		return s.keepTo(scope)
	}
	switch {
	case scope == nil:
		s.ProjectName = defaultProject
	case scope.word == "unscoped", scope.Unscoped != nil:
		return nil
	case scope.word != "":
		return problem.Invalidf("auth.scope %.40q is not known.", scope.word)
	case scope.Domain != nil, scope.Trust != nil:
		return unauthorizedError("Tokens for a domain or a trust are not served: name a project.")
	case scope.System != nil:
		s.System = scope.System.All
		return nil
	case scope.Project == nil:
		return problem.Invalidf("auth.scope names nothing: want project, system or unscoped.")
	default:
		if d := scope.Project.Domain; d != nil && !isDomain(d.ID+d.Name) {
			return unauthorizedError("The request you have made requires authentication: there is one domain, default.")
		}
		if s.ProjectName = scope.Project.Name; s.ProjectName == "" {
			s.ProjectName = scope.Project.ID
		}
	}
	s.Project = access.ProjectID(s.ProjectName)
	return checkName("project", s.ProjectName)
}

// keepTo holds a wish to what a token of the API is for, which nothing changes. An administrator of the whole system works in
// the project admin where a project is needed.
func (s *tokenClaims) keepTo(scope *tokenScope) error {
	home := s.Project
	if s.System {
		home = access.ProjectID(defaultProject)
	}
	switch {
	case scope == nil, scope.System != nil && s.System:
		return nil
	case scope.Project != nil && (access.ProjectID(scope.Project.Name) == home || access.ProjectID(scope.Project.ID) == home):
		if s.System {
			s.Project, s.ProjectName, s.System = home, defaultProject, false
		}
		return nil
	}
	of := "the whole system"
	if !s.System {
		of = "the project " + s.ProjectName
	}
	return unauthorizedError("The token is for " + of + " and opens nothing else: make another one by \"salvor token create\".")
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
func (s *server) show(c *api.Call, status int, claims *tokenClaims) error {
	domain := jsonObject{"id": domainID, "name": domainName}
	token := jsonObject{
		"methods": claims.Methods, "audit_ids": []string{claims.ID}, "issued_at": timeText(claims.Issued), "expires_at": timeText(claims.Expires),
		"user": jsonObject{"id": UserID(claims.User), "name": claims.User, "domain": domain, "password_expires_at": nil},
	}
	if claims.Project != "" {
		token["project"] = jsonObject{"id": claims.Project, "name": claims.ProjectName, "domain": domain}
		token["is_domain"] = false
	}
	if claims.System {
		token["system"] = jsonObject{"all": true}
	}
	if claims.Project != "" || claims.System {
		var have []jsonObject
		for _, r := range claims.roles {
			have = append(have, jsonObject{"id": access.IDOf("role", r), "name": r})
		}
		token["roles"] = have
		if !c.Query.Has("nocatalog") {
			token["catalog"] = s.services(c.Base, claims.Project)
		}
	}
	c.W.Header().Add("Vary", tokenHeader)
	return c.JSON(status, jsonObject{"token": token})
}

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// subject is the token that a request is about.
func (s *server) subject(c *api.Call) (*tokenClaims, error) {
	claims, err := s.Tokens.open(c.R.Context(), c.R.Header.Get(subjectHeader))
	if api.Status(err) == http.StatusUnauthorized {
		return nil, problem.NotFoundf("Could not find token: it is not good, or not any longer.")
	}
	return claims, err
}

func (s *server) validate(c *api.Call) error {
	claims, err := s.subject(c)
	if err != nil {
		return err
	}
	c.W.Header().Set(subjectHeader, c.R.Header.Get(subjectHeader))
	return s.show(c, http.StatusOK, claims)
}

func (s *server) revoke(c *api.Call) error {
	claims, err := s.subject(c)
	if err != nil {
		return err
	}
	if !claims.text.Empty() {
		return problem.Forbiddenf("A token of the API is revoked by salvor token revoke %s.", claims.User)
	}
	if err := s.Tokens.end(c.R.Context(), claims); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}
