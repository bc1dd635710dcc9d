package odd

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BMCKinds are all kinds, family by family.
var BMCKinds = slices.Concat(linkKinds, memberKinds, pageKinds, valueKinds, refusalKinds, momentKinds, orderKinds, sessionKinds, slowKinds)

const unknownHost = "https://bmc.internal.invalid"

const iloText = "See @Message.ExtendedInfo for more information."

// lastSegment is the name of a resource in its path.
func lastSegment(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

var linkKinds = []*BMCKind{
	{Name: "links: absolute, unknown host", Source: "OData JSON 4.01, 4.5.8: a link may be any URL; BMCs behind a proxy name their inner host", Scope: ScopeMember, suits: isLink,
		serve: links(func(p string, _ *http.Request) any { return link(unknownHost + p) })},
	{Name: "links: absolute, another scheme", Source: "BMCs whose TLS ends in a proxy write http", Scope: ScopeMember, suits: isLink,
		serve: links(func(p string, r *http.Request) any {
			scheme := "https"
			if r.TLS != nil {
				scheme = "http"
			}
			return link(scheme + "://" + r.Host + p)
		})},
	{Name: "links: trailing slash", Source: "iLO, Supermicro", Scope: ScopeMember, suits: isLink,
		serve: links(func(p string, _ *http.Request) any { return link(strings.TrimRight(p, "/") + "/") })},
	{Name: "links: no first slash", Source: "nv-redfish, quirks of Locations and links", Scope: ScopeMember, suits: isLink,
		serve: links(func(p string, _ *http.Request) any { return link(strings.TrimLeft(p, "/")) })},
	{Name: "links: relative", Source: "RFC 3986, 5.2: a relative reference", Scope: ScopeMember, suits: isLink,
		serve: links(func(p string, r *http.Request) any { return link(relativeTo(cleanPath(r.URL.Path), p)) })},
	{Name: "links: percent-encoded", Source: "RFC 3986, 2.1", Scope: ScopeMember, suits: isLink,
		serve: links(func(p string, _ *http.Request) any {
			name := lastSegment(p)
			if name == "" {
				return link(p)
			}
			return link(strings.TrimSuffix(p, name) + fmt.Sprintf("%%%02X", name[0]) + name[1:])
		})},
	{Name: "links: with fragment", Source: "DSP0266, 6.5: references to parts of a resource", Scope: ScopeMember, suits: isLink,
		serve: links(func(p string, _ *http.Request) any { return link(p + "#/Status") })},
	{Name: "links: with query", Source: "DSP0266, 7.3: paging parameters", Scope: ScopeMember, suits: isLink,
		serve: links(func(p string, _ *http.Request) any {
			if strings.Contains(p, "?") {
				return link(p)
			}
			return link(p + "?odd=1")
		})},
	{Name: "links: double slash", Source: "nv-redfish, OpenBMC of GB200", Scope: ScopeMember, suits: isLink,
		serve: func(p Place) serveFunc {
			change := links(func(p string, _ *http.Request) any { return link(strings.Replace(p, "/redfish/", "/redfish//", 1)) })(p)
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if clean := cleanPath(r.URL.Path); strings.Contains(r.URL.Path, "//") {
					r.URL.Path = clean
				}
				change(w, r, next)
			}
		}},
	{Name: "links: plain text", Source: "gofish 61: Chassis and Managers as texts", Scope: ScopeMember, suits: isLink,
		serve: links(func(p string, _ *http.Request) any { return p })},
	{Name: "links: a list of one link", Source: "libredfish 27", Scope: ScopeMember, suits: isLink,
		serve: links(func(p string, _ *http.Request) any { return []any{link(p)} })},
	{Name: "links: an object in place of a list", Source: "libredfish 27: Members an object", Scope: ScopeMember, suits: isLinkList,
		serve: values(isLinkList, func(v any, _ *http.Request) (any, bool) { return v.([]any)[0], true })},
	{Name: "links: href", Source: "iLO 4: href in place of @odata.id", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: links(func(p string, _ *http.Request) any { return map[string]any{"href": p} })},
	{Name: "links: other members beside", Source: "OData annotations in links", Scope: ScopeMember, suits: isLink,
		serve: links(func(p string, _ *http.Request) any {
			return map[string]any{"@odata.id": p, "@odata.context": 7, "Name": nil}
		})},
	{Name: "links: null", Source: "many: null for what is not there", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: links(func(string, *http.Request) any { return nil })},
	{Name: "links: no path", Source: "many: an empty object", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: links(func(string, *http.Request) any { return map[string]any{} })},
	{Name: "links: empty path", Source: "ODIM 494", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: links(func(string, *http.Request) any { return link("") })},
	{Name: "links: path a number", Source: "gofish 99", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: links(func(string, *http.Request) any { return map[string]any{"@odata.id": 7} })},
	{Name: "links: nothing there", Source: "proxmox-redfish 36", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: func(p Place) serveFunc {
			change := links(func(p string, _ *http.Request) any { return link(p + "/OddNowhere") })(p)
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.HasSuffix(cleanPath(r.URL.Path), "/OddNowhere") {
					sendJSON(w, http.StatusNotFound, refusal("Base.1.8.ResourceMissingAtURI", "The resource at the URI was not found."))
					return
				}
				change(w, r, next)
			}
		}, Words: []string{"OddNowhere", "404"}},
	{Name: "links: to the resource itself", Source: "mockups of vendors", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: links(func(_ string, r *http.Request) any { return link(r.URL.Path) })},
	{Name: "links: another host with a user", Source: "hostile: a URL that would carry the login away", Scope: ScopeMember, suits: isLink, Cost: CostMember,
		serve: links(func(p string, _ *http.Request) any { return link("http://a:b@elsewhere.invalid" + p) })},
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

func notFound(w http.ResponseWriter) {
	sendJSON(w, http.StatusNotFound, refusal("Base.1.8.ResourceMissingAtURI", "The resource at the URI was not found."))
}

func internalError(w http.ResponseWriter) {
	sendJSON(w, http.StatusInternalServerError, refusal("Base.1.8.InternalError", "The request failed due to an internal service error."))
}

func busy(w http.ResponseWriter, retryAfter string) {
	if retryAfter != "" {
		w.Header().Set("Retry-After", retryAfter)
	}
	sendJSON(w, http.StatusServiceUnavailable, refusal("Base.1.8.ServiceTemporarilyUnavailable", "The service is temporarily unavailable."))
}

const loginPage = "<!DOCTYPE html>\n<html><head><title>Login</title></head><body><form>\x00Password</form></body></html>"

