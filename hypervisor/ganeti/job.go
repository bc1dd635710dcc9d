package ganeti

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"salvor/problem"
)

// jobID is a number; old clusters write it as a string.
type jobID int64

func (id *jobID) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64)
	if err != nil {
		return problem.Unavailablef("%s is no job number", sanitizeForeignText(string(b)))
	}
	*id = jobID(n)
	return nil
}

func (id jobID) String() string { return strconv.FormatInt(int64(id), 10) }

// jobDocument is a job as RAPI tells it.
type jobDocument struct {
	ID      jobID             `json:"id"`
	Ops     []opDocument      `json:"ops"`
	Status  string            `json:"status"`
	Summary []string          `json:"summary"`
	Result  []json.RawMessage `json:"opresult"`
	States  []string          `json:"opstatus"`
}

type opDocument struct {
	Kind     string `json:"OP_ID"`
	Instance string `json:"instance_name"`
}

// gone: the archive has it. Real clusters answer 200 with nothing in it, older ones 404.
func (d *jobDocument) gone() bool { return d.Status == "" }

func (d *jobDocument) ended() bool {
	return d.Status == "success" || d.Status == "error" || d.Status == "canceled"
}

// failure is why an ended job did not do what it was for, in Ganeti's words; nil if it did.
func (d *jobDocument) failure() error {
	switch d.Status {
	case "canceled":
		return problem.Conflictf("Ganeti's job %d (%s) was canceled", d.ID, d.summaryText())
	case "error":
		for i, raw := range d.Result {
			if i < len(d.States) && d.States[i] != "error" {
				continue
			}
			if kind, summary, ok := opFailure(raw); ok {
				return problem.New(kind, "Ganeti's job %d (%s) failed: %s", d.ID, d.summaryText(), sanitizeForeignText(summary))
			}
		}
		return problem.Conflictf("Ganeti's job %d (%s) failed and does not say why", d.ID, d.summaryText())
	}
	return nil
}

func (d *jobDocument) summaryText() string {
	if len(d.Summary) == 0 {
		return "without a name"
	}
	return sanitizeForeignText(strings.Join(d.Summary, ", "))
}

// ecodes are the kinds of Ganeti's error codes; all others are Conflict: the cluster was asked well and could not.
var ecodes = map[string]problem.Kind{
	"resolver_error":              problem.Invalid,
	"wrong_input":                 problem.Invalid,
	"unknown_entity":              problem.NotFound,
	"temp_insufficient_resources": problem.Unavailable,
}

// opFailure reads [ERROR, [TEXT, CODE]]. Errors without a code are told apart by their names.
func opFailure(raw json.RawMessage) (problem.Kind, string, bool) {
	var pair []json.RawMessage
	var name string
	if json.Unmarshal(raw, &pair) != nil || len(pair) == 0 || json.Unmarshal(pair[0], &name) != nil {
		return 0, "", false
	}
	var args []any
	if len(pair) > 1 {
		_ = json.Unmarshal(pair[1], &args)
	}
	summary := name
	if len(args) > 0 {
		if text, ok := args[0].(string); ok && text != "" {
			summary = text
		}
	}
	kind := problem.Conflict
	if name == "HypervisorError" { // the syntax of a parameter
		kind = problem.Invalid
	}
	if len(args) > 1 {
		if code, ok := args[1].(string); ok {
			if k, known := ecodes[code]; known {
				kind = k
			}
		}
	}
	return kind, summary, true
}

// job reads one; the document of a job that is gone tells so.
func (c *Client) job(ctx context.Context, id jobID) (*jobDocument, error) {
	d := jobDocument{}
	err := c.get(ctx, maxOne, &d, nil, "jobs", id.String())
	if problem.Is(err, problem.NotFound) {
		return &jobDocument{ID: id}, nil
	}
	d.ID = id
	return &d, err
}

// silence is for how long RAPI may not answer while a job is waited for: the master daemon may be restarted.
const silence = 20 * time.Second

// await waits until a job has ended and tells how, for as long as the context lets it: the disks of an instance may take half an
// hour. A job that is gone tells nothing: who calls reads the instance again.
func (c *Client) await(ctx context.Context, id jobID) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.conf.JobTimeout)
		defer cancel()
	}
	lastAnswer, pause := time.Now(), c.first
	for {
		d, err := c.job(ctx, id)
		switch {
		case err == nil && (d.gone() || d.ended()):
			return d.failure()
		case err == nil:
			lastAnswer = time.Now()
		case ctx.Err() != nil:
		case !problem.Is(err, problem.Unavailable) || time.Since(lastAnswer) > min(silence, c.conf.JobTimeout):
			return problem.New(problem.KindOf(err), "wait for Ganeti's job %d: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return problem.Unavailablef("wait for Ganeti's job %d: it has not ended: %w", id, ctx.Err())
		case <-time.After(pause):
		}
		pause = min(pause*3/2, c.longest)
	}
}

// do submits work and waits for its end.
func (c *Client) do(ctx context.Context, method string, body any, query url.Values, parts ...string) error {
	id, err := c.submit(ctx, method, body, query, parts...)
	if err != nil {
		return err
	}
	return c.await(ctx, id)
}
