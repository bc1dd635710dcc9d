package serve

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"salvor/api"
	"salvor/compute"
	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/store"
	"salvor/version"
)

// processMetrics counts what this process does, and on request what the database holds. No label names a machine, a user or a project, so
// a fleet of any size has as many series as a small one. The disks in quarantine are the exception: an operator who makes room needs the host.
type processMetrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	actions  *prometheus.HistogramVec
	jobs     *prometheus.CounterVec
	machines *prometheus.HistogramVec
	failures *prometheus.CounterVec
	tracer   *jobTracer
}

func newWatcher(t *jobTracer) *processMetrics {
	w := &processMetrics{
		registry: prometheus.NewRegistry(), tracer: t,
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "salvor_api_request_seconds", Help: "How long requests took, by the pattern of their path.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 30}}, []string{"method", "route", "status"}),
		actions: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "salvor_action_seconds", Help: "How long runs of actions took in this process, by kind of job, action and outcome.",
			Buckets: []float64{.005, .05, .25, 1, 5, 15, 60, 300}}, []string{"kind", "action", "outcome"}),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "salvor_jobs_ended_total", Help: "Jobs that ended in this process, by kind and whether they failed."}, []string{"kind", "failed"}),
		machines: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "salvor_machine_request_seconds", Help: "How long BMCs (redfish, ipmi) and ramdisks (agent) took to answer.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 15, 30}}, []string{"protocol"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "salvor_machine_errors_total", Help: "Exchanges with BMCs and ramdisks that came to nothing, by the kind of error."}, []string{"protocol", "error"}),
	}
	w.registry.MustRegister(newBuildInfo(), w.requests, w.actions, w.jobs, w.machines, w.failures, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return w
}

// newBuildInfo gives the gauge salvor_build_info. As with other programs' build_info, its value is 1 and its labels name the build.
func newBuildInfo() prometheus.Gauge {
	build := version.Current()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "salvor_build_info", Help: "1; the labels are the release, its commit and the version of Go.",
		ConstLabels: prometheus.Labels{"version": build.Release, "revision": build.Commit, "goversion": build.Go}})
	gauge.Set(1)
	return gauge
}

// request is told of each request that was answered.
func (w *processMetrics) request(e api.Exchange) {
	route := e.Route
	if route == "" {
		route = "none" // no path of a client's own invention becomes a label
	}
	w.requests.WithLabelValues(e.Method, route, strconv.Itoa(e.Status)).Observe(e.Took.Seconds())
	w.tracer.request(e, route)
}

// Action is job.Observer's.
func (w *processMetrics) Action(ctx context.Context, j *job.Job) (context.Context, func(string)) {
	kind, action := string(j.Kind), j.Action
	if j.State == job.Undoing {
		action = "undo " + action
	}
	began := time.Now()
	ctx, end := w.tracer.action(ctx, j, action)
	return ctx, func(outcome string) {
		w.actions.WithLabelValues(kind, action, outcome).Observe(time.Since(began).Seconds())
		end(outcome)
	}
}

// Ended is job.Observer's.
func (w *processMetrics) Ended(j *job.Job) {
	w.jobs.WithLabelValues(string(j.Kind), strconv.FormatBool(j.Failed())).Inc()
	w.tracer.ended(j)
}

// loginRefused is the label of an exchange in which a BMC refused the user name or password; its problem is otherwise Invalid as many others.
const loginRefused = "login refused"

// machine is told of each exchange with a BMC or a ramdisk.
func (w *processMetrics) machine(ctx context.Context, protocol string, took time.Duration, err error) {
	w.tracer.machine(ctx, protocol, took, err)
	w.machines.WithLabelValues(protocol).Observe(took.Seconds())
	if err != nil {
		kind := problem.KindOf(err).String()
		if errors.Is(err, driver.ErrLogin) {
			kind = loginRefused
		}
		w.failures.WithLabelValues(protocol, kind).Inc()
	}
}

// countEvery bounds how often the database is counted, however many ask.
const countEvery = 5 * time.Second

// fleetGauges tell what the database holds.
type fleetGauges struct {
	program *ControlPlane
	mu      sync.Mutex
	counted time.Time
	last    []prometheus.Metric
}

// namedBMCs bounds the nodes that the metrics name: an alert names some, and the list of nodes has all.
const namedBMCs = 10

func newGaugeDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("salvor_"+name, help, labels, nil)
}