var memberKinds = []*BMCKind{
	{Name: "members: one answers 404", Source: "proxmox-redfish 36; nv-redfish PR 185", Scope: ScopeCollection, serve: ghost(notFound)},
	{Name: "members: one answers 500", Source: "Redfish-Tacklebox PR 102", Scope: ScopeCollection, serve: ghost(internalError)},
	{Name: "members: one answers 503", Source: "Ironic note inspect-missing", Scope: ScopeCollection, serve: ghost(func(w http.ResponseWriter) { busy(w, "5") })},
	{Name: "members: one answers 403", Source: "BMCs that hide a part by a licence", Scope: ScopeCollection,
		serve: ghost(func(w http.ResponseWriter) {
			sendJSON(w, http.StatusForbidden, refusal("Base.1.8.InsufficientPrivilege", "There are insufficient privileges."))
		})},
	{Name: "members: one answers {}", Source: "bmc-toolbox mocks", Scope: ScopeCollection, serve: ghost(func(w http.ResponseWriter) { sendJSON(w, http.StatusOK, map[string]any{}) })},
	{Name: "members: one answers null", Source: "bmc-toolbox mocks", Scope: ScopeCollection, serve: ghost(func(w http.ResponseWriter) { sendJSON(w, http.StatusOK, nil) })},
	{Name: "members: one answers a page", Source: "AMI: the web interface for unknown paths", Scope: ScopeCollection,
		serve: ghost(func(w http.ResponseWriter) {
			send(w, http.StatusOK, http.Header{"Content-Type": {"text/html"}}, []byte(loginPage))
		})},
	{Name: "members: one is null", Source: "sushy-tools drivers", Scope: ScopeCollection, serve: membersOf(func(_ Place, all []any) []any { return append([]any{nil}, all...) })},
	{Name: "members: one has an empty path", Source: "ODIM 494", Scope: ScopeCollection, serve: membersOf(func(_ Place, all []any) []any { return append([]any{link("")}, all...) })},
	{Name: "members: one is a number", Source: "hostile", Scope: ScopeCollection, serve: membersOf(func(_ Place, all []any) []any { return append([]any{7}, all...) })},
	{Name: "members: the collection itself", Source: "mockups of vendors", Scope: ScopeCollection, serve: membersOf(func(p Place, all []any) []any { return append([]any{link(p.Path)}, all...) })},
	{Name: "members: each twice", Source: "OpenBMC with two D-Bus owners", Scope: ScopeCollection, serve: membersOf(func(_ Place, all []any) []any { return slices.Concat(all, all) })},
	{Name: "members: whole resources in place of links", Source: "DSP0266, 7.3.2: $expand; iDRAC logs", Scope: ScopeCollection, serve: inline(true)},
	{Name: "members: whole resources without paths", Source: "BMCs that expand without @odata.id", Scope: ScopeCollection, Cost: CostResource, serve: inline(false)},
	{Name: "members: missing", Source: "Ironic note handle-missing-ethernetinterfaces-attr", Scope: ScopeCollection, Cost: CostResource,
		serve: documents(func(_ Place, _ *http.Request, doc any) any {
			if o, ok := doc.(map[string]any); ok {
				delete(o, "Members")
			}
			return doc
		})},
	{Name: "members: null", Source: "gofish: Members null", Scope: ScopeCollection, Cost: CostResource,
		serve: documents(func(_ Place, _ *http.Request, doc any) any {
			if o, ok := doc.(map[string]any); ok {
				o["Members"] = nil
			}
			return doc
		})},
	{Name: "members: wrong count", Source: "iLO logs", Scope: ScopeCollection,
		serve: documents(func(_ Place, _ *http.Request, doc any) any {
			if o, ok := doc.(map[string]any); ok {
				o["Members@odata.count"] = "many"
			}
			return doc
		})},
	{Name: "members: nextLink to the same page", Source: "hostile; old Supermicro logs", Scope: ScopeCollection,
		serve: documents(func(p Place, _ *http.Request, doc any) any { return withNext(doc, p.Path) })},
	{Name: "members: nextLink to nothing", Source: "iLO with $skip behind the end", Scope: ScopeCollection,
		serve: documents(func(p Place, _ *http.Request, doc any) any { return withNext(doc, p.Path+"/OddNowhere") })},
	{Name: "members: nextLink an object", Source: "BMCs that write a link", Scope: ScopeCollection,
		serve: documents(func(p Place, _ *http.Request, doc any) any { return withNext(doc, link(p.Path+"?$skip=1")) })},
	{Name: "members: second page by an absolute nextLink", Source: "DSP0266, 7.4: nextLink is any URL", Scope: ScopeCollection, serve: paged(unknownHost)},
	{Name: "members: second page by a path", Source: "DSP0266, 7.4", Scope: ScopeCollection, serve: paged("")},
}

func withNext(doc, next any) any {
	if o, ok := doc.(map[string]any); ok {
		o["Members@odata.nextLink"] = next
	}
	return doc
}

