package conversation

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"salvor/driver"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

// bmc answers requests from a table, "METHOD PATH" to status and body, and keeps what it was asked. A function answers in place of the table
// where there is one.
type bmc struct {
	mu      sync.Mutex
	answers map[string]string // "200 BODY"; the path without a last slash
	headers map[string]http.Header
	own     func(w http.ResponseWriter, r *http.Request) bool
	asked   []string
}

func (b *bmc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, r.Method+" "+r.URL.Path)
	if b.own != nil && b.own(w, r) {
		return
	}
	key := r.Method + " " + strings.TrimRight(r.URL.Path, "/")
	for name, values := range b.headers[key] {
		w.Header()[name] = values
	}
	status, body, found := strings.Cut(b.answers[key], " ")
	if !found {
		status = "404"
	}
	code := 0
	_, _ = fmt.Sscan(status, &code)
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body))
}

func (b *bmc) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(b.asked), func(s string) bool { return s != what }))
}

// talk opens a conversation with a BMC.
func talk(t *testing.T, b *bmc, change func(*Settings)) (*Conversation, error) {
	t.Helper()
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	settings := Settings{
		Base: must.Get(url.Parse(server.URL))(t), Auth: Basic, AuthKey: "auth_key",
		Login: driver.Login{Address: server.URL, Username: "admin", Password: secret.New("s3cret"), UsernameKey: "user_key", PasswordKey: "password_key"},
	}
	if change != nil {
		change(&settings)
	}
	c, err := Open(t.Context(), settings)
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

func mustTalk(t *testing.T, b *bmc) *Conversation {
	t.Helper()
	return must.Get(talk(t, b, nil))(t)
}

// TestLinksLeaveNoBMC: a link that names another host is read at the BMC, because the login goes with each request.
func TestLinksLeaveNoBMC(t *testing.T) {
	var strays int
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strays++ }))
	defer elsewhere.Close()
	b := &bmc{answers: map[string]string{"GET /redfish/v1/Systems/1": `200 {"Name":"here"}`}}
	var doc struct{ Name string }
	if _, err := mustTalk(t, b).Get(elsewhere.URL+"/redfish/v1/Systems/1", &doc); err != nil || doc.Name != "here" || strays != 0 {
		t.Errorf("a link with another host: %v, read %q, %d requests went to the other host", err, doc.Name, strays)
	}
}

// TestListsWithoutMembers: a page without a list of members is no empty list, for an empty list is a claim.
func TestListsWithoutMembers(t *testing.T) {
	const list = "/redfish/v1/Systems"
	for body, want := range map[string]bool{
		`{"Members":[]}`: true, `{"Members@odata.count":0}`: true, `{"Members":null,"Members@odata.count":0}`: true,
		`{"Name":"Systems"}`: false, `{"Members":7}`: false, `{"Members@odata.count":2}`: false,
	} {
		all, err := mustTalk(t, &bmc{answers: map[string]string{"GET " + list: "200 " + body}}).Members(list, 10)
		if want != (err == nil) || len(all) != 0 || !want && (!problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), list)) {
			t.Errorf("%s: %v, %v; is it an empty list: %t", body, all, err, want)
		}
	}
	// A collection by its type, without members: the operation goes on, and knows of what it did not see.
	for _, body := range []string{`{"@odata.type":"#StorageCollection.StorageCollection"}`, `{"@odata.type":"#StorageCollection.StorageCollection","Members":null}`} {
		c := mustTalk(t, &bmc{answers: map[string]string{"GET " + list: "200 " + body}})
		all, err := c.Members(list, 10)
		if err != nil || len(all) != 0 || c.Unread() != 1 {
			t.Errorf("%s: %v, %v with %d parts unread; want no members, and one part unread", body, all, err, c.Unread())
		}
	}
}

// TestMembers: each member once, the list itself not, page by page.
func TestMembers(t *testing.T) {
	b := &bmc{answers: map[string]string{
		"GET /l":  `200 {"Members":[{"@odata.id":"/l/1"},{"@odata.id":"/l/1/"},{"@odata.id":"/l"},null,"/l/2"],"Members@odata.nextLink":"/l2"}`,
		"GET /l2": `200 {"Members":[{"@odata.id":"/l/3"}],"@odata.nextLink":"/l"}`,
	}}
	ctx, notes := driver.WithNotes(t.Context())
	c := mustTalk(t, b).Resume(ctx)
	all := must.Get(c.Members("/l", 10))(t)
	if got := fmt.Sprint(all); got != "[{/l/1} {/l/2} {/l/3}]" || len(b.asked) != 2 || len(notes.Texts()) != 2 {
		t.Errorf("members %s after %q; notes %q; want three members, two requests and two notes", got, b.asked, notes.Texts())
	}
	if few := must.Get(c.Members("/l", 2))(t); len(few) != 2 {
		t.Errorf("%d members, want 2 at most", len(few))
	}
}

