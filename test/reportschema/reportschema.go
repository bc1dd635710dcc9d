// Package reportschema holds reports of diagnoses to their published schema, docs/api/diagnosis.json.
package reportschema

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"salvor/test/must"
)

// schemaFile is where the schema lies below the root of the module.
const schemaFile = "docs/api/diagnosis.json"

// schemaPath finds it from the folder of any package.
func schemaPath() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil || folder == filepath.Dir(folder) {
			return filepath.Join(folder, schemaFile), err
		}
		folder = filepath.Dir(folder)
	}
}

var loadSchemas = sync.OnceValues(func() (openapi3.Schemas, error) {
	path, err := schemaPath()
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	// A client takes fields of later releases, and the tests of this one do not.
	no := false
	for _, schema := range doc.Components.Schemas {
		schema.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: &no}
	}
	return doc.Components.Schemas, doc.Validate(context.Background())
})

// Check wants a value of JSON to be what the schema of that name says: no field is missing, and none is not described.
func Check(t testing.TB, schema string, raw []byte) {
	t.Helper()
	schemas := must.Get(loadSchemas())(t)
	if schemas[schema] == nil {
		t.Fatalf("%s has no schema %s", schemaFile, schema)
	}
	var value any
	must.OK(t, json.Unmarshal(raw, &value))
	if err := schemas[schema].Value.VisitJSON(value, openapi3.MultiErrors()); err != nil {
		t.Errorf("it is no %s of %s: %v", schema, schemaFile, err)
	}
}
