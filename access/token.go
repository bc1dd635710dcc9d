package access

import (
	"context"
	"slices"
	"strings"
	"time"

	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// TokenMark begins every token of the API, so that whoever finds one in a file knows what it opens.
const TokenMark = "salvor_"

const (
	tokenLength  = len(TokenMark) + 43
	maxTokenName = 64
	// MaxTokenLife is the longest that a token with an end may last; one without an end lasts until it is revoked.
	MaxTokenLife = 10 * 365 * 24 * time.Hour
)

// Token is a credential of the API as it is kept: what it opens, and a digest of its text, from which nobody gets the text back.
type Token struct {
	record.Record
	Name string // of whoever uses it, for the log and the timeline; unique
	// Digest is that of the text.
	Digest string
	// Role is admin, member or reader: in the whole system, or in the project.
	Role Role
	// Project is the id of the project that the token is for; empty: the whole system.
	Project, ProjectName string
	// ExpiresAt is when it ends; zero: when it is revoked.
	ExpiresAt time.Time
	// UsedAt is when it was used last, some seconds late; zero: never. A save does not change it.
	UsedAt time.Time
	// By is who made it; Parent is the token that its maker came with. A token ends with its parent.
	By, Parent string
}

// TokenFilter narrows a list of tokens.
type TokenFilter struct{ Name, Digest, Project string }

// IsToken tells whether a text has the form of a token of the API.
func IsToken(text string) bool { return len(text) == tokenLength && strings.HasPrefix(text, TokenMark) }

// Expired tells whether the token has ended by its time.
func (t *Token) Expired(now time.Time) bool { return !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt) }

// impliedRoles are each with those that it holds, as Keystone writes them into its tokens.
var impliedRoles = map[Role][]string{
	Admin: {"admin", "manager", "member", "reader"}, Member: {"member", "reader"}, Reader: {"reader"},
}

// Roles are those that the token has, each with what it implies.
func (t *Token) Roles() []string { return impliedRoles[t.Role] }

// tokenUser begins the ids of users who are tokens.
const tokenUser = "token:"

// Principal is who comes with the token. What belongs to that user is kept by the project and the name, so that the next token of a
// program has it too; no user of another kind has a colon in the name.
func (t *Token) Principal() Principal {
	p := Principal{TokenID: t.ID, Until: t.ExpiresAt, User: t.Name, UserID: tokenUser + t.Project + "/" + t.Name, Role: Scoped, Scope: Scope{System: t.Project == "", Roles: t.Roles()}}
	if t.Project != "" {
		p.Scope.Project, p.Scope.ProjectName, p.Scope.ProjectDomain, p.Scope.Bound = t.Project, t.ProjectName, DefaultDomain, true
	}
	return p
}

// TokenStore keeps tokens.
type TokenStore interface {
	record.Jobs
	Tokens() record.Table[Token, TokenFilter]
	// UseTokens notes when tokens, by id, were used last; earlier moments than those noted, and tokens that are gone, are passed over.
	UseTokens(ctx context.Context, used map[string]time.Time) error
	// EndSigned notes until when a signed token, which has no row of its own, must be refused though its signature is good.
	EndSigned(ctx context.Context, id string, until time.Time) error
	// SignedEnded tells whether that was noted.
	SignedEnded(ctx context.Context, id string) (bool, error)
}

// Tokens is the service of the API's tokens.
type Tokens struct {
	*record.Collection[Token, TokenFilter]
	store TokenStore
	now   func() time.Time
}

// NewTokens makes the service.
func NewTokens(store TokenStore, now func() time.Time) *Tokens {
	s := &Tokens{Collection: record.NewCollection("token", store.Tokens(), store, now), store: store, now: now}
	s.Check = s.check
	return s
}

func (s *Tokens) check(t *Token) error {
	switch {
	case t.Name == "" || len(t.Name) > maxTokenName || strings.ContainsFunc(t.Name, func(r rune) bool { return r <= ' ' || r == ':' || r == 0x7f }):
		return problem.Invalidf("a token has a name of 1 to %d bytes without spaces and colons: that of the program or person that uses it", maxTokenName)
	case record.IsUUID(t.Name):
		return problem.Invalidf("a token's name cannot look like an id: %s", t.Name)
	case impliedRoles[t.Role] == nil:
		return problem.Invalidf("a token's role is admin, member or reader, not %.40q", string(t.Role))
	case len(t.ProjectName) > maxTokenName:
		return problem.Invalidf("a project has a name of at most %d bytes", maxTokenName)
	}
	return nil
}

