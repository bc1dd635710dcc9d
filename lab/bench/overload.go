package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits and goals of the overload measurement.
const (
	fewConnections = 8
	ratioGoal      = 1.5 // time of the same rescues by many connections to that by few
	writeGoal      = 300 // milliseconds, 99 of 100 writes of another client
	beatGoal       = 100 // milliseconds, 99 of 100 heartbeats
	besideEvery    = 20 * time.Millisecond
)

// measureOverload rescues the same nodes by few connections and by many. Another client's writes and heartbeats of ramdisks run
// beside each. It reports the time of both.
func measureOverload(ctx context.Context, o benchOptions, progress func(string)) (serverReport, error) {
	s, err := startSalvor(ctx, o.program, func(string, string) (string, error) {
		return settings + "[conductor]\nsync_power_state_interval = 0\n", nil
	})
	if err != nil {
		return serverReport{}, err
	}
	defer s.stop()
	t, err := newTarget(s.url, o.version, serverCredentials{})
	if err != nil {
		return serverReport{}, err
	}
	o.ramdisks, o.time = 50, time.Second
	w := newWorld(t, o, s.process(), progress)
	defer w.close()
	if err := w.overload(ctx); err != nil {
		return serverReport{}, fmt.Errorf("%w\n%s", err, s.logTail())
	}
	return serverReport{Endpoint: s.url, Figures: w.figures, Own: true}, nil
}

func (w *benchEnvironment) overload(ctx context.Context) error {
	if err := w.chooseDeploy(); err != nil {
		return err
	}
	if err := w.ramdisks(); err != nil {
		return err
	}
	w.progress(fmt.Sprintf("making %d nodes", w.opts.overload))
	ids, err := w.active(w.opts.overload, "load-", "")
	if err != nil {
		return err
	}
	own := make([]string, 20)
	for i := range own {
		if own[i], err = createResource(w.wires[0], "/v1/nodes", w.nodeBody(fmt.Sprint("own-", i), "")); err != nil {
			return err
		}
	}
	few, err := w.rescueAll(ctx, ids, own, fewConnections)
	if err != nil {
		return err
	}
	w.progress("unrescuing them")
	if _, err := w.each(len(ids), func(c *httpConn, i int) error { return requestWithRetry(ctx, c, ids[i], `{"target":"unrescue"}`, nil) }); err != nil {
		return err
	}
	if err := w.settled(ctx, "rescue", "unrescuing"); err != nil {
		return err
	}
	many, err := w.rescueAll(ctx, ids, own, w.opts.connections)
	if err != nil {
		return err
	}
	w.tellGoal("time by many connections, to few", many/few, "times", ratioGoal)
	now, err := readResidentMemory(w.process)
	if err == nil {
		w.addFigure("memory, afterwards", now, mebi)
	}
	return err
}

// rescueAll rescues nodes over the given number of connections of one client. It returns the seconds until the last node is in
// rescue.
func (w *benchEnvironment) rescueAll(ctx context.Context, ids, own []string, connections int) (float64, error) {
	by := fmt.Sprintf(" beside %d connections", connections)
	client := newCrew(w.t.from("127.0.0.2"), connections)
	defer client.close()
	beside, stop := context.WithCancel(ctx)
	defer stop()
	var writes, beats, reads []float64
	var failed [3]error
	var others sync.WaitGroup
	others.Go(func() {
		writes, failed[0] = w.t.from("127.0.0.3").again(beside, func(c *httpConn, i int) error {
			_, err := c.ask("PATCH", "/v1/nodes/"+own[i%len(own)], fmt.Sprintf(`[{"op":"add","path":"/description","value":"%d"}]`, i), 200)
			return err
		})
	})
	others.Go(func() {
		beats, failed[1] = w.t.from("127.0.0.4").again(beside, w.sendHeartbeat)
	})
	others.Go(func() {
		reads, failed[2] = w.t.from("127.0.0.5").again(beside, func(c *httpConn, i int) error {
			_, err := c.ask("GET", "/v1/nodes/"+own[i%len(own)], "", 200)
			return err
		})
	})
	var refused atomic.Int64
	start := time.Now()
	_, err := client.each(len(ids), func(c *httpConn, i int) error {
		return requestWithRetry(ctx, c, ids[i], `{"target":"rescue","rescue_password":"bench-password"}`, &refused)
	})
	asked := time.Since(start).Seconds()
	if err == nil {
		err = w.settled(ctx, "active", "rescuing")
	}
	took := time.Since(start).Seconds()
	stop()
	others.Wait()
	if err = errors.Join(append(failed[:], err)...); err != nil {
		return 0, err
	}
	w.addFigure("accepted"+by, asked, seconds)
	w.addFigure("all in rescue"+by, took, seconds)
	w.addFigure("refused and asked again"+by, float64(refused.Load()), "")
	w.tellGoal("another client's write, 99 of 100"+by, percentile(writes, 99), millis, writeGoal)
	w.tellGoal("heartbeat, 99 of 100"+by, percentile(beats, 99), millis, beatGoal)
	w.addFigure("another client's GET, 99 of 100"+by, percentile(reads, 99), millis)
	return took, nil
}

// requestWithRetry requests a change of state until it is accepted. After each refusal it waits for the Retry-After of the answer.
func requestWithRetry(ctx context.Context, c *httpConn, id, body string, refused *atomic.Int64) error {
	for {
		status, answer, err := c.send("PUT", "/v1/nodes/"+id+"/states/provision", body)
		switch {
		case err != nil:
			return err
		case status == 202:
			return nil
		case status != 503 || c.retryAfter == 0:
			return fmt.Errorf("node %s: %s: %d without a Retry-After: %.300s", id, body, status, answer)
		}
		if refused != nil {
			refused.Add(1)
		}
		select {
		case <-time.After(c.retryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settled waits until no node is in one of the states.
func (w *benchEnvironment) settled(ctx context.Context, states ...string) error {
	for _, state := range states {
		for {
			status, answer, err := w.wires[0].send("GET", "/v1/nodes?limit=1&fields=uuid&provision_state="+state, "")
			if err != nil || status != 200 {
				return fmt.Errorf("nodes in state %s: %d %.200s: %w", state, status, answer, err)
			}
			if _, err := cutString(answer, "uuid"); err != nil {
				break
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// again sends requests over one connection until the context ends. It returns the milliseconds of each answer.
func (t *targetServer) again(ctx context.Context, ask func(*httpConn, int) error) (times []float64, err error) {
	c := &httpConn{t: t}
	defer c.close()
	for i := 0; ctx.Err() == nil; i++ {
		start := time.Now()
		if err := ask(c, i); err != nil {
			return times, err
		}
		times = append(times, float64(time.Since(start).Microseconds())/1000)
		time.Sleep(besideEvery)
	}
	return times, nil
}

// percentile is the value that p of 100 do not exceed.
func percentile(values []float64, p int) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)*p/100, len(values)-1)]
}
