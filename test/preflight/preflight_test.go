package preflight

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
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

const patience = 30 * time.Second

type object = map[string]any

// world is a real salvor serve, with files that machines may be given and one network for rescues.
type world struct {
	*program.Server
	dir string
	web *httptest.Server
	// asked counts the requests for /fleet of the web server.
	asked atomic.Int64
}

func newWorld(t *testing.T, prefix ...string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{dir: dir}
	w.web = httptest.NewServer(http.HandlerFunc(w.serveImages))
	t.Cleanup(w.web.Close)
	w.write(t, "default/vmlinuz", "kernel")
	w.write(t, "default/initrd", "ramdisk")
	w.write(t, "images/vmlinuz", "kernel")
	w.write(t, "images/initrd", "ramdisk")
	w.write(t, "images/empty", "")
	w.write(t, "secret/file", "not for machines")
	must.OK(t, os.Symlink(filepath.Join(dir, "secret/file"), filepath.Join(dir, "images/link")))
	w.Server = program.Serve(t, fmt.Sprintf(`[DEFAULT]
auth_strategy = noauth
[conductor]
rescue_kernel = %[1]s/default/vmlinuz
rescue_ramdisk = %[1]s/default/initrd
file_url_allowed_paths = %[1]s/images
bmc_networks = 127.0.0.1/32
[service_catalog]
endpoint_override = http://192.0.2.9:6385
[fetch]
networks = 127.0.0.1/32
[bridge]
tenant_network = brtenant
rescuing_network = brrescue
`, dir), prefix...)
	return w
}

func (w *world) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(w.dir, name)
	must.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.OK(t, os.WriteFile(file, []byte(text), 0o644))
}

// serveImages plays web servers of every kind.
func (w *world) serveImages(rw http.ResponseWriter, r *http.Request) {
	away := func(to string) {
		rw.Header().Set("Location", to)
		rw.WriteHeader(http.StatusFound)
	}
	switch r.URL.Path {
	case "/missing":
		rw.WriteHeader(http.StatusNotFound)
	case "/closed":
		rw.WriteHeader(http.StatusUnauthorized)
	case "/away":
		away("http://127.0.0.2:9/kernel")
	case "/file":
		away("file:///etc/shadow")
	case "/moved":
		away("/missing")
	case "/round":
		away("/round")
	case "/cut":
		panic(http.ErrAbortHandler)
	case "/silent":
		<-r.Context().Done()
	case "/broken":
		rw.WriteHeader(http.StatusBadGateway)
	case "/refuses-head", "/signed":
		if r.Method != http.MethodGet {
			rw.WriteHeader(map[string]int{"/signed": http.StatusForbidden}[r.URL.Path] + map[string]int{"/refuses-head": http.StatusMethodNotAllowed}[r.URL.Path])
		} else if r.Header.Get("Range") != "bytes=0-0" {
			rw.WriteHeader(http.StatusNotFound) // nobody is to be asked for more
		}
	case "/refuses-all":
		rw.WriteHeader(http.StatusMethodNotAllowed)
	case "/fleet":
		w.asked.Add(1)
	}
}

// ask sends a request and gives the status, and the answer with what it says if it is an error.
func (w *world) ask(t *testing.T, method, path string, body any) (int, object, string) {
	t.Helper()
	a := fixture.Send(t, method, w.URL+path, body, "X-OpenStack-Ironic-API-Version", "1.108")
	out := object(a.ObjectIfAny(t))
	return a.Status, out, complaint(out)
}

// complaint is the sentence of an error, which the API may wrap in JSON once more.
func complaint(out object) string {
	inner, _ := out["error_message"].(object)
	if text, ok := out["error_message"].(string); ok {
		_ = json.Unmarshal([]byte(text), &inner)
	}
	said, _ := inner["faultstring"].(string)
	return said
}

func (w *world) must(t *testing.T, method, path string, body any) object {
	t.Helper()
	status, out, said := w.ask(t, method, path, body)
	if status >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, status, said)
	}
	return out
}

