package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/access"
	"salvor/api"
	"salvor/secret"
)

const (
	// Lifetime of a token.
	Lifetime = time.Hour
	// tokenMark begins every token of ours; one that begins otherwise is no business of this room.
	tokenMark     = "salvor."
	maxTokenBytes = 4 << 10
	subjectHeader = "X-Subject-Token"
	tokenHeader   = "X-Auth-Token"
)

// tokenClaims is what a token says; it is signed, not stored.
type tokenClaims struct {
	ID      string   `json:"id"`
	User    string   `json:"user"`
	Methods []string `json:"methods"`
	// Project and ProjectName are those of a token with a project; System is set in one of the whole system.
	Project     string    `json:"project,omitempty"`
	ProjectName string    `json:"project_name,omitempty"`
	System      bool      `json:"system,omitempty"`
	Issued      time.Time `json:"issued"`
	Expires     time.Time `json:"expires"`
	// Local is set in one that was signed by whoever can read the key, not by an endpoint.
	Local bool `json:"local,omitempty"`

	roles []string
	// text is a token of the API that says this, which has a row and no signature; empty: it is one of ours.
	text secret.Value
}

// credentialStamper knows a secret of each user that changes with its password, as api.HTTPBasic does.
type credentialStamper interface {
	Stamp(user string) (secret.Value, error)
}

// Ended remembers which signed tokens were ended before their time, for all processes, as access.Tokens does.
type Ended interface {
	EndSigned(ctx context.Context, id string, until time.Time) error
	SignedEnded(ctx context.Context, id string) (bool, error)
}

// Tokens issues tokens, and authenticates by them and by tokens of the API; requests without one go to the
// authenticator below. A token is a signed statement: every process with the same key
// takes it, and none has to store it. It ends by its time, with the user's password, and by
// revocation, which every process hears of within api.TokenMemory. It is safe for use by several goroutines.
type Tokens struct {
	key       *secret.Key
	below     api.Authenticator
	apiTokens *api.TokenAuth
	ended     Ended
	now       func() time.Time
	// good are the statements that were found to be not ended.
	good *api.Memory[bool]
}

// maxGood bounds how many statements are remembered as good.
const maxGood = 4096

// NewTokens makes tokens for the users whom below knows: api.NoAuth takes everybody,
// api.HTTPBasic those of its file. kept knows the tokens of the API.
func NewTokens(key *secret.Key, below api.Authenticator, apiTokens *api.TokenAuth, ended Ended, now func() time.Time) *Tokens {
	return &Tokens{
		key: key, below: below, apiTokens: apiTokens, ended: ended, now: now,
		good: api.NewMemory[bool](api.MemoryLimits{Most: maxGood, Refuse: api.TokenMemory, Question: 10 * time.Second}, now),
	}
}

// LocalUser is who comes with a token that LocalToken made.
const LocalUser = "local"

// LocalToken is a token of an administrator of the whole system that lasts a minute, for whoever can read the key of a control
// plane: so a first token can be made where there is none yet.
func LocalToken(key *secret.Key, now time.Time) (secret.Value, error) {
	t := &Tokens{key: key}
	return t.issue(&tokenClaims{User: LocalUser, Methods: []string{"local"}, System: true, Issued: now, Expires: now.Add(time.Minute), Local: true})
}

// Authenticate checks the token that the request comes with, if it is one of ours or of the API.
func (t *Tokens) Authenticate(r *http.Request) (access.Principal, error) {
	token := api.TokenText(r)
	switch {
	case strings.HasPrefix(token, access.TokenMark):
		return t.apiTokens.Authenticate(r)
	case !strings.HasPrefix(token, tokenMark):
		return t.below.Authenticate(r)
	}
	s, err := t.open(r.Context(), token)
	if err != nil {
		return access.Principal{}, err
	}
	return s.principal(), nil
}

// AtHome authenticates as t does, and gives whom t lets in without a token the project of a token that names none: so the same
// is theirs whether they ask with a token or without. Ironic's API is not to stand on it: owners of nodes are told apart there.
func (t *Tokens) AtHome() api.Authenticator { return homeAuthenticator{t} }

type homeAuthenticator struct{ *Tokens }

// Authenticate leaves what a token says as it is.
func (h homeAuthenticator) Authenticate(r *http.Request) (access.Principal, error) {
	p, err := h.Tokens.Authenticate(r)
	if err == nil && !strings.HasPrefix(api.TokenText(r), tokenMark) && (p.Role != access.Scoped || p.Scope.System) && p.Scope.Project == "" {
		p.Scope.Project, p.Scope.ProjectName, p.Scope.ProjectDomain = access.ProjectID(defaultProject), defaultProject, domainID
	}
	return p, err
}

func (s *tokenClaims) principal() access.Principal {
	scope := access.Scope{System: s.System, Project: s.Project, ProjectName: s.ProjectName, Roles: roles}
	if s.Project != "" {
		scope.ProjectDomain = domainID
	}
	return access.Principal{User: s.User, Role: access.Admin, Scope: scope}
}

