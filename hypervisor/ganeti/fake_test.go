package ganeti

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/secret"
	"salvor/test/must"
)

const (
	rapiUser, rapiPassword = "salvor", "canary-rapi-77"
	firstNode, secondNode  = "node1.example.test", "node2.example.test"
)

// rapi is a cluster behind RAPI as Ganeti 3.0.2 speaks it: what it answers was taken from a real one. Jobs end a few looks
// after they were asked for. Faults are chosen by test.
type rapi struct {
	*httptest.Server
	mu        sync.Mutex
	instances map[string]*fakeInstance
	jobs      map[int64]*fakeJob
	next      int64
	defaults  map[string]any
	files     map[string]bool // that are on every node
	requests  []string

	looks     int  // before a job ends
	textIDs   bool // job numbers as strings
	archived  bool // ended jobs are gone at once: old404 by status 404, else as 3.0 does
	old404    bool
	cancel    bool // jobs are canceled
	lies      bool // jobs say success and do nothing
	refuse    int  // status of all writes
	silent    int  // status of all answers
	beforeJob func(*fakeJob)
	stubborn  bool            // a guest does not shut down
	offline   map[string]bool // nodes
	dead      map[string]bool // nodes whose daemons are silent
	hangs     bool            // who asks for a dead node gets no answer
}

type fakeInstance struct {
	name, uuid, node, system, admin string
	running                         bool
	custom                          map[string]any
	tags, macs, links               []string
	disks                           []int
	shutdowns                       []int // time-outs
	memory, ran, vcpus              int   // MiB configured, and of the running guest
	ignoresSoftOff                  bool  // its system does not listen
	template                        string
	secondaries                     []string
}

type fakeJob struct {
	id       int64
	op, name string
	args     map[string]any
	looks    int
	// notBefore is when a guest that does not listen has had its time.
	notBefore time.Time
	status    string
	result    any
	apply     func() any // nil: success; else opresult's element of a failure
	answer    any        // opresult's element of a success
}

func newRAPI(t testing.TB) *rapi {
	f := &rapi{
		offline: map[string]bool{}, dead: map[string]bool{}, instances: map[string]*fakeInstance{}, jobs: map[int64]*fakeJob{}, next: 100, files: map[string]bool{"/isos/rescue.iso": true}, looks: 1,
		defaults: map[string]any{"boot_order": "disk", "cdrom_image_path": "", "kernel_path": "", "acpi": true, "migration_downtime": 30, "vnc_x509_path": nil},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2/info", f.read(func(*http.Request) any {
		return map[string]any{"software_version": "3.0.2", "name": "cluster.example.test", "enabled_disk_templates": []string{"diskless", "file"}}
	}))
	mux.HandleFunc("GET /2/nodes", f.read(func(*http.Request) any { return []any{f.nodeDoc(firstNode), f.nodeDoc(secondNode)} }))
	mux.HandleFunc("GET /2/nodes/{name}", f.read(func(r *http.Request) any {
		n := r.PathValue("name")
		if n != firstNode && n != secondNode {
			return nil
		}
		if f.hangs && f.dead[n] && !f.offline[n] {
			f.mu.Unlock()
			<-r.Context().Done()
			f.mu.Lock()
		}
		return f.nodeDoc(n)
	}))
	mux.HandleFunc("GET /2/nodes/{name}/role", f.read(func(r *http.Request) any {
		switch n := r.PathValue("name"); {
		case n != firstNode && n != secondNode:
			return nil
		case f.offline[n]:
			return "offline"
		}
		return "regular"
	}))
	mux.HandleFunc("GET /2/instances", f.read(func(*http.Request) any {
		out := []any{}
		for _, name := range slices.Sorted(maps.Keys(f.instances)) {
			out = append(out, f.document(f.instances[name]))
		}
		return out
	}))
	mux.HandleFunc("GET /2/instances/{name}", f.read(func(r *http.Request) any {
		if in := f.instances[r.PathValue("name")]; in != nil {
			return f.document(in)
		}
		return nil
	}))
	mux.HandleFunc("GET /2/jobs", f.read(func(*http.Request) any {
		out := []any{}
		for _, id := range slices.Sorted(maps.Keys(f.jobs)) {
			out = append(out, map[string]any{"id": f.number(id), "uri": fmt.Sprintf("/2/jobs/%d", id)})
		}
		return out
	}))
	mux.HandleFunc("GET /2/jobs/{id}", f.read(f.jobDoc))
	mux.HandleFunc("PUT /2/instances/{name}/{deed}", f.write(f.put))
	mux.HandleFunc("DELETE /2/instances/{name}/tags", f.write(f.put))
	mux.HandleFunc("DELETE /2/instances/{name}", f.write(f.put))
	mux.HandleFunc("POST /2/instances", f.write(f.create))
	mux.HandleFunc("PUT /2/nodes/{name}/role", f.write(f.role))
	mux.HandleFunc("POST /2/nodes/{name}/evacuate", f.write(f.evacuate))
	f.Server = httptest.NewUnstartedServer(f.guard(mux))
	f.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that a test breaks off
	f.StartTLS()
	t.Cleanup(f.Close)
	return f
}

