package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/access"
	"salvor/api"
	"salvor/compute"
	"salvor/diagnose"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// auditCanary is in each value that the requests of the walk write. No event may have it.
const auditCanary = "grackle"

// withoutEvent are the routes that change something for nobody, or whose events no request of this walk can cause, each with the reason.
var withoutEvent = map[string]string{
	"POST /v1/heartbeat/{node}":                                         "a machine says that it lives; the first heartbeat of a boot has an event",
	"POST /v1/continue_inspection":                                      "a machine brings what it found; the inspection has events",
	"POST /v1/events":                                                   "what a network service reports is checked and dropped",
	"* /v1/nodes/{node}/volume/connectors/{id}":                         "every request is refused",
	"* /v1/nodes/{node}/volume/targets/{id}":                            "every request is refused",
	"* /v1/drivers/{driver}/vendor_passthru":                            "no driver has a method",
	"* /v1/drivers/{driver}/vendor_passthru/{method}":                   "no driver has a method",
	"POST /volume/v3/attachments":                                       "every request is refused",
	"DELETE /volume/v3/attachments/{attachment}":                        "every request is refused",
	"POST /volume/v3/{project}/attachments":                             "every request is refused",
	"DELETE /volume/v3/{project}/attachments/{attachment}":              "every request is refused",
	"PUT /compute/v2.1/servers/{server}/os-volume_attachments/{volume}": "every request is refused",
	"POST /image/v2/images/{image}/members":                             "every request is refused",
	"POST /identity/v3/auth/tokens":                                     "a login changes no record; the log has it",
	"DELETE /identity/v3/auth/tokens":                                   "a logout changes no record; the log has it",
	"POST /salvor/v1/plans":                                             "a draft changes no server; its run has an event",
	"POST /salvor/v1/nodes/{ident}/recording":                           "reads resources of a BMC",
	"POST /salvor/v1/restored/read":                                     "reads a held database again",
	"POST /salvor/v1/restored/release":                                  "needs a held database: package restored writes an event of each job",
	"POST /salvor/v1/servers/adopt":                                     "needs a cluster that answers: the adopted server has an event",
	"POST /salvor/v1/reconcile/servers":                                 "needs a cluster that answers: each server that is mended has an event",
	"POST /salvor/v1/site/words":                                        "a boot service reports what machines ask",
	"POST /salvor/v1/site/ramdisk/v1/heartbeat/{node}":                  "a machine says that it lives",
	"POST /salvor/v1/site/ramdisk/v1/continue_inspection":               "a machine brings what it found",
}

// auditStep is a request of the walk.
type auditStep struct {
	ask string // METHOD PATH [BODY]
	// keep is NAME FIELD...: the field of the answer that later requests name as {NAME}.
	keep  string
	first func(*auditWorld)
	// header are names and values; fields are names that the text of an event must have.
	header, fields []string
}

// auditWorld is the program with a conductor, over a fresh database.
type auditWorld struct {
	*estate
	p      *ControlPlane
	vars   map[string]string
	walked map[string]bool
	steps  int
}

// newNode makes {node} a fresh node of a state.
func newNode(state metal.State, edit ...func(*metal.Node)) func(*auditWorld) {
	return func(w *auditWorld) {
		w.Helper()
		n := &metal.Node{ID: uuid.NewString(), Name: "n" + uuid.NewString()[:8], Driver: "fake-hardware", ProvisionState: state, PowerState: metal.PowerOff, ResourceClass: "baremetal"}
		for _, e := range edit {
			e(n)
		}
		must.OK(w, w.p.Store.Do(w.Context(), func(tx job.Tx) error { return w.p.Store.InsertNode(tx, n) }))
		w.vars["node"] = n.ID
	}
}

// repaired makes {node} a fresh node of a state with the repair r1.
func repaired(state metal.State, r metal.Repair) func(*auditWorld) {
	return func(w *auditWorld) {
		w.Helper()
		newNode(state)(w)
		r.ID, r.Digest = "r1", "d1"
		body := must.Get(json.Marshal([]metal.Repair{r}))(w)
		must.OK(w, w.p.Store.Do(w.Context(), func(tx job.Tx) error {
			return w.p.Store.SaveDocument(tx, metal.Document{NodeID: w.vars["node"], Kind: metal.Repairs, Body: body})
		}))
	}
}

// diagnosed makes {node} and {server} fresh ones that run, each with the diagnosis d1, which found nothing.
func diagnosed(w *auditWorld) {
	w.Helper()
	newNode(metal.Active, func(n *metal.Node) { n.PowerState = metal.PowerOn })(w)
	newServer(compute.Active)(w)
	found := diagnose.Record{ID: "d1", State: diagnose.Finished}
	found.Report.Judge()
	body := must.Get(json.Marshal([]metal.Diagnosis{{Record: found}}))(w)
	must.OK(w, w.p.Store.Do(w.Context(), func(tx job.Tx) error {
		return errors.Join(w.p.Store.SaveDocument(tx, metal.Document{NodeID: w.vars["node"], Kind: metal.Diagnoses, Body: body}),
			w.p.Store.SaveServerDiagnoses(tx, w.vars["server"], []diagnose.Record{found}))
	}))
}

