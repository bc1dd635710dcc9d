package conductor

import (
	"context"
	"encoding/json"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

const asked = "asking changes nothing"

// setBootDevice is the command behind PUT management/boot_device.
func (c *Conductor) setBootDevice() job.Definition {
	return job.Definition{Kind: "set boot device", Version: 1, Class: job.Command, Actions: []job.Action{
		{Name: "set", NoUndo: "a user's command is not taken back", Do: c.act(func(ctx context.Context, r *job.Run, m *machine) job.Outcome {
			if m.manage == nil {
				return job.Fail(m.lacks("management"))
			}
			var a metal.BootDeviceArgs
			if err := json.Unmarshal(r.Args, &a); err != nil {
				return job.Fail(problem.Invalidf("boot device: %w", err))
			}
			return job.From(m.manage.SetBootDevice(ctx, m.node, a.Boot))
		})},
	}}
}

// getBootDevice answers with a rescue.Boot.
func (c *Conductor) getBootDevice() job.Definition {
	return c.ask("get boot device", func(ctx context.Context, m *machine) (any, error) {
		return m.manage.BootDevice(ctx, m.node)
	})
}

// listBootDevices answers with the words that the machine takes.
func (c *Conductor) listBootDevices() job.Definition {
	return c.ask("supported boot devices", func(ctx context.Context, m *machine) (any, error) {
		return m.manage.BootDevices(ctx, m.node)
	})
}

func (c *Conductor) ask(kind job.Kind, question func(context.Context, *machine) (any, error)) job.Definition {
	return job.Definition{Kind: kind, Version: 1, Class: job.Ask, Actions: []job.Action{
		{Name: "ask", NoUndo: asked, Deadline: driver.CallTimeout, Do: c.act(func(ctx context.Context, r *job.Run, m *machine) job.Outcome {
			if m.manage == nil {
				return job.Fail(m.lacks("management"))
			}
			answer, err := question(ctx, m)
			if err != nil {
				return job.Fail(err)
			}
			return job.Answer(answer)
		})},
	}}
}