func (w *world) reaches(t *testing.T, id, state string) object {
	t.Helper()
	var n object
	program.Until(t, "node "+id+" in "+state, patience, func() error {
		n = w.must(t, "GET", "/v1/nodes/"+id, nil)
		if n["provision_state"] != state || n["reservation"] != nil {
			return fmt.Errorf("%v, %v", n["provision_state"], n["last_error"])
		}
		return nil
	})
	return n
}

// machine is a BMC that counts what would change it, with a machine that is on.
type machine struct {
	*drivertest.BMC
	server *httptest.Server
	writes atomic.Int64
	bend   func(path string, answer object) int // what the BMC answers otherwise: the status
}

func newMachine(t *testing.T, bend func(path string, answer object) int) *machine {
	t.Helper()
	m := &machine{BMC: drivertest.NewBMC("admin", "calvin"), bend: bend}
	m.SetOn(true)
	m.server = httptest.NewServer(m)
	t.Cleanup(m.server.Close)
	return m
}

func (m *machine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/SessionService/") {
		m.writes.Add(1)
	}
	if m.bend == nil || r.Method != http.MethodGet {
		m.BMC.ServeHTTP(w, r)
		return
	}
	rec := httptest.NewRecorder()
	m.BMC.ServeHTTP(rec, r)
	var doc object
	status := rec.Code
	if json.Unmarshal(rec.Body.Bytes(), &doc) == nil && status == http.StatusOK {
		status = m.bend(strings.TrimSuffix(r.URL.Path, "/"), doc)
	}
	maps.Copy(w.Header(), rec.Header())
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

// untouched wants the machine as it was.
func (m *machine) untouched(t *testing.T) {
	t.Helper()
	if n := m.writes.Load(); n != 0 || !m.On() || m.Image() != "" || m.Boot().Enabled != "Disabled" {
		t.Errorf("the machine was touched: %d requests, on %v, image %q, boot %+v", n, m.On(), m.Image(), m.Boot())
	}
}

// enroll makes a node of a machine and brings it to manageable or active.
func (w *world) enroll(t *testing.T, m *machine, c broken) string {
	t.Helper()
	info := object{"redfish_address": m.server.URL, "redfish_username": "admin", "redfish_password": "calvin"}
	maps.Copy(info, c.info)
	for k, v := range info {
		info[k] = w.filled(v)
	}
	body := object{"driver": "redfish", "driver_info": info, "network_interface": "noop", "deploy_interface": "direct", "rescue_interface": "agent", "boot_interface": "redfish-virtual-media"}
	instance := object{"image_source": w.web.URL + "/image", "image_checksum": strings.Repeat("a", 64)}
	for k, v := range c.instance {
		if instance[k] = v; v == nil {
			delete(instance, k)
		} else {
			instance[k] = w.filled(v)
		}
	}
	body["instance_info"] = instance
	maps.Copy(body, c.node)
	n := w.must(t, "POST", "/v1/nodes", body)
	id := n["uuid"].(string)
	port := object{"node_uuid": id, "address": mac(), "pxe_enabled": true, "local_link_connection": object{"port_id": "tap0", "switch_id": "52:54:00:ff:ff:ff"}}
	maps.Copy(port, c.port)
	w.must(t, "POST", "/v1/ports", port)
	w.must(t, "PUT", "/v1/nodes/"+id+"/states/provision", object{"target": "manage"})
	w.reaches(t, id, "manageable")
	if c.state() == "active" {
		w.must(t, "PUT", "/v1/nodes/"+id+"/states/provision", object{"target": "adopt"})
		w.reaches(t, id, "active")
	}
	return id
}

// filled puts the directory and the web server into a value of the table.
func (w *world) filled(v any) any {
	if s, ok := v.(string); ok {
		return strings.NewReplacer("$DIR", w.dir, "$WEB", w.web.URL).Replace(s)
	}
	return v
}

var macs atomic.Int64

func mac() string {
	n := macs.Add(1)
	return fmt.Sprintf("52:54:00:00:%02x:%02x", n>>8, n&0xff)
}

// broken is a configuration with which an operation cannot succeed.
type broken struct {
	name, target               string // target of states/provision
	info, instance, node, port object
	bend                       func(path string, answer object) int
	at, want                   string // the interface at which validate says it, and a part of what it says
	ask                        object // what the request holds beside the target; validate and the doctor know nothing of it
	template, runbook          object // a step of a deploy template of the instance, or of a runbook that is asked for
}

