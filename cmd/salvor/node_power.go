package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/wire/ironic"
)

func newNodeMaintenanceCommand(e *kit.Endpoint) *cobra.Command {
	var reason string
	set := &cobra.Command{
		Use: "set NODE...", Short: "Put nodes into maintenance: salvor leaves them alone",
		Example: `  salvor node maintenance set rack1-7 --reason "new disk on Tuesday"
  salvor node maintenance set --where conductor-group=rack7 --reason "new switch"`,
		RunE: e.Run(func(c *kit.Call) error {
			return eachNode(c, "", "%s: in maintenance", func(ident string) error { return c.API.SetMaintenance(c.Context(), ident, reason) })
		}),
	}
	set.Flags().StringVar(&reason, "reason", "", "why")
	unset := &cobra.Command{
		Use: "unset NODE...", Short: "End the maintenance of nodes",
		Example: "  salvor node maintenance unset rack1-7",
		RunE: e.Run(func(c *kit.Call) error {
			return eachNode(c, "", "%s: out of maintenance", func(ident string) error { return c.API.UnsetMaintenance(c.Context(), ident) })
		}),
	}
	selectNodes(set)
	selectNodes(unset)
	cmd := &cobra.Command{Use: "maintenance", Short: "Put nodes into maintenance, or end it"}
	cmd.AddCommand(set, unset)
	return cmd
}

// powerOptions is what the power commands share.
type powerOptions struct {
	soft    bool
	timeout int
	wait    waitOption
}

func (p *powerOptions) command(e *kit.Endpoint, use, short, example, hard, soft string, result string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " NODE...", Short: short, Example: example,
		RunE: e.Run(func(c *kit.Call) error {
			request := ironic.PowerRequest{Target: hard}
			if p.soft {
				request.Target = soft
			}
			if c.Flags().Changed("power-timeout") {
				if p.timeout < 1 {
					return kit.UsageErrorf(c.Command, "--power-timeout %d: want at least 1", p.timeout)
				}
				request.Timeout = &p.timeout
			}
			if err := p.wait.check(c); err != nil {
				return err
			}
			err := eachNode(c, "", "%s: accepted: "+request.Target, func(ident string) error {
				return withAccepted(c, "node", ident, request.Target, c.API.SetPower(c.Context(), ident, request))
			})
			if !p.wait.asked(c) {
				return err
			}
			rests := func(n *client.Node) bool { return n.TargetPowerState == "" && n.Reservation == "" }
			return kit.JoinErrors(err, p.wait.all(c, result, client.Wait{Until: func(n *client.Node) bool { return rests(n) && n.PowerState == result }, Rests: rests}))
		}),
	}
	if soft != "" {
		cmd.Flags().BoolVar(&p.soft, "soft", false, "let the system shut itself down")
	}
	cmd.Flags().IntVar(&p.timeout, "power-timeout", 0, "seconds that the machine may take")
	p.wait.flags(cmd)
	selectNodes(cmd)
	return cmd
}

func newNodePowerCommand(e *kit.Endpoint) *cobra.Command {
	cmd := &cobra.Command{Use: "power", Short: "Switch nodes on and off"}
	cmd.AddCommand(
		(&powerOptions{}).command(e, "on", "Switch nodes on", "  salvor node power on rack1-7 --wait", "power on", "", "power on"),
		(&powerOptions{}).command(e, "off", "Switch nodes off", "  salvor node power off rack1-7 --soft --power-timeout 120\n  salvor node power off --where conductor-group=rack7 --yes", "power off", "soft power off", "power off"),
	)
	return cmd
}

func newNodeRebootCommand(e *kit.Endpoint) *cobra.Command {
	return (&powerOptions{}).command(e, "reboot", "Switch nodes off and on again", "  salvor node reboot rack1-7 --soft", "rebooting", "soft rebooting", "power on")
}

func newNodeBootCommand(e *kit.Endpoint) *cobra.Command {
	device := &cobra.Command{Use: "device", Short: "Show or set the boot device of a node"}
	device.AddCommand(newBootDeviceShowCommand(e), newBootDeviceSetCommand(e))
	cmd := &cobra.Command{Use: "boot", Short: "Show or set how a node boots"}
	cmd.AddCommand(device)
	return cmd
}

func newBootDeviceShowCommand(e *kit.Endpoint) *cobra.Command {
	o, supported := &kit.Output{}, false
	cmd := &cobra.Command{
		Use: "show NODE", Short: "Ask the machine for its boot device", Args: cobra.ExactArgs(1),
		Example: "  salvor node boot device show rack1-7",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			record := client.Record{}
			if supported {
				devices, err := c.API.SupportedBootDevices(c.Context(), c.Args[0])
				if err != nil {
					return err
				}
				record["supported_boot_devices"] = devices
				return o.Show(c.OutOrStdout(), record)
			}
			b, err := c.API.BootDevice(c.Context(), c.Args[0])
			if err != nil {
				return err
			}
			record["boot_device"], record["persistent"] = nil, nil
			if b.Device != nil {
				record["boot_device"] = *b.Device
			}
			if b.Persistent != nil {
				record["persistent"] = *b.Persistent
			}
			return o.Show(c.OutOrStdout(), record)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().BoolVar(&supported, "supported", false, "list the devices that it could boot from")
	return cmd
}

func newBootDeviceSetCommand(e *kit.Endpoint) *cobra.Command {
	var persistent bool
	cmd := &cobra.Command{
		Use: "set NODE... DEVICE", Short: "Set the boot device of machines",
		Example: `  salvor node boot device set rack1-7 pxe
  salvor node boot device set --where extra.rack=7 pxe
  salvor node boot device set rack1-7 disk --persistent`,
		RunE: e.Run(func(c *kit.Call) error {
			device := c.Args[len(c.Args)-1]
			c.Args = c.Args[:len(c.Args)-1]
			return eachNode(c, "", "%s: boots from "+strings.ReplaceAll(device, "%", "%%"), func(ident string) error {
				return c.API.SetBootDevice(c.Context(), ident, device, persistent)
			})
		}),
	}
	selectNodesBefore(cmd, 1)
	cmd.Flags().BoolVar(&persistent, "persistent", false, "set it for all boots, not only for the next")
	return cmd
}

// secondsOf turns a number of seconds into a duration.
func secondsOf(n int) time.Duration { return time.Duration(n) * time.Second }
