package nova

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	googleuuid "github.com/google/uuid"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

func (s *apiServer) flavorRoutes() []versionedRoute {
	const specs = "/flavors/{flavor}/os-extra_specs"
	return []versionedRoute{
		{method: "GET", path: "/flavors", need: reader, do: handlerOf(flavorCall.listFlavors)},
		{method: "POST", path: "/flavors", need: admin, do: handlerOf(flavorCall.createFlavor)},
		{method: "GET", path: "/flavors/detail", need: reader, do: handlerOf(flavorCall.detailFlavors)},
		{method: "GET", path: "/flavors/{flavor}", need: reader, do: handlerOf(flavorCall.getFlavor)},
		{method: "PUT", path: "/flavors/{flavor}", need: admin, since: 55, do: handlerOf(flavorCall.updateFlavor)},
		{method: "DELETE", path: "/flavors/{flavor}", need: admin, do: handlerOf(flavorCall.removeFlavor)},
		{method: "GET", path: "/flavors/{flavor}/os-flavor-access", need: admin, do: handlerOf(flavorCall.listFlavorAccess)},
		{method: "GET", path: specs, need: reader, do: handlerOf(flavorCall.listSpecs)},
		{method: "POST", path: specs, need: admin, do: handlerOf(flavorCall.addSpecs)},
		{method: "GET", path: specs + "/{key}", need: reader, do: handlerOf(flavorCall.getSpec)},
		{method: "PUT", path: specs + "/{key}", need: admin, do: handlerOf(flavorCall.setSpec)},
		{method: "DELETE", path: specs + "/{key}", need: admin, do: handlerOf(flavorCall.removeSpec)},
	}
}

// flavorNamed finds a flavor by the id that users know.
func (c *novaCall) flavorNamed(ref string) (*compute.Flavor, error) {
	gone := problem.NotFoundf("Flavor %s could not be found.", truncateText(ref))
	if ref == "" || len(ref) > maxIdent {
		return nil, gone
	}
	f, err := c.s.Services.Flavors.Get(c.R.Context(), ref)
	switch {
	case problem.Is(err, problem.NotFound):
		return nil, gone
	case err != nil:
		return nil, err
	case f.Ref != ref && f.ID != ref: // a name is no id
		return nil, gone
	}
	return f, nil
}

func (c flavorCall) flavor() (*compute.Flavor, error) { return c.flavorNamed(c.Arg("flavor")) }

