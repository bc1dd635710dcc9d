package fault

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
)

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
	"/v1/drivers/{}/vendor_passthru/methods", "/v1/conductors", "/v1/conductors/{}", "/v1/nothing/{}", "/v1/chassis", "/v1/chassis/detail", "/v1/chassis/{}", "/v1/chassis/{}/nodes",
	"/v1/portgroups", "/v1/portgroups/detail", "/v1/portgroups/{}", "/v1/portgroups/{}/ports", "/v1/nodes/{}/portgroups", "/v1/nodes/{}/portgroups/detail",
	"/v1/volume", "/v1/volume/connectors", "/v1/volume/connectors/detail", "/v1/volume/connectors/{}", "/v1/volume/targets", "/v1/volume/targets/detail", "/v1/volume/targets/{}",
	"/v1/nodes/{}/volume", "/v1/nodes/{}/volume/connectors", "/v1/nodes/{}/volume/targets", "/v1/nodes/{}/volume/targets/{}",
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
	"type", "shard", "retired", "bogus", "", "portgroup", "physical_network", "include_children", "parent_node", "connector_id", "boot_index", "volume_id", "volume_type", "conductor_groups",
}

// fields are names that bodies have, of every resource.
var fields = []string{
	"driver", "name", "uuid", "extra", "properties", "driver_info", "instance_info", "instance_uuid", "chassis_uuid", "maintenance", "target", "timeout",
	"rescue_password", "configdrive", "clean_steps", "deploy_steps", "boot_device", "persistent", "reason", "address", "node_uuid", "pxe_enabled",
	"local_link_connection", "traits", "callback_url", "agent_version", "agent_token", "agent_verify_ca", "agent_status", "agent_status_message",
	"agent_url", "version", "inventory", "id", "op", "path", "value", "automated_clean", "protected", "resource_class", "owner", "description",
	"network_data", "boot_interface", "rescue_interface", "conductor_group", "is_smartnic", "physical_network", "service_steps", "runbook", "bogus", "",
	"type", "connector_id", "volume_type", "volume_id", "boot_index", "mode", "standalone_ports_supported", "portgroup_uuid", "category", "vendor",
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
	s := shot{method: pick(c, methods), target: c.path() + c.query(), version: pick(c, versions), body: c.body(), header: c.header()}
	// Most must get past version and method, or nothing behind them is tried.
	if c.IntN(4) > 0 {
		s.version = "1.82"
		s.header.Del("OpenStack-API-Version")
	}
	if c.IntN(3) > 0 {
		s.method = pick(c, methods[:6])
	}
	return s
}

// callbacks are URLs that no agent has.
var callbacks = []any{
	"x", "/", "//", "http://", "https://", "http:///x", "http://:80", "ftp://192.0.2.1/", "file:///etc/passwd", "gopher://192.0.2.1", "javascript:alert(1)",
	"http://user@192.0.2.1:9999", "http://user:pass@192.0.2.1", "http://192.0.2.1:99999", "http://192.0.2.1:x", "http://[::1", "http://[zz]", "http://%zz",
	"http://a b/", "http://192.0.2.1/\u0000", "http://192.0.2.1/?a=b", "http://192.0.2.1/#f", "HTTP:192.0.2.1", " http://192.0.2.1", "http://" + strings.Repeat("a", 3000),
	"http://192.0.2.1\r\nX: y", 7, true, []any{"http://192.0.2.1"}, map[string]any{"u": "http://192.0.2.1"}, nil,
}
