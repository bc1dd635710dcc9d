package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"salvor/boot/ramdisk"
	"salvor/cmd/salvor/kit"
)

func newRamdiskCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ramdisk",
		Short: "Build the ramdisks in which machines are rescued",
	}
	cmd.AddCommand(newRamdiskBuildCommand())
	return cmd
}

func newRamdiskBuildCommand() *cobra.Command {
	var o ramdisk.Options
	cmd := &cobra.Command{
		Use:   "build --out DIR",
		Short: "Build kernel, initramfs, ISO image and UKI from Debian packages",
		Long: `Build kernel, initramfs, ISO image and UKI from Debian packages.

The command needs no root and installs nothing: apt downloads packages into a cache, and
the command unpacks them. For the full profile, mmdebstrap installs the tools into a
folder. For another architecture than this machine's, apt reads package lists into the cache:
the machine itself stays as it is. The products contain no secret: one build serves every machine.

Progress goes to standard error. At the end the command prints the path of the manifest.`,
		Example: `  salvor ramdisk build --out /var/lib/salvor/ramdisk
  salvor ramdisk build --out ./diagnose --profile diagnose
  salvor ramdisk build --out ./full --profile full
  salvor ramdisk build --out ./metal --kernel amd64 --agent ./salvor-agent
  salvor ramdisk build --out ./arm --arch arm64 --agent ./salvor-agent-arm64`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Agent == "" {
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("find salvor-agent: %w", err)
				}
				o.Agent = filepath.Join(filepath.Dir(self), "salvor-agent")
			}
			start := time.Now()
			o.Progress = func(line string) {
				fmt.Fprintf(cmd.ErrOrStderr(), "[%5.1f s] %s\n", time.Since(start).Seconds(), line)
			}
			if _, err := ramdisk.Build(cmd.Context(), o); err != nil {
				return err
			}
			o.Progress("done")
			_, err := fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(o.Out, ramdisk.FileManifest))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Out, "out", "", "folder for the products (required)")
	kit.AddEnumFlag(cmd, &o.Profile, "profile", ramdisk.Minimal, "minimal, diagnose with what says why a machine does not boot, or full with repair tools", ramdisk.Minimal, ramdisk.Diagnose, ramdisk.Full)
	kit.AddEnumFlag(cmd, &o.Arch, "arch", "", "architecture of the machines: amd64 or arm64 (default: of the kernel flavour, then of this machine)", ramdisk.AMD64, ramdisk.ARM64)
	kit.AddEnumFlag(cmd, &o.Kernel, "kernel", "", "kernel flavour: cloud-amd64, cloud-arm64 for virtual machines, amd64, arm64 for hardware (default by profile)",
		ramdisk.Cloud, ramdisk.Generic, ramdisk.CloudARM64, ramdisk.GenericARM64)
	flags.StringVar(&o.Agent, "agent", "", "static salvor-agent for that architecture (default: beside this program)")
	kit.AddEnumFlag(cmd, &o.Compression, "compression", "", "of the initramfs: lz4, zstd, gzip or none (default by profile)", ramdisk.LZ4, ramdisk.Zstd, ramdisk.Gzip, ramdisk.Plain)
	flags.StringVar(&o.Cache, "cache", "", "folder for downloaded packages (default: in the user's cache)")
	if err := cmd.MarkFlagRequired("out"); err != nil {
		panic(err)
	}
	return cmd
}
