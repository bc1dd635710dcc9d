package ipmi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

// TestCompletionCodes: each of the 256 codes is not now, never, or says why, and the table of IPMI 2.0 decides which.
func TestCompletionCodes(t *testing.T) {
	t.Parallel()
	never := []byte{0xC1, 0xC2, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xCB, 0xCC, 0xCD, 0xD6}
	for code := 1; code < 256; code++ {
		err := classifyCompletionCode(netFnChassis, commandControl, byte(code))
		want := problem.Unavailable
		switch {
		case slices.Contains(never, byte(code)):
			want = problem.Unsupported
		case code == codePrivilege:
			want = problem.Invalid
		}
		text := err.Error()
		if problem.KindOf(err) != want || !strings.Contains(text, fmt.Sprintf("completion code 0x%02x", code)) || strings.Count(text, ":") < 2 {
			t.Errorf("code 0x%02x: %v (%s); want %s with a reason and the code", code, err, problem.KindOf(err), want)
		}
		if code == codePrivilege && (!strings.Contains(text, PrivKey) || !strings.Contains(text, UsernameKey)) {
			t.Errorf("code 0x%02x: %q; want it to name %s and %s", code, text, PrivKey, UsernameKey)
		}
	}
	for _, c := range []struct {
		netFn, command, code byte
		kind                 problem.Kind
		says                 string
	}{
		{netFnChassis, commandSetBoot, 0x80, problem.Unsupported, "no such boot option"},
		{netFnChassis, commandSetBoot, 0x81, problem.Unavailable, "someone else"},
		{netFnChassis, commandSetBoot, 0x82, problem.Unsupported, "lets nobody"},
		{netFnChassis, commandGetBoot, 0x80, problem.Unsupported, "no such boot option"},
		{netFnChassis, commandGetBoot, 0xc0, problem.Unavailable, "busy"},
		{netFnStorage, commandSELEntry, 0x81, problem.Unavailable, "being erased"},
		{netFnTransport, commandSOLConfig, 0x80, problem.Unsupported, "no such parameter"},
		{netFnApp, commandSetPrivilege, 0x80, problem.Invalid, "set ipmi_priv_level to a lower level"},
		{netFnApp, commandSetPrivilege, 0x81, problem.Invalid, "set ipmi_priv_level to a lower level"},
		{netFnApp, commandSetPrivilege, 0xd4, problem.Invalid, "set ipmi_priv_level to a lower level"},
	} {
		err := classifyCompletionCode(c.netFn, c.command, c.code)
		if problem.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
			t.Errorf("command %02x %02x, code 0x%02x: %v (%s); want %s with %q", c.netFn, c.command, c.code, err, problem.KindOf(err), c.kind, c.says)
		}
	}
}

// TestSessionStatuses: each status code with which a BMC opens no session has a kind, names the key that helps, and reads alike from the wire
// and from ipmitool.
func TestSessionStatuses(t *testing.T) {
	t.Parallel()
	conf := ipmiSettings{ciphers: []int{3}, level: "ADMINISTRATOR"}
	for code := 1; code <= 0x12; code++ {
		want, key := problem.Invalid, ""
		switch code {
		case 0x01, 0x02, 0x08, 0x0b:
			want = problem.Unavailable
		case 0x0c, 0x0d:
			key = UsernameKey
		case 0x0f:
			key = PasswordKey
		case 0x09, 0x0a:
			key = PrivKey
		case 0x04, 0x05, 0x06, 0x07, 0x10, 0x11:
			key = CipherKey
		case 0x03, 0x0e, 0x12:
			want, key = problem.Unavailable, CipherKey
		}
		wire := &filteredDialer{}
		wire.refused.Store(1 << code)
		err := (&lanSession{conf: conf, wire: wire}).refusal("")
		if err == nil || problem.KindOf(err) != want || !strings.Contains(err.Error(), key) {
			t.Errorf("status 0x%02x: %v; want %s, naming %q", code, err, want, key)
			continue
		}
		r, _ := findRefusal(func(r sessionRefusal) bool { return r.code == byte(code) })
		said := toolRefusal("> Error in open session response message : "+r.tool+"\n", conf)
		if said == nil || said.Error() != err.Error() {
			t.Errorf("status 0x%02x: ipmitool's words %q give %v, want %v", code, r.tool, said, err)
		}
	}
	for output, want := range map[string]string{
		"> RAKP 4 message has invalid integrity check value":                              "refuses " + BMCKeyKey,
		"> RAKP 2 HMAC is invalid":                                                        "refuses " + UsernameKey + " or " + PasswordKey,
		"Set Session Privilege Level to ADMINISTRATOR failed: Unknown (0x81)":             "set " + PrivKey + " to a lower level",
		"Set Session Privilege Level to ADMINISTRATOR failed: Node busy":                  "for now",
		"RAKP 2 message indicates an error : unauthorized name\nno matching cipher suite": "refuses " + UsernameKey,
	} {
		if err := toolRefusal(output, conf); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ipmitool says %q: %v; want %q", output, err, want)
		}
	}
	if err := toolRefusal("Unable to establish LAN session", conf); err != nil {
		t.Errorf("words of no table: %v; want no refusal", err)
	}
}

