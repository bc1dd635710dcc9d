package native

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"salvor/api"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// probeTimeout bounds the wait for a BMC that is asked many things; it is less than any request may take.
const probeTimeout = 55 * time.Second

// probeRoutes have a node's BMC looked at. Nothing of the machine changes.
func (s *server) probeRoutes() []api.Route {
	return []api.Route{
		{Method: http.MethodGet, Path: "/nodes/{ident}/probe", Do: s.probeNode},
		{Method: http.MethodPost, Path: "/nodes/{ident}/recording", Do: s.recordNode},
		{Method: http.MethodGet, Path: "/nodes/{ident}/bmc-log", Do: s.readBMCLog},
		{Method: http.MethodGet, Path: "/nodes/{ident}/bmc-health", Do: s.readBMCHealth},
	}
}

func (s *server) probeNode(c *api.Call) error {
	return s.askBMC(c, metal.Question{Class: job.Background, Kind: metal.ProbeKind, Part: "management", Args: struct{}{}})
}

// recordNode reads some resources of a BMC. It is a POST for its arguments only.
func (s *server) recordNode(c *api.Call) error {
	var args metal.RecordArgs
	if err := c.ReadExactly(&args); err != nil {
		return err
	}
	if len(args.Paths) == 0 || len(args.Paths) > metal.MaxRecorded {
		return problem.Invalidf("paths: want 1 to %d paths of resources, not %d", metal.MaxRecorded, len(args.Paths))
	}
	if len(args.Key) < 16 || len(args.Key) > 64 {
		return problem.Invalidf("key: want 16 to 64 random characters, the same for all requests of a recording")
	}
	return s.askBMC(c, metal.Question{Class: job.Background, Kind: metal.RecordingKind, Part: "management", Args: args})
}

// askBMC answers with what the BMC of the node in the path answers.
func (s *server) askBMC(c *api.Call, q metal.Question) error {
	answer, err := s.answerOfBMC(c, q)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, answer)
}

// answerOfBMC asks the BMC of the node in the path.
func (s *server) answerOfBMC(c *api.Call, q metal.Question) (json.RawMessage, error) {
	n, err := s.nodeOf(c, c.Arg("ident"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), probeTimeout)
	defer cancel()
	id, err := s.Nodes.Ask(ctx, n.ID, q, c.Asker())
	if err != nil {
		return nil, err
	}
	answer, err := s.Nodes.Answer(ctx, id)
	return json.RawMessage(answer), err
}
