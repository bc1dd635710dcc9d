package fault

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"salvor/client"
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
		if !strings.Contains(err.Error(), "invalid") { // of the client, which refuses to send it
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
		Message *string `json:"error_message"`
	}
	var inner struct {
		Code        any
		FaultCode   string `json:"faultcode"`
		FaultString string `json:"faultstring"`
		Title       string `json:"title"`
		Description string `json:"description"`
	}
	if json.Unmarshal(body, &outer) != nil || outer.Message == nil || json.Unmarshal([]byte(*outer.Message), &inner) != nil {
		return ""
	}
	if inner.FaultCode == "Client" || inner.FaultCode == "Server" {
		return inner.FaultString
	}
	return inner.Description
}

// routes are all that the API serves; {} stands for a name.
var routes = []string{
	"/", "/v1", "/v1/lookup", "/v1/heartbeat/{}", "/v1/drivers/{}/vendor_passthru/lookup", "/v1/nodes/{}/vendor_passthru/heartbeat",
	"/v1/nodes", "/v1/nodes/detail", "/v1/nodes/{}", "/v1/nodes/{}/validate", "/v1/nodes/{}/maintenance", "/v1/nodes/{}/states",
	"/v1/nodes/{}/states/power", "/v1/nodes/{}/states/provision", "/v1/nodes/{}/states/raid", "/v1/nodes/{}/states/console",
	"/v1/nodes/{}/states/boot_mode", "/v1/nodes/{}/states/secure_boot", "/v1/nodes/{}/management/boot_device",
	"/v1/nodes/{}/management/boot_device/supported", "/v1/nodes/{}/management/inject_nmi", "/v1/nodes/{}/management/indicators",
	"/v1/nodes/{}/vendor_passthru", "/v1/nodes/{}/vendor_passthru/methods", "/v1/nodes/{}/traits", "/v1/nodes/{}/traits/{}",
	"/v1/nodes/{}/vifs", "/v1/nodes/{}/vifs/{}", "/v1/nodes/{}/bios", "/v1/nodes/{}/bios/{}", "/v1/nodes/{}/inventory",
	"/v1/nodes/{}/history", "/v1/nodes/{}/history/{}", "/v1/nodes/{}/ports", "/v1/nodes/{}/ports/detail",
	"/v1/ports", "/v1/ports/detail", "/v1/ports/{}", "/v1/drivers", "/v1/drivers/{}", "/v1/drivers/{}/properties",
	"/v1/drivers/{}/vendor_passthru/methods", "/v1/conductors", "/v1/conductors/{}", "/v1/chassis", "/v1/nothing/{}",
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "get", "PROPFIND"}

// names are what stands for a {} beside the names of what is there.
var names = []string{
	"%00", "%ff", "%2e%2e", "..%2f..%2fetc", "%2F", "a%20b", "'%20or%201=1--", "%e2%80%ae", "0", "-1", "null", "00000000-0000-0000-0000-000000000000",
	strings.Repeat("x", 300), strings.Repeat("%41", 3000), "%c0%af", "a;b", "a+b", "~", "*", "__proto__", "detail", "%F0%9F%92%A9",
}

var versions = []string{
	"", "1.1", "1.21", "1.37", "1.38", "1.62", "1.82", "1.83", "latest", "LATEST", "0.9", "2.0", "1", "1.", ".1", "-1.1", "1.-1", "1.1.1", "x",
	"1.99999999999999999999", "1.0x10", " 1.82 ", "１.８２", strings.Repeat("9", 2000), "1.82,1.1",
}

var values = []string{
	"", "0", "-1", "1", "x", "true", "maybe", "None", "%00", "%ff", "%", "%zz", "99999999999999999999", "1e9", "a,b,,", ",", "uuid", "uuid,uuid", "extra",
	"00000000-0000-0000-0000-000000000000", strings.Repeat("y", 5000), "52:54:00:00:00:01", "../../x", "active", "%0d%0aSet-Cookie:%20a=b", "'", "\";",
}

var arguments = []string{
	"limit", "marker", "sort_key", "sort_dir", "fields", "detail", "provision_state", "driver", "instance_uuid", "associated", "maintenance", "owner",
	"resource_class", "fault", "conductor_group", "description_contains", "node", "node_uuid", "address", "addresses", "reset_interfaces", "method",
	"type", "shard", "retired", "bogus", "", "portgroup", "physical_network", "include_children", "parent_node",
}

