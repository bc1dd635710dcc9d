package redfish

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/driver/redfish/refusal"
	"salvor/metal"
	"salvor/problem"
)

// BIOS is the bios interface: the settings of the firmware and the steps that change them.
type BIOS struct{ Driver *Driver }

var (
	_ driver.BIOS       = BIOS{}
	_ driver.StepRunner = BIOS{}
)

// biosDoc is a Bios resource, or the one of its pending settings.
type biosDoc struct {
	Attributes        map[string]any
	AttributeRegistry string
	Settings          struct {
		SettingsObject      link.Link
		SupportedApplyTimes []string
	} `json:"@Redfish.Settings"`
	Actions struct {
		Reset struct {
			Target string `json:"target"`
		} `json:"#Bios.ResetBios"`
	}
	path, etag string
}

func (s *bmcSession) bios() (*biosDoc, error) {
	sys, err := s.read()
	if err != nil {
		return nil, err
	}
	if sys.Bios.Path == "" {
		return nil, problem.Unsupportedf("the BMC shows no BIOS settings")
	}
	return s.biosAt(sys.Bios.Path)
}

func (s *bmcSession) biosAt(path string) (*biosDoc, error) {
	doc := &biosDoc{path: path}
	etag, err := s.bmc.Get(path, doc)
	if errors.Is(err, conversation.ErrMissing) {
		err = problem.Unsupportedf("the BMC shows no BIOS settings")
	}
	doc.etag = etag
	return doc, err
}

// biosAttribute is what a registry says of one setting.
type biosAttribute struct {
	AttributeName, Type                        string
	Value                                      []struct{ ValueName, ValueDisplayName string }
	LowerBound, UpperBound                     *float64
	MinLength, MaxLength                       *float64
	ReadOnly, ResetRequired, IsUnique, Visible *bool
}

// BIOSSettings reads the settings with what the BMC's registry says of them, where it has one. Passwords have no value.
func (b BIOS) BIOSSettings(ctx context.Context, n *metal.Node) ([]metal.BIOSSetting, error) {
	var out []metal.BIOSSetting
	err := b.Driver.with(ctx, n, "read BIOS settings", func(s *bmcSession) error {
		doc, err := s.bios()
		if err != nil {
			return err
		}
		registry := s.registry(doc.AttributeRegistry)
		for _, name := range slices.Sorted(maps.Keys(doc.Attributes)) {
			out = append(out, newBIOSSetting(name, doc.Attributes[name], registry[name]))
		}
		return nil
	})
	return out, err
}

// Steps are those that Ironic has.
func (b BIOS) Steps(context.Context, *metal.Node) ([]driver.Step, error) {
	return driver.BIOSSteps, nil
}

// RunStep does one of them.
func (b BIOS) RunStep(ctx context.Context, n *metal.Node, step metal.Step) (bool, error) {
	wait := false
	err := b.Driver.with(ctx, n, "step "+driver.Sanitize(step.Interface+"."+step.Step), func(s *bmcSession) (err error) {
		switch step.Step {
		case "apply_configuration":
			wait, err = b.apply(ctx, n, s, step)
		case "factory_reset":
			wait, err = b.reset(ctx, n, s)
		default:
			err = problem.Invalidf("there is no such step")
		}
		return err
	})
	return wait, err
}

// requestedKey of internal_info remembers what a step has handed to the BMC and when:
// settings that it has dropped since then it did not take, and a volume that is not there yet is not asked for twice.
const (
	requestedKey = "redfish_requested"
	requestedAge = 2 * time.Hour
)

func wasRequested(n *metal.Node, wanted any) bool {
	mark, _ := n.InternalInfo[requestedKey].(map[string]any)
	at, err := time.Parse(time.RFC3339, metal.Text(mark["at"]))
	return err == nil && time.Since(at) < requestedAge && metal.Text(mark["digest"]) == metal.Digest(wanted)
}

// recordRequest remembers a request, and the task that the BMC made of it.
func recordRequest(n *metal.Node, wanted any, order conversation.Order) {
	n.SetInternal(requestedKey, map[string]any{"at": time.Now().UTC().Format(time.RFC3339), "digest": metal.Digest(wanted), "task": order.Task})
}

func forgetRequest(n *metal.Node) { n.SetInternal(requestedKey, nil) }

// checkTask is the error of the task of what the record under key was made for, if that task has failed. The record goes with it, so that
// the step can be repeated.
func (s *bmcSession) checkTask(n *metal.Node, key string) error {
	record, _ := n.InternalInfo[key].(map[string]any)
	task, err := s.bmc.Task(metal.Text(record["task"]))
	if err != nil {
		return err
	}
	if err = s.bmc.Failure(task); err != nil {
		n.SetInternal(key, nil)
	}
	return err
}

// ForgetStep has the settings handed over anew.
func (b BIOS) ForgetStep(n *metal.Node) {
	forgetRequest(n)
	n.SetInternal(resetKey, nil)
}

