package service

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// How long a console is waited for, and how often it is looked whether it came.
const (
	consolePatience = 30 * time.Second
	consoleLook     = 50 * time.Millisecond
)

// Console reads the last lines of a server's console log, all that are kept for 0. It asks the host by an order of its own: it
// changes nothing, so it waits for no job. Unavailable if the host does not answer in time. Read or given up, its order is dropped: no
// host is asked for what nobody waits for, and what a console showed is not kept.
func (s *Servers) Console(ctx context.Context, srv *compute.Server, lines int) (string, error) {
	if srv.HostID == "" {
		return "", problem.Conflictf("server %s is on no host yet: there is no console", srv.ID)
	}
	host, err := s.store.Hosts().Get(ctx, nil, srv.HostID)
	if err != nil {
		return "", err
	}
	if host.Kind != compute.AgentHost {
		return "", problem.Unsupportedf("server %s: hosts of kind %s keep no console log", srv.ID, host.Kind)
	}
	args, err := json.Marshal(compute.Args{Lines: lines})
	if err != nil {
		return "", err
	}
	id := uuid.NewString()
	order := compute.Order{
		ID: id, HostID: host.ID, BootID: host.BootID, ServerID: srv.ID, Epoch: srv.Epoch, Verb: compute.Console, Args: args,
		Within: int(consolePatience / time.Second), JobID: id, Action: "console",
	}
	if err := s.jobs.Do(ctx, func(tx job.Tx) error { _, err := s.store.InsertOrder(tx, &order); return err }); err != nil {
		return "", err
	}
	text, err := s.awaitConsole(ctx, host.Name, id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), consolePatience)
	defer cancel()
	dropped := s.jobs.Do(ctx, func(tx job.Tx) error { return s.store.DropOrder(tx, id) })
	return text, errors.Join(err, dropped)
}

func (s *Servers) awaitConsole(ctx context.Context, host, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, consolePatience)
	defer cancel()
	look := time.NewTicker(consoleLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", problem.Unavailablef("host %s did not tell the console within %s; see whether it is up: salvor host show %[1]s", host, consolePatience)
		case <-look.C:
		}
		o, err := s.store.Order(ctx, nil, id)
		switch {
		case err != nil && ctx.Err() == nil:
			return "", err
		case err == nil && o.Result != nil && o.Result.ErrorKind != "":
			return "", problem.New(problem.ParseKind(o.Result.ErrorKind), "%s", o.Result.Error)
		case err == nil && o.Result != nil:
			return o.Result.Console, nil
		}
	}
}
