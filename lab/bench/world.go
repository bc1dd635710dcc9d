package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"
)

// benchEnvironment is what the cases find and leave on the server.
type benchEnvironment struct {
	*connectionPool
	run     string // in every name, so that runs do not meet
	opts    benchOptions
	process int // of the server, for its memory; 0: not ours to know

	nodes    []string         // the many, driver fake-hardware, enroll
	booting  []bootingMachine // in rescue wait, looked up and heard
	loopers  []string         // active, for rescue loops
	figures  []measuredValue
	progress func(string)
	files    *httptest.Server // has the rescue kernel and ramdisk of the nodes: a server may look whether they are there
}

// bootingMachine is a machine whose ramdisk is on its way.
type bootingMachine struct{ node, mac, token string }

func newWorld(t *targetServer, o benchOptions, process int, progress func(string)) *benchEnvironment {
	return &benchEnvironment{connectionPool: newCrew(t, o.concurrency), run: fmt.Sprintf("bench-%08x", rand.Uint32()), opts: o, process: process, progress: progress,
		files: httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))}
}

func (w *benchEnvironment) close() {
	w.files.Close()
	w.connectionPool.close()
}

// chooseDeploy finds a deploy interface that pays heed to heartbeats.
func (w *benchEnvironment) chooseDeploy() error {
	if w.opts.deploy != "" {
		return nil
	}
	answer, err := w.wires[0].ask("GET", "/v1/drivers/fake-hardware", "", 200)
	if err != nil {
		return err
	}
	var d struct {
		Enabled []string `json:"enabled_deploy_interfaces"`
	}
	if err := json.Unmarshal(answer, &d); err != nil {
		return err
	}
	for _, name := range []string{"direct", "custom-agent"} {
		if slices.Contains(d.Enabled, name) {
			w.opts.deploy = name
			return nil
		}
	}
	return fmt.Errorf("none of the deploy interfaces %v of fake-hardware heeds heartbeats: enable direct or custom-agent", d.Enabled)
}

// mac is an address of the run: the same number gives the same one.
func (w *benchEnvironment) mac(kind byte, i int) string {
	seed := []byte(w.run[len(w.run)-4:])
	return fmt.Sprintf("52:%02x:%02x:%02x:%02x:%02x", kind, seed[0]^seed[2]<<2, seed[1]^seed[3]<<2, i>>8&0xff, i&0xff)
}

// createResource posts and gives the UUID of what was made.
func createResource(c *httpConn, path, body string) (string, error) {
	answer, err := c.ask("POST", path, body, 201)
	if err != nil {
		return "", err
	}
	return cutString(answer, "uuid")
}

// cutString cuts a string out of an answer without parsing the rest.
func cutString(answer []byte, key string) (string, error) {
	_, rest, ok := strings.Cut(string(answer), `"`+key+`"`)
	if ok {
		if _, rest, ok = strings.Cut(rest, `"`); ok {
			if value, _, ok := strings.Cut(rest, `"`); ok {
				return value, nil
			}
		}
	}
	return "", fmt.Errorf("no %s in the answer: %.200s", key, answer)
}

func (w *benchEnvironment) nodeBody(name string, more string) string {
	return fmt.Sprintf(`{"driver":"fake-hardware","name":"%[1]s-%[2]s","resource_class":"baremetal",
"properties":{"cpus":64,"memory_mb":262144,"local_gb":900,"cpu_arch":"x86_64","capabilities":"boot_mode:uefi,iscsi_boot:true"},
"driver_info":{"fake_address":"https://192.0.2.1","fake_username":"admin","fake_password":"hush","rescue_kernel":"%[3]s/kernel","rescue_ramdisk":"%[3]s/ramdisk"},
"extra":{"rack":7,"unit":12}%[4]s}`, w.run, name, w.files.URL, more)
}

// active makes nodes that run a system of their own: enrolled, managed and adopted.
func (w *benchEnvironment) active(n int, name, more string) ([]string, error) {
	ids := make([]string, n)
	_, err := w.each(n, func(c *httpConn, i int) error {
		var err error
		if ids[i], err = createResource(c, "/v1/nodes", w.nodeBody(fmt.Sprint(name, i), more)); err != nil {
			return err
		}
		return setProvisionState(c, ids[i], `{"target":"manage"}`)
	})
	if err == nil {
		err = w.reach(ids, "manageable")
	}
	if err != nil {
		return ids, err
	}
	_, err = w.each(n, func(c *httpConn, i int) error { return setProvisionState(c, ids[i], `{"target":"adopt"}`) })
	if err == nil {
		err = w.reach(ids, "active")
	}
	return ids, err
}

func setProvisionState(c *httpConn, id, body string) error {
	return c.busy("PUT", "/v1/nodes/"+id+"/states/provision", body, 202)
}

// reach waits until all nodes are in the state and nobody holds them.
func (w *benchEnvironment) reach(ids []string, state string) error {
	_, err := w.each(len(ids), func(c *httpConn, i int) error { return waitProvisionState(c, ids[i], state) })
	return err
}

// waitProvisionState asks more and more rarely until the node is in the state.
func waitProvisionState(c *httpConn, id, state string) error {
	pause := 5 * time.Millisecond
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(pause) {
		answer, err := c.ask("GET", "/v1/nodes/"+id+"?fields=provision_state,reservation,last_error", "", 200)
		if err != nil {
			return err
		}
		var n struct {
			State       string  `json:"provision_state"`
			Reservation *string `json:"reservation"`
			LastError   string  `json:"last_error"`
		}
		if err := json.Unmarshal(answer, &n); err != nil {
			return err
		}
		switch {
		case n.State == state && n.Reservation == nil:
			return nil
		case strings.HasSuffix(n.State, "failed") || n.LastError != "":
			return fmt.Errorf("node %s is %s instead of %s: %s", id, n.State, state, n.LastError)
		case time.Now().After(end):
			return fmt.Errorf("node %s stays %s and does not become %s", id, n.State, state)
		}
		pause = min(pause*3/2, 200*time.Millisecond)
	}
}

// clear takes away all that the run has made.
func (w *benchEnvironment) clear() error {
	ids := append(append([]string{}, w.nodes...), w.loopers...)
	for _, b := range w.booting {
		ids = append(ids, b.node)
	}
	_, err := w.each(len(ids), func(c *httpConn, i int) error {
		if ids[i] == "" {
			return nil
		}
		// In maintenance every node can be deleted.
		if err := c.busy("PUT", "/v1/nodes/"+ids[i]+"/maintenance", `{"reason":"bench"}`, 202, 404); err != nil {
			return err
		}
		return c.busy("DELETE", "/v1/nodes/"+ids[i], "", 204, 404)
	})
	return err
}
