// Package agent finishes rescues by the agent in the ramdisk, has it deploy and clean,
// and holds the interfaces that await its heartbeats. It speaks the agent's command
// doors as a client; lookup, heartbeat and the order of an operation it must not know.
// The agent is believed no more than a BMC: it runs on a machine that is not trusted.
package agent

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
	wire "salvor/wire/agent"
	"salvor/wire/answer"
	"salvor/wire/loose"
)

// Rescue is the rescue interface "agent".
type Rescue struct {
	// Locks keep it to one request at a time per agent.
	Locks *driver.AddressLocks
	// Control refuses addresses at which no agent may be called; nil: none.
	Control Control
	// Timeout bounds one request; 0: driver.CallTimeout.
	Timeout time.Duration
}

// Control is asked for the address of each connection before it is made: what a name led
// to when the heartbeat came is no word on where it leads now.
type Control = func(network, address string, c syscall.RawConn) error

var (
	_ driver.Rescue       = Rescue{}
	_ driver.RescueReader = Rescue{}
)

// NeedsRamdisk is true.
func (Rescue) NeedsRamdisk() bool { return true }

// Finalize tells the agent the hash, once, and follows the command to its end.
func (r Rescue) Finalize(ctx context.Context, n *metal.Node, a driver.Agent, f driver.Finalize) error {
	f.Extras = withDrive(f)
	c, err := r.dial(a, f)
	if err == nil {
		err = c.finalize(ctx, strings.HasPrefix(a.Version, wire.Product), f)
		c.release()
	}
	if err != nil {
		return problem.New(problem.KindOf(err), "finalize rescue of node %s: agent: %w", n.ID, err)
	}
	return nil
}

// withDrive adds to the extras what the config drive has. Without that the agent looks for a config drive on the machine's disks, so
// one that cannot be read here is no failure.
func withDrive(f driver.Finalize) *wire.Extras {
	if f.Extras == nil {
		return nil
	}
	extras := *f.Extras
	if data, err := driveNetwork(f.ConfigDrive); len(extras.NetworkData) == 0 && err == nil && data != nil {
		extras.NetworkData = data
	}
	if keys, err := driveKeys(f.ConfigDrive); err == nil {
		extras.AuthorizedKeys = slices.Clone(extras.AuthorizedKeys)
		for _, k := range keys {
			if len(extras.AuthorizedKeys) < rescue.MaxKeys && !slices.Contains(extras.AuthorizedKeys, k) && rescue.CheckKeys([]string{k}) == nil {
				extras.AuthorizedKeys = append(extras.AuthorizedKeys, k)
			}
		}
	}
	return &extras
}

// ReadRescueSystem asks salvor's own agent for the host key; another agent is asked nothing.
func (r Rescue) ReadRescueSystem(ctx context.Context, n *metal.Node, a driver.Agent, f driver.Finalize) (driver.RescueSystem, error) {
	var s driver.RescueSystem
	if extras := withDrive(f); extras != nil {
		s.NetworkData = extras.NetworkData
	}
	if !strings.HasPrefix(a.Version, wire.Product) {
		return s, nil
	}
	c, err := r.dial(a, f)
	var key wire.HostKey
	if err == nil {
		defer c.release()
		key, err = c.hostKey(ctx)
	}
	switch {
	case errors.Is(err, driver.ErrNoCommand): // a former release of our agent
		return s, nil
	case err != nil:
		return s, problem.New(problem.KindOf(err), "read the ssh host key of node %s: agent: %w", n.ID, err)
	}
	s.HostKey, s.TakesKeys = key.PublicKey, true
	if check, err := c.checkNetwork(ctx, s.NetworkData); err == nil { // a former release does not know the command, and what it would say is no condition
		s.Checked, s.Addresses = true, check.Addresses
		for _, text := range check.LeftOut[:min(len(check.LeftOut), maxLeftOut)] {
			s.LeftOut = append(s.LeftOut, c.sanitize(text[:min(len(text), maxClause)]))
		}
	}
	return s, nil
}

// Bounds of what an agent says of its network: clauses, and bytes of each.
const (
	maxLeftOut = 40
	maxClause  = 500
)

// checkNetwork asks what the rescue system will have of its network data; none: of the config drive on its disk.
func (c *conversation) checkNetwork(ctx context.Context, data json.RawMessage) (check wire.NetworkCheck, err error) {
	params, err := json.Marshal(wire.NetworkCheckParams{NetworkData: data})
	if err != nil {
		return check, err
	}
	body, err := json.Marshal(wire.Command{Name: wire.CheckNetwork, Params: params})
	if err != nil {
		return check, err
	}
	result, err := c.ask(ctx, http.MethodPost, wire.CommandsPath, body)
	if err != nil {
		return check, err
	}
	if result.Status != wire.Succeeded {
		return check, problem.Unavailablef("the agent did not check the network data")
	}
	_, err = loose.Decode(result.Outcome, &check)
	return check, err
}

