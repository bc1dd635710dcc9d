package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/client"
	"salvor/test/must"
)

// promptly bounds every answer to a bad request.
const promptly = 5 * time.Second

// asker throws requests at one door of the server.
type asker struct {
	*testing.T
	base string
	http *http.Client
}

func newAsker(t *testing.T, base string) *asker {
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	return &asker{T: t, base: base, http: &http.Client{Transport: transport, Timeout: promptly,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// shot is one request; it is printed whole where it found a fault.
type shot struct {
	method, target, version, body string
	header                        http.Header
}

func (s shot) String() string {
	return fmt.Sprintf("%s %.200q at %q with %v and %d bytes %.300q", s.method, s.target, s.version, s.header, len(s.body), s.body)
}

// maxUnread is how much of an unread body net/http reads after the answer, in bytes.
const maxUnread = 256 << 10

func (a *asker) fire(s shot) (int, []byte) {
	a.Helper()
	req, err := http.NewRequest(s.method, a.base+"/", strings.NewReader(s.body))
	if err != nil {
		return 0, nil // no such method can be sent
	}
	u, err := url.Parse(a.base + s.target)
	if err != nil || u.Path == "" {
		// What url.Parse refuses goes over the wire as it is.
		u = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Opaque: s.target}
	}
	req.URL = u
	if s.version != "" {
		req.Header.Set("X-OpenStack-Ironic-API-Version", s.version)
	}
	for k, v := range s.header {
		req.Header[k] = v
	}
	resp, err := a.http.Do(req)
	if err != nil {
		// A server answers before it has read a body that it refuses, reads maxUnread of the rest and closes the connection. The reset may overtake the
		// answer. A server that has died of it refuses the next request.
		refused := len(s.body) > maxUnread && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
		if !refused && !strings.Contains(err.Error(), "invalid") { // of the client, which refuses to send it
			a.Errorf("%s: %v", s, err)
		}
		return 0, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		a.Errorf("%s: %v", s, err)
	}
	a.judge(s, resp, body)
	return resp.StatusCode, body
}

var requestID = regexp.MustCompile(`^req-[0-9a-f-]{36}$`)

// judge holds an answer to what every answer must be.
func (a *asker) judge(s fmt.Stringer, resp *http.Response, body []byte) {
	a.Helper()
	if resp.StatusCode >= 500 {
		a.Errorf("%s: %d %.300s", s, resp.StatusCode, body)
	}
	if id := resp.Header.Get("Openstack-Request-Id"); !requestID.MatchString(id) {
		a.Errorf("%s: %d with request id %q", s, resp.StatusCode, id)
	}
	if resp.StatusCode >= 400 && resp.Request.Method != http.MethodHead {
		if words := ironicWords(body); words == "" {
			a.Errorf("%s: %d is no error of Ironic's: %.300q", s, resp.StatusCode, body)
		}
	}
}

// ironicWords is the sentence in an error of Ironic's form; empty where it is none.
func ironicWords(body []byte) string {
	var outer struct {
		Message json.RawMessage `json:"error_message"`
	}
	var inner struct {
		Code        any
		FaultCode   string `json:"faultcode"`
		FaultString string `json:"faultstring"`
		Title       string `json:"title"`
		Description string `json:"description"`
	}
	if json.Unmarshal(body, &outer) != nil {
		return ""
	}
	var text string
	if json.Unmarshal(outer.Message, &text) != nil {
		text = string(outer.Message) // the guards of the body encode once
	}
	if json.Unmarshal([]byte(text), &inner) != nil {
		return ""
	}
	if inner.FaultCode == "Client" || inner.FaultCode == "Server" {
		return inner.FaultString
	}
	return inner.Description
}

// seed is new in each run and printed; SALVOR_SEED repeats one.
func seed(t *testing.T) uint64 {
	n := rand.Uint64()
	if text := os.Getenv("SALVOR_SEED"); text != "" {
		var err error
		n, err = strconv.ParseUint(text, 10, 64)
		must.OK(t, err)
	}
	t.Logf("SALVOR_SEED=%d", n)
	return n
}

// TestRandomRequests throws whatever at every route: nothing is a server error, everything
// is answered in time and in Ironic's form, and what was there is there after it.
func TestRandomRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	fake := must.Get(w.api.CreateNode(ctx, client.Record{"driver": "fake-hardware", "name": "n1"}))(t)
	kept := must.Get(w.api.CreateNode(ctx, client.Record{"driver": "fake-hardware", "name": "kept", "extra": map[string]any{"a": "b"}}))(t)
	port := must.Get(w.api.Create(ctx, client.Ports, client.Record{"node_uuid": fake.UUID, "address": "52:54:00:00:00:01"}))(t)
	known := []string{fake.UUID, fake.UUID, fake.UUID, "n1", "n1", strings.ToUpper(fake.UUID), port.Text("uuid"), "fake-hardware", "redfish", "salvor"}
	start := seed(t)
	t.Run("shots", func(t *testing.T) {
		for lane := range 4 {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				a := newAsker(t, w.server.URL)
				c := &chance{rand.New(rand.NewPCG(start, uint64(lane))), known}
				got := map[int]int{}
				for range 1000 {
					s := c.shot()
					status, _ := a.fire(s)
					for _, s.method = range methods[:6] { // no method of this path: one of these is
						if status == http.StatusMethodNotAllowed {
							got[status]++
							status, _ = a.fire(s)
						}
					}
					if got[status]++; t.Failed() {
						return
					}
				}
				t.Log(got)
				if got[http.StatusOK] < 20 || got[http.StatusBadRequest] < 100 {
					t.Errorf("hardly anything reached the handlers: %v", got)
				}
			})
		}
	})
	after := must.Get(w.api.Node(ctx, kept.UUID))(t)
	if encode(after.Record) != encode(kept.Record) {
		t.Errorf("a node that nobody named has changed:\n%s\n%s", encode(kept.Record), encode(after.Record))
	}
	if log := w.server.Log(); strings.Contains(log, "panic") || strings.Contains(log, "level=ERROR") {
		t.Error(lines(log, "panic", "level=ERROR"))
	}
}

// lines are the first lines that hold one of the words.
func lines(text string, words ...string) string {
	var out []string
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) && len(out) < 10 {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}
