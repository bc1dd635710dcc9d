package conversation

import (
	"encoding/json"
	"net/url"
	"path"
	"strings"

	"salvor/problem"
)

// Raw is a value as the BMC wrote it; nil: the BMC does not have the property.
type Raw = json.RawMessage

// Link is a reference to another resource. It is read from {"@odata.id": PATH}, and from what careless BMCs write in its place: the bare path,
// {"href": PATH}, or a list of one link.
type Link struct {
	// Path is the reference as the BMC wrote it; empty: there is none.
	Path string `json:"@odata.id"`
}

// UnmarshalJSON reads a link. What is no link is an empty one.
func (l *Link) UnmarshalJSON(text []byte) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	l.Path = LinkIn(v)
	return nil
}

// LinkIn is the reference that a value holds; empty: the value is no link.
func LinkIn(v any) string {
	switch v := v.(type) {
	case string:
		if ref := strings.TrimSpace(v); strings.Contains(ref, "/") {
			return ref
		}
	case []any:
		if len(v) == 1 {
			return LinkIn(v[0])
		}
	case map[string]any:
		for _, name := range []string{"@odata.id", "href", "Uri"} {
			if ref, ok := v[name].(string); ok {
				return strings.TrimSpace(ref)
			}
		}
	}
	return ""
}

// Links is a list of references. It is read from one link in the place of a list too; what is no link is left out.
type Links []Link

// UnmarshalJSON reads a list of links.
func (l *Links) UnmarshalJSON(text []byte) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*l = nil
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, e := range list {
		if ref := LinkIn(e); ref != "" {
			*l = append(*l, Link{ref})
		}
	}
	return nil
}

// resolve makes the path of a request of a reference in the resource at base. Of a URL the path counts, for BMCs name themselves by names
// that only they know. A path without its first slash stands below the resource, or at the root if it begins as the service's paths do.
func resolve(base, ref string) (*url.URL, error) {
	bad := problem.Unavailablef("it links to %q, which is no path on it", ref)
	to, err := url.Parse(strings.TrimSpace(ref))
	switch {
	case err != nil, ref == "", to.Opaque != "", to.Scheme != "" && to.Scheme != "http" && to.Scheme != "https", to.Path == "":
		return nil, bad
	}
	out := &url.URL{Path: to.Path, RawPath: to.RawPath, RawQuery: to.RawQuery, Fragment: to.Fragment}
	switch {
	case strings.HasPrefix(out.Path, "/"):
	case strings.HasPrefix(out.Path, "redfish/"):
		out.Path, out.RawPath = "/"+out.Path, ""
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
	to, err := resolve(base, ref)
	if err != nil {
		return ""
	}
	return to.String()
}

// sameResource is a path without what careless BMCs add to it or leave out.
func sameResource(path string) string { return strings.TrimRight(path, "/") }

// Same tells whether two references on a BMC name one resource.
func Same(a, b string) bool {
	return sameResource(Join(RootPath, a)) == sameResource(Join(RootPath, b))
}

// ToObject makes a JSON object of a struct of texts, numbers, lists and times.
func ToObject(v any) (out map[string]any) {
	text, _ := json.Marshal(v) // such a struct cannot fail
	_ = json.Unmarshal(text, &out)
	return out
}

// FromObject reads what ToObject made.
func FromObject(object, into any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// Size is how many bytes a value has as JSON.
func Size(v any) int {
	text, _ := json.Marshal(v) // a value that was read from JSON cannot fail
	return len(text)
}
