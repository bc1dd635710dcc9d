package ipmi

import (
	"errors"
	"fmt"

	"salvor/problem"
)

// completionCode is an answer that the BMC got the command and refused it.
type completionCode byte

func (c completionCode) Error() string { return fmt.Sprintf("completion code 0x%02x", byte(c)) }

// Completion codes that callers tell apart.
const (
	codeNoParameter = 0x80 // of commands that read or write parameters
	codeBadCommand  = 0xC1
	codeBadLength   = 0xC7
	codeBadSize     = 0xC8
	codeTooLong     = 0xCA // the answer cannot have so many bytes
	codeNotPresent  = 0xCB
	codePrivilege   = 0xD4
	codeUnspecified = 0xFF
)

// remedy says what helps against a refusal.
type remedy int

const (
	// wait: the refusal passes by itself, and the BMC has done nothing.
	wait remedy = iota + 1
	// waitAndLook: the refusal passes by itself, and the BMC may have carried the command out.
	waitAndLook
	// never: this BMC does not carry the command out, whenever it is sent.
	never
	// privilege: another user or another privilege level may send the command.
	privilege
)

// codeMeaning is what a completion code means in our own words.
type codeMeaning struct {
	remedy remedy
	says   string
}

// genericCodes are the completion codes that every command may have (IPMI 2.0, table 5-2).
var genericCodes = map[byte]codeMeaning{
	0xC0: {wait, "it is busy"},
	0xC1: {never, "it does not know the command"},
	0xC2: {never, "it does not know the command for this logical unit"},
	0xC3: {waitAndLook, "it ran out of time"},
	0xC4: {wait, "it is out of memory"},
	0xC5: {wait, "someone else has changed the records meanwhile"},
	0xC6: {never, "it finds the request cut off"},
	0xC7: {never, "it wants a request of another length"},
	0xC8: {never, "a field of the request is longer than it takes"},
	0xC9: {never, "a parameter is out of its range"},
	0xCA: {never, "it cannot return so many bytes"},
	0xCB: {never, "it has no such sensor, record or data"},
	0xCC: {never, "it does not know a value of the request"},
	0xCD: {never, "the command does not fit this sensor or record"},
	0xCE: {waitAndLook, "it could make no answer"},
	0xCF: {waitAndLook, "it takes the request for one that it has already had"},
	0xD0: {wait, "its sensor records are being updated"},
	0xD1: {wait, "its firmware is being updated"},
	0xD2: {wait, "it is starting"},
	0xD3: {wait, "the part that carries the command out does not answer it"},
	0xD4: {privilege, "the session has too little privilege for the command, or the BMC forbids the command to everybody"},
	0xD5: {wait, "it does not carry the command out in its present state"},
	0xD6: {never, "its firmware has the command switched off"},
	0xFF: {waitAndLook, "it gives no reason"},
}

// commandKey names a command.
type commandKey struct{ netFn, command byte }

// Commands that only the table of their completion codes names.
const (
	commandSetPrivilege    = 0x3b
	commandActivatePayload = 0x48
	commandClearSEL        = 0x47
	commandAddSEL          = 0x44
)

// commandCodes are completion codes of one command (IPMI 2.0, at the command).
var commandCodes = map[commandKey]map[byte]codeMeaning{
	{netFnChassis, commandSetBoot}: {
		0x80: {never, "it has no such boot option"},
		0x81: {wait, "someone else is changing its boot options"},
		0x82: {never, "it lets nobody change this boot option"},
	},
	{netFnChassis, commandGetBoot}:     {0x80: {never, "it has no such boot option"}},
	{netFnTransport, commandSOLConfig}: {0x80: {never, "it has no such parameter of Serial over LAN"}},
	{netFnStorage, commandSELInfo}:     {0x81: {wait, "its event log is being erased"}},
	{netFnStorage, commandSELEntry}:    {0x81: {wait, "its event log is being erased"}},
	{netFnStorage, commandAddSEL}:      {0x80: {never, "it takes no such record"}, 0x81: {wait, "its event log is being erased"}},
	{netFnStorage, commandClearSEL}:    {0x80: {never, "it does not erase its event log"}},
	{netFnApp, commandCipherSuites}:    {0x80: {never, "it does not list its cipher suites"}},
	{netFnApp, commandSetPrivilege}:    {0x80: {privilege, "the user may not have the level"}, 0x81: {privilege, "the level is above what the user or the channel may have"}, 0x82: {never, "it cannot switch off the authentication of users"}},
	{netFnApp, commandActivatePayload}: {0x80: {wait, "the payload is in use"}, 0x81: {never, "the payload is switched off"}, 0x82: {wait, "as many payloads are in use as it takes"}, 0x83: {never, "it does not encrypt the payload"}, 0x84: {never, "it takes the payload encrypted alone"}},
}

// meaningOf looks up a completion code. A code of no table is the maker's own or reserved; no table tells whether such a refusal passes, so
// time decides.
func meaningOf(netFn, command, code byte) codeMeaning {
	if m, ok := commandCodes[commandKey{netFn, command}][code]; ok {
		return m
	}
	if m, ok := genericCodes[code]; ok {
		return m
	}
	return codeMeaning{waitAndLook, "its maker defines the reason"}
}

// errNoRole is the refusal of a privilege level.
var errNoRole = errors.New("the BMC refuses the privilege level")

// classifyCompletionCode makes an error of the completion code of a command: Unavailable where the refusal passes by itself.
func classifyCompletionCode(netFn, command, code byte) error {
	c, m := completionCode(code), meaningOf(netFn, command, code)
	switch m.remedy {
	case never:
		return problem.Unsupportedf("the BMC cannot do it: %s: %w", m.says, c)
	case privilege:
		if netFn == netFnApp && command == commandSetPrivilege {
			return problem.Invalidf("%w: %s; set %s to a lower level, or %s to another user: %w", errNoRole, m.says, PrivKey, UsernameKey, c)
		}
		return problem.Invalidf("the BMC forbids it: %s; look at %s, and at what the BMC allows %s: %w", m.says, PrivKey, UsernameKey, c)
	}
	return problem.Unavailablef("the BMC refuses it for now: %s: %w", m.says, c)
}

// isRefusedForNow tells whether a BMC refused a command with a completion code that passes by itself. done: the BMC may have carried the
// command out all the same.
func isRefusedForNow(netFn, command byte, err error) (refused, done bool) {
	var c completionCode
	if !errors.As(err, &c) || !problem.Is(err, problem.Unavailable) {
		return false, false
	}
	return true, meaningOf(netFn, command, byte(c)).remedy == waitAndLook
}
