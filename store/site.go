package store

import (
	"context"

	"salvor/metal"
	"salvor/record"
)

var _ metal.SiteStore = (*Store)(nil)

// Sites keeps the boot services that know no database, each by a digest of its token.
func (s nodeTables) Sites() record.Table[metal.Site, metal.SiteFilter] {
	return recordTable[metal.Site, metal.SiteFilter]{s.storeCore, sites}
}

var sites = &recordKind[metal.Site, metal.SiteFilter]{
	table: "site", word: "site", head: ofRecord[metal.Site],
	columns: []string{"name", "digest"},
	fields:  func(t *metal.Site) []any { return []any{&t.Name, &t.Digest} },
	body:    func(t *metal.Site) any { return &struct{ Group, By *string }{&t.Group, &t.By} },
	names:   []string{"name"},
	keys: []uniqueKey[metal.Site]{
		{[]string{"name"}, func(t *metal.Site) string { return "A site with name " + t.Name + " already exists." }},
		{[]string{"digest"}, func(*metal.Site) string { return "This site token already exists." }},
	},
	narrow: func(c *whereClause, f metal.SiteFilter) {
		c.equal("t.name", f.Name)
		c.equal("t.digest", f.Digest)
	},
}

// PlannedNodes is metal.SiteStore's.
func (s nodeTables) PlannedNodes(ctx context.Context, group string) ([]*metal.Node, error) {
	return s.nodes(ctx, nil, selectNodes+` WHERE n.conductor_group = $1 AND n.boot_path <> '' ORDER BY n.num`, group)
}
