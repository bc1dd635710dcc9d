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
	"strings"
	"syscall"
	"time"
)

// Seeds of the two fleets: a few machines that are rescued to see how long it takes, and the many among which they are.
const (
	fewSeed, manySeed = 99, 1
	few               = 8
)

// Names of what is measured of a fleet.
const (
	cores      = "processors used, heartbeats and power sync"
	rescueTime = "rescue among them, to one alone"
)

// Half of the fleet has agents that heartbeat, which takes maintenance, and the other half is power-synced. Each
// comes twice as often as the figure asks, so that heartbeats and readings in a second are those of a whole fleet
// with 100 s and 120 s.

// measureFleet measures a salvor that serves the simulated fleet of the same program.
func measureFleet(ctx context.Context, o options, progress func(string)) (report, error) {
	s, err := startSalvor(ctx, o.program, func(address, dir string) (string, error) {
		for _, name := range []string{"fleet.kernel", "fleet.initramfs"} {
			if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("nobody boots this "), 512), 0o600); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("[DEFAULT]\nlog_level = warn\n[service_catalog]\nendpoint_override = http://%s\n[conductor]\nsync_power_state_interval = 60\nrescue_kernel = %[2]s/fleet.kernel\nrescue_ramdisk = %[2]s/fleet.initramfs\n", address, dir), nil
	})
	if err != nil {
		return report{}, err
	}
	defer s.stop()
	t, err := newTarget(s.url, o.version, access{})
	if err != nil {
		return report{}, err
	}
	o.nodes = o.fleet
	w := newWorld(t, o, s.process(), progress)
	defer w.close()
	if err := w.fleet(ctx, s); err != nil {
		return report{}, fmt.Errorf("%w\n%s", err, s.words())
	}
	return report{Endpoint: s.url, Figures: w.figures, Own: true}, nil
}

func (w *world) fleet(ctx context.Context, s *salvor) error {
	ones, err := startSim(ctx, w.opts.program, s.url, "--nodes", fmt.Sprint(few), "--seed", fmt.Sprint(fewSeed), "--boot-time", "100ms")
	if err != nil {
		return err
	}
	defer ones.stop()
	alone, err := w.rescues()
	if err != nil {
		return err
	}
	w.tell("rescue of one alone", alone, seconds)
	began, before := time.Now(), spent(w.process)
	many, err := startSim(ctx, w.opts.program, s.url, "--nodes", fmt.Sprint(w.opts.fleet), "--seed", fmt.Sprint(manySeed), "--hold", "0.5", "--heartbeat", "50s", "--boot-time", "100ms")
	if err != nil {
		return err
	}
	defer many.stop()
	w.tellCost("enrolled and adopted, half sent to rescue", float64(w.opts.fleet)/time.Since(began).Seconds(), rate, (spent(w.process)-before)/time.Duration(w.opts.fleet))
	if err := w.quiet(ctx); err != nil {
		return err
	}
	if err := w.lists("node", "/v1/nodes?limit=1000", "/v1/nodes/detail?limit=1000"); err != nil {
		return err
	}
	among, err := w.rescues()
	if err != nil {
		return err
	}
	w.tell("rescue of one among them", among, seconds)
	w.tell(rescueTime, among/alone, "times")
	summary, err := many.end()
	if err != nil {
		return err
	}
	w.tell("heartbeat, 99 of 100 within", summary.Slowest, millis)
	w.tell("heartbeats sent late by", summary.Late, seconds)
	w.tell("agents", float64(summary.Agents), "")
	w.tell("errors", float64(summary.Errors), "")
	return nil
}

// quiet lets heartbeats and power sync go on alone for the time of a turn and tells what that costs.
func (w *world) quiet(ctx context.Context) error {
	began, before := time.Now(), spent(w.process)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(w.opts.turn):
	}
	w.tell(cores, (spent(w.process)-before).Seconds()/time.Since(began).Seconds(), "")
	now, err := resident(w.process)
	if err == nil {
		w.tell("memory, with the fleet", now, mebi)
	}
	return err
}

// rescues is how many seconds a rescue takes, one after the other on the few machines.
func (w *world) rescues() (float64, error) {
	var times []float64
	for i := range few {
		c, id := w.wires[0], fmt.Sprintf("sim-%d-%06d", fewSeed, i)
		start := time.Now()
		if err := provision(c, id, `{"target":"rescue","rescue_password":"simulated-rescue"}`); err != nil {
			return 0, err
		}
		if err := await(c, id, "rescue"); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start).Seconds())
		if err := provision(c, id, `{"target":"unrescue"}`); err != nil {
			return 0, err
		}
		if err := await(c, id, "active"); err != nil {
			return 0, err
		}
	}
	return median(times), nil
}

// simulated is a fleet in a process of its own.
type simulated struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

// summary is what a fleet tells at its end.
type summary struct {
	Agents, Errors int64
	Slowest        float64 `json:"heartbeat_p99_ms"`
	Late           float64 `json:"late_s"`
}

// startSim starts a fleet and waits until it is enrolled.
func startSim(ctx context.Context, program, url string, words ...string) (*simulated, error) {
	s := &simulated{cmd: exec.CommandContext(ctx, program, append([]string{"sim", "--url", url, "-f", "json"}, words...)...)}
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.WaitDelay = startTime
	s.cmd.Stdout = &s.out
	said, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines, last := bufio.NewScanner(said), ""
	for lines.Scan() {
		fmt.Fprintln(os.Stderr, lines.Text())
		if last = lines.Text(); strings.HasPrefix(last, "enrolled:") {
			go func() {
				for lines.Scan() {
					fmt.Fprintln(os.Stderr, lines.Text())
				}
			}()
			return s, nil
		}
	}
	s.stop()
	return nil, fmt.Errorf("salvor sim ended before its fleet was enrolled: %s", last)
}

// end interrupts the fleet and reads its summary.
func (s *simulated) end() (summary, error) {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		return summary{}, fmt.Errorf("salvor sim: %w", err)
	}
	var sum summary
	err := json.Unmarshal(s.out.Bytes(), &sum)
	return sum, err
}

func (s *simulated) stop() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
	}
}