func (c broken) state() string {
	if c.target == "rescue" || c.target == "rebuild" || c.target == "service" {
		return "active"
	}
	return "manageable"
}

func (c broken) request() object {
	body := request(c.target)
	maps.Copy(body, c.ask)
	return body
}

// withLists makes the template or the runbook of the case.
func (w *world) withLists(t *testing.T, c *broken) (trait string) {
	t.Helper()
	if c.template == nil && c.runbook == nil {
		return ""
	}
	trait = fmt.Sprintf("CUSTOM_STEPS_%d", macs.Add(1))
	if c.template != nil {
		w.must(t, "POST", "/v1/deploy_templates", object{"name": trait, "steps": []object{c.template}})
		c.instance = object{"traits": []string{trait}}
		return trait
	}
	w.must(t, "POST", "/v1/runbooks", object{"name": trait, "steps": []object{c.runbook}})
	c.ask = object{"runbook": trait}
	return trait
}

func steps(kind string, step object, more object) object {
	out := object{kind + "_steps": []object{step}}
	maps.Copy(out, more)
	return out
}

func step(kind, name string, more object) object {
	out := object{"interface": kind, "step": name}
	maps.Copy(out, more)
	return out
}

// deployable names the ramdisk of cleaning, deployment and service.
var (
	deployable    = object{"deploy_kernel": "$DIR/images/vmlinuz", "deploy_ramdisk": "$DIR/images/initrd"}
	withoutAgent  = object{"disable_ramdisk": true}
	firstPriority = object{"priority": 90, "args": object{}}
)

func bridge(more object) object {
	out := object{"network_interface": "bridge"}
	maps.Copy(out, more)
	return out
}

// without takes a boot target away.
func without(target string) func(string, object) int {
	return func(path string, doc object) int {
		if boot, ok := doc["Boot"].(object); ok && path == drivertest.SystemPath {
			var left []any
			for _, v := range boot["BootSourceOverrideTarget@Redfish.AllowableValues"].([]any) {
				if v != target {
					left = append(left, v)
				}
			}
			boot["BootSourceOverrideTarget@Redfish.AllowableValues"] = left
		}
		return http.StatusOK
	}
}

func media(status int) func(string, object) int {
	return func(path string, doc object) int {
		if !strings.HasSuffix(path, "/VirtualMedia") {
			return http.StatusOK
		}
		doc["Members"] = []any{}
		return status
	}
}

func kernel(at string) object {
	return object{"rescue_kernel": at, "rescue_ramdisk": "$DIR/images/initrd"}
}
func appended(params any) object { return object{"kernel_append_params": params} }

