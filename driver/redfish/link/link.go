// Package link reads references as standards, proxies and careless vendors write them, and resolves them against the service.
package link

import (
	"errors"
	"net/url"
	"path"
	"strings"

	"salvor/wire/loose"
)

// RootPath is the path of the service root.
const RootPath = "/redfish/v1/"

// Link is a reference to another resource. It is read from {"@odata.id": PATH}, and from what careless BMCs write in its place: the bare path,
// {"href": PATH}, or a list of one link.
type Link struct {
	// Path is the reference as the BMC wrote it; empty: there is none.
	Path string `json:"@odata.id"`
}

// reference has the members of an object that may hold a reference, the preferred first. Objects that hold more are not decoded whole.
type reference struct {
	ID   any `json:"@odata.id"`
	Href any `json:"href"`
	URI  any `json:"Uri"`
}

// UnmarshalJSON reads a link. What is no link is an empty one.
func (l *Link) UnmarshalJSON(text []byte) error {
	if text[0] == '{' {
		var r reference
		_, err := loose.Decode(text, &r)
		l.Path = inObject(r.ID, r.Href, r.URI)
		return err
	}
	var v any
	if err := read(text, &v); err != nil {
		return err
	}
	l.Path = In(v)
	return nil
}

// In is the reference that a value holds; empty: the value is no link.
func In(v any) string {
	switch v := v.(type) {
	case string:
		if ref := strings.TrimSpace(v); strings.Contains(ref, "/") && !strings.EqualFold(ref, "n/a") && !strings.ContainsAny(ref, " []{}<>\"") {
			return ref
		}
	case []any:
		if len(v) == 1 {
			return In(v[0])
		}
	case map[string]any:
		return inObject(v["@odata.id"], v["href"], v["Uri"])
	}
	return ""
}

// inObject is the reference that the members of an object hold.
func inObject(values ...any) string {
	for _, v := range values {
		if ref, ok := v.(string); ok && !strings.ContainsAny(strings.TrimSpace(ref), " []{}<>\"") {
			return strings.TrimSpace(ref)
		}
	}
	return ""
}

// Links is a list of references. It is read from one link in the place of a list too; what is no link is left out.
type Links []Link

// UnmarshalJSON reads a list of links.
func (l *Links) UnmarshalJSON(text []byte) error {
	var v any
	if err := read(text, &v); err != nil {
		return err
	}
	*l, _ = ListIn(v)
	return nil
}

// ListIn are the references of a list, and how many of its elements are none; -1: the value is no list.
func ListIn(v any) (out Links, left int) {
	list, ok := v.([]any)
	if !ok {
		if ref := In(v); ref != "" || v == nil {
			return append(out, Link{ref})[:min(1, len(ref))], 0
		}
		return nil, -1
	}
	for _, e := range list {
		if ref := In(e); ref != "" {
			out = append(out, Link{ref})
		} else {
			left++
		}
	}
	return out, left
}

// ErrNoPath is the error of a reference that leads to nothing on the BMC.
var ErrNoPath = errors.New("no path on the BMC")

// maxLength bounds a reference in bytes. Many BMCs repeat the path of a request in a header, which must not become longer than a client reads.
const maxLength = 4096

// Resolve makes the path of a request of a reference in the resource at base. Of a URL the path counts, for BMCs name themselves by names
// that only they know. A path without its first slash is relative as RFC 3986 says, but stands at the root if it begins as the service's paths
// do, and below the resource if it is a bare name.
func Resolve(base, ref string) (*url.URL, error) {
	to, err := url.Parse(strings.TrimSpace(ref))
	switch {
	case err != nil, len(ref) > maxLength, ref == "", to.Opaque != "", to.Scheme != "" && to.Scheme != "http" && to.Scheme != "https", to.Path == "" && (to.RawQuery == "" || to.Host != ""):
		return nil, ErrNoPath
	}
	out := &url.URL{Path: to.Path, RawQuery: to.RawQuery, Fragment: to.Fragment}
	if strings.Contains(strings.ToLower(to.RawPath), "%2f") { // a slash in a name
		out.RawPath = to.RawPath
	}
	switch {
	case out.Path == "": // a query alone asks the resource itself
		out.Path, _, _ = strings.Cut(base, "?")
	case strings.HasPrefix(out.Path, "/"):
	case strings.HasPrefix(out.Path, "redfish/"):
		out.Path, out.RawPath = "/"+out.Path, ""
	case strings.HasPrefix(out.Path, path.Base(base)+"/"):
		out.Path, out.RawPath = path.Dir(strings.TrimRight(base, "/"))+"/"+out.Path, ""
	case strings.Contains(strings.TrimRight(out.Path, "/"), "/"):
		out.Path, out.RawPath = base[:strings.LastIndexByte(base, '/')+1]+out.Path, ""
	default:
		out.Path, out.RawPath = strings.TrimRight(base, "/")+"/"+out.Path, ""
	}
	if strings.Contains(out.Path, "/..") || strings.Contains(out.Path, "//") {
		slash := strings.HasSuffix(out.Path, "/")
		if out.Path, out.RawPath = path.Clean(out.Path), ""; slash && out.Path != "/" {
			out.Path += "/"
		}
	}
	return out, nil
}

// Join is the path of a reference that stands in the resource at base; empty: it is no path on the BMC.
func Join(base, ref string) string {
	to, err := Resolve(base, ref)
	if err != nil {
		return ""
	}
	return to.String()
}

// Trim is a path without what careless BMCs add to it or leave out.
func Trim(path string) string { return strings.TrimRight(path, "/") }

// ID is the name of a resource: the last part of its path.
func ID(ref string) string {
	to, err := Resolve(RootPath, ref)
	if err != nil {
		return ""
	}
	return path.Base(to.Path)
}

// Same tells whether two references on a BMC name one resource.
func Same(a, b string) bool {
	return Trim(Join(RootPath, a)) == Trim(Join(RootPath, b))
}

func read(text []byte, v *any) error {
	_, err := loose.Decode(text, v)
	return err
}