// inline writes the members themselves into the collection, with their paths or without.
func inline(paths bool) func(Place) serveFunc {
	return func(p Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			membersOf(func(_ Place, all []any) []any {
				out := []any{}
				for _, m := range all {
					at, _ := m.(map[string]any)["@odata.id"].(string)
					of := r.Clone(r.Context())
					of.URL = &url.URL{Path: at}
					var doc map[string]any
					if a := ask(of, next); a.Code != http.StatusOK || json.Unmarshal(a.Body.Bytes(), &doc) != nil {
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

// paged shows one member a page.
func paged(host string) func(Place) serveFunc {
	return documents(func(p Place, r *http.Request, doc any) any {
		o, _ := doc.(map[string]any)
		all, _ := o["Members"].([]any)
		at, _ := strconv.Atoi(r.URL.Query().Get("oddpage"))
		if len(all) == 0 || at < 0 || at >= len(all) {
			return doc
		}
		o["Members"] = all[at : at+1]
		if at+1 < len(all) {
			o["Members@odata.nextLink"] = fmt.Sprint(host, p.Path, "?oddpage=", at+1)
		}
		return o
	})
}

var pageKinds = []*BMCKind{
	{Name: "page: 404 for ever", Source: "parts that a model lacks", Cost: CostResource, Words: []string{"404"}, serve: reads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) { notFound(w) })},
	{Name: "page: 500 for ever", Source: "many", Cost: CostResource, Words: []string{"500"}, serve: reads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) { internalError(w) })},
	{Name: "page: 503 for ever", Source: "many", Cost: CostResource, Words: []string{"503"}, serve: reads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) { busy(w, "5") })},
	{Name: "page: 403 for ever", Source: "roles without a right", Cost: CostResource, Words: []string{"403"},
		serve: reads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) {
			sendJSON(w, http.StatusForbidden, refusal("Base.1.8.InsufficientPrivilege", "There are insufficient privileges."))
		})},
	{Name: "page: 404 ResourceNotReadyRetry for ever", Source: "check_redfish 170: iLO while the machine is off", Cost: CostResource, Words: []string{"ResourceNotReadyRetry"},
		serve: reads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) { notReady(w) })},
	{Name: "page: {}", Source: "bmc-toolbox mocks", Cost: CostResource, serve: fixed(http.StatusOK, "application/json", "{}")},
	{Name: "page: null", Source: "hostile", Cost: CostResource, serve: fixed(http.StatusOK, "application/json", "null")},
	{Name: "page: a number", Source: "hostile", Cost: CostResource, serve: fixed(http.StatusOK, "application/json", "7")},
	{Name: "page: login page", Source: "AMI, Supermicro: the web interface for a session that is over", Cost: CostResource, serve: fixed(http.StatusOK, "text/html", loginPage)},
	{Name: "page: byte order mark in front", Source: "RFC 8259, 8.1: parsers may ignore it", serve: texts(func(b []byte) []byte { return append([]byte("\xef\xbb\xbf"), b...) })},
	{Name: "page: empty", Source: "BMCs out of memory", Cost: CostResource, serve: fixed(http.StatusOK, "application/json", "")},
	{Name: "page: 204", Source: "BMCs for parts that are off", Cost: CostResource, serve: reads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) {
		w.WriteHeader(http.StatusNoContent)
	})},
	{Name: "page: cut off in the middle", Source: "BMCs with a buffer of 64 KiB", Cost: CostResource, serve: texts(func(b []byte) []byte { return b[:len(b)/2] })},
	{Name: "page: shorter than its Content-Length", Source: "lighttpd in front of a dead backend", Cost: CostResource,
		serve: reads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
			w.Header().Set("Content-Length", strconv.Itoa(a.Body.Len()+100))
			w.WriteHeader(a.Code)
			_, _ = w.Write(a.Body.Bytes())
			panic(http.ErrAbortHandler)
		})},
	{Name: "page: Latin-1", Source: "names of parts from SMBIOS", serve: texts(func(b []byte) []byte {
		return bytes.Replace(b, []byte(`{`), []byte("{\"OddName\":\"K\xfchler \xb0C\","), 1)
	})},
	{Name: "page: control characters in texts", Source: "serial numbers padded by NUL and tabs", Cost: CostResource, serve: texts(func(b []byte) []byte {
		return bytes.Replace(b, []byte(`{`), []byte("{\"OddName\":\"a\tb\x01c\","), 1)
	})},
	{Name: "page: NaN", Source: "sensors without a reading", Cost: CostResource, serve: texts(func(b []byte) []byte {
		return bytes.Replace(b, []byte(`{`), []byte(`{"OddReading":NaN,`), 1)
	})},
	{Name: "page: a comma too many", Source: "BMCs that print JSON by hand", Cost: CostResource, serve: texts(func(b []byte) []byte {
		return append(bytes.TrimSuffix(bytes.TrimSpace(b), []byte("}")), []byte(",}")...)
	})},
	{Name: "page: NUL behind the end", Source: "BMCs that send their buffer", Cost: CostResource, serve: texts(func(b []byte) []byte { return append(b, 0, 0) })},
	{Name: "page: twice", Source: "BMCs that print the body again", Cost: CostResource, serve: texts(func(b []byte) []byte { return slices.Concat(b, b) })},
	{Name: "page: a name twice", Source: "RFC 8259, 4: names should be unique", serve: texts(func(b []byte) []byte {
		return bytes.Replace(b, []byte(`{`), []byte(`{"OddName":1,"OddName":"b",`), 1)
	})},
	{Name: "page: gzip unasked", Source: "check_redfish", serve: reads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		_, _ = z.Write(a.Body.Bytes())
		_ = z.Close()
		header := a.Header().Clone()
		header.Set("Content-Encoding", "gzip")
		send(w, a.Code, header, zipped.Bytes())
	})},
	{Name: "page: no Content-Type", Source: "old AMI", serve: reads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		header := a.Header().Clone()
		header["Content-Type"] = nil
		send(w, a.Code, header, a.Body.Bytes())
	})},
	{Name: "page: Content-Type text/html", Source: "old Supermicro", serve: reads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		header := a.Header().Clone()
		header.Set("Content-Type", "text/html")
		send(w, a.Code, header, a.Body.Bytes())
	})},
	{Name: "page: in a list", Source: "hostile", Cost: CostResource, serve: documents(func(_ Place, _ *http.Request, doc any) any { return []any{doc} })},
	{Name: "page: names in lower case", Source: "proxies that fold names", Cost: CostResource, serve: documents(func(_ Place, _ *http.Request, doc any) any {
		o, ok := doc.(map[string]any)
		if !ok {
			return doc
		}
		out := map[string]any{}
		for name, v := range o {
			out[strings.ToLower(name)] = v
		}
		return out
	})},
	{Name: "page: 200 with an error in it", Source: "Cisco CIMC", Cost: CostResource, Words: []string{"OddPart"},
		serve: reads(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) {
			sendJSON(w, http.StatusOK, refusal("Base.1.8.GeneralError", "OddPart cannot be read."))
		})},
}

func notReady(w http.ResponseWriter) {
	sendJSON(w, http.StatusNotFound, map[string]any{"error": map[string]any{"code": "iLO.0.10.ExtendedInfo", "message": iloText, "@Message.ExtendedInfo": []any{map[string]any{"MessageId": "iLO.2.30.ResourceNotReadyRetry"}}}})
}

func becomes(v any) func(any, *http.Request) (any, bool) {
	return func(any, *http.Request) (any, bool) { return v, true }
}

// valueKind is a kind that changes values of a sort.
func valueKind(name, source string, suits func(any) bool, change func(any, *http.Request) (any, bool)) *BMCKind {
	return &BMCKind{Name: "value: " + name, Source: source, Scope: ScopeMember, Cost: CostMember, suits: suits, serve: values(suits, change)}
}

func absent(any, *http.Request) (any, bool) { return nil, false }

func isDate(v any) bool {
	text, _ := v.(string)
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}

func isMany(v any) bool { list, ok := v.([]any); return ok && len(list) > 0 }

func isEnum(v any) bool {
	text, _ := v.(string)
	return text != "" && !strings.ContainsAny(text, "/:. ") && strings.ToLower(text) != text
}