// fields are names that bodies have, of every resource.
var fields = []string{
	"driver", "name", "uuid", "extra", "properties", "driver_info", "instance_info", "instance_uuid", "chassis_uuid", "maintenance", "target", "timeout",
	"rescue_password", "configdrive", "clean_steps", "deploy_steps", "boot_device", "persistent", "reason", "address", "node_uuid", "pxe_enabled",
	"local_link_connection", "traits", "callback_url", "agent_version", "agent_token", "agent_verify_ca", "agent_status", "agent_status_message",
	"agent_url", "version", "inventory", "id", "op", "path", "value", "automated_clean", "protected", "resource_class", "owner", "description",
	"network_data", "boot_interface", "rescue_interface", "conductor_group", "is_smartnic", "physical_network", "service_steps", "runbook", "bogus", "",
}

// chance makes bad requests; everything follows from its seed.
type chance struct {
	*rand.Rand
	known []string // names of what is there
}

func pick[T any](c *chance, from []T) T { return from[c.IntN(len(from))] }

func (c *chance) path() string {
	route := pick(c, routes)
	for strings.Contains(route, "{}") {
		name := pick(c, names)
		if c.IntN(3) > 0 {
			name = pick(c, c.known)
		}
		route = strings.Replace(route, "{}", name, 1)
	}
	switch c.IntN(12) {
	case 0:
		route += "/"
	case 1:
		route = strings.ReplaceAll(route, "/", "//")
	case 2:
		route += "/" + pick(c, names)
	case 3:
		route += strings.Repeat("/a", c.IntN(2000))
	}
	return route
}

func (c *chance) query() string {
	if c.IntN(3) > 0 {
		return ""
	}
	var parts []string
	for range 1 + c.IntN(4) {
		parts = append(parts, pick(c, arguments)+pick(c, []string{"=", "=", "=", "", "=="})+url.PathEscape(pick(c, values)))
	}
	if c.IntN(10) == 0 {
		parts = append(parts, "%zz=%", "a;b")
	}
	return "?" + strings.Join(parts, "&")
}

// value is JSON of any shape.
func (c *chance) value(depth int) any {
	switch n := c.IntN(14); {
	case n < 2 && depth < 4:
		o := map[string]any{}
		for range c.IntN(4) {
			o[pick(c, fields)] = c.value(depth + 1)
		}
		return o
	case n < 4 && depth < 4:
		l := make([]any, c.IntN(4))
		for i := range l {
			l[i] = c.value(depth + 1)
		}
		return l
	case n == 4:
		return nil
	case n == 5:
		return c.IntN(2) == 0
	case n == 6:
		return pick(c, []any{0, -1, 1.5, 1e300, 123456789012345678, json.Number("1e999"), json.Number("-0")})
	case n == 7:
		return pick(c, callbacks)
	case n == 8:
		return strings.Repeat(pick(c, []string{"x", "\u0000", "é", "%s", "\u202e"}), 1+c.IntN(6000))
	default:
		return pick(c, []string{"", "x", "rescue", "unrescue", "manage", "adopt", "active", "deleted", "power on", "rebooting", "disk", "pxe", "fake-hardware", "redfish", "agent", "noop",
			"52:54:00:00:00:01", "52-54", "2", "******", "\x00", "\xff\xfe", "/extra/a", "/driver_info/redfish_password", "/name", "add", "remove", "replace", "start", "end", "../../etc/passwd", "file:///etc/shadow"})
	}
}

func (c *chance) object() map[string]any {
	o := map[string]any{}
	for range 1 + c.IntN(6) {
		o[pick(c, fields)] = c.value(1)
	}
	return o
}

