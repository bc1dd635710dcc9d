package conversation

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"salvor/driver/redfish/link"
)

// Raw is a value as the BMC wrote it; nil: the BMC does not have the property.
type Raw = json.RawMessage

// linkNames are the members of a document that hold references.
var linkNames = []string{"@odata.id", "@odata.nextLink", "Members@odata.nextLink", "@Redfish.ActionInfo", "target", "href"}

// hasRelative tells whether a document has a reference that is no path from the root.
func hasRelative(text []byte) bool {
	for _, name := range linkNames {
		for rest := text; ; {
			_, after, found := bytes.Cut(rest, []byte(`"`+name+`"`))
			if !found {
				break
			}
			rest = after
			value := bytes.TrimLeft(after, " \t\r\n:")
			if len(value) > 1 && value[0] == '"' && value[1] != '/' && value[1] != '"' {
				return true
			}
		}
	}
	return false
}

// withPaths is a document whose references are paths from the root; base is the path that was asked for. A document that names itself by the same path but
// for a slash at the end means its own name: a service that redirects each path to the path with a slash does not write its references for that.
func withPaths(text []byte, base string) []byte {
	var doc any
	if json.Unmarshal(text, &doc) != nil {
		return text
	}
	if o, ok := doc.(map[string]any); ok {
		if own, _ := o["@odata.id"].(string); strings.HasPrefix(own, "/") && link.Trim(own) == link.Trim(base) {
			base = own
		}
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for name, e := range v {
				if ref, ok := e.(string); ok && slices.Contains(linkNames, name) {
					if path := link.Join(base, ref); path != "" {
						v[name] = path
					}
				}
				walk(e)
			}
		}
	}
	walk(doc)
	out, err := json.Marshal(doc)
	if err != nil {
		return text
	}
	return out
}
