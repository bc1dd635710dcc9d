package odd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"

	"salvor/problem"
)

// BMCKind is one way in which a Redfish service differs from the standard, or from what most services do.
type BMCKind struct {
	// Name is FAMILY: WHAT, such as "links: trailing slash".
	Name string
	// Source names the vendor or the public report.
	Source string
	// Scope is what a Place of this kind is.
	Scope BMCScope
	// Cost is what a client may lose by it.
	Cost BMCCost
	// Words are texts one of which an error must contain that is due to this kind. The last part of the Place's path always serves.
	Words []string
	// Leaks: no client can end its session at such a BMC.
	Leaks bool
	// Partial: a client that tells of what it could read in time may tell of less.
	Partial bool

	suits func(v any) bool // ScopeMember: the values that it changes
	serve func(p Place) serveFunc
}

// BMCScope is the set of places where a kind can be.
type BMCScope int

const (
	// ScopeResource: the GET of one resource.
	ScopeResource BMCScope = iota
	// ScopeCollection: the GET of one resource that has Members.
	ScopeCollection
	// ScopeMember: one member of a resource, or all that suit.
	ScopeMember
	// ScopeOrder: one POST, PATCH or DELETE outside of the sessions.
	ScopeOrder
	// ScopePatch: one PATCH.
	ScopePatch
	// ScopeDirectPatch: one PATCH of a resource that is not the settings resource of another.
	ScopeDirectPatch
	// ScopeReset: the reset of the system.
	ScopeReset
	// ScopeService: the whole service.
	ScopeService
	// ScopeSession: the whole service, asked by a client that logs in by sessions.
	ScopeSession
)

// BMCCost is what a client may lose by a kind of oddity.
type BMCCost int

const (
	// CostNothing: a client can do all that it could do without.
	CostNothing BMCCost = iota
	// CostMember: the client may lose the member of the resource.
	CostMember
	// CostResource: the client may lose the resource, or the order.
	CostResource
)

// Place is where a BMC is odd.
type Place struct {
	// Path is that of a resource or an action, without a slash at its end; empty: everywhere.
	Path string
	// Member is a JSON pointer into the resource, such as /Boot/BootSourceOverrideTarget; empty: all values that suit.
	Member string
}

func (p Place) String() string {
	if p.Path == "" {
		return "everywhere"
	}
	if p.Member != "" {
		return p.Path + "#" + p.Member
	}
	return p.Path
}

// BMCOddity is a kind at a place.
type BMCOddity struct {
	Kind  *BMCKind
	Place Place
}

func (o BMCOddity) String() string { return o.Kind.Name + " at " + o.Place.String() }

// serveFunc answers a request, by next or by itself.
type serveFunc func(w http.ResponseWriter, r *http.Request, next http.Handler)

// BMC puts oddities before a Redfish service. The first one is nearest to the client, behind those of the whole service: a resource takes no order that
// its service sends elsewhere.
func BMC(service http.Handler, oddities ...BMCOddity) http.Handler {
	out := service
	oddities = slices.Clone(oddities)
	slices.SortStableFunc(oddities, func(a, b BMCOddity) int { return cmp.Compare(a.Kind.depth(), b.Kind.depth()) })
	for _, o := range slices.Backward(oddities) {
		next, serve := out, o.Kind.serve(o.Place)
		out = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, next) })
	}
	return out
}

// depth is 0 for a kind of the whole service, and 1 for one of a resource.
func (k *BMCKind) depth() int {
	if k.Scope == ScopeService || k.Scope == ScopeSession {
		return 0
	}
	return 1
}

