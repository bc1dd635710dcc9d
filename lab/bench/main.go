// Command bench measures any server that speaks Ironic's API: what one node, one list,
// one heartbeat and one rescue cost. Without an endpoint it starts the salvor that was
// built, on a state directory of its own. It knows the API and nothing of what is behind
// it: whatever it makes there it takes away again.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// benchOptions are the choices of a run.
type benchOptions struct {
	endpoint, versus      string
	auth, versusAuth      string
	pid, versusPID        int
	program               string
	version, deploy       string
	asJSON, keep          bool
	concurrency           int
	nodes, ramdisks       int
	rounds                int
	time                  time.Duration
	only                  string
	fleet, as             int
	agents                float64
	turn                  time.Duration
	overload, connections int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runBenchmark(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseBenchFlags(args []string, errs io.Writer) (benchOptions, error) {
	var o benchOptions
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errs)
	f.StringVar(&o.endpoint, "endpoint", "", "URL of the server to measure; none: start the salvor that was built")
	f.StringVar(&o.versus, "versus", "", "URL of a second server, measured after the first; ratios are printed")
	f.StringVar(&o.auth, "auth", "none", "none, basic:USER (password in BENCH_PASSWORD) or token (in BENCH_TOKEN)")
	f.StringVar(&o.versusAuth, "versus-auth", "none", "the same for the second server (BENCH_VERSUS_PASSWORD, BENCH_VERSUS_TOKEN)")
	f.IntVar(&o.pid, "pid", 0, "process of the endpoint, for its memory")
	f.IntVar(&o.versusPID, "versus-pid", 0, "process of the second server, for its memory")
	f.StringVar(&o.program, "salvor", salvorPath(), "the program to start")
	f.StringVar(&o.version, "version", "1.82", "API version to speak")
	f.StringVar(&o.deploy, "deploy-interface", "", "deploy interface of nodes that wait for a ramdisk (default direct, or custom-agent where that is not offered)")
	f.BoolVar(&o.asJSON, "json", false, "write JSON instead of a table")
	f.BoolVar(&o.keep, "keep", false, "leave on the server what was made there")
	f.IntVar(&o.concurrency, "concurrency", 8, "connections that ask at once")
	f.IntVar(&o.nodes, "nodes", 10000, "how many nodes to make")
	f.IntVar(&o.ramdisks, "ramdisks", 1000, "how many of them look up and heartbeat")
	f.IntVar(&o.rounds, "rounds", 7, "how often a list is read through")
	f.DurationVar(&o.time, "time", 3*time.Second, "how long a rate is measured")
	f.StringVar(&o.only, "only", "", "measure only the cases whose names hold this word")
	f.IntVar(&o.fleet, "fleet", 0, "measure instead the salvor that was built with a simulated fleet of so many nodes")
	f.IntVar(&o.as, "as", 0, "have heartbeats and readings of the power come as often as those of a fleet of so many nodes (default as many as there are)")
	f.Float64Var(&o.agents, "agents", 1, "share of a fleet that has agents; they heartbeat that much more often")
	f.DurationVar(&o.turn, "turn", 120*time.Second, "how long a fleet is left alone to measure what heartbeats and power sync cost")
	f.IntVar(&o.overload, "overload", 0, "measure instead the salvor that was built while so many rescues are asked of it at once")
	f.IntVar(&o.connections, "overload-connections", 500, "connections of the one client that asks for them")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.as == 0 {
		o.as = o.fleet
	}
	if o.fleet != 0 && (o.fleet < thousand || o.as < o.fleet || o.turn < 2*tellEvery || !(o.agents > 0 && o.agents <= 1)) {
		return o, fmt.Errorf("a fleet has %d nodes or more and is measured as no fewer, agents are more than 0 and at most 1, a turn is %s or more", thousand, 2*tellEvery)
	}
	if o.concurrency < 1 || o.nodes < thousand || o.nodes > 60000 || o.ramdisks < 1 || o.ramdisks > 60000 || o.rounds < 1 || o.time <= 0 {
		return o, fmt.Errorf("concurrency, ramdisks, rounds and time must be positive, nodes from %d to 60000", thousand)
	}
	return o, nil
}

// parseAuthOption reads how a server lets us in; secrets come by the environment, which ps does not show.
func parseAuthOption(auth, prefix string) (serverCredentials, error) {
	kind, user, _ := strings.Cut(auth, ":")
	switch {
	case kind == "none":
		return serverCredentials{}, nil
	case kind == "basic" && user != "":
		return serverCredentials{user: user, password: os.Getenv(prefix + "PASSWORD")}, nil
	case kind == "token" && os.Getenv(prefix+"TOKEN") != "":
		return serverCredentials{token: os.Getenv(prefix + "TOKEN")}, nil
	}
	return serverCredentials{}, fmt.Errorf("auth %q: want none, basic:USER with %sPASSWORD set, or token with %sTOKEN set", kind, prefix, prefix)
}

func runBenchmark(ctx context.Context, args []string, out, errs io.Writer) error {
	o, err := parseBenchFlags(args, errs)
	if err != nil {
		return err
	}
	progress := func(line string) { fmt.Fprintln(errs, line) }
	var reports []serverReport
	if o.fleet > 0 {
		r, err := measureFleet(ctx, o, progress)
		if err != nil {
			return err
		}
		return writeReports(o, []serverReport{r}, out)
	}
	if o.overload > 0 {
		r, err := measureOverload(ctx, o, progress)
		if err != nil {
			return err
		}
		return writeReports(o, []serverReport{r}, out)
	}
	first, err := measureFirst(ctx, o, progress)
	if err != nil {
		return err
	}
	reports = append(reports, first)
	if o.versus != "" {
		a, err := parseAuthOption(o.versusAuth, "BENCH_VERSUS_")
		if err != nil {
			return err
		}
		second, err := measureServer(ctx, o, o.versus, a, o.versusPID, progress)
		if err != nil {
			return err
		}
		reports = append(reports, second)
	}
	return writeReports(o, reports, out)
}

func writeReports(o benchOptions, reports []serverReport, out io.Writer) error {
	if o.asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(buildResult(reports))
	}
	return writeTable(out, reports)
}