func (c *chance) body() string {
	switch c.IntN(16) {
	case 0:
		return ""
	case 1:
		return strings.Repeat(pick(c, []string{"[", `{"a":`, `[{"a":`}), 1+c.IntN(100_000))
	case 2:
		return `{"name":"` + strings.Repeat("x", c.IntN(3<<20)) + `"}`
	case 3:
		return "{\"name\":\"\xff\xc0\",\"driver\":\"\x00\"}"
	case 4:
		return pick(c, []string{"null", "1", "true", `"x"`, "NaN", "{]", "{'a':1}", `{"a":1}{"b":2}`, "\ufeff{}", "<xml/>", "a=b&c=d", `{"a":1,"a":2}`, `{"driver":"\ud800"}`, `{"target":"\u0000"}`})
	case 5, 6, 7:
		patch := make([]any, c.IntN(5))
		for i := range patch {
			patch[i] = map[string]any{"op": c.value(3), "path": pick(c, []any{"/extra/a", "/name", "/driver_info/x/y", "/", "", "/extra/~2", "/properties/-", c.value(3)}), "value": c.value(1)}
		}
		return encode(patch)
	}
	text := encode(c.object())
	if c.IntN(4) == 0 && len(text) > 1 { // broken somewhere
		at := c.IntN(len(text))
		text = text[:at] + pick(c, []string{"", "\x00", "}", "\"", "\\", ","}) + text[min(len(text), at+c.IntN(3)):]
	}
	return text
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

func (c *chance) header() http.Header {
	h := http.Header{}
	if c.IntN(4) == 0 {
		h.Set("OpenStack-API-Version", pick(c, []string{"baremetal 1.82", "baremetal", "baremetal x", "compute 2.1", ",,,", "baremetal 1.1,baremetal 9.9", strings.Repeat("a,", 3000)}))
	}
	if c.IntN(3) == 0 {
		h.Set("Content-Type", pick(c, []string{"text/plain", "application/json; charset=utf-7", "multipart/form-data", "\xff", "application/xml"}))
	}
	if c.IntN(6) == 0 {
		h.Set("Accept", pick(c, []string{"text/html", "*/*;q=x", "application/xml"}))
	}
	if c.IntN(8) == 0 {
		h.Set("Authorization", pick(c, []string{"Basic !!!", "Bearer x", "Basic " + strings.Repeat("QQ", 3000)}))
	}
	return h
}

func (c *chance) shot() shot {
	return shot{method: pick(c, methods), target: c.path() + c.query(), version: pick(c, versions), body: c.body(), header: c.header()}
}

// seed is new in each run and printed; SALVOR_SEED repeats one.
func seed(t *testing.T) uint64 {
	n := rand.Uint64()
	if text := os.Getenv("SALVOR_SEED"); text != "" {
		var err error
		n, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
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
	fake, err := w.api.CreateNode(ctx, client.Record{"driver": "fake-hardware", "name": "n1"})
	must(t, err)
	kept, err := w.api.CreateNode(ctx, client.Record{"driver": "fake-hardware", "name": "kept", "extra": map[string]any{"a": "b"}})
	must(t, err)
	port, err := w.api.CreatePort(ctx, client.Record{"node_uuid": fake.UUID, "address": "52:54:00:00:00:01"})
	must(t, err)
	known := []string{fake.UUID, "n1", strings.ToUpper(fake.UUID), port.Text("uuid"), "fake-hardware", "redfish", "salvor"}
	start := seed(t)
	t.Run("shots", func(t *testing.T) {
		for lane := range 4 {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				a := newAsker(t, w.server.URL)
				c := &chance{rand.New(rand.NewPCG(start, uint64(lane))), known}
				for range 1000 {
					if a.fire(c.shot()); t.Failed() {
						return
					}
				}
			})
		}
	})
	after, err := w.api.Node(ctx, kept.UUID)
	must(t, err)
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

// callbacks are URLs that no agent has.
var callbacks = []any{
	"x", "/", "//", "http://", "https://", "http:///x", "http://:80", "ftp://192.0.2.1/", "file:///etc/passwd", "gopher://192.0.2.1", "javascript:alert(1)",
	"http://user@192.0.2.1:9999", "http://user:pass@192.0.2.1", "http://192.0.2.1:99999", "http://192.0.2.1:x", "http://[::1", "http://[zz]", "http://%zz",
	"http://a b/", "http://192.0.2.1/\u0000", "http://192.0.2.1/?a=b", "http://192.0.2.1/#f", "HTTP:192.0.2.1", " http://192.0.2.1", "http://" + strings.Repeat("a", 3000),
	"http://192.0.2.1\r\nX: y", 7, true, []any{"http://192.0.2.1"}, map[string]any{"u": "http://192.0.2.1"}, nil,
}

// TestBadRamdisks: whoever is no ramdisk of this boot gets a 4xx and changes nothing.
func TestBadRamdisks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m := w.newMachine(t)
	must(t, m.active(ctx))
	m.deaf = true // its ramdisk stays silent: only wrong ones are heard
	must(t, m.provision(ctx, "rescue"))
	before, err := m.wait(ctx, func(n *client.Node) bool { return n.ProvisionState == "rescue wait" })
	must(t, err)
	a := newAsker(t, w.server.URL)
	beat := func(node, version, body string) int {
		status, _ := a.fire(shot{method: "POST", target: "/v1/heartbeat/" + node, version: version, body: body})
		if status < 400 || status >= 500 {
			t.Errorf("heartbeat of %s at %s with %.200q: %d", node, version, body, status)
		}
		return status
	}
	good := "http://192.0.2.1:9999"
	for _, token := range []any{"wrong", "", nil, strings.Repeat("x", 600), 7, "\x00", "******"} {
		beat(m.id, "1.82", encode(map[string]any{"callback_url": good, "agent_version": "9", "agent_token": token}))
	}
	for _, u := range callbacks {
		beat(m.id, "1.82", encode(map[string]any{"callback_url": u, "agent_version": "9", "agent_token": m.token(t)}))
	}
	for _, node := range []string{"nope", "00000000-0000-0000-0000-000000000000", "%00", strings.Repeat("x", 300)} {
		if status := beat(node, "1.82", encode(map[string]any{"callback_url": good, "agent_version": "9", "agent_token": "x"})); node != "%00" && status != 404 {
			t.Errorf("heartbeat of %.20s: %d", node, status)
		}
	}
	for _, version := range []string{"", "1.21", "1.83", "2.1", "x"} {
		beat(m.id, version, encode(map[string]any{"callback_url": good, "agent_version": "9", "agent_token": "x"}))
	}
	for _, query := range []string{"", "?", "?addresses=", "?addresses=52:54:00:ff:ff:ff", "?addresses=nonsense", "?node_uuid=x", "?node_uuid=00000000-0000-0000-0000-000000000000",
		"?addresses=" + strings.Repeat("52:54:00:ff:ff:ff,", 500), "?bogus=1", "?addresses=%00", "?node_uuid=%ff", "?node_uuid=" + m.id + "&bogus=1"} {
		if status, body := a.fire(shot{method: "GET", target: "/v1/lookup" + query, version: "1.82"}); status < 400 || status >= 500 {
			t.Errorf("lookup %.100s: %d %s", query, status, body)
		}
	}
	after, err := w.api.Node(ctx, m.id)
	must(t, err)
	if after.ProvisionState != before.ProvisionState || after.LastError != "" || after.Reservation != "" {
		t.Errorf("the node is in %q, locked by %q, error %q", after.ProvisionState, after.Reservation, after.LastError)
	}
	w.noSecrets(t, "log", w.server.Log())
}