var valueKinds = []*BMCKind{
	valueKind("a number as text", "Cisco CIMC: gofish 409", isNumber, func(v any, _ *http.Request) (any, bool) { return strconv.FormatFloat(v.(float64), 'f', -1, 64), true }),
	valueKind("a number with its unit", "fishymetrics 68", isNumber, func(v any, _ *http.Request) (any, bool) { return fmt.Sprint(v, " MHz"), true }),
	valueKind("N/A for a number", "Cisco CIMC: gofish 409", isNumber, becomes("N/A")),
	valueKind("a text as number", "gofish 99: MemberId; Model 4029", isText, becomes(4029)),
	valueKind("a text in a list", "libredfish", isText, func(v any, _ *http.Request) (any, bool) { return []any{v}, true }),
	valueKind("a text as object", "redfish_exporter 9", isText, func(v any, _ *http.Request) (any, bool) { return map[string]any{"Value": v}, true }),
	valueKind("a number in a list", "redfish_exporter 27", isNumber, func(v any, _ *http.Request) (any, bool) { return []any{v}, true }),
	valueKind("a number as object", "redfish_exporter 27", isNumber, func(v any, _ *http.Request) (any, bool) { return map[string]any{"Value": v}, true }),
	valueKind("one for a list", "gofish 63", isMany, func(v any, _ *http.Request) (any, bool) { return v.([]any)[0], true }),
	valueKind("null", "many, while the machine is off", func(v any) bool { return isScalar(v) || isList(v) || isObject(v) }, becomes(nil)),
	valueKind("absent", "many", func(v any) bool { return isScalar(v) || isList(v) || isObject(v) }, absent),
	valueKind("an empty text", "Cisco CIMC", func(v any) bool { return isScalar(v) || isList(v) || isObject(v) || isLink(v) }, becomes("")),
	valueKind("a bool as text", "Supermicro: Inserted \"false\"", isBool, func(v any, _ *http.Request) (any, bool) { return fmt.Sprint(v), true }),
	valueKind("a bool as number", "old Supermicro", isBool, func(v any, _ *http.Request) (any, bool) {
		if v == true {
			return 1, true
		}
		return 0, true
	}),
	valueKind("an object as text", "Status: OK", isObject, becomes("OK")),
	valueKind("an object as empty list", "PHP: Actions []", func(v any) bool { return isObject(v) || isLink(v) }, becomes([]any{})),
	valueKind("an object as true", "hostile", isObject, becomes(true)),
	valueKind("a list as object", "libredfish 27", isMany, func(v any, _ *http.Request) (any, bool) {
		out := map[string]any{}
		for i, e := range v.([]any) {
			out[strconv.Itoa(i)] = e
		}
		return out, true
	}),
	valueKind("a list as text with spaces", "redfish_exporter", isMany, func(v any, _ *http.Request) (any, bool) {
		parts := []string{}
		for _, e := range v.([]any) {
			parts = append(parts, fmt.Sprint(e))
		}
		return strings.Join(parts, " "), true
	}),
	valueKind("a list with null in it", "OpenBMC", isMany, func(v any, _ *http.Request) (any, bool) { return append([]any{nil}, v.([]any)...), true }),
	valueKind("a list with a number in it", "hostile", isMany, func(v any, _ *http.Request) (any, bool) { return append([]any{7}, v.([]any)...), true }),
	valueKind("another case", "Quanta: on, uefi", isEnum, func(v any, _ *http.Request) (any, bool) { return strings.ToLower(v.(string)), true }),
	valueKind("spaces around", "SMBIOS texts", isText, func(v any, _ *http.Request) (any, bool) { return " " + v.(string) + "  ", true }),
	valueKind("an unknown word", "newer schema versions", isEnum, becomes("OddValue")),
	valueKind("a huge number", "sensors: 1e300", isNumber, becomes(json.Number("1e300"))),
	valueKind("a negative number", "sensors and sizes: -1", isNumber, becomes(-1)),
	valueKind("a fraction", "HPE: counts as 2.5", isNumber, func(v any, _ *http.Request) (any, bool) { return v.(float64) + 0.5, true }),
	valueKind("a date without zone", "iDRAC: 2026-03-04T05:06:07", isDate, becomes("2026-03-04T05:06:07")),
	valueKind("a date of another sort", "AMI: 03/04/2026 05:06:07 AM", isDate, becomes("03/04/2026 05:06:07 AM")),
	valueKind("a date as number", "seconds since 1970", isDate, becomes(1772600767)),
	valueKind("a long text", "hostile: 64 KiB", isText, func(v any, _ *http.Request) (any, bool) { return v.(string) + strings.Repeat("x", 64<<10), true }),
	valueKind("a text for the terminal", "hostile: escape codes", isText, func(v any, _ *http.Request) (any, bool) { return v.(string) + "\x1b[2J\r\n", true }),
}

func iloRefusal(id string, args ...any) map[string]any {
	message := map[string]any{"MessageId": id}
	if args != nil {
		message["MessageArgs"] = args
	}
	return map[string]any{"error": map[string]any{"code": "iLO.0.10.ExtendedInfo", "message": iloText, "@Message.ExtendedInfo": []any{message}}}
}

// refusalKind refuses an order for good.
func refusalKind(name, source string, serve func(Place) serveFunc, words ...string) *BMCKind {
	return &BMCKind{Name: "refusal: " + name, Source: source, Scope: ScopeOrder, Cost: CostResource, Words: words, serve: serve}
}

