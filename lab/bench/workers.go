package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// connectionPool asks with several connections at once.
type connectionPool struct {
	t     *targetServer
	wires []*httpConn
}

func newCrew(t *targetServer, size int) *connectionPool {
	c := &connectionPool{t: t}
	for range size {
		c.wires = append(c.wires, &httpConn{t: t})
	}
	return c
}

func (c *connectionPool) close() {
	for _, w := range c.wires {
		w.close()
	}
}

// each does work for 0 to n-1, a connection taking the next number as soon as it is free, and gives the time for all.
func (c *connectionPool) each(n int, work func(w *httpConn, i int) error) (time.Duration, error) {
	var next atomic.Int64
	return c.run(func(w *httpConn) error {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if err := work(w, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// during does work with rising numbers for some time and gives how many were done, and the time.
func (c *connectionPool) during(d time.Duration, work func(w *httpConn, i int) error) (int, time.Duration, error) {
	var next atomic.Int64
	end := time.Now().Add(d)
	took, err := c.run(func(w *httpConn) error {
		for time.Now().Before(end) {
			if err := work(w, int(next.Add(1))-1); err != nil {
				return err
			}
		}
		return nil
	})
	return int(next.Load()), took, err
}

func (c *connectionPool) run(work func(*httpConn) error) (time.Duration, error) {
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
func (w *httpConn) ask(method, path, body string, want ...int) ([]byte, error) {
	status, answer, err := w.send(method, path, body)
	if err == nil && !slices.Contains(want, status) {
		err = fmt.Errorf("%s %s: %d: %.300s", method, path, status, answer)
	}
	return answer, err
}

// busy sends again while the server says that somebody else holds the node, or that it has no hands free.
func (w *httpConn) busy(method, path, body string, want ...int) error {
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