// TestRedirects: the same path with or without its last slash keeps method and body; an order goes nowhere else.
func TestRedirects(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308} {
		b := &bmc{answers: map[string]string{"GET /redfish/v1/b": "200 {\"Name\":\"b\"}", "POST /redfish/v1/b": "204 "}}
		b.own = func(w http.ResponseWriter, r *http.Request) bool {
			to := map[string]string{"/redfish/v1/a": "/redfish/v1/a/", "/redfish/v1/c": "/redfish/v1/b", "/redfish/v1/d": "/login.html", "/redfish/v1/e": "/redfish/v1/e"}[r.URL.Path]
			switch {
			case to != "":
				w.Header().Set("Location", to)
				w.WriteHeader(status)
			case r.URL.Path == "/redfish/v1/a/" && r.Method == http.MethodPost && r.ContentLength > 2:
				w.WriteHeader(204)
			default:
				return false
			}
			return true
		}
		c := mustTalk(t, b)
		body := map[string]string{"ResetType": "On"}
		if o, err := c.Post("/redfish/v1/a", body); err != nil || o.Unsure != nil {
			t.Errorf("%d to the path with a slash: %v, %v", status, err, o.Unsure)
		}
		keeps := status > 302
		if _, err := c.Post("/redfish/v1/c", body); keeps != (err == nil) || !keeps && !strings.Contains(err.Error(), "/redfish/v1/b") {
			t.Errorf("%d of an order to another resource: %v", status, err)
		}
		for _, path := range []string{"/redfish/v1/d", "/redfish/v1/e"} {
			o, err := c.Post(path, body)
			if err == nil || o.Unsure != nil || problem.MostTries(err) == 0 {
				t.Errorf("%d of %s: %v, unsure %v; want an error that is soon final", status, path, err, o.Unsure)
			}
		}
		var doc struct{ Name string }
		if _, err := c.Get("/redfish/v1/c", &doc); err != nil || doc.Name != "b" {
			t.Errorf("%d of a read: %v, %q", status, err, doc.Name)
		}
	}
}

// TestWrongPassword: a password that never worked is tried once, because BMCs lock accounts.
func TestWrongPassword(t *testing.T) {
	for what, logins := range map[string]*driver.Logins{"that remembers logins": {}, "that remembers nothing": nil} {
		b := &bmc{answers: map[string]string{"GET /redfish/v1": "401 {}"}}
		c := must.Get(talk(t, b, func(s *Settings) { s.Logins = logins }))(t)
		if _, err := c.Get(RootPath, &struct{}{}); !problem.Is(err, problem.Invalid) || b.count("GET /redfish/v1/") != 1 {
			t.Errorf("a process %s: %v after %d requests, want invalid after one", what, err, b.count("GET /redfish/v1/"))
		}
	}
}

// TestPages: what is no Redfish is called that, and no word of a decoder is shown.
func TestPages(t *testing.T) {
	for body, want := range map[string]string{
		"<html><title>Login</title>": "a page of HTML", "": "an empty page", "{ }": "an empty object", "busy": "with text", `{"Name":"x`: "cut off or damaged", "\xef\xbb\xbf{\"Name\":\"x\"}": "",
	} {
		var doc struct{ Name string }
		_, err := mustTalk(t, &bmc{answers: map[string]string{"GET /redfish/v1": "200 " + body}}).Get(RootPath, &doc)
		if want == "" && (err != nil || doc.Name != "x") || want != "" && (!problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, %q; want %q", body, err, doc.Name, want)
		}
	}
}