// Issue makes a token of a role for a project, named by name or id (empty: the whole system), that ends after ttl (0: when it is
// revoked). The text is told here only.
func (s *Tokens) Issue(ctx context.Context, name string, role Role, project string, ttl time.Duration, asker record.Asker) (*Token, secret.Value, error) {
	return s.IssueUnder(ctx, Principal{}, name, role, project, ttl, asker)
}

// Revoke removes a token and the tokens that were made with it, those first: where it fails, it can be asked again.
func (s *Tokens) Revoke(ctx context.Context, id string, asker record.Asker) error {
	below, err := s.madeWith(ctx, id)
	if err != nil {
		return err
	}
	for _, child := range below {
		if err := s.Remove(ctx, child, asker); err != nil && !problem.Is(err, problem.NotFound) {
			return err
		}
	}
	return s.Remove(ctx, id, asker)
}

// madeWith lists the ids of the tokens that were made with a token, directly or through other such tokens. A token comes after all
// that were made with it. The caller removes tokens only after all are read, because a page cannot begin after a removed token.
func (s *Tokens) madeWith(ctx context.Context, id string) ([]string, error) {
	children := map[string][]string{}
	for page := (record.Page{Limit: 1000}); ; {
		all, err := s.List(ctx, TokenFilter{}, page)
		if err != nil {
			return nil, err
		}
		for _, t := range all {
			children[t.Parent] = append(children[t.Parent], t.ID)
		}
		if len(all) < page.Limit {
			break
		}
		page.Marker = all[len(all)-1].ID
	}
	below := children[id]
	for i := 0; i < len(below); i++ {
		below = append(below, children[below[i]]...)
	}
	slices.Reverse(below)
	return below, nil
}

// IssueUnder is Issue for a maker: the token ends no later than the one that the maker came with, and is revoked with it.
func (s *Tokens) IssueUnder(ctx context.Context, maker Principal, name string, role Role, project string, ttl time.Duration, asker record.Asker) (*Token, secret.Value, error) {
	if ttl < 0 || ttl > MaxTokenLife {
		return nil, secret.Value{}, problem.Invalidf("a token lasts at most %d days; 0 is until it is revoked", MaxTokenLife/(24*time.Hour))
	}
	text := secret.NewToken(TokenMark)
	t := &Token{Name: name, Digest: text.Digest(), Role: role, Project: ProjectID(project), ProjectName: project, By: asker.User, Parent: maker.TokenID}
	if ttl > 0 {
		t.ExpiresAt = s.now().Add(ttl)
	}
	if !maker.Until.IsZero() && (t.ExpiresAt.IsZero() || maker.Until.Before(t.ExpiresAt)) {
		t.ExpiresAt = maker.Until
	}
	if err := s.Create(ctx, t, asker); err != nil {
		return nil, secret.Value{}, err
	}
	return t, text, nil
}

// ByText finds the token with this text as it is in the store now; nil: there is none, or it has ended.
func (s *Tokens) ByText(ctx context.Context, text secret.Value) (*Token, error) {
	found, err := s.List(ctx, TokenFilter{Digest: text.Digest()}, record.Page{Limit: 1})
	if err != nil || len(found) == 0 || found[0].Expired(s.now()) {
		return nil, err
	}
	return found[0], nil
}

// Used notes when tokens, by id, were used last.
func (s *Tokens) Used(ctx context.Context, used map[string]time.Time) error {
	return s.store.UseTokens(ctx, used)
}

// EndSigned is TokenStore's.
func (s *Tokens) EndSigned(ctx context.Context, id string, until time.Time) error {
	return s.store.EndSigned(ctx, id, until)
}

// SignedEnded is TokenStore's.
func (s *Tokens) SignedEnded(ctx context.Context, id string) (bool, error) {
	return s.store.SignedEnded(ctx, id)
}