// table are broken configurations of every kind that the door can see.
var table = []broken{
	{name: "kernel outside of the directories", target: "rescue", info: kernel("/etc/shadow"), at: "boot", want: "the kernel /etc/shadow lies outside of the directories for boot images"},
	{name: "kernel without ramdisk", target: "rescue", info: object{"rescue_kernel": "$DIR/images/vmlinuz"}, at: "boot", want: "no ramdisk is known"},
	{name: "ramdisk without kernel", target: "rescue", info: object{"rescue_ramdisk": "$DIR/images/initrd"}, at: "boot", want: "no kernel is known"},
	{name: "relative path", target: "rescue", info: kernel("images/vmlinuz"), at: "boot", want: "not absolute"},
	{name: "scheme", target: "rescue", info: kernel("ftp://192.0.2.1/k"), at: "boot", want: `scheme "ftp"`},
	{name: "URL without host", target: "rescue", info: kernel("http:///k"), at: "boot", want: "names no host"},
	{name: "missing kernel", target: "rescue", info: kernel("$DIR/images/nothing"), at: "boot", want: "no such file"},
	{name: "kernel is a directory", target: "rescue", info: kernel("$DIR/images"), at: "boot", want: "no regular file"},
	{name: "empty ramdisk", target: "rescue", info: object{"rescue_kernel": "$DIR/images/vmlinuz", "rescue_ramdisk": "$DIR/images/empty"}, at: "boot", want: "it is empty"},
	{name: "link out of the directory", target: "rescue", info: kernel("$DIR/images/link"), at: "boot", want: "lies outside"},
	{name: "too many parameters", target: "rescue", info: appended(strings.Repeat("quiet ", 2000)), at: "boot", want: "at most"},
	{name: "two reasons at once", target: "rescue", info: object{"rescue_kernel": "/etc/shadow", "kernel_append_params": strings.Repeat("quiet ", 2000)}, at: "rescue", want: "at most"},
	{name: "port without its link", target: "rescue", node: bridge(nil), port: object{"local_link_connection": object{}}, at: "network", want: "has no port_id"},
	{name: "port of a strange link", target: "rescue", node: bridge(nil), port: object{"local_link_connection": object{"port_id": "../x", "switch_id": "52:54:00:ff:ff:ff"}}, at: "network", want: "no name of a link"},
	{name: "strange tenant network", target: "rescue", node: bridge(nil), port: object{"extra": object{"vif_port_id": "br0"}}, at: "network", want: "no bridge for tenants"},
	{name: "tenant network that is no text", target: "rescue", node: bridge(nil), port: object{"extra": object{"vif_port_id": 7}}, at: "network", want: "must be a string"},
	{name: "no port to boot from", target: "rescue", node: object{"boot_interface": "ipxe"}, port: object{"pxe_enabled": false}, at: "boot", want: "no port with pxe_enabled"},
	{name: "HTTP boot of a BIOS", target: "rescue", node: object{"boot_interface": "http", "properties": object{"capabilities": "boot_mode:bios"}}, at: "boot", want: "HTTP boot needs UEFI"},
	{name: "ssh on no port", target: "rescue", info: object{"rescue_ssh_interfaces": "nonsense"}, at: "rescue", want: `"nonsense" is no port`},
	{name: "ssh interfaces of no kind", target: "rescue", info: object{"rescue_ssh_interfaces": []any{1}}, at: "rescue", want: "must list MACs"},
	{name: "deploy interface without heartbeats", target: "rescue", node: object{"deploy_interface": "fake"}, at: "rescue", want: "needs heartbeats"},
	{name: "BMC without a CD drive", target: "rescue", bend: media(http.StatusOK), at: "boot", want: "has no virtual CD drive"},
	{name: "BMC without the licence", target: "rescue", bend: media(http.StatusForbidden), at: "boot", want: "licence"},
	{name: "BMC that boots no CD", target: "rescue", bend: without("Cd"), at: "boot", want: "cannot boot from cdrom"},
	{name: "BMC that boots no network", target: "rescue", node: object{"boot_interface": "ipxe"}, bend: without("Pxe"), at: "boot", want: "cannot boot from pxe"},
	{name: "image outside of the directories", target: "rebuild", instance: object{"image_source": "file:///etc/shadow"}, at: "deploy", want: "the image_source /etc/shadow lies outside"},
	{name: "missing image", target: "rebuild", instance: object{"image_source": "file://$DIR/images/nothing"}, at: "deploy", want: "no such file"},
	{name: "kernel answers 404", target: "rescue", info: kernel("$WEB/missing?key=canary"), at: "boot", want: "/missing cannot be given to the machine: the server does not give it: “the server answers 404 Not Found"},
	{name: "kernel answers 401", target: "rescue", info: kernel("$WEB/closed"), at: "boot", want: "the server answers 401"},
	{name: "kernel redirects to an address that is not allowed", target: "rescue", info: kernel("$WEB/away"), at: "boot", want: "salvor may not fetch from there"},
	{name: "kernel redirects to a file", target: "rescue", info: kernel("$WEB/file"), at: "boot", want: "its redirect is not followed"},
	{name: "kernel at an address that is not allowed", target: "rescue", info: kernel("http://127.0.0.2:9/kernel"), at: "boot", want: "salvor may not fetch from there"},
	{name: "no web server", target: "rescue", info: kernel("http://127.0.0.1:1/kernel"), at: "boot", want: "nothing listens there"},
	{name: "kernel of a machine that boots by iPXE answers 404", target: "rescue", node: object{"boot_interface": "ipxe"}, info: kernel("$WEB/missing"), at: "boot", want: "the server answers 404"},
	{name: "image answers 404", target: "rebuild", instance: object{"image_source": "$WEB/missing"}, at: "deploy", want: "the server answers 404"},
	{name: "image redirects to what is missing", target: "rebuild", instance: object{"image_source": "$WEB/moved"}, at: "deploy", want: "the server answers 404"},
	{name: "image redirects to a file", target: "rebuild", instance: object{"image_source": "$WEB/file"}, at: "deploy", want: "its redirect is not followed"},
	{name: "image redirects without end", target: "rebuild", instance: object{"image_source": "$WEB/round"}, at: "deploy", want: "its redirect is not followed"},
	{name: "checksum file answers 404", target: "rebuild", instance: object{"image_checksum": "$WEB/missing"}, at: "deploy", want: "the checksum file http"},
	{name: "deploy ramdisk answers 404", target: "inspect", node: object{"inspect_interface": "agent"},
		info: object{"deploy_kernel": "$DIR/images/vmlinuz", "deploy_ramdisk": "$WEB/missing"}, at: "inspect", want: "the server answers 404"},
	{name: "image without checksum", target: "rebuild", instance: object{"image_checksum": nil}, at: "deploy", want: "lacks a checksum"},
	{name: "no provisioning network", target: "rebuild", node: bridge(nil), at: "network", want: "there is no provisioning network"},
	{name: "deploy kernel without ramdisk", target: "rebuild", info: object{"deploy_kernel": "$DIR/images/vmlinuz"}, at: "deploy", want: "no ramdisk is known"},
	{name: "system ramdisk outside of the directories", target: "rebuild", node: object{"deploy_interface": "ramdisk"},
		instance: object{"image_source": nil, "kernel": "$DIR/images/vmlinuz", "ramdisk": "/etc/shadow"}, at: "deploy", want: "the ramdisk /etc/shadow lies outside"},
	{name: "no cleaning network", target: "provide", node: bridge(object{"automated_clean": true}), at: "network", want: "there is no cleaning network"},
	{name: "missing deploy kernel", target: "provide", node: object{"automated_clean": true}, info: object{"deploy_kernel": "$DIR/images/nothing", "deploy_ramdisk": "$DIR/images/initrd"}, at: "deploy", want: "no such file"},
	{name: "no inspection network", target: "inspect", node: bridge(object{"inspect_interface": "agent"}), at: "inspect", want: "there is no inspection network"},
	{name: "deploy kernel outside of the directories", target: "inspect", node: object{"inspect_interface": "agent"},
		info: object{"deploy_kernel": "/etc/shadow", "deploy_ramdisk": "$DIR/images/initrd"}, at: "inspect", want: "the kernel /etc/shadow lies outside"},
	{name: "clean: step of the ramdisk without it", target: "clean", ask: steps("clean", step("deploy", "erase_devices", nil), withoutAgent), want: "there is no step erase_devices of the interface deploy here"},
	{name: "clean: step of the ramdisk of a node without agents", target: "clean", node: object{"deploy_interface": "fake"},
		ask: steps("clean", step("deploy", "erase_devices", nil), nil), want: "there is no step erase_devices of the interface deploy here"},
	{name: "clean: unknown bios step", target: "clean", info: deployable, ask: steps("clean", step("bios", "no_such", nil), nil), want: "there is no step no_such of the interface bios here: this node has bios.apply_configuration"},
	{name: "clean: unknown bios step without the ramdisk", target: "clean", ask: steps("clean", step("bios", "no_such", nil), withoutAgent), want: "there is no step no_such of the interface bios"},
	{name: "clean: unknown raid step", target: "clean", info: deployable, ask: steps("clean", step("raid", "no_such", nil), nil), want: "there is no step no_such of the interface raid"},
	{name: "clean: unknown management step", target: "clean", info: deployable, ask: steps("clean", step("management", "no_such", nil), nil), want: "there is no step no_such of the interface management"},
	{name: "clean: unknown power step", target: "clean", info: deployable, ask: steps("clean", step("power", "no_such", nil), nil), want: "there is no step no_such of the interface power"},
	{name: "clean: raid that is not supported", target: "clean", info: deployable, node: object{"raid_interface": "no-raid"},
		ask: steps("clean", step("raid", "create_configuration", nil), nil), want: "there is no step create_configuration of the interface raid"},
	{name: "clean: missing argument", target: "clean", info: deployable, ask: steps("clean", step("bios", "apply_configuration", nil), nil), want: "the step bios.apply_configuration needs the argument settings"},
	{name: "clean: unknown argument", target: "clean", info: deployable, ask: steps("clean", step("management", "reset_bmc", object{"args": object{"hard": true}}), nil),
		want: `the step management.reset_bmc has no argument "hard": it has none`},
	{name: "clean: runbook", target: "clean", info: deployable, runbook: step("bios", "no_such", object{"order": 1}), want: "there is no step no_such of the interface bios"},
	{name: "service: step of the ramdisk without it", target: "service", ask: steps("service", step("deploy", "burnin", nil), withoutAgent), want: "there is no step burnin of the interface deploy"},
	{name: "service: unknown firmware step", target: "service", info: deployable, ask: steps("service", step("firmware", "no_such", nil), nil), want: "there is no step no_such of the interface firmware"},
	{name: "service: unknown vendor step", target: "service", info: deployable, ask: steps("service", step("vendor", "no_such", nil), nil), want: "there is no step no_such of the interface vendor"},
	{name: "service: runbook", target: "service", info: deployable, runbook: step("raid", "create_configuration", object{"order": 1, "args": object{"wipe": true}}),
		want: `the step raid.create_configuration has no argument "wipe": it has create_nonroot_volumes`},
	{name: "rebuild: unknown step", target: "rebuild", info: deployable, ask: steps("deploy", step("bios", "no_such", firstPriority), nil), want: "there is no step no_such of the interface bios"},
	{name: "rebuild: missing argument", target: "rebuild", info: deployable, ask: steps("deploy", step("bios", "apply_configuration", firstPriority), nil), want: "needs the argument settings"},
	{name: "rebuild: deploy template", target: "rebuild", info: deployable, template: step("bios", "no_such", firstPriority), at: "deploy", want: "there is no step no_such of the interface bios"},
}

