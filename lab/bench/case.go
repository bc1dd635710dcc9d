package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// measuredValue is one thing that was measured.
type measuredValue struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Goal is what salvor wants to hold on a machine with two processors; 0: nothing.
	Goal float64 `json:"goal,omitempty"`
	// CPU is what one of them cost the server in microseconds of a processor, where its process is known: other
	// work on the machine changes it less than the rate.
	CPU float64 `json:"server_cpu_us,omitempty"`
}

// Units, of which a rate is the better the greater it is and all others the smaller.
const (
	rate    = "/s"
	millis  = "ms"
	mebi    = "MiB"
	seconds = "s"
)

// better tells whether a is at least as good as b.
func (f measuredValue) better(a, b float64) bool {
	if f.Unit == rate {
		return a >= b
	}
	return a <= b
}

// goals are the project's own.
var goals = map[string]float64{
	"node get": 15000, "lookup, repeated": 8000, "lookup, first": 1000, "heartbeat": 5000,
	"node create": 1000, "port create": 1000, "connector create": 1000, "target create": 1000,
	"node detail of 1,000": 12, "target detail of 1,000": 12, "nodes in detail, 10,000 by pages": 200,
	"rescue and unrescue": 150, "start to first answer": 0.2, "memory, idle": 60, "memory, 10,000 nodes": 200,
	"node list of 1,000": 15,
}

func (w *benchEnvironment) addFigure(name string, value float64, unit string) {
	w.addFigureWithCost(name, value, unit, 0)
}

func (w *benchEnvironment) addFigureWithCost(name string, value float64, unit string, cpu time.Duration) {
	w.note(measuredValue{name, value, unit, cmp.Or(goals[name], fleetGoals[name]), float64(cpu.Nanoseconds()) / 1000}, cpu)
}

// tellGoal is tell with a goal that only this measurement has.
func (w *benchEnvironment) tellGoal(name string, value float64, unit string, goal float64) {
	w.note(measuredValue{Name: name, Value: value, Unit: unit, Goal: goal}, 0)
}

func (w *benchEnvironment) note(f measuredValue, cpu time.Duration) {
	w.figures = append(w.figures, f)
	line := fmt.Sprintf("%-36s %s", f.Name, f.text())
	if cpu > 0 {
		line += fmt.Sprintf(" (%.0f us of the server's processor time each)", f.CPU)
	}
	w.progress(line)
}

// all does work for 0 to n-1 with all workers and tells the rate.
func (w *benchEnvironment) all(name string, n int, work func(c *httpConn, i int) error) error {
	before := readCPUTime(w.process)
	took, err := w.each(n, work)
	if err == nil {
		w.addFigureWithCost(name, float64(n)/took.Seconds(), rate, (readCPUTime(w.process)-before)/time.Duration(n))
	}
	return err
}

// while does work with workers for the time of a rate and tells it.
func (w *benchEnvironment) while(name string, c *connectionPool, d time.Duration, work func(c *httpConn, i int) error) error {
	before := readCPUTime(w.process)
	n, took, err := c.during(d, work)
	if err == nil {
		w.addFigureWithCost(name, float64(n)/took.Seconds(), rate, (readCPUTime(w.process)-before)/time.Duration(max(n, 1)))
	}
	return err
}

// cases are measured in this order: each finds what those before it made.
var cases = []struct {
	name string
	run  func(*benchEnvironment) error
}{
	{"rescue and unrescue", (*benchEnvironment).rescueLoops},
	{"lookup and heartbeat", (*benchEnvironment).ramdisks},
	{"nodes", (*benchEnvironment).manyNodes},
	{"ports", (*benchEnvironment).ports},
	{"volumes", (*benchEnvironment).volumes},
	{"pages", (*benchEnvironment).pages},
}

// rescueLoops keeps 50 nodes in rescue and out of it again.
func (w *benchEnvironment) rescueLoops() error {
	var err error
	if w.loopers, err = w.active(50, "loop-", ""); err != nil {
		return err
	}
	loops := newCrew(w.t, len(w.loopers))
	defer loops.close()
	nodes := make(chan string, len(w.loopers))
	for _, id := range w.loopers {
		nodes <- id
	}
	loop := func(c *httpConn, _ int) error {
		id := <-nodes
		defer func() { nodes <- id }()
		if err := setProvisionState(c, id, `{"target":"rescue","rescue_password":"bench-password"}`); err != nil {
			return err
		}
		if err := waitProvisionState(c, id, "rescue"); err != nil {
			return err
		}
		if err := setProvisionState(c, id, `{"target":"unrescue"}`); err != nil {
			return err
		}
		return waitProvisionState(c, id, "active")
	}
	return w.while("rescue and unrescue", loops, 2*w.opts.time, loop)
}

