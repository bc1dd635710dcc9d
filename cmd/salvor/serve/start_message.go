package serve

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"salvor/access"
	"salvor/client"
	"salvor/config"
	"salvor/metal"
	"salvor/record"
	"salvor/version"
)

// startMessage says at the start of a process where it is reached, how it is guarded, and what to run next.
type startMessage struct {
	lines []startLine
	// url is the API as the client commands of this machine reach it; empty: they find it by themselves, or it is elsewhere.
	url  string
	next record.Command
}

// startLine has a key for the log of JSON lines and a name for people.
type startLine struct{ key, name, text string }

// write writes the message for people to out, in one piece. Where the log has JSON lines it is one line of the log instead.
func (m startMessage) write(c *config.Config, log *slog.Logger, out io.Writer) {
	if c.Default.UseJSON {
		var values []any
		for _, l := range m.lines {
			values = append(values, l.key, l.text)
		}
		log.Info("started", append(values, "next", m.next.Run, "for", m.next.For)...)
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "salvor %s serves:\n", version.Release)
	for _, l := range m.lines {
		fmt.Fprintf(&text, "  %-15s%s\n", l.name, l.text)
	}
	fmt.Fprintln(&text, "Next, in another terminal:")
	if m.url != "" {
		fmt.Fprintf(&text, "  export SALVOR_URL=%s\n", m.url)
	}
	fmt.Fprintf(&text, "  %s   # %s\n", m.next.Run, m.next.For)
	_, _ = io.WriteString(out, text.String()) // a terminal that went away needs no message
}

// startMessage describes this process, which listens at doors.
func (p *ControlPlane) startMessage(ctx context.Context, doors []httpListener) startMessage {
	var m startMessage
	for _, d := range doors {
		switch d.name {
		case "api":
			own := OwnURL(p.cfg, d.Addr())
			public := cmp.Or(strings.TrimRight(p.cfg.API.PublicEndpoint, "/"), own)
			m.lines = append(m.lines, startLine{"api", "API", public}, startLine{"console", "console", public + "/console/"}, startLine{"auth", "authentication", guardedBy(p.cfg)})
			if own != client.DefaultURL {
				m.url = own
			}
		case "ramdisk":
			m.lines = append(m.lines, startLine{"ramdisks", "for ramdisks", cmp.Or(p.cfg.ServiceCatalog.EndpointOverride, "http://"+d.Addr().String())})
		case hostsListener:
			m.lines = append(m.lines, startLine{"hosts", "for VM hosts", "https://" + d.Addr().String() + ", TLS with certificates that salvor issues"})
		case "health":
			m.lines = append(m.lines, startLine{"health", "health", "http://" + d.Addr().String() + "/healthz"})
		}
	}
	if len(m.lines) == 0 {
		m.lines = []startLine{{"roles", "roles", strings.Join(p.cfg.Default.Roles, ", ")}}
	}
	m.next = p.nextCommand(ctx)
	return m
}

// guardedBy says how the API finds out who asks.
func guardedBy(c *config.Config) string {
	switch c.Default.AuthStrategy {
	case config.BasicAuth:
		return "http_basic: the users of " + c.Default.HTTPBasicAuthUserFile
	case config.TokenAuth:
		return "token: tokens of salvor token create"
	case config.KeystoneAuth:
		return "keystone: " + c.Keystone.AuthURL
	}
	return "none (noauth). Anyone who can reach the API is an administrator"
}

// nextCommand is the first thing that this installation lacks, in the order in which a new one needs them.
func (p *ControlPlane) nextCommand(ctx context.Context) record.Command {
	if p.Store.Held() != nil {
		return record.Command{Run: record.HeldNext, For: "decide about the open jobs of a restored database"}
	}
	if p.cfg.Default.AuthStrategy == config.TokenAuth {
		if all, err := p.Store.Tokens().List(ctx, nil, access.TokenFilter{}, record.Page{Limit: 1}); err == nil && len(all) == 0 {
			return record.Command{Run: "salvor token create admin --role admin --local --state-dir " + p.cfg.Default.StatePath, For: "make the first token, then export it as SALVOR_TOKEN"}
		}
	}
	if kernel, _ := rescueImages(p.cfg); kernel == "" && p.has(config.RoleConductor) {
		return record.Command{Run: "salvor ramdisk build --out " + ramdiskDir(p.cfg), For: "then start salvor serve again: without a ramdisk it rescues no machine"}
	}
	if some, err := p.nodes.List(ctx, metal.NodeFilter{}, record.Page{Limit: 1}); err == nil && len(some) == 0 {
		return record.Command{Run: "salvor node create --help", For: "enroll the first machine; docs/getting-started.md leads through it"}
	}
	return record.Command{Run: "salvor doctor", For: "check this installation; give it the --config and --state-dir of salvor serve"}
}

// startMessage describes the boot service of a site.
func (s *siteDoor) startMessage(doors []httpListener) startMessage {
	m := startMessage{next: record.Command{Run: "salvor doctor", For: "check this installation; give it the --config and --state-dir of salvor serve"}}
	for _, d := range doors {
		if d.name == "ramdisk" {
			m.lines = append(m.lines, startLine{"ramdisks", "for ramdisks", "http://" + d.Addr().String()})
		}
	}
	m.lines = append(m.lines, startLine{"centre", "centre", s.cfg.Centre})
	return m
}
