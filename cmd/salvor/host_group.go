package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/problem"
)

var hostGroupResource = resourceSpec{
	api: client.Native, path: "/host-groups", many: "host_groups", make: "-", change: "-",
	words: []string{"host", "group"}, ident: "GROUP", keyed: true, title: "host group", plural: "host groups",
	columns: []string{"name", "healing", "self_fence", "require", "reimage", "variables", "max_hosts", "max_share", "parallel"},
}

// hostGroupFields are what set takes.
var hostGroupFields = []resourceField{
	{flag: "healing", form: switchForm, usage: "fence and evacuate a dead host of the group without a request (off: --healing=false)"},
	{flag: "self-fence", form: switchForm, usage: "its hosts end their guests by themselves when their lease lapses (off: --self-fence=false)"},
	{flag: "reimage", allowed: []string{"ask", "never", "always"}, usage: "whether servers whose disk died with their host are made anew, their data lost: ask (only the servers that you name), never or always"},
	{flag: "variables", allowed: []string{"ask", "discard"}, usage: "whether servers whose UEFI variables lie on their dead host alone are moved without them: ask (only with evacuate --discard-variables) or discard"},
	{flag: "max-hosts", form: numberForm, usage: "how many of its hosts salvor heals in ten minutes"},
	{flag: "max-share", form: numberForm, usage: "if this percentage of its hosts or more, two at least, are silent, salvor takes the control plane to be cut off"},
	{flag: "parallel", form: numberForm, usage: "how many servers of a host salvor moves at a time"},
}

// evidenceKinds are the kinds of evidence that a fence can rest on.
var evidenceKinds = []string{"power", "storage", "self-fence", "acknowledgement", "attestation"}

func newHostGroupCommand(e *kit.Endpoint) *cobra.Command {
	cmd := hostGroupResource.command(e, "Manage groups of hosts: healing, evidence and re-imaging")
	cmd.AddCommand(newHostGroupSet(e))
	return cmd
}

func newHostGroupSet(e *kit.Endpoint) *cobra.Command {
	o := &kit.Output{}
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Create or change a host group", Args: cobra.ExactArgs(1),
		Example: "  salvor host group set racks-a-c --require power,storage --reimage never\n  salvor host group set racks-a-c --healing --self-fence --max-hosts 1 --max-share 30\n  salvor host set vm7 --group racks-a-c",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			wish, err := readRecord(c, hostGroupFields)
			if err != nil {
				return err
			}
			if c.Flags().Changed("require") {
				words, _ := c.Flags().GetStringSlice("require")
				for _, word := range words {
					if err := kit.CheckAllowed(c.Command, "--require", word, evidenceKinds); err != nil {
						return err
					}
				}
				wish["require"] = words
			}
			id, err := hostGroupResource.find(c, c.Args[0])
			method, path := http.MethodPatch, "/"+url.PathEscape(id)
			switch {
			case problem.Is(err, problem.NotFound):
				method, path, wish["name"] = http.MethodPost, "", c.Args[0]
			case err != nil:
				return err
			}
			got, err := hostGroupResource.ask(c, method, path, nil, wish)
			if err != nil {
				return err
			}
			return o.Show(c.OutOrStdout(), got)
		}),
	}
	o.Flags(cmd)
	for _, f := range hostGroupFields {
		f.define(cmd)
	}
	cmd.Flags().StringSlice("require", nil, "evidence that every fence must rest on: "+strings.Join(evidenceKinds, ", ")+"; empty: any one")
	return cmd
}

func newHostDrain(e *kit.Endpoint) *cobra.Command {
	o, w := &kit.Output{}, &waitOption{}
	cmd := &cobra.Command{
		Use: "drain HOST", Short: "Take a live host out of service and move its servers away", Args: cobra.ExactArgs(1),
		Long: `Use it for planned work. The host takes no new servers. salvor moves running servers live if the hypervisor can do that. It stops the
others, prepares them elsewhere and starts them again. "salvor host restore HOST" takes the host back into service.`,
		Example: "  salvor host drain vm7 --wait",
		RunE: e.Run(func(c *kit.Call) error {
			if err := cmp.Or(o.Check(c.Command), w.check(c)); err != nil {
				return err
			}
			p, err := hostResource.ask(c, http.MethodPost, "/"+url.PathEscape(c.Args[0])+"/drain", nil, nil)
			if err != nil {
				return err
			}
			return w.plan(c, o, p)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	return cmd
}

// homeWithin is how long, in seconds, a host may take to come up whose servers are to be brought home, where nobody says.
const homeWithin = 600

func newHostRestore(e *kit.Endpoint) *cobra.Command {
	o, w, home := &kit.Output{}, &waitOption{}, false
	cmd := &cobra.Command{
		Use: "restore HOST", Short: "Take a host back into service after a drain, or after a fence and a repair", Args: cobra.ExactArgs(1),
		Long: `The host takes servers again and is no longer forced down. If the host is a node, the node is switched on. With --wait the command
waits until the host is up. With --return-servers salvor moves the servers back that were moved away from the host, once it is up. --return-servers
without --wait waits ten minutes at most until the host is up.`,
		Example: "  salvor host restore vm7 --wait\n  salvor host restore vm7 --return-servers --wait",
		RunE: e.Run(func(c *kit.Call) error {
			if err := cmp.Or(o.Check(c.Command), w.check(c)); err != nil {
				return err
			}
			path := "/" + url.PathEscape(c.Args[0])
			h, err := hostResource.ask(c, http.MethodPost, path+"/restore", nil, nil)
			if err == nil && (home || w.asked(c)) {
				until := w
				if !w.asked(c) {
					until = &waitOption{seconds: homeWithin}
				}
				h, err = until.host(c, c.Args[0])
			}
			if err != nil {
				return err
			}
			if !home {
				return o.Show(c.OutOrStdout(), h)
			}
			p, err := hostResource.ask(c, http.MethodPost, path+"/bring-home", nil, nil)
			if err != nil {
				return err
			}
			return w.plan(c, o, p)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	cmd.Flags().BoolVar(&home, "return-servers", false, "move the servers back that left the host")
	kit.RenameFlag(cmd, "bring-home", "return-servers")
	return cmd
}

// host waits until a host is up.
func (w *waitOption) host(c *kit.Call, ident string) (client.Record, error) {
	ctx, cancel := w.within(c)
	defer cancel()
	line, began := kit.NewProgress(c.ErrOrStderr(), ident), time.Now()
	defer line.End()
	for {
		h, err := hostResource.ask(c, http.MethodGet, "/"+url.PathEscape(ident), nil, nil)
		switch {
		case err != nil && ctx.Err() == nil && !problem.Is(err, problem.Unavailable):
			return nil, err
		case err == nil && h.Text("state") == "up":
			return h, nil
		case err == nil:
			line.PrintStatus(time.Since(began), h.Text("state"))
		}
		if pauseFor(ctx, planLook) != nil {
			return nil, w.late(c, fmt.Errorf("host %s: gave up waiting until it is up: see salvor host show %[1]s", kit.StripControlChars(ident)))
		}
	}
}
