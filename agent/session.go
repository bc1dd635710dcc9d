package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"salvor/agent/examine"
	"salvor/agent/network"
	"salvor/agent/step"
	"salvor/problem"
	wire "salvor/wire/agent"
)

const (
	// sessionFile holds a sessionAccess, mode 0600. The ramdisk's init starts Session where it is.
	sessionFile = "run/salvor/session.json"
	maxSession  = 64 << 10
	// Bounds of a session token in bytes.
	leastSessionToken, maxSessionToken = 32, 256
	// sessionResults is how many commands a session's list keeps: a result has up to 1 MiB.
	sessionResults = 16
)

// sessionAccess is what the process that ended left to the one that serves during the rescue.
type sessionAccess struct {
	Token wire.SessionToken `json:"token"`
	// Certificate and its key, PEM: the server has known the certificate since the first heartbeat.
	Certificate string `json:"certificate"`
	PrivateKey  string `json:"private_key"`
	Port        int    `json:"port"`
}

// writeSession leaves what Session needs. Without a token nothing is left; nor without TLS, since the token would pass the tenant's network in clear.
func (a *Agent) writeSession(extras *wire.Extras) error {
	removeSession(a.config.Root)
	if extras == nil || extras.SessionToken.Empty() || len(a.certificate.Certificate) == 0 {
		return nil
	}
	if n := len(extras.SessionToken.Reveal()); n < leastSessionToken || n > maxSessionToken {
		return problem.Invalidf("session_token has %d bytes; want %d to %d", n, leastSessionToken, maxSessionToken)
	}
	key, err := x509.MarshalPKCS8PrivateKey(a.certificate.PrivateKey)
	if err != nil {
		return fmt.Errorf("keep the certificate for the rescue: %w", err)
	}
	text, err := json.Marshal(sessionAccess{
		Token: extras.SessionToken, Port: a.port,
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Certificate[0]})),
		PrivateKey:  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
	})
	if err != nil {
		return fmt.Errorf("keep the certificate for the rescue: %w", err)
	}
	path := sessionPath(a.config.Root)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("keep the certificate for the rescue: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("keep the certificate for the rescue: %w", err)
	}
	return nil
}

func sessionPath(root string) string { return filepath.Join("/", root, sessionFile) }

func removeSession(root string) { _ = os.Remove(sessionPath(root)) }

// Session is the agent while its machine is in rescue. It takes the commands of wire.InSession from whoever has the session token, and looks up
// and heartbeats nowhere. A user of the rescue system can read the token as root; it opens nothing but these commands on that machine.
type Session struct {
	// Root is that of Config.
	Root string
	// Listen is where commands are taken, HOST:PORT; empty: at the port of the first process, on the addresses on which ssh listens.
	Listen []string
	// Version is the agent's own, without the product's name.
	Version string
	Log     *slog.Logger

	opened func(net.Addr) // is told each address at which commands are taken; nil: nobody is
}

// takeDownOverlays gives the disks back that an examination left read-only when its process was killed.
func (s Session) takeDownOverlays(ctx context.Context) {
	if s.Root != "" {
		return
	}
	release, err := examine.TakeDown(ctx, s.Log)
	if err == nil {
		err = release()
	}
	if err != nil && !problem.Is(err, problem.Conflict) { // with a conflict, somebody examines the disks by hand
		s.Log.Warn("what an earlier examination left cannot be taken down", "error", err)
	}
}

// Run serves until ctx ends; then it is ctx's error. It is nil at once where no server gave a session token.
func (s Session) Run(ctx context.Context) error {
	if err := Allowed(s.Root); err != nil {
		return err
	}
	access, certificate, err := readSession(s.Root)
	if errors.Is(err, fs.ErrNotExist) {
		s.Log.Info("no server gave a token for the time of the rescue: no command is taken")
		return nil
	}
	if err != nil {
		return fmt.Errorf("read /%s: %w", sessionFile, err)
	}
	s.takeDownOverlays(ctx)
	listeners, err := s.listen(access.Port)
	if err != nil {
		return err
	}
	a := &Agent{config: Config{Root: s.Root, Version: s.Version, Log: s.Log}, log: s.Log, recent: &recentLog{}, sleep: sleepContext, started: time.Now()}
	orders, err := a.orders(&agentEndpoint{})
	if err != nil {
		return err
	}
	maps.DeleteFunc(orders, func(name string, _ step.Order) bool { return !wire.InSession(name) })
	commands := newCommands(access.Token.Value, a.version(), a.started, nil)
	commands.orders, commands.ctx, commands.kick, commands.most = orders, ctx, func() {}, sessionResults
	commands.asked = true // nobody reads a result without the token
	server := a.httpServer(commands)
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		s.Log.Info("listening for commands during the rescue", "address", l.Addr())
		if s.opened != nil {
			s.opened(l.Addr())
		}
		go func() {
			failed <- server.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}))
		}()
	}
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-failed:
		failed <- err
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for range listeners {
			<-failed
		}
	}()
	stopServer(server, served)
	return err
}

// listen opens the port on each address for ssh; on all addresses where none is named.
func (s Session) listen(port int) ([]net.Listener, error) {
	hosts := s.Listen
	if len(hosts) == 0 {
		text, err := os.ReadFile(filepath.Join("/", s.Root, network.ListenFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listen for commands: %w", err)
		}
		for _, line := range strings.Fields(string(text)) {
			address, err := netip.ParseAddr(line)
			if err != nil {
				return nil, problem.Invalidf("listen for commands: /%s holds %.40q: want addresses", network.ListenFile, line)
			}
			hosts = append(hosts, net.JoinHostPort(address.String(), strconv.Itoa(port)))
		}
	}
	if len(hosts) == 0 {
		hosts = []string{net.JoinHostPort("", strconv.Itoa(port))}
	}
	var out []net.Listener
	for _, host := range hosts {
		l, err := net.Listen("tcp", host)
		if err != nil {
			for _, open := range out {
				_ = open.Close()
			}
			return nil, fmt.Errorf("listen for commands: %w", err)
		}
		out = append(out, l)
	}
	return out, nil
}

// readSession refuses what could open the commands to everybody.
func readSession(root string) (access sessionAccess, certificate tls.Certificate, err error) {
	f, err := os.Open(sessionPath(root))
	if err != nil {
		return access, certificate, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSession))
	if err != nil {
		return access, certificate, err
	}
	if json.Unmarshal(text, &access) != nil {
		return access, certificate, problem.Invalidf("it is no JSON of the expected form")
	}
	if len(access.Token.Reveal()) < leastSessionToken || access.Port < 1 || access.Port > 65535 {
		return access, certificate, problem.Invalidf("it has no token or no port")
	}
	certificate, err = tls.X509KeyPair([]byte(access.Certificate), []byte(access.PrivateKey))
	return access, certificate, err
}
