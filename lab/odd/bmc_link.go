package odd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

var linkKinds = []*BMCKind{
	{Name: "links: absolute, unknown host", Source: "OData JSON 4.01, 4.5.8: a link may be any URL; BMCs behind a proxy name their inner host", Scope: ScopeMember, suits: isLink,
		serve: changeLinks(func(p string, _ *http.Request) any { return odataLink(unknownHost + p) })},
	{Name: "links: absolute, another scheme", Source: "BMCs whose TLS ends in a proxy write http", Scope: ScopeMember, suits: isLink,
		serve: changeLinks(func(p string, r *http.Request) any {
			scheme := "https"
			if r.TLS != nil {
				scheme = "http"
			}
			return odataLink(scheme + "://" + r.Host + p)
		})},
	{Name: "links: trailing slash", Source: "iLO, Supermicro", Scope: ScopeMember, suits: isLink,
		serve: changeLinks(func(p string, _ *http.Request) any { return odataLink(strings.TrimRight(p, "/") + "/") })},
	{Name: "links: no first slash", Source: "nv-redfish, quirks of Locations and links", Scope: ScopeMember, suits: isLink,
		serve: changeLinks(func(p string, _ *http.Request) any { return odataLink(strings.TrimLeft(p, "/")) })},
	{Name: "links: relative", Source: "RFC 3986, 5.2: a relative reference", Scope: ScopeMember, suits: isLink,
		serve: changeLinks(func(p string, r *http.Request) any { return odataLink(relativeTo(cleanPath(r.URL.Path), p)) })},
	{Name: "links: percent-encoded", Source: "RFC 3986, 2.1", Scope: ScopeMember, suits: isLink,
		serve: changeLinks(func(p string, _ *http.Request) any {
			name := lastSegment(p)
			if name == "" {
				return odataLink(p)
			}
			return odataLink(strings.TrimSuffix(p, name) + fmt.Sprintf("%%%02X", name[0]) + name[1:])
		})},
	{Name: "links: with fragment", Source: "DSP0266, 6.5: references to parts of a resource", Scope: ScopeMember, suits: isLink,
		serve: changeLinks(func(p string, _ *http.Request) any { return odataLink(p + "#/Status") })},
	{Name: "links: with query", Source: "DSP0266, 7.3: paging parameters", Scope: ScopeMember, suits: isLink,
		serve: changeLinks(func(p string, _ *http.Request) any {
			if strings.Contains(p, "?") {
				return odataLink(p)
			}
			return odataLink(p + "?odd=1")
		})},
	{Name: "links: double slash", Source: "nv-redfish, OpenBMC of GB200", Scope: ScopeMember, suits: isLink,
		serve: func(p Place) serveFunc {
			change := changeLinks(func(p string, _ *http.Request) any {
				return odataLink(strings.Replace(p, "/redfish/", "/redfish//", 1))
			})(p)
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if clean := cleanPath(r.URL.Path); strings.Contains(r.URL.Path, "//") {
					r.URL.Path = clean
				}
				change(w, r, next)
			}
		}},
	{Name: "links: plain text", Source: "gofish 61: Chassis and Managers as texts", Scope: ScopeMember, suits: isLink,
		serve: changeLinks(func(p string, _ *http.Request) any { return p })},
	{Name: "links: a list of one link", Source: "libredfish 27", Scope: ScopeMember, suits: isLink,
		serve: changeLinks(func(p string, _ *http.Request) any { return []any{odataLink(p)} })},
	{Name: "links: an object in place of a list", Source: "libredfish 27: Members an object", Scope: ScopeMember, suits: isLinkList,
		serve: changeValues(isLinkList, func(v any, _ *http.Request) (any, bool) { return v.([]any)[0], true })},
	{Name: "links: href", Source: "iLO 4: href in place of @odata.id", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: changeLinks(func(p string, _ *http.Request) any { return map[string]any{"href": p} })},
	{Name: "links: other members beside", Source: "OData annotations in links", Scope: ScopeMember, suits: isLink,
		serve: changeLinks(func(p string, _ *http.Request) any {
			return map[string]any{"@odata.id": p, "@odata.context": 7, "Name": nil}
		})},
	{Name: "links: null", Source: "many: null for what is not there", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: changeLinks(func(string, *http.Request) any { return nil })},
	{Name: "links: no path", Source: "many: an empty object", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: changeLinks(func(string, *http.Request) any { return map[string]any{} })},
	{Name: "links: empty path", Source: "ODIM 494", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: changeLinks(func(string, *http.Request) any { return odataLink("") })},
	{Name: "links: path a number", Source: "gofish 99", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: changeLinks(func(string, *http.Request) any { return map[string]any{"@odata.id": 7} })},
	{Name: "links: nothing there", Source: "proxmox-redfish 36", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: func(p Place) serveFunc {
			change := changeLinks(func(p string, _ *http.Request) any { return odataLink(p + "/OddNowhere") })(p)
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.HasSuffix(cleanPath(r.URL.Path), "/OddNowhere") {
					sendJSON(w, http.StatusNotFound, refusalDocument("Base.1.8.ResourceMissingAtURI", "The resource at the URI was not found."))
					return
				}
				change(w, r, next)
			}
		}, Words: []string{"OddNowhere", "404"}},
	{Name: "links: to the resource itself", Source: "mockups of vendors", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: changeLinks(func(_ string, r *http.Request) any { return odataLink(r.URL.Path) })},
	{Name: "links: another host with a user", Source: "hostile: a URL that would carry the login away", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: changeLinks(func(p string, _ *http.Request) any { return odataLink("http://a:b@elsewhere.invalid" + p) })},
}

