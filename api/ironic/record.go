package ironic

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"salvor/access"
	"salvor/metal"
	"salvor/problem"
)

// routes are those of the kind itself, and its lists below parents.
func (k *recordKind[R, F]) routes(parents ...parentResource[F]) []apiRoute {
	at := "/v1/" + k.path
	one := at + "/{id}"
	out := []apiRoute{
		{method: "GET", path: at, need: access.Read, since: k.since, do: k.listAll},
		{method: "POST", path: at, since: k.since, do: k.create},
		{method: "GET", path: one, need: access.Read, since: k.since, do: k.get},
		{method: "PATCH", path: one, since: k.since, do: k.patch},
		{method: "DELETE", path: one, since: k.since, do: k.remove},
	}
	if k.detailPath {
		out = append(out, apiRoute{method: "GET", path: at + "/detail", need: access.Read, since: k.since, do: k.listDetail})
	}
	for _, p := range parents {
		out = append(out, k.below(p)...)
	}
	return out
}

func (k *recordKind[R, F]) below(p parentResource[F]) []apiRoute {
	at, since := "/v1/"+p.path+"/"+k.path, max(p.since, k.since)
	list := func(suffix string, brief bool) func(*ironicCall) error {
		return func(c *ironicCall) error {
			var f F
			base, err := p.narrow(c, &f)
			if err != nil {
				return err
			}
			return k.page(c, base+"/"+k.path+suffix, f, nil, brief)
		}
	}
	out := []apiRoute{{method: "GET", path: at, need: access.Read, since: since, do: list("", true)}}
	if k.detailPath {
		out = append(out, apiRoute{method: "GET", path: at + "/detail", need: access.Read, since: since, do: list("/detail", false)})
	}
	return out
}

func (k *recordKind[R, F]) listAll(c *ironicCall) error {
	var f F
	return k.page(c, k.path, f, k.filters, true)
}

func (k *recordKind[R, F]) listDetail(c *ironicCall) error {
	if c.has("fields") || c.has("detail") {
		return problem.Invalidf("Unexpected arguments: fields and detail have no meaning in /v1/%s/detail", k.path)
	}
	var f F
	return k.page(c, k.path+"/detail", f, k.filters, false)
}

// page answers with one page of a list; path is the list's own.
func (k *recordKind[R, F]) page(c *ironicCall, path string, f F, filters []queryFilter[F], brief bool) error {
	known := slices.Clone(pageArgs)
	for _, one := range filters {
		known = append(known, one.name)
	}
	if k.detail == 0 {
		known = slices.DeleteFunc(known, func(name string) bool { return name == "detail" })
	}
	if err := c.only(known...); err != nil {
		return err
	}
	fields, err := k.choose(c, brief)
	if err != nil {
		return err
	}
	if err := k.narrow(c, &f, filters); err != nil {
		return err
	}
	if err := c.confineTo(&f); err != nil {
		return err
	}
	p, err := c.page(k.sortKeys)
	if err != nil {
		return err
	}
	if err := c.beginLargePage(p); err != nil {
		return err
	}
	defer c.endLargePage()
	marks, err := k.service(c.s).Marks(c.R.Context(), f, p)
	if err != nil {
		return err
	}
	texts, err := k.texts(c, marks, fields)
	if err != nil {
		return err
	}
	last := ""
	if len(marks) > 0 {
		last = marks[len(marks)-1].ID
	}
	return c.list(k.list, path, p, texts, last)
}

func (k *recordKind[R, F]) narrow(c *ironicCall, f *F, filters []queryFilter[F]) error {
	for _, one := range filters {
		if !c.has(one.name) {
			continue
		}
		if c.version < one.since {
			return newerField(one.name, one.since)
		}
		if err := one.set(c, f, c.Query.Get(one.name)); err != nil {
			return err
		}
	}
	return nil
}

func (k *recordKind[R, F]) get(c *ironicCall) error {
	if err := c.only("fields"); err != nil {
		return err
	}
	fields, err := k.choose(c, false)
	if err != nil {
		return err
	}
	ident, err := k.ident(c)
	if err != nil {
		return err
	}
	r, err := k.service(c.s).Get(c.R.Context(), ident)
	if err != nil {
		return err
	}
	return c.Raw(http.StatusOK, k.append(make([]byte, 0, 1024), c, r, fields))
}

func (k *recordKind[R, F]) create(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	body, err := c.objectOr(k.bare)
	if err != nil {
		return err
	}
	r := k.blank(c)
	if err := k.fill(c, r, body); err != nil {
		return err
	}
	if err := k.rescueGate(c, r); err != nil {
		return err
	}
	if err := k.markLessee(c, r); err != nil {
		return err
	}
	if err := k.service(c.s).Create(c.R.Context(), r, c.Asker()); err != nil {
		return err
	}
	c.location(k.self(r))
	return k.show(c, http.StatusCreated, r)
}

// fill sets what a creation asks for, in the fields' own order, so that of two errors the same one is told.
func (k *recordKind[R, F]) fill(c *ironicCall, r *R, body map[string]any) error {
	var odd []string
	for name := range body {
		i, ok := k.index[name]
		switch {
		case !ok || k.fields[i].use&creatable == 0:
			odd = append(odd, name)
		case max(k.fields[i].since, k.fields[i].named) > c.version:
			return newerField(name, max(k.fields[i].since, k.fields[i].named))
		}
	}
	if len(odd) > 0 {
		return problem.Invalidf("Schema error for %s: Additional properties are not allowed ('%s' was unexpected)%s", k.name, truncateInput(slices.Min(odd)), suggestName(slices.Min(odd), slices.Collect(maps.Keys(k.index))))
	}
	for i := range k.fields {
		f := &k.fields[i]
		v, ok := body[f.name]
		if (v == nil || v == "") && f.use&required != 0 && f.since <= c.version {
			return missingField(f.name)
		}
		if !ok {
			continue
		}
		if err := f.set(c, r, v); err != nil {
			return err
		}
	}
	return nil
}

