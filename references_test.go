package salvor

import (
	"go/ast"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"salvor/test/must"
)

var (
	// sourcePath is the name of a file as a comment or a page writes it, of the kinds that only the project itself has.
	sourcePath = regexp.MustCompile(`(?:^|[\s("'\x60])((?:\.\./|\./)?[\w-][\w.-]*(?:/[\w.-]+)*\.(?:go|md|txtar|sh|sql))\b`)
	// qualifiedName is an exported name with its package.
	qualifiedName = regexp.MustCompile(`(?:^|[\s("'\x60\[*&])([a-z][a-z0-9]*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
)

// projectFiles are the paths of all files of the project, and the bases of those paths.
func projectFiles(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	must.OK(t, fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (d.Name() == ".git" || slices.Contains([]string{"bin", "build"}, name)):
			return fs.SkipDir
		case !d.IsDir():
			all[name], all[path.Base(name)] = true, true
		}
		return nil
	}))
	return all
}

// TestPathsInProse: each file of the project that a comment or a page names exists.
func TestPathsInProse(t *testing.T) {
	files := projectFiles(t)
	check := func(where, folder, text string) {
		for _, m := range sourcePath.FindAllStringSubmatch(text, -1) {
			if name := m[1]; !files[path.Clean(name)] && !files[path.Join(folder, name)] {
				t.Errorf("%s names %s, which does not exist", where, name)
			}
		}
	}
	for folder, all := range sources(t) {
		for _, f := range all {
			for _, comment := range f.tree.Comments {
				check(f.set.Position(comment.Pos()).String(), folder, comment.Text())
			}
		}
	}
	for name, page := range pages(t) {
		check(name, path.Dir(name), page)
	}
}

// packageMembers are the declared names of all packages, by the package's name: of two packages that share a name, both count. A member of a
// type is Type.Member.
func packageMembers(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, files := range sources(t) {
		for _, f := range files {
			name := strings.TrimSuffix(f.tree.Name.Name, "_test")
			if name == "main" {
				continue
			}
			if all[name] == nil {
				all[name] = map[string]bool{}
			}
			for _, d := range declarations("", f) {
				if d.receiver == "" {
					all[name][d.name] = true
				} else {
					all[name][d.receiver+"."+d.name] = true
				}
			}
			ast.Inspect(f.tree, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok {
					addMembers(all[name], spec)
				}
				return true
			})
		}
	}
	return all
}

func addMembers(all map[string]bool, spec *ast.TypeSpec) {
	var fields *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			all[spec.Name.Name+"."+name.Name] = true
		}
	}
}

// TestNamesInComments: each exported name of a package of the project that a comment mentions is declared.
func TestNamesInComments(t *testing.T) {
	members := packageMembers(t)
	for _, files := range sources(t) {
		for _, f := range files {
			for _, comment := range f.tree.Comments {
				for _, m := range qualifiedName.FindAllStringSubmatch(comment.Text(), -1) {
					own, known := members[m[1]]
					if !known || importsForeign(f, m[1]) {
						continue
					}
					if !own[m[2]] || m[3] != "" && !own[m[2]+"."+m[3]] {
						t.Errorf("%s names %s, which is not declared", f.set.Position(comment.Pos()), strings.Trim(m[0], " \n\t(\"'`[*&"))
					}
				}
			}
		}
	}
}

// mixedCaps is a first word that can only be a name.
var mixedCaps = regexp.MustCompile(`^[a-z]+[A-Z]\w*`)

// TestDocCommentsNameTheirSubject: a comment on a function or a type that begins with a name begins with the name of what it is about.
func TestDocCommentsNameTheirSubject(t *testing.T) {
	for _, files := range sources(t) {
		for _, f := range files {
			check := func(doc *ast.CommentGroup, name string) {
				if first := mixedCaps.FindString(doc.Text()); first != "" && first != name {
					t.Errorf("%s: the comment on %s begins with %s", f.set.Position(doc.Pos()), name, first)
				}
			}
			for _, d := range f.tree.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					check(d.Doc, d.Name.Name)
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						if spec, ok := spec.(*ast.TypeSpec); ok && len(d.Specs) == 1 {
							check(d.Doc, spec.Name.Name)
						}
					}
				}
			}
		}
	}
}

// importsForeign tells whether a file imports a package of that name that is not of the project.
func importsForeign(f file, name string) bool {
	return slices.ContainsFunc(f.imports, func(i string) bool { return path.Base(i) == name && !strings.HasPrefix(i, module) })
}
