package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"salvor/client"
	"salvor/problem"
	"salvor/secret"
	"salvor/wire/ironic"
)

const (
	requestTimeout = 30 * time.Second
	maxAnswer      = 4 << 20
	firstRetry     = time.Second
	lastRetry      = 20 * time.Second
	// defaultHeartbeat is Ironic's own, for a server that names none.
	defaultHeartbeat = 300 * time.Second
)

const (
	alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	maxNode      = 255
)

// errTokenTaken: the server has told this boot's token before.
var errTokenTaken = errors.New("the server has given this boot's token to someone before and hides it now: restart the rescue if this goes on")

// lookup asks all servers in turn until one knows the node and the token.
func (a *Agent) lookup(ctx context.Context) error {
	apis, err := a.clients()
	if err != nil {
		return err
	}
	wait := firstRetry
	for try := 1; ; try++ {
		api := apis[(try-1)%len(apis)]
		found, err := a.ask(ctx, api)
		if err == nil {
			a.session = *found
			a.log.Info("looked up", "node", found.node, "server", api.Endpoint(), "old route", found.legacy)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		delay := a.spread(wait)
		if client.StatusOf(err) == http.StatusConflict {
			delay = firstRetry // busy for a moment, as the server said
		}
		a.log.Warn("lookup failed", "server", api.Endpoint(), "try", try, "error", err, "again in", delay.Round(100*time.Millisecond))
		if err := a.sleep(ctx, delay); err != nil {
			return err
		}
		wait = min(wait*8/5, lastRetry)
	}
}

// spread varies a delay by a quarter, so that a rack that boots at once does not
// come back at once.
func (a *Agent) spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.75 + a.jitter()/2))
}

func (a *Agent) clients() ([]*client.Client, error) {
	transport, err := a.transport()
	if err != nil {
		return nil, err
	}
	var apis []*client.Client
	for _, endpoint := range a.params.APIURLs {
		api, err := client.New(client.Config{
			Endpoint: endpoint, Timeout: requestTimeout, MaxBody: maxAnswer,
			Transport: transport, UserAgent: a.version(),
		})
		if err != nil {
			return nil, err
		}
		apis = append(apis, api)
	}
	return apis, nil
}

func (a *Agent) transport() (http.RoundTripper, error) {
	trust, err := a.trust()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.TLSClientConfig = trust
	return transport, nil
}

// trust says whose certificates are taken, of the server and of those that serve images.
func (a *Agent) trust() (*tls.Config, error) {
	trust := &tls.Config{InsecureSkipVerify: a.params.Insecure}
	if a.params.CAFile == "" {
		return trust, nil
	}
	pem, err := os.ReadFile(filepath.Join(a.config.Root, filepath.Clean("/"+a.params.CAFile)))
	if err != nil {
		return nil, problem.Invalidf("ipa-ca-file: %w", err)
	}
	trust.RootCAs = x509.NewCertPool()
	if !trust.RootCAs.AppendCertsFromPEM(pem) {
		return nil, problem.Invalidf("ipa-ca-file %s: no certificate in it", a.params.CAFile)
	}
	return trust, nil
}

// ask is one lookup at one server, by the new endpoint, else by the old one.
func (a *Agent) ask(ctx context.Context, api *client.Client) (*lookupSession, error) {
	macs, err := a.macs()
	if err != nil {
		return nil, err
	}
	served, err := api.Versions(ctx)
	if err != nil {
		return nil, err
	}
	found := &lookupSession{api: api, served: served}
	answer, err := api.LookupBoot(ctx, pickMicroversion(served, lookupVersion), macs, a.params.Token)
	if err != nil && isMissingEndpoint(err) {
		var old *ironic.LookupAnswer
		if old, found.legacy = a.askLegacyLookup(ctx, api, macs); found.legacy {
			answer, err = old, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return found, a.take(found, answer)
}

func (a *Agent) askLegacyLookup(ctx context.Context, api *client.Client, macs []string) (*ironic.LookupAnswer, bool) {
	body := ironic.PassthruLookup{Version: "2"}
	for _, mac := range macs {
		body.Inventory.Interfaces = append(body.Inventory.Interfaces, ironic.PassthruInterface{MACAddress: mac})
	}
	answer, err := api.PassthruLookup(ctx, a.params.Driver, body)
	if err != nil {
		// The new endpoint's refusal is the one worth telling: this one mostly says
		// only that a server of our days has no old endpoint.
		a.log.Debug("old lookup route", "error", err)
		return nil, false
	}
	return answer, true
}

// take fills the session from a lookup answer.
func (a *Agent) take(found *lookupSession, answer *ironic.LookupAnswer) error {
	if !isNode(answer.Node.UUID) {
		return problem.Unavailablef("lookup: the server's answer names no node")
	}
	found.node, found.answer = answer.Node.UUID, answer
	found.timeout = time.Duration(answer.Config.HeartbeatTimeout) * time.Second
	if answer.Config.HeartbeatTimeout <= 0 || answer.Config.HeartbeatTimeout > 24*3600 {
		found.timeout = defaultHeartbeat
	}
	found.token = a.params.Token
	token := ""
	if answer.Config.AgentToken != nil {
		token = *answer.Config.AgentToken
	}
	switch {
	case token == ironic.Hidden && found.token.Empty():
		return errTokenTaken
	case token != "" && token != ironic.Hidden:
		found.token = secret.New(token)
	case found.token.Empty() && answer.Config.AgentTokenRequired:
		return problem.Unavailablef("lookup: the server wants a token and gave none")
	}
	if hash, _ := answer.Node.InstanceInfo["rescue_password"].(string); isCryptHash(hash) {
		found.hash = secret.New(hash)
	}
	return nil
}

// isNode keeps a server from sending heartbeats to another path.
func isNode(name string) bool {
	return name != "" && len(name) <= maxNode && strings.Trim(name, alphanumeric+"_.~-") == "" && strings.Trim(name, ".") != ""
}

// pickMicroversion is the microversion for a call: the highest that both sides know, and 1.31
// where the server does not say or is older, so that its 406 shows the old endpoint.
func pickMicroversion(served client.Range, ours client.Version) client.Version {
	if served.Max == 0 {
		return lowestVersion
	}
	return max(served.Pick(ours), lowestVersion)
}

// isMissingEndpoint tells the answers by which a server of before 1.22 says that it has no such
// endpoint.
func isMissingEndpoint(err error) bool {
	switch client.StatusOf(err) {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusNotAcceptable:
		return true
	}
	return false
}
