package salvor

import (
	"go/ast"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"salvor/test/must"
)

// storedNames are the names that the programs may store or send, by the first folder of their package.
type storedNames struct {
	literals map[string]bool            // in any package, because a key may be declared elsewhere than it is used
	jsonKeys map[string]map[string]bool // tags of fields, and literals, because some JSON is written by hand
}

func namesToday(t *testing.T) storedNames {
	t.Helper()
	out := storedNames{map[string]bool{}, map[string]map[string]bool{}}
	for folder, files := range sources(t) {
		top, _, _ := strings.Cut(folder, "/")
		if top == "test" {
			continue
		}
		if out.jsonKeys[top] == nil {
			out.jsonKeys[top] = map[string]bool{}
		}
		for _, f := range files {
			if f.test {
				continue
			}
			ast.Inspect(f.tree, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Field:
					if n.Tag != nil {
						key, _, _ := strings.Cut(reflect.StructTag(unquoted(n.Tag)).Get("json"), ",")
						out.jsonKeys[top][key] = true
					}
				case *ast.BasicLit:
					if n.Kind == token.STRING {
						out.literals[unquoted(n)], out.jsonKeys[top][unquoted(n)] = true, true
					}
				}
				return true
			})
		}
	}
	return out
}

func unquoted(l *ast.BasicLit) string {
	text, err := strconv.Unquote(l.Value)
	if err != nil {
		return l.Value
	}
	return text
}

// qemuOutput are keys of what qemu-img prints: the program that reads it may change, because nothing stores it.
var qemuOutput = []string{"backing-filename", "format-specific", "virtual-size"}

// TestFormerNamesAreKnown: the programs still read and write each name that the former release stores or sends. A renamed constant or
// field keeps its value or its JSON key; a name whose value changes needs a reader of the former value, and the literal is in that reader.
func TestFormerNamesAreKnown(t *testing.T) {
	text := must.Get(os.ReadFile("testdata/former_names.txt"))(t)
	today, checked := namesToday(t), 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		what, names, _ := strings.Cut(strings.TrimSpace(line), " | ")
		kind, folder, _ := strings.Cut(what, " ")
		top, _, _ := strings.Cut(folder, "/")
		for name := range strings.SplitSeq(names, ", ") {
			checked++
			known := today.literals[name] || today.literals[name+" "] // the second is the head of a key that ends in an id
			if kind == "json" {
				known = today.jsonKeys[top][name] || slices.Contains(qemuOutput, name)
			}
			if !known {
				t.Errorf("no program knows the name %q that the former release has as a %s", name, what)
			}
		}
	}
	if checked < 1000 {
		t.Errorf("testdata/former_names.txt has %d names", checked)
	}
}
