package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
	"salvor/lab"
	"salvor/lab/personality"
)

// newLabCommand is `salvor-lab lab`: real machines to try salvor on.
func newLabCommand() *cobra.Command {
	var spec lab.Spec
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Run QEMU machines behind Redfish or IPMI BMCs, in namespaces of their own",
		Long: `A lab is QEMU machines with disks, each behind a BMC, on Linux bridges that exist only inside
the lab's own namespaces. "salvor-lab lab exec -- ..." runs salvor and ssh in there. If the system
lets only root make namespaces, bridges or taps, run salvor-lab lab with sudo.`,
	}
	cmd.PersistentFlags().StringVar(&spec.StateDir, "state-dir", "", "state directory (default /var/lib/salvor for root, for others salvor in $XDG_STATE_HOME or ~/.local/state)")
	cmd.PersistentFlags().StringVar(&spec.Name, "name", "default", "name of the lab")
	cmd.AddCommand(newLabUpCommand(&spec), newLabDownCommand(&spec), newLabStatusCommand(&spec), newLabExecCommand(&spec), newLabFaultCommand(&spec), newLabEventCommand(&spec), newLabHostCommand(&spec), newLabImageCommand(&spec))
	for _, word := range lab.HiddenWords {
		cmd.AddCommand(newLabHiddenCommand(word))
	}
	return cmd
}

func newLabUpCommand(spec *lab.Spec) *cobra.Command {
	cmd := &cobra.Command{
		Use: "up", Short: "Start a lab; print its machines, BMCs and networks as JSON", Args: cobra.NoArgs,
		Long: `With --like the BMCs behave like those of others. They show what such a BMC shows, take and refuse
what it does, and are busy after orders, though for a shorter time. docs/lab.md lists the facts.`,
		Example: `  salvor-lab lab up --machines 2
  salvor-lab lab up --like sushy-tools
  salvor-lab lab up --like ilo5 --firmware uefi
  salvor-lab lab up --like virtualbmc
  salvor-lab lab up --odd "links: trailing slash" --odd "moment: 503 once at /redfish/v1/Systems/m1"
  salvor-lab lab up --sol`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Up(cmd.Context(), *spec)
			if err != nil {
				return err
			}
			return printLabStatus(cmd, l)
		},
	}
	f := cmd.Flags()
	f.IntVar(&spec.Machines, "machines", 1, "number of machines; 0 is right with --hosts")
	f.IntVar(&spec.Hosts, "hosts", 0, "number of VM hosts, each a libvirt daemon in namespaces of its own behind a Redfish BMC (root only)")
	f.BoolVar(&spec.NoDiskLocks, "no-disk-locks", false, "the hosts' QEMUs take no locks on files: nothing else protects a shared disk")
	kit.AddEnumFlag(cmd, &spec.BMC, "bmc", "", "protocol of the BMCs: redfish or ipmi (default redfish, or what the BMCs of --like speak)", lab.Redfish, lab.IPMI)
	kit.AddEnumFlag(cmd, &spec.Like, "like", "", "have the machines' BMCs behave like these of others: "+fmt.Sprint(personality.Names()), personality.Names()...)
	f.StringArrayVar(&spec.Odd, "odd", nil, "an oddity of the machines' Redfish BMCs, as KIND, \"KIND at /PATH\" or \"KIND at /PATH#MEMBER\" of lab/odd; repeat for more")
	kit.AddEnumFlag(cmd, &spec.Firmware, "firmware", lab.BIOS, "bios or uefi", lab.BIOS, lab.UEFI)
	f.BoolVar(&spec.SOL, "sol", false, "have BMCs that speak Redfish speak IPMI too, on port 623 with the same user, with Serial over LAN")
	f.BoolVar(&spec.Initiator, "initiator", false, "give the machines an adapter that boots from iSCSI by itself (redfish only)")
	f.IntVar(&spec.Memory, "memory", 512, "memory of each machine in MiB")
	kit.AddEnumFlag(cmd, &spec.Disk, "disk", lab.TenantDisk, "tenant (a small system with a forgotten password) or blank", lab.TenantDisk, lab.BlankDisk)
	kit.AddEnumFlag(cmd, &spec.Accel, "accel", "tcg", "QEMU accelerator: tcg or kvm", "tcg", "kvm")
	return cmd
}

func printLabStatus(cmd *cobra.Command, l *lab.Lab) error {
	status, err := l.Status(cmd.Context())
	if err != nil {
		return err
	}
	out := json.NewEncoder(cmd.OutOrStdout())
	out.SetIndent("", "  ")
	return out.Encode(status)
}

func newLabDownCommand(spec *lab.Spec) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Stop a lab and all that runs in it, and wait until it is gone", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Attach(spec.StateDir, spec.Name)
			if err != nil {
				return err
			}
			return l.Down(cmd.Context())
		},
	}
}