func (c *conversation) hostKey(ctx context.Context) (key wire.HostKey, err error) {
	body, err := json.Marshal(wire.Command{Name: wire.ReadHostKey, Params: json.RawMessage("{}")})
	if err != nil {
		return key, err
	}
	result, err := c.ask(ctx, http.MethodPost, wire.CommandsPath, body)
	if err != nil {
		return key, err
	}
	if result.Status == wire.Succeeded && string(result.Outcome) != "null" && len(result.Outcome) > 0 {
		if _, err := loose.Decode(result.Outcome, &key); err != nil {
			return key, problem.Conflictf("its answer holds no ssh host key")
		}
	}
	return key, nil // without a key where this ramdisk has made none
}

// conversation is with one agent about one command.
type conversation struct {
	base    *url.URL
	http    *http.Client
	release func()
	token   secret.Value
	secrets []secret.Value
	share   *answer.Share // of the answer in hand
	pinned  bool          // the agent's heartbeat named the certificates that are trusted
}

func (r Rescue) dial(a driver.Agent, f driver.Finalize) (*conversation, error) {
	if f.Hash.Empty() && (f.Extras == nil || len(f.Extras.AuthorizedKeys) == 0 || !strings.HasPrefix(a.Version, wire.Product)) {
		return nil, problem.Invalidf("there is no password hash to send")
	}
	return dial(driver.HTTPConfig{Protocol: "agent", Locks: r.Locks, Control: r.Control, Timeout: r.Timeout}, a, f.Hash)
}

// dial begins a conversation with an agent; the secrets are masked should it send them back.
func dial(w driver.HTTPConfig, a driver.Agent, secrets ...secret.Value) (*conversation, error) {
	if a.Token.Empty() {
		return nil, problem.Invalidf("there is no agent token to send")
	}
	base, err := callback(a.URL)
	if err != nil {
		return nil, err
	}
	w.Base = base
	if base.Scheme == "https" {
		if w.TLS, err = trust(a.CA); err != nil {
			return nil, err
		}
	}
	c := &conversation{base: base, token: a.Token, secrets: append(secrets, a.Token), pinned: a.CA != "", share: answer.NewShare()}
	client, release := w.Client()
	c.http, c.release = client, func() { c.share.End(); release() }
	return c, nil
}

// callback checks the URL that a heartbeat gave.
func callback(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, problem.Invalidf("its callback URL is not an http or https URL with a host")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, problem.Invalidf("its callback URL must hold no user, query or fragment")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	return u, nil
}

func (c *conversation) finalize(ctx context.Context, product bool, f driver.Finalize) error {
	params := wire.FinalizeParams{RescuePassword: f.Hash.Reveal(), Hashed: !f.Hash.Empty()}
	if product {
		params.Salvor = f.Extras
	}
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	body, err := json.Marshal(wire.Command{Name: wire.FinalizeRescue, Params: raw})
	if err != nil {
		return err
	}
	result, err := c.ask(ctx, http.MethodPost, wire.CommandsPath, body)
	if err != nil {
		return err
	}
	return c.follow(ctx, result)
}

// follow reads a command until it has ended. An agent that has taken the command and
// is gone by then has done what the command ends with: it has ended.
func (c *conversation) follow(ctx context.Context, first wire.Result) error {
	last := first
	done, err := driver.PollUntil(ctx, func(ctx context.Context) (bool, error) {
		if last.Status != wire.Running {
			return true, nil
		}
		if last.ID == "" {
			return true, problem.Unavailablef("it runs the command, but gives no id to ask by")
		}
		next, err := c.ask(ctx, http.MethodGet, wire.CommandsPath+url.PathEscape(last.ID), nil)
		if errors.Is(err, driver.ErrGone) {
			last.Status = wire.Succeeded
			return true, nil
		}
		if err == nil {
			last = next
		}
		return false, err
	})
	switch {
	case err != nil:
		return err
	case !done:
		return problem.Unavailablef("the command still runs")
	case last.Status == wire.Succeeded:
		return nil
	}
	text := "it gives no reason"
	if last.Error != nil {
		text = strings.TrimSpace(last.Error.Message + " " + last.Error.Details)
	}
	return problem.Conflictf("the command ended %s: %s", c.sanitize(last.Status), problem.Quote(c.sanitize(text)))
}