func (c flavorCall) flavorView(f *compute.Flavor) jsonObject {
	var swap any = f.Swap
	if f.Swap == 0 && c.Minor < 75 {
		swap = ""
	}
	o := jsonObject{
		"id": f.Ref, "name": f.Name, "ram": f.RAM, "disk": f.Disk, "swap": swap, "OS-FLV-EXT-DATA:ephemeral": f.Ephemeral,
		"OS-FLV-DISABLED:disabled": f.Disabled, "vcpus": f.VCPUs, "os-flavor-access:is_public": f.Public, "rxtx_factor": 1.0,
		"links": c.links("/flavors/" + f.Ref),
	}
	if c.Minor >= 55 {
		o["description"] = orNil(f.Description)
	}
	if c.Minor >= 61 {
		o["extra_specs"] = mapOrEmpty(f.ExtraSpecs)
	}
	return o
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (c flavorCall) listFlavors() error   { return c.flavorList("/flavors", false) }
func (c flavorCall) detailFlavors() error { return c.flavorList("/flavors/detail", true) }

// flavorSort maps Nova's words to those of the store.
var flavorSort = map[string]string{"": "ref", "flavorid": "ref", "name": "name", "memory_mb": "ram", "root_gb": "disk", "vcpus": "vcpus", "created_at": "", "updated_at": "updated_at", "disabled": "disabled", "is_public": "public"}

func (c flavorCall) flavorList(path string, detail bool) error {
	if err := c.only(75, "limit", "marker", "sort_key", "sort_dir", "is_public", "minRam", "minDisk"); err != nil {
		return err
	}
	f, p, err := c.flavorPage()
	if err != nil {
		return err
	}
	all, err := c.s.Services.Flavors.List(c.R.Context(), f, p)
	if err != nil {
		return err
	}
	out := []jsonObject{}
	for _, one := range all {
		if detail {
			out = append(out, c.flavorView(one))
			continue
		}
		o := jsonObject{"id": one.Ref, "name": one.Name, "links": c.links("/flavors/" + one.Ref)}
		if c.Minor >= 55 {
			o["description"] = orNil(one.Description)
		}
		out = append(out, o)
	}
	answer := jsonObject{"flavors": out}
	if len(all) > 0 {
		if next := c.next(path, len(all), p.Limit, all[len(all)-1].Ref); next != nil {
			answer["flavors_links"] = next
		}
	}
	return c.json(http.StatusOK, answer)
}

func (c flavorCall) flavorPage() (f compute.FlavorFilter, p record.Page, err error) {
	limit, err := c.number("limit", 0)
	if err != nil {
		return f, p, err
	}
	if p.Limit = c.s.MaxLimit; limit > 0 {
		p.Limit = min(limit, c.s.MaxLimit)
	}
	key, ok := flavorSort[c.Query.Get("sort_key")]
	if !ok {
		return f, p, badQuery("sort_key", c.Query.Get("sort_key"), "cannot be sorted by: "+problem.WantOneOf(slices.Collect(maps.Keys(flavorSort))))
	}
	p.SortKey, p.Desc = key, c.Query.Get("sort_dir") == "desc"
	if marker := c.Query.Get("marker"); marker != "" {
		at, err := c.flavorNamed(marker)
		if problem.Is(err, problem.NotFound) {
			return f, p, noMarker(marker)
		}
		if err != nil {
			return f, p, err
		}
		p.Marker = at.ID
	}
	if f.MinRAM, err = c.number("minRam", 0); err != nil {
		return f, p, err
	}
	if f.MinDisk, err = c.number("minDisk", 0); err != nil {
		return f, p, err
	}
	yes := true
	switch word := strings.ToLower(c.Query.Get("is_public")); {
	case !c.admin || word == "":
		f.Public = &yes
	case word != "none":
		v, known := boolWords[c.Query.Get("is_public")]
		if !known {
			return f, p, badQuery("is_public", word, "is not a boolean")
		}
		f.Public = &v
	}
	return f, p, nil
}

func (c flavorCall) getFlavor() error {
	f, err := c.flavor()
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"flavor": c.flavorView(f)})
}

const maxInt = 1<<31 - 1

var flavorSchema = objectSchema(
	schemaProperty{name: "name", required: true, rule: nameSchema},
	schemaProperty{name: "id", rule: nullableSchema(flavorIDSchema)}, schemaProperty{name: "flavorid", rule: nullableSchema(flavorIDSchema)},
	schemaProperty{name: "ram", required: true, rule: integerSchema(1, maxInt)}, schemaProperty{name: "vcpus", required: true, rule: integerSchema(1, maxInt)},
	schemaProperty{name: "disk", required: true, rule: integerSchema(0, maxInt)}, schemaProperty{name: "OS-FLV-EXT-DATA:ephemeral", rule: integerSchema(0, maxInt)},
	schemaProperty{name: "swap", rule: integerSchema(0, maxInt)}, schemaProperty{name: "rxtx_factor", rule: anySchema},
	schemaProperty{name: "os-flavor-access:is_public", rule: booleanSchema}, schemaProperty{name: "description", since: 55, rule: nullableSchema(stringSchema(0, 65535))},
)

func flavorIDSchema(at string, v any, minor int) error {
	if _, ok := v.(float64); ok {
		return integerSchema(0, maxInt)(at, v, minor)
	}
	return patternSchema(1, 255, `^[\w.-][\w. -]*$`)(at, v, minor)
}