// ramdisks has nodes wait for theirs in rescue, and plays the ramdisks.
func (w *benchEnvironment) ramdisks() error {
	ids, err := w.active(w.opts.ramdisks, "boot-", `,"rescue_interface":"agent","deploy_interface":"`+w.opts.deploy+`"`)
	w.booting = make([]bootingMachine, len(ids))
	for i, id := range ids {
		w.booting[i] = bootingMachine{node: id, mac: w.mac(0x55, i)}
	}
	if err != nil {
		return err
	}
	_, err = w.each(len(ids), func(c *httpConn, i int) error {
		if _, err := createResource(c, "/v1/ports", fmt.Sprintf(`{"node_uuid":%q,"address":%q}`, ids[i], w.booting[i].mac)); err != nil {
			return err
		}
		return setProvisionState(c, ids[i], `{"target":"rescue","rescue_password":"bench-password"}`)
	})
	if err == nil {
		err = w.reach(ids, "rescue wait")
	}
	if err != nil {
		return err
	}
	// In maintenance a heartbeat is taken and has no effect, so that each may be sent again.
	_, err = w.each(len(ids), func(c *httpConn, i int) error {
		return c.busy("PUT", "/v1/nodes/"+ids[i]+"/maintenance", `{"reason":"bench"}`, 202)
	})
	if err != nil {
		return err
	}
	if err := w.lookups(); err != nil {
		return err
	}
	return w.heartbeats()
}

func (w *benchEnvironment) lookups() error {
	look := func(c *httpConn, i int) error {
		b := &w.booting[i%len(w.booting)]
		answer, err := c.ask("GET", "/v1/lookup?addresses="+b.mac+"&node_uuid=", "", 200)
		if err != nil {
			return err
		}
		if b.token == "" {
			b.token, err = cutString(answer, "agent_token")
		}
		return err
	}
	if err := w.all("lookup, first", len(w.booting), look); err != nil {
		return err
	}
	return w.while("lookup, repeated", w.connectionPool, w.opts.time, look)
}

func (w *benchEnvironment) heartbeats() error {
	if err := w.all("heartbeat, first", len(w.booting), w.sendHeartbeat); err != nil {
		return err
	}
	return w.while("heartbeat", w.connectionPool, w.opts.time, w.sendHeartbeat)
}

func (w *benchEnvironment) sendHeartbeat(c *httpConn, i int) error {
	b := &w.booting[i%len(w.booting)]
	body := `{"callback_url":"https://127.0.0.1:9999","agent_version":"9.1","agent_token":"` + b.token + `"}`
	_, err := c.ask("POST", "/v1/heartbeat/"+b.node, body, 202)
	return err
}

func (w *benchEnvironment) manyNodes() error {
	w.nodes = make([]string, w.opts.nodes)
	err := w.all("node create", len(w.nodes), func(c *httpConn, i int) (err error) {
		w.nodes[i], err = createResource(c, "/v1/nodes", w.nodeBody(fmt.Sprint("rack-", i/40, "-unit-", i%40), ""))
		return err
	})
	if err != nil {
		return err
	}
	err = w.all("node get, each once", len(w.nodes), func(c *httpConn, i int) error {
		_, err := c.ask("GET", "/v1/nodes/"+w.nodes[i], "", 200)
		return err
	})
	if err != nil {
		return err
	}
	return w.while("node get", w.connectionPool, w.opts.time, func(c *httpConn, _ int) error {
		_, err := c.ask("GET", "/v1/nodes/"+w.nodes[rand.IntN(len(w.nodes))], "", 200)
		return err
	})
}

// thousand is how many rows a list has that is measured.
const thousand = 1000

func (w *benchEnvironment) ports() error {
	n := min(2*thousand, len(w.nodes))
	err := w.all("port create", n, func(c *httpConn, i int) error {
		_, err := createResource(c, "/v1/ports", fmt.Sprintf(`{"node_uuid":%q,"address":%q,"local_link_connection":{"port_id":"Ethernet%d","switch_id":"52:54:00:00:00:01"}}`,
			w.nodes[i], w.mac(0x54, i), i))
		return err
	})
	if err != nil {
		return err
	}
	return w.lists("port", "/v1/ports?limit=1000", "/v1/ports/detail?limit=1000")
}

