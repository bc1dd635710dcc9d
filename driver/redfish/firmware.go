package redfish

import (
	"cmp"
	"context"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/metal"
	"salvor/problem"
)

// Firmware is the firmware interface: the versions of BIOS, BMC and NICs.
type Firmware struct{ Driver *Driver }

var (
	_ driver.Firmware      = Firmware{}
	_ driver.StepRunner    = Firmware{}
	_ driver.StepForgetter = Firmware{}
	_ driver.StepParts     = Firmware{}
)

// Components reads the versions that the system, its managers and its adapters tell.
func (f Firmware) Components(ctx context.Context, n *metal.Node) (out []metal.FirmwareComponent, err error) {
	err = f.Driver.with(ctx, n, "read firmware", func(s *bmcSession) error {
		out, err = s.components()
		return err
	})
	return out, err
}

func (s *bmcSession) components() (out []metal.FirmwareComponent, err error) {
	add := func(name, version string, of manufacturerInfo) {
		if version != "" {
			out = append(out, metal.FirmwareComponent{Component: name, InitialVersion: version, CurrentVersion: version, Vendor: of.Manufacturer, Model: of.Model, SerialNumber: of.SerialNumber})
		}
	}
	sys, err := s.read()
	if err != nil {
		return nil, err
	}
	var bios struct {
		BiosVersion string
		manufacturerInfo
	}
	if _, err := s.bmc.Get(s.system, &bios); err != nil {
		return nil, err
	}
	add("bios", bios.BiosVersion, bios.manufacturerInfo)
	_, err = conversation.EachOf(s.bmc, sys.Links.ManagedBy[:min(len(sys.Links.ManagedBy), 1)], func(_, _ string, bmc *struct {
		FirmwareVersion string
		manufacturerInfo
	}) {
		add("bmc", bmc.FirmwareVersion, bmc.manufacturerInfo)
	})
	if err := s.bmc.LeaveOut(err); err != nil {
		return out, err
	}
	return out, s.bmc.LeaveOut(s.adapters(sys, add))
}

// Steps are those that Ironic has.
func (f Firmware) Steps(context.Context, *metal.Node) ([]driver.Step, error) {
	return driver.FirmwareSteps, nil
}

// RunStep updates the firmware of components. A BMC that works on it is asked again by and by.
func (f Firmware) RunStep(ctx context.Context, n *metal.Node, step metal.Step) (wait bool, err error) {
	err = f.Driver.with(ctx, n, "step "+driver.Sanitize(step.Interface+"."+step.Step), func(s *bmcSession) error {
		if step.Step != "update" {
			return problem.Invalidf("there is no such step")
		}
		images, err := driver.WantedUpdates(step)
		if err != nil {
			return err
		}
		wait, err = s.update(ctx, n, images)
		return err
	})
	return wait, err
}

// ForgetStep has the images handed over anew.
func (f Firmware) ForgetStep(n *metal.Node) { recordUpdate(n, nil) }

// StepPart is the image in work.
func (f Firmware) StepPart(n *metal.Node) string { return imageInWork(n) }

// manufacturerInfo says who made a part.
type manufacturerInfo struct{ Manufacturer, Model, SerialNumber string }

// adapters tells of the network adapters of the system's chassis.
func (s *bmcSession) adapters(sys *computerSystem, add func(name, version string, of manufacturerInfo)) error {
	var lists []link.Link
	_, first := conversation.EachOf(s.bmc, sys.Links.Chassis[:min(len(sys.Links.Chassis), maxParts)], func(_, _ string, chassis *struct{ NetworkAdapters link.Link }) {
		lists = append(lists, chassis.NetworkAdapters)
	})
	for _, list := range lists {
		err := forEachMember(s, list, func(a struct {
			ID          string `json:"Id"`
			Controllers []struct{ FirmwarePackageVersion string }
			manufacturerInfo
		}) {
			if len(a.Controllers) > 0 {
				add("nic:"+a.ID, a.Controllers[0].FirmwarePackageVersion, a.manufacturerInfo)
			}
		})
		first = cmp.Or(first, err)
	}
	return first
}

