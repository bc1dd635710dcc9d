package nova

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// serverViewKey is all that a written server depends on beside its record.
type serverViewKey struct {
	detail, admin bool
	minor         int
	base          string
	names         int64 // generation of the names of hosts and networks
	ruler         bool  // it tells what is for those who may change all servers
}

// requestedPage is the page that a request asks for.
type requestedPage struct {
	record.Page
	asked bool // a limit was named
}

// sortKeys are Nova's words for what lists of servers are sorted by, and the store's; empty is the order of creation.
var sortKeys = map[string]string{
	"created_at": "", "updated_at": "updated_at", "uuid": "uuid", "display_name": "name", "vm_state": "state", "task_state": "task", "power_state": "power",
	"launched_at": "launched_at", "terminated_at": "terminated_at", "project_id": "project", "user_id": "user_name", "host": "host_id", "node": "host_id",
	"availability_zone": "zone", "image_ref": "image_id", "instance_type_id": "flavor_id", "key_name": "key_name", "locked": "locked",
}

// window reads limit, marker, sort_key and sort_dir.
func (c serverCall) window() (requestedPage, error) {
	w := requestedPage{Page: record.Page{Marker: c.Query.Get("marker"), Limit: c.s.MaxLimit, Desc: true}}
	limit, err := c.number("limit", 0)
	if err != nil {
		return w, err
	}
	if limit > 0 {
		w.asked = true
	}
	if limit > 0 && limit < w.Limit {
		w.Limit = limit
	}
	if len(w.Marker) > maxIdent {
		return w, noMarker(w.Marker)
	}
	if key := c.Query.Get("sort_key"); key != "" {
		word, ok := sortKeys[key]
		if !ok {
			return w, badQuery("sort_key", key, "cannot be sorted by: "+problem.WantOneOf(slices.Collect(maps.Keys(sortKeys))))
		}
		w.SortKey = word
	}
	switch dir := c.Query.Get("sort_dir"); dir {
	case "", "desc":
	case "asc":
		w.Desc = false
	default:
		return w, problem.Invalidf("Invalid input for query parameters sort_dir. Value: %s. Unknown sort direction, must be one of: asc, desc", truncateText(dir))
	}
	return w, nil
}

func noMarker(marker string) error {
	return problem.Invalidf("marker [%s] not found", truncateText(marker))
}

// next is the link to the page after a full one; nil otherwise.
func (c *novaCall) next(path string, got, limit int, last string) []resourceLink {
	if got < limit || got == 0 {
		return nil
	}
	q := url.Values{}
	for k, v := range c.Query {
		q[k] = v
	}
	q.Set("limit", strconv.Itoa(limit))
	q.Set("marker", last)
	return []resourceLink{{"next", c.base + path + "?" + q.Encode()}}
}

func (c serverCall) listServers() error { return c.serverList("/servers", false) }
func (c serverCall) detailServers() error {
	return c.serverList("/servers/detail", true)
}

func (c serverCall) serverList(path string, detail bool) error {
	w, err := c.window()
	if err != nil {
		return err
	}
	dir, err := c.s.names.get(c.R.Context())
	if err != nil {
		return err
	}
	f, keep, err := c.serverFilter(dir)
	if err != nil {
		return err
	}
	if f == nil {
		return c.raw(http.StatusOK, []byte(`{"servers":[]}`))
	}
	marks, err := c.marks(*f, w, keep)
	if problem.Is(err, problem.NotFound) && w.Marker != "" {
		return noMarker(w.Marker)
	}
	if err != nil {
		return err
	}
	texts, err := c.serverTexts(marks, detail, dir)
	if err != nil {
		return err
	}
	last := ""
	if len(marks) > 0 {
		last = marks[len(marks)-1].ID
	}
	return c.page("servers", texts, c.next(path, len(marks), w.Limit, last))
}

