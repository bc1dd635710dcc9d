package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// crew asks with several connections at once.
type crew struct {
	t     *target
	wires []*wire
}

func newCrew(t *target, size int) *crew {
	c := &crew{t: t}
	for range size {
		c.wires = append(c.wires, &wire{t: t})
	}
	return c
}

func (c *crew) close() {
	for _, w := range c.wires {
		w.close()
	}
}

// each does work for 0 to n-1, a connection taking the next number as soon as it is free, and gives the time for all.
func (c *crew) each(n int, work func(w *wire, i int) error) (time.Duration, error) {
	var next atomic.Int64
	return c.run(func(w *wire) error {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if err := work(w, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// during does work with rising numbers for some time and gives how many were done, and the time.
func (c *crew) during(d time.Duration, work func(w *wire, i int) error) (int, time.Duration, error) {
	var next atomic.Int64
	end := time.Now().Add(d)
	took, err := c.run(func(w *wire) error {
		for time.Now().Before(end) {
			if err := work(w, int(next.Add(1))-1); err != nil {
				return err
			}
		}
		return nil
	})
	return int(next.Load()), took, err
}

func (c *crew) run(work func(*wire) error) (time.Duration, error) {
	var all sync.WaitGroup
	errs := make([]error, len(c.wires))
	start := time.Now()
	for i, w := range c.wires {
		all.Go(func() { errs[i] = work(w) })
	}
	all.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return took, err
		}
	}
	return took, nil
}

// ask sends and wants one of the statuses.
func (w *wire) ask(method, path, body string, want ...int) ([]byte, error) {
	status, answer, err := w.send(method, path, body)
	if err == nil && !slices.Contains(want, status) {
		err = fmt.Errorf("%s %s: %d: %.300s", method, path, status, answer)
	}
	return answer, err
}

// busy sends again while the server says that somebody else holds the node, or that it has no hands free.
func (w *wire) busy(method, path, body string, want ...int) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		status, answer, err := w.send(method, path, body)
		switch {
		case err != nil:
			return err
		case slices.Contains(want, status):
			return nil
		case status != 409 && status != 503 || time.Now().After(end):
			return fmt.Errorf("%s %s: %d: %.300s", method, path, status, answer)
		}
	}
}
