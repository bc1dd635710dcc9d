package redfish

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// A machine's own iSCSI initiator, as DMTF's NetworkDeviceFunction offers it: the BMC is told where the root
// volume is, and the firmware logs in. It holds two paths to one volume.

var _ driver.VolumeBoot = (*Media)(nil)

const (
	targetRemote = "RemoteDrive" // as the Boot object calls a disk on the network
	authNone     = "None"
	authCHAP     = "CHAP"
	authMutual   = "MutualCHAP"
	maxRoads     = 2
)

// networkDeviceFunction is the part of a NetworkDeviceFunction that sets up its initiator.
type networkDeviceFunction struct {
	NetDevFuncType string
	// Boot is nil where the function has no initiator.
	Boot     *iscsiInitiator `json:"iSCSIBoot"`
	Settings struct {
		SettingsObject link.Link
	} `json:"@Redfish.Settings"`
	path, etag string
}

// iscsiInitiator is an iSCSIBoot object. BMCs never show secrets, so those cannot be proved by a read-back.
type iscsiInitiator struct {
	InitiatorName            string
	TargetInfoViaDHCP        bool
	IPMaskDNSViaDHCP         bool
	AuthenticationMethod     string
	CHAPUsername             string
	CHAPSecret               string
	MutualCHAPUsername       string
	MutualCHAPSecret         string
	PrimaryTargetName        string
	PrimaryTargetIPAddress   string
	PrimaryTargetTCPPort     int
	PrimaryLUN               int
	SecondaryTargetName      string
	SecondaryTargetIPAddress string
	SecondaryTargetTCPPort   int
	SecondaryLUN             int

	Methods []string `json:"AuthenticationMethod@Redfish.AllowableValues,omitempty"`
}

// buildInitiator is what an initiator is to be set up with for a plan.
func buildInitiator(v metal.VolumePlan) (iscsiInitiator, error) {
	w := iscsiInitiator{InitiatorName: v.Initiator, IPMaskDNSViaDHCP: true, AuthenticationMethod: authNone}
	if len(v.Others) > 0 {
		return w, problem.Unsupportedf("the BMC's initiator attaches the root volume only, and %d more targets are there; use the boot interface ipxe", len(v.Others))
	}
	if login := v.Root.Login; login.Username != "" {
		w.AuthenticationMethod, w.CHAPUsername, w.CHAPSecret = authCHAP, login.Username, login.Password.Reveal()
	}
	if mutual := v.Root.Mutual; mutual.Username != "" {
		w.AuthenticationMethod, w.MutualCHAPUsername, w.MutualCHAPSecret = authMutual, mutual.Username, mutual.Password.Reveal()
	}
	for i, p := range v.Root.Paths[:min(len(v.Root.Paths), maxRoads)] {
		if _, err := netip.ParseAddr(p.Host); err != nil {
			return w, problem.Invalidf("the BMC's initiator wants the portal's address, not the name %s", p.Host)
		}
		if i == 0 {
			w.PrimaryTargetName, w.PrimaryTargetIPAddress, w.PrimaryTargetTCPPort, w.PrimaryLUN = p.IQN, p.Host, p.Port, p.LUN
			continue
		}
		w.SecondaryTargetName, w.SecondaryTargetIPAddress, w.SecondaryTargetTCPPort, w.SecondaryLUN = p.IQN, p.Host, p.Port, p.LUN
	}
	return w, nil
}

