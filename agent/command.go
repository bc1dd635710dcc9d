package agent

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"salvor/problem"
	"salvor/secret"
	wire "salvor/wire/agent"
)

// run takes one command. The token comes first: nobody without it makes the agent read.
func (c *commandServer) run(w http.ResponseWriter, r *http.Request) {
	if !c.knows(r.URL.Query().Get(wire.QueryToken)) {
		writeFault(w, http.StatusUnauthorized, "401 Unauthorized: Token invalid.")
		return
	}
	most := int64(maxCommand)
	if len(c.orders) > 0 {
		most = maxOrder
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		writeFault(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("413 Request Entity Too Large: more than %d bytes", most))
		return
	}
	if err != nil {
		writeFault(w, http.StatusBadRequest, "400 Bad Request: the body was cut off")
		return
	}
	command, params, err := decodeCommand(body)
	if err != nil {
		writeFault(w, http.StatusBadRequest, "400 Bad Request: "+err.Error())
		return
	}
	if status, text := c.unknown(command.Name); status != 0 {
		writeFault(w, status, text)
		return
	}
	if busy, ok := c.begin(command.Name); !ok {
		writeFault(w, http.StatusConflict, "Agent is busy: executing command "+busy)
		return
	}
	if command.Name == wire.FinalizeRescue {
		c.execute(w, params)
		return
	}
	c.order(w, r, command.Name, params)
}

// begin claims the agent for one command; false while another runs, with its name, or
// after the last.
func (c *commandServer) begin(name string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finalized {
		return wire.FinalizeRescue, false
	}
	if c.running != "" {
		return c.running, false
	}
	c.running = name
	return "", true
}

func (c *commandServer) execute(w http.ResponseWriter, params map[string]json.RawMessage) {
	order, fault := decodeFinalize(params)
	if fault == nil {
		if err := c.finalize(order); err != nil {
			fault = commandError(err)
		}
	}
	result := wire.Result{ID: newID(), Name: "finalize_rescue", Params: listedParams(params), Status: wire.Succeeded, Error: fault}
	if fault != nil {
		result.Status = wire.Failed
	}
	c.mu.Lock()
	c.running = ""
	c.finalized = fault == nil
	c.storeResult(result)
	c.mu.Unlock()
	if fault == nil {
		w.Header().Set("Connection", "close")
		defer close(c.done) // the endpoints close once this answer has gone out
	}
	writeJSON(w, http.StatusOK, result)
}

// storeResult remembers a result; the lock is held.
func (c *commandServer) storeResult(result wire.Result) {
	c.results = append(c.results, result)
	if len(c.results) > c.most {
		c.results = slices.Clone(c.results[1:])
	}
}

// decodeCommand reads a command's envelope; the wanted form of params is an object.
func decodeCommand(body []byte) (wire.Command, map[string]json.RawMessage, error) {
	var command wire.Command
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(&command); err != nil {
		return command, nil, errors.New("the body is not a JSON object with name and params")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return command, nil, errors.New("something follows the JSON object")
	}
	var params map[string]json.RawMessage
	if command.Name == "" || json.Unmarshal(command.Params, &params) != nil || params == nil {
		return command, nil, errors.New("missing or invalid name or params")
	}
	return command, params, nil
}

// unknown answers as the real agent: 400 for a command that an extension lacks, 404
// for an extension that this ramdisk lacks.
func (c *commandServer) unknown(name string) (int, string) {
	extension, verb, ok := strings.Cut(name, ".")
	if !ok {
		return http.StatusBadRequest, "Invalid command: Command name must be of the form <extension>.<name>"
	}
	if _, ok := c.orders[name]; ok || name == wire.FinalizeRescue && c.finalize != nil {
		return 0, ""
	}
	known := extension == "rescue" && c.finalize != nil
	for other := range c.orders {
		known = known || strings.HasPrefix(other, extension+".")
	}
	if !known {
		return http.StatusNotFound, fmt.Sprintf("Not found: Extension with id %.40q not found.", extension)
	}
	return http.StatusBadRequest, fmt.Sprintf("Invalid command: Unknown command: %.40q", verb)
}

// decodeFinalize reads exactly the parameters that are known. A server tells by a
// TypeError that an agent does not know a parameter, and sends fewer.
func decodeFinalize(params map[string]json.RawMessage) (wire.FinalizeParams, *wire.CommandError) {
	var order wire.FinalizeParams
	known := map[string]any{"rescue_password": &order.RescuePassword, "hashed": &order.Hashed, "salvor": &order.Salvor}
	for name, value := range params {
		into, ok := known[name]
		if !ok {
			return order, unexpectedParamError("finalize_rescue", name)
		}
		if json.Unmarshal(value, into) != nil {
			return order, commandError(problem.Invalidf("parameter %s has the wrong type", name))
		}
	}
	return order, nil
}

// listedParams are the parameters as the results list them: the real agent shows the hash.
func listedParams(params map[string]json.RawMessage) json.RawMessage {
	out := make(map[string]any, len(params))
	for name, value := range params {
		switch name {
		case "hashed":
			out[name] = value
		case "rescue_password":
			out[name] = secret.Mask
		}
	}
	text, err := json.Marshal(out)
	if err != nil { // a value that is no JSON
		return noParams
	}
	return text
}

// noParams are the parameters of a command whose parameters are not listed.
var noParams = json.RawMessage("{}")

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