func (f *rapi) nodeDoc(name string) any {
	doc := map[string]any{"name": name, "pip": "10.0.0.1", "ctotal": 8, "mtotal": 24105, "dtotal": 258019, "mfree": 1000, "offline": f.offline[name], "drained": false, "vm_capable": true}
	if f.dead[name] || f.offline[name] {
		for _, what := range []string{"ctotal", "mtotal", "dtotal", "mfree"} {
			doc[what] = nil // as is what a silent daemon cannot tell
		}
	}
	return doc
}

// add makes an instance that is off.
func (f *rapi) add(name string, custom map[string]any, tags ...string) *fakeInstance {
	f.mu.Lock()
	defer f.mu.Unlock()
	in := &fakeInstance{name: name, uuid: uuid.NewString(), node: firstNode, system: "debootstrap+default", admin: "down", custom: custom, tags: tags, disks: []int{10240}, macs: []string{"aa:00:00:c3:92:0a"}, links: []string{"br0"}, memory: 256, vcpus: 2, ignoresSoftOff: true}
	if in.custom == nil {
		in.custom = map[string]any{}
	}
	f.instances[name] = in
	return in
}

func (f *rapi) with(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// custom is a copy of an instance's own parameters.
func (f *rapi) custom(name string) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.instances[name].custom)
}

func (f *rapi) document(in *fakeInstance) any {
	filled := maps.Clone(f.defaults)
	maps.Copy(filled, in.custom)
	status, ram := "ADMIN_down", any(nil)
	if in.running {
		ram = in.ran
	}
	switch {
	case f.offline[in.node]:
		status = "ERROR_nodeoffline"
	case in.running:
		status = "running"
	case in.admin == "up":
		status = "ERROR_down"
	}
	return map[string]any{
		"name": in.name, "uuid": in.uuid, "pnode": in.node, "snodes": append([]string{}, in.secondaries...), "admin_state": in.admin, "oper_state": in.running && !f.offline[in.node], "status": status,
		"os": in.system, "disk_template": cmp.Or(in.template, "file"), "disk.sizes": in.disks, "hvparams": filled, "custom_hvparams": maps.Clone(in.custom),
		"beparams": map[string]any{"minmem": in.memory, "maxmem": in.memory, "memory": in.memory, "vcpus": in.vcpus, "auto_balance": true},
		"nic.macs": in.macs, "nic.ips": make([]any, len(in.macs)), "nic.links": in.links, "nic.bridges": in.links, "nic.uuids": in.macs,
		"tags": slices.Clone(in.tags), "oper_ram": ram, "ctime": 1795312570.056118,
	}
}

func (f *rapi) number(id int64) any {
	if f.textIDs {
		return fmt.Sprint(id)
	}
	return id
}

func (f *rapi) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.requests = append(f.requests, r.Method+" "+r.URL.Path)
		user, password, _ := r.BasicAuth()
		switch {
		case user != rapiUser || password != rapiPassword:
			refuse(w, 401, "Unauthorized", "No permission -- see authorization schemes")
		case f.silent != 0:
			refuse(w, f.silent, "Service Unavailable", "the job queue is full of &#x27;"+rapiPassword+"&#x27;")
		case r.Method != http.MethodGet && f.refuse != 0:
			refuse(w, f.refuse, "refused", "by choice")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func refuse(w http.ResponseWriter, code int, message, explain string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "message": message, "explain": explain})
}

