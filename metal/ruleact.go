package metal

import (
	"reflect"
	"slices"
	"strings"

	"salvor/problem"
)

var (
	setShape    = argumentShape{required: []string{"path", "value"}, filled: []string{"value"}}
	extendShape = argumentShape{required: []string{"path", "value"}, optional: []string{"unique"}, filled: []string{"value"}}
	nameShape   = argumentShape{required: []string{"name"}}
)

// actionShapes are the actions that rules know. Ironic's api-call is not among them: it
// would let whoever writes rules send requests from inside of the control plane.
var actionShapes = map[string]argumentShape{
	"fail":                  {required: []string{"msg"}},
	"log":                   {required: []string{"msg"}, optional: []string{"level"}, filled: []string{"msg"}, check: checkLevel},
	"set-attribute":         withCheck(setShape, checkNodePath),
	"extend-attribute":      withCheck(extendShape, checkNodePath),
	"del-attribute":         withCheck(pathShape, checkNodePath),
	"set-capability":        {required: []string{"name", "value"}, filled: []string{"value"}},
	"unset-capability":      nameShape,
	"add-trait":             withCheck(nameShape, checkTraitName),
	"remove-trait":          nameShape,
	"set-plugin-data":       setShape,
	"extend-plugin-data":    extendShape,
	"unset-plugin-data":     pathShape,
	"set-port-attribute":    withPort(setShape),
	"extend-port-attribute": withPort(extendShape),
	"del-port-attribute":    withPort(pathShape),
}

func withCheck(s argumentShape, check func(Object) error) argumentShape {
	s.check = check
	return s
}

func withPort(s argumentShape) argumentShape {
	s.required = slices.Insert(slices.Clone(s.required), 0, "port_id")
	return withCheck(s, checkPortPath)
}

var ruleLevels = []string{"debug", "info", "warning", "error", "critical"}

func checkLevel(a Object) error {
	if v, ok := a["level"]; ok {
		if word, _ := v.(string); !slices.Contains(ruleLevels, strings.ToLower(word)) {
			return problem.Invalidf("level must be one of %s", strings.Join(ruleLevels, ", "))
		}
	}
	return nil
}

func checkTraitName(a Object) error {
	word, _ := a["name"].(string)
	return CheckTrait(word)
}

func checkNodePath(a Object) error { _, err := rulePath(ruleNodeAttrs, a["path"]); return err }
func checkPortPath(a Object) error { _, err := rulePath(rulePortAttrs, a["path"]); return err }

// rulePath splits a path with slashes or dots; its first part must be a known attribute.
func rulePath[T any](attrs map[string]ruleAttr[T], v any) ([]string, error) {
	parts, err := splitPath(v)
	if err != nil {
		return nil, err
	}
	if _, ok := attrs[parts[0]]; !ok {
		return nil, problem.Invalidf("a rule cannot change the attribute %.60q; it can change %s", parts[0], strings.Join(sortedKeys(attrs), ", "))
	}
	return parts, nil
}

func splitPath(v any) ([]string, error) {
	path, _ := v.(string)
	sep := "."
	if strings.Contains(path, "/") {
		path, sep = strings.Trim(path, "/"), "/"
	}
	parts := strings.Split(path, sep)
	if slices.Contains(parts, "") || len(parts) > 20 || len(path) > 1024 {
		return nil, problem.Invalidf("path %.60q is not valid: want attribute or attribute/key", path)
	}
	return parts, nil
}

var actions = map[string]func(*Findings, Object) error{
	"fail": func(_ *Findings, a Object) error { return problem.Invalidf("%.1000s", pythonText(a["msg"])) },
	"log": func(f *Findings, a Object) error {
		if err := checkLevel(a); err != nil {
			return err
		}
		level, _ := a["level"].(string)
		if level == "" {
			level = "info"
		}
		f.Notes = append(f.Notes, RuleNote{strings.ToLower(level), pythonText(a["msg"])})
		return nil
	},
	"set-attribute":         func(f *Findings, a Object) error { return editAttribute(ruleNodeAttrs, f.Node, a, setAt) },
	"extend-attribute":      func(f *Findings, a Object) error { return editAttribute(ruleNodeAttrs, f.Node, a, extendAt) },
	"del-attribute":         func(f *Findings, a Object) error { return editAttribute(ruleNodeAttrs, f.Node, a, deleteAt) },
	"set-capability":        func(f *Findings, a Object) error { return setCapability(f.Node, a["name"], a["value"], false) },
	"unset-capability":      func(f *Findings, a Object) error { return setCapability(f.Node, a["name"], nil, true) },
	"add-trait":             addTrait,
	"remove-trait":          removeTrait,
	"set-plugin-data":       func(f *Findings, a Object) error { return editPlugin(f, a, setAt) },
	"extend-plugin-data":    func(f *Findings, a Object) error { return editPlugin(f, a, extendAt) },
	"unset-plugin-data":     func(f *Findings, a Object) error { return editPlugin(f, a, deleteAt) },
	"set-port-attribute":    func(f *Findings, a Object) error { return editPort(f, a, setAt) },
	"extend-port-attribute": func(f *Findings, a Object) error { return editPort(f, a, extendAt) },
	"del-port-attribute":    func(f *Findings, a Object) error { return editPort(f, a, deleteAt) },
}

