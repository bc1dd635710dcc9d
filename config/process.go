package config

import (
	"slices"
	"strings"
	"time"

	"salvor/problem"
)

// The roles of a process.
const (
	// RoleAPI opens the listeners of the API and of VM hosts.
	RoleAPI = "api"
	// RoleConductor runs jobs.
	RoleConductor = "conductor"
	// RoleNetboot opens the door of ramdisks, and answers DHCP and TFTP.
	RoleNetboot = "netboot"
)

// Health is [health].
type Health struct {
	// Listen is host:port; empty: no listener of its own.
	Listen string
}

// Site is [site]: a boot service far from the database.
type Site struct {
	// Centre is the URL of an API process; empty: this process is no site's, and has the database.
	Centre string
	// TokenFile holds the site token, CAFile the certificates that prove the centre; empty: the machine's own.
	TokenFile, CAFile string
	// PlanLifetime is how long a plan counts that the centre confirmed last.
	PlanLifetime time.Duration
}

var processOptions = []Option{
	newOption("DEFAULT", "roles", RoleAPI+","+RoleConductor+","+RoleNetboot, roles, func(c *Config) *[]string { return &c.Default.Roles },
		"The roles of this process: api serves the API and VM hosts; conductor runs jobs; netboot serves ramdisks ([ramdisk]listen) and booting machines ([netboot]interfaces). With SQLite one process has all roles."),
	newOption("health", "listen", "", listen, func(c *Config) *string { return &c.Health.Listen },
		"A listener that serves only /healthz and /metrics, for processes without the API; a site has /healthz only. It asks for no credential. Empty: none."),
	newOption("conductor", "graceful_shutdown_timeout", "20", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Conductor.GracefulShutdownTimeout },
		"How long running actions may take to end when the process stops. salvor cancels the rest and hands them over. Ironic's default is 60."),
	newOption("site", "centre", "", webURL, func(c *Config) *string { return &c.Site.Centre },
		"The URL of an API process that the netboot service of a site asks, because it has no access to the database. https, or a loopback address. Only with the role netboot alone."),
	newOption("site", "token_file", "", path, func(c *Config) *string { return &c.Site.TokenFile },
		"The file with the site token, as salvor site create prints it."),
	newOption("site", "ca_file", "", path, func(c *Config) *string { return &c.Site.CAFile },
		"Certificate authorities (PEM) that verify that API process. Empty: those that this machine trusts."),
	newOption("site", "plan_lifetime", "86400", secondsSyntax(60), func(c *Config) *time.Duration { return &c.Site.PlanLifetime },
		"How long the site answers with the last boot plan that the API process confirmed, while it cannot reach that process."),
}

// roles is a list of at least one role.
var roles = valueSyntax[[]string]{many: true, allowed: RoleAPI + ", " + RoleConductor + " and " + RoleNetboot + ", separated by commas; at least one", parse: func(s string) ([]string, error) {
	names := splitList(s)
	for _, n := range names {
		if n != RoleAPI && n != RoleConductor && n != RoleNetboot {
			return nil, errForm
		}
	}
	if len(names) == 0 {
		return nil, errForm
	}
	return names, nil
}}

// checkProcess refuses roles that could not work.
func (l *configLoader) checkProcess() {
	c := l.config
	if !c.Database.DirectConnection.Empty() && !strings.HasPrefix(c.Database.Connection.Reveal(), "postgres") {
		l.fail(problem.Invalidf("[database]direct_connection: it names the PostgreSQL behind a pooler, but [database]connection is no postgres:// URL; set connection to the pooler's postgres:// URL, or remove direct_connection"))
	}
	if c.Site.Centre == "" {
		// Nobody else can open the file: work that is accepted must be done here.
		if strings.HasPrefix(c.Database.Connection.Reveal(), "sqlite:") && (!slices.Contains(c.Default.Roles, RoleAPI) || !slices.Contains(c.Default.Roles, RoleConductor)) {
			l.fail(problem.Invalidf("[DEFAULT]roles: %s: SQLite serves one process, which needs the roles %s and %s; set [database]connection to PostgreSQL for several", strings.Join(c.Default.Roles, ","), RoleAPI, RoleConductor))
		}
		return
	}
	if !slices.Equal(c.Default.Roles, []string{RoleNetboot}) {
		l.fail(problem.Invalidf("[site]centre: a site's boot service has the role %s alone: set [DEFAULT]roles to it", RoleNetboot))
	}
	if c.Site.TokenFile == "" {
		l.fail(problem.Invalidf("[site]token_file: empty, but a site proves itself by its token: salvor site create prints one"))
	}
	if c.Ramdisk.Listen == "" {
		l.fail(problem.Invalidf("[ramdisk]listen: empty, but a site's machines reach the centre through it"))
	}
	if c.Origin("database", "connection") != "" {
		l.fail(problem.Invalidf("%s: [database]connection: a site knows no database; leave it out", c.Origin("database", "connection")))
	}
}
