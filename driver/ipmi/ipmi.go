// Package ipmi drives machines whose BMC speaks IPMI 2.0 over LAN: power and boot device. It holds the few chassis commands of the protocol
// that these need, as bytes over one of two channels. One channel is a client in Go; the other is the program ipmitool, for the BMCs that
// work only with it. The package must not know the purpose of an operation.
package ipmi

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// Keys of driver_info.
const (
	AddressKey  = "ipmi_address"
	PortKey     = "ipmi_port"
	UsernameKey = "ipmi_username"
	PasswordKey = "ipmi_password"
	CipherKey   = "ipmi_cipher_suite"
	PrivKey     = "ipmi_priv_level"
	BMCKeyKey   = "ipmi_hex_kg_key"
)

// Properties describes the keys of driver_info.
var Properties = map[string]string{
	AddressKey:  "IP address or host name of the BMC. Interfaces that speak IPMI require it.",
	PortKey:     "UDP port of the BMC; 623 by default.",
	UsernameKey: "User name, up to 16 bytes; the null user by default.",
	PasswordKey: "Password, up to 20 bytes.",
	CipherKey:   "Cipher suite of IPMI 2.0; without it 3 is tried, then 17.",
	PrivKey:     "Privilege level of the session: ADMINISTRATOR (the default), OPERATOR, USER or CALLBACK.",
	BMCKeyKey:   "The BMC's own key (Kg) as hexadecimal digits, up to 40. ipmitool speaks with such a BMC.",
}

// Client names how BMCs are spoken to.
type Client string

const (
	Native   Client = "native"
	IPMITool Client = "ipmitool"
)

// Driver implements driver.Power and driver.Management.
type Driver struct {
	// Locks keep it to one session at a time per BMC: cheap ones have few.
	Locks *driver.AddressLocks
	// Logins remembers the logins that BMCs refused; nil: nothing is remembered.
	Logins *driver.Logins
	// Client is Native if empty.
	Client Client
	// Program is the ipmitool to run; empty: the one in PATH.
	Program string
	// Cipher is the suite for nodes whose driver_info names none; 0: 3, then 17.
	Cipher int
	// Control refuses addresses that may not be spoken to, as a net.Dialer's; nil: none.
	Control func(network, address string, c syscall.RawConn) error

	// sender takes the place of a session in tests.
	sender commandSender
}

var (
	_ driver.Power      = (*Driver)(nil)
	_ driver.Management = (*Driver)(nil)
	_ driver.Restarter  = (*Driver)(nil)
	_ driver.NMI        = (*Driver)(nil)
)

// ipmiSettings are what a node's record says of its BMC.
type ipmiSettings struct {
	host     string
	port     int
	username string
	password secret.Value
	ciphers  []int // in the order to try
	level    string
	bmcKey   secret.Value // in hexadecimal digits; empty: the BMC has none
}

// What the protocol's fields hold.
const (
	maxUsername = 16
	maxPassword = 20
	maxBMCKey   = 20
	defaultPort = 623
)

// suites are the cipher suites that may be asked for (IPMI 2.0, table 22-20).
var suites = []int{2, 3, 7, 8, 11, 12, 16, 17}

// privilegeLevels are those of a session by their names in driver_info (IPMI 2.0, 6.8).
var privilegeLevels = map[string]types.PrivilegeLevel{
	"CALLBACK": types.PrivilegeLevelCallback, "USER": types.PrivilegeLevelUser, "OPERATOR": types.PrivilegeLevelOperator, "ADMINISTRATOR": types.PrivilegeLevelAdministrator,
}