// TestBrokenConfigurations: each is refused by the API, shown by validate and by the doctor, in the same sentence, and the
// machine goes on as it was.
func TestBrokenConfigurations(t *testing.T) {
	w := newWorld(t)
	cli := program.CLI{URL: w.URL}
	if len(table) < 30 {
		t.Errorf("%d kinds", len(table))
	}
	t.Run("all", func(t *testing.T) {
		for _, c := range table {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				w.refusesThrice(t, cli, c)
			})
		}
	})
}

// refusesThrice wants an operation refused by the API, validate and the doctor in the same sentence, and the machine as it was. It gives
// the sentence.
func (w *world) refusesThrice(t *testing.T, cli program.CLI, c broken) string {
	t.Helper()
	m := newMachine(t, c.bend)
	trait := w.withLists(t, &c)
	id := w.enroll(t, m, c)
	if trait != "" {
		w.must(t, "PUT", "/v1/nodes/"+id+"/traits/"+trait, nil)
	}
	status, _, said := w.ask(t, "PUT", "/v1/nodes/"+id+"/states/provision", c.request())
	_, sentence, found := strings.Cut(said, " node "+id+": ")
	if status != http.StatusBadRequest || !found || !strings.Contains(sentence, c.want) {
		t.Fatalf("the API answers %d %q, want %q", status, said, c.want)
	}
	sentence = strings.TrimSpace(sentence)
	shown, _ := w.must(t, "GET", "/v1/nodes/"+id+"/validate", nil)[c.at].(object)
	if reason, _ := shown["reason"].(string); c.at != "" && (shown["result"] != false || !strings.Contains(reason, sentence)) {
		t.Errorf("validate shows at %s: %v\nthe API: %s", c.at, shown, sentence)
	}
	out, err := cli.Try(t, "doctor", "--node", id)
	if knows := c.at != "" || c.runbook != nil; knows && (err == nil || !strings.Contains(strings.ReplaceAll(out, "\n", " "), sentence) && !said1(out, sentence)) {
		t.Errorf("the doctor (%v):\n%s\nthe API: %s", err, out, sentence)
	}
	if n := w.reaches(t, id, c.state()); n["last_error"] != nil || n["power_state"] != "power on" {
		t.Errorf("error %v, power %v", n["last_error"], n["power_state"])
	}
	m.untouched(t)
	return sentence
}

