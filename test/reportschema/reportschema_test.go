package reportschema

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3gen"

	"salvor/diagnose"
	"salvor/metal"
	"salvor/test/must"
)

var update = flag.Bool("update", false, "write docs/api/diagnosis.json again")

// allowedValues are those of types that are strings. A diagnosis that runs has no outcome yet, and a verdict without a cause no stage.
var allowedValues = map[reflect.Type][]any{
	reflect.TypeFor[diagnose.State]():     {diagnose.Running, diagnose.Finished, diagnose.Failed},
	reflect.TypeFor[diagnose.Outcome]():   {diagnose.Outcome(""), diagnose.CauseFound, diagnose.NothingFound, diagnose.Works, diagnose.FormerOutcomes()[0], diagnose.FormerOutcomes()[1]},
	reflect.TypeFor[diagnose.Coverage]():  {diagnose.Examined, diagnose.Partly, diagnose.NotExamined},
	reflect.TypeFor[diagnose.ProofKind](): {diagnose.ProofLogin, diagnose.ProofSSHD, diagnose.ProofPerson},
	reflect.TypeFor[diagnose.Severity]():  {diagnose.BlocksBoot, diagnose.BlocksAccess, diagnose.Degrades, diagnose.Info},
	reflect.TypeFor[diagnose.Consent]():   {diagnose.ConsentSettings, diagnose.ConsentFiles, diagnose.ConsentBoot, diagnose.ConsentData},
	reflect.TypeFor[diagnose.EvidenceKind](): {
		diagnose.FromFile, diagnose.FromTool, diagnose.FromDevice, diagnose.FromConsole, diagnose.FromEventLog, diagnose.FromBMC, diagnose.FromRecord,
	},
}

// TestSchemaIsCurrent: docs/api/diagnosis.json is what the types say.
func TestSchemaIsCurrent(t *testing.T) {
	made := describe(t)
	path := must.Get(schemaPath())(t)
	if *update {
		must.OK(t, os.WriteFile(path, made, 0o644))
	}
	if !bytes.Equal(must.Get(os.ReadFile(path))(t), made) {
		t.Errorf("%s is not what the types say: run make api", schemaFile)
	}
}

// TestCheckRefuses: a report with an unknown field, a missing one or another value is none.
func TestCheckRefuses(t *testing.T) {
	report := diagnose.Report{Findings: []diagnose.Finding{{ID: "disk-full", Stage: diagnose.Root, Severity: diagnose.Info, Evidence: []diagnose.Evidence{{Kind: diagnose.FromFile}}}}}
	report.Judge()
	good := must.Get(json.Marshal(report))(t)
	Check(t, "Report", good)
	for _, change := range [][2]string{{`"id":`, `"identity":`}, {`"findings":`, `"more":1,"findings":`}, {`"info"`, `"none"`}, {`"confidence":0`, `"confidence":"low"`}, {`"root"`, `"cellar"`}} {
		bad := strings.Replace(string(good), change[0], change[1], 1)
		var value any
		must.OK(t, json.Unmarshal([]byte(bad), &value))
		if bad == string(good) || must.Get(loadSchemas())(t)["Report"].Value.VisitJSON(value) == nil {
			t.Errorf("%s is taken: %s", change[1], bad)
		}
	}
}

