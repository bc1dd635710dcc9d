package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Seeds of the two fleets: a few machines that are rescued to see how long it takes, and the many among which they are.
const (
	fewSeed, manySeed = 99, 1
	few               = 8
)

// What the figure asks of a fleet: how often each agent heartbeats and each machine's power is read, and how much
// of the processors, of memory and of the time of a rescue alone that may take.
const (
	beatEvery = 100 * time.Second
	readEvery = 120 * time.Second

	coresGoal  = 1
	memoryGoal = 1024
	rescueGoal = 1.5
	// punctual is the share of heartbeats and readings that must come in time: the rest falls to the edges of what is counted.
	punctual = 0.97
)

// fleetGoals are those of figures that other measurements have under other names, where nothing else goes on.
var fleetGoals = map[string]float64{"fleet list of 1,000": 15}

// tellEvery is how often salvor-lab sim says how it stands.
const tellEvery = 30 * time.Second

// every is an interval of a fleet that acts for a larger one, and in which only a share acts.
func (o benchOptions) every(interval time.Duration, share float64) time.Duration {
	return max(time.Second, time.Duration(float64(interval)*share*float64(o.fleet)/float64(o.as)).Round(time.Second))
}

// measureFleet measures a salvor that serves the simulated fleet of the same program.
func measureFleet(ctx context.Context, o benchOptions, progress func(string)) (serverReport, error) {
	s, err := startSalvor(ctx, o.program, func(address, dir string) (string, error) {
		for _, name := range []string{"fleet.kernel", "fleet.initramfs"} {
			if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("nobody boots this "), 512), 0o600); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("[DEFAULT]\nlog_level = warn\n[service_catalog]\nendpoint_override = http://%s\n[conductor]\nsync_power_state_interval = %[3]d\nrescue_kernel = %[2]s/fleet.kernel\nrescue_ramdisk = %[2]s/fleet.initramfs\n",
			address, dir, o.every(readEvery, 1)/time.Second), nil
	})
	if err != nil {
		return serverReport{}, err
	}
	defer s.stop()
	t, err := newTarget(s.url, o.version, serverCredentials{})
	if err != nil {
		return serverReport{}, err
	}
	o.nodes = o.fleet
	w := newWorld(t, o, s.process(), progress)
	defer w.close()
	if err := w.fleet(ctx, s); err != nil {
		return serverReport{}, fmt.Errorf("%w\n%s", err, s.logTail())
	}
	return serverReport{Endpoint: s.url, Figures: w.figures, Own: true}, nil
}

func (w *benchEnvironment) fleet(ctx context.Context, s *salvorProcess) error {
	ones, err := startSim(ctx, w.opts.program, s.url, "--nodes", fmt.Sprint(few), "--seed", fmt.Sprint(fewSeed), "--boot-time", "100ms")
	if err != nil {
		return err
	}
	defer ones.stop()
	alone, err := w.rescues()
	if err != nil {
		return err
	}
	w.addFigure("rescue of one alone", alone, seconds)
	began, before := time.Now(), readCPUTime(w.process)
	beat := w.opts.every(beatEvery, w.opts.agents)
	many, err := startSim(ctx, w.opts.program, s.url, "--nodes", fmt.Sprint(w.opts.fleet), "--seed", fmt.Sprint(manySeed), "--hold", fmt.Sprint(w.opts.agents), "--heartbeat", beat.String(), "--boot-time", "100ms")
	if err != nil {
		return err
	}
	defer many.stop()
	w.addFigureWithCost("enrolled, adopted, agents begun", float64(w.opts.fleet)/time.Since(began).Seconds(), rate, (readCPUTime(w.process)-before)/time.Duration(w.opts.fleet))
	if err := w.quiet(ctx, many, beat); err != nil {
		return err
	}
	if err := w.lists("fleet", "/v1/nodes?limit=1000", "/v1/nodes/detail?limit=1000"); err != nil {
		return err
	}
	among, err := w.rescues()
	if err != nil {
		return err
	}
	w.addFigure("rescue of one among them", among, seconds)
	w.tellGoal("rescue among them, to one alone", among/alone, "times", rescueGoal)
	summary, err := many.end()
	if err != nil {
		return err
	}
	w.addFigure("heartbeat, 99 of 100 within", summary.Slowest, millis)
	w.addFigure("heartbeats sent late by", summary.Late, seconds)
	w.addFigure("agents", float64(summary.Agents), "")
	w.addFigure("errors", float64(summary.Errors), "")
	return nil
}

