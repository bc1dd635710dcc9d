package ironic

import (
	"testing"

	"salvor/problem"
	"salvor/secret"
)

// TestAMaskOfItemsAlikeIsRefused: which of two secrets a mask stands for cannot be known.
func TestAMaskOfItemsAlikeIsRefused(t *testing.T) {
	item := func(password string) any { return map[string]any{"name": "a", "password": password} }
	if err := secretKeys.keepList("/extra/list", []any{item(secret.Mask)}, []any{item("one"), item("two")}); !problem.Is(err, problem.Invalid) {
		t.Errorf("two secrets: %v", err)
	}
	list := []any{item(secret.Mask)}
	if err := secretKeys.keepList("/extra/list", list, []any{item("one"), item("one")}); err != nil || list[0].(map[string]any)["password"] != "one" {
		t.Errorf("one secret twice: %v, %v", list, err)
	}
}