// token is what the medium in the drive carries.
func (m *machine) token(t *testing.T) string {
	token, err := tokenOf(t.Context(), m.bmc.Image())
	must(t, err)
	return token
}

// TestBrokenWire sends what no client library would.
func TestBrokenWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	head := func(line string, headers ...string) string {
		return line + "\r\nHost: x\r\n" + strings.Join(append(headers, "", ""), "\r\n")
	}
	chunked := []string{"Transfer-Encoding: chunked", "Content-Type: application/json"}
	for name, text := range map[string]string{
		"no HTTP":                 "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
		"no host":                 "GET /v1/nodes HTTP/1.1\r\n\r\n",
		"negative length":         head("POST /v1/nodes HTTP/1.1", "Content-Length: -5"),
		"length of words":         head("POST /v1/nodes HTTP/1.1", "Content-Length: many"),
		"two lengths":             head("POST /v1/nodes HTTP/1.1", "Content-Length: 5", "Content-Length: 6") + "{}   ",
		"chunk of words":          head("POST /v1/nodes HTTP/1.1", chunked...) + "zz\r\n{}\r\n0\r\n\r\n",
		"chunk too short":         head("POST /v1/nodes HTTP/1.1", chunked...) + "2\r\n{}}}}\r\n0\r\n\r\n",
		"endless chunk":           head("POST /v1/nodes HTTP/1.1", chunked...) + "fffffffffffffffff\r\n{}",
		"unknown coding":          head("POST /v1/nodes HTTP/1.1", "Transfer-Encoding: gzip, identity") + "{}",
		"huge header":             head("GET /v1/nodes HTTP/1.1", "X-A: "+strings.Repeat("a", 200<<10)),
		"header with a NUL":       head("GET /v1/nodes HTTP/1.1", "X-A: a\x00b"),
		"space in the header":     head("GET /v1/nodes HTTP/1.1", "X A : b"),
		"absolute target":         head("GET http://elsewhere.invalid/v1/nothing HTTP/1.1"),
		"target without a slash":  head("GET v1/nodes HTTP/1.1"),
		"control in the target":   head("GET /v1/nodes/\x01 HTTP/1.1"),
		"bad escape in the path":  head("GET /v1/nodes/%zz HTTP/1.1"),
		"strange host":            "GET /v1/nothing HTTP/1.1\r\nHost: a b<script>\r\n\r\n",
		"later HTTP":              head("GET /v1/nothing HTTP/9.9"),
		"expectation":             head("GET /v1/nothing HTTP/1.1", "Expect: the-unexpected"),
		"connect":                 head("CONNECT elsewhere.invalid:443 HTTP/1.1"),
		"asterisk":                head("BREW * HTTP/1.1"),
		"smuggled second request": head("POST /v1/nothing HTTP/1.1", "Content-Length: 4", "Transfer-Encoding: chunked") + "0\r\n\r\nGET /v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, err := raw(w.server.URL, text)
			if err != nil || status < 400 || status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported {
				t.Errorf("%d, %v", status, err)
			}
		})
	}
	t.Run("body that ends early", func(t *testing.T) {
		t.Parallel()
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.server.URL, "http://"))
		must(t, err)
		_, err = io.WriteString(conn, head("POST /v1/nodes HTTP/1.1", "Content-Length: 500")+`{"driver":`)
		must(t, err)
		must(t, conn.(*net.TCPConn).CloseWrite())
		status, err := statusOf(conn)
		if err != nil || status != http.StatusBadRequest {
			t.Errorf("%d, %v", status, err)
		}
	})
}

