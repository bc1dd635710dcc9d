package ironic

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"

	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/wire/ironic"
)

var conductorFields = []string{"hostname", "conductor_group", "alive", "drivers", "created_at", "updated_at", "links"}

var conductorSortKeys = map[string]metal.Version{"hostname": 49, "alive": 49, "conductor_group": 49, "created_at": 49, "updated_at": 49}

func (c *ironicCall) shownConductor(l *metal.LiveConductor) ironic.Conductor {
	drivers := []string{}
	for _, d := range l.Catalog.Drivers {
		drivers = append(drivers, d.Name)
	}
	group := ""
	if len(l.Groups) > 0 {
		group = l.Groups[0]
	}
	return ironic.Conductor{
		Hostname: l.Hostname, ConductorGroup: group, Alive: l.Alive, Drivers: drivers,
		CreatedAt: timeText(l.StartedAt), UpdatedAt: timeText(l.UpdatedAt), Links: c.links("conductors/" + url.PathEscape(l.Hostname)),
	}
}

// conductorFieldNames reads fields and detail; brief is what a list shows by itself.
func (c *ironicCall) conductorFieldNames(brief []string) ([]string, error) {
	names, err := c.fieldNames()
	if err != nil {
		return nil, err
	}
	detail, err := c.detail(names)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.Contains(conductorFields, name) {
			return nil, unknownField(name, conductorFields)
		}
	}
	switch {
	case names != nil:
		return append(names, "links"), nil
	case detail:
		return conductorFields, nil
	}
	return brief, nil
}

// selectFields keeps the named fields of a shape.
func selectFields(v any, names []string) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	out := make(map[string]json.RawMessage, len(names))
	for _, name := range names {
		if out[name] = all[name]; out[name] == nil {
			out[name] = json.RawMessage("null")
		}
	}
	return out, nil
}

func (s *server) listConductors(c *ironicCall) error {
	if err := c.only(pageArgs...); err != nil {
		return err
	}
	names, err := c.conductorFieldNames([]string{"hostname", "conductor_group", "alive", "links"})
	if err != nil {
		return err
	}
	p, err := c.page(conductorSortKeys)
	if err != nil {
		return err
	}
	all, err := s.Directory.Conductors(c.R.Context())
	if err != nil {
		return err
	}
	rows, err := conductorPage(all, p)
	if err != nil {
		return err
	}
	list := []map[string]json.RawMessage{}
	for i := range rows {
		one, err := selectFields(c.shownConductor(&rows[i]), names)
		if err != nil {
			return err
		}
		list = append(list, one)
	}
	out := map[string]any{"conductors": list}
	if len(rows) > 0 {
		if next := c.next("conductors", p, len(rows), rows[len(rows)-1].Hostname); next != "" {
			out["next"] = next
		}
	}
	return c.JSON(http.StatusOK, out)
}

// conductorPage sorts and cuts the list, which is short enough to do here.
func conductorPage(all []metal.LiveConductor, p record.Page) ([]metal.LiveConductor, error) {
	rows := slices.Clone(all)
	slices.SortStableFunc(rows, func(a, b metal.LiveConductor) int {
		order := 0
		switch p.SortKey {
		case "alive":
			if a.Alive != b.Alive {
				if order = 1; b.Alive {
					order = -1
				}
			}
		case "conductor_group":
			order = slices.Compare(a.Groups, b.Groups)
		case "created_at":
			order = a.StartedAt.Compare(b.StartedAt)
		case "updated_at":
			order = a.UpdatedAt.Compare(b.UpdatedAt)
		}
		if order == 0 {
			order = cmp.Compare(a.Hostname, b.Hostname)
		}
		if p.Desc {
			return -order
		}
		return order
	})
	if p.Marker != "" {
		i := slices.IndexFunc(rows, func(l metal.LiveConductor) bool { return l.Hostname == p.Marker })
		if i < 0 {
			return nil, conductorNotFound(p.Marker)
		}
		rows = rows[i+1:]
	}
	return rows[:min(len(rows), p.Limit)], nil
}

func conductorNotFound(host string) error {
	return problem.NotFoundf("Conductor %s could not be found.", truncateInput(host))
}

func (s *server) getConductor(c *ironicCall) error {
	if err := c.only("fields"); err != nil {
		return err
	}
	names, err := c.conductorFieldNames(conductorFields)
	if err != nil {
		return err
	}
	all, err := s.Directory.Conductors(c.R.Context())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(l metal.LiveConductor) bool { return l.Hostname == c.Args[0] })
	if i < 0 {
		return conductorNotFound(c.Args[0])
	}
	one, err := selectFields(c.shownConductor(&all[i]), names)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, one)
}
