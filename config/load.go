package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"salvor/problem"
	"salvor/secret"
)

const maxFile = 1 << 20

// Source says where a configuration comes from. What stands later wins.
type Source struct {
	// File is an INI file; empty: none.
	File string
	// Env are variables as os.Environ gives them.
	Env []string
	// Flags are what the command line says.
	Flags []Setting
}

// Setting is one option set on the command line.
type Setting struct {
	Section, Option, Value string
	// From names the flag in errors: "--listen".
	From string
}

// Load reads a configuration. The warnings are lines for the log about what was passed
// over. The error is Invalid and has one line for each thing that is wrong, all of them.
func Load(source Source) (*Config, []string, error) {
	var file []byte
	if source.File != "" {
		b, err := readFile(source.File)
		if err != nil {
			return nil, nil, err
		}
		file = b
	}
	l := newLoader()
	l.file(source.File, file)
	l.environment(source.Env)
	for _, f := range source.Flags {
		l.flag(f)
	}
	return l.finish(source.Env)
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, problem.Invalidf("read configuration: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, problem.Invalidf("read configuration: %w", err)
	}
	if len(b) > maxFile {
		return nil, problem.Invalidf("read configuration: %s is larger than %d bytes", name, maxFile)
	}
	return b, nil
}

// configLoader collects what is wrong instead of stopping at the first.
type configLoader struct {
	sections map[string]*sectionOptions
	config   *Config
	warnings []string
	problems []error
}

func newLoader() *configLoader {
	c := &Config{origin: map[string]string{}}
	c.Default.EnabledInterfaces, c.Default.DefaultInterface = map[string][]string{}, map[string]string{}
	l := &configLoader{sections: buildSections(), config: c}
	for _, o := range Options() {
		if err := o.set(c, o.Default); err != nil && o.Default != "" {
			l.fail(err)
		}
	}
	return l
}

func (l *configLoader) fail(err error) { l.problems = append(l.problems, err) }

func (l *configLoader) warn(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

// set finds the option and sets it.
func (l *configLoader) set(where, sectionName, name, value string) {
	s := l.sections[sectionName]
	if o := s.options[name]; o != nil {
		if err := o.apply(l.config, value, where); err != nil {
			l.fail(err)
		} else if o.Idle != "" && value != o.Default {
			l.fail(problem.Invalidf("%s: [%s]%s = %s is refused, since salvor would not follow it: %s; take the option out of the configuration", where, sectionName, name, quoteValue(value), o.Idle))
		}
		return
	}
	switch {
	case slices.Contains(s.ignored, name):
		l.warn("%s: [%s]%s does nothing in salvor", where, sectionName, name)
	case s.lax:
		l.warn("%s: [%s]%s is not known and does nothing", where, sectionName, name)
	default:
		l.fail(problem.Invalidf("%s: [%s]%s is not an option%s", where, sectionName, quoteValue(name), l.guess(sectionName, name)))
	}
}

// environment takes the variables whose names begin as those of a section do: all
// others beginning with SALVOR_ are somebody else's (the client's SALVOR_URL).
func (l *configLoader) environment(env []string) {
	for _, pair := range slices.Sorted(slices.Values(env)) {
		variable, value, _ := strings.Cut(pair, "=")
		rest, ours := strings.CutPrefix(variable, variablePrefix)
		if !ours {
			continue
		}
		for name := range l.sections {
			option, of := strings.CutPrefix(rest, strings.ToUpper(name)+"_")
			if of {
				l.set("variable "+variable, name, strings.ToLower(option), value)
				break
			}
		}
	}
}

func (l *configLoader) flag(f Setting) {
	if l.sections[f.Section] == nil {
		l.fail(fmt.Errorf("%s: no section [%s]", f.From, f.Section))
		return
	}
	l.set(f.From, f.Section, f.Option, f.Value)
}

func (l *configLoader) finish(env []string) (*Config, []string, error) {
	if len(l.problems) == 0 {
		l.derive(env)
		l.check()
	}
	if len(l.problems) > 0 {
		return nil, l.warnings, problem.Invalidf("configuration: %w", errors.Join(l.problems...))
	}
	return l.config, l.warnings, nil
}

// derive fills the defaults that depend on the machine or on other options.
func (l *configLoader) derive(env []string) {
	c := l.config
	if c.Default.Host == "" {
		name, err := os.Hostname()
		if err != nil || !isWord(name) || name == "" {
			l.fail(problem.Invalidf("[DEFAULT]host: this machine has no usable host name; set the option"))
		}
		c.Default.Host = name
	}
	if c.Default.StatePath == "" {
		c.Default.StatePath = stateDirectory(env, os.Geteuid())
	}
	if c.Default.StatePath == "" {
		l.fail(problem.Invalidf("[DEFAULT]state_path: neither $XDG_STATE_HOME nor $HOME is set; set the option"))
	}
	if c.Database.Connection.Empty() {
		c.Database.Connection = secret.New("sqlite:" + filepath.Join(c.Default.StatePath, "salvor.db"))
	}
	c.deriveDatabase()
	if c.Secrets.KeyFile != "" && c.Secrets.KeyCommand != "" {
		l.fail(problem.Invalidf("%s: [secrets]key_command: a key comes from a command or from a file; set one of key_command and key_file", c.Origin("secrets", "key_command")))
	}
	if c.Secrets.KeyFile == "" && c.Secrets.KeyCommand == "" {
		c.Secrets.KeyFile = filepath.Join(c.Default.StatePath, "secrets.key")
	}
}

func stateDirectory(env []string, euid int) string {
	if euid == 0 {
		return "/var/lib/salvor"
	}
	vars := map[string]string{}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		vars[name] = value
	}
	if d := vars["XDG_STATE_HOME"]; filepath.IsAbs(d) {
		return filepath.Join(d, "salvor")
	}
	if d := vars["HOME"]; filepath.IsAbs(d) {
		return filepath.Join(d, ".local", "state", "salvor")
	}
	return ""
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback() || host == "localhost"
}

