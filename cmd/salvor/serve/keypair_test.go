package serve

import (
	"net/http/httptest"
	"strings"
	"testing"

	"salvor/access"
	"salvor/record"
	"salvor/test/must"
)

// TestKeypairsOfUsersOfOneName: whoever gets the name of a user in another project, or of a user of another kind, gets none of its keypairs.
func TestKeypairsOfUsersOfOneName(t *testing.T) {
	p := newTestControlPlane(t, "")
	main, _, err := p.Handlers()
	if err != nil {
		t.Fatal(err)
	}
	// ask is by user and password, or by a token.
	ask := func(who, method, path, body string) *httptest.ResponseRecorder {
		t.Helper()
		r, w := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/compute/v2.1/os-keypairs"+path, strings.NewReader(body)), httptest.NewRecorder()
		if r.Header.Set("X-Auth-Token", who); who == "admin" {
			r.Header.Del("X-Auth-Token")
			r.SetBasicAuth("admin", "password")
		}
		main.ServeHTTP(w, r)
		return w
	}
	issue := func(role access.Role, project string) (id, text string) {
		t.Helper()
		token, said, err := p.tokens.Issue(t.Context(), "admin", role, project, 0, record.Asker{})
		if err != nil {
			t.Fatal(err)
		}
		return token.ID, said.Reveal()
	}
	var made []string
	for _, one := range []struct {
		role          access.Role
		project, kept string // kept is the keypair of the token before
	}{{}, {access.Member, "lab", ""}, {access.Member, "shop", ""}, {access.Admin, "shop", "shop-member"}, {access.Admin, "", ""}} {
		who, id := "admin", ""
		if one.role != "" {
			id, who = issue(one.role, one.project)
		}
		key := one.project + "-" + string(one.role)
		for _, other := range made {
			want := 404
			if other == one.kept {
				want = 200
			}
			if w := ask(who, "GET", "/"+other, ""); w.Code != want {
				t.Errorf("%s, GET of the keypair %s: %d %s", key, other, w.Code, w.Body)
			}
			if w := ask(who, "GET", "", ""); strings.Contains(w.Body.String(), `"`+other+`"`) != (want == 200) {
				t.Errorf("%s, list beside the keypair %s: %s", key, other, w.Body)
			}
			if want == 200 {
				continue
			}
			if w := ask(who, "DELETE", "/"+other, ""); w.Code != 404 {
				t.Errorf("%s deletes the keypair %s: %d %s", key, other, w.Code, w.Body)
			}
		}
		if w := ask(who, "POST", "", `{"keypair":{"name":"`+key+`"}}`); w.Code/100 != 2 {
			t.Fatalf("%s: %d %s", key, w.Code, w.Body)
		}
		made = append(made, key)
		if id != "" {
			must.OK(t, p.tokens.Remove(t.Context(), id, record.Asker{}))
		}
	}
}

// TestEndsOfTokensAreBounded: an administrator of a project, too, makes no token that lasts for ever by a number that is too great.
func TestEndsOfTokensAreBounded(t *testing.T) {
	p := newTestControlPlane(t, "")
	main, _, err := p.Handlers()
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := p.tokens.Issue(t.Context(), "lead", access.Admin, "lab", 0, record.Asker{})
	if err != nil {
		t.Fatal(err)
	}
	for _, seconds := range []string{"-1", "315360001", "18446744074", "9223372036854775807"} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1/salvor/v1/tokens", strings.NewReader(`{"name":"x","role":"reader","expires_in":`+seconds+`}`))
		r.Header.Set("X-Auth-Token", text.Reveal())
		w := httptest.NewRecorder()
		if main.ServeHTTP(w, r); w.Code != 400 || !strings.Contains(w.Body.String(), "expires_in") {
			t.Errorf("%s: %d %s", seconds, w.Code, w.Body)
		}
	}
}