// BMCKindOf finds a kind by its name; nil: there is none.
func BMCKindOf(name string) *BMCKind {
	i := slices.IndexFunc(BMCKinds, func(k *BMCKind) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	return BMCKinds[i]
}

// ParseBMCOddity is the inverse of BMCOddity.String. A KIND alone is at every place.
func ParseBMCOddity(text string) (BMCOddity, error) {
	name, place, _ := strings.Cut(text, " at /")
	if place != "" {
		place = "/" + place
	}
	name = strings.TrimSuffix(name, " at "+Place{}.String())
	kind := BMCKindOf(name)
	if kind == nil {
		return BMCOddity{}, problem.Invalidf("odd BMC %q: no kind has this name; lab/odd/bmc_*.go lists the kinds", text)
	}
	path, member, _ := strings.Cut(place, "#")
	return BMCOddity{Kind: kind, Place: Place{Path: path, Member: member}}, nil
}

// OddestBMCs are n BMCs, each with one kind of every family that costs a client nothing and does not slow down a whole operation. All such
// kinds of a family take turns.
func OddestBMCs(n int) [][]BMCOddity {
	var families []string
	kinds := map[string][]*BMCKind{}
	for _, k := range BMCKinds {
		family, _, _ := strings.Cut(k.Name, ":")
		if k.Cost != CostNothing || family == "slow" {
			continue
		}
		if kinds[family] == nil {
			families = append(families, family)
		}
		kinds[family] = append(kinds[family], k)
	}
	out := make([][]BMCOddity, n)
	for i := range out {
		for _, family := range families {
			of := kinds[family]
			// Kinds that lie beside each other in a table are siblings, so each BMC takes the next one at a distance.
			out[i] = append(out[i], BMCOddity{Kind: of[i*max(1, len(of)/n)%len(of)]})
		}
	}
	return out
}

// Members are the JSON pointers of those values of a resource that the kind changes.
func (k *BMCKind) Members(resource any) []string {
	if k.suits == nil {
		return nil
	}
	var out []string
	rebuildJSON(resource, "", func(at string, v any) (any, bool) {
		if k.suits(v) {
			out = append(out, at)
		}
		return v, true
	})
	return out
}

// cleanPath is a path as a Place has it: BMCs with links such as /redfish//v1/ take both forms.
func cleanPath(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return strings.TrimRight(path, "/")
}

func (p Place) is(r *http.Request) bool { return p.Path == "" || cleanPath(r.URL.Path) == p.Path }

func isSession(r *http.Request) bool {
	return strings.Contains(r.URL.Path, "/SessionService/Sessions") && r.Method != http.MethodGet
}

func isOrder(r *http.Request) bool { return r.Method != http.MethodGet && !isSession(r) }

// askService has the service behind answer into memory.
func askService(r *http.Request, next http.Handler) *httptest.ResponseRecorder {
	out := httptest.NewRecorder()
	next.ServeHTTP(out, r)
	return out
}

func sendBytes(w http.ResponseWriter, status int, header http.Header, body []byte) {
	maps.Copy(w.Header(), header)
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// refusalDocument is an error document with one message.
func refusalDocument(id, message string, args ...any) map[string]any {
	if args == nil {
		args = []any{}
	}
	return map[string]any{"error": map[string]any{"code": id, "message": message, "@Message.ExtendedInfo": []any{map[string]any{"MessageId": id, "Message": message, "MessageArgs": args}}}}
}

func sendJSON(w http.ResponseWriter, status int, doc any) {
	text, _ := json.Marshal(doc) // made of plain values: cannot fail
	sendBytes(w, status, http.Header{"Content-Type": {"application/json"}}, text)
}

// readBody reads the body of a request and leaves it there.
func readBody(r *http.Request) (text []byte, doc map[string]any) {
	text, _ = io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(text))
	_ = json.Unmarshal(text, &doc)
	return text, doc
}

// changeReads are the GETs of the place; change gets the whole answer of the service.
func changeReads(change func(w http.ResponseWriter, r *http.Request, answer *httptest.ResponseRecorder)) func(Place) serveFunc {
	return func(p Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method != http.MethodGet || !p.is(r) {
				next.ServeHTTP(w, r)
				return
			}
			change(w, r, askService(r, next))
		}
	}
}

// changeBytes changes the bytes of the resource at the place.
func changeBytes(change func(body []byte) []byte) func(Place) serveFunc {
	return changeReads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		sendBytes(w, a.Code, a.Header(), change(a.Body.Bytes()))
	})
}

