package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSameSite: a browser changes nothing here for a page of another site; it may for the console's, and programs may.
func TestSameSite(t *testing.T) {
	done := 0
	h := SameSite(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { done++ }))
	for _, one := range []struct {
		method, name, value string
		want                int
	}{
		{"POST", "", "", 200}, {"POST", "Sec-Fetch-Site", "same-origin", 200}, {"POST", "Sec-Fetch-Site", "none", 200}, {"GET", "Sec-Fetch-Site", "cross-site", 200},
		{"POST", "Origin", "http://salvor.example", 200}, {"POST", "Sec-Fetch-Site", "cross-site", 403}, {"PUT", "Sec-Fetch-Site", "same-site", 403},
		{"DELETE", "Origin", "https://elsewhere.example", 403}, {"PATCH", "Origin", "null", 403},
	} {
		r := httptest.NewRequestWithContext(t.Context(), one.method, "http://salvor.example/v1/nodes", strings.NewReader("{}"))
		if one.name != "" {
			r.Header.Set(one.name, one.value)
		}
		w, before := httptest.NewRecorder(), done
		h.ServeHTTP(w, r)
		if w.Code != one.want || (done > before) != (one.want == 200) {
			t.Errorf("%s %s %s: %d, want %d", one.method, one.name, one.value, w.Code, one.want)
		}
		if w.Code == 403 && !strings.Contains(w.Body.String(), "another site") {
			t.Errorf("it says %q", w.Body)
		}
	}
}

// TestNamedHere: a page whose own name was led to this machine asks nothing here, be it only to see.
func TestNamedHere(t *testing.T) {
	done := 0
	h := NamedHere(SameSite(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { done++ })), []string{"salvor.example", "salvor"})
	for host, want := range map[string]int{
		"evil.example:6385": 403, "evil.example": 403, "127.0.0.1.evil.example": 403, "salvor.example.evil": 403, "evil.example.": 403, "[::1].evil.example": 403,
		"127.0.0.1:6385": 200, "127.0.0.1": 200, "[::1]:6385": 200, "[fe80::1]:6385": 200, "localhost:6385": 200, "LOCALHOST": 200, "evil": 403, "evil:6385": 403, "salvor:6385": 200, "Salvor.Example:6385": 200, "salvor.example.": 200,
	} {
		for _, method := range []string{"GET", "POST"} {
			r := httptest.NewRequestWithContext(t.Context(), method, "http://x/salvor/v1/tokens", strings.NewReader("{}"))
			r.Host = host
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			r.Header.Set("Origin", "http://"+host)
			w, before := httptest.NewRecorder(), done
			h.ServeHTTP(w, r)
			if w.Code != want || (done > before) != (want == 200) {
				t.Errorf("%s for %s: %d, want %d: %s", method, host, w.Code, want, w.Body)
			}
		}
	}
}

// TestProxiesAreRefusedWithoutAuthentication: clients of a proxy are not people of this machine.
func TestProxiesAreRefusedWithoutAuthentication(t *testing.T) {
	h := Unproxied(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, name := range []string{"", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://x/v1/nodes", nil)
		want := http.StatusOK
		if name != "" {
			r.Header.Set(name, "203.0.113.9")
			want = http.StatusForbidden
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: %d, want %d", name, w.Code, want)
		}
	}
}