func (c flavorCall) createFlavor() error {
	body, err := c.body("flavor", flavorSchema)
	if err != nil {
		return err
	}
	number := func(name string) int { n, _ := intOf(body[name]); return n }
	f := &compute.Flavor{
		Name: stringProperty(body, "name"), Ref: stringProperty(body, "id"), RAM: number("ram"), VCPUs: number("vcpus"), Disk: number("disk"),
		Ephemeral: number("OS-FLV-EXT-DATA:ephemeral"), Swap: number("swap"), Public: true, Description: stringProperty(body, "description"),
	}
	if n, ok := body["id"].(float64); ok {
		f.Ref = strconv.Itoa(int(n))
	}
	if f.Ref == "" || f.Ref == "auto" {
		f.Ref = googleuuid.NewString()
	}
	if public, ok := boolOf(body["os-flavor-access:is_public"]); ok {
		f.Public = public
	}
	if err := c.s.Services.Flavors.Create(c.R.Context(), f, c.requester.Asker); err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"flavor": c.flavorView(f)})
}

func (c flavorCall) updateFlavor() error {
	body, err := c.body("flavor", objectSchema(schemaProperty{name: "description", required: true, rule: nullableSchema(stringSchema(0, 65535))}))
	if err != nil {
		return err
	}
	f, err := c.editFlavor(func(f *compute.Flavor) error { f.Description = stringProperty(body, "description"); return nil })
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"flavor": c.flavorView(f)})
}

func (c flavorCall) editFlavor(edit func(*compute.Flavor) error) (*compute.Flavor, error) {
	f, err := c.flavor()
	if err != nil {
		return nil, err
	}
	return c.s.Services.Flavors.Update(c.R.Context(), f.ID, c.requester.Asker, edit)
}

func (c flavorCall) removeFlavor() error {
	f, err := c.flavor()
	if err != nil {
		return err
	}
	if err := c.s.Services.Flavors.Remove(c.R.Context(), f.ID, c.requester.Asker); err != nil {
		return err
	}
	return c.Empty(http.StatusAccepted)
}

// listFlavorAccess names nobody: a flavor that is not public is the administrators'.
func (c flavorCall) listFlavorAccess() error {
	f, err := c.flavor()
	if err != nil {
		return err
	}
	if f.Public {
		return problem.NotFoundf("Access list not available for public flavors.")
	}
	return c.json(http.StatusOK, jsonObject{"flavor_access": []any{}})
}

func (c flavorCall) listSpecs() error {
	f, err := c.flavor()
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"extra_specs": mapOrEmpty(f.ExtraSpecs)})
}

func (c flavorCall) addSpecs() error {
	body, err := c.body("extra_specs", stringMapSchema(255))
	if err != nil {
		return err
	}
	f, err := c.editFlavor(func(f *compute.Flavor) error {
		f.ExtraSpecs = maps.Clone(mapOrEmpty(f.ExtraSpecs))
		maps.Copy(f.ExtraSpecs, mapOf(body))
		return nil
	})
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"extra_specs": f.ExtraSpecs})
}

func (c flavorCall) getSpec() error {
	f, err := c.flavor()
	if err != nil {
		return err
	}
	key := c.Arg("key")
	value, ok := f.ExtraSpecs[key]
	if !ok {
		return noSpec(f, key)
	}
	return c.json(http.StatusOK, jsonObject{key: value})
}

func noSpec(f *compute.Flavor, key string) error {
	return problem.NotFoundf("Flavor %s has no extra specs with key %s.", f.Ref, truncateText(key))
}

func (c flavorCall) setSpec() error {
	body, err := c.body("", stringMapSchema(255))
	if err != nil {
		return err
	}
	key := c.Arg("key")
	value, ok := body[key].(string)
	if !ok || len(body) != 1 {
		return problem.Invalidf("Invalid input for field/attribute body. It must have the key of the path alone")
	}
	_, err = c.editFlavor(func(f *compute.Flavor) error {
		f.ExtraSpecs = maps.Clone(mapOrEmpty(f.ExtraSpecs))
		f.ExtraSpecs[key] = value
		return nil
	})
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{key: value})
}

func (c flavorCall) removeSpec() error {
	key := c.Arg("key")
	_, err := c.editFlavor(func(f *compute.Flavor) error {
		if !slices.Contains(slices.Collect(maps.Keys(f.ExtraSpecs)), key) {
			return noSpec(f, key)
		}
		f.ExtraSpecs = maps.Clone(f.ExtraSpecs)
		delete(f.ExtraSpecs, key)
		return nil
	})
	if err != nil {
		return err
	}
	return c.Empty(http.StatusOK)
}
