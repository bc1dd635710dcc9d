package ironic

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/api"
	"salvor/metal"
	"salvor/record"
)

// jsonView is all that the JSON of a record depends on beside the record.
type jsonView struct {
	path    string // of the kind
	fields  string // their names
	version metal.Version
	host    string
	drivers int64 // generation of what drivers say of themselves
}

type (
	nodeJSONCache = api.JSONCache[jsonView, metal.NodeMark]
	cachedNode    = api.CachedJSON[metal.NodeMark]
)

func newJSONCache() *nodeJSONCache {
	return &nodeJSONCache{
		Num:      func(m metal.NodeMark) int64 { return m.Num },
		Outdated: func(old, now jsonView) bool { return old.path == now.path && old.drivers != now.drivers },
	}
}

// texts gives records as the view shows them. write reads and writes those that are not
// kept; a record that is gone meanwhile has no text. shared is false for principals from
// whom something may be hidden: they get every record written for themselves.
func (c *ironicCall) texts(v jsonView, marks []metal.NodeMark, shared bool, write func(nums []int64) (map[int64]cachedNode, error)) ([]string, error) {
	v.version, v.host = c.version, c.Base
	if c.shared = shared; shared {
		return c.s.written.Render(v, marks, write)
	}
	nums := make([]int64, len(marks))
	for i, m := range marks {
		nums[i] = m.Num
	}
	fresh, err := write(nums)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(marks))
	for i, m := range marks {
		texts[i] = fresh[m.Num].Text
	}
	return texts, nil
}

// nodeTexts gives nodes as they are shown with the fields.
func (c *ironicCall) nodeTexts(marks []metal.NodeMark, fields []*nodeField) ([]string, error) {
	ctx := c.R.Context()
	_, generation, err := c.s.Directory.Drivers(ctx)
	if err != nil {
		return nil, err
	}
	heard := showsContact(fields)
	if !heard { // a heartbeat changes nothing of what is shown
		for i := range marks {
			marks[i].ContactRevision = 0
		}
	}
	v := jsonView{path: "nodes", drivers: generation, fields: namesOf(fields, func(f *nodeField) string { return f.name })}
	return c.texts(v, marks, c.seesAll(wholeNode), func(nums []int64) (map[int64]cachedNode, error) {
		found, err := c.s.Nodes.Marked(ctx, nums, partOf(fields))
		if err != nil {
			return nil, err
		}
		out := make(map[int64]cachedNode, len(found))
		nodes := make([]*metal.Node, 0, len(found))
		for _, num := range nums {
			if n := found[num]; n != nil {
				nodes = append(nodes, n)
				out[num] = cachedNode{Mark: metal.NodeMark{Mark: record.Mark{Num: num, ID: n.ID, Version: n.Version}, Reservation: n.Reservation, Conductor: n.Conductor}}
			}
		}
		views, err := c.views(ctx, nodes, fields)
		if err != nil {
			return nil, err
		}
		var b []byte
		for i, num := range slices.DeleteFunc(slices.Clone(nums), func(num int64) bool { return found[num] == nil }) {
			b = nodeKind.append(b[:0], c, &views[i], fields)
			one := out[num]
			if one.Text = string(b); heard {
				one.Mark.ContactRevision = views[i].contact.Revision
			}
			out[num] = one
		}
		return out, nil
	})
}

// texts gives records as they are shown with the fields.
func (k *recordKind[R, F]) texts(c *ironicCall, marks []record.Mark, fields []*recordField[R]) ([]string, error) {
	wide := make([]metal.NodeMark, len(marks))
	for i, m := range marks {
		wide[i].Mark = m
	}
	v := jsonView{path: k.path, fields: namesOf(fields, func(f *recordField[R]) string { return f.name })}
	return c.texts(v, wide, k.hides == "" || c.seesAll(k.hides), func(nums []int64) (map[int64]cachedNode, error) {
		found, err := k.service(c.s).Marked(c.R.Context(), nums)
		if err != nil {
			return nil, err
		}
		out := make(map[int64]cachedNode, len(found))
		var b []byte
		for num, r := range found {
			b = k.append(b[:0], c, r, fields)
			h := k.head(r)
			out[num] = cachedNode{Mark: metal.NodeMark{Mark: record.Mark{Num: num, ID: h.ID, Version: h.Version}}, Text: string(b)}
		}
		return out, nil
	})
}

// namesOf joins the names of fields: what distinguishes one choice from another.
func namesOf[F any](fields []F, name func(F) string) string {
	var b strings.Builder
	for _, f := range fields {
		b.WriteString(name(f))
		b.WriteByte(',')
	}
	return b.String()
}

// largePage is the largest number of records of a page that is made at once. Larger ones wait until one of the places for them is free.
const largePage = 100

// beginLargePage waits for a place for a large page: many at once would need much memory, and would delay all small requests.
// endLargePage gives the place back. An error means that the request's time ended before a place was free.
func (c *ironicCall) beginLargePage(p record.Page) error {
	if p.Limit <= largePage {
		return nil
	}
	select {
	case c.s.largePages <- struct{}{}:
	case <-c.R.Context().Done():
		return api.Later(5*time.Second, "Too many large pages are asked for at once; ask again, or for at most %d records.", largePage)
	}
	c.leave = sync.OnceFunc(func() { <-c.s.largePages })
	return nil
}

func (c *ironicCall) endLargePage() {
	if c.leave != nil {
		c.leave()
	}
}

// list answers with a page: its records and, where it is full, the way to the next one. It copies no records into one
// text, so a client that reads slowly has no page of its own in memory.
func (c *ironicCall) list(key, path string, p record.Page, texts []string, last string) error {
	pieces := make([]string, 0, 2*len(texts)+2)
	pieces = append(pieces, `{"`+key+`":[`)
	for _, text := range texts {
		if text == "" {
			continue // gone since the page was read
		}
		if len(pieces) > 1 {
			pieces = append(pieces, ",")
		}
		pieces = append(pieces, text)
	}
	end := []byte{']'}
	if next := c.next(path, p, len(texts), last); next != "" {
		end = appendString(append(end, `,"next":`...), next)
	}
	pieces = append(pieces, string(append(end, '}')))
	size := 0
	for _, piece := range pieces {
		size += len(piece)
	}
	held := size
	if c.shared {
		held = 0
	}
	c.endLargePage()
	api.WriteJSONHeader(c.W, http.StatusOK, size)
	_ = api.WriteTexts(c.W, pieces, held) // a client that went away needs no answer
	return nil
}
