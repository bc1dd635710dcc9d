package server

import (
	"context"
	"strings"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// silentHostPause is for how much longer a job waits each time that its host turns out to be silent.
const silentHostPause = time.Minute

// waitsWithoutEnd is why the whole of such a job has no deadline.
const waitsWithoutEnd = "what was asked for is kept while the host of the server is silent"

// waitForSilentHost has a job on a server wait on while the host of the server is silent. What was asked for is carried out when the host is back, or at
// another host by an evacuation, which takes the job over.
func (c *Conductor) waitForSilentHost(ctx context.Context, tx job.Tx, j *job.Job) (more time.Duration, text string, err error) {
	srv, err := c.Store.Servers().Get(ctx, tx, j.Subject.ID)
	if err != nil || srv.HostID == "" {
		return 0, "", suppressNotFound(err)
	}
	h, err := c.Store.Hosts().Get(ctx, tx, srv.HostID)
	if err != nil || h.Kind != compute.AgentHost || !strings.HasPrefix(j.WaitFor, waitedHost(h)) {
		return 0, "", suppressNotFound(err)
	}
	live, err := c.Compute.Liveness.UpIn(ctx, tx, h)
	switch {
	case problem.Is(err, problem.Unavailable):
		return silentHostPause, "", nil // this process has just begun to listen
	case err != nil || live:
		return 0, "", err
	}
	return silentHostPause, "the host is silent; " + keptText(srv.ID), nil
}

// keptText says what becomes of work that waits for a host, and how an operator ends that. compute.Outside leaves the operator's command out.
func keptText(server string) string {
	return compute.WorkIsKept + "; salvor server abort " + server + " ends that"
}

// keptWork are the jobs that wait for a host as long as the host is silent.
var keptWork = []job.Kind{compute.JobPower, compute.JobReconcile, compute.JobRescue, compute.JobUnrescue, compute.JobAttach, compute.JobDetach}

// waitedHost begins what a job waits for that has asked a host.
func waitedHost(h *compute.Host) string { return "host " + h.Name }