// check refuses what each option allows and their combination does not.
func (l *configLoader) check() {
	c := l.config
	if c.Default.AuthStrategy == NoAuth && !c.API.HostIP.IsLoopback() && c.Origin("DEFAULT", "auth_strategy") == "" {
		l.fail(problem.Invalidf("%s: [api]host_ip: %s is no loopback address and everybody who reaches it would own every machine; set [DEFAULT]auth_strategy to %s, or write %s there if that is meant",
			c.Origin("api", "host_ip"), c.API.HostIP, BasicAuth, NoAuth))
	}
	if c.Default.AuthStrategy == NoAuth {
		for _, at := range []struct{ name, url string }{{"[api]public_endpoint", c.API.PublicEndpoint}, {"[service_catalog]endpoint_override", c.ServiceCatalog.EndpointOverride}} {
			if u, err := url.Parse(at.url); at.url != "" && c.Origin("DEFAULT", "auth_strategy") == "" && (err != nil || !isLoopback(u.Hostname())) {
				l.fail(problem.Invalidf("%s: %s is reached from other machines and everybody who reaches it would own every machine; set [DEFAULT]auth_strategy to %s, or write %s there if that is meant", at.name, at.url, BasicAuth, NoAuth))
			}
		}
	}
	if c.Default.AuthStrategy == BasicAuth && c.Default.HTTPBasicAuthUserFile == "" {
		l.fail(problem.Invalidf("[DEFAULT]http_basic_auth_user_file: empty, but auth_strategy %s needs it", BasicAuth))
	}
	l.checkKeystone()
	l.checkTLS()
	l.checkProcess()
	l.together("rescue_kernel", c.Conductor.RescueKernel, "rescue_ramdisk", c.Conductor.RescueRamdisk)
	l.together("deploy_kernel", c.Conductor.DeployKernel, "deploy_ramdisk", c.Conductor.DeployRamdisk)
	l.sameArchitectures("rescue", c.Conductor.RescueKernelByArch, c.Conductor.RescueRamdiskByArch)
	l.sameArchitectures("deploy", c.Conductor.DeployKernelByArch, c.Conductor.DeployRamdiskByArch)
	for kind, name := range c.Default.DefaultInterface {
		if enabled := c.Default.EnabledInterfaces[kind]; len(enabled) > 0 && !slices.Contains(enabled, name) {
			l.fail(problem.Invalidf("[DEFAULT]default_%s_interface: %s is not among enabled_%s_interfaces: %s", kind, name, kind, strings.Join(enabled, ", ")))
		}
	}
	b := c.Bridge
	for _, other := range []struct{ name, network string }{{"provisioning", b.ProvisioningNetwork}, {"cleaning", b.CleaningNetwork}} {
		if b.RescuingNetwork != "" && b.RescuingNetwork == other.network {
			l.warn("[bridge]rescuing_network is the %s network %s too: a rescued machine's user could reach machines that are being set up", other.name, other.network)
		}
	}
}

// sameArchitectures wants a ramdisk for each architecture with a kernel, and the other way round.
func (l *configLoader) sameArchitectures(what string, kernels, ramdisks map[string]string) {
	of := func(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
	if !slices.Equal(of(kernels), of(ramdisks)) {
		l.fail(problem.Invalidf("[conductor]%s_kernel_by_arch and %s_ramdisk_by_arch: name the same architectures; they name %q and %q", what, what, of(kernels), of(ramdisks)))
	}
}

func (l *configLoader) together(a, x, b, y string) {
	if (x == "") != (y == "") {
		l.fail(problem.Invalidf("[conductor]%s and %s: set both or neither", a, b))
	}
}