// quiet lets heartbeats and power sync go on alone for the time of a turn and tells what that costs, and whether they came.
func (w *benchEnvironment) quiet(ctx context.Context, s *simulatedFleet, beat time.Duration) error {
	from, err := s.nextStatus(ctx)
	if err != nil {
		return err
	}
	before := readCPUTime(w.process)
	to := from
	for w.opts.turn-to.at.Sub(from.at) > tellEvery/2 {
		if to, err = s.nextStatus(ctx); err != nil {
			return err
		}
	}
	took := to.at.Sub(from.at).Seconds()
	w.tellGoal("processors used, heartbeats and power sync", (readCPUTime(w.process)-before).Seconds()/took, "", coresGoal)
	w.tellGoal("heartbeats taken", float64(to.heartbeats-from.heartbeats)/took, rate, punctual*w.opts.agents*float64(w.opts.fleet)/beat.Seconds())
	w.tellGoal("readings of the power", float64(to.readings-from.readings)/took, rate, punctual*float64(w.opts.fleet)/w.opts.every(readEvery, 1).Seconds())
	now, err := readResidentMemory(w.process)
	if err == nil {
		w.tellGoal("memory, with the fleet", now, mebi, memoryGoal)
	}
	return err
}

// rescues is how many seconds a rescue takes, one after the other on the few machines.
func (w *benchEnvironment) rescues() (float64, error) {
	var times []float64
	for i := range few {
		c, id := w.wires[0], fmt.Sprintf("sim-%d-%06d", fewSeed, i)
		start := time.Now()
		if err := setProvisionState(c, id, `{"target":"rescue","rescue_password":"simulated-rescue"}`); err != nil {
			return 0, err
		}
		if err := waitProvisionState(c, id, "rescue"); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start).Seconds())
		if err := setProvisionState(c, id, `{"target":"unrescue"}`); err != nil {
			return 0, err
		}
		if err := waitProvisionState(c, id, "active"); err != nil {
			return 0, err
		}
	}
	return median(times), nil
}

// simulatedFleet is a fleet in a process of its own.
type simulatedFleet struct {
	cmd      *exec.Cmd
	out      bytes.Buffer
	statuses chan fleetStatus
}

// fleetStatus is what a fleet says of itself now and then.
type fleetStatus struct {
	at                   time.Time
	heartbeats, readings int64
}

// counted finds heartbeats and requests to BMCs, which are readings once all is enrolled, in what a fleet says.
var counted = regexp.MustCompile(`(\d+) heartbeats .* (\d+) requests to BMCs`)

// nextStatus is the next word of a fleet.
func (s *simulatedFleet) nextStatus(ctx context.Context) (fleetStatus, error) {
	select {
	case <-ctx.Done():
		return fleetStatus{}, ctx.Err()
	case <-time.After(3 * tellEvery):
		return fleetStatus{}, fmt.Errorf("salvor-lab sim says nothing")
	case word, ok := <-s.statuses:
		if !ok {
			return fleetStatus{}, fmt.Errorf("salvor-lab sim ended")
		}
		return word, nil
	}
}

// readStatus passes on what a fleet says, and drops it where nobody listens.
func (s *simulatedFleet) readStatus(lines *bufio.Scanner) {
	defer close(s.statuses)
	for lines.Scan() {
		fmt.Fprintln(os.Stderr, lines.Text())
		word := fleetStatus{at: time.Now()}
		if found := counted.FindStringSubmatch(lines.Text()); found != nil {
			if _, err := fmt.Sscan(found[1]+" "+found[2], &word.heartbeats, &word.readings); err == nil {
				select {
				case s.statuses <- word:
				default:
				}
			}
		}
	}
}

// fleetSummary is what a fleet tells at its end.
type fleetSummary struct {
	Agents, Errors int64
	Slowest        float64 `json:"heartbeat_p99_ms"`
	Late           float64 `json:"late_s"`
}

// startSim starts a fleet, by the program salvor-lab beside program, and waits until it is enrolled.
func startSim(ctx context.Context, program, url string, arguments ...string) (*simulatedFleet, error) {
	s := &simulatedFleet{statuses: make(chan fleetStatus), cmd: exec.CommandContext(ctx, filepath.Join(filepath.Dir(program), "salvor-lab"), append([]string{"sim", "--url", url, "-f", "json"}, arguments...)...)}
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.WaitDelay = startTime
	s.cmd.Stdout = &s.out
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines, last := bufio.NewScanner(stderr), ""
	for lines.Scan() {
		fmt.Fprintln(os.Stderr, lines.Text())
		if last = lines.Text(); strings.HasPrefix(last, "enrolled:") {
			go s.readStatus(lines)
			return s, nil
		}
	}
	s.stop()
	return nil, fmt.Errorf("salvor-lab sim ended before its fleet was enrolled: %s", last)
}

// end interrupts the fleet and reads its summary.
func (s *simulatedFleet) end() (fleetSummary, error) {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		return fleetSummary{}, fmt.Errorf("salvor-lab sim: %w", err)
	}
	var sum fleetSummary
	err := json.Unmarshal(s.out.Bytes(), &sum)
	return sum, err
}

func (s *simulatedFleet) stop() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
	}
}