// upkeep are the steps of the management interface.
var upkeep = []driver.Step{
	{Interface: "management", Name: "clear_job_queue"}, {Interface: "management", Name: "reset_bmc"},
	{Interface: "management", Name: driver.UpdateFirmware, Restarts: true, ArgsInfo: map[string]driver.ArgInfo{
		"firmware_images": {Description: "A list of images, each an object with url. The BMC fetches them one after the other.", Required: true},
	}},
}

var (
	_ driver.StepRunner    = (*Driver)(nil)
	_ driver.StepForgetter = (*Driver)(nil)
	_ driver.StepParts     = (*Driver)(nil)
)

// ForgetStep has images of firmware handed over anew.
func (d *Driver) ForgetStep(n *metal.Node) { recordUpdate(n, nil) }

// StepPart is the image in work.
func (d *Driver) StepPart(n *metal.Node) string { return imageInWork(n) }

// Steps are those of a BMC's own upkeep.
func (d *Driver) Steps(context.Context, *metal.Node) ([]driver.Step, error) { return upkeep, nil }

// RunStep does one of them. A BMC that restarts does not answer for a while; whoever asks it next tries until it does.
func (d *Driver) RunStep(ctx context.Context, n *metal.Node, step metal.Step) (wait bool, err error) {
	err = d.with(ctx, n, "step "+driver.Sanitize(step.Interface+"."+step.Step), func(s *bmcSession) error {
		switch step.Step {
		case "clear_job_queue":
			return s.clearJobs()
		case "reset_bmc":
			return s.resetManager()
		case driver.UpdateFirmware:
			images, err := driver.WantedImages(step)
			if err != nil {
				return err
			}
			wait, err = s.update(ctx, n, images)
			return err
		}
		return problem.Invalidf("there is no such step")
	})
	return wait, err
}

// clearJobs deletes what the job service keeps.
func (s *bmcSession) clearJobs() error {
	var top struct{ JobService link.Link }
	if _, err := s.bmc.Get(conversation.RootPath, &top); err != nil {
		return err
	}
	if top.JobService.Path == "" {
		return problem.Unsupportedf("the BMC has no job service: %s links to none", conversation.RootPath)
	}
	var service struct{ Jobs link.Link }
	if _, err := s.bmc.Get(top.JobService.Path, &service); err != nil {
		return err
	}
	if service.Jobs.Path == "" {
		return nil
	}
	all, err := s.bmc.Members(service.Jobs.Path, maxParts)
	if err != nil {
		return err
	}
	var first error
	for _, one := range all {
		order, err := s.bmc.Delete(one.Path)
		if err = order.Sure(err); err != nil && first == nil {
			first = problem.New(problem.KindOf(err), "delete %s: %w", s.bmc.Quote(one.Path), err)
		}
	}
	return first
}

// resetManager restarts the BMC itself. It may be cut off by that, which is no failure.
func (s *bmcSession) resetManager() error {
	sys, err := s.read()
	if err != nil {
		return err
	}
	if len(sys.Links.ManagedBy) == 0 {
		return problem.Unsupportedf("the BMC does not say which manager is the machine's")
	}
	var manager struct {
		Actions struct {
			Reset struct {
				Target  string   `json:"target"`
				Allowed []string `json:"ResetType@Redfish.AllowableValues"`
			} `json:"#Manager.Reset"`
		}
	}
	if _, err := s.bmc.Get(sys.Links.ManagedBy[0].Path, &manager); err != nil {
		return err
	}
	reset := manager.Actions.Reset
	if reset.Target == "" {
		return problem.Unsupportedf("the BMC offers no reset of itself")
	}
	kind := "GracefulRestart"
	if len(reset.Allowed) > 0 {
		kind = reset.Allowed[0]
		for _, allowed := range reset.Allowed {
			if allowed == "GracefulRestart" {
				kind = allowed
			}
		}
	}
	_, err = s.bmc.Post(reset.Target, map[string]string{"ResetType": kind})
	return err
}