func (w *benchEnvironment) volumes() error {
	n := min(2*thousand, len(w.nodes))
	err := w.all("connector create", n, func(c *httpConn, i int) error {
		_, err := createResource(c, "/v1/volume/connectors", fmt.Sprintf(`{"node_uuid":%q,"type":"iqn","connector_id":"iqn.2026-01.org.example:%s-%d"}`, w.nodes[i], w.run, i))
		return err
	})
	if err != nil {
		return err
	}
	if err := w.lists("connector", "/v1/volume/connectors?limit=1000", "/v1/volume/connectors?limit=1000&detail=True"); err != nil {
		return err
	}
	err = w.all("target create", n, func(c *httpConn, i int) error {
		_, err := createResource(c, "/v1/volume/targets", fmt.Sprintf(`{"node_uuid":%q,"volume_type":"iscsi","volume_id":"0b7b6c8e-%012d","boot_index":0,"properties":{"target_iqn":"iqn.2026-01.org.example:t%d",
"target_portal":"192.0.2.9:3260","target_lun":1,"auth_method":"CHAP","auth_username":"user","auth_password":"hush-hush-hush"}}`, w.nodes[i], i, i))
		return err
	})
	if err != nil {
		return err
	}
	return w.lists("target", "/v1/volume/targets?limit=1000", "/v1/volume/targets?limit=1000&detail=True")
}

func (w *benchEnvironment) pages() error {
	if err := w.lists("node", "/v1/nodes?limit=1000", "/v1/nodes/detail?limit=1000"); err != nil {
		return err
	}
	var times []float64
	for range w.opts.rounds {
		start := time.Now()
		if err := w.walk(); err != nil {
			return err
		}
		times = append(times, float64(time.Since(start).Microseconds())/1000)
	}
	w.addFigure("nodes in detail, 10,000 by pages", median(times)*10000/float64(len(w.nodes)), millis)
	if w.process != 0 {
		now, err := readResidentMemory(w.process)
		if err != nil {
			return err
		}
		w.addFigure("memory, 10,000 nodes", now, mebi)
	}
	return nil
}

// walk pages through all nodes in detail by the links that the server gives.
func (w *benchEnvironment) walk() error {
	c := w.wires[0]
	rows := 0
	for path := "/v1/nodes/detail?limit=1000"; path != ""; {
		answer, err := c.ask("GET", path, "", 200)
		if err != nil {
			return err
		}
		rows += bytes.Count(answer, []byte(`"provision_state"`))
		path = ""
		if i := bytes.LastIndex(answer[max(0, len(answer)-2000):], []byte(`"next"`)); i >= 0 || bytes.HasPrefix(answer, []byte(`{"next"`)) {
			if path, err = nextPath(answer); err != nil {
				return err
			}
		}
	}
	if rows < len(w.nodes) {
		return fmt.Errorf("pages of nodes: %d rows, there are %d", rows, len(w.nodes))
	}
	return nil
}

// nextPath is where the link to the next page leads, whoever the server thinks to be.
func nextPath(answer []byte) (string, error) {
	at := max(bytes.LastIndex(answer, []byte(`"next"`)), 0)
	var link string
	_, rest, _ := bytes.Cut(answer[at:], []byte(":"))
	if err := json.NewDecoder(bytes.NewReader(rest)).Decode(&link); err != nil {
		return "", fmt.Errorf("the link to the next page: %w", err)
	}
	_, path, ok := strings.Cut(link, "/v1/")
	if !ok {
		return "", fmt.Errorf("the link to the next page: %.200q", link)
	}
	return "/v1/" + path, nil
}

// lists measures how long one client waits for a list and for its detail.
func (w *benchEnvironment) lists(kind, brief, detail string) error {
	for _, l := range []struct{ name, path string }{{kind + " list of 1,000", brief}, {kind + " detail of 1,000", detail}} {
		var times []float64
		for range 3 * w.opts.rounds {
			start := time.Now()
			answer, err := w.wires[0].ask("GET", l.path, "", 200)
			if err != nil {
				return err
			}
			times = append(times, float64(time.Since(start).Microseconds())/1000)
			if got := bytes.Count(answer, []byte(`"self"`)); got < min(thousand, w.opts.nodes) {
				return fmt.Errorf("GET %s: %d rows", l.path, got)
			}
		}
		w.addFigure(l.name, median(times), millis)
	}
	return nil
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