// TestSilentImageServer: a request waits two seconds for it. The first action waits longer, and leaves the machine as it is; the
// next request knows.
func TestSilentImageServer(t *testing.T) {
	w := newWorld(t)
	m := newMachine(t, nil)
	id := w.enroll(t, m, broken{target: "rescue", info: kernel("$WEB/silent")})
	began := time.Now()
	w.must(t, "GET", "/v1/nodes/"+id+"/validate", nil)
	if took := time.Since(began); took > 8*time.Second { // the question itself may take 10 s
		t.Errorf("validate took %s", took)
	}
	w.must(t, "PUT", "/v1/nodes/"+id+"/states/provision", request("rescue"))
	n := w.reaches(t, id, "rescue failed")
	const want = "the server does not answer"
	if text, _ := n["last_error"].(string); !strings.Contains(text, want) || n["power_state"] != "power on" {
		t.Errorf("error %q, power %v", text, n["power_state"])
	}
	m.untouched(t)
	shown, _ := w.must(t, "GET", "/v1/nodes/"+id+"/validate", nil)["rescue"].(object)
	if reason, _ := shown["reason"].(string); !strings.Contains(reason, want) {
		t.Errorf("validate: %v", shown)
	}
}

func request(target string) object {
	if target == "rescue" {
		return object{"target": target, "rescue_password": "let me in"}
	}
	return object{"target": target}
}