func (f *rapi) read(doc func(*http.Request) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d := doc(r)
		if d == nil {
			refuse(w, 404, "Not Found", "Nothing matches the given URI")
			return
		}
		_ = json.NewEncoder(w).Encode(d)
	}
}

func (f *rapi) write(ask func(r *http.Request, args map[string]any) *fakeJob) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		args := map[string]any{}
		if body, _ := io.ReadAll(r.Body); len(body) > 0 {
			var scalar string // a body may be a word
			if json.Unmarshal(body, &scalar) == nil {
				args[""] = scalar
			} else if r.Header.Get("Content-Type") != "application/json" || json.Unmarshal(body, &args) != nil {
				refuse(w, 415, "Unsupported Media Type", "Content-Type must be application/json")
				return
			}
		}
		j := ask(r, args)
		f.next++
		j.id, j.status, j.looks, j.args = f.next, "queued", f.looks, args
		f.jobs[j.id] = j
		_ = json.NewEncoder(w).Encode(f.number(j.id))
	}
}

// run ends a job.
func (f *rapi) run(j *fakeJob) {
	if f.beforeJob != nil {
		f.beforeJob(j)
	}
	switch {
	case f.cancel:
		j.status = "canceled"
	case f.lies:
		j.status = "success"
	default:
		j.status = "success"
		if j.result = j.apply(); j.result != nil {
			j.status = "error"
		} else {
			j.result = j.answer
		}
	}
}

func (f *rapi) jobDoc(r *http.Request) any {
	var id int64
	_, _ = fmt.Sscan(r.PathValue("id"), &id)
	j := f.jobs[id]
	if j != nil && j.status == "queued" {
		if j.looks--; j.looks < 0 && !time.Now().Before(j.notBefore) {
			f.run(j)
		}
	}
	ended := j != nil && j.status != "queued"
	if j == nil || f.archived && ended {
		if f.old404 {
			return nil
		}
		return map[string]any{"id": id, "ops": nil, "status": nil, "summary": nil, "opstatus": nil, "opresult": nil}
	}
	status := j.status
	return map[string]any{
		"id": f.number(id), "status": status, "summary": []string{j.op + "(" + j.name + ")"}, "opstatus": []string{status}, "opresult": []any{j.result},
		"ops": []any{map[string]any{"OP_ID": "OP_" + j.op, "instance_name": j.name, "hvparams": j.args["hvparams"]}}, "oplog": []any{[]any{}},
	}
}

func failed(name, words string, code ...string) any {
	args := []any{words}
	for _, c := range code {
		args = append(args, c)
	}
	return []any{name, args}
}

func (f *rapi) put(r *http.Request, args map[string]any) *fakeJob {
	name, verb := r.PathValue("name"), r.PathValue("deed")
	j := &fakeJob{name: name}
	tags := r.URL.Query()["tag"]
	on := func(op string, do func(in *fakeInstance) any) {
		j.op = op
		j.apply = func() any {
			in := f.instances[name]
			if in == nil {
				return failed("OpPrereqError", "Instance '"+name+"' not known", "unknown_entity")
			}
			return do(in)
		}
	}
	switch {
	case r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/tags"):
		on("TAGS_DEL", func(in *fakeInstance) any {
			in.tags = slices.DeleteFunc(in.tags, func(t string) bool { return slices.Contains(tags, t) })
			return nil
		})
	case r.Method == http.MethodDelete:
		on("INSTANCE_REMOVE", func(*fakeInstance) any { delete(f.instances, name); return nil })
	case verb == "tags":
		on("TAGS_SET", func(in *fakeInstance) any { in.tags = append(in.tags, tags...); return nil })
	case verb == "modify":
		on("INSTANCE_SET_PARAMS", func(in *fakeInstance) any { return f.modify(in, args) })
	case verb == "failover" || verb == "migrate":
		on("INSTANCE_"+strings.ToUpper(verb), func(in *fakeInstance) any { return f.move(in, args) })
	case verb == "startup":
		on("INSTANCE_STARTUP", f.startup)
	case verb == "shutdown":
		timeout, _ := args["timeout"].(float64)
		if in := f.instances[name]; in != nil && in.ignoresSoftOff && in.running {
			j.notBefore = time.Now().Add(time.Duration(timeout) * time.Second)
		}
		on("INSTANCE_SHUTDOWN", func(in *fakeInstance) any {
			in.shutdowns, in.running, in.admin = append(in.shutdowns, int(timeout)), f.stubborn, "down"
			return nil
		})
	}
	return j
}