var refusalKinds = []*BMCKind{
	refusalKind("an id without words", "HPE iLO: ilo-fans-controller 2", refuseOrders(http.StatusBadRequest, iloRefusal("iLO.2.24.MaxVirtualMediaConnectionEstablished")), "MaxVirtualMediaConnectionEstablished"),
	refusalKind("an id with arguments", "HPE iLO: ansible 51818", refuseOrders(http.StatusBadRequest, iloRefusal("Base.1.18.ActionNotSupported", "OddAction")), "ActionNotSupported"),
	refusalKind("403 without words", "HPE iLO", refuseOrders(http.StatusForbidden, iloRefusal("Base.1.18.InsufficientPrivilege")), "InsufficientPrivilege"),
	refusalKind("no ExtendedInfo", "old AMI", refuseOrders(http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "Base.1.0.GeneralError", "message": "the interlock is engaged"}}), "interlock"),
	refusalKind("plain text", "lighttpd", refuseOrdersText(http.StatusBadRequest, "text/plain", "the interlock is engaged\n"), "interlock"),
	refusalKind("a page", "lighttpd", refuseOrdersText(http.StatusInternalServerError, "text/html", "<html><head><title>500 Internal Server Error</title></head>\n<body>500</body></html>"), "500"),
	refusalKind("empty body", "old Supermicro", refuseOrdersText(http.StatusBadRequest, "application/json", ""), "400"),
	refusalKind("ExtendedInfo an object", "Quanta", refuseOrders(http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "x", "message": "see", "@Message.ExtendedInfo": map[string]any{"MessageId": "Odd.1.0.Interlock", "Message": "the interlock is engaged"}}}), "interlock"),
	refusalKind("ExtendedInfo at the top", "old iDRAC", refuseOrders(http.StatusBadRequest, map[string]any{"@Message.ExtendedInfo": []any{map[string]any{"MessageId": "Odd.1.0.Interlock", "Message": "the interlock is engaged"}}}), "interlock"),
	refusalKind("numbers in the arguments", "OpenBMC", refuseOrders(http.StatusBadRequest, refusal("Odd.1.0.Interlock", "the interlock is engaged", 7, nil, map[string]any{})), "interlock"),
	refusalKind("arguments a text", "AMI", refuseOrders(http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "x", "message": "see", "@Message.ExtendedInfo": []any{map[string]any{"MessageId": "Odd.1.0.Interlock", "Message": "the interlock is engaged", "MessageArgs": "one"}}}}), "interlock"),
	refusalKind("a message that is a number", "hostile", refuseOrders(http.StatusBadRequest, map[string]any{"error": map[string]any{"code": 7, "message": "the interlock is engaged", "@Message.ExtendedInfo": []any{map[string]any{"MessageId": 7, "Message": 7}}}}), "interlock"),
	refusalKind("error a text", "Flask in front of a BMC", refuseOrders(http.StatusBadRequest, map[string]any{"error": "the interlock is engaged"}), "interlock"),
	refusalKind("messages null", "gofish", refuseOrders(http.StatusBadRequest, map[string]any{"error": map[string]any{"message": "the interlock is engaged", "@Message.ExtendedInfo": nil}}), "interlock"),
	refusalKind("501", "parts that a model lacks", refuseOrders(http.StatusNotImplemented, refusal("Base.1.8.GeneralError", "the interlock is engaged")), "interlock"),
	refusalKind("200 with an error in it", "Cisco CIMC", refuseOrders(http.StatusOK, refusal("Odd.1.0.Interlock", "the interlock is engaged")), "interlock"),
	refusalKind("what the request said, sent back", "debug builds", orders(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		sendJSON(w, http.StatusBadRequest, refusal("Odd.1.0.Interlock", "the interlock is engaged; you sent "+r.Header.Get("Authorization")+r.Header.Get("X-Auth-Token")+" "+string(text)))
	}), "interlock"),
}

