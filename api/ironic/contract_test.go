package ironic_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"salvor/test/must"
)

// contract is the published reference, ready to be held against answers.
var contract = sync.OnceValues(func() (routers.Router, error) {
	doc, err := openapi3.NewLoader().LoadFromFile("../../docs/api/openapi.json")
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	return legacy.NewRouter(doc)
})

// TestContract holds the reference itself to its own form; every other test of this room
// holds its answers to it.
func TestContract(t *testing.T) {
	must.Get(contract())(t)
}

// promised says where an answer is not what the reference says; empty: it is, or the path
// is none of the reference's.
func promised(method, path string, a answer) string {
	router, err := contract()
	if err != nil {
		return err.Error()
	}
	clean := strings.TrimRight(path, "/")
	if method == http.MethodHead || clean == "" {
		return ""
	}
	r := httptest.NewRequest(method, clean, nil)
	route, params, err := router.FindRoute(r)
	if err != nil {
		return "" // no such path or method: the server's answer to it is a test of its own
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 a.Status, Header: a.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	in.SetBodyBytes([]byte(a.Body))
	if err := openapi3filter.ValidateResponse(context.Background(), in); err != nil {
		return err.Error()
	}
	return ""
}