// describe writes the document: an answer about a node, one about a server, and the list of both.
func describe(t *testing.T) []byte {
	t.Helper()
	stages := []any{}
	for _, s := range diagnose.Stages() {
		stages = append(stages, s)
	}
	comments := readComments(t, "diagnose", "metal")
	customize := func(_ string, of reflect.Type, _ reflect.StructTag, s *openapi3.Schema) error {
		if values, ok := allowedValues[of]; ok {
			s.Enum = values
		}
		if of == reflect.TypeFor[diagnose.Stage]() {
			s.Enum = stages
		}
		if of.Kind() == reflect.Slice {
			s.Nullable = true // Go writes an empty list so where nothing has been added yet
		}
		if of.Kind() == reflect.Struct && of != reflect.TypeFor[time.Time]() {
			s.Required = requiredFields(of)
			s.Description = comments[of.Name()]
			for _, f := range reflect.VisibleFields(of) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if p := s.Properties[name]; p != nil && !strings.HasPrefix(p.Ref, "#/") {
					p.Value.Description = fieldComment(comments, of, f)
				}
			}
		}
		return nil
	}
	schemas := openapi3.Schemas{}
	generator := openapi3gen.NewGenerator(openapi3gen.SchemaCustomizer(customize), openapi3gen.CreateTypeNameGenerator(schemaName), openapi3gen.CreateComponentSchemas(openapi3gen.ExportComponentSchemasOptions{ExportComponentSchemas: true, ExportTopLevelSchema: true}))
	for _, value := range []any{metal.Diagnosis{}, diagnose.Record{}} {
		must.Get(generator.NewSchemaRefForValue(value, schemas))(t)
	}
	type object = map[string]any
	answer := func(schema string) object {
		return object{"get": object{
			"summary": "Show a diagnosis; the id newest is the newest.", "parameters": []any{
				object{"name": "ident", "in": "path", "required": true, "schema": object{"type": "string"}}, object{"name": "id", "in": "path", "required": true, "schema": object{"type": "string"}},
			},
			"responses": object{
				"200": object{"description": "The diagnosis with its report.", "content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/" + schema}}}},
				"403": object{"description": "The asker may not rescue it."}, "404": object{"description": "There is no such diagnosis."},
			},
		}}
	}
	out := must.Get(json.MarshalIndent(object{
		"openapi": "3.0.3", "info": object{"title": "Diagnoses of salvor", "version": "1", "description": "Later releases may add fields, ids of findings, and values of enumerations."},
		"paths":      object{"/salvor/v1/nodes/{ident}/diagnoses/{id}": answer("NodeDiagnosis"), "/salvor/v1/servers/{ident}/diagnoses/{id}": answer("ServerDiagnosis")},
		"components": object{"schemas": schemas},
	}, "", " "))(t)
	return append(out, '\n')
}

// schemaName tells the two kinds of diagnoses apart.
func schemaName(of reflect.Type) string {
	switch of {
	case reflect.TypeFor[metal.Diagnosis]():
		return "NodeDiagnosis"
	case reflect.TypeFor[diagnose.Record]():
		return "ServerDiagnosis"
	}
	return of.Name()
}

// requiredFields are the fields of a type in JSON that are never left out, in their order.
func requiredFields(of reflect.Type) []string {
	var out []string
	for _, f := range reflect.VisibleFields(of) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && !strings.Contains(options, "omit") {
			out = append(out, name)
		}
	}
	return out
}

// fieldComment is what the source says of a field; of is the type, which may have the field from an embedded one.
func fieldComment(comments map[string]string, of reflect.Type, f reflect.StructField) string {
	for _, i := range f.Index[:len(f.Index)-1] {
		of = of.Field(i).Type
	}
	return comments[of.Name()+"."+f.Name]
}

// readComments are those of types and of their fields, by TYPE and TYPE.FIELD.
func readComments(t *testing.T, packages ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	note := func(name string, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
				out[name] = text
			}
		}
	}
	for _, folder := range packages {
		files := must.Get(filepath.Glob(filepath.Join("../..", folder, "*.go")))(t)
		for _, name := range files {
			file := must.Get(parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments))(t)
			for _, decl := range file.Decls {
				group, ok := decl.(*ast.GenDecl)
				if !ok || group.Tok != token.TYPE {
					continue
				}
				for _, spec := range group.Specs {
					of := spec.(*ast.TypeSpec)
					note(of.Name.Name, group.Doc, of.Doc)
					fields, ok := of.Type.(*ast.StructType)
					if !ok {
						continue
					}
					for _, f := range fields.Fields.List {
						for _, n := range f.Names {
							note(of.Name.Name+"."+n.Name, f.Comment, f.Doc)
						}
					}
				}
			}
		}
	}
	return out
}