func newLabStatusCommand(spec *lab.Spec) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Print a lab as JSON: true power states, faults, serial logs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Attach(spec.StateDir, spec.Name)
			if err != nil {
				return err
			}
			return printLabStatus(cmd, l)
		},
	}
}

func newLabExecCommand(spec *lab.Spec) *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use: "exec -- PROGRAM [ARG...]", Short: "Run a program inside a lab's namespaces", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Attach(spec.StateDir, spec.Name)
			if err != nil {
				return err
			}
			if host != "" {
				h, err := l.Host(cmd.Context(), host)
				if err != nil {
					return err
				}
				args = append(h.Enter(), args...)
			}
			status, err := l.Exec(cmd.Context(), lab.Command{
				Args: args, Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			})
			if err != nil {
				return err
			}
			os.Exit(status)
			return nil
		},
	}
	cmd.Flags().StringVar(&host, "host", "", "run it inside this VM host of the lab")
	return cmd
}

func newLabFaultCommand(spec *lab.Spec) *cobra.Command {
	return &cobra.Command{
		Use: "fault MACHINE down|hang|slow=DURATION|503|rubbish|lie-power|lie-off|none", Short: "Make the BMC of a machine or VM host fail, or repair it", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Attach(spec.StateDir, spec.Name)
			if err != nil {
				return err
			}
			return l.Fault(cmd.Context(), args[0], args[1])
		},
	}
}

func newLabEventCommand(spec *lab.Spec) *cobra.Command {
	return &cobra.Command{
		Use: "event MACHINE " + strings.Join(lab.EventKinds(), "|"), Short: "Have the BMC of a machine or VM host log an event, as if it had happened", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Attach(spec.StateDir, spec.Name)
			if err != nil {
				return err
			}
			return l.LogEvent(cmd.Context(), args[0], lab.EventKind(args[1]))
		},
	}
}

// newLabHostCommand is what happens to the VM hosts of a lab, and what they run.
func newLabHostCommand(spec *lab.Spec) *cobra.Command {
	cmd := &cobra.Command{Use: "host", Short: "Control the power, cables, hangs and the service of a lab's VM hosts"}
	for _, v := range []struct {
		verb  lab.HostVerb
		short string
	}{
		{lab.HostOn, "Power a VM host on, whatever its BMC does: it boots with a new boot id"},
		{lab.HostOff, "Cut a VM host's power, whatever its BMC does: all of it ends at once, guests too"},
		{lab.HostCut, "Unplug its cables to the provisioning and the tenant network; its storage stays"},
		{lab.HostPlug, "Plug the cables in again"},
		{lab.HostFreeze, "Stop every process of a VM host at once, guests too"},
		{lab.HostThaw, "Let a frozen VM host go on"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: string(v.verb) + " HOST", Short: v.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				l, err := lab.Attach(spec.StateDir, spec.Name)
				if err != nil {
					return err
				}
				return l.HostDo(cmd.Context(), args[0], v.verb)
			},
		})
	}
	cmd.AddCommand(newLabServiceCommand(spec))
	return cmd
}

func newLabServiceCommand(spec *lab.Spec) *cobra.Command {
	return &cobra.Command{
		Use: "service HOST [-- PROGRAM [ARG...]]", Short: "Set the program that a VM host runs from each boot on, and starts again when it ends; without PROGRAM none",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Attach(spec.StateDir, spec.Name)
			if err != nil {
				return err
			}
			return l.HostService(cmd.Context(), args[0], args[1:], os.Environ())
		},
	}
}

func newLabImageCommand(spec *lab.Spec) *cobra.Command {
	var program string
	var size int64
	cmd := &cobra.Command{
		Use: "image FILE", Short: "Write a disk image for servers: a small system with a forgotten password; print what proves it as JSON", Args: cobra.ExactArgs(1),
		Long: "With --program the system is that static program alone, on a disk of --size MiB.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if program != "" {
				return lab.MakeAppliance(cmd.Context(), spec.StateDir, args[0], program, size<<20)
			}
			made, err := lab.MakeImage(cmd.Context(), spec.StateDir, args[0])
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(made)
		},
	}
	cmd.Flags().StringVar(&program, "program", "", "a static program that is all of the system")
	cmd.Flags().Int64Var(&size, "size", 128, "MiB of the disk of such a system")
	return cmd
}

// newLabHiddenCommand is a part of the program that a lab runs by itself.
func newLabHiddenCommand(word string) *cobra.Command {
	return &cobra.Command{
		Use: word, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			status, handled := lab.Hidden(append([]string{word}, args...))
			if !handled {
				return fmt.Errorf("lab %s is run by the lab itself", word)
			}
			os.Exit(status)
			return nil
		},
	}
}