// modify checks parameters as KVM's hypervisor does: syntax on the master, files on the nodes.
func (f *rapi) modify(in *fakeInstance, args map[string]any) any {
	params, _ := args["hvparams"].(map[string]any)
	next := maps.Clone(in.custom)
	for k, v := range params {
		if next[k] = v; v == "default" {
			delete(next, k)
		}
	}
	filled := maps.Clone(f.defaults)
	maps.Copy(filled, next)
	order, _ := filled["boot_order"].(string)
	if !slices.Contains([]string{"cdrom", "disk", "floppy", "network"}, order) {
		return failed("HypervisorError", "Parameter 'boot_order' fails syntax check: The value must be one of: cdrom, floppy, disk, network (current value: '"+order+"')")
	}
	if cd, _ := filled["cdrom_image_path"].(string); cd != "" && !strings.Contains(cd, "://") {
		if !path.IsAbs(cd) || path.Clean(cd) != cd {
			return failed("HypervisorError", "Parameter 'cdrom_image_path' fails syntax check: must be an absolute normalized path or a URL (current value: '"+cd+"')")
		}
		if !f.files[cd] {
			return failed("OpExecError", "Hypervisor parameter validation failed on node node1: Parameter 'cdrom_image_path' fails validation: not found or not a file or URL (current value: '"+cd+"')")
		}
	}
	in.custom = next
	if be, ok := args["beparams"].(map[string]any); ok {
		in.memory, in.vcpus = int(be["maxmem"].(float64)), int(be["vcpus"].(float64))
	}
	return nil
}

func (f *rapi) startup(in *fakeInstance) any {
	if in.admin == "offline" {
		return failed("OpPrereqError", "Instance '"+in.name+"' is marked to be offline, cannot use", "wrong_state")
	}
	in.running, in.admin, in.ran = true, "up", in.memory
	return nil
}

func (f *rapi) create(_ *http.Request, args map[string]any) *fakeJob {
	name, _ := args["instance_name"].(string)
	return &fakeJob{op: "INSTANCE_CREATE", name: name, apply: func() any {
		if f.instances[name] != nil {
			return failed("OpPrereqError", "Instance '"+name+"' is already in the cluster", "already_exists")
		}
		in := &fakeInstance{name: name, uuid: uuid.NewString(), admin: "down", custom: map[string]any{}}
		in.node, _ = args["pnode"].(string)
		in.system, _ = args["os_type"].(string)
		in.ignoresSoftOff = args["os_type"] != "listens"
		be := args["beparams"].(map[string]any)
		in.memory, in.vcpus = int(be["maxmem"].(float64)), int(be["vcpus"].(float64))
		for _, n := range args["nics"].([]any) {
			nic := n.(map[string]any)
			in.macs, in.links = append(in.macs, nic["mac"].(string)), append(in.links, nic["link"].(string))
		}
		if hv, ok := args["hvparams"].(map[string]any); ok {
			in.custom = hv
		}
		for _, tag := range args["tags"].([]any) {
			in.tags = append(in.tags, tag.(string))
		}
		f.instances[name] = in
		return nil
	}}
}

// client is a quick one of the fake, which trusts its certificate by the CA.
func (f *rapi) client(t testing.TB) *Client {
	t.Helper()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw}))
	c := must.Get(New(Config{URL: f.URL, User: rapiUser, Password: secret.New(rapiPassword), CA: ca, Timeout: 5 * time.Second, JobTimeout: 5 * time.Second}))(t)
	c.first, c.longest = time.Millisecond, 2*time.Millisecond
	return c
}

func (f *rapi) host(t testing.TB) Host { return Host{Client: f.client(t), Node: firstNode} }

// writes are the requests that ask for jobs.
func (f *rapi) writes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.requests), func(r string) bool { return strings.HasPrefix(r, "GET ") })
}