// raw sends bytes and reads the first answer's status.
func raw(base, text string) (int, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		return 0, err
	}
	go func() { _, _ = io.WriteString(conn, text) }()
	return statusOf(conn)
}

func statusOf(conn net.Conn) (int, error) {
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(promptly)); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// TestRamdiskDoor: the listener for ramdisks serves its doors and nothing else.
func TestRamdiskDoor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	found := regexp.MustCompile(`msg=listening door=ramdisk address=(\S+)`)
	var base string
	for end := time.Now().Add(promptly); base == ""; time.Sleep(10 * time.Millisecond) {
		if m := found.FindStringSubmatch(w.server.Log()); m != nil {
			base = "http://" + m[1]
		} else if time.Now().After(end) {
			t.Fatal("no ramdisk door")
		}
	}
	n, err := w.api.CreateNode(t.Context(), client.Record{"driver": "fake-hardware", "name": "n1"})
	must(t, err)
	a := newAsker(t, base)
	open := []string{"/", "/v1", "/v1/lookup", "/v1/heartbeat/{}", "/v1/drivers/{}/vendor_passthru/lookup", "/v1/nodes/{}/vendor_passthru/heartbeat"}
	for _, route := range routes {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			target := strings.ReplaceAll(route, "{}", n.UUID)
			status, body := a.fire(shot{method: method, target: target, version: "1.82", body: `{"target":"manage"}`})
			if door := slices.Contains(open, route); !door && status != http.StatusNotFound || door && (status < 400 && method != "GET") {
				t.Errorf("%s %s: %d %.200s", method, target, status, body)
			}
			if bytes.Contains(body, []byte(n.UUID)) && status < 300 {
				t.Errorf("%s %s tells of the node: %.300s", method, target, body)
			}
		}
	}
	for _, path := range []string{"/boot/x/kernel", "/boot/../../etc/passwd", "/boot/%2e%2e/%2e%2e/etc/passwd", "/boot/", "/boot//", "/boot/" + strings.Repeat("a", 32) + "/boot.iso",
		"/boot/" + strings.Repeat("a", 32) + "/../x", "/boot/%00/kernel", "/boot/" + strings.Repeat("x", 5000), "/tftpboot/ipxe.efi", "/debug/pprof/", "/metrics", "/secrets.key"} {
		for _, method := range []string{"GET", "HEAD", "PUT", "POST"} {
			for _, door := range []string{base, w.server.URL} {
				if err := notServed(method, door, path); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// notServed asks for a path as it stands, dots and all.
func notServed(method, base, path string) error {
	status, err := raw(base, method+" "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	if err != nil || status < 300 || status >= 500 {
		return fmt.Errorf("%s %.60s: %d, %v", method, path, status, err)
	}
	return nil
}
