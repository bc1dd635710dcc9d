package lab

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"salvor/problem"
)

// This file holds what Redfish clients change.

// bootTargets is Redfish's name of each boot device.
var bootTargets = map[Device]string{
	DeviceDefault: "None", DevicePXE: "Pxe", DeviceDisk: "Hdd", DeviceCD: "Cd", DeviceHTTP: "UefiHttp", DeviceVolume: "RemoteDrive",
}

// resetActions is what each ResetType of Redfish does here.
var resetActions = map[string]Action{
	"On": ActionOn, "ForceOn": ActionOn,
	"ForceOff": ActionOff, "GracefulShutdown": ActionShutdown,
	"ForceRestart": ActionRestart, "GracefulRestart": ActionRestart, "PowerCycle": ActionRestart,
	"Nmi": ActionNMI,
}

func (b *redfishBMC) reset(w http.ResponseWriter, r *http.Request) {
	var req struct{ ResetType string }
	if !decodeJSONBody(w, r, &req) {
		return
	}
	action, known := resetActions[req.ResetType]
	if !known {
		redfishError(w, http.StatusBadRequest, "Base.1.8.ActionParameterNotSupported", "ResetType "+req.ResetType+" is not one of "+strings.Join(resetTypes(), ", "))
		return
	}
	// A BMC that took an order carries it out, whether the asker stays on the line or not.
	if err := b.chassis.Do(context.WithoutCancel(r.Context()), action); err != nil {
		b.fail(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// fail answers an error of the machine by its kind.
func (b *redfishBMC) fail(w http.ResponseWriter, err error) {
	switch problem.KindOf(err) {
	case problem.Conflict:
		redfishError(w, http.StatusConflict, "Base.1.8.ResourceInUse", err.Error())
	case problem.Invalid:
		redfishError(w, http.StatusBadRequest, "Base.1.8.PropertyValueNotInList", err.Error())
	case problem.Unavailable:
		// The shape in which real BMCs complain of an image that they cannot fetch.
		redfishError(w, http.StatusBadRequest, "Base.1.8.ResourceAtUriUnauthorized", err.Error())
	default:
		b.log.Error("redfish", "err", err)
		redfishError(w, http.StatusInternalServerError, "Base.1.8.InternalError", err.Error())
	}
}

// bootPatch is the part of a system that can be changed; nil means untouched.
type bootPatch struct {
	Boot *struct {
		Enabled *string `json:"BootSourceOverrideEnabled"`
		Target  *string `json:"BootSourceOverrideTarget"`
		Mode    *string `json:"BootSourceOverrideMode"`
		URI     *string `json:"HttpBootUri"`
	} `json:"Boot"`
}

func (b *redfishBMC) patchSystem(w http.ResponseWriter, r *http.Request) {
	var patch bootPatch
	if !decodeJSONBody(w, r, &patch) {
		return
	}
	if patch.Boot == nil {
		redfishError(w, http.StatusBadRequest, "Base.1.8.PropertyMissing", "only Boot of a system can be changed")
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != "*" && strings.TrimPrefix(match, "W/") != etagOf(b.bootObject()) {
		redfishError(w, http.StatusPreconditionFailed, "Base.1.8.PreconditionFailed", "the resource has changed since it was read")
		return
	}
	override, firmware, err := patch.apply(b.chassis.Override(), b.firmware.Firmware())
	if err != nil {
		b.fail(w, err)
		return
	}
	b.firmware.SetFirmware(firmware)
	b.chassis.SetOverride(override)
	w.WriteHeader(http.StatusNoContent)
}

// apply gives the override and firmware that a patch makes of the present ones.
func (p bootPatch) apply(o Override, f Firmware) (Override, Firmware, error) {
	if p.Boot.Mode != nil {
		switch *p.Boot.Mode {
		case "Legacy":
			f = BIOS
		case "UEFI":
			f = UEFI
		default:
			return o, f, problem.Invalidf("BootSourceOverrideMode %q: want Legacy or UEFI", *p.Boot.Mode)
		}
	}
	if p.Boot.URI != nil {
		if err := validBootURI(*p.Boot.URI); err != nil {
			return o, f, err
		}
		o.URI = *p.Boot.URI
	}
	if p.Boot.Target != nil {
		device, err := deviceOf(*p.Boot.Target)
		if err != nil {
			return o, f, err
		}
		o.Device = device
	}
	if p.Boot.Enabled != nil {
		switch *p.Boot.Enabled {
		case "Disabled":
			o.Device = DeviceDefault
		case "Once":
			o.Persist = false
		case "Continuous":
			o.Persist = true
		default:
			return o, f, problem.Invalidf("BootSourceOverrideEnabled %q: want Disabled, Once or Continuous", *p.Boot.Enabled)
		}
	}
	if o.Device == DeviceHTTP && f != UEFI {
		return o, f, problem.Invalidf("BootSourceOverrideTarget UefiHttp: the machine boots in Legacy mode")
	}
	return o, f, nil
}

func deviceOf(target string) (Device, error) {
	for device, name := range bootTargets {
		if name == target {
			return device, nil
		}
	}
	return "", problem.Invalidf("BootSourceOverrideTarget %q: want None, Pxe, Hdd, Cd or UefiHttp", target)
}

func validBootURI(uri string) error {
	if uri == "" {
		return nil
	}
	u, err := url.Parse(uri)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || len(uri) > maxBootURI {
		return problem.Invalidf("HttpBootUri %q: want an http or https URL of up to %d bytes", uri, maxBootURI)
	}
	return nil
}

func (b *redfishBMC) insertMedia(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Image    string
		Inserted *bool
	}
	if !decodeJSONBody(w, r, &req) {
		return
	}
	if req.Image == "" {
		redfishError(w, http.StatusBadRequest, "Base.1.8.ActionParameterMissing", "Image is missing")
		return
	}
	// Real BMCs differ here; the stricter kind finds more mistakes: eject before inserting another.
	if image := b.drive.Image(); image != "" && image != req.Image {
		redfishError(w, http.StatusConflict, "Base.1.8.ResourceInUse", "other media are inserted: eject them first")
		return
	}
	if err := b.drive.Insert(r.Context(), req.Image); err != nil {
		b.fail(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (b *redfishBMC) ejectMedia(w http.ResponseWriter, r *http.Request) {
	if err := b.drive.Eject(context.WithoutCancel(r.Context())); err != nil && !errors.Is(err, context.Canceled) {
		b.fail(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
