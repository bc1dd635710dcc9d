//go:build e2e

package interop

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"salvor/test/must"
	"salvor/test/program"
)

// TestKeystoneComesAndGoes: a revoked token opens no longer than it is believed; while Keystone does not answer, what was known
// is served and all else is told to come again; and it is asked again when it is back.
func TestKeystoneComesAndGoes(t *testing.T) {
	k := startKeystone(t)
	k.baremetal()
	k.user("ann", "anns-own", k.project("one"), "member")
	s := program.Serve(t, k.configuration()+"token_cache_time = 2\noutage_cache_time = 60\ntimeout = 2\n[conductor]\nsync_power_state_interval = 0\n")
	login := func() string {
		t.Helper()
		return k.as("ann", "anns-own", &gophercloud.AuthScope{ProjectName: "one", DomainName: "Default"}).Token()
	}
	ask := func(token string) *http.Response {
		t.Helper()
		r := must.Get(http.NewRequest(http.MethodGet, s.URL+"/v1/nodes", nil))(t)
		r.Header.Set("X-Auth-Token", token)
		resp := must.Get((&http.Client{Timeout: patience}).Do(r))(t)
		resp.Body.Close()
		return resp
	}
	until := func(what string, is func() bool) {
		t.Helper()
		program.Until(t, what, patience, program.If(is))
	}
	known, fresh, revoked := login(), login(), login()
	// A Keystone that takes longer than the time-out, on a busy machine, is waited for.
	for _, token := range []string{known, revoked} {
		until("a token of ann's is known", func() bool { return ask(token).StatusCode == http.StatusOK })
	}
	until("a token that is none is refused", func() bool { return ask(known+"x").StatusCode == http.StatusUnauthorized })
	if got := ask(known + "x"); !strings.HasPrefix(got.Header.Get("Www-Authenticate"), "Keystone uri=") {
		t.Errorf("a token that is none: %d %v", got.StatusCode, got.Header)
	}
	if got := tokens.Revoke(t.Context(), k.api, revoked); got.Err != nil {
		t.Fatal(got.Err)
	}
	until("the revoked token is refused", func() bool { return ask(revoked).StatusCode == http.StatusUnauthorized })
	if got := ask(known); got.StatusCode != http.StatusOK {
		t.Fatalf("another token of ann's: %d", got.StatusCode)
	}

	// It hangs, which is worse than an end: connections are taken and nothing is answered.
	must.OK(t, k.cmd.Process.Signal(syscall.SIGSTOP))
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			_ = k.cmd.Process.Signal(syscall.SIGCONT)
		}
	}
	t.Cleanup(resume)
	until("keystone is known to be away", func() bool { return ask(fresh).StatusCode == http.StatusServiceUnavailable })
	if got := ask(fresh); got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("an unknown token: %d, Retry-After %q", got.StatusCode, got.Header.Get("Retry-After"))
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { // longer than it is believed
		if got := ask(known); got.StatusCode != http.StatusOK {
			t.Fatalf("a known token while keystone is away: %d", got.StatusCode)
		}
	}
	resume()
	until("an unknown token is validated", func() bool { return ask(fresh).StatusCode == http.StatusOK })
	if log := s.Log(); strings.Contains(log, "gAAAAA") || strings.Contains(log, "salvors-own") {
		t.Error("a password or a token is in the log")
	}
}