// ask sends one request whose answer is a command's state; an order waits for its end.
func (c *conversation) ask(ctx context.Context, method, path string, body []byte) (wire.Result, error) {
	query := url.Values{}
	if method == http.MethodPost {
		query.Set(wire.QueryWait, "true")
	}
	return c.result(ctx, method, path, query, body)
}

func (c *conversation) result(ctx context.Context, method, path string, query url.Values, body []byte) (result wire.Result, err error) {
	text, err := c.exchange(ctx, method, path, query, body)
	if err != nil {
		return result, err
	}
	if result, err = decodeResult(text); err != nil {
		return wire.Result{}, err
	}
	if result.Status == "" || !isCommandID(result.ID) {
		return wire.Result{}, errStrange
	}
	return result, nil
}

// decodeResult reads the state of a command value by value: an agent of others may write one value in another type, such as its error as text.
func decodeResult(text []byte) (result wire.Result, err error) {
	odd, err := loose.Decode(text, &result)
	if err != nil || slices.ContainsFunc(odd, namesCommand) {
		return wire.Result{}, errStrange
	}
	if result.Error == nil {
		var words struct {
			Error string `json:"command_error"`
		}
		if _, err := loose.Decode(text, &words); err == nil && words.Error != "" {
			result.Error = &wire.CommandError{Message: words.Error}
		}
	}
	return result, nil
}

// namesCommand tells whether a value that could not be read says which command is meant, or how it goes. Without such a value a command that
// the agent has could be taken for one that it does not have, and be sent again.
func namesCommand(path string) bool {
	name := path[strings.LastIndex(path, ".")+1:]
	return slices.Contains([]string{"id", "command_name", "command_status", "commands"}, name)
}

// maxCommandID bounds the id of a command in bytes; agents use UUIDs.
const maxCommandID = 64

// isCommandID tells whether an id may be noted and asked for. Agents of others may give none.
func isCommandID(id string) bool {
	return len(id) <= maxCommandID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

var errStrange = problem.Unavailablef("its answer is not one of an agent")

// exchange sends one request. The token travels in the query, where the protocol wants it,
// so no error of net/http may come out of here as it is. The memory of the answer counts to the share of the context, or else of the
// conversation, which holds the memory until its next request or its end.
func (c *conversation) exchange(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error) {
	query.Set(wire.QueryToken, c.token.Reveal())
	if answer.Of(ctx) == nil {
		c.share.End()
		ctx = answer.With(ctx, c.share)
	}
	target := c.base.String() + path + "?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, problem.Invalidf("its callback URL cannot be used")
	}
	req.Header.Set("Accept", "application/json")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, problem.Unavailablef("%w", driver.ErrGone)
	}
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	if c.pinned && (errors.As(err, &unknown) || errors.As(err, &invalid) && invalid.Reason == x509.Expired) {
		// Each start of a ramdisk makes a certificate of its own, by its own clock, and serves with it a moment before its first heartbeat.
		return nil, problem.Unavailablef("%v; it may be a new start of the ramdisk that has not been heard yet", driver.Trouble(err, c.secrets...))
	}
	if err != nil {
		return nil, driver.Trouble(err, c.secrets...)
	}
	text := driver.Body(resp)
	if resp.StatusCode != http.StatusOK {
		return nil, c.refusal(method, resp.StatusCode, text)
	}
	return text, nil
}

// noSuchCommand is in what ironic-python-agent (400) and Metal3's fake of it (500) answer to a command that they do not know.
const noSuchCommand = "Unknown command"

// refusal gives an answer that is no result its kind.
func (c *conversation) refusal(method string, code int, body []byte) error {
	var fault wire.Fault
	text := string(body)
	if _, err := loose.Decode(body, &fault); err == nil && fault.String != "" {
		text = fault.String
	}
	unknown := strings.Contains(text, noSuchCommand)
	text = problem.Quote(c.sanitize(text))
	switch {
	case unknown:
		return problem.Conflictf("%w: %d: %s", driver.ErrNoCommand, code, text)
	case code == http.StatusConflict, code == http.StatusTooManyRequests:
		return problem.Unavailablef("it is busy: %d: %s", code, text)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return problem.Conflictf("it does not accept our token: %d: %s", code, text)
	case code == http.StatusNotFound && method == http.MethodGet:
		return problem.NotFoundf("it knows nothing of that: %d: %s", code, text)
	case code >= 400 && code < 500:
		return problem.Conflictf("it refuses the command: %d: %s", code, text)
	}
	if code >= http.StatusInternalServerError {
		return problem.Unavailablef("%w: %d: %s", driver.ErrFaulty, code, text)
	}
	return problem.Unavailablef("%d: %s", code, text)
}

func (c *conversation) sanitize(text string) string { return driver.Sanitize(text, c.secrets...) }
