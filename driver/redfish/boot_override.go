package redfish

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/refusal"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// bootOverrides are the Boot members that are wanted; what is empty is left alone.
type bootOverrides struct {
	Target, Enabled, Mode, HTTPBootURI string
}

// clearTimeout is how long a BMC has to show that an override is gone. A BMC that keeps showing it does no harm: see clearBoot.
const clearTimeout = 5 * time.Second

// SetBootDevice sets or removes the override and reads it back.
func (d *Driver) SetBootDevice(ctx context.Context, n *metal.Node, b rescue.Boot) error {
	return d.with(ctx, n, "set boot device", func(s *bmcSession) error { return s.setBoot(ctx, b) })
}

// SetHTTPBoot has the firmware fetch a URL at its next boot. Where the BMC cannot hold
// the URL, DHCP must give it; where it has no such target, the machine's ordinary
// network boot is set, in which UEFI firmware tries HTTP too.
func (d *Driver) SetHTTPBoot(ctx context.Context, n *metal.Node, url string) error {
	return d.with(ctx, n, "set HTTP boot", func(s *bmcSession) error {
		sys, err := s.readBoot()
		if err != nil {
			return err
		}
		if len(sys.Boot.Allowed) > 0 && !slices.Contains(sys.Boot.Allowed, targetHTTP) {
			return s.setBoot(ctx, rescue.Boot{Device: "pxe", Mode: "uefi"})
		}
		want := bootOverrides{Target: targetHTTP, Enabled: enabledOnce, Mode: sys.Boot.changedMode("uefi")}
		if sys.Boot.HTTPBootURI != nil {
			want.HTTPBootURI = url
		}
		return s.override(ctx, sys, want)
	})
}

// changedMode is the BMC's word for a mode, or empty where the mode is so already or cannot be set: many BMCs refuse it beside a target.
func (b systemBoot) changedMode(word string) string {
	mode := modeOf(word)
	if b.Mode == "" || b.Mode == mode {
		return ""
	}
	return mode
}

func (s *bmcSession) setBoot(ctx context.Context, b rescue.Boot) error {
	sys, err := s.readBoot()
	if err != nil {
		return err
	}
	mode := sys.Boot.changedMode(b.Mode)
	if b.Device == "" {
		return s.clearBoot(ctx, sys, mode)
	}
	target, err := sys.Boot.targetOf(b.Device, s.conf.facts.fact(quirkCDTarget))
	if err != nil {
		return err
	}
	if b.Device == "cdrom" && s.conf.facts.fact(quirkCDBoot) == "idrac" {
		if mode != "" {
			if err := s.override(ctx, sys, bootOverrides{Mode: mode}); err != nil {
				return err
			}
		}
		return s.setVirtualCD(ctx, sys, b.Persistent)
	}
	want := bootOverrides{Target: target, Enabled: enabledOnce, Mode: mode}
	if b.Persistent {
		want.Enabled = enabledForever
	}
	return s.override(ctx, sys, want)
}

// iDRAC's own attributes of the boot device (openstack/sushy, sushy/oem/dell/resources/manager/manager.py: IDRAC_CONFIG_CD).
const (
	dellFirstBoot = "ServerBoot.1.FirstBootDevice"
	dellBootOnce  = "ServerBoot.1.BootOnce"
	dellVirtualCD = "VCD-DVD"
)

// setVirtualCD has an iDRAC that takes the target Cd for the physical drive boot from the virtual one.
func (s *bmcSession) setVirtualCD(ctx context.Context, sys *computerSystem, persistent bool) error {
	if len(sys.Links.ManagedBy) == 0 {
		return problem.Unsupportedf("the BMC does not say which manager is the machine's")
	}
	path := strings.TrimRight(sys.Links.ManagedBy[0].Path, "/") + "/Attributes"
	type attributes struct{ Attributes map[string]any }
	var now attributes
	etag, err := s.bmc.Get(path, &now)
	if err != nil {
		return err
	}
	once := "Enabled"
	if persistent {
		once = "Disabled"
	}
	order, err := s.bmc.Patch(path, etag, attributes{map[string]any{dellFirstBoot: dellVirtualCD, dellBootOnce: once}})
	if err != nil {
		return err
	}
	done, err := s.bmc.Prove(ctx, order, func(context.Context) (bool, error) {
		now = attributes{}
		_, err := s.bmc.Get(path, &now)
		return now.Attributes[dellFirstBoot] == dellVirtualCD, err
	})
	if done || err != nil {
		return err
	}
	return problem.Unavailablef("%s, %w: %s still reads %s", s.bmc.Taken(order), errNotShown, dellFirstBoot, s.bmc.Quote(metal.Text(now.Attributes[dellFirstBoot])))
}