func isGet(r *http.Request) bool { return r.Method == http.MethodGet }

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="Redfish"`)
	sendJSON(w, http.StatusUnauthorized, refusal("Base.1.8.NoValidSession", "There is no valid session established with the implementation."))
}

func plain(answer func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { answer(w) }
}

// aWhile has the orders of the place refused by answer for a time after the first of them.
func aWhile(long time.Duration, answer func(http.ResponseWriter)) func(Place) serveFunc {
	return func(p Place) serveFunc {
		var first firstTime
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if p.is(r) && isOrder(r) && first.since() < long {
				answer(w)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

// powerOnItsWay refuses a reset, and the machine follows it all the same a while later.
func powerOnItsWay(status int, reads bool) func(Place) serveFunc {
	return func(p Place) serveFunc {
		var until until
		show := values(isText, func(v any, _ *http.Request) (any, bool) {
			if v == "On" || v == "Off" {
				return until.word(), true
			}
			return v, true
		})
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			owner, _, _ := strings.Cut(p.Path, "/Actions/")
			if reads && isGet(r) && cleanPath(r.URL.Path) == owner && until.running() {
				show(Place{Path: owner, Member: "/PowerState"})(w, r, next)
				return
			}
			if !p.is(r) || !isOrder(r) {
				next.ServeHTTP(w, r)
				return
			}
			text, body := readBody(r)
			kind, _ := body["ResetType"].(string)
			if kind != "On" && kind != "ForceOff" || until.running() {
				if until.running() {
					refuseChange(w, status)
					return
				}
				next.ServeHTTP(w, r)
				return
			}
			until.begin(map[bool]string{true: "PoweringOn", false: "PoweringOff"}[kind == "On"])
			later := laterRequest(r, text)
			time.AfterFunc(taskDelay, func() { ask(later, next) })
			refuseChange(w, status)
		}
	}
}

func refuseChange(w http.ResponseWriter, status int) {
	sendJSON(w, status, refusal("IDRAC.2.8.PSU501", "Unable to complete the operation because the server is already in the state that was asked for, or on its way."))
}

var momentKinds = []*BMCKind{
	{Passes: true, Name: "moment: 503 once", Source: "many", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) { busy(w, "2") })},
	{Passes: true, Name: "moment: 503 once with a date", Source: "RFC 9110, 10.2.3", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) {
		busy(w, time.Now().Add(3*time.Second).UTC().Format(http.TimeFormat))
	})},
	{Passes: true, Name: "moment: 429 once", Source: "rate limits of OpenBMC", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		sendJSON(w, http.StatusTooManyRequests, refusal("Base.1.8.GeneralError", "slow down"))
	})},
	{Passes: true, Name: "moment: 500 once", Source: "many", serve: firstTimes(1, isGet, plain(internalError))},
	{Passes: true, Name: "moment: 400 once", Source: "sushy: retry-ilo-not-ready-error", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) {
		sendJSON(w, http.StatusBadRequest, iloRefusal("iLO.2.14.InvalidOperationForSystemState"))
	})},
	{Passes: true, Name: "moment: login page once", Source: "AMI", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) {
		send(w, http.StatusOK, http.Header{"Content-Type": {"text/html"}}, []byte(loginPage))
	})},
	{Passes: true, Name: "moment: empty once", Source: "many", serve: firstTimes(1, isGet, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })},
	{Passes: true, Name: "moment: one 401", Source: "HPE, GB200, AMI: infra-controller PR 69; Supermicro", serve: firstTimes(1, isGet, plain(unauthorized))},
	{Passes: true, Name: "moment: one 401 for an order", Source: "HPE, GB200, AMI: infra-controller PR 69", Scope: ScopeOrder, serve: firstTimes(1, isOrder, plain(unauthorized))},
	{Passes: true, Name: "moment: cut once", Source: "many", serve: firstTimes(1, isGet, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })},
	{Passes: true, Name: "moment: 404 for two reads after an order", Source: "Dell: sushy fix-dell-bmc-404-race-condition", serve: afterOrder(2, func(w http.ResponseWriter, _ *http.Request) { notFound(w) })},
	{Passes: true, Name: "moment: ResourceNotReadyRetry for two reads after an order", Source: "HPE iLO: check_redfish 170", serve: afterOrder(2, func(w http.ResponseWriter, _ *http.Request) { notReady(w) })},
	{Passes: true, Name: "moment: 500 for two reads after an order", Source: "many", serve: afterOrder(2, func(w http.ResponseWriter, _ *http.Request) { internalError(w) })},
	{Passes: true, Name: "moment: {} for two reads after an order", Source: "OpenBMC", serve: afterOrder(2, func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, http.StatusOK, map[string]any{}) })},
	{Passes: true, Name: "moment: no members for two reads after an order", Source: "Dell: Systems empty after a reset", Scope: ScopeCollection, serve: afterOrder(2, func(w http.ResponseWriter, _ *http.Request) {
		sendJSON(w, http.StatusOK, map[string]any{"Members": []any{}, "Members@odata.count": 0})
	})},
	{Passes: true, Name: "moment: 503 for an order once", Source: "many", Scope: ScopeOrder, serve: firstTimes(1, isOrder, func(w http.ResponseWriter, _ *http.Request) { busy(w, "2") })},
	{Passes: true, Name: "moment: 500 for an order once", Source: "many", Scope: ScopeOrder, serve: firstTimes(1, isOrder, plain(internalError))},
	{Passes: true, Name: "moment: 409 for an order for 5 s", Source: "iDRAC: a job runs", Scope: ScopeOrder, serve: aWhile(5*time.Second, func(w http.ResponseWriter) {
		sendJSON(w, http.StatusConflict, refusal("Base.1.8.ResourceInUse", "The change could not be made because the resource is in use."))
	})},
	{Passes: true, Name: "moment: 400 InvalidOperationForSystemState for an order for 5 s", Source: "HPE iLO: sushy retry-ilo-not-ready-error", Scope: ScopeOrder, serve: aWhile(5*time.Second, func(w http.ResponseWriter) {
		sendJSON(w, http.StatusBadRequest, iloRefusal("iLO.2.14.InvalidOperationForSystemState"))
	})},
	{Passes: true, Name: "moment: 400 while the power changes", Source: "iDRAC: Ironic note catch-redfish-409", Scope: ScopeReset, serve: powerOnItsWay(http.StatusBadRequest, true)},
	{Passes: true, Name: "moment: 409 while the power changes", Source: "iDRAC: Ironic note catch-redfish-409", Scope: ScopeReset, serve: powerOnItsWay(http.StatusConflict, true)},
	{Passes: true, Name: "moment: 400 while the power changes unseen", Source: "iDRAC: Ironic note catch-redfish-409", Scope: ScopeReset, serve: powerOnItsWay(http.StatusBadRequest, false)},
	{Passes: true, Name: "moment: no power state while it changes", Source: "OpenBMC: PowerState null", Scope: ScopeReset, serve: func(p Place) serveFunc {
		owner, _, _ := strings.Cut(p.Path, "/Actions/")
		hide := values(isText, becomes(nil))(Place{Path: owner, Member: "/PowerState"})
		var left counter
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if p.is(r) && isOrder(r) {
				left.set(2)
			}
			if isGet(r) && cleanPath(r.URL.Path) == owner && left.add(-1) >= 0 {
				hide(w, r, next)
				return
			}
			next.ServeHTTP(w, r)
		}
	}},
}

var orderKinds = []*BMCKind{
	{Name: "order: a connection is cut when it is used again", Source: "sushy note disable-conn-pooling", Scope: ScopeService, serve: func(Place) serveFunc {
		var seen connections
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !seen.first(r.RemoteAddr) {
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		}
	}},
	{Name: "order: cut after it was taken", Source: "many: the BMC's network restarts", Scope: ScopeOrder, serve: func(p Place) serveFunc {
		var once counter
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if p.is(r) && isOrder(r) && once.add(1) == 1 {
				ask(r, next)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		}
	}},
	{Name: "order: always cut after it was taken", Source: "BMCs that reset their network with the machine", Scope: ScopeOrder, Cost: CostResource,
		serve: taken(func(http.ResponseWriter, *http.Request, *httptest.ResponseRecorder) { panic(http.ErrAbortHandler) })},
	{Name: "order: taken, and 500", Source: "iDRAC", Scope: ScopeOrder, Cost: CostResource, Words: []string{"500"},
		serve: taken(func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) { internalError(w) })},
	{Name: "order: 301 to the path with a slash", Source: "old Supermicro: check_redfish PR 187", Scope: ScopeService, serve: slashes(http.StatusMovedPermanently)},
	{Name: "order: 302 to the path with a slash", Source: "old Supermicro", Scope: ScopeService, serve: slashes(http.StatusFound)},
	{Name: "order: 307 to the path with a slash", Source: "OpenBMC", Scope: ScopeService, serve: slashes(http.StatusTemporaryRedirect)},
	{Name: "order: 308 to the path with a slash", Source: "iLO 5", Scope: ScopeService, serve: slashes(http.StatusPermanentRedirect)},
	{Name: "order: 308 to the whole URL of an unknown host with a slash", Source: "BMCs behind a proxy", Scope: ScopeService, Cost: CostResource, serve: redirects(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/") {
			return 0, ""
		}
		return http.StatusPermanentRedirect, unknownHost + r.URL.Path + "/"
	}), Words: []string{"308", "host", "redirect"}},
	{Name: "order: 302 to another host", Source: "hostile", Scope: ScopeOrder, Cost: CostResource, Words: []string{"302", "another host", "redirect"},
		serve: orders(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://elsewhere.invalid"+r.URL.Path)
			w.WriteHeader(http.StatusFound)
		})},
	{Name: "order: 202 with a task", Source: "Redfishtool 55; lenovo PR 75", Scope: ScopeOrder, serve: orderTask{location: taskPath}.serve},
	{Name: "order: 202 with a task that is gone when it is over", Source: "OpenBMC", Scope: ScopeOrder, serve: orderTask{location: taskPath, forgets: true}.serve},
	{Name: "order: 202 with a task that fails", Source: "sushy note raise-error-on-async-task-failure", Scope: ScopeOrder, Cost: CostResource, Words: []string{"404"}, serve: orderTask{location: taskPath, fails: true}.serve},
	{Name: "order: 202 with a relative Location", Source: "nv-redfish PR 125", Scope: ScopeOrder, Cost: CostResource, Words: []string{"404"},
		serve: orderTask{fails: true, location: func(p string, r *http.Request) string { return relativeTo(cleanPath(r.URL.Path), p) }}.serve},
	{Name: "order: 202 with a Location at an unknown host", Source: "BMCs behind a proxy", Scope: ScopeOrder, Cost: CostResource, Words: []string{"404"},
		serve: orderTask{fails: true, location: func(p string, _ *http.Request) string { return unknownHost + p }}.serve},
	{Name: "order: 202 with the task in the body alone", Source: "old iDRAC", Scope: ScopeOrder, Cost: CostResource, Words: []string{"404"}, serve: orderTask{fails: true}.serve},
	{Name: "order: 202 with a monitor", Source: "DSP0266, 12.2", Scope: ScopeOrder, serve: orderTask{location: taskPath, monitor: true, noBody: true}.serve},
	{Name: "order: 202 with a monitor that fails", Source: "DSP0266, 12.2", Scope: ScopeOrder, Cost: CostResource, Words: []string{"404"}, serve: orderTask{location: taskPath, monitor: true, noBody: true, fails: true}.serve},
	{Name: "order: 202 and no word more", Source: "AMI", Scope: ScopeOrder, serve: orderTask{noBody: true}.serve},
	{Name: "order: its own ETag is refused", Source: "sushy: etag handling of Lenovo", Scope: ScopePatch, serve: etags(func(r *http.Request, tag string) int {
		if match := r.Header.Get("If-Match"); match != "" && match != "*" && match != tag[2:] {
			return http.StatusPreconditionFailed
		}
		return 0
	}, true)},
	{Name: "order: no tag but none is taken", Source: "old AMI", Scope: ScopePatch, serve: etags(func(r *http.Request, _ string) int {
		if r.Header.Get("If-Match") != "" {
			return http.StatusPreconditionFailed
		}
		return 0
	}, false)},
	{Name: "order: If-Match is demanded", Source: "AMI: 428", Scope: ScopePatch, serve: etags(func(r *http.Request, tag string) int {
		switch match := r.Header.Get("If-Match"); {
		case match == "":
			return http.StatusPreconditionRequired
		case match != tag && match != "*":
			return http.StatusPreconditionFailed
		}
		return 0
	}, false)},
	{Name: "order: If-Match is demanded and no tag shown", Source: "AMI: 428 without ETag", Scope: ScopePatch, serve: func(p Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if p.is(r) && r.Method == http.MethodPatch && r.Header.Get("If-Match") == "" {
				sendJSON(w, http.StatusPreconditionRequired, refusal("Base.1.8.PreconditionRequired", "The request needs If-Match."))
				return
			}
			r.Header.Del("If-Match")
			next.ServeHTTP(w, r)
		}
	}},
	{Name: "order: the settings resource alone takes changes", Source: "AMI: Redfish-Tacklebox 111", Scope: ScopePatch, serve: settingsOnly},
	{Name: "order: 200 with a message of success", Source: "iLO: Base.1.0.Success", Scope: ScopeOrder,
		serve: taken(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
			header := a.Header().Clone()
			header.Set("Content-Type", "application/json")
			status := a.Code
			if status == http.StatusNoContent {
				status = http.StatusOK
			}
			text, _ := json.Marshal(refusal("Base.1.18.Success", "The request completed successfully."))
			send(w, status, header, text)
		})},
	{Name: "order: read back 5 s later", Source: "many: caches", Scope: ScopeOrder, serve: stale(5 * time.Second)},
}

func taskPath(p string, _ *http.Request) string { return p }

func slashes(status int) func(Place) serveFunc {
	return redirects(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/") {
			return 0, ""
		}
		to := r.URL.Path + "/"
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		return status, to
	})
}

func redirects(to func(*http.Request) (int, string)) func(Place) serveFunc {
	return func(p Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if status, at := to(r); p.is(r) && status != 0 {
				w.Header().Set("Location", at)
				w.WriteHeader(status)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

// etags shows a tag of the resource at the place, and refuses changes by it.
func etags(refuse func(r *http.Request, tag string) int, weak bool) func(Place) serveFunc {
	return func(p Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !p.is(r) || r.Method != http.MethodGet && r.Method != http.MethodPatch {
				next.ServeHTTP(w, r)
				return
			}
			read := r.Clone(r.Context())
			read.Method, read.Body = http.MethodGet, http.NoBody
			a := ask(read, next)
			tag := fmt.Sprintf("%q", strconv.FormatUint(hashOf(a.Body.Bytes()), 16))
			if weak {
				tag = "W/" + tag
			}
			if r.Method == http.MethodGet {
				header := a.Header().Clone()
				header.Set("ETag", tag)
				send(w, a.Code, header, a.Body.Bytes())
				return
			}
			if status := refuse(r, tag); status != 0 {
				sendJSON(w, status, refusal("Base.1.8.PreconditionFailed", "The ETag supplied did not match."))
				return
			}
			r.Header.Del("If-Match")
			next.ServeHTTP(w, r)
		}
	}
}

// settingsOnly shows a settings resource beside the one at the place, which refuses changes by itself.
func settingsOnly(p Place) serveFunc {
	at := p.Path + "/OddSettings"
	show := documents(func(_ Place, _ *http.Request, doc any) any {
		if o, ok := doc.(map[string]any); ok && o["@Redfish.Settings"] == nil {
			o["@Redfish.Settings"] = map[string]any{"SettingsObject": link(at)}
		}
		return doc
	})(p)
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch {
		case cleanPath(r.URL.Path) == at:
			r.URL.Path = p.Path
			next.ServeHTTP(w, r)
		case p.is(r) && r.Method == http.MethodPatch:
			sendJSON(w, http.StatusMethodNotAllowed, refusal("Base.1.8.OperationNotAllowed", "The HTTP method is not allowed on this resource."))
		default:
			show(w, r, next)
		}
	}
}

// stale shows the whole service as it was for a time after an order of the place.
func stale(long time.Duration) func(Place) serveFunc {
	return func(p Place) serveFunc {
		cache := staleCache{}
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			switch {
			case r.Method == http.MethodGet:
				cache.read(w, r, next)
			case p.is(r) && isOrder(r):
				cache.freeze(long)
				next.ServeHTTP(w, r)
			default:
				next.ServeHTTP(w, r)
			}
		}
	}
}

// sessionAnswer changes the answer to a login.
func sessionAnswer(change func(header http.Header, body map[string]any, r *http.Request) int) func(Place) serveFunc {
	return func(Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method != http.MethodPost || !isSession(r) {
				next.ServeHTTP(w, r)
				return
			}
			a := ask(r, next)
			if a.Code >= 300 {
				send(w, a.Code, a.Header(), a.Body.Bytes())
				return
			}
			header := maps.Clone(a.Header())
			at := header.Get("Location")
			body := map[string]any{"@odata.id": at, "Id": lastSegment(at), "Name": "Session"}
			status := change(header, body, r)
			text := []byte{}
			if len(body) > 0 {
				text, _ = json.Marshal(body)
				header.Set("Content-Type", "application/json")
			}
			send(w, status, header, text)
		}
	}
}

func location(change func(string) string) func(Place) serveFunc {
	return sessionAnswer(func(header http.Header, body map[string]any, _ *http.Request) int {
		if at := change(header.Get("Location")); at != "" {
			header.Set("Location", at)
		} else {
			header.Del("Location")
		}
		return http.StatusCreated
	})
}

var sessionKinds = []*BMCKind{
	{Name: "session: Location in the body alone", Source: "openbmc 3353", Scope: ScopeSession, serve: location(func(string) string { return "" })},
	{Name: "session: relative Location", Source: "nv-redfish PR 125", Scope: ScopeSession, serve: location(func(at string) string { return "Sessions/" + lastSegment(at) })},
	{Name: "session: Location without first slash", Source: "nv-redfish PR 125", Scope: ScopeSession, serve: location(func(at string) string { return strings.TrimLeft(at, "/") })},
	{Name: "session: Location at an unknown host", Source: "BMCs behind a proxy", Scope: ScopeSession, serve: location(func(at string) string { return unknownHost + at })},
	{Name: "session: Location with a slash at its end", Source: "Supermicro", Scope: ScopeSession, serve: location(func(at string) string { return at + "/" })},
	{Name: "session: Location that is no URL", Source: "hostile", Scope: ScopeSession, serve: location(func(string) string { return "http://[::1%/\t" })},
	{Name: "session: no Location and no body", Source: "old BMCs", Scope: ScopeSession, Leaks: true, serve: sessionAnswer(func(header http.Header, body map[string]any, _ *http.Request) int {
		header.Del("Location")
		clear(body)
		return http.StatusCreated
	})},
	{Name: "session: 200 for the login", Source: "old Huawei", Scope: ScopeSession, serve: sessionAnswer(func(http.Header, map[string]any, *http.Request) int { return http.StatusOK })},
	{Name: "session: no X-Auth-Token", Source: "old BMCs: the token in the body", Scope: ScopeSession, Leaks: true, Cost: CostResource, Words: []string{"X-Auth-Token"},
		serve: sessionAnswer(func(header http.Header, _ map[string]any, _ *http.Request) int {
			header.Del("X-Auth-Token")
			return http.StatusCreated
		})},
	{Name: "session: full for ever", Source: "gofish 75; check_redfish 89", Scope: ScopeSession, Cost: CostResource, Words: []string{"session"}, serve: loginFails(0, func(w http.ResponseWriter) { full(w) })},
	{Name: "session: full for 20 s", Source: "gofish 75; check_redfish 89", Scope: ScopeSession, serve: loginFails(20*time.Second, func(w http.ResponseWriter) { full(w) })},
	{Name: "session: 401 when full, for 20 s", Source: "python-redfish-library 160", Scope: ScopeSession, Cost: CostResource, Words: []string{"session", "401"}, serve: loginFails(20*time.Second, unauthorized)},
	{Name: "session: one 401 for the login", Source: "infra-controller PR 69", Scope: ScopeSession, Cost: CostResource, Words: []string{"session", "401"}, serve: loginFails(time.Millisecond, unauthorized)},
	{Name: "session: forgotten after 3 requests", Source: "BMCs with few sessions", Scope: ScopeSession, serve: forgets(3)},
	{Name: "session: forgotten after 1 request", Source: "BMCs with few sessions", Scope: ScopeSession, Cost: CostResource, Words: []string{"session", "401"}, serve: forgets(1)},
	{Name: "session: DELETE answers 404", Source: "BMCs that forget", Scope: ScopeSession, Leaks: true, serve: logoutFails(http.StatusNotFound)},
	{Name: "session: DELETE answers 405", Source: "old AMI", Scope: ScopeSession, Leaks: true, serve: logoutFails(http.StatusMethodNotAllowed)},
	{Name: "session: DELETE answers 503 once", Source: "many", Scope: ScopeSession, Leaks: true, serve: func(Place) serveFunc {
		return firstTimes(1, func(r *http.Request) bool { return r.Method == http.MethodDelete && isSession(r) }, func(w http.ResponseWriter, _ *http.Request) { busy(w, "1") })(Place{})
	}},
}

func full(w http.ResponseWriter) {
	sendJSON(w, http.StatusServiceUnavailable, refusal("Base.1.8.SessionLimitExceeded", "The session establishment failed due to the number of simultaneous sessions exceeding the limit of the implementation."))
}

// loginFails has logins fail for a time after the first; 0: for ever.
func loginFails(long time.Duration, answer func(http.ResponseWriter)) func(Place) serveFunc {
	return func(Place) serveFunc {
		var first firstTime
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPost && isSession(r) && (first.since() < long || long == 0) {
				answer(w)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

func logoutFails(status int) func(Place) serveFunc {
	return func(Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodDelete && isSession(r) {
				sendJSON(w, status, refusal("Base.1.8.GeneralError", "no"))
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

// forgets has the service forget each session after some requests.
func forgets(after int) func(Place) serveFunc {
	return func(Place) serveFunc {
		used := usage{}
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			token := r.Header.Get("X-Auth-Token")
			if token == "" || isSession(r) {
				next.ServeHTTP(w, r)
				return
			}
			if used.add(token) > after {
				unauthorized(w)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
}

// silence holds a request until its sender gives up.
func silence(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // a server notices the end of a connection only behind the body
	<-r.Context().Done()
}

var slowKinds = []*BMCKind{
	{Name: "slow: each answer after 2 s", Source: "old iDRAC", Scope: ScopeService, serve: func(Place) serveFunc {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			time.Sleep(2 * time.Second)
			next.ServeHTTP(w, r)
		}
	}},
	{Name: "slow: 25 s", Source: "iDRAC: storage inventories", serve: reads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		time.Sleep(25 * time.Second)
		send(w, a.Code, a.Header(), a.Body.Bytes())
	})},
	{Name: "slow: an order takes 25 s", Source: "AMI: insertions", Scope: ScopeOrder, serve: taken(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		time.Sleep(25 * time.Second)
		send(w, a.Code, a.Header(), a.Body.Bytes())
	})},
	{Name: "slow: byte by byte", Source: "serial links between parts", serve: reads(func(w http.ResponseWriter, _ *http.Request, a *httptest.ResponseRecorder) {
		maps.Copy(w.Header(), a.Header())
		w.WriteHeader(a.Code)
		for chunk := range slices.Chunk(a.Body.Bytes(), max(1, a.Body.Len()/5)) {
			_, _ = w.Write(chunk)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
		}
	})},
	{Passes: true, Name: "slow: no answer once", Source: "many", serve: firstTimes(1, isGet, func(_ http.ResponseWriter, r *http.Request) { silence(r) })},
	{Name: "slow: never an answer", Source: "many", Cost: CostResource, Words: []string{"no answer"}, serve: reads(func(_ http.ResponseWriter, r *http.Request, _ *httptest.ResponseRecorder) { silence(r) })},
	{Name: "slow: an order gets no answer", Source: "many", Scope: ScopeOrder, Cost: CostResource, Words: []string{"no answer"}, serve: orders(func(_ http.ResponseWriter, r *http.Request) { silence(r) })},
}
