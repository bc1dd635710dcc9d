package native

import (
	"net/http"
	"slices"
	"strings"
)

// ruleMark begins the names by which a policy file may deny what is here.
const ruleMark = "salvor:"

// ruleVerbs end them.
var ruleVerbs = map[string]string{http.MethodGet: "get", http.MethodPost: "post", http.MethodPatch: "patch", http.MethodDelete: "delete"}

// ruleOf is the name of a route: the words of its path and the method, as salvor:hosts:fence:post.
func ruleOf(method, path string) string {
	parts := slices.DeleteFunc(strings.Split(strings.Trim(path, "/"), "/"), func(word string) bool { return strings.HasPrefix(word, "{") })
	return ruleMark + strings.Join(parts, ":") + ":" + ruleVerbs[method]
}

// ruled are the first words of the paths that are here.
var ruled = []string{
	"clusters", "events", "fleet", "host-groups", "hosts", "jobs", "join-tokens", "moves", "networks", "nodes", "plans", "receipts", "reconcile", "rescue-images", "rescue-sessions", "restored",
	"secrets", "servers", "sites", "states", "tokens",
}

// HasRule tells whether a name can be that of a rule that requests of this API are held to.
func HasRule(name string) bool {
	rest, ours := strings.CutPrefix(name, ruleMark)
	parts := strings.Split(rest, ":")
	verb := parts[len(parts)-1]
	known := slices.ContainsFunc([]string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete}, func(m string) bool { return ruleVerbs[m] == verb })
	return ours && len(parts) > 1 && known && slices.Contains(ruled, parts[0])
}
