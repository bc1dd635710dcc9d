package secret_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"salvor/secret"
)

// TestNoFieldPrintsInClear: fmt calls no method of a value in an unexported field.
func TestNoFieldPrintsInClear(t *testing.T) {
	const canary = "CANARY-PLAIN"
	type inner struct{ password secret.Value }
	type holder struct {
		Shown  secret.Value
		hidden secret.Value
		deep   *inner
		flat   inner
		list   []secret.Value
		by     map[string]secret.Value
		any    any
	}
	v := secret.New(canary)
	h := holder{v, v, &inner{v}, inner{v}, []secret.Value{v}, map[string]secret.Value{"a": v}, v}
	var text strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p"} {
		for _, what := range []any{h, &h, []holder{h}, map[string]holder{"x": h}, struct{ err error }{fmt.Errorf("wrapped: %v", h)}} {
			fmt.Fprintf(&text, verb+"\n", what)
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "holder", h, "error", errors.Join(fmt.Errorf("%+v", h)))
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "holder", h)
	for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary)} {
		if all := text.String() + log.String(); strings.Contains(all, form) {
			t.Errorf("printed in clear: %.500s", all)
		}
	}
	if !reflect.DeepEqual(inner{v}, inner{secret.New(canary)}) || reflect.DeepEqual(inner{v}, inner{secret.New("other")}) {
		t.Error("equal secrets are not equal")
	}
}
