package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"gopkg.in/yaml.v2"

	"salvor/api"
	"salvor/compute"
	"salvor/metal"
	"salvor/problem"
	"salvor/store"
	"salvor/test/debian"
	"salvor/test/must"
	"salvor/test/program"
)

// metricFamily is a metric that the program exposes.
type metricFamily struct {
	histogram bool
	labels    map[string]bool
}

// fullDatabase collects what fleetGauges tell of a database that has rows of every kind.
type fullDatabase struct{ gauges *fleetGauges }

func (fullDatabase) Describe(chan<- *prometheus.Desc) {}

func (d fullDatabase) Collect(to chan<- prometheus.Metric) {
	tell := func(desc *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	d.gauges.tellRows(&store.RowCounts{Jobs: map[[2]string]int{{"rescue", "waiting"}: 1}, Oldest: map[string]time.Time{"rescue": time.Now()},
		Nodes: map[string]int{"active": 1}, Servers: map[string]int{"active": 1}}, tell)
	tellFailing(metal.FailingBMCs{Silent: 1, Names: []string{"m1"}}, tell)
	countQuarantine([]*compute.Host{{Name: "vm1", Inventory: compute.Inventory{Stores: []compute.DiskStore{{Quarantined: 1, QuarantinedGiB: 2}}}}}, tell)
}

// exposedMetrics gives, by name, every metric of a control plane that has done and counted something of each kind, and what promlint finds.
func exposedMetrics(t *testing.T) (map[string]metricFamily, []promlint.Problem) {
	t.Helper()
	p := newTestControlPlane(t, "")
	dir := t.TempDir()
	program.Certify(t, dir, "api", time.Now().Add(24*time.Hour))
	var err error
	files := api.CertificateFiles{Cert: filepath.Join(dir, "api.crt"), Key: filepath.Join(dir, "api.key")}
	if p.certificates, err = api.NewCertificates(files, time.Now, p.log); err != nil {
		t.Fatal(err)
	}
	p.watch.request(api.Exchange{ID: "req-1", Method: "GET", Route: "/v1/nodes/{}", Status: 200, Took: time.Millisecond})
	_, ended := p.watch.Action(t.Context(), rescueJob())
	ended("done")
	p.watch.Ended(rescueJob())
	p.watch.machine(t.Context(), "redfish", time.Second, problem.Unavailablef("it is silent"))
	full := prometheus.NewRegistry()
	full.MustRegister(fullDatabase{&fleetGauges{program: p}})
	all, found := map[string]metricFamily{}, []promlint.Problem(nil)
	for _, from := range []prometheus.Gatherer{p.watch.registry, full} {
		families := must.Get(from.Gather())(t)
		problems := must.Get(promlint.NewWithMetricFamilies(families).Lint())(t)
		found = append(found, problems...)
		for _, f := range families {
			one := metricFamily{labels: map[string]bool{"job": true, "instance": true}} // Prometheus adds these two
			for _, m := range f.GetMetric() {
				one.histogram = one.histogram || m.GetHistogram() != nil
				for _, l := range m.GetLabel() {
					one.labels[l.GetName()] = true
				}
			}
			all[f.GetName()] = one
		}
	}
	return all, found
}

// TestMetricsFollowConventions: promlint finds nothing in the metrics.
func TestMetricsFollowConventions(t *testing.T) {
	_, found := exposedMetrics(t)
	for _, f := range found {
		t.Errorf("%s: %s", f.Metric, f.Text)
	}
}

// TestRamdiskAges: each age has the number of its ramdisks.
func TestRamdiskAges(t *testing.T) {
	rows := &store.RowCounts{Ages: store.CensusAges, Heartbeats: []int{1, 2, 3, 4, 5, 6, 7}}
	var got []string
	(&fleetGauges{}).tellRows(rows, func(d *prometheus.Desc, v float64, labels ...string) {
		if d == ramdisksGauge {
			got = append(got, fmt.Sprintf("%s:%.0f", labels[0], v))
		}
	})
	if want := "30s:1 1m:2 2m:3 5m:4 15m:5 1h:6 older:7"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDocumentedMetrics: docs/seeing.md names each metric with its labels, and no other.
func TestDocumentedMetrics(t *testing.T) {
	text := must.Get(os.ReadFile("../../../docs/seeing.md"))(t)
	all, _ := exposedMetrics(t)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:^|[^a-z:_])(salvor_[a-z_]+)(?:\{([a-z_,]+)\})?`).FindAllStringSubmatch(string(text), -1) {
		one, ok := all[m[1]]
		if !ok {
			t.Errorf("docs/seeing.md names %s, which the program does not expose", m[1])
		}
		for label := range strings.SplitSeq(m[2], ",") {
			if label != "" && !one.labels[label] {
				t.Errorf("docs/seeing.md names the label %s of %s, which the program does not expose", label, m[1])
			}
		}
		documented[m[1]] = true
	}
	for name := range all {
		if strings.HasPrefix(name, "salvor_") && !documented[name] {
			t.Errorf("docs/seeing.md does not name %s", name)
		}
	}
}

// ruleFile is the part of a file of rules that the tests read.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Record, Alert, Expr string
			Labels, Annotations map[string]string
		}
	}
}

const prometheusFiles = "../../../dist/prometheus/"

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	tool := debian.Program(t, "promtool", "prometheus")
	if printed, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, printed)
	}
}

// TestAlertRules: promtool accepts the rules and their tests, every rule reads metrics that the program exposes, and the tests show each
// alert firing.
func TestAlertRules(t *testing.T) {
	var rules ruleFile
	readYAML(t, prometheusFiles+"salvor.rules.yml", &rules)
	known, _ := exposedMetrics(t)
	tests := must.Get(os.ReadFile(prometheusFiles + "salvor.rules.test.yml"))(t)
	alerts := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if err := checkExpression(r.Expr, known); err != nil {
				t.Errorf("rule %s%s: %v", r.Alert, r.Record, err)
			}
			if r.Record != "" {
				known[r.Record] = metricFamily{labels: map[string]bool{"job": true, "kind": true, "protocol": true, "route": true}}
				continue
			}
			alerts++
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Annotations["command"] == "" {
				t.Errorf("alert %s has no summary, description or command", r.Alert)
			}
			if s := r.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("alert %s has the severity %q", r.Alert, s)
			}
			if !strings.Contains(string(tests), `alertname="`+r.Alert+`"`) && !strings.Contains(string(tests), "alertname: "+r.Alert+"\n") {
				t.Errorf("no test shows that the alert %s fires", r.Alert)
			}
		}
	}
	if alerts < 20 {
		t.Errorf("only %d alerts", alerts)
	}
	for _, m := range regexp.MustCompile(`series: '([^']+)'`).FindAllStringSubmatch(string(tests), -1) {
		if err := checkExpression(m[1], known); err != nil {
			t.Errorf("a test of the rules: %v", err)
		}
	}
	promtool(t, "check", "rules", prometheusFiles+"salvor.rules.yml")
	promtool(t, "test", "rules", prometheusFiles+"salvor.rules.test.yml")
}