// measureFirst measures the endpoint, or a salvor that is started for it.
func measureFirst(ctx context.Context, o benchOptions, progress func(string)) (serverReport, error) {
	if o.endpoint != "" {
		a, err := parseAuthOption(o.auth, "BENCH_")
		if err != nil {
			return serverReport{}, err
		}
		return measureServer(ctx, o, o.endpoint, a, o.pid, progress)
	}
	s, err := startSalvor(ctx, o.program, func(string, string) (string, error) { return settings, nil })
	if err != nil {
		return serverReport{}, err
	}
	defer s.stop()
	cold := measuredValue{"start to first answer", s.took.Seconds(), seconds, goals["start to first answer"], 0}
	progress(fmt.Sprintf("%-36s %s", cold.Name, cold.text()))
	idle, err := s.idle(ctx)
	if err != nil {
		return serverReport{}, err
	}
	memory := measuredValue{"memory, idle", idle, mebi, goals["memory, idle"], 0}
	progress(fmt.Sprintf("%-36s %s", memory.Name, memory.text()))
	o.keep = true // the state directory goes as a whole
	r, err := measureServer(ctx, o, s.url, serverCredentials{}, s.process(), progress)
	if err != nil {
		return r, fmt.Errorf("%w\n%s", err, s.logTail())
	}
	r.Figures = append([]measuredValue{cold, memory}, r.Figures...)
	r.Own = true
	return r, nil
}

// measureServer runs all cases against one server.
func measureServer(ctx context.Context, o benchOptions, endpoint string, a serverCredentials, process int, progress func(string)) (serverReport, error) {
	t, err := newTarget(endpoint, o.version, a)
	if err != nil {
		return serverReport{}, err
	}
	w := newWorld(t, o, process, progress)
	defer w.close()
	if err := w.chooseDeploy(); err != nil {
		return serverReport{}, err
	}
	for _, c := range cases {
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if strings.Contains(c.name, o.only) || c.name == "nodes" {
			err = c.run(w)
		}
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", endpoint, c.name, err)
			break
		}
	}
	if !o.keep {
		progress("taking away what was made")
		if gone := w.clear(); err == nil {
			err = gone
		}
	}
	return serverReport{Endpoint: endpoint, Figures: w.figures}, err
}