// newServer makes {server} a fresh server of a state on the host {host}.
func newServer(state compute.VMState, edit ...func(*compute.Server)) func(*auditWorld) {
	return func(w *auditWorld) {
		w.Helper()
		s := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: "s" + uuid.NewString()[:8], Project: access.ProjectID("lab"), User: "ann", State: state, LaunchedAt: time.Now(),
			HostID: w.vars["host"], Flavor: compute.Flavor{Ref: "tiny", Name: "tiny", VCPUs: 1, RAM: 64, Disk: 1}, ImageID: w.vars["image"],
			Metadata: map[string]string{"old": "x"}, Tags: []string{"old"}, Disks: []compute.Disk{{Name: "vda", SizeGiB: 1, Store: "local"}}}
		if state == compute.Active || state == compute.Rescued {
			s.Power = compute.PowerOn
		}
		for _, e := range edit {
			e(s)
		}
		must.OK(w, w.p.Store.Do(w.Context(), func(tx job.Tx) error { return w.p.Store.Servers().Insert(tx, s) }))
		w.vars["server"], w.vars["number"] = s.ID, fmt.Sprint(s.Num)
	}
}

// attachedVolume makes {server} a fresh server that has the volume {attached} as a disk.
func attachedVolume(w *auditWorld) {
	w.Helper()
	v := &compute.Volume{Record: record.Record{ID: uuid.NewString()}, Name: "data", Project: access.ProjectID("lab"), SizeGiB: 1, Portal: "192.0.2.7:3260", IQN: "iqn.2026-01.example:data", LUN: 3, Status: compute.VolumeInUse}
	newServer(compute.Stopped, func(s *compute.Server) {
		v.ServerID, v.Device, v.AttachedAt = s.ID, "vdb", time.Now()
		s.Disks = append(s.Disks, compute.Disk{Name: "vdb", SizeGiB: 1, VolumeID: v.ID, BootIndex: -1})
	})(w)
	must.OK(w, w.p.Store.Do(w.Context(), func(tx job.Tx) error { return w.p.Store.Volumes().Insert(tx, v) }))
	w.vars["attached"] = v.ID
}

// poweredOff makes {own} a node that is off.
func poweredOff(w *auditWorld) {
	w.Helper()
	must.OK(w, w.p.Store.Do(w.Context(), func(tx job.Tx) error {
		n, err := w.p.Store.Node(w.Context(), tx, w.vars["own"])
		if err != nil {
			return err
		}
		n.PowerState = metal.PowerOff
		return w.p.Store.SaveNode(tx, n)
	}))
}

// drafted makes {plan} a draft of a plan, which changes nothing.
func drafted(w *auditWorld) {
	w.Helper()
	answer := w.ask("root", "POST", "/salvor/v1/plans", `{"host":"vm2","drain":true}`)
	var plan struct{ ID string }
	must.OK(w, json.Unmarshal(answer.Body.Bytes(), &plan))
	w.vars["plan"] = plan.ID
}

func (w *auditWorld) host(name, address string) string {
	w.Helper()
	h := &compute.Host{Record: record.Record{ID: uuid.NewString()}, Name: name, Kind: compute.AgentHost, BootID: "b1", Inventory: compute.Inventory{
		HypervisorType: "QEMU", Address: address, VCPUs: 64, RAM: 262144, Disk: 4000, Bridges: []string{"br-a"}, Firmware: []compute.Firmware{compute.BIOS},
		Stores: []compute.DiskStore{{Name: "local", Marker: "m1", SizeGiB: 4000, FreeGiB: 4000}}}}
	must.OK(w, w.p.Store.Do(w.Context(), func(tx job.Tx) error { return w.p.Store.Hosts().Insert(tx, h) }))
	return h.ID
}

