package main

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/problem"
)

// nameCheck tells why a value of a list's filter names nothing; nil: the value names a record that exists, or the user may not know.
type nameCheck func(c *kit.Call, value string) error

// nameOf is the check of a filter whose values name records of a kind.
func nameOf(r *resourceSpec) nameCheck {
	return func(c *kit.Call, value string) error {
		id, err := r.find(c, value)
		if err == nil && r.isBaremetal() { // find has not asked
			err = r.send(c, http.MethodGet, "/"+url.PathEscape(id), nil, nil, nil)
		}
		if client.StatusOf(err) == http.StatusForbidden {
			return nil
		}
		return err
	}
}

// refuseUnknownNames is called when a list is empty. The APIs of Nova and Ironic answer an empty list too where a filter names a record that does not
// exist, so each name is looked up then.
func refuseUnknownNames(c *kit.Call, query url.Values, filters []resourceField) error {
	for _, f := range filters {
		if f.named == nil || !query.Has(f.record()) {
			continue
		}
		if err := f.named(c, query.Get(f.record())); err != nil {
			return err
		}
	}
	return nil
}

// checkConductorGroup looks for a group among the conductors. The empty name is the group of all nodes that name none.
func checkConductorGroup(c *kit.Call, group string) error {
	conductors, err := c.API.List(c.Context(), client.Conductors, client.Query{})
	if err != nil || group == "" {
		return err
	}
	var groups []string
	for _, conductor := range conductors {
		if name := conductor.Text("conductor_group"); strings.EqualFold(name, group) {
			return nil
		} else if name != "" {
			groups = append(groups, name)
		}
	}
	if slices.Sort(groups); len(groups) == 0 {
		groups = []string{"none"}
	}
	return problem.NotFoundf("no node and no conductor has the conductor group %s; the groups of conductors: %s", kit.StripControlChars(group),
		kit.StripControlChars(strings.Join(slices.Compact(groups), ", ")))
}