var (
	jobsGauge       = newGaugeDesc("jobs", "Jobs that have not ended, by kind and state.", "kind", "state")
	oldestGauge     = newGaugeDesc("job_oldest_seconds", "Age of the oldest job that has not ended, by kind.", "kind")
	nodesGauge      = newGaugeDesc("nodes", "Nodes by provision state.", "state")
	maintainedGauge = newGaugeDesc("nodes_in_maintenance", "Nodes in maintenance.")
	silentGauge     = newGaugeDesc("bmcs_silent", "Nodes whose BMC did not answer the last reading of the power: salvor node list --where bmc=silent.")
	refusingGauge   = newGaugeDesc("bmcs_refusing", "Nodes whose BMC refused the last reading of the power: salvor node list --where bmc=refusing.")
	failingGauge    = newGaugeDesc("bmc_failing", "1 for each of the first 10 nodes, by UUID, whose BMC is silent or refuses: alerts name them.", "node")
	ramdisksGauge   = newGaugeDesc("ramdisks", "Ramdisks that should send heartbeats, by the age of the last one: at most this, and more than the next smaller age; older is more than all.", "heartbeat_age")
	serversGauge    = newGaugeDesc("servers", "Servers by state.", "state")
	hostsGauge      = newGaugeDesc("hosts", "VM hosts by whether they are up, down or fenced.", "state")
	quarantineGauge = newGaugeDesc("quarantined_disks", "Disks in quarantine, by host; only hosts that have some. A disk in a shared store counts on each host that sees the store.", "host")
	quarantineBytes = newGaugeDesc("quarantined_bytes", "Size of the disks in quarantine, each rounded up to a GiB, by host.", "host")
	misplacedGauge  = newGaugeDesc("misplaced_guests", "Guests that run on a host where the records have no such server: while one does, its server may run twice.")
	ordersGauge     = newGaugeDesc("host_orders_open", "Orders of hosts that have no result yet.")
	backlogGauge    = newGaugeDesc("job_backlog", "Jobs that are due and that no conductor has claimed yet, of the conductor group that has most; [conductor]backlog_limit bounds them.")
	backlogLimit    = newGaugeDesc("job_backlog_limit", "[conductor]backlog_limit of this process: with this many jobs in its backlog, a conductor group takes no new operation. 0: there is no limit.")
	refusedGauge    = newGaugeDesc("operations_refused_total", "Operations that this process refused with 503 since its start because the backlog was full.")
	conductorsGauge = newGaugeDesc("conductors", "Conductors by whether they live.", "alive")
	heldGauge       = newGaugeDesc("held", "1 while the database is held: nothing acts on it and nothing is changed until an administrator has decided about its open jobs.")
	writableGauge   = newGaugeDesc("database_writable", "0 while the database takes no changes of this process, such as on a full disk; else 1.")
	expiryGauge     = newGaugeDesc("api_certificate_expiration_timestamp_seconds", "Unix time at which the certificate of the API expires; only where this process serves the API with one.")
	countGauge      = newGaugeDesc("count_failed", "1 if the database could not be counted.")
)

// Describe is prometheus.Collector's.
func (c *fleetGauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobsGauge, oldestGauge, nodesGauge, maintainedGauge, silentGauge, refusingGauge, failingGauge, ramdisksGauge, serversGauge, hostsGauge, quarantineGauge,
		quarantineBytes, misplacedGauge, ordersGauge, backlogGauge, backlogLimit, refusedGauge, conductorsGauge, heldGauge, writableGauge, expiryGauge, countGauge} {
		to <- d
	}
}

// Collect is prometheus.Collector's.
func (c *fleetGauges) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.counted) >= countEvery {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		all, err := c.count(ctx)
		failed := 0.0
		if err != nil {
			failed = 1
			c.program.log.Warn("count for metrics", "error", err)
		}
		c.last, c.counted = append(all, prometheus.MustNewConstMetric(countGauge, prometheus.GaugeValue, failed)), time.Now()
	}
	for _, m := range c.last {
		to <- m
	}
	c.collectState(to)
}

// collectState gives what this process knows without asking the database.
func (c *fleetGauges) collectState(to chan<- prometheus.Metric) {
	tell := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	held, writable := 0.0, 1.0
	if c.program.Store.Held() != nil {
		held = 1
	}
	if c.program.stalled() != "" {
		writable = 0
	}
	tell(heldGauge, held)
	tell(writableGauge, writable)
	tell(backlogLimit, float64(c.program.Store.BacklogLimit()))
	if c.program.certificates != nil {
		ends, _, _ := c.program.certificates.State()
		tell(expiryGauge, float64(ends.Unix()))
	}
}

// tellFailing tells of the BMCs that are silent or refuse.
func tellFailing(failing metal.FailingBMCs, tell func(*prometheus.Desc, float64, ...string)) {
	tell(silentGauge, float64(failing.Silent))
	tell(refusingGauge, float64(failing.Refusing))
	for _, name := range failing.Names {
		tell(failingGauge, 1, name)
	}
}