// parseDriverInfo takes the settings out of a record. All errors are Invalid.
func parseDriverInfo(n *metal.Node) (ipmiSettings, error) {
	s := ipmiSettings{host: n.Info(AddressKey), port: defaultPort, username: n.Info(UsernameKey), password: secret.New(n.Info(PasswordKey)), ciphers: []int{3, 17},
		level: cmp.Or(strings.ToUpper(n.Info(PrivKey)), "ADMINISTRATOR"), bmcKey: secret.New(n.Info(BMCKeyKey))}
	if s.host == "" {
		return s, problem.Invalidf("driver_info lacks %s", AddressKey)
	}
	if !isHostName(s.host) {
		return s, problem.Invalidf("%s is neither an IP address nor a host name", AddressKey)
	}
	if text := n.Info(PortKey); text != "" {
		port, err := strconv.Atoi(text)
		if err != nil || port < 1 || port > 65535 {
			return s, problem.Invalidf("%s must be a port number", PortKey)
		}
		s.port = port
	}
	if len(s.username) > maxUsername {
		return s, problem.Invalidf("%s is longer than %d bytes", UsernameKey, maxUsername)
	}
	if len(s.password.Reveal()) > maxPassword {
		return s, problem.Invalidf("%s is longer than %d bytes", PasswordKey, maxPassword)
	}
	if _, known := privilegeLevels[s.level]; !known {
		return s, problem.Invalidf("%s must be ADMINISTRATOR, OPERATOR, USER or CALLBACK", PrivKey)
	}
	if key, err := hex.DecodeString(s.bmcKey.Reveal()); err != nil || len(key) > maxBMCKey {
		return s, problem.Invalidf("%s must be hexadecimal digits, two for each of up to %d bytes", BMCKeyKey, maxBMCKey)
	}
	if text := n.Info(CipherKey); text != "" {
		cipher, err := strconv.Atoi(text)
		if err != nil || !slices.Contains(suites, cipher) {
			return s, problem.Invalidf("%s must be one of %v; the others authenticate no answer, or encrypt by RC4", CipherKey, suites)
		}
		s.ciphers = []int{cipher}
	}
	return s, nil
}

func (s ipmiSettings) address() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

func isHostName(text string) bool {
	if net.ParseIP(text) != nil {
		return true
	}
	if len(text) > 253 || text[0] == '-' {
		return false
	}
	for _, r := range text {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_') {
			return false
		}
	}
	return true
}

// commandSender sends a command of a network function and gives the data of its answer,
// completion code stripped. An answer with a completion code of failure is a completion error.
type commandSender interface {
	send(ctx context.Context, netFn, command byte, data ...byte) ([]byte, error)
}

// Network functions (IPMI 2.0, table 5-1).
const (
	netFnChassis = 0x00
	netFnApp     = 0x06
)

// with runs part of an operation in a session of its own and names both in the error.
// Waiting is done between sessions, so that others reach the BMC meanwhile.
func (d *Driver) with(ctx context.Context, n *metal.Node, op string, fn func(context.Context, commandSender) error) error {
	return d.named(n, op, func(conf ipmiSettings) error { return d.session(ctx, conf, fn) })
}

// named runs an operation on the BMC that a record names, and names both in the error.
func (d *Driver) named(n *metal.Node, op string, fn func(ipmiSettings) error) error {
	conf, err := parseDriverInfo(n)
	if err != nil {
		return problem.Invalidf("%s of node %s: ipmi: %w", op, n.ID, err)
	}
	if d.Cipher != 0 && n.Info(CipherKey) == "" {
		conf.ciphers = []int{d.Cipher}
	}
	if err = fn(conf); err != nil {
		return problem.New(problem.KindOf(err), "%s of node %s: ipmi %s: %w", op, n.ID, conf.address(), err)
	}
	return nil
}

// session runs fn in a session of its own. A login that the BMC accepted lately is repeated before its refusal counts.
func (d *Driver) session(ctx context.Context, conf ipmiSettings, fn func(context.Context, commandSender) error) error {
	return d.repeatLogin(ctx, conf.login(), func() error { return d.sessionOnce(ctx, conf, fn) })
}

