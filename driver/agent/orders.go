package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	wire "salvor/wire/agent"
	"salvor/wire/loose"
)

// Orders speak the command doors of agents that deploy, clean and serve.
type Orders struct {
	// Locks keep it to one request at a time per agent.
	Locks *driver.AddressLocks
	// Control refuses addresses at which no agent may be called; nil: none.
	Control Control
	// Timeout bounds one request; 0: driver.CallTimeout.
	Timeout time.Duration
}

var _ driver.Orders = Orders{}

// maxOrders bounds an answer in bytes without the parameters that it repeats, config drives among them. The largest is the plan of a repair.
const maxOrders = 12 << 20

// maxReceived bounds an answer in bytes with them. What lies behind is cut off, so that the answer is no JSON.
const maxReceived = 24 << 20

// maxDetails has room for two checksums and the name of an image.
const maxDetails = 700

// Give hands a command over without waiting for its end.
func (o Orders) Give(ctx context.Context, n *metal.Node, a driver.Agent, name string, params any) (wire.Result, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return wire.Result{}, err
	}
	body, err := json.Marshal(wire.Command{Name: name, Params: raw})
	if err != nil {
		return wire.Result{}, err
	}
	var result wire.Result
	err = o.with(n, a, name, single, func(c *conversation) (err error) {
		result, err = c.result(ctx, http.MethodPost, wire.CommandsPath, url.Values{wire.QueryWait: {"false"}}, body)
		clean(c, result.Error)
		return err
	})
	return result, err
}

// List gives the commands that the agent has taken, without their outcomes.
func (o Orders) List(ctx context.Context, n *metal.Node, a driver.Agent) ([]wire.Result, error) {
	var list []wire.Result
	err := o.with(n, a, "list of commands", listed, func(c *conversation) error {
		answer, err := c.exchange(ctx, http.MethodGet, wire.CommandsPath, url.Values{}, nil)
		if err != nil {
			return err
		}
		var texts struct {
			Commands []json.RawMessage `json:"commands"`
		}
		if odd, err := loose.Decode(answer, &texts); err != nil || len(odd) > 0 {
			return errStrange
		}
		for _, text := range texts.Commands {
			result, err := decodeResult(text)
			if err != nil {
				return err
			}
			clean(c, result.Error)
			result.Outcome = nil
			list = append(list, result)
		}
		return nil
	})
	return list, err
}

// Command gives one command of the agent by its id.
func (o Orders) Command(ctx context.Context, n *metal.Node, a driver.Agent, id string) (wire.Result, error) {
	var result wire.Result
	err := o.with(n, a, "command "+id, single, func(c *conversation) (err error) {
		result, err = c.result(ctx, http.MethodGet, wire.CommandsPath+url.PathEscape(id), url.Values{}, nil)
		clean(c, result.Error)
		if err == nil && result.ID != id {
			err = errStrange
		}
		return err
	})
	return result, err
}

// single and listed leave out of an answer what no caller reads.
func single(from io.Reader) io.Reader {
	return withoutMembers(io.LimitReader(from, maxReceived), commandDepth, paramsMember)
}

func listed(from io.Reader) io.Reader {
	return withoutMembers(io.LimitReader(from, maxReceived), listDepth, paramsMember, outcomeMember)
}

// with holds a conversation; its errors name the order and the node.
func (o Orders) with(n *metal.Node, a driver.Agent, what string, filter func(io.Reader) io.Reader, talk func(*conversation) error) error {
	secrets := imageSecrets(n)
	if n.Plan != nil {
		secrets = append(secrets, secret.New(n.Plan.Path)) // an agent tells where it fetches from
	}
	c, err := dial(driver.HTTPConfig{Protocol: "agent", Locks: o.Locks, Filter: filter, Limit: maxOrders, Control: o.Control, Timeout: o.Timeout}, a, secrets...)
	if err == nil {
		err = talk(c)
		c.release()
	}
	if err != nil {
		return problem.New(problem.KindOf(err), "%s of node %s: agent: %w", what, n.ID, err)
	}
	return nil
}

// clean makes what an agent says of a failure fit to be shown.
func clean(c *conversation, e *wire.CommandError) {
	if e != nil {
		e.Type, e.Message, e.Details = c.sanitize(withoutKeys(e.Type)), c.sanitize(withoutKeys(e.Message)), driver.SanitizeUpTo(maxDetails, withoutKeys(e.Details), c.secrets...)
	}
}

// What URLs carry beside a place is what opens it: a signature, or a user's password. An agent may have been led on to
// URLs that nobody here knows.
var (
	urlQuery = regexp.MustCompile(`\?[^\s"'<>?]*=[^\s"'<>)]*`)
	urlUser  = regexp.MustCompile(`://[^\s/"'<>]*@`)
)

func withoutKeys(text string) string {
	return urlUser.ReplaceAllLiteralString(urlQuery.ReplaceAllLiteralString(text, "?"+secret.Mask), "://"+secret.Mask+"@")
}

// shortKey is how long a part of a URL must be to be hidden wherever it stands: less is hidden in URLs only.
const shortKey = 6

// imageSecrets are the parts of the node's images that open them.
func imageSecrets(n *metal.Node) []secret.Value {
	var secrets []string
	for _, key := range []string{"image_source", "kernel", "ramdisk", "boot_iso", "configdrive", "image_checksum"} {
		u, err := url.Parse(metal.Text(n.InstanceInfo[key]))
		if err != nil || u.Host == "" {
			continue
		}
		secrets = append(secrets, u.RawQuery)
		for _, values := range u.Query() {
			secrets = append(secrets, values...)
		}
		if password, ok := u.User.Password(); ok {
			secrets = append(secrets, u.User.String(), password)
		}
	}
	header := metal.Text(n.InstanceInfo["image_request_authorization"])
	secrets = append(secrets, header)
	if plain, err := base64.StdEncoding.DecodeString(header); err == nil {
		_, credential, _ := strings.Cut(string(plain), " ")
		secrets = append(secrets, string(plain), credential)
	}
	secrets = slices.DeleteFunc(secrets, func(w string) bool { return len(w) < shortKey })
	// The longest first: a part that is hidden before would leave the rest of the whole.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	out := make([]secret.Value, 0, len(secrets)+1)
	for _, w := range secrets {
		out = append(out, secret.New(w))
	}
	return out
}