// login checks a user's password; of one that is a token of the API it gives what that says.
func (t *Tokens) login(r *http.Request, user string, password secret.Value) (*tokenClaims, error) {
	if access.IsToken(password.Reveal()) {
		return t.keptAs(r.Context(), user, password)
	}
	asked := &http.Request{Header: http.Header{}, RemoteAddr: r.RemoteAddr}
	asked.SetBasicAuth(user, password.Reveal())
	_, err := t.below.Authenticate(asked.WithContext(r.Context()))
	if api.Status(err) == http.StatusUnauthorized {
		return nil, unauthorizedError("The request you have made requires authentication: user or password is wrong.")
	}
	return nil, err
}

// keptAs is what a token of the API says, if it is called so: by name or id, or by the id that its name stands for.
func (t *Tokens) keptAs(ctx context.Context, called string, text secret.Value) (*tokenClaims, error) {
	s, err := t.open(ctx, text.Reveal())
	if err != nil {
		return nil, err
	}
	if called != s.User && called != s.ID && called != UserID(s.User) {
		return nil, unauthorizedError("The request you have made requires authentication: the token has another name.")
	}
	return s, nil
}

// keptStatement says of a token of the API what a statement says.
func (t *Tokens) keptStatement(ctx context.Context, text string) (*tokenClaims, error) {
	row, err := t.apiTokens.Token(ctx, text)
	if err != nil {
		return nil, err
	}
	s := &tokenClaims{
		ID: row.ID, User: row.Name, Methods: []string{"token"}, Project: row.Project, ProjectName: row.ProjectName, System: row.Project == "",
		Issued: row.CreatedAt, Expires: row.ExpiresAt, roles: row.Roles(), text: secret.New(text),
	}
	if s.Expires.IsZero() {
		s.Expires = t.now().Add(access.MaxTokenLife)
	}
	return s, nil
}

// issue signs a statement.
func (t *Tokens) issue(s *tokenClaims) (secret.Value, error) {
	if s.ID == "" {
		s.ID = strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	b, err := json.Marshal(s)
	if err != nil {
		return secret.Value{}, fmt.Errorf("encode a token: %w", err)
	}
	payload := base64.RawURLEncoding.EncodeToString(b)
	parts, err := t.proof(s, payload)
	if err != nil {
		return secret.Value{}, err
	}
	return secret.New(tokenMark + payload + "." + t.key.Token(parts...).Reveal()), nil
}

// proof is what a statement's signature is over.
func (t *Tokens) proof(s *tokenClaims, payload string) ([]string, error) {
	if s.Local {
		return []string{"identity token of the key's reader 1", payload}, nil
	}
	if _, anybody := t.below.(api.NoAuth); anybody { // what was told to anybody is worth nothing where users prove who they are
		return []string{"identity token of anybody 1", s.User, payload}, nil
	}
	users, ok := t.below.(credentialStamper)
	if !ok { // whoever has a token of the API is issued that one; the key alone makes nobody a user
		return nil, expiredTokenError()
	}
	stamp, err := users.Stamp(s.User)
	if err != nil {
		return nil, err
	}
	if stamp.Empty() {
		return nil, expiredTokenError()
	}
	return []string{"identity token 1", s.User, stamp.Reveal(), payload}, nil
}

// open checks a token and gives what it says.
func (t *Tokens) open(ctx context.Context, token string) (*tokenClaims, error) {
	if strings.HasPrefix(token, access.TokenMark) {
		return t.keptStatement(ctx, token)
	}
	payload, mac, ok := strings.Cut(strings.TrimPrefix(token, tokenMark), ".")
	if !ok || len(token) > maxTokenBytes || !strings.HasPrefix(token, tokenMark) {
		return nil, expiredTokenError()
	}
	b, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return nil, expiredTokenError()
	}
	s := tokenClaims{roles: roles}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, expiredTokenError()
	}
	parts, err := t.proof(&s, payload)
	if err != nil {
		return nil, err
	}
	life := secret.Life{Now: t.now(), For: Lifetime}
	if s.Local { // made and used at once, so never with a key that ended: who has that one may have it from a backup
		life.For = 0
	}
	if !t.key.Derived(life, secret.New(mac), parts...) || !t.now().Before(s.Expires) {
		return nil, expiredTokenError()
	}
	_, err = t.good.Find(ctx, s.ID, func(ctx context.Context) (api.Verdict[bool], error) { return t.notEnded(ctx, s.ID) })
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// notEnded looks whether any process ended a statement.
func (t *Tokens) notEnded(ctx context.Context, id string) (api.Verdict[bool], error) {
	until := t.now().Add(api.TokenMemory)
	ended, err := t.ended.SignedEnded(ctx, id)
	if err != nil {
		return api.Verdict[bool]{}, api.Later(time.Second, "it cannot be told now whether the token was revoked; ask again")
	}
	if ended {
		return api.Verdict[bool]{}, expiredTokenError()
	}
	return api.Verdict[bool]{Value: true, Fresh: until, Stale: until}, nil
}

// end ends a statement for all processes; here at once.
func (t *Tokens) end(ctx context.Context, s *tokenClaims) error {
	defer t.good.Forget(s.ID)
	return t.ended.EndSigned(ctx, s.ID, s.Expires)
}

func unauthorizedError(text string) error {
	return &api.Error{Status: http.StatusUnauthorized, Text: text, Header: http.Header{"Www-Authenticate": {`Keystone uri="/identity/v3"`}}}
}

func expiredTokenError() error {
	return unauthorizedError("The token is not good, or not any longer: ask for a new one.")
}

// UserID is the id of the user of this name.
func UserID(name string) string { return access.IDOf("user", name) }