// apply hands settings over while the machine is off. Called again it turns the machine on, which is when the firmware takes them, and
// then looks how far that is.
func (b BIOS) apply(ctx context.Context, n *metal.Node, s *bmcSession, step metal.Step) (wait bool, err error) {
	wanted, err := driver.WantedSettings(step)
	if err != nil {
		return false, err
	}
	now, err := s.bios()
	if err != nil {
		return false, err
	}
	if err := now.fit(wanted); err != nil {
		return false, err
	}
	for name, v := range wanted {
		if metal.Text(now.Attributes[name]) == "" { // passwords are never shown
			s.bmc.Hide(metal.Text(v))
		}
	}
	requested := wasRequested(n, wanted)
	if requested {
		if err := s.checkTask(n, requestedKey); err != nil {
			return false, err
		}
	}
	if requested && !hasStarted(n, requestedKey) {
		return true, s.startAfterRequest(ctx, n, requestedKey)
	}
	if now.hold(wanted) {
		forgetRequest(n)
		return false, nil
	}
	pending := now
	if at := now.Settings.SettingsObject.Path; at != "" {
		if pending, err = s.biosAt(at); err != nil {
			return false, err
		}
	}
	if requested {
		if pending == now || pending.hold(wanted) {
			return true, s.startAfterRequest(ctx, n, requestedKey)
		}
		forgetRequest(n)
		return false, problem.Conflictf("the machine has booted and the firmware did not take the settings; look at its event log")
	}
	if err := s.switchOffToChange(ctx, n); err != nil {
		return false, err
	}
	order, err := s.writeBIOS(now, pending, wanted)
	if err != nil {
		return false, err
	}
	recordRequest(n, wanted, order)
	return true, nil
}

// writeBIOS hands settings over, with the time at which they are to be applied where the BMC wants to be told: without it, iDRAC keeps them
// and never makes a job of them (dell/iDRAC-Redfish-Scripting, issue 84).
func (s *bmcSession) writeBIOS(now, pending *biosDoc, wanted map[string]any) (conversation.Order, error) {
	members := []refusal.Member{{Name: "Attributes", Values: []any{wanted}, Required: true}}
	when := s.conf.facts.fact(quirkApplyTime)
	if when == "" && slices.Contains(now.Settings.SupportedApplyTimes, "OnReset") {
		when = "OnReset"
	}
	if when != "" {
		members = append(members, refusal.Member{Name: "@Redfish.SettingsApplyTime", Values: []any{map[string]any{"ApplyTime": when}}})
	}
	var order conversation.Order
	_, err := refusal.Negotiate(members, func(body map[string]any) (err error) {
		order, err = s.bmc.Patch(pending.path, pending.etag, body)
		return err
	})
	return order, order.Sure(err)
}

// cycle switches the machine off and on, or restarts it where it is not to be switched off.
func (s *bmcSession) cycle(ctx context.Context, n *metal.Node) error {
	if err := s.switchOffToChange(ctx, n); err != nil {
		return err
	}
	return s.startAgain(ctx)
}

// switchOffToChange switches the machine off unless that is forbidden.
func (s *bmcSession) switchOffToChange(ctx context.Context, n *metal.Node) error {
	if n.DisablePowerOff {
		return nil
	}
	return s.setPower(ctx, metal.PowerOff)
}

// startAgain starts the machine, or restarts one that is on, into what the operation has it boot.
func (s *bmcSession) startAgain(ctx context.Context) error {
	if err := driver.BeforeStart(ctx); err != nil {
		return err
	}
	sys, err := s.read()
	if err != nil {
		return err
	}
	if sys.power() == metal.PowerOn {
		return s.single(ctx, resetRestart)
	}
	return s.setPower(ctx, metal.PowerOn)
}

// startedKey is the member of a step's record that says that the machine was started after the request.
const startedKey = "started"

func hasStarted(n *metal.Node, key string) bool {
	record, _ := n.InternalInfo[key].(map[string]any)
	return record[startedKey] == true
}

// startAfterRequest starts the machine so that its firmware takes what the record under key was made for. The request and the start are
// two calls of the step: the record is stored between them, so a start that fails or is cut off is repeated alone. A machine that the
// request has switched off and that is on has started already.
func (s *bmcSession) startAfterRequest(ctx context.Context, n *metal.Node, key string) error {
	sys, err := s.read()
	if err != nil {
		return err
	}
	if sys.power() != metal.PowerOn || n.DisablePowerOff && !hasStarted(n, key) {
		err = s.startAgain(ctx)
	} else {
		err = s.setPower(ctx, metal.PowerOn)
	}
	if err != nil || hasStarted(n, key) {
		return err
	}
	record, _ := n.InternalInfo[key].(map[string]any)
	record = maps.Clone(record)
	record[startedKey], record["at"] = true, time.Now().UTC().Format(time.RFC3339)
	n.SetInternal(key, record)
	return nil
}
