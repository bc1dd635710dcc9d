package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"salvor/agent/step"
	"salvor/problem"
	wire "salvor/wire/agent"
)

// maxOrder has room for a config drive, which travels inside of the command; longestWait is less
// than what the server of the endpoints gives an answer.
const (
	maxOrder    = 96 << 20
	longestWait = writeTime - 10*time.Second
	lookAgain   = 50 * time.Millisecond
)

// order runs a command of the table. What a background one gives is seen by asking for
// its result; the server is told by a heartbeat that there is one.
func (c *commandServer) order(w http.ResponseWriter, r *http.Request, name string, params map[string]json.RawMessage) {
	_, verb, _ := strings.Cut(name, ".")
	order := c.orders[name]
	result := wire.Result{ID: newID(), Name: verb, Params: noParams, Status: wire.Running}
	for param := range params {
		if order.Params != nil && !slices.Contains(order.Params, param) {
			result.Status, result.Error = wire.Failed, unexpectedParamError(verb, param)
		}
	}
	c.mu.Lock()
	c.storeResult(result)
	c.mu.Unlock()
	switch {
	case result.Error != nil:
		c.end(result)
	case order.Background:
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.end(runOrder(c.ctx, order, result, params))
			c.kick()
		}()
		if strings.EqualFold(r.URL.Query().Get(wire.QueryWait), "true") {
			awaitCommand(r, ended)
		}
	case order.Unlisted:
		answer := runOrder(r.Context(), order, result, params)
		listed := answer
		listed.Outcome = nil
		c.end(listed)
		writeJSON(w, http.StatusOK, answer)
		return
	default:
		c.end(runOrder(r.Context(), order, result, params))
	}
	found, _ := c.find(result.ID)
	writeJSON(w, http.StatusOK, found)
}

// runOrder runs an order to its end. A panic over a hostile image ends the order and not the agent.
func runOrder(ctx context.Context, order step.Order, result wire.Result, params map[string]json.RawMessage) (ended wire.Result) {
	ended = result
	defer func() {
		if r := recover(); r != nil {
			ended.Status, ended.Error = wire.Failed, commandError(fmt.Errorf("the agent failed: %v", r))
		}
	}()
	outcome, err := order.Run(ctx, params)
	if err == nil && outcome != nil {
		ended.Outcome, err = json.Marshal(outcome)
	}
	ended.Status = wire.Succeeded
	if err != nil {
		ended.Status, ended.Error, ended.Outcome = wire.Failed, commandError(err), nil
		var other *step.Mismatch
		if errors.As(err, &other) {
			ended.Status = wire.CleanVersionMismatch
		}
	}
	return ended
}

// end stores what became of a command and lets the next one in. The oldest results lose their outcomes to it if all together are too large.
func (c *commandServer) end(result wire.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = ""
	size := len(result.Outcome)
	for i := len(c.results) - 1; i >= 0; i-- {
		if c.results[i].ID == result.ID {
			c.results[i] = result
		} else if size += len(c.results[i].Outcome); size > maxOutcomes {
			c.results[i].Outcome = nil
		}
	}
}

func (c *commandServer) find(id string) (wire.Result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, result := range c.results {
		if result.ID == strings.ToLower(id) {
			return result, true
		}
	}
	return wire.Result{}, false
}

// ended waits for a command by looking at it: whoever asks with wait is rare.
func (c *commandServer) ended(r *http.Request, result wire.Result) wire.Result {
	stop := time.NewTimer(longestWait)
	defer stop.Stop()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for result.Status == wire.Running {
		select {
		case <-r.Context().Done():
			return result
		case <-stop.C:
			return result
		case <-tick.C:
			result, _ = c.find(result.ID)
		}
	}
	return result
}

// awaitCommand returns when the command has ended, the asker has gone, or it takes too long
// for one answer; the asker reads then that it still runs.
func awaitCommand(r *http.Request, ended <-chan struct{}) {
	timer := time.NewTimer(longestWait)
	defer timer.Stop()
	select {
	case <-ended:
	case <-r.Context().Done():
	case <-timer.C:
	}
}

// messages are the real agent's, by the type of an error; codes that are not 500.
var messages = map[string]struct {
	text string
	code int
}{
	wire.ErrParams: {"Invalid command parameters", http.StatusBadRequest}, wire.ErrCommand: {"Command execution failed", 0},
	wire.ErrDownload: {"Error downloading image", 0}, wire.ErrChecksum: {"Error verifying image checksum", 0},
	wire.ErrWrite: {"Error writing image to device", 0}, wire.ErrImage: {"The provided image is not valid for use", 0},
	wire.ErrNoDevice:   {"Error finding the disk or partition device to deploy the image onto", http.StatusNotFound},
	wire.ErrDeployment: {"Deploy step failed", 0}, wire.ErrCleaning: {"Clean step failed", 0}, wire.ErrServicing: {"Service step failed", 0},
	wire.ErrVersion: {"Hardware managers version mismatch, reload agent with correct version", http.StatusConflict},
	wire.ErrErase:   {"Error erasing block device", 0}, wire.ErrProtected: {"Protected device located, cleaning aborted.", 0},
	wire.ErrNoSuchStep: {"No HardwareManager found to handle method", 0},
}

func commandError(err error) *wire.CommandError {
	kind := wire.ErrCommand
	var typed interface{ CommandType() string }
	switch {
	case errors.As(err, &typed):
		kind = typed.CommandType()
	case problem.Is(err, problem.Invalid):
		kind = wire.ErrParams
	}
	m := messages[kind]
	if m.code == 0 {
		m.code = http.StatusInternalServerError
	}
	return &wire.CommandError{Type: kind, Code: m.code, Message: m.text, Details: err.Error()}
}

// unexpectedParamError is how a server learns that an agent does not know a parameter.
func unexpectedParamError(verb, param string) *wire.CommandError {
	text := fmt.Sprintf("%s() got an unexpected keyword argument %.60q", verb, param)
	return &wire.CommandError{Type: "TypeError", Code: http.StatusInternalServerError, Message: "Command execution failed", Details: text}
}