// fixedAnswer answers the GETs of the place with something else.
func fixedAnswer(status int, contentType, body string) func(Place) serveFunc {
	return changeReads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) {
		header := http.Header{}
		if contentType != "" {
			header.Set("Content-Type", contentType)
		}
		sendBytes(w, status, header, []byte(body))
	})
}

// changeDocument changes the JSON document of the resource at the place.
func changeDocument(change func(p Place, r *http.Request, doc any) any) func(Place) serveFunc {
	return func(p Place) serveFunc {
		return changeReads(func(w http.ResponseWriter, r *http.Request, a *httptest.ResponseRecorder) {
			var doc any
			if json.Unmarshal(a.Body.Bytes(), &doc) != nil || a.Code != http.StatusOK {
				sendBytes(w, a.Code, a.Header(), a.Body.Bytes())
				return
			}
			text, _ := json.Marshal(change(p, r, doc)) // what was JSON stays JSON
			sendBytes(w, a.Code, a.Header(), text)
		})(p)
	}
}

// changeValues changes those members of the resource at the place that suit. change returns false to take the member away.
func changeValues(suits func(any) bool, change func(v any, r *http.Request) (any, bool)) func(Place) serveFunc {
	return changeDocument(func(p Place, r *http.Request, doc any) any {
		out, _ := rebuildJSON(doc, "", func(at string, v any) (any, bool) {
			if !suits(v) || p.Member != "" && p.Member != at {
				return v, true
			}
			return change(v, r)
		})
		return out
	})
}

// rebuildJSON rebuilds a document: visit gets each value that is not the document itself, the outer ones first, and returns what stands in its
// place, or false for nothing. It does not look into what visit has changed. The annotations @odata.… of a resource are left alone.
func rebuildJSON(doc any, at string, visit func(at string, v any) (any, bool)) (any, bool) {
	out := doc
	if at != "" {
		var stays bool
		if out, stays = visit(at, doc); !stays || !sameJSON(out, doc) {
			return out, stays
		}
	}
	switch v := out.(type) {
	case map[string]any:
		changed := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if strings.HasPrefix(name, "@odata.") || strings.HasPrefix(name, "Members@odata.") {
				changed[name] = v[name]
				continue
			}
			if inner, stays := rebuildJSON(v[name], at+"/"+strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"), visit); stays {
				changed[name] = inner
			}
		}
		return changed, true
	case []any:
		changed := []any{}
		for i, e := range v {
			if inner, stays := rebuildJSON(e, at+"/"+strconv.Itoa(i), visit); stays {
				changed = append(changed, inner)
			}
		}
		return changed, true
	}
	return out, true
}

func sameJSON(a, b any) bool {
	one, _ := json.Marshal(a)
	two, _ := json.Marshal(b)
	return bytes.Equal(one, two)
}

func isText(v any) bool   { _, ok := v.(string); return ok }
func isNumber(v any) bool { _, ok := v.(float64); return ok }
func isBool(v any) bool   { _, ok := v.(bool); return ok }
func isList(v any) bool   { _, ok := v.([]any); return ok }
func isScalar(v any) bool { return isText(v) || isNumber(v) || isBool(v) }

func isObject(v any) bool { _, ok := v.(map[string]any); return ok && !isLink(v) }

// isLink: an object that has nothing but the path of a resource.
func isLink(v any) bool {
	o, ok := v.(map[string]any)
	return ok && len(o) == 1 && o["@odata.id"] != nil && isText(o["@odata.id"])
}

func odataLink(path string) map[string]any { return map[string]any{"@odata.id": path} }

// changeLinks changes the path of each link of the resource at the place.
func changeLinks(change func(path string, r *http.Request) any) func(Place) serveFunc {
	return changeValues(isLink, func(v any, r *http.Request) (any, bool) {
		return change(v.(map[string]any)["@odata.id"].(string), r), true
	})
}