// readBoot reads the system, with the allowed values of its settings resource where it has none itself: some BMCs have them only there.
func (s *bmcSession) readBoot() (*computerSystem, error) {
	sys, err := s.read()
	if err != nil {
		return nil, err
	}
	known := len(sys.Boot.Allowed) > 0 && s.conf.facts.fact(quirkBootPlace) != "settings"
	if known || sys.Settings.SettingsObject.Path == "" {
		return sys, nil
	}
	var pending computerSystem
	if _, err := s.bmc.Get(sys.Settings.SettingsObject.Path, &pending); err != nil {
		return sys, nil // it is no more than a hint
	}
	if len(pending.Boot.Allowed) > 0 || s.conf.facts.fact(quirkBootPlace) == "settings" {
		sys.onlySettings = true
		if len(pending.Boot.Allowed) > 0 {
			sys.Boot.Allowed, sys.Boot.AllowedEnabled = pending.Boot.Allowed, pending.Boot.AllowedEnabled
		}
	}
	return sys, nil
}

// clearBoot removes the override, and is content with less: an override that stays does no harm, for the media are out, and a device that
// boots nothing falls through to the next. What is left is a note. An error means that the BMC did not answer, or that it may do so later.
func (s *bmcSession) clearBoot(ctx context.Context, sys *computerSystem, mode string) error {
	ways := []bootOverrides{
		{Target: targetNone, Enabled: enabledNever, Mode: mode},
		{Enabled: enabledNever, Mode: mode},
		{Target: "Hdd", Enabled: enabledOnce, Mode: mode},
	}
	if len(sys.Boot.Allowed) > 0 && !slices.Contains(sys.Boot.Allowed, "Hdd") {
		ways = ways[:2]
	}
	var first error
	for _, want := range ways {
		err := s.overrideWithin(ctx, clearTimeout, sys, want)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		case errors.Is(err, errNotShown):
		case refusal.StatusOf(err) == 0 || refusal.IsForNow(err) || errors.Is(err, driver.ErrLogin):
			return err
		}
		if first == nil {
			first = err
		}
	}
	driver.Note(ctx, "the boot override of the BMC cannot be removed: %v; without its medium the machine falls through to the next boot device", first)
	return nil
}

// errNotShown is the error of an order that the BMC does not show.
var errNotShown = errors.New("but the boot device is not as ordered")

// proofTimeout is longer than any BMC is waited for: the context of the operation bounds a proof.
const proofTimeout = time.Hour

// override writes the Boot object and reads it back. The answer and the target are proof. Another frequency is a note: it is a constant on
// some BMCs, and harmless.
func (s *bmcSession) override(ctx context.Context, sys *computerSystem, want bootOverrides) error {
	return s.overrideWithin(ctx, proofTimeout, sys, want)
}

// overrideWithin is override where the BMC has so long to show what was written. The time begins when the BMC has answered, because some take half a
// minute for an order.
func (s *bmcSession) overrideWithin(ctx context.Context, limit time.Duration, sys *computerSystem, want bootOverrides) error {
	if !sys.onlySettings && sys.Boot.holds(want) && want.HTTPBootURI == "" && (want.Target == "" || want.Target == targetNone || sys.Boot.Enabled == want.Enabled) {
		return nil
	}
	sent, order, err := s.writeBoot(sys, want)
	if want.Mode != "" && want.Target != "" && refusal.IsOfBody(err) {
		// Some take the mode and the target, but not both at once.
		if _, _, err2 := s.writeBoot(sys, bootOverrides{Mode: want.Mode}); err2 == nil {
			rest := want
			rest.Mode = ""
			sent, order, err = s.writeBoot(sys, rest)
		}
	}
	if err != nil {
		return err
	}
	if sent == enabledOnce && want.Enabled == enabledForever {
		driver.Note(ctx, "the BMC sets a boot device for one boot only: %s holds for the next boot", want.Target)
	}
	last := sys.Boot
	began, isLate := time.Now(), false
	var lateErr error
	done, err := s.bmc.Prove(ctx, order, func(context.Context) (bool, error) {
		done, err := s.shows(want, &last)
		if isLate = !done && time.Since(began) > limit; isLate { // after one look at least, because a look at some takes half a minute
			lateErr = err
			return true, nil
		}
		return done, err
	})
	if isLate {
		done, err = false, lateErr
	}
	switch {
	case !done && err == nil && order.Unsure != nil:
		return problem.Unavailablef("%s, and the boot device is not as ordered: it still reads %s", s.bmc.Taken(order), s.bmc.Reading(strings.TrimSpace(last.Enabled+" "+last.Target)))
	case !done && err == nil:
		return problem.Unavailablef("%s, %w: it still reads %s", s.bmc.Taken(order), errNotShown, s.bmc.Reading(strings.TrimSpace(last.Enabled+" "+last.Target)))
	case err == nil && last.holds(want) && sent != "" && sent != enabledNever && last.Enabled != sent:
		driver.Note(ctx, "the BMC was told to boot from %s with frequency %s and reads %s", want.Target, sent, s.bmc.Quote(last.Enabled))
	}
	return err
}

