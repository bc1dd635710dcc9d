package metal

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// SiteTokenMark begins every site token.
const SiteTokenMark = "salvor_site_"

// Site is a boot service that speaks to the centre by a token instead of to the database.
type Site struct {
	record.Record
	Name string // unique
	// Group is the conductor group whose nodes it serves; of no other is it told anything.
	Group string
	// Digest is that of its token.
	Digest string
	By     string // who made it
}

// SiteFilter narrows a list of sites.
type SiteFilter struct{ Name, Digest string }

// SiteStore keeps sites, and tells what they serve.
type SiteStore interface {
	Sites() record.Table[Site, SiteFilter]
	// PlannedNodes lists the nodes of a conductor group that have a boot plan, be it of their present boot or not.
	PlannedNodes(ctx context.Context, group string) ([]*Node, error)
}

// Sites is the service of sites.
type Sites struct {
	*record.Collection[Site, SiteFilter]
	store SiteStore
}

// NewSites makes the service.
func NewSites(store SiteStore, jobs record.Jobs, now func() time.Time) *Sites {
	return &Sites{record.NewCollection("site", store.Sites(), jobs, now), store}
}

var siteName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Issue makes a site. Its token is told here only.
func (s *Sites) Issue(ctx context.Context, name, group string, asker record.Asker) (*Site, secret.Value, error) {
	if !siteName.MatchString(name) || record.IsUUID(name) {
		return nil, secret.Value{}, problem.Invalidf("name %.100q of a site is not valid: use letters, digits and . _ - (at most 63)", name)
	}
	group = strings.ToLower(group)
	if err := checkGroup(group); err != nil {
		return nil, secret.Value{}, err
	}
	token := secret.NewToken(SiteTokenMark)
	site := &Site{Record: record.Record{ID: uuid.NewString()}, Name: name, Group: group, Digest: token.Digest(), By: asker.User}
	if err := s.Create(ctx, site, asker); err != nil {
		return nil, secret.Value{}, err
	}
	return site, token, nil
}

func checkGroup(group string) error {
	if len(group) > words255 || strings.ContainsFunc(group, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) {
		return problem.Invalidf("conductor group %.100q is not valid: use letters, digits and . _ -", group)
	}
	return nil
}

// Known gives the site whose token this is; problem.Forbidden if there is none, be it that it was revoked.
func (s *Sites) Known(ctx context.Context, token secret.Value) (*Site, error) {
	refused := problem.Forbiddenf("the site token is not known or was revoked; make another with salvor site create")
	if !strings.HasPrefix(token.Reveal(), SiteTokenMark) {
		return nil, refused
	}
	found, err := s.List(ctx, SiteFilter{Digest: token.Digest()}, record.Page{Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, refused
	}
	return found[0], nil
}

// Planned lists the nodes that a site serves: those of its group whose boot plan is of their present boot.
func (s *Sites) Planned(ctx context.Context, site *Site) ([]*Node, error) {
	nodes, err := s.store.PlannedNodes(ctx, site.Group)
	if err != nil {
		return nil, err
	}
	var out []*Node
	for _, n := range nodes {
		if site.Serves(n) {
			out = append(out, n)
		}
	}
	return out, nil
}

// Serves tells whether the site may be told of the node's boot plan, which it has in an operation only.
func (s *Site) Serves(n *Node) bool {
	return s.Has(n) && n.Plan != nil && n.Plan.BootNumber == n.BootNumber
}

// Has tells whether the node is one of the site's.
func (s *Site) Has(n *Node) bool { return strings.EqualFold(n.ConductorGroup, s.Group) }

type groupKey struct{}

// WithinGroup confines what a machine says of itself to the nodes of one conductor group: through the door of a
// site nothing is heard of another, whose BMCs may even have the same addresses.
func WithinGroup(ctx context.Context, group string) context.Context {
	return context.WithValue(ctx, groupKey{}, group)
}

// within tells whether a request may speak of the node.
func (n *Node) within(ctx context.Context) bool {
	group, confined := ctx.Value(groupKey{}).(string)
	return !confined || strings.EqualFold(n.ConductorGroup, group)
}