// TestASecondLook: a resource that the BMC cannot show for a moment is read again.
func TestASecondLook(t *testing.T) {
	left := 1
	b := &bmc{answers: map[string]string{"GET /redfish/v1": `200 {"Name":"x"}`}}
	b.own = func(w http.ResponseWriter, _ *http.Request) bool {
		if left--; left < 0 {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	var doc struct{ Name string }
	if _, err := mustTalk(t, b).Get(RootPath, &doc); err != nil || doc.Name != "x" {
		t.Errorf("%v, %q; want the resource at the second look", err, doc.Name)
	}
}

// TestCutOrders: of an order that the BMC got and did not answer nobody can tell whether it was taken; an order without a connection was not.
func TestCutOrders(t *testing.T) {
	b := &bmc{own: func(w http.ResponseWriter, _ *http.Request) bool {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
		return true
	}}
	if o, err := mustTalk(t, b).Post("/redfish/v1/a", nil); err != nil || !problem.Is(o.Unsure, problem.Unavailable) || !strings.Contains(o.Unsure.Error(), "/redfish/v1/a") {
		t.Errorf("a cut connection: %v, unsure %v", err, o.Unsure)
	}
	gone := httptest.NewServer(b)
	gone.Close()
	c := must.Get(talk(t, b, func(s *Settings) { s.Base = must.Get(url.Parse(gone.URL))(t) }))(t)
	if o, err := c.Post("/redfish/v1/a", nil); !problem.Is(err, problem.Unavailable) || o.Unsure != nil {
		t.Errorf("a refused connection: %v, unsure %v; want an error", err, o.Unsure)
	}
}

// TestTags: If-Match in the form that the BMC takes.
func TestTags(t *testing.T) {
	for _, want := range []string{`W/"1"`, `"1"`, "*", ""} {
		for _, given := range []string{`W/"1"`, ""} {
			b := &bmc{own: func(w http.ResponseWriter, r *http.Request) bool {
				status := http.StatusNoContent
				if tag := r.Header.Get("If-Match"); tag != want {
					status = http.StatusPreconditionFailed
				}
				w.WriteHeader(status)
				return true
			}}
			_, err := mustTalk(t, b).Patch("/redfish/v1/a", given, map[string]any{})
			if may := given != "" || want == "*" || want == ""; may != (err == nil) {
				t.Errorf("a BMC that gave %q and takes %q: %v", given, want, err)
			}
		}
	}
}

// fullOf answers logins as a BMC does that is full of sessions.
func fullOf(basicWorks bool) *bmc {
	return &bmc{own: func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error":{"@Message.ExtendedInfo":[{"MessageId":"Base.1.8.SessionLimitExceeded"}]}}`))
		case basicWorks && r.Header.Get("Authorization") != "":
			_, _ = w.Write([]byte(`{"Name":"x"}`))
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
		return true
	}}
}

// TestFullOfSessions: a BMC that opens no further session gets name and password with each request, or the error says why.
func TestFullOfSessions(t *testing.T) {
	for _, works := range []bool{true, false} {
		c, err := talk(t, fullOf(works), func(s *Settings) { s.Auth = Session })
		switch {
		case works && (err != nil || !c.IsBasic()):
			t.Errorf("a BMC that takes basic login too: %v", err)
		case !works && (!problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "too many sessions")):
			t.Errorf("a BMC that takes no other login: %v", err)
		}
	}
}

// TestForgottenSessions: a BMC that forgets sessions after few requests is still read.
func TestForgottenSessions(t *testing.T) {
	uses, opened := 0, 0
	b := &bmc{own: func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPost:
			opened, uses = opened+1, 0
			w.Header().Set("X-Auth-Token", "t")
			w.Header().Set("Location", "Sessions/1")
			w.WriteHeader(http.StatusCreated)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case uses == 2:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			uses++
			_, _ = w.Write([]byte(`{"Name":"x"}`))
		}
		return true
	}}
	c := must.Get(talk(t, b, func(s *Settings) { s.Auth = Session }))(t)
	for i := range 9 {
		if _, err := c.Get(RootPath, &struct{}{}); err != nil {
			t.Fatalf("read %d, session %d: %v", i, opened, err)
		}
	}
	if opened != 5 || b.count("DELETE /redfish/v1/SessionService/Sessions/1") != 4 {
		t.Errorf("%d sessions opened, %d deleted; want 5 and 4", opened, b.count("DELETE /redfish/v1/SessionService/Sessions/1"))
	}
}

// TestTasks: what an order's task or monitor answers, and what that means.
func TestTasks(t *testing.T) {
	const why = "the server answered 404"
	for name, c := range map[string]struct {
		answer, state, says string
	}{
		"works":             {`202 {"TaskState":"Running"}`, "Running", ""},
		"a silent monitor":  {"202 ", "Running", ""},
		"done":              {`200 {"TaskState":"Completed","TaskStatus":"OK"}`, "Completed", ""},
		"done, but not":     {`200 {"TaskState":"Completed","TaskStatus":"Critical","Messages":[{"Message":"` + why + `"}]}`, "Completed", why},
		"failed":            {`200 {"TaskState":"Exception","Messages":{"Message":"` + why + `"}}`, "Exception", why},
		"gone":              {"404 {}", "Completed", ""},
		"a monitor's end":   {"204 ", "Completed", ""},
		"a monitor refuses": {`400 {"error":{"message":"` + why + `"}}`, "Exception", why},
	} {
		talk := mustTalk(t, &bmc{answers: map[string]string{"GET /t": c.answer}})
		task, err := talk.Task("/t")
		failure := talk.Failure(task)
		if err != nil || task.State != c.state || (c.says == "") != (failure == nil) || failure != nil && !strings.Contains(failure.Error(), c.says) {
			t.Errorf("%s: %+v, %v, failure %v; want %s and %q", name, task, err, failure, c.state, c.says)
		}
	}
}