// shows tells whether the system or its settings resource has the overrides that are wanted. It sets now to those of the system.
func (s *bmcSession) shows(want bootOverrides, now *systemBoot) (bool, error) {
	sys, err := s.read()
	if err != nil {
		return false, err
	}
	if *now = sys.Boot; now.holds(want) {
		return true, nil
	}
	pending := sys.Settings.SettingsObject.Path
	if pending == "" {
		return false, nil
	}
	var doc computerSystem
	if _, err := s.bmc.Get(pending, &doc); err != nil {
		return false, err
	}
	doc.Boot.useStandardWords()
	return doc.Boot.holds(want), nil
}

// writeBoot writes the Boot object, at the settings resource where the BMC takes it only there. enabled is the frequency that was taken.
func (s *bmcSession) writeBoot(sys *computerSystem, want bootOverrides) (enabled string, order conversation.Order, err error) {
	var members []refusal.Member
	add := func(name string, values ...any) {
		members = append(members, refusal.Member{Name: "BootSourceOverride" + name, Values: values, Required: true})
	}
	if want.Target != "" {
		add("Target", want.Target)
	}
	if want.Enabled != "" {
		add("Enabled", sys.Boot.frequencies(want.Enabled, s.conf.facts.list(quirkBootEnabled))...)
	}
	switch {
	case want.Mode != "":
		add("Mode", want.Mode)
	case sys.Boot.Mode != "" && want.Target != "":
		members = append(members, refusal.Member{Name: "BootSourceOverrideMode", Values: []any{sys.Boot.Mode}, // some take the three only together
			OnDemand: s.conf.facts.fact(quirkBootBody) != "full"})
	}
	if want.HTTPBootURI != "" {
		members = append(members, refusal.Member{Name: "HttpBootUri", Values: []any{want.HTTPBootURI}, Required: true})
	}
	body, err := refusal.Negotiate(members, func(boot map[string]any) (err error) {
		order, err = s.patchEither(&sys.patchTarget, map[string]any{"Boot": boot})
		return err
	})
	enabled, _ = body["BootSourceOverrideEnabled"].(string)
	return enabled, order, err
}

// frequencies are the values of BootSourceOverrideEnabled for a wanted one, the preferred first, of those that the BMC allows. known are
// those that its quirks allow; empty: it says so itself.
func (b systemBoot) frequencies(want string, known []string) []any {
	if len(known) == 0 {
		known = b.AllowedEnabled
	}
	all := map[string][]any{enabledOnce: {enabledOnce, enabledForever}, enabledForever: {enabledForever, enabledOnce}}[want]
	allowed := slices.DeleteFunc(slices.Clone(all), func(v any) bool { return !slices.Contains(known, v.(string)) })
	switch {
	case all == nil:
		return []any{want}
	case len(allowed) == 0: // it does not say, or says nothing of use
		return all
	}
	return allowed
}

// patchTarget is a resource that is changed directly, or through its settings resource.
type patchTarget struct {
	path, etag string
	settings   string // path of the settings resource; empty: there is none
	// onlySettings: the BMC takes changes at the settings resource alone.
	onlySettings bool
}

// patchEither changes a resource, or its settings resource where the BMC takes the change only there.
func (s *bmcSession) patchEither(at *patchTarget, body any) (conversation.Order, error) {
	var first error
	if !at.onlySettings {
		order, err := s.bmc.Patch(at.path, at.etag, body)
		if at.settings == "" || !refusal.IsForGood(err) {
			return order, err
		}
		first = err
	}
	var doc struct{}
	var order conversation.Order
	etag, err := s.bmc.Get(at.settings, &doc)
	if err == nil {
		order, err = s.bmc.Patch(at.settings, etag, body)
	}
	elsewhere := at.onlySettings || problem.Is(first, problem.Unsupported) || refusal.IsElsewhere(first)
	if err == nil || elsewhere || !refusal.IsForGood(err) {
		at.onlySettings = err == nil || elsewhere
		return order, err
	}
	return order, first
}

// holds tells whether the target and the mode that are wanted are in force, however often.
func (b systemBoot) holds(want bootOverrides) bool {
	gone := b.Enabled == enabledNever || b.Target == targetNone || b.Target == ""
	switch {
	case want.Mode != "" && b.Mode != want.Mode:
		return false
	case want.Enabled == "" && want.Target == "":
		return true
	case want.Enabled == enabledNever:
		return gone
	}
	return !gone && b.Target == want.Target
}
