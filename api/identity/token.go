package identity

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"salvor/access"
	"salvor/api"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

const (
	// Lifetime of a token.
	Lifetime = time.Hour
	// tokenMark begins every token of ours; one that begins otherwise is no business of this room.
	tokenMark     = "salvor."
	maxTokenBytes = 4 << 10
	maxRevoked    = 1 << 16
	subjectHeader = "X-Subject-Token"
	tokenHeader   = "X-Auth-Token"
)

// statement is what a token says; it is signed, not stored.
type statement struct {
	ID      string   `json:"id"`
	User    string   `json:"user"`
	Methods []string `json:"methods"`
	// Project and ProjectName are those of a token with a project; System is set in one of the whole system.
	Project     string    `json:"project,omitempty"`
	ProjectName string    `json:"project_name,omitempty"`
	System      bool      `json:"system,omitempty"`
	Issued      time.Time `json:"issued"`
	Expires     time.Time `json:"expires"`
}

// stamper knows a secret of each user that changes with its password, as api.HTTPBasic does.
type stamper interface {
	Stamp(user string) (secret.Value, error)
}

// Tokens issues tokens, and authenticates by them; requests without one go to the
// authenticator below. A token is a signed statement: every process with the same key
// takes it, and none has to store it. It ends by its time, with the user's password, and by
// revocation, which only the process that was asked for it knows. It is safe for use by several goroutines.
type Tokens struct {
	key   *secret.Key
	below api.Authenticator
	now   func() time.Time

	mu      sync.Mutex
	revoked map[string]time.Time // until when they would have been good
}

// NewTokens makes tokens for the users whom below knows: api.NoAuth takes everybody,
// api.HTTPBasic those of its file.
func NewTokens(key *secret.Key, below api.Authenticator, now func() time.Time) *Tokens {
	return &Tokens{key: key, below: below, now: now, revoked: map[string]time.Time{}}
}

// Authenticate checks the token in X-Auth-Token, if it is one of ours.
func (t *Tokens) Authenticate(r *http.Request) (access.Principal, error) {
	token := r.Header.Get(tokenHeader)
	if !strings.HasPrefix(token, tokenMark) {
		return t.below.Authenticate(r)
	}
	s, err := t.open(token)
	if err != nil {
		return access.Principal{}, err
	}
	return s.principal(), nil
}

// AtHome authenticates as t does, and gives whom t lets in without a token the project of a token that names none: so the same
// is theirs whether they ask with a token or without. Ironic's API is not to stand on it: owners of nodes are told apart there.
func (t *Tokens) AtHome() api.Authenticator { return home{t} }

type home struct{ *Tokens }

// Authenticate leaves what a token says as it is.
func (h home) Authenticate(r *http.Request) (access.Principal, error) {
	p, err := h.Tokens.Authenticate(r)
	if err == nil && !strings.HasPrefix(r.Header.Get(tokenHeader), tokenMark) && p.Role != access.Scoped && p.Scope.Project == "" {
		p.Scope.Project, p.Scope.ProjectName, p.Scope.ProjectDomain = ProjectID(defaultProject), defaultProject, domainID
	}
	return p, err
}

func (s *statement) principal() access.Principal {
	scope := access.Scope{System: s.System, Project: s.Project, ProjectName: s.ProjectName, Roles: roles}
	if s.Project != "" {
		scope.ProjectDomain = domainID
	}
	return access.Principal{User: s.User, Role: access.Admin, Scope: scope}
}

// login checks a user's password.
func (t *Tokens) login(r *http.Request, user string, password secret.Value) error {
	asked := &http.Request{Header: http.Header{}, RemoteAddr: r.RemoteAddr}
	asked.SetBasicAuth(user, password.Reveal())
	_, err := t.below.Authenticate(asked.WithContext(r.Context()))
	if api.Status(err) == http.StatusUnauthorized {
		return unauthorized("The request you have made requires authentication: user or password is wrong.")
	}
	return err
}

// issue signs a statement.
func (t *Tokens) issue(s *statement) (secret.Value, error) {
	if s.ID == "" {
		s.ID = strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	b, err := json.Marshal(s)
	if err != nil {
		return secret.Value{}, fmt.Errorf("encode a token: %w", err)
	}
	said := base64.RawURLEncoding.EncodeToString(b)
	mac, err := t.mac(s.User, said)
	if err != nil {
		return secret.Value{}, err
	}
	return secret.New(tokenMark + said + "." + mac.Reveal()), nil
}

func (t *Tokens) mac(user, said string) (secret.Value, error) {
	var stamp secret.Value
	if users, ok := t.below.(stamper); ok {
		var err error
		if stamp, err = users.Stamp(user); err != nil {
			return secret.Value{}, err
		}
		if stamp.Empty() {
			return secret.Value{}, expired()
		}
	}
	return t.key.Token("identity token 1", user, stamp.Reveal(), said), nil
}

// open checks a token and gives what it says.
func (t *Tokens) open(token string) (*statement, error) {
	said, mac, ok := strings.Cut(strings.TrimPrefix(token, tokenMark), ".")
	if !ok || len(token) > maxTokenBytes || !strings.HasPrefix(token, tokenMark) {
		return nil, expired()
	}
	b, err := base64.RawURLEncoding.DecodeString(said)
	if err != nil {
		return nil, expired()
	}
	var s statement
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, expired()
	}
	want, err := t.mac(s.User, said)
	if err != nil {
		return nil, err
	}
	if !want.Equal(secret.New(mac)) || !t.now().Before(s.Expires) {
		return nil, expired()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, gone := t.revoked[s.ID]; gone {
		return nil, expired()
	}
	return &s, nil
}

// revoke ends a token for this process. It is Unavailable while too many are ended and not yet forgotten.
func (t *Tokens) revoke(s *statement) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if len(t.revoked) >= maxRevoked {
		for id, until := range t.revoked {
			if !now.Before(until) {
				delete(t.revoked, id)
			}
		}
	}
	if len(t.revoked) >= maxRevoked {
		return problem.Unavailablef("too many tokens were revoked in the last hour; this one ends at %s by itself", s.Expires.Format(time.RFC3339))
	}
	t.revoked[s.ID] = s.Expires
	return nil
}

func unauthorized(text string) error {
	return &api.Error{Status: http.StatusUnauthorized, Text: text, Header: http.Header{"Www-Authenticate": {`Keystone uri="/identity/v3"`}}}
}

func expired() error {
	return unauthorized("The token is not good, or not any longer: ask for a new one.")
}

// ProjectID is the id under which a project of this name owns things: a name has the same
// one always, and a name that is an id is itself.
func ProjectID(name string) string { return idOf("project", name) }

// UserID is the id of the user of this name.
func UserID(name string) string { return idOf("user", name) }

func idOf(kind, name string) string {
	if isID(name) || name == "" {
		return strings.ToLower(name)
	}
	return strings.ReplaceAll(uuid.NewSHA1(uuid.NameSpaceOID, []byte("salvor "+kind+" "+name)).String(), "-", "")
}

func isID(s string) bool {
	return record.IsUUID(s) || len(s) == 32 && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}