// attributeEdit edits an object at a key: set, extend or delete.
type attributeEdit func(o Object, key string, args Object) error

func setAt(o Object, key string, a Object) error {
	o[key] = a["value"]
	return nil
}

func extendAt(o Object, key string, a Object) error {
	list, ok := o[key].([]any)
	if !ok && o[key] != nil {
		return problem.Invalidf("%.60q is no list, so it cannot be extended", key)
	}
	unique, _ := a["unique"].(bool)
	if unique && slices.ContainsFunc(list, func(e any) bool { return reflect.DeepEqual(e, a["value"]) }) {
		return nil
	}
	o[key] = append(slices.Clone(list), a["value"])
	return nil
}

// deleteAt is content with nothing to delete, else a second inspection of a node would fail.
func deleteAt(o Object, key string, _ Object) error {
	delete(o, key)
	return nil
}

// editBelow walks to the object of the path's last part, making those on the way, and changes it.
func editBelow(o Object, parts []string, a Object, do attributeEdit) error {
	for _, key := range parts[:len(parts)-1] {
		switch next := o[key].(type) {
		case nil:
			made := Object{}
			o[key], o = made, made
		case map[string]any:
			o = next
		default:
			return problem.Invalidf("%.60q is no object", key)
		}
	}
	return do(o, parts[len(parts)-1], a)
}

// editAttribute changes an attribute of a node or a port. It works on a copy, so that a failed
// change leaves nothing half done.
func editAttribute[T any](attrs map[string]ruleAttr[T], r *T, a Object, do attributeEdit) error {
	parts, err := rulePath(attrs, a["path"])
	if err != nil {
		return err
	}
	attr := attrs[parts[0]]
	doc := Object{parts[0]: copyValue(attr.get(r))}
	if err := editBelow(doc, parts, a, do); err != nil {
		return err
	}
	if err := attr.set(r, copyValue(doc[parts[0]])); err != nil {
		return problem.Invalidf("%s: %w", parts[0], err)
	}
	return nil
}

func editPlugin(f *Findings, a Object, do attributeEdit) error {
	parts, err := splitPath(a["path"])
	if err != nil {
		return err
	}
	doc, _ := copyValue(f.Plugin).(map[string]any)
	if err := editBelow(doc, parts, a, do); err != nil {
		return err
	}
	f.Plugin = doc
	return nil
}

func editPort(f *Findings, a Object, do attributeEdit) error {
	id, _ := a["port_id"].(string)
	i := slices.IndexFunc(f.Ports, func(p *Port) bool { return p.ID == id })
	if i < 0 {
		return problem.Invalidf("the node has no port %.60q", id)
	}
	if !slices.Contains(f.Touched, id) {
		f.Touched = append(f.Touched, id)
	}
	return editAttribute(rulePortAttrs, f.Ports[i], a, do)
}

func addTrait(f *Findings, a Object) error {
	if err := checkTraitName(a); err != nil {
		return err
	}
	name := a["name"].(string)
	if slices.Contains(f.Node.Traits, name) {
		return nil
	}
	if len(f.Node.Traits) >= 50 {
		return problem.Invalidf("Node %s can not have more than 50 traits", f.Node.ID)
	}
	traits := append(slices.Clone(f.Node.Traits), name)
	slices.Sort(traits)
	f.Node.Traits = traits
	return nil
}

func removeTrait(f *Findings, a Object) error {
	name := pythonText(a["name"])
	f.Node.Traits = slices.DeleteFunc(slices.Clone(f.Node.Traits), func(t string) bool { return t == name })
	return nil
}

// setCapability edits properties.capabilities, a text such as "boot_mode:uefi,raid:true".
func setCapability(n *Node, key, value any, drop bool) error {
	name := pythonText(key)
	word := pythonText(value)
	if name == "" || strings.ContainsAny(name+word, ",") || strings.Contains(name, ":") {
		return problem.Invalidf("the capability %.60q or its value cannot be written down: no commas, no colon in the name", name)
	}
	properties, _ := copyValue(n.Properties).(map[string]any)
	if properties == nil {
		properties = Object{}
	}
	var remaining []string
	for pair := range strings.SplitSeq(formatScalar(properties["capabilities"]), ",") {
		if k, _, _ := strings.Cut(pair, ":"); strings.TrimSpace(pair) != "" && strings.TrimSpace(k) != name {
			remaining = append(remaining, pair)
		}
	}
	if !drop {
		remaining = append(remaining, name+":"+word)
	}
	if properties["capabilities"] = strings.Join(remaining, ","); len(remaining) == 0 {
		delete(properties, "capabilities")
	}
	n.Properties = properties
	return nil
}

// copyValue copies decoded JSON in depth.
func copyValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return nil
		}
		out := make(Object, len(v))
		for k, e := range v {
			out[k] = copyValue(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = copyValue(e)
		}
		return out
	}
	return v
}