// page answers with records that are written already; those that are gone since the page was read are left out.
func (c serverCall) page(key string, texts []string, next []resourceLink) error {
	size := 512
	for _, t := range texts {
		size += len(t) + 1
	}
	b := make([]byte, 0, size)
	b = append(append(append(b, `{"`...), key...), `":[`...)
	first := true
	for _, t := range texts {
		if t == "" {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		b, first = append(b, t...), false
	}
	b = append(b, ']')
	if len(next) > 0 {
		b = append(append(append(b, `,"`...), key...), `_links":[{"rel":"next","href":`...)
		b = append(api.AppendString(b, next[0].Href), "}]"...)
	}
	return c.raw(http.StatusOK, append(b, '}'))
}

// marks reads the marks of a page. Where the store cannot narrow as asked, servers are read and held to keep until the page is full.
func (c serverCall) marks(f compute.ServerFilter, w requestedPage, keep func(*compute.Server) bool) ([]record.Mark, error) {
	servers := c.s.Services.Servers
	if keep == nil {
		return servers.Marks(c.R.Context(), f, w.Page)
	}
	var out []record.Mark
	for p := w.Page; ; {
		p.Limit = c.s.MaxLimit
		marks, err := servers.Marks(c.R.Context(), f, p)
		if err != nil {
			return nil, err
		}
		nums := make([]int64, len(marks))
		for i, m := range marks {
			nums[i] = m.Num
		}
		found, err := servers.Marked(c.R.Context(), nums)
		if err != nil {
			return nil, err
		}
		for _, m := range marks {
			if srv := found[m.Num]; srv != nil && keep(srv) {
				if out = append(out, m); len(out) == w.Limit {
					return out, nil
				}
			}
		}
		if len(marks) < p.Limit {
			return out, nil
		}
		p.Marker = marks[len(marks)-1].ID
	}
}

// serverTexts gives servers as a list shows them.
func (c serverCall) serverTexts(marks []record.Mark, detail bool, dir *nameSnapshot) ([]string, error) {
	fields := serverFields
	if !detail {
		fields = serverFields[:briefFields]
	}
	v := serverViewKey{detail: detail, admin: c.admin, ruler: c.Principal.Rank(false) == access.Oversight, minor: c.Minor, base: c.Base, names: dir.generation}
	return c.s.written.Render(v, marks, func(nums []int64) (map[int64]api.CachedJSON[record.Mark], error) {
		found, err := c.s.Services.Servers.Marked(c.R.Context(), nums)
		if err != nil {
			return nil, err
		}
		out := make(map[int64]api.CachedJSON[record.Mark], len(found))
		var b []byte
		for num, srv := range found {
			b = (&serverView{Server: srv, c: c.novaCall, dir: dir, host: dir.hosts[srv.HostID]}).append(b[:0], fields)
			out[num] = api.CachedJSON[record.Mark]{Mark: record.Mark{Num: num, ID: srv.ID, Version: srv.Version}, Text: string(b)}
		}
		return out, nil
	})
}

// getServer answers with one server.
func (c serverCall) getServer() error {
	srv, err := c.server()
	if err != nil {
		return err
	}
	return c.showServer(http.StatusOK, srv, false, nil)
}

// showServer answers with a server as it is, or as it was changed; more fields come after its own.
func (c *novaCall) showServer(status int, srv *compute.Server, changed bool, more jsonObject) error {
	dir, err := c.s.names.get(c.R.Context())
	if err != nil {
		return err
	}
	v := &serverView{Server: srv, c: c, dir: dir, host: dir.hosts[srv.HostID], one: true, changed: changed, rebuilt: more != nil}
	b := v.append([]byte(`{"server":`), serverFields)
	for _, k := range []string{"adminPass", "key_name", "user_data"} {
		if value, ok := more[k]; ok {
			b = append(api.AppendAny(api.AppendKey(b[:len(b)-1], k), value), '}')
		}
	}
	return c.raw(status, append(b, '}'))
}

// server finds the server that the path names.
func (c *novaCall) server() (*compute.Server, error) {
	id, err := c.arg("server")
	if err != nil {
		return nil, err
	}
	return c.serverNamed(c.R.Context(), id)
}

func (c *novaCall) serverNamed(ctx context.Context, id string) (*compute.Server, error) {
	gone := problem.NotFoundf("Instance %s could not be found.", truncateText(id))
	if !record.IsUUID(id) {
		return nil, gone
	}
	srv, err := c.s.Services.Servers.Server(ctx, id, c.requester)
	switch {
	case problem.Is(err, problem.NotFound):
		return nil, gone
	case err != nil:
		return nil, err
	case srv.State == compute.Deleted: // lists that ask for them show them
		return nil, gone
	}
	return srv, nil
}

// timeLayouts are the forms of ISO 8601 in which times come in queries: extended and basic, as exact as wanted, with or without a zone.
var timeLayouts = func() []string {
	out := []string{"2006", "2006-01"}
	for _, day := range []string{"2006-01-02", "20060102"} {
		out = append(out, day)
		for _, between := range []string{"T", " "} {
			for _, clock := range []string{"15:04:05.999999999", "150405.999999999", "15:04", "1504", "15"} {
				for _, zone := range []string{"", "Z07:00", "Z0700", "Z07"} {
					out = append(out, day+between+clock+zone)
				}
			}
		}
	}
	return out
}()

func parseQueryTime(word string) (time.Time, bool) {
	// A plus of a zone that a client did not quote came as a space.
	if day, clock, has := strings.Cut(word, "T"); has {
		word = day + "T" + strings.Replace(clock, " ", "+", 1)
	}
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, word); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// hasAll tells whether all of the wanted words are there.
func hasAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(have, w) })
}

// hasAny tells whether one of the wanted words is there.
func hasAny(have, want []string) bool {
	return slices.ContainsFunc(want, func(w string) bool { return slices.Contains(have, w) })
}