// loginPauses are the pauses before a refused login is repeated that the BMC accepted lately. Three repetitions stay below what locks accounts
// on most BMCs.
var loginPauses = []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second}

// repeatLogin repeats a session whose login is refused and was accepted lately. A refused login has run nothing of the session but what may run
// twice.
func (d *Driver) repeatLogin(ctx context.Context, login driver.Login, session func() error) error {
	err := session()
	for _, pause := range loginPauses {
		if !isRefusedLogin(err) || !d.Logins.Lately(login) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return problem.Unavailablef("the BMC accepted this login minutes ago, and refuses it now: %s", err)
		case <-timer.C:
		}
		err = session()
	}
	if errors.Is(err, driver.ErrLogin) {
		d.Logins.Refused(ctx, login)
	}
	return err
}

func isRefusedLogin(err error) bool {
	return errors.Is(err, driver.ErrLogin) || errors.Is(err, errNoRole)
}

func (d *Driver) sessionOnce(ctx context.Context, conf ipmiSettings, fn func(context.Context, commandSender) error) (err error) {
	leave, err := d.enter(ctx, conf)
	if err != nil {
		return err
	}
	defer func() { leave(err) }()
	ctx, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	if d.sender != nil {
		return fn(ctx, d.sender)
	}
	if conf.host, err = d.allowed(ctx, conf); err != nil {
		return driver.Trouble(err)
	}
	switch d.Client {
	case "", Native:
		if !conf.bmcKey.Empty() { // the client in Go knows no such keys
			return fn(ctx, &ipmitoolRunner{conf: conf, program: d.Program})
		}
		return runInLANSession(ctx, conf, fn)
	case IPMITool:
		return fn(ctx, &ipmitoolRunner{conf: conf, program: d.Program})
	}
	return problem.Invalidf("[ipmi]client must be %s or %s", Native, IPMITool)
}

// login is what the BMC is asked to accept.
func (s ipmiSettings) login() driver.Login {
	return driver.Login{Address: "ipmi " + s.address(), Username: s.username, Password: s.password, Method: fmt.Sprint(s.ciphers, s.level, s.bmcKey.Empty()), UsernameKey: UsernameKey, PasswordKey: PasswordKey}
}

// enter waits for the turn at a BMC and refuses a login that the BMC is known to refuse. leave ends the turn and is told how it went. The
// refusal of a login that the BMC accepted lately counts once repeatLogin has repeated the login.
func (d *Driver) enter(ctx context.Context, conf ipmiSettings) (leave func(error), err error) {
	unlock, err := d.Locks.Enter(ctx, "ipmi "+conf.address())
	if err != nil {
		return nil, driver.Trouble(err)
	}
	if err := driver.CheckLease(ctx); err != nil {
		unlock()
		return nil, driver.Trouble(err)
	}
	login := conf.login()
	if err := d.Logins.Pass(ctx, login); err != nil {
		unlock()
		return nil, err
	}
	began := time.Now()
	return func(err error) {
		driver.Measured(ctx, "ipmi", began, err)
		var answered completionCode
		switch {
		case errors.Is(err, driver.ErrLogin):
			if !d.Logins.Lately(login) {
				d.Logins.Refused(ctx, login)
			}
		case err == nil, errors.As(err, &answered) && !errors.Is(err, errNoRole):
			d.Logins.Accepted(login)
		}
		unlock()
	}, nil
}

// allowed gives the address that the host has now and that may be spoken to: a name that leads elsewhere later gains nothing.
func (d *Driver) allowed(ctx context.Context, conf ipmiSettings) (string, error) {
	if d.Control == nil {
		return conf.host, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", conf.host)
	if err != nil {
		return "", err
	}
	for _, a := range found {
		at := conf
		at.host = a.Unmap().String()
		if err = d.Control("udp", at.address(), nil); err == nil {
			return at.host, nil
		}
	}
	return "", err
}