var (
	quotedText   = regexp.MustCompile(`"[^"]*"`)
	selectorText = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)?\{([^}]*)\}`)
	labelListing = regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right) *\([^)]*\)`)
	rangeText    = regexp.MustCompile(`\[[^]]*\]|\boffset +\w+`)
	identifier   = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*( *\()?`)
)

// checkExpression says which metric or label in an expression of PromQL is not among the known ones. promtool checks the grammar.
func checkExpression(expr string, known map[string]metricFamily) error {
	lookup := func(name string) (metricFamily, error) {
		if one, ok := known[name]; ok && !one.histogram {
			return one, nil
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && known[base].histogram {
				return known[base], nil
			}
		}
		return metricFamily{}, fmt.Errorf("the program exposes no metric %s", name)
	}
	rest := rangeText.ReplaceAllString(labelListing.ReplaceAllString(quotedText.ReplaceAllString(expr, `""`), ""), "")
	for _, m := range selectorText.FindAllStringSubmatch(rest, -1) {
		one, err := lookup(m[1])
		if err != nil {
			return err
		}
		for matcher := range strings.SplitSeq(m[2], ",") {
			label := strings.TrimSpace(matcher[:max(0, strings.IndexAny(matcher, "=!"))])
			if label != "" && !one.labels[label] && (label != "le" || !strings.HasSuffix(m[1], "_bucket")) {
				return fmt.Errorf("the metric %s has no label %s", m[1], label)
			}
		}
	}
	found := 0
	for _, name := range identifier.FindAllString(selectorText.ReplaceAllString(rest, "$1"), -1) {
		if strings.HasSuffix(name, "(") || slices.Contains([]string{"and", "or", "unless", "bool", "by", "on", "e"}, name) {
			continue
		}
		if _, err := lookup(name); err != nil {
			return err
		}
		found++
	}
	if found == 0 {
		return fmt.Errorf("there is no metric in %s", expr)
	}
	return nil
}

// TestCheckExpression: the check finds what the program does not expose, wherever it is in an expression.
func TestCheckExpression(t *testing.T) {
	known := map[string]metricFamily{"salvor_jobs": {labels: map[string]bool{"job": true, "kind": true}}, "salvor_wait_seconds": {histogram: true, labels: map[string]bool{"job": true}}}
	for expr, want := range map[string]string{
		`sum by (job, kind) (salvor_jobs{kind=~"a|b", job!="x"}) > 6 * 3600 and on (job) salvor_jobs offset 1h`: "",
		`histogram_quantile(0.95, sum by (le) (rate(salvor_wait_seconds_bucket{le!="+Inf"}[5m])))`:              "",
		`sum(salvor_jobs) unless on (job) salvor_job`:                                                           "no metric salvor_job",
		`salvor_jobs{state="x"}`:        "no label state",
		`rate(salvor_wait_seconds[5m])`: "no metric salvor_wait_seconds",
		`salvor_jobs_count`:             "no metric salvor_jobs_count",
		`salvor_heartbeats{le="30"}`:    "no metric salvor_heartbeats",
		`{kind="x"}`:                    "no metric",
		`vector(1)`:                     "there is no metric",
	} {
		if err := checkExpression(expr, known); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", expr, err, want)
		}
	}
}

// panel is the part of a panel of Grafana that the test reads.
type panel struct {
	ID          int
	Title, Type string
	Description string
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct{ Expr, RefID string }
	Panels      []panel
}

// TestDashboard: every expression of the dashboard is one of PromQL over metrics that the program exposes or the rules record. Panels have
// ids of their own and do not overlap.
func TestDashboard(t *testing.T) {
	text := must.Get(os.ReadFile("../../../dist/grafana/salvor.json"))(t)
	var board struct {
		UID, Title    string
		SchemaVersion int
		Panels        []panel
		Templating    struct {
			List []struct{ Name, Definition string }
		}
	}
	must.OK(t, json.Unmarshal(text, &board))
	var rules ruleFile
	readYAML(t, prometheusFiles+"salvor.rules.yml", &rules)
	known, _ := exposedMetrics(t)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				known[r.Record] = metricFamily{labels: map[string]bool{"job": true, "kind": true, "protocol": true, "route": true}}
			}
		}
	}
	if board.UID == "" || board.Title == "" || board.SchemaVersion < 38 {
		t.Errorf("uid %q, title %q, schema version %d", board.UID, board.Title, board.SchemaVersion)
	}
	for _, v := range board.Templating.List {
		for _, name := range regexp.MustCompile(`salvor_[a-z_]+`).FindAllString(v.Definition, -1) {
			if err := checkExpression(name, known); err != nil {
				t.Errorf("variable %s: %v", v.Name, err)
			}
		}
	}
	ids, cells, generated := map[int]bool{}, map[[2]int]string{}, []string(nil)
	for _, p := range board.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" || len(p.Panels) > 0 {
			t.Errorf("panel %q: its id %d is taken, or its title is missing, or it hides panels", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q overlaps %q, or is outside of the grid", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("panel %q shows nothing, or has no description", p.Title)
		}
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			if err := checkExpression(expr, known); err != nil {
				t.Errorf("panel %q: %v", p.Title, err)
			}
			generated = append(generated, fmt.Sprintf("  - record: panel:%d:%s\n    expr: %q\n", p.ID, target.RefID, expr))
		}
	}
	if len(generated) < 20 {
		t.Errorf("only %d expressions", len(generated))
	}
	file := "groups:\n- name: dashboard\n  rules:\n" + strings.Join(generated, "")
	path := filepath.Join(t.TempDir(), "dashboard.yml")
	must.OK(t, os.WriteFile(path, []byte(file), 0o600))
	promtool(t, "check", "rules", path)
}
