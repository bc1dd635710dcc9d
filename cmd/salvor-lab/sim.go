package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/lab/sim/fleet"
)

// simFlags are those of "salvor-lab sim".
type simFlags struct {
	fleet.Config
	length time.Duration
	clean  bool
	out    kit.Output
}

// newSimCommand is `salvor-lab sim`: a fleet that is not there, to rehearse on.
func newSimCommand() *cobra.Command {
	f, e := &simFlags{}, &kit.Endpoint{}
	cmd := &cobra.Command{
		Use: "sim", Short: "Simulate a fleet to rehearse on: machines behind Redfish BMCs, agents that heartbeat, faults", Args: cobra.NoArgs,
		Long: `The BMCs listen in this process, each at an address of its own in 127.64.0.0/10; for a control plane on another
machine give --host. The program enrolls the nodes with driver redfish and adopts them. --rescue puts some of them into rescue:
their agents finish the rescue and then stop their heartbeats. --hold keeps some nodes waiting in a rescue by maintenance:
their agents heartbeat until their power is cut. The agents answer, too, when you rescue another node of the fleet. Agents do
nothing else: a simulated machine cannot be deployed or inspected from within. The same seed gives the same nodes and the
same faults.

The program ends on an interrupt or after --for. The nodes stay until --clean removes them; another run takes them over.

Without --rescue and --hold, salvor serve with an empty state directory will do. For a rescue the control plane needs an
address that ramdisks call ([ramdisk]listen), the Debian package systemd-boot-efi, and a kernel and a ramdisk, which may be
any files. salvor-lab sim tells in one line what is lacking, and enrolls nothing then. [agent]callback_networks and
[conductor]bmc_networks must include the BMCs' addresses. Never point salvor-lab sim at a control plane that has work to do.`,
		Example: `  # a thousand machines, a tenth of them in rescue and half with agents that heartbeat, some with bad BMCs, for an hour
  salvor-lab sim --nodes 1000 --seed 7 --rescue 0.1 --hold 0.5 --silent 0.01 --slow 0.02 --faulty-acks 0.005 --busy 0.01 --for 1h

  # what it left
  salvor-lab sim --nodes 1000 --seed 7 --clean`,
		RunE: e.Run(f.run),
	}
	e.Flags(cmd)
	f.out.Flags(cmd)
	fl := cmd.Flags()
	fl.IntVar(&f.Nodes, "nodes", 100, "how many machines")
	fl.Uint64Var(&f.Seed, "seed", 1, "seed of all random choices; the names of the nodes contain it")
	fl.StringVar(&f.Host, "host", "", "an address of this machine for all BMCs and agents (default one for each machine, on the loopback interface)")
	fl.IntVar(&f.Port, "port", 0, "port of the BMCs (default a free one)")
	fl.StringVar(&f.BootInterface, "boot-interface", "redfish-virtual-media", "boot interface of the nodes")
	fl.Float64Var(&f.Rescued, "rescue", 0, "share of the nodes to put into rescue, 0 to 1")
	fl.Float64Var(&f.Held, "hold", 0, "share of the nodes to keep waiting in a rescue, with agents that heartbeat")
	fl.DurationVar(&f.HeartbeatInterval, "heartbeat", 100*time.Second, "time between two heartbeats of an agent")
	fl.DurationVar(&f.Boot, "boot-time", 2*time.Second, "time from power-on to the start of the agent")
	fl.Float64Var(&f.Faults.Silent, "silent", 0, "share of BMCs that never answer, once all nodes are enrolled")
	fl.Float64Var(&f.Faults.Slow, "slow", 0, "share of BMCs that answer after 3 s")
	fl.Float64Var(&f.Faults.Lying, "faulty-acks", 0, "share of BMCs that accept orders and do not act")
	kit.RenameFlag(cmd, "lying", "faulty-acks")
	fl.Float64Var(&f.Faults.Busy, "busy", 0, "share of BMCs that answer 503")
	fl.IntVar(&f.Workers, "concurrency", 32, "number of simultaneous requests to the control plane")
	fl.DurationVar(&f.length, "for", 0, "how long to go on once all nodes are enrolled; 0: until it is interrupted")
	fl.BoolVar(&f.clean, "clean", false, "remove the nodes of this seed and do nothing else")
	return cmd
}

func (f *simFlags) run(c *kit.Call) error {
	if err := f.out.Check(c.Command); err != nil {
		return err
	}
	if f.length < 0 {
		return kit.UsageErrorf(c.Command, "--for %s: want 0 or more", f.length)
	}
	f.API = c.API
	p := kit.NewProgress(c.ErrOrStderr(), "sim")
	// On a terminal one machine's trouble would tear the line of all; it is counted there.
	f.Complain = func(machine string, err error) {
		if p.Width == 0 {
			c.Say("%s: %v", kit.StripControlChars(machine), kit.Sanitized(err))
		}
	}
	all, err := fleet.New(f.Config)
	if err != nil {
		return kit.UsageErrorf(c.Command, "%w", err)
	}
	if f.clean {
		removed := all.Clean(c.Context())
		c.Say("%d nodes removed, %d errors", removed, all.Summary().Errors)
		return f.verdict(c.Context(), all)
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	shown := make(chan struct{})
	go func() { defer close(shown); f.show(ctx, p, all) }()
	var refused error
	err = all.Run(ctx, func(ctx context.Context) {
		if refused = all.Enroll(ctx); refused != nil {
			cancel()
			return
		}
		if ctx.Err() == nil {
			p.End()
			s := all.Summary()
			c.Say("enrolled: %d of %d nodes, %d in rescue, %d kept waiting, %d errors", s.Enrolled, s.Nodes, s.Rescued, s.Held, s.Errors)
		}
		if f.length > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(f.length):
			}
			cancel()
		}
	})
	cancel()
	<-shown
	if err = cmp.Or(refused, err); err != nil {
		return err
	}
	return f.report(c, all.Summary())
}

// verdict is the status of a removal.
func (f *simFlags) verdict(ctx context.Context, all *fleet.Fleet) error {
	if n := all.Summary().Errors; n > 0 || ctx.Err() != nil {
		return kit.WithStatus(kit.StatusFailed, fmt.Errorf("some nodes are left: run it again"))
	}
	return nil
}

// show tells how the fleet stands: on a terminal every second, else every half a minute.
func (f *simFlags) show(ctx context.Context, p *kit.Progress, all *fleet.Fleet) {
	defer p.End()
	began, pause := time.Now(), time.Second
	if p.Width == 0 {
		pause = 30 * time.Second
	}
	turn := time.NewTicker(pause)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
		}
		s := all.Summary()
		p.PrintStatus(time.Since(began), fmt.Sprintf("%d of %d enrolled, %d agents, %d heartbeats (99%% within %.1f ms), %d requests to BMCs, %d errors",
			s.Enrolled, s.Nodes, s.Agents, s.Heartbeats, s.Slowest, s.BMC, s.Errors))
	}
}

func (f *simFlags) report(c *kit.Call, s fleet.Summary) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var r client.Record
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	return f.out.Show(c.OutOrStdout(), r)
}