func isLinkList(v any) bool {
	list, ok := v.([]any)
	return ok && len(list) == 1 && isLink(list[0])
}

// relativeTo is a reference that leads from one path to another by RFC 3986.
func relativeTo(from, to string) string {
	to, query, hasQuery := strings.Cut(to, "?")
	if hasQuery {
		query = "?" + query
	}
	base, target := strings.Split(path.Dir(from), "/"), strings.Split(strings.TrimRight(to, "/"), "/")
	for len(base) > 0 && len(target) > 1 && base[0] == target[0] {
		base, target = base[1:], target[1:]
	}
	return strings.Repeat("../", len(base)) + strings.Join(target, "/") + query
}

func sendNotFound(w http.ResponseWriter) {
	sendJSON(w, http.StatusNotFound, refusalDocument("Base.1.8.ResourceMissingAtURI", "The resource at the URI was not found."))
}

func sendInternalError(w http.ResponseWriter) {
	sendJSON(w, http.StatusInternalServerError, refusalDocument("Base.1.8.InternalError", "The request failed due to an internal service error."))
}

func sendBusy(w http.ResponseWriter, retryAfter string) {
	if retryAfter != "" {
		w.Header().Set("Retry-After", retryAfter)
	}
	sendJSON(w, http.StatusServiceUnavailable, refusalDocument("Base.1.8.ServiceTemporarilyUnavailable", "The service is temporarily unavailable."))
}

const loginPage = "<!DOCTYPE html>\n<html><head><title>Login</title></head><body><form>\x00Password</form></body></html>"

