// Package agent is the program in the ramdisk. It finds out which node it runs on, reports to the server and takes commands. It takes
// commands about disks, which the packages below it carry out, until the machine is turned off. It ends after the command that hands the
// machine over to its owner. Under salvor, Session then serves the commands that examine and repair, by a token of its own. The agent speaks the protocol of Ironic's own agent, so it serves under a real Ironic as well as under salvor.
// It starts no ssh and configures no network: the ramdisk's init does both after the agent has ended, with the code of package network.
package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"salvor/client"
	"salvor/problem"
	"salvor/secret"
	wire "salvor/wire/agent"
	"salvor/wire/ironic"
)

// The microversions of the Bare Metal API that the agent asks for: the highest of lookup and of heartbeat, and the lowest that it speaks.
const (
	lookupVersion    client.Version = 62
	heartbeatVersion client.Version = 68
	lowestVersion    client.Version = 31

	versionSince client.Version = 36 // agent_version
	tokenSince   client.Version = 62 // agent_token
	caSince      client.Version = 68 // agent_verify_ca
)

// Config is what the program that starts the agent decides.
type Config struct {
	// Root is the directory that holds etc and run. Empty means the machine's own
	// root, which the agent takes only in an initramfs.
	Root string
	// CommandLine is the kernel's command line.
	CommandLine string
	// Listen is where commands are taken; empty means port 9999 everywhere.
	Listen string
	// MACs are looked up instead of those of the machine's NICs, if any are given.
	MACs []string
	// Version is the agent's own, without the product's name.
	Version string
	Log     *slog.Logger
}

// Agent is one run in one ramdisk.
type Agent struct {
	config Config
	params Parameters
	log    *slog.Logger
	recent *recentLog
	sleep  func(context.Context, time.Duration) error
	jitter func() float64 // in [0,1)

	session lookupSession
	started time.Time
	// certificate is the one of this boot, by which the server knows the agent; none without TLS. port is where commands are taken.
	certificate tls.Certificate
	port        int
}

// lookupSession is what lookup found out.
type lookupSession struct {
	api     *client.Client
	served  client.Range
	legacy  bool // Ironic up to 6.2: vendor passthru
	node    string
	token   secret.Value
	timeout time.Duration
	hash    secret.Value // of the rescue password, where lookup carried it
	answer  *ironic.LookupAnswer
}

// New checks that the agent may act here at all and reads the command line.
func New(config Config) (*Agent, error) {
	if err := Allowed(config.Root); err != nil {
		return nil, err
	}
	params, err := ParseCommandLine(config.CommandLine)
	if err != nil {
		return nil, err
	}
	if len(params.APIURLs) == 0 {
		return nil, problem.Invalidf("kernel command line: ipa-api-url is missing: the server's address is not known")
	}
	if config.Listen == "" {
		config.Listen = fmt.Sprintf(":%d", wire.DefaultPort)
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	recent := &recentLog{}
	return &Agent{
		config: config, params: params, log: teeLogger(config.Log, recent), recent: recent, sleep: sleepContext, jitter: rand.Float64, started: time.Now(),
	}, nil
}

// Run looks up, heartbeats and serves until the machine is handed over (nil) or the
// context ends. A server that is away or refuses is asked again for ever.
func (a *Agent) Run(ctx context.Context) error {
	a.inspect(ctx)
	if err := a.lookup(ctx); err != nil {
		return err
	}
	defer a.forget()
	if !a.session.hash.Empty() {
		return a.handOver(ctx)
	}
	server, err := a.listen(ctx)
	if err != nil {
		return err
	}
	defer server.close()
	if err := a.heartbeats(ctx, server); err != nil {
		return err
	}
	if isClosed(server.locked) {
		server.close()
		a.log.Info("locked down: nothing is taken any more", "node", a.session.node)
		<-ctx.Done()
		return ctx.Err()
	}
	a.log.Info("rescue finalized: the agent ends", "node", a.session.node)
	return nil
}

// handOver is the rescue of a server that sends the hash with the lookup: set it,
// say so once, take no command.
func (a *Agent) handOver(ctx context.Context) error {
	a.log.Info("lookup carries the rescue password's hash: no command is awaited", "node", a.session.node)
	order := wire.FinalizeParams{RescuePassword: a.session.hash.Reveal(), Hashed: true}
	if err := a.finalize(order); err != nil {
		return fmt.Errorf("set rescue password: %w", err)
	}
	address, err := a.ownAddress()
	if err != nil {
		return err
	}
	return a.heartbeats(ctx, &agentEndpoint{url: callbackURL("https", address, wire.DefaultPort), once: true})
}

// forget drops what the process knew. Go cannot wipe a string; the process ends next.
func (a *Agent) forget() {
	a.session.token, a.session.hash, a.params.Token = secret.Value{}, secret.Value{}, secret.Value{}
	a.config.CommandLine = ""
}

func sleepContext(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