// holds tells whether the BMC shows what was written, but for the secrets.
func (i iscsiInitiator) holds(w iscsiInitiator) bool {
	for _, both := range []*iscsiInitiator{&i, &w} {
		both.CHAPSecret, both.MutualCHAPSecret, both.Methods, both.IPMaskDNSViaDHCP = "", "", nil, false
		if both.SecondaryTargetName == "" {
			both.SecondaryTargetIPAddress, both.SecondaryTargetTCPPort, both.SecondaryLUN = "", 0, 0
		}
		if both.PrimaryTargetName == "" {
			both.PrimaryTargetIPAddress, both.PrimaryTargetTCPPort, both.PrimaryLUN = "", 0, 0
		}
	}
	return i.InitiatorName == w.InitiatorName && i.AuthenticationMethod == w.AuthenticationMethod && i.CHAPUsername == w.CHAPUsername &&
		i.MutualCHAPUsername == w.MutualCHAPUsername &&
		i.PrimaryTargetName == w.PrimaryTargetName && i.PrimaryTargetIPAddress == w.PrimaryTargetIPAddress && i.PrimaryTargetTCPPort == w.PrimaryTargetTCPPort && i.PrimaryLUN == w.PrimaryLUN &&
		i.SecondaryTargetName == w.SecondaryTargetName && i.SecondaryTargetIPAddress == w.SecondaryTargetIPAddress && i.SecondaryTargetTCPPort == w.SecondaryTargetTCPPort && i.SecondaryLUN == w.SecondaryLUN
}

// initiators finds the functions of the system's adapters that boot from iSCSI by themselves.
func (s *bmcSession) initiators() ([]*networkDeviceFunction, error) {
	if _, err := s.read(); err != nil {
		return nil, err
	}
	var doc struct{ NetworkInterfaces link.Link }
	if _, err := s.bmc.Get(s.system, &doc); err != nil {
		return nil, err
	}
	var lists []link.Link
	err := forEachMember(s, doc.NetworkInterfaces, func(nic struct{ NetworkDeviceFunctions link.Link }) {
		if nic.NetworkDeviceFunctions.Path != "" {
			lists = append(lists, nic.NetworkDeviceFunctions)
		}
	})
	first := err
	var out []*networkDeviceFunction
	for _, list := range lists {
		_, err := conversation.Each(s.bmc, list, maxParts, func(path, etag string, f *networkDeviceFunction) {
			if f.path, f.etag = path, etag; f.Boot != nil {
				out = append(out, f)
			}
		})
		first = cmp.Or(first, err)
	}
	if len(out) == 0 {
		return nil, first
	}
	return out, s.bmc.LeaveOut(first)
}

func (s *bmcSession) function(path string) (*networkDeviceFunction, error) {
	f := &networkDeviceFunction{path: path}
	etag, err := s.bmc.Get(path, f)
	f.etag = etag
	return f, err
}

// able picks the function to set up and holds the plan to what it offers.
func (s *bmcSession) able(v metal.VolumePlan) (*networkDeviceFunction, iscsiInitiator, error) {
	want, err := buildInitiator(v)
	if err != nil {
		return nil, want, err
	}
	all, err := s.initiators()
	if err != nil {
		return nil, want, err
	}
	if len(all) == 0 {
		return nil, want, s.bmc.Lacking(problem.Unsupportedf("the BMC offers no iSCSI initiator of the machine's own (NetworkDeviceFunction with iSCSIBoot); use the boot interface ipxe"))
	}
	// One that was set up before is used again: two of them would both log in.
	chosen := all[0]
	for _, f := range all {
		if f.Boot.PrimaryTargetName != "" {
			chosen = f
			break
		}
	}
	if methods := chosen.Boot.Methods; len(methods) > 0 && !slices.Contains(methods, want.AuthenticationMethod) {
		return nil, want, problem.Unsupportedf("the machine's initiator cannot do %s, only %s", want.AuthenticationMethod, s.bmc.Quote(strings.Join(methods, ", ")))
	}
	return chosen, want, nil
}

