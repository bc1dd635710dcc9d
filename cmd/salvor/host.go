package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
	"salvor/cmd/salvor/serve"
	"salvor/config"
	"salvor/fetch"
	"salvor/host"
	"salvor/hypervisor/libvirt"
	"salvor/secret"
	"salvor/version"
)

// hostFlags are those of "salvor host" itself, the agent of a VM host.
type hostFlags struct {
	controller, join, joinFile string
	libvirt, state, name, log  string
	stores, shared             []string
	rescue                     string
	cache                      int64
	kvm                        bool
	initiator                  string
	watchdog                   string
	fetch                      []string
}

// withHostAgent has "salvor host", the group of commands for hosts, run the agent where no command follows.
func withHostAgent(root *cobra.Command) {
	var group *cobra.Command
	for _, c := range root.Commands() {
		if c.Name() == "host" {
			group = c
		}
	}
	if group == nil {
		group = &cobra.Command{Use: "host"}
		root.AddCommand(group)
	}
	f := &hostFlags{}
	group.Short = "Run this machine's VMs for a control plane, or manage its hosts"
	group.Long = `With --controller and no further command, salvor host is the agent of this machine. It joins the control plane
once, renews a lease, pulls orders and carries them out on libvirt. It opens no port. Guests keep running without it.`
	group.Example = `  # On the control plane
  salvor host token create -f value -c token

  # On the VM host: once with the token, from then on without
  salvor host --controller https://salvor.example:6386 --join TOKEN
  salvor host --controller https://salvor.example:6386 --store fast=/srv/nvme --shared-store nfs=/srv/nfs`
	group.Flags().StringVar(&f.controller, "controller", "", "URL of the control plane's listener for hosts ([hosts]listen): https://ADDRESS:PORT")
	group.Flags().StringVar(&f.join, "join", "", "the join token; it is needed once")
	group.Flags().StringVar(&f.joinFile, "join-file", "", "a file with the join token, which keeps the token out of the list of processes")
	group.Flags().StringVar(&f.libvirt, "libvirt", "", "libvirt's URI, or the path of its socket (default qemu:///system)")
	group.Flags().StringVar(&f.state, "state-dir", "", "directory of identity, images and files of guests (default /var/lib/salvor-host)")
	group.Flags().StringVar(&f.name, "name", "", "the name that lists show (default the machine's host name)")
	group.Flags().StringArrayVar(&f.stores, "store", nil, "a directory of disks, NAME=DIR; may be given several times (default local, in the state directory)")
	group.Flags().StringArrayVar(&f.shared, "shared-store", nil, "a directory of disks that other hosts see too, NAME=DIR")
	group.Flags().StringVar(&f.rescue, "rescue-images", "", "directory of rescue images of location type file (default /usr/share/salvor/rescue-images)")
	group.Flags().Int64Var(&f.cache, "image-cache", 20, "GiB of images that the host caches")
	group.Flags().BoolVar(&f.kvm, "kvm", false, "use hardware virtualization")
	group.Flags().StringVar(&f.initiator, "initiator", "", "IQN with which the host logs in to the volumes of all guests (default one IQN for each guest)")
	group.Flags().StringVar(&f.watchdog, "watchdog", "", "the device of a hardware watchdog, such as /dev/watchdog (default none). It resets this machine when the lease is not renewed. salvor host opens it only while the host's group has self-fence")
	group.Flags().StringSliceVar(&f.fetch, "fetch-network", nil, "a network from which the host may fetch images at URLs; may be given several times. By default these are all but this machine, link-local networks and the metadata services of clouds; the word default stands for those")
	group.Flags().StringVar(&f.log, "log-level", "info", "debug, info, warn or error")
	group.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 || f.controller == "" {
			return kit.UnknownWord(cmd, args)
		}
		return runHost(cmd, f)
	}
	group.Args = cobra.ArbitraryArgs
}

func runHost(cmd *cobra.Command, f *hostFlags) error {
	if err := serve.HardenProcess(); err != nil {
		return err
	}
	c, err := f.config(cmd)
	if err != nil {
		return err
	}
	driver, err := libvirt.New(libvirt.Options{URI: f.libvirt, KVM: f.kvm, InitiatorIQN: f.initiator})
	if err != nil {
		return err
	}
	defer driver.Close()
	c.Hypervisor = driver
	c.Working = func(ctx context.Context, a *host.Agent) {
		serve.NotifySystemd(ctx, c.Log, func(context.Context) serve.Liveness { return hostLiveness(a) })
	}
	a, err := host.Open(c)
	if err != nil {
		return err
	}
	defer a.Close()
	c.Log.Info("host", "id", a.ID(), "controller", c.Controller, "state", c.StateDir)
	return a.Run(cmd.Context())
}

// longestAttempt is more than a renewal of the lease takes: it ends within seconds, also when the control plane does not answer.
const longestAttempt = time.Minute

// hostLiveness asks neither the control plane nor libvirt: a restart of the agent repairs neither.
func hostLiveness(a *host.Agent) serve.Liveness {
	found := serve.Liveness{Status: "the control plane does not answer; guests keep running"}
	if held, _ := a.Leased(); held {
		found.Status = "the lease is held"
	}
	if a.SinceAttempt() > longestAttempt {
		found.Hangs = "the renewal of the lease"
	}
	return found
}

func (f *hostFlags) config(cmd *cobra.Command) (host.Config, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.log)); err != nil {
		return host.Config{}, kit.UsageErrorf(cmd, "--log-level %q: want debug, info, warn or error", f.log)
	}
	c := host.Config{
		StateDir: f.state, Controller: f.controller, Name: f.name, RescueDir: f.rescue, ImageBytes: f.cache << 30,
		Version: "salvor-host/" + version.Release, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}
	if c.StateDir == "" {
		c.StateDir = "/var/lib/salvor-host"
	}
	if c.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, err
		}
		c.Name = name
	}
	if f.watchdog != "" {
		if !filepath.IsAbs(f.watchdog) {
			return c, kit.UsageErrorf(cmd, "--watchdog %q: want an absolute path", f.watchdog)
		}
		c.Watchdog = host.HardwareWatchdog(f.watchdog)
	}
	networks, err := config.ParseNetworks(f.fetch)
	if err != nil {
		return c, kit.UsageErrorf(cmd, "--fetch-network: want ADDRESS/BITS or an address")
	}
	c.Web = fetch.Client(fetch.Guard{Networks: networks.Prefixes, Only: !networks.Default, Own: fetch.OwnAddresses})
	token := f.join
	if f.joinFile != "" {
		b, err := kit.ReadArgument(cmd.InOrStdin(), f.joinFile, 4096)
		if err != nil {
			return c, kit.UsageErrorf(cmd, "--join-file: %w", err)
		}
		token = strings.TrimSpace(string(b))
	}
	c.Token = secret.New(token)
	for _, given := range []struct {
		flag   string
		words  []string
		shared bool
	}{{"store", f.stores, false}, {"shared-store", f.shared, true}} {
		for _, w := range given.words {
			name, dir, ok := strings.Cut(w, "=")
			if !ok || name == "" || !filepath.IsAbs(dir) {
				return c, kit.UsageErrorf(cmd, "--%s %q: want NAME=DIR, an absolute path", given.flag, w)
			}
			c.Stores = append(c.Stores, host.Store{Name: name, Dir: dir, Shared: given.shared})
		}
	}
	return c, nil
}