var memberKinds = []*BMCKind{
	{Name: "members: one answers 404", Source: "proxmox-redfish 36; nv-redfish PR 185", Scope: ScopeCollection, serve: ghostMember(sendNotFound)},
	{Name: "members: one answers 500", Source: "Redfish-Tacklebox PR 102", Scope: ScopeCollection, serve: ghostMember(sendInternalError)},
	{Name: "members: one answers 503", Source: "Ironic note inspect-missing", Scope: ScopeCollection, serve: ghostMember(func(w http.ResponseWriter) { sendBusy(w, "5") })},
	{Name: "members: one answers 403", Source: "BMCs that hide a part by a licence", Scope: ScopeCollection,
		serve: ghostMember(func(w http.ResponseWriter) {
			sendJSON(w, http.StatusForbidden, refusalDocument("Base.1.8.InsufficientPrivilege", "There are insufficient privileges."))
		})},
	{Name: "members: one answers {}", Source: "bmc-toolbox mocks", Scope: ScopeCollection, serve: ghostMember(func(w http.ResponseWriter) { sendJSON(w, http.StatusOK, map[string]any{}) })},
	{Name: "members: one answers null", Source: "bmc-toolbox mocks", Scope: ScopeCollection, serve: ghostMember(func(w http.ResponseWriter) { sendJSON(w, http.StatusOK, nil) })},
	{Name: "members: one answers a page", Source: "AMI: the web interface for unknown paths", Scope: ScopeCollection,
		serve: ghostMember(func(w http.ResponseWriter) {
			sendBytes(w, http.StatusOK, http.Header{"Content-Type": {"text/html"}}, []byte(loginPage))
		})},
	{Name: "members: one is null", Source: "sushy-tools drivers", Scope: ScopeCollection, serve: membersOf(func(_ Place, all []any) []any { return append([]any{nil}, all...) })},
	{Name: "members: one has an empty path", Source: "ODIM 494", Scope: ScopeCollection, serve: membersOf(func(_ Place, all []any) []any { return append([]any{odataLink("")}, all...) })},
	{Name: "members: one is a number", Source: "hostile", Scope: ScopeCollection, serve: membersOf(func(_ Place, all []any) []any { return append([]any{7}, all...) })},
	{Name: "members: the collection itself", Source: "mockups of vendors", Scope: ScopeCollection, serve: membersOf(func(p Place, all []any) []any { return append([]any{odataLink(p.Path)}, all...) })},
	{Name: "members: each twice", Source: "OpenBMC with two D-Bus owners", Scope: ScopeCollection, serve: membersOf(func(_ Place, all []any) []any { return slices.Concat(all, all) })},
	{Name: "members: whole resources in place of links", Source: "DSP0266, 7.3.2: $expand; iDRAC logs", Scope: ScopeCollection, serve: inlineMembers(true)},
	{Name: "members: whole resources without paths", Source: "BMCs that expand without @odata.id", Scope: ScopeCollection, Cost: CostResource, serve: inlineMembers(false)},
	{Name: "members: missing", Source: "Ironic note handle-missing-ethernetinterfaces-attr", Scope: ScopeCollection, Cost: CostResource,
		serve: changeDocument(func(_ Place, _ *http.Request, doc any) any {
			if o, ok := doc.(map[string]any); ok {
				delete(o, "Members")
			}
			return doc
		})},
	{Name: "members: null", Source: "gofish: Members null", Scope: ScopeCollection, Cost: CostResource,
		serve: changeDocument(func(_ Place, _ *http.Request, doc any) any {
			if o, ok := doc.(map[string]any); ok {
				o["Members"] = nil
			}
			return doc
		})},
	{Name: "members: wrong count", Source: "iLO logs", Scope: ScopeCollection,
		serve: changeDocument(func(_ Place, _ *http.Request, doc any) any {
			if o, ok := doc.(map[string]any); ok {
				o["Members@odata.count"] = "many"
			}
			return doc
		})},
	{Name: "members: nextLink to the same page", Source: "hostile; old Supermicro logs", Scope: ScopeCollection,
		serve: changeDocument(func(p Place, _ *http.Request, doc any) any { return withNext(doc, p.Path) })},
	{Name: "members: nextLink to nothing", Source: "iLO with $skip behind the end", Scope: ScopeCollection,
		serve: changeDocument(func(p Place, _ *http.Request, doc any) any { return withNext(doc, p.Path+"/OddNowhere") })},
	{Name: "members: nextLink an object", Source: "BMCs that write a link", Scope: ScopeCollection,
		serve: changeDocument(func(p Place, _ *http.Request, doc any) any { return withNext(doc, odataLink(p.Path+"?$skip=1")) })},
	{Name: "members: second page by an absolute nextLink", Source: "DSP0266, 7.4: nextLink is any URL", Scope: ScopeCollection, serve: pagedMembers(func(path string) string { return unknownHost + path })},
	{Name: "members: second page by a path", Source: "DSP0266, 7.4", Scope: ScopeCollection, serve: pagedMembers(func(path string) string { return path })},
	{Name: "members: second page by a query alone", Source: "RFC 3986, 4.2: a reference without a path", Scope: ScopeCollection, serve: pagedMembers(func(string) string { return "" })},
}

func withNext(doc, next any) any {
	if o, ok := doc.(map[string]any); ok {
		o["Members@odata.nextLink"] = next
	}
	return doc
}

// inlineMembers writes the members themselves into the collection, with their paths or without.
func inlineMembers(paths bool) func(Place) serveFunc {
	return func(p Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			membersOf(func(_ Place, all []any) []any {
				out := []any{}
				for _, m := range all {
					at, _ := m.(map[string]any)["@odata.id"].(string)
					of := r.Clone(r.Context())
					of.URL = &url.URL{Path: at}
					var doc map[string]any
					if a := askService(of, next); a.Code != http.StatusOK || json.Unmarshal(a.Body.Bytes(), &doc) != nil {
						out = append(out, m)
						continue
					}
					if delete(doc, "@odata.id"); paths {
						doc["@odata.id"] = at
					}
					out = append(out, doc)
				}
				return out
			})(p)(w, r, next)
		}
	}
}

// pagedMembers shows one member a page; page makes the link to the next page, without its query, of the path of the list.
func pagedMembers(page func(path string) string) func(Place) serveFunc {
	return changeDocument(func(_ Place, r *http.Request, doc any) any {
		o, _ := doc.(map[string]any)
		all, _ := o["Members"].([]any)
		at, _ := strconv.Atoi(r.URL.Query().Get("oddpage"))
		if len(all) == 0 || at < 0 || at >= len(all) {
			return doc
		}
		o["Members"] = all[at : at+1]
		if at+1 < len(all) {
			o["Members@odata.nextLink"] = fmt.Sprint(page(cleanPath(r.URL.Path)), "?oddpage=", at+1)
		}
		return o
	})
}