// ghostMember adds a link to the front of the collection at the place, and answers what it leads to.
func ghostMember(answer func(w http.ResponseWriter)) func(Place) serveFunc {
	return func(p Place) serveFunc {
		at := p.Path + "/Ghost"
		list := changeDocument(func(_ Place, _ *http.Request, doc any) any {
			return withMembers(doc, func(all []any) []any { return append([]any{odataLink(at)}, all...) })
		})(p)
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if cleanPath(r.URL.Path) == at {
				answer(w)
				return
			}
			list(w, r, next)
		}
	}
}

// membersOf changes the list of the collection at the place.
func membersOf(change func(p Place, all []any) []any) func(Place) serveFunc {
	return changeDocument(func(p Place, _ *http.Request, doc any) any {
		return withMembers(doc, func(all []any) []any { return change(p, all) })
	})
}

func withMembers(doc any, change func(all []any) []any) any {
	o, ok := doc.(map[string]any)
	all, isList := o["Members"].([]any)
	if !ok || !isList {
		return doc
	}
	o["Members"] = change(all)
	o["Members@odata.count"] = len(o["Members"].([]any))
	return o
}

// requestCounter counts under a lock.
type requestCounter struct {
	mu sync.Mutex
	n  int
}

func (c *requestCounter) add(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	return c.n
}

func (c *requestCounter) set(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = n
}

// firstTimes has the first requests of the place that match answered by answer, times of them.
func firstTimes(times int, matches func(*http.Request) bool, answer func(w http.ResponseWriter, r *http.Request)) func(Place) serveFunc {
	return func(p Place) serveFunc {
		var seen requestCounter
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if p.is(r) && matches(r) && seen.add(1) <= times {
				_, _ = io.Copy(io.Discard, r.Body)
				answer(w, r)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

// afterOrder has the next reads of the place after each order answered by answer, times of them.
func afterOrder(times int, answer func(w http.ResponseWriter, r *http.Request)) func(Place) serveFunc {
	return func(p Place) serveFunc {
		var left requestCounter
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if isOrder(r) {
				left.set(times)
			}
			if r.Method == http.MethodGet && p.is(r) && left.add(-1) >= 0 {
				answer(w, r)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

// emptyAfterOrder has a collection show no members, for so many reads after each order. A login is none.
func emptyAfterOrder(times int) func(Place) serveFunc {
	return func(p Place) serveFunc {
		var left requestCounter
		change := changeDocument(func(_ Place, _ *http.Request, doc any) any {
			if o, ok := doc.(map[string]any); ok && o["Members"] != nil && left.add(-1) >= 0 {
				return map[string]any{"Members": []any{}, "Members@odata.count": 0}
			}
			return doc
		})(p)
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if isOrder(r) && !strings.Contains(r.URL.Path, "/SessionService/") {
				left.set(times)
			}
			change(w, r, next)
		}
	}
}

// answerOrders has the orders of the place answered by answer; the service behind does not get them.
func answerOrders(answer func(w http.ResponseWriter, r *http.Request)) func(Place) serveFunc {
	return func(p Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if p.is(r) && isOrder(r) {
				answer(w, r)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

func refuseOrders(status int, doc any) func(Place) serveFunc {
	return answerOrders(func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, status, doc) })
}

func refuseOrdersText(status int, contentType, body string) func(Place) serveFunc {
	return answerOrders(func(w http.ResponseWriter, _ *http.Request) {
		sendBytes(w, status, http.Header{"Content-Type": {contentType}}, []byte(body))
	})
}

// answerTakenOrders has the orders of the place carried out, and then answers in its own way.
func answerTakenOrders(answer func(w http.ResponseWriter, r *http.Request, a *httptest.ResponseRecorder)) func(Place) serveFunc {
	return func(p Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !p.is(r) || !isOrder(r) {
				next.ServeHTTP(w, r)
				return
			}
			if a := askService(r, next); a.Code >= 300 {
				sendBytes(w, a.Code, a.Header(), a.Body.Bytes())
			} else {
				answer(w, r, a)
			}
		}
	}
}