// powerSender is a BMC that refuses power orders for a time.
type powerSender struct {
	on      bool
	code    byte // with which orders are refused; 0: they get no answer
	refuses int  // how many orders; -1: all
	orders  []byte
	at      []time.Time
	upAt    time.Time // when the machine comes up by itself; zero: never
}

func (s *powerSender) send(_ context.Context, netFn, command byte, data ...byte) ([]byte, error) {
	switch {
	case netFn == netFnChassis && command == commandStatus:
		if s.on = s.on || !s.upAt.IsZero() && !time.Now().Before(s.upAt); s.on {
			return []byte{1, 0, 0}, nil
		}
		return []byte{0, 0, 0}, nil
	case netFn == netFnChassis && command == commandControl:
		s.orders, s.at = append(s.orders, data[0]), append(s.at, time.Now())
		if len(s.orders) <= s.refuses || s.refuses < 0 {
			if s.code == 0 {
				return nil, problem.Unavailablef("no answer in time")
			}
			return nil, classifyCompletionCode(netFn, command, s.code)
		}
		s.on = data[0] == orderOn
		return nil, nil
	}
	return nil, classifyCompletionCode(netFn, command, codeBadCommand)
}

// driverOf is a Driver whose sessions reach a sender in place of a BMC.
func driverOf(s commandSender) *Driver { return &Driver{sender: s} }

var anyNode = &metal.Node{ID: "n1", DriverInfo: metal.Object{AddressKey: "127.0.0.1"}}

// TestRefusedForNow: a power order that the BMC refuses for now is given again every few seconds until the BMC takes the order, or the machine
// is as wanted without the order. An error never says that the BMC took an order that it refused.
func TestRefusedForNow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		sender powerSender
		want   metal.Power
		orders int // at least
		says   string
		within time.Duration
	}{
		{"busy twice", powerSender{code: 0xc0, refuses: 2}, metal.PowerOn, 3, "", 12 * time.Second},
		{"in another state twice", powerSender{code: 0xd5, refuses: 2, on: true}, metal.PowerOff, 3, "", 12 * time.Second},
		{"time-out once", powerSender{code: 0xc3, refuses: 1}, metal.PowerOn, 2, "", 8 * time.Second},
		{"no answer once", powerSender{refuses: 1}, metal.PowerOn, 2, "", 8 * time.Second},
		{"always busy", powerSender{code: 0xc0, refuses: -1}, metal.PowerOn, 10, "it is busy: completion code 0xc0", time.Minute},
		{"never an answer", powerSender{refuses: -1}, metal.PowerOn, 10, "without an answer", time.Minute},
		{"unknown command", powerSender{code: 0xc1, refuses: -1}, metal.PowerOn, 1, "does not know the command", time.Second},
		{"no privilege", powerSender{code: 0xd4, refuses: -1}, metal.PowerOn, 1, PrivKey, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, s := time.Now(), c.sender
				err := driverOf(&s).SetPower(t.Context(), anyNode, c.want)
				if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "took")) {
					t.Errorf("%v; want %q, and no word of an order that was taken", err, c.says)
				}
				if len(s.orders) < c.orders || time.Since(began) > c.within+proveSlack {
					t.Errorf("%d orders in %s; want at least %d in %s", len(s.orders), time.Since(began), c.orders, c.within)
				}
				for i := 1; i < len(s.at); i++ {
					if pause := s.at[i].Sub(s.at[i-1]); pause < orderEvery {
						t.Errorf("order %d came %s after the one before; want at least %s", i+1, pause, orderEvery)
					}
				}
			})
		})
	}
}

const proveSlack = 3 * time.Second

// TestComesUpByItself: a machine that comes up while its BMC refuses the order gets no other order.
func TestComesUpByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &powerSender{code: 0xd5, refuses: -1, upAt: time.Now().Add(4 * time.Second)}
		if err := driverOf(s).SetPower(t.Context(), anyNode, metal.PowerOn); err != nil || slices.Contains(s.orders, orderOff) {
			t.Errorf("%v, orders %v; want no error and only orders to switch on", err, s.orders)
		}
	})
}

