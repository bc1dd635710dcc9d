package serve

import (
	"net/http"
	"strings"
	"testing"

	"salvor/api"
)

// TestUnknownWordsListTheKnownOnes asks each list of the program for a field and for an order that it does not have. Where the list refuses
// the word, the error lists the words that are valid.
func TestUnknownWordsListTheKnownOnes(t *testing.T) {
	p := newTestControlPlane(t, "[DEFAULT]\nauth_strategy = token\n")
	main, _ := p.handlersFor(scopes{})
	e := &estate{T: t, main: main, own: map[string][]string{}}
	refused := 0
	for _, d := range main.(api.RouteLister).Endpoints {
		if d.Method != http.MethodGet || strings.Contains(d.Path, "{") {
			continue
		}
		for _, query := range []string{"fields=nme", "sort_key=nme", "sort=nme", "sort=nme:asc"} {
			w := e.ask("root", http.MethodGet, d.Path+"?"+query, "", "OpenStack-API-Version", "compute 2.88")
			if text := w.Body.String(); w.Code == http.StatusBadRequest && strings.Contains(text, "nme") {
				if refused++; !strings.Contains(text, "want one of ") || !strings.Contains(text, "created_at") && !strings.Contains(text, "name") {
					t.Errorf("%s?%s: %s: want the words that are valid", d.Path, query, text)
				}
			}
		}
	}
	if refused < 20 {
		t.Errorf("only %d requests were refused for their word", refused)
	}
	t.Logf("%d requests were refused for their word", refused)
}