// play renews the leases of hosts and answers what they are asked of themselves, until the test ends.
func (w *auditWorld) play(hosts ...string) {
	renew := func(n int64) {
		var all []compute.Lease
		for _, id := range hosts {
			all = append(all, compute.Lease{HostID: id, BootID: "b1", RenewedAt: time.Now(), Renewals: n})
		}
		_ = w.p.Store.SaveLeases(w.Context(), all)
	}
	renew(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := int64(2); w.Context().Err() == nil; n++ {
			renew(n)
			for _, id := range hosts {
				orders, _ := w.p.Store.OpenOrders(w.Context(), id)
				for _, o := range orders {
					if o.ServerID != id { // a question to the host alone has the host in place of a server
						continue
					}
					r := compute.Result{Quarantine: []compute.QuarantinedDisk{{ID: "disk1", Bytes: 1, Store: "local", Marker: "m1"}}}
					_ = w.p.Store.Do(w.Context(), func(tx job.Tx) error {
						_, err := w.p.Store.FinishOrder(tx, o.ID, id, o.BootID, o.Epoch, r)
						return err
					})
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	w.Cleanup(func() { <-done })
}

// TestEachChangeHasAnEvent asks each route of the program that can change something for a change. The change has an event with its user,
// what it was done to and, of an update, the names of the fields. Or the route stands in withoutEvent.
func TestEachChangeHasAnEvent(t *testing.T) {
	p := newTestControlPlane(t, "[DEFAULT]\nauth_strategy = token\nenabled_hardware_types = fake-hardware\n[image]\nimport_hosts = *\n")
	must.OK(t, p.Runner.Join(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.Runner.Run(t.Context(), time.Second) }()
	go p.Directory.Watch(t.Context(), func(error) {})
	t.Cleanup(func() { <-ended })
	all, _, err := p.Handlers() // with the routes of tokens
	must.OK(t, err)
	main, _ := p.handlersFor(scopes{})
	w := &auditWorld{estate: &estate{T: t, main: main, own: map[string][]string{}}, p: p, vars: map[string]string{"lab": access.ProjectID("lab")}, walked: map[string]bool{}}
	w.vars["host"], w.vars["host2"], w.vars["idle"] = w.host("vm1", "192.0.2.1"), w.host("vm2", "192.0.2.2"), w.host("vm3", "192.0.2.3")
	w.play(w.vars["host"], w.vars["host2"], w.vars["idle"])
	for deadline := time.Now().Add(20 * time.Second); p.Directory.Staffed("") != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no conductor lives")
		}
	}
	doors := all.(api.RouteLister).Endpoints
	for _, step := range slices.Concat(metalSteps, computeSteps, volumeSteps("/volume/v3"), volumeSteps("/volume/v3/{lab}"), nativeSteps) {
		w.step(doors, step)
	}
	for _, d := range doors {
		route := d.Method + " " + d.Path
		mutates := d.Method != http.MethodGet && d.Method != http.MethodHead
		if _, listed := withoutEvent[route]; mutates && !w.walked[route] && !listed {
			t.Errorf("%s can change something: give the walk a request for it, or withoutEvent the reason why it has no event", route)
		}
	}
	for route := range withoutEvent {
		if !slices.ContainsFunc(doors, func(d api.Endpoint) bool { return d.Method+" "+d.Path == route }) {
			t.Errorf("withoutEvent has %s, which is no route", route)
		}
		if w.walked[route] {
			t.Errorf("withoutEvent has %s, which has an event", route)
		}
	}
	t.Logf("%d requests at %d routes have their event; %d routes have none", w.steps, len(w.walked), len(withoutEvent))
	if testing.Verbose() {
		w.eachEvent(func(e job.Event) { t.Log(e.Subject.Kind, e.Type, e.Text) })
	}
}

// step asks and looks for the event.
func (w *auditWorld) step(doors []api.Endpoint, s auditStep) {
	w.Helper()
	if s.first != nil {
		s.first(w)
	}
	text := s.ask
	for name, value := range w.vars {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	method, rest, _ := strings.Cut(text, " ")
	path, body, _ := strings.Cut(rest, " ")
	var answer *httptest.ResponseRecorder
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) { // what a conductor works on meanwhile may be in the way
		answer = w.ask("root", method, path, body, append([]string{"OpenStack-API-Version", "compute 2.88"}, s.header...)...)
		if answer.Code != http.StatusConflict || time.Now().After(deadline) {
			break
		}
	}
	route := routeOf(doors, method, strings.Split(path, "?")[0])
	w.steps++
	if w.walked[route] = true; answer.Code/100 != 2 {
		w.Errorf("%s %s is refused: %d %s", method, path, answer.Code, answer.Body)
		return
	}
	if s.keep != "" {
		var v any
		must.OK(w, json.Unmarshal(answer.Body.Bytes(), &v))
		fields := strings.Fields(s.keep)
		for _, name := range fields[1:] {
			v = v.(map[string]any)[name]
		}
		w.vars[fields[0]] = fmt.Sprint(v)
	}
	id := answer.Header().Get("Openstack-Request-Id")
	var events []job.Event
	for deadline := time.Now().Add(5 * time.Second); len(events) == 0 && time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		w.eachEvent(func(e job.Event) {
			if e.RequestID == id {
				events = append(events, e)
			}
		})
	}
	if len(events) == 0 {
		w.Errorf("%s %s changed something and has no event: %s", method, path, route)
		return
	}
	all := ""
	for _, e := range events {
		all += e.Text + "\n"
		if _, _, err := w.p.Store.FindSubject(w.Context(), e.Subject.Kind, e.Subject.ID); err != nil {
			w.Errorf("%s %s: the event %q stands on a timeline that cannot be asked for: %v", method, path, e.Text, err)
		}
		if e.User != "root" {
			w.Errorf("%s %s: the event %q has the user %q, want root", method, path, e.Text, e.User)
		}
	}
	if strings.Contains(all, auditCanary) || strings.Contains(all, "nothing differs") {
		w.Errorf("%s %s: the events are %q: want names of fields and no values", method, path, all)
	}
	for _, field := range s.fields {
		if !strings.Contains(all, field) {
			w.Errorf("%s %s: the events are %q: want the name %s", method, path, all, field)
		}
	}
}

func (w *auditWorld) eachEvent(do func(job.Event)) {
	w.Helper()
	for after := int64(0); ; {
		page := must.Get(w.p.Store.Feed(w.Context(), job.FeedFilter{After: after}, 1000))(w)
		for _, e := range page {
			do(e)
			after = e.Num
		}
		if len(page) < 1000 {
			return
		}
	}
}

// routeOf finds the route of a path: of those that match, the one with the most literal parts.
func routeOf(doors []api.Endpoint, method, path string) string {
	best, most := "", -1
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for _, d := range doors {
		of := strings.Split(strings.Trim(d.Path, "/"), "/")
		if d.Method != method && d.Method != "*" || len(of) != len(parts) {
			continue
		}
		literals := 0
		for i, part := range of {
			switch {
			case strings.HasPrefix(part, "{"):
			case part == parts[i]:
				literals++
			default:
				literals = -len(of) - 1
			}
		}
		if literals > most {
			best, most = d.Method+" "+d.Path, literals
		}
	}
	return best
}

func patchOf(ops ...string) string {
	var out []string
	for _, op := range ops {
		path, value, _ := strings.Cut(op, "=")
		out = append(out, fmt.Sprintf(`{"op":"add","path":"%s","value":%s}`, path, value))
	}
	return "[" + strings.Join(out, ",") + "]"
}

var metalSteps = []auditStep{
	{ask: `POST /v1/nodes {"name":"n1","driver":"fake-hardware","driver_info":{"fake_password":"grackle"}}`, keep: "own uuid", fields: []string{"node created"}},
	{ask: "PATCH /v1/nodes/{own} " + patchOf("/extra/rack=\"grackle\"", "/driver_info/fake_password=\"grackle2\""), fields: []string{"extra/rack", "driver_info/fake_password"}},
	{ask: `PUT /v1/nodes/{own}/maintenance {"reason":"a new disk"}`},
	{ask: `DELETE /v1/nodes/{own}/maintenance`},
	{ask: `PUT /v1/nodes/{own}/traits {"traits":["CUSTOM_A"]}`, fields: []string{"traits"}},
	{ask: `PUT /v1/nodes/{own}/traits/CUSTOM_B`, fields: []string{"traits"}},
	{ask: `DELETE /v1/nodes/{own}/traits/CUSTOM_B`, fields: []string{"traits"}},
	{ask: `DELETE /v1/nodes/{own}/traits`, fields: []string{"traits"}},
	{ask: `POST /v1/ports {"node_uuid":"{own}","address":"52:54:00:00:00:01"}`, keep: "port uuid", fields: []string{"52:54:00:00:00:01"}},
	{ask: "PATCH /v1/ports/{port} " + patchOf("/extra/a=\"grackle\""), fields: []string{"extra/a"}},
	{ask: `POST /v1/nodes/{own}/vifs {"id":"00000000-0000-4000-8000-00000000000a"}`},
	{ask: `DELETE /v1/nodes/{own}/vifs/00000000-0000-4000-8000-00000000000a`},
	{ask: `DELETE /v1/ports/{port}`},
	{ask: `POST /v1/portgroups {"node_uuid":"{own}","name":"g1","properties":{"secret":"grackle"}}`, keep: "portgroup uuid"},
	{ask: "PATCH /v1/portgroups/{portgroup} " + patchOf("/extra/a=\"grackle\""), fields: []string{"extra/a"}},
	{ask: `DELETE /v1/portgroups/{portgroup}`},
	{ask: `POST /v1/volume/connectors {"node_uuid":"{own}","type":"iqn","connector_id":"iqn.2001-04.com.example:grackle"}`, keep: "connector uuid"},
	{first: poweredOff, ask: "PATCH /v1/volume/connectors/{connector} " + patchOf("/extra/a=\"grackle\""), fields: []string{"extra/a"}},
	{ask: `DELETE /v1/volume/connectors/{connector}`},
	{ask: `POST /v1/volume/targets {"node_uuid":"{own}","volume_type":"iscsi","boot_index":0,"volume_id":"v","properties":{"auth_password":"grackle"}}`, keep: "target uuid"},
	{ask: "PATCH /v1/volume/targets/{target} " + patchOf("/properties/auth_password=\"grackle2\""), fields: []string{"properties/auth_password"}},
	{ask: `DELETE /v1/volume/targets/{target}`},
	{ask: `DELETE /v1/nodes/{own}`},

	{ask: `PUT /v1/nodes/{node}/states/power {"target":"power on"}`, first: newNode(metal.Manageable)},
	{ask: `PUT /v1/nodes/{node}/states/provision {"target":"manage"}`, first: newNode(metal.Enroll)},
	{ask: `PUT /v1/nodes/{node}/states/raid {"logical_disks":[{"size_gb":1,"raid_level":"1"}]}`, first: newNode(metal.Manageable)},
	{ask: `PUT /v1/nodes/{node}/states/console {"enabled":true}`, first: newNode(metal.Manageable)},
	{ask: `PUT /v1/nodes/{node}/states/boot_mode {"target":"uefi"}`, first: newNode(metal.Manageable)},
	{ask: `PUT /v1/nodes/{node}/states/secure_boot {"target":true}`, first: newNode(metal.Manageable)},
	{ask: `PUT /v1/nodes/{node}/management/boot_device {"boot_device":"disk","persistent":true}`, first: newNode(metal.Manageable)},
	{ask: `PUT /v1/nodes/{node}/management/inject_nmi {}`, first: newNode(metal.Manageable)},
	{ask: `PUT /v1/nodes/{node}/management/indicators/led@system {"state":"on"}`, first: newNode(metal.Manageable)},
	{ask: `POST /v1/nodes/{node}/vendor_passthru?method=second_method {"bar":"x"}`, first: newNode(metal.Manageable)},
	{ask: `POST /v1/nodes/{node}/vendor_passthru/second_method {"bar":"x"}`, first: newNode(metal.Manageable)},
	{ask: `POST /v1/nodes/{node}/vmedia {"device_type":"cdrom","image_url":"http://127.0.0.1:9/grackle.iso"}`, first: newNode(metal.Manageable)},
	{ask: `DELETE /v1/nodes/{node}/vmedia`, first: newNode(metal.Manageable)},

	{ask: `POST /v1/chassis {"description":"grackle"}`, keep: "chassis uuid"},
	{ask: "PATCH /v1/chassis/{chassis} " + patchOf("/description=\"grackle2\"", "/extra/a=\"grackle\""), fields: []string{"description", "extra/a"}},
	{ask: `DELETE /v1/chassis/{chassis}`},
	{ask: `POST /v1/allocations {"name":"a1","resource_class":"baremetal"}`, keep: "allocation uuid", first: newNode(metal.Available)},
	{ask: "PATCH /v1/allocations/{allocation} " + patchOf("/extra/a=\"grackle\""), fields: []string{"extra/a"}},
	{ask: `DELETE /v1/allocations/{allocation}`},
	{ask: `POST /v1/allocations {"name":"a2","resource_class":"baremetal","candidate_nodes":["{node}"]}`, first: newNode(metal.Available)},
	{ask: `DELETE /v1/nodes/{node}/allocation`},
	{ask: `POST /v1/deploy_templates {"name":"CUSTOM_T","steps":[{"interface":"deploy","step":"erase","priority":10,"args":{"password":"grackle"}}]}`, keep: "template uuid"},
	{ask: "PATCH /v1/deploy_templates/{template} " + patchOf("/extra/a=\"grackle\""), fields: []string{"extra/a"}},
	{ask: `DELETE /v1/deploy_templates/{template}`},
	{ask: `POST /v1/runbooks {"name":"CUSTOM_R","steps":[{"interface":"deploy","step":"erase","order":1,"args":{"password":"grackle"}}]}`, keep: "runbook uuid"},
	{ask: "PATCH /v1/runbooks/{runbook} " + patchOf("/extra/a=\"grackle\""), fields: []string{"extra/a"}},
	{ask: `PUT /v1/runbooks/{runbook}/traits {"traits":["CUSTOM_A"]}`, fields: []string{"traits"}},
	{ask: `PUT /v1/runbooks/{runbook}/traits/CUSTOM_B`, fields: []string{"traits"}},
	{ask: `DELETE /v1/runbooks/{runbook}/traits/CUSTOM_B`, fields: []string{"traits"}},
	{ask: `DELETE /v1/runbooks/{runbook}/traits`, fields: []string{"traits"}},
	{ask: `DELETE /v1/runbooks/{runbook}`},
	{ask: `POST /v1/inspection_rules {"description":"r","actions":[{"op":"set-attribute","args":{"path":"/driver_info/ipmi_password","value":"grackle"}}],"conditions":[]}`, keep: "rule uuid"},
	{ask: "PATCH /v1/inspection_rules/{rule} " + patchOf("/description=\"grackle\""), fields: []string{"description"}},
	{ask: `DELETE /v1/inspection_rules/{rule}`},
	{ask: `POST /v1/inspection_rules {"description":"r","actions":[{"op":"set-attribute","args":{"path":"/extra/a","value":"grackle"}}],"conditions":[]}`},
	{ask: `DELETE /v1/inspection_rules`},
}

const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f x"

// action is a request for an action of a server in a state.
func action(state compute.VMState, body string) auditStep {
	return auditStep{ask: "POST /compute/v2.1/servers/{server}/action " + body, first: newServer(state)}
}

var computeSteps = []auditStep{
	{ask: `POST /compute/v2.1/flavors {"flavor":{"id":"tiny","name":"tiny","ram":64,"vcpus":1,"disk":1}}`},
	{ask: `PUT /compute/v2.1/flavors/tiny {"flavor":{"description":"grackle"}}`, fields: []string{"description"}},
	{ask: `POST /compute/v2.1/flavors/tiny/os-extra_specs {"extra_specs":{"a":"grackle"}}`, fields: []string{"extra_specs/a"}},
	{ask: `PUT /compute/v2.1/flavors/tiny/os-extra_specs/a {"a":"grackle2"}`, fields: []string{"extra_specs/a"}},
	{ask: `DELETE /compute/v2.1/flavors/tiny/os-extra_specs/a`, fields: []string{"extra_specs/a"}},
	{ask: `POST /compute/v2.1/os-keypairs {"keypair":{"name":"k1","type":"ssh","public_key":"` + publicKey + `"}}`, fields: []string{"k1"}},
	{ask: `DELETE /compute/v2.1/os-keypairs/k1`, fields: []string{"k1"}},
	{ask: `POST /image/v2/images {"name":"debian","disk_format":"raw","container_format":"bare","visibility":"public"}`, keep: "image id"},
	{ask: `PUT /image/v2/images/{image}/file grackle`, header: []string{"Content-Type", "application/octet-stream"}, fields: []string{"status", "size"}},
	{ask: `PATCH /image/v2/images/{image} [{"op":"add","path":"/a","value":"grackle"}]`, header: []string{"Content-Type", "application/openstack-images-v2.1-json-patch"}, fields: []string{"properties/a"}},
	{ask: `PUT /image/v2/images/{image}/tags/t`, fields: []string{"tags"}},
	{ask: `DELETE /image/v2/images/{image}/tags/t`, fields: []string{"tags"}},
	{ask: `POST /image/v2/images/{image}/actions/deactivate`, fields: []string{"status"}},
	{ask: `POST /image/v2/images/{image}/actions/reactivate`, fields: []string{"status"}},
	{ask: `POST /image/v2/images {"name":"far","disk_format":"raw","container_format":"bare"}`, keep: "far id"},
	{ask: `POST /image/v2/images/{far}/import {"method":{"name":"web-download","uri":"http://127.0.0.1:9/grackle"}}`},
	{ask: `POST /image/v2/images {"name":"old","disk_format":"raw","container_format":"bare"}`, keep: "old id"},
	{ask: `DELETE /image/v2/images/{old}`},
	{ask: `POST /compute/v2.1/servers {"server":{"name":"web","flavorRef":"tiny","imageRef":"{image}","networks":"none","adminPass":"grackle"}}`},
	{ask: `PUT /compute/v2.1/servers/{server} {"server":{"name":"db","description":"grackle"}}`, first: newServer(compute.Stopped), fields: []string{"name", "description"}},
	{ask: `POST /compute/v2.1/servers/{server}/metadata {"metadata":{"a":"grackle"}}`, fields: []string{"metadata/a"}},
	{ask: `PUT /compute/v2.1/servers/{server}/metadata {"metadata":{"b":"grackle"}}`, fields: []string{"metadata/b"}},
	{ask: `PUT /compute/v2.1/servers/{server}/metadata/c {"meta":{"c":"grackle"}}`, fields: []string{"metadata/c"}},
	{ask: `DELETE /compute/v2.1/servers/{server}/metadata/c`, fields: []string{"metadata/c"}},
	{ask: `PUT /compute/v2.1/servers/{server}/tags {"tags":["grackle"]}`, fields: []string{"tags"}},
	{ask: `PUT /compute/v2.1/servers/{server}/tags/two`, fields: []string{"tags"}},
	{ask: `DELETE /compute/v2.1/servers/{server}/tags/two`, fields: []string{"tags"}},
	{ask: `DELETE /compute/v2.1/servers/{server}/tags`, fields: []string{"tags"}},
	action(compute.Stopped, `{"os-start":null}`), action(compute.Active, `{"os-stop":null}`), action(compute.Active, `{"pause":null}`), action(compute.Paused, `{"unpause":null}`),
	action(compute.Active, `{"suspend":null}`), action(compute.Suspended, `{"resume":null}`), action(compute.Active, `{"reboot":{"type":"HARD"}}`),
	action(compute.Active, `{"lock":{"locked_reason":"grackle"}}`), {ask: `POST /compute/v2.1/servers/{server}/action {"unlock":null}`},
	action(compute.Active, `{"os-resetState":{"state":"error"}}`), action(compute.Active, `{"forceDelete":null}`), action(compute.Active, `{"migrate":null}`),
	action(compute.Active, `{"rebuild":{"imageRef":"{image}","adminPass":"grackle"}}`),
	{ask: `POST /cyclades/compute/v2.0/servers/{number}/action {"start":{}}`, first: newServer(compute.Stopped)},
	{ask: `DELETE /cyclades/compute/v2.0/servers/{number}`, first: newServer(compute.Stopped)},
	{ask: `DELETE /compute/v2.1/servers/{server}`, first: newServer(compute.Stopped)},
	{ask: `PUT /compute/v2.1/os-services/{idle} {"status":"disabled","disabled_reason":"grackle"}`, fields: []string{"disabled"}},
	{ask: `PUT /compute/v2.1/os-services/{idle} {"status":"enabled"}`, fields: []string{"enabled"}},
	{ask: `POST /volume/v3/volumes {"volume":{"size":1,"name":"disk","metadata":{"salvor:portal":"192.0.2.7","salvor:iqn":"iqn.2026-01.example:disks","salvor:lun":"9"}}}`, keep: "attached volume id"},
	{ask: `POST /compute/v2.1/servers/{server}/os-volume_attachments {"volumeAttachment":{"volumeId":"{attached}"}}`, first: newServer(compute.Stopped)},
	{ask: `DELETE /compute/v2.1/servers/{server}/os-volume_attachments/{attached}`, first: attachedVolume},
	{ask: `DELETE /compute/v2.1/os-services/{retired}`, first: func(w *auditWorld) { w.vars["retired"] = w.host("vm4", "192.0.2.4") }},
	{ask: `DELETE /compute/v2.1/flavors/tiny`},
}

func volumeSteps(prefix string) []auditStep {
	of := func(method, path, body string, fields ...string) auditStep {
		return auditStep{ask: strings.TrimSpace(method + " " + prefix + "/volumes" + path + " " + body), fields: fields}
	}
	create := of("POST", "", `{"volume":{"size":1,"name":"v","metadata":{"salvor:portal":"192.0.2.7","salvor:iqn":"iqn.2026-01.example:disks","salvor:lun":"1","salvor:chap_user":"grackle","salvor:chap_password":"grackle"}}}`)
	create.keep = "volume volume id"
	return []auditStep{
		create, of("PUT", "/{volume}", `{"volume":{"description":"grackle"}}`, "description"), of("POST", "/{volume}/metadata", `{"metadata":{"a":"grackle"}}`, "metadata/a"),
		of("PUT", "/{volume}/metadata", `{"metadata":{"b":"grackle"}}`, "metadata/b"), of("PUT", "/{volume}/metadata/c", `{"meta":{"c":"grackle"}}`, "metadata/c"),
		of("DELETE", "/{volume}/metadata/c", "", "metadata/c"), of("POST", "/{volume}/action", `{"os-extend":{"new_size":2}}`, "size"),
		of("POST", "/{volume}/action", `{"os-set_bootable":{"bootable":true}}`, "bootable"), of("POST", "/{volume}/action", `{"os-set_image_metadata":{"metadata":{"a":"grackle"}}}`, "image_properties/a"),
		of("POST", "/{volume}/action", `{"os-reset_status":{"status":"error"}}`, "status"), of("DELETE", "/{volume}", ""),
	}
}

var nativeSteps = []auditStep{
	{ask: `POST /salvor/v1/tokens {"name":"ci","role":"reader"}`, fields: []string{"token ci created"}},
	{ask: `DELETE /salvor/v1/tokens/ci`, fields: []string{"token ci deleted"}},
	{ask: `POST /salvor/v1/networks {"name":"lab","bridge":"br-a"}`, fields: []string{"network lab created"}},
	{ask: `PATCH /salvor/v1/networks/lab {"mtu":1500,"shared":true}`, fields: []string{"mtu", "shared"}},
	{ask: `DELETE /salvor/v1/networks/lab`},
	{ask: `POST /salvor/v1/host-groups {"name":"racks"}`},
	{ask: `PATCH /salvor/v1/host-groups/racks {"healing":true,"max_hosts":3,"require":["attestation"]}`, fields: []string{"healing", "max_hosts", "require"}},
	{ask: `PATCH /salvor/v1/hosts/vm3 {"group":"racks"}`},
	{ask: `PATCH /salvor/v1/hosts/vm3 {"zone":"grackle"}`, fields: []string{"zone"}},
	{ask: `PATCH /salvor/v1/hosts/vm3 {"group":""}`},
	{ask: `DELETE /salvor/v1/host-groups/racks`},
	{ask: `POST /salvor/v1/join-tokens {"note":"grackle"}`, keep: "join id"},
	{ask: `DELETE /salvor/v1/join-tokens/{join}`},
	{ask: `POST /salvor/v1/sites {"name":"north","conductor_group":"north"}`},
	{ask: `DELETE /salvor/v1/sites/north`},
	{ask: `POST /salvor/v1/rescue-images {"name":"iso","kind":"iso","location":"a.iso","location_type":"file","force":true}`, keep: "rescue uuid"},
	{ask: `PATCH /salvor/v1/rescue-images/{rescue} {"os":"grackle"}`, fields: []string{"os"}},
	{ask: `DELETE /salvor/v1/rescue-images/{rescue}`},
	{ask: `POST /salvor/v1/clusters {"name":"g1","url":"https://127.0.0.1:9","user":"grackle","password":"grackle","insecure":true}`},
	{ask: `DELETE /salvor/v1/clusters/g1`},
	{ask: `DELETE /salvor/v1/hosts/{host}/quarantine/disk1`, fields: []string{"disk1"}},
	{ask: `POST /salvor/v1/hosts/{host}/quarantine/disk1/restore {"server":"{server}","other_project":true}`, first: newServer(compute.Stopped), fields: []string{"disk1"}},
	{ask: `POST /salvor/v1/rescue-images {"name":"system","kind":"kernel","access":"channel","location":"a/vmlinuz","ramdisk":"a/initrd","location_type":"file","default":true,"force":true}`},
	{ask: `POST /salvor/v1/servers/{server}/modify {"action":"rescue","keys":["` + publicKey + `"]}`, first: newServer(compute.Stopped)},
	{ask: `POST /compute/v2.1/servers/{server}/action {"os-start":null}`, first: newServer(compute.Stopped)},
	{ask: `POST /salvor/v1/servers/{server}/abort {}`},
	{ask: `POST /salvor/v1/servers/{server}/diagnoses {}`, first: newServer(compute.Stopped)},
	{ask: `POST /salvor/v1/nodes/{node}/diagnoses {}`, first: newNode(metal.Active)},
	{ask: `POST /salvor/v1/servers/{server}/diagnoses/d1/confirm {"words":"grackle"}`, first: diagnosed},
	{ask: `POST /salvor/v1/nodes/{node}/diagnoses/d1/confirm {"words":"grackle"}`, first: diagnosed},
	{ask: `POST /salvor/v1/nodes/{node}/repairs {}`, first: newNode(metal.Active)},
	{ask: `POST /salvor/v1/nodes/{node}/repairs/r1/consent {"digest":"d1","consents":["files"]}`, first: repaired(metal.Rescue, metal.Repair{State: metal.RepairAwaitingConsent, Needs: []diagnose.Consent{diagnose.ConsentFiles}, ConsentUntil: time.Now().Add(time.Hour)})},
	{ask: `POST /salvor/v1/nodes/{node}/repairs/r1/decline {}`, first: repaired(metal.Rescue, metal.Repair{State: metal.RepairAwaitingConsent, ConsentUntil: time.Now().Add(time.Hour)})},
	{ask: `POST /salvor/v1/nodes/{node}/repairs/r1/confirm {}`, first: repaired(metal.Active, metal.Repair{State: metal.RepairUnproven, Booted: true})},
	{ask: `POST /salvor/v1/nodes/{node}/repairs/r1/undo {}`, first: repaired(metal.Active, metal.Repair{State: metal.RepairWritten, WrittenAt: time.Now(), FinishedAt: time.Now(), UndoFiles: 1})},
	{ask: `POST /salvor/v1/nodes/{node}/rescue {"password":"grackle"}`, first: newNode(metal.Active)},
	{ask: `POST /salvor/v1/plans/{plan}/cancel`, first: drafted},
	{ask: `POST /salvor/v1/plans/{plan}/run {}`, first: drafted},
	{ask: `POST /salvor/v1/hosts/vm1/drain`, keep: "plan id"},
	{ask: `POST /salvor/v1/hosts/vm1/restore`, first: func(w *auditWorld) { w.ask("root", "POST", "/salvor/v1/plans/"+w.vars["plan"]+"/cancel", "") }}, // unless the plan has ended
	{ask: `POST /salvor/v1/hosts/vm1/bring-home`},
	{ask: `POST /salvor/v1/hosts/vm2/fence {"attest":"grackle"}`},
	{ask: `POST /salvor/v1/secrets/rotate`},
	{ask: `DELETE /salvor/v1/hosts/{idle}`},
}

// TestPolicyChangeHasAnEvent: the timeline names the rules that a new policy file changed.
func TestPolicyChangeHasAnEvent(t *testing.T) {
	p := newTestControlPlane(t, "[DEFAULT]\nhost = north\n")
	p.cfg.Policy.File = "/etc/salvor/policy.yaml"
	for _, c := range []struct {
		rules []string
		want  string
	}{
		{[]string{"volume:get"}, "policy file read again on north: rules changed: volume:get"},
		{nil, "policy file read again on north: no rule changed"}, // only comments did
	} {
		must.OK(t, p.noteRules(t.Context(), c.rules))
		events := must.Get(p.Store.Feed(t.Context(), job.FeedFilter{}, 9))(t)
		if len(events) == 0 || events[len(events)-1].Subject.Kind != "policy" || events[len(events)-1].Text != c.want {
			t.Errorf("after a change of the rules %q: want the event %q, got %+v", c.rules, c.want, events)
		}
	}
}