// TestOnceOnly: a reset is repeated only after a refusal that says that nothing was done.
func TestOnceOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		code   byte
		orders int
		fails  bool
	}{{"busy", 0xc0, 2, false}, {"starting", 0xd2, 2, false}, {"time-out", 0xc3, 1, true}, {"no answer", 0, 1, true}, {"no reason", 0xff, 1, true}, {"unknown", 0xc1, 1, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &powerSender{on: true, code: c.code, refuses: 1}
				err := driverOf(s).single(t.Context(), anyNode, "restart", orderReset)
				if (err != nil) != c.fails || len(s.orders) != c.orders {
					t.Errorf("%d orders, %v; want %d orders, and an error: %v", len(s.orders), err, c.orders, c.fails)
				}
			})
		})
	}
}

// TestOrdersNotTaken: the error of a reset tells whether the BMC has surely not taken the reset.
func TestOrdersNotTaken(t *testing.T) {
	t.Parallel()
	for code, want := range map[byte]bool{0xc0: true, 0xd2: true, 0xc3: false, 0: false, 0xff: false} {
		synctest.Test(t, func(t *testing.T) {
			s := &powerSender{on: true, code: code, refuses: 1000}
			if err := driverOf(s).single(t.Context(), anyNode, "restart", orderReset); err == nil || driver.IsNotTaken(err) != want {
				t.Errorf("completion code %#x: surely not taken %t, want %t (%v)", code, driver.IsNotTaken(err), want, err)
			}
		})
	}
	off := &powerSender{}
	if err := driverOf(off).single(t.Context(), anyNode, "restart", orderReset); !driver.IsNotTaken(err) {
		t.Errorf("a reset of a machine that is off: %v, want the mark of an order that was not sent", err)
	}
}

// TestRepeatedLogin: a login that the BMC accepted minutes ago is repeated with pauses before its refusal counts; another login is not.
func TestRepeatedLogin(t *testing.T) {
	t.Parallel()
	refusal := problem.Invalidf("%w %s", driver.ErrLogin, PasswordKey)
	for _, c := range []struct {
		name    string
		lately  bool
		refused []error // one for each session
		logins  int
		fails   bool
	}{
		{"never accepted", false, []error{refusal}, 1, true},
		{"refused once", true, []error{refusal}, 2, false},
		{"level refused twice", true, []error{problem.Invalidf("%w", errNoRole), problem.Invalidf("%w", errNoRole)}, 3, false},
		{"refused for good", true, []error{refusal, refusal, refusal, refusal, refusal}, 4, true},
		{"another error", true, []error{problem.Unsupportedf("no")}, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &Driver{Logins: &driver.Logins{}}
				login := driver.Login{Address: "a", Password: secret.New("p")}
				if c.lately {
					d.Logins.Accepted(login)
				}
				logins := 0
				err := d.repeatLogin(t.Context(), login, func() error {
					if logins++; logins <= len(c.refused) {
						return c.refused[logins-1]
					}
					return nil
				})
				if (err != nil) != c.fails || logins != c.logins {
					t.Errorf("%d logins, %v; want %d, and an error: %v", logins, err, c.logins, c.fails)
				}
				if counts := d.Logins.Pass(t.Context(), login) != nil; counts != (c.name == "refused for good") {
					t.Errorf("the refusal counts: %v", counts)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		d := &Driver{Logins: &driver.Logins{}}
		d.Logins.Accepted(driver.Login{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := d.repeatLogin(ctx, driver.Login{}, func() error { return refusal })
		if !problem.Is(err, problem.Unavailable) || errors.Is(err, driver.ErrLogin) {
			t.Errorf("the context ends before the repetition: %v (%s); want unavailable, and no refusal", err, problem.KindOf(err))
		}
	})
}

// TestToolRefusedForNow: a completion code in the words of ipmitool is read like one from the wire.
func TestToolRefusedForNow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "ipmitool")
	text := `#!/bin/sh
dir="` + dir + `"
case "$*" in
*"raw 0x00 0x01"*) [ -e "$dir/on" ] && echo ' 01 00 00' || echo ' 00 00 00' ;;
*"raw 0x00 0x02 0x01"*)
	if [ -e "$dir/refused" ]; then : >"$dir/on"; exit 0; fi
	: >"$dir/refused"
	echo 'Unable to send RAW command (channel=0x0 netfn=0x0 lun=0x0 cmd=0x2 rsp=0xc0): Node busy' >&2
	exit 1 ;;
esac
`
	must.OK(t, os.WriteFile(program, []byte(text), 0o700))
	must.OK(t, (&Driver{Client: IPMITool, Program: program}).SetPower(t.Context(), anyNode, metal.PowerOn))
}
