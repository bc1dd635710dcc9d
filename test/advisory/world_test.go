// Package advisory tries the vulnerabilities of similar projects on the real program, through the interfaces that an attacker would use.
// docs/security.md lists the advisories that describe them.
package advisory

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/driver/drivertest"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
)

const (
	patience    = 60 * time.Second
	bmcPassword = "canary-of-the-bmc"
	// latest is the microversion that requests speak which need none in particular.
	latest = "1.112"
)

// world is one salvor serve, whose ramdisks come through a proxy that knows its address.
type world struct {
	*testing.T
	server *program.Server
	images string // the directory of boot files
	macs   int
}

func newWorld(t *testing.T, more string) *world {
	w := &world{T: t, images: t.TempDir()}
	var target atomic.Pointer[url.URL]
	door := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target.Load()) }})
	t.Cleanup(door.Close)
	for _, name := range []string{"kernel", "initramfs"} {
		w.write(filepath.Join(w.images, name), strings.Repeat(name+" ", 512))
	}
	w.server = program.Serve(t, fmt.Sprintf(`[conductor]
power_state_change_timeout = 2
sync_power_state_interval = 0
rescue_kernel = %[1]s/kernel
rescue_ramdisk = %[1]s/initramfs
[ramdisk]
listen = 127.0.0.1:0
[service_catalog]
endpoint_override = %[2]s
%[3]s`, w.images, door.URL, more))
	base := must.Get(url.Parse(w.server.URL))(t)
	target.Store(base)
	return w
}

func (w *world) write(path, text string) {
	w.Helper()
	must.OK(w, os.WriteFile(path, []byte(text), 0o600))
}

type answer = fixture.Answer

// ask sends one request as it is; body is text, or a value to encode.
func (w *world) ask(method, path, version string, body any) answer {
	w.Helper()
	if !strings.Contains(path, "://") {
		path = w.server.URL + path
	}
	return fixture.Send(w, method, path, body, "X-OpenStack-Ironic-API-Version", version)
}

func (w *world) want(status int, method, path string, body any) answer {
	w.Helper()
	return w.ask(method, path, latest, body).Want(w, status)
}

type object = map[string]any

// machine is an active node with a BMC.
type machine struct {
	w       *world
	bmc     *drivertest.BMC
	id, mac string
}

// machine makes one; info is added to its driver_info.
func (w *world) machine(info object) *machine {
	w.Helper()
	w.macs++
	m := &machine{w: w, bmc: drivertest.NewBMC("admin", bmcPassword), mac: fmt.Sprintf("52:54:00:ad:00:%02x", w.macs)}
	s := httptest.NewServer(m.bmc)
	w.Cleanup(s.Close)
	all := object{"redfish_address": s.URL, "redfish_username": "admin", "redfish_password": bmcPassword}
	for k, v := range info {
		all[k] = v
	}
	n := w.want(201, "POST", "/v1/nodes", object{"driver": "redfish", "network_interface": "noop", "boot_interface": "redfish-virtual-media", "driver_info": all})
	m.id, _ = n.Object(w)["uuid"].(string)
	w.want(201, "POST", "/v1/ports", object{"node_uuid": m.id, "address": m.mac})
	m.reach("manage", "manageable")
	m.reach("adopt", "active")
	return m
}

func (m *machine) show() object { return m.w.want(200, "GET", "/v1/nodes/"+m.id, nil).Object(m.w) }

// reach asks for a verb and waits until nobody works on the node and it is in one of the states.
func (m *machine) reach(verb string, states ...string) object {
	m.w.Helper()
	body := object{"target": verb}
	if verb == "rescue" {
		body["rescue_password"] = "canary-of-the-rescue"
	}
	if a := m.w.ask("PUT", "/v1/nodes/"+m.id+"/states/provision", latest, body); a.Status == 400 && len(states) > 1 {
		return m.show() // it is refused before the machine is touched
	} else if a.Status != 202 {
		m.w.Fatalf("%s: %d %s", verb, a.Status, a.Body)
	}
	var n object
	m.w.until(verb, func() bool {
		n = m.show()
		for _, s := range states {
			if n["provision_state"] == s && n["reservation"] == nil {
				return true
			}
		}
		return false
	}, func() any { return n["last_error"] })
	return n
}

func (w *world) until(what string, is func() bool, told func() any) {
	w.Helper()
	if program.Await(patience, program.If(is)) != nil {
		w.Fatalf("%s: not within %s: %v", what, patience, told())
	}
}

func (m *machine) set(path string, value any) answer {
	return m.w.ask("PATCH", "/v1/nodes/"+m.id, latest, []object{{"op": "add", "path": path, "value": value}})
}

// medium is the boot image that the BMC was given, whole.
func (m *machine) medium() []byte {
	m.w.Helper()
	a := m.w.ask("GET", m.bmc.Image(), "", nil)
	if a.Status != 200 {
		m.w.Fatalf("the BMC's medium %s: %d", m.bmc.Image(), a.Status)
	}
	return []byte(a.Body)
}

// token is the agent token that the medium carries.
func (m *machine) token() string {
	m.w.Helper()
	_, rest, ok := bytes.Cut(m.medium(), []byte("ipa-agent-token="))
	word := bytes.FieldsFunc(rest[:min(len(rest), 200)], func(r rune) bool { return r <= ' ' })
	if !ok || len(word) == 0 {
		m.w.Fatal("the medium carries no token")
	}
	return string(word[0])
}

func (m *machine) sendHeartbeat(callback, token string) answer {
	return m.w.ask("POST", "/v1/heartbeat/"+m.id, "1.68", object{"callback_url": callback, "agent_version": "9.1", "agent_token": token})
}