// setUp writes an initiator and proves it by a read-back.
func (s *bmcSession) setUp(ctx context.Context, f *networkDeviceFunction, want iscsiInitiator, kind string) error {
	want.Methods = nil
	s.bmc.Hide(want.CHAPSecret, want.MutualCHAPSecret)
	body := map[string]any{"iSCSIBoot": want}
	if f.NetDevFuncType != "" && f.NetDevFuncType != kind {
		body["NetDevFuncType"] = kind
	}
	at := patchTarget{path: f.path, etag: f.etag, settings: f.Settings.SettingsObject.Path}
	order, err := s.patchEither(&at, body)
	if err != nil {
		return err
	}
	done, err := s.bmc.Prove(ctx, order, func(context.Context) (bool, error) {
		path := f.path
		if at.onlySettings {
			path = at.settings
		}
		now, err := s.function(path)
		return err == nil && now.Boot != nil && now.Boot.holds(want), err
	})
	if done || err != nil {
		return err
	}
	return problem.Unavailablef("%s, but the initiator shows other settings", s.bmc.Taken(order))
}

// CheckVolumes asks whether the BMC has an initiator for these volumes; fibre channel is the adapter's own affair.
func (m *Media) CheckVolumes(ctx context.Context, n *metal.Node, v metal.VolumePlan) error {
	if v.Root.Type != metal.ISCSI {
		return nil
	}
	return m.Driver.with(ctx, n, "look for an initiator", func(s *bmcSession) error {
		_, _, err := s.able(v)
		return err
	})
}

// PlanVolumes is nothing: the firmware finds its volume without us.
func (m *Media) PlanVolumes(*metal.Node, []*metal.Port, metal.VolumePlan, int64) (*metal.BootPlan, error) {
	return nil, nil
}

// PrepareVolumes sets the initiator up and the disk that it shows as the boot device for good.
func (m *Media) PrepareVolumes(ctx context.Context, n *metal.Node, v metal.VolumePlan) error {
	if v.Root.Type != metal.ISCSI {
		return m.Driver.SetBootDevice(ctx, n, driver.BootsFrom(n))
	}
	return m.Driver.with(ctx, n, "set up the initiator", func(s *bmcSession) error {
		f, want, err := s.able(v)
		if err != nil {
			return err
		}
		if err := s.setUp(ctx, f, want, "iSCSI"); err != nil {
			return err
		}
		return s.bootRemote(ctx, n)
	})
}

// bootRemote boots from the network disk by its own name, or, where the BMC has none, as from a disk.
func (s *bmcSession) bootRemote(ctx context.Context, n *metal.Node) error {
	sys, err := s.read()
	if err != nil {
		return err
	}
	if !slices.Contains(sys.Boot.Allowed, targetRemote) {
		return s.setBoot(ctx, driver.BootsFrom(n))
	}
	want := bootOverrides{Target: targetRemote, Enabled: enabledForever}
	if mode := modeOf(driver.BootMode(n)); mode != "" && sys.Boot.Mode != "" && sys.Boot.Mode != mode {
		want.Mode = mode
	}
	return s.override(ctx, sys, want)
}

// RefreshVolumes writes the targets as they are now.
func (m *Media) RefreshVolumes(ctx context.Context, n *metal.Node, v metal.VolumePlan) error {
	if v.Root.Type != metal.ISCSI {
		return nil
	}
	return m.Driver.with(ctx, n, "set up the initiator", func(s *bmcSession) error {
		f, want, err := s.able(v)
		if err != nil {
			return err
		}
		return s.setUp(ctx, f, want, "iSCSI")
	})
}

// CleanUpVolumes empties every initiator that was set up, its secrets too.
func (m *Media) CleanUpVolumes(ctx context.Context, n *metal.Node) error {
	return m.Driver.with(ctx, n, "clear the initiator", func(s *bmcSession) error {
		all, err := s.initiators()
		if err != nil {
			return err
		}
		for _, f := range all {
			if f.Boot.PrimaryTargetName == "" && f.Boot.CHAPUsername == "" {
				continue
			}
			if err := s.setUp(ctx, f, iscsiInitiator{AuthenticationMethod: authNone, IPMaskDNSViaDHCP: true}, f.NetDevFuncType); err != nil {
				return err
			}
		}
		return s.setBoot(ctx, rescue.Boot{})
	})
}