func (c *fleetGauges) count(ctx context.Context) (out []prometheus.Metric, err error) {
	rows, err := c.program.Store.CountRows(ctx)
	if err != nil {
		return nil, err
	}
	tell := func(d *prometheus.Desc, v float64, labels ...string) {
		out = append(out, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
	}
	c.tellRows(rows, tell)
	failing, err := c.program.Store.FailingBMCs(ctx, "", c.program.nodes.PowerReadSince(), namedBMCs)
	if err != nil {
		return nil, err
	}
	tellFailing(failing, tell)
	out = append(out, prometheus.MustNewConstMetric(refusedGauge, prometheus.CounterValue, float64(c.program.Store.RefusedOperations())))
	hosts, err := c.program.services.Hosts.List(ctx, compute.HostFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	lives, err := c.program.services.Liveness.Of(ctx, hosts)
	if err != nil {
		return nil, err
	}
	states := map[string]int{"up": 0, "down": 0, "fenced": 0}
	for _, h := range hosts {
		switch {
		case h.Fenced:
			states["fenced"]++
		case lives[h.ID].Up:
			states["up"]++
		default:
			states["down"]++
		}
	}
	for state, n := range states {
		tell(hostsGauge, float64(n), state)
	}
	countQuarantine(hosts, tell)
	misplaced, err := c.program.services.GuestReports.MisplacedGuests(ctx)
	if err != nil {
		return nil, err
	}
	tell(misplacedGauge, float64(len(misplaced)))
	conductors, err := c.program.Directory.Conductors(ctx)
	if err != nil {
		return nil, err
	}
	alive := map[bool]int{}
	for _, one := range conductors {
		alive[one.Alive]++
	}
	for _, is := range []bool{true, false} {
		tell(conductorsGauge, float64(alive[is]), strconv.FormatBool(is))
	}
	return out, nil
}

// countQuarantine gives the gauges of each host that has disks in quarantine. If two hosts have the same name, the label has the UUID too.
func countQuarantine(hosts []*compute.Host, tell func(*prometheus.Desc, float64, ...string)) {
	named := map[string]int{}
	for _, h := range hosts {
		named[h.Name]++
	}
	for _, h := range hosts {
		n := h.Inventory.Quarantined()
		if n == 0 {
			continue
		}
		label := h.Name
		if label == "" || named[h.Name] > 1 {
			label = strings.TrimSpace(h.Name + " " + h.ID)
		}
		tell(quarantineGauge, float64(n), label)
		tell(quarantineBytes, float64(h.Inventory.QuarantinedGiB())*(1<<30), label)
	}
}

func (c *fleetGauges) tellRows(rows *store.RowCounts, tell func(*prometheus.Desc, float64, ...string)) {
	for key, n := range rows.Jobs {
		tell(jobsGauge, float64(n), key[0], key[1])
	}
	for kind, at := range rows.Oldest {
		tell(oldestGauge, time.Since(at).Seconds(), kind)
	}
	maintained := 0
	for state, n := range rows.Nodes {
		tell(nodesGauge, float64(n), state)
		maintained += rows.Maintenance[state]
	}
	tell(maintainedGauge, float64(maintained))
	for i, n := range rows.Heartbeats {
		age := "older"
		if i < len(rows.Ages) {
			age = ageLabel(rows.Ages[i])
		}
		tell(ramdisksGauge, float64(n), age)
	}
	for state, n := range rows.Servers {
		tell(serversGauge, float64(n), state)
	}
	tell(ordersGauge, float64(rows.Orders))
	tell(backlogGauge, float64(rows.Backlog))
}

// ageLabel writes an age as Prometheus writes durations, in its largest whole unit: 30s, 5m, 1h.
func ageLabel(age time.Duration) string {
	switch {
	case age%time.Hour == 0:
		return strconv.Itoa(int(age/time.Hour)) + "h"
	case age%time.Minute == 0:
		return strconv.Itoa(int(age/time.Minute)) + "m"
	}
	return strconv.Itoa(int(age/time.Second)) + "s"
}

// metrics is the page for Prometheus.
func (p *ControlPlane) metrics() http.Handler {
	return promhttp.HandlerFor(p.watch.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 20 * time.Second})
}

// guardedMetrics is that page on the door of the API: for administrators and readers of the whole system.
func (p *ControlPlane) guardedMetrics(auth api.Authenticator) http.Handler {
	page, fail := p.metrics(), api.Faults(p.log, nil, "error")
	served := api.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" || r.Method != http.MethodGet && r.Method != http.MethodHead {
			fail(w, r, problem.NotFoundf("The resource could not be found."))
			return
		}
		api.Routed(r.Context(), "/metrics")
		who, err := auth.Authenticate(r)
		switch {
		case err != nil:
			fail(w, r, err)
		case p.policy().SeesFleet(who):
			page.ServeHTTP(w, r)
		default:
			fail(w, r, problem.Forbiddenf("The metrics are for administrators and readers; [health]listen opens a listener for them alone."))
		}
	}), fail, p.log)
	return api.RouteLister{Endpoints: []api.Endpoint{{Method: http.MethodGet, Path: "/metrics"}}, Handler: served}
}
