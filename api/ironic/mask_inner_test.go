package ironic

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"salvor/secret"
	"salvor/test/must"
)

// shownItem is an item of a list with a secret, at the top or below.
func shownItem(r *rapid.T) any {
	item := map[string]any{"url": rapid.SampledFrom([]string{"a", "b"}).Draw(r, "url")}
	password := rapid.SampledFrom([]string{"one", "two", "three"}).Draw(r, "password")
	switch rapid.IntRange(0, 3).Draw(r, "shape") {
	case 0:
		item["password"] = password
	case 1:
		item["below"] = map[string]any{"password": password}
	case 2:
		item["below"] = []any{map[string]any{"password": password}, "x"}
	default:
		return []any{item, map[string]any{"password": password}}
	}
	return item
}

func copied(t *rapid.T, v any) (out []any) {
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func shownList(t *rapid.T, list []any) (out []any) {
	must.OK(t, json.Unmarshal(secretKeys.appendAny(nil, list), &out))
	return out
}

// TestMaskedListItemsKeepTheirOwnSecret: whatever is moved, removed, doubled or changed in a list that is sent back as it was shown, no
// secret reaches an item that it did not belong to, and no mask is stored.
func TestMaskedListItemsKeepTheirOwnSecret(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		old := make([]any, rapid.IntRange(1, 4).Draw(r, "items"))
		for i := range old {
			old[i] = shownItem(r)
		}
		whole := shownList(r, old)
		if err := secretKeys.keepList("x", whole, copied(r, old)); err != nil || !reflect.DeepEqual(whole, old) {
			r.Fatalf("sent back as it was shown: %v, %v; want %v", whole, err, old)
		}
		list := shownList(r, old)
		for range rapid.IntRange(0, 3).Draw(r, "edits") {
			i, j := rapid.IntRange(0, len(list)-1).Draw(r, "i"), rapid.IntRange(0, len(list)-1).Draw(r, "j")
			switch item, _ := list[i].(map[string]any); rapid.SampledFrom([]string{"swap", "remove", "double", "edit"}).Draw(r, "edit") {
			case "swap":
				list[i], list[j] = list[j], list[i]
			case "remove":
				if len(list) > 1 {
					list = slices.Delete(list, i, i+1)
				}
			case "double":
				list = append(list, copied(r, []any{list[i]})...)
			case "edit":
				if item != nil {
					item["url"] = "elsewhere"
				}
			}
		}
		sent := copied(r, list)
		if err := secretKeys.keepList("x", list, copied(r, old)); err != nil {
			return // refused
		}
		for i, item := range list {
			if !slices.ContainsFunc(old, func(o any) bool { return reflect.DeepEqual(o, item) }) {
				r.Fatalf("%v became %v, which never was stored: %v", sent[i], item, old)
			}
		}
		if len(sent) < len(old) { // then who can tell items apart that are shown alike
			for i, item := range sent {
				alike := map[string]bool{}
				for _, o := range old {
					if reflect.DeepEqual(shownList(r, []any{o})[0], item) {
						b, _ := json.Marshal(o)
						alike[string(b)] = true
					}
				}
				if len(alike) > 1 {
					r.Fatalf("%v became %v, and may have been one of %v", item, list[i], alike)
				}
			}
		}
		if b, _ := json.Marshal(list); strings.Contains(string(b), secret.Mask) {
			r.Fatalf("a mask is stored: %s", b)
		}
	})
}

// TestMaskedStepsMayBeRanked: a new order of steps keeps the secrets of their arguments; changed arguments do not.
func TestMaskedStepsMayBeRanked(t *testing.T) {
	old := func() []any {
		return []any{
			map[string]any{"interface": "bios", "step": "a", "order": 1.0, "args": map[string]any{"url": "x", "password": "of x"}},
			map[string]any{"interface": "bios", "step": "a", "order": 2.0, "args": map[string]any{"url": "y", "password": "of y"}},
		}
	}
	step := func(order float64, url string) any {
		return map[string]any{"interface": "bios", "step": "a", "order": order, "args": map[string]any{"url": url, "password": secret.Mask}}
	}
	list := []any{step(1, "y"), step(7, "x")}
	must.OK(t, secretKeys.keepList("steps", list, old(), "order"))
	for i, want := range []string{"of y", "of x"} {
		if got := list[i].(map[string]any)["args"].(map[string]any)["password"]; got != want {
			t.Errorf("step %d has the password %v, want %s", i, got, want)
		}
	}
	if list[1].(map[string]any)["order"] != 7.0 {
		t.Errorf("the new order is lost: %v", list[1])
	}
	if err := secretKeys.keepList("steps", []any{step(1, "z")}, old(), "order"); err == nil {
		t.Error("changed arguments keep a secret")
	}
}