func (k *recordKind[R, F]) patch(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	ident, err := k.ident(c)
	if err != nil {
		return err
	}
	ops, err := c.patchOps()
	if err != nil {
		return err
	}
	if err := c.checkPaths(ops, k.patchPaths); err != nil {
		return err
	}
	r, err := k.service(c.s).Update(c.R.Context(), ident, c.Asker(), func(r *R) error { return k.apply(c, r, ops) })
	if err != nil {
		return err
	}
	return k.show(c, http.StatusOK, r)
}

// apply works a patch on a record.
func (k *recordKind[R, F]) apply(c *ironicCall, r *R, ops []patchOp) error {
	before := *r
	if err := k.rescueGate(c, r); err != nil {
		return err
	}
	if err := k.lesseeGate(c, r); err != nil {
		return err
	}
	values, err := applyPatch(ops, func(name string) any { return k.fields[k.index[name]].get(r) })
	if err != nil {
		return err
	}
	for i := range k.fields {
		f := &k.fields[i]
		v, ok := values[f.name]
		if !ok {
			continue
		}
		if (v == nil || v == "") && f.use&required != 0 {
			return problem.Invalidf("Missing mandatory field: %s; it can be replaced, not removed", f.name)
		}
		if err := f.set(c, r, v); err != nil {
			return err
		}
	}
	if k.patched != nil {
		if err := k.patched(&before, r, ops); err != nil {
			return err
		}
	}
	if k.byLessee != nil && k.nodeOf(r) != k.nodeOf(&before) {
		if err := k.markLessee(c, r); err != nil {
			return err
		}
	}
	return k.rescueGate(c, r)
}

// rescueGate is that of the node that the record belongs to. A node that does not exist is the service's to refuse.
func (k *recordKind[R, F]) rescueGate(c *ironicCall, r *R) error {
	if c.version >= rescueVersion || k.nodeOf == nil {
		return nil
	}
	n, err := c.s.Nodes.Node(c.R.Context(), k.nodeOf(r))
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.rescueGate(n)
}

func (k *recordKind[R, F]) remove(c *ironicCall) error {
	if err := c.only(); err != nil {
		return err
	}
	ident, err := k.ident(c)
	if err != nil {
		return err
	}
	if k.removable != nil || k.byLessee != nil || k.nodeOf != nil && c.version < rescueVersion {
		r, err := k.service(c.s).Get(c.R.Context(), ident)
		if err == nil {
			err = k.rescueGate(c, r)
		}
		if err == nil {
			err = k.lesseeGate(c, r)
		}
		if err == nil && k.removable != nil {
			err = k.removable(c, r)
		}
		if err != nil {
			return err
		}
	}
	if err := k.service(c.s).Remove(c.R.Context(), ident, c.Asker()); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}

// ofNode is the parent of what belongs to nodes.
func ofNode[F any](since metal.Version, at func(*F) *string) parentResource[F] {
	return parentResource[F]{path: "nodes/{node}", since: since, narrow: func(c *ironicCall, f *F) (string, error) {
		n, err := c.s.Nodes.Node(c.R.Context(), c.Args[0])
		if err != nil {
			return "", err
		}
		*at(f) = n.ID
		return "nodes/" + n.ID, nil
	}}
}

// nodeFilterOf narrows by a node's UUID or name.
func nodeFilterOf[F any](name string, since metal.Version, at func(*F) *string) queryFilter[F] {
	return queryFilter[F]{name: name, since: since, set: func(c *ironicCall, f *F, ident string) error {
		n, err := c.nodeNamed(ident)
		if err != nil {
			return err
		}
		*at(f) = n.ID
		return nil
	}}
}

// wordFilter narrows by a field's value as it is.
func wordFilter[F any](name string, since metal.Version, at func(*F) *string) queryFilter[F] {
	return queryFilter[F]{name: name, since: since, set: func(_ *ironicCall, f *F, value string) error {
		*at(f) = value
		return checkFilter(name, value)
	}}
}

// flagFilter narrows by a boolean.
func flagFilter[F any](name string, since metal.Version, at func(*F) **bool) queryFilter[F] {
	return queryFilter[F]{name: name, since: since, set: func(c *ironicCall, f *F, _ string) (err error) {
		*at(f), err = c.boolean(name)
		return err
	}}
}

// maxFilter bounds a filter's value in bytes: no field is longer, and engines take no longer pattern.
const maxFilter = 4096 * 4

func checkFilter(name, value string) error {
	if len(value) > maxFilter {
		return problem.Invalidf("%s is longer than %d bytes.", name, maxFilter)
	}
	return nil
}

// maxWords bounds the values of one filter: each is an argument of the query.
const maxWords = 200

// wordsFilter narrows to any of several values, with commas between them.
func wordsFilter[F any](name string, since metal.Version, at func(*F) *[]string) queryFilter[F] {
	return queryFilter[F]{name: name, since: since, set: func(_ *ironicCall, f *F, value string) error {
		if *at(f) = strings.Split(value, ","); len(*at(f)) > maxWords {
			return problem.Invalidf("%s names more than %d values.", name, maxWords)
		}
		return nil
	}}
}

// groupFilter narrows to the nodes' conductor groups, whose names know no case.
func groupFilter[F any](at func(*F) *[]string) queryFilter[F] {
	filter := wordsFilter("conductor_groups", 99, at)
	set := filter.set
	filter.set = func(c *ironicCall, f *F, value string) error { return set(c, f, strings.ToLower(value)) }
	return filter
}