// said1 tells whether each reason of a sentence stands in a line of its own.
func said1(out, sentence string) bool {
	for _, reason := range strings.Split(sentence, "; ") {
		if !strings.Contains(out, reason) {
			return false
		}
	}
	return true
}

// TestOnlyTheActionSees: where nothing is known of the BMC the door has no objection. The first action reads it, and the machine
// is as it was.
func TestOnlyTheActionSees(t *testing.T) {
	w := newWorld(t)
	for _, c := range table {
		if c.bend == nil {
			continue
		}
		m := newMachine(t, c.bend)
		id := w.enroll(t, m, c)
		_, _, refused := w.ask(t, "PUT", "/v1/nodes/"+id+"/states/provision", request(c.target))
		w.must(t, "PATCH", "/v1/nodes/"+id, []object{{"op": "add", "path": "/driver_info/redfish_verify_ca", "value": false}})
		w.must(t, "PUT", "/v1/nodes/"+id+"/states/provision", request(c.target))
		n := w.reaches(t, id, "rescue failed")
		_, sentence, _ := strings.Cut(refused, " node "+id+": ")
		sentence, _, _ = strings.Cut(sentence, ". This was read at")
		if text, _ := n["last_error"].(string); sentence == "" || !strings.Contains(text, sentence) || n["power_state"] != "power on" {
			t.Errorf("%s: %q, power %v, want %q", c.name, text, n["power_state"], sentence)
		}
		m.untouched(t)
	}
}

// TestNetworkDataIsRefusedAtPATCH, and when the node is made.
func TestNetworkDataIsRefusedAtPATCH(t *testing.T) {
	w := newWorld(t)
	m := newMachine(t, nil)
	id := w.enroll(t, m, broken{target: "rescue"})
	bad := object{"foo": 1, "links": "x"}
	status, _, said := w.ask(t, "PATCH", "/v1/nodes/"+id, []object{{"op": "add", "path": "/network_data", "value": bad}})
	if status != http.StatusBadRequest || !strings.Contains(said, "network_data: links must be a list") {
		t.Errorf("%d %q", status, said)
	}
	if status, _, said := w.ask(t, "POST", "/v1/nodes", object{"driver": "redfish", "network_data": bad}); status != http.StatusBadRequest || !strings.Contains(said, "network_data: links") {
		t.Errorf("%d %q", status, said)
	}
	w.must(t, "PATCH", "/v1/nodes/"+id, []object{{"op": "add", "path": "/network_data", "value": object{"links": []any{}, "networks": []any{}, "services": []any{}}}})
	w.must(t, "PATCH", "/v1/nodes/"+id, []object{{"op": "replace", "path": "/network_data", "value": object{}}})
}
