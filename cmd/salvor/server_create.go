package main

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
)

const maxUserData = 48 << 10 // as Nova takes, before base64

func newServerCreate(e *kit.Endpoint) *cobra.Command {
	o, w := &kit.Output{}, &waitOption{}
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a server", Args: cobra.ExactArgs(1),
		Example: `  salvor server create web1 --flavor small --image debian-12 --network lan --key-name me --wait
  salvor server create db1 --flavor small --volume root-of-db1 --nic none`,
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			if err := w.check(c); err != nil {
				return err
			}
			body, err := serverBody(c)
			if err != nil {
				return err
			}
			made, err := serverResource.ask(c, http.MethodPost, "", nil, client.Record{"server": body})
			if err != nil {
				return err
			}
			id := made.Text("id")
			if w.asked(c) {
				if err := w.server(c, id, c.Args[0], []string{"ACTIVE"}); err != nil {
					return err
				}
			}
			shown, err := serverResource.ask(c, http.MethodGet, "/"+url.PathEscape(id), nil, nil)
			if err != nil {
				return err
			}
			if password := made.Text("adminPass"); password != "" {
				shown["adminPass"] = password
			}
			return o.Show(c.OutOrStdout(), shown)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	f := cmd.Flags()
	f.String("flavor", "", "the size, by name or id")
	f.String("image", "", "the image that its root disk is made from, by name or UUID")
	f.String("volume", "", "the volume that it boots from, by name or UUID")
	f.StringArray("network", nil, "a network, by name or UUID; may be repeated")
	f.StringArray("nic", nil, "none, or net-id=UUID[,v4-fixed-ip=ADDRESS]; may be repeated")
	f.String("key-name", "", "the key pair to let in")
	f.String("user-data", "", "a file for cloud-init")
	f.Bool("use-config-drive", false, "give it a config drive even where it needs none")
	f.StringArray("property", nil, "KEY=VALUE of its metadata; may be repeated")
	f.String("availability-zone", "", "the zone, or zone:host to choose the host")
	f.String("description", "", "a description")
	_ = cmd.MarkFlagRequired("flavor")
	cmd.MarkFlagsOneRequired("image", "volume")
	cmd.MarkFlagsMutuallyExclusive("image", "volume")
	return cmd
}

func serverBody(c *kit.Call) (client.Record, error) {
	text := func(flag string) string { v, _ := c.Flags().GetString(flag); return v }
	body := client.Record{"name": c.Args[0]}
	flavor, err := flavorResource.find(c, text("flavor"))
	if err != nil {
		return nil, err
	}
	body["flavorRef"] = flavor
	if name := text("image"); name != "" {
		if body["imageRef"], err = imageResource.find(c, name); err != nil {
			return nil, err
		}
	} else {
		id, err := volumeResource.find(c, text("volume"))
		if err != nil {
			return nil, err
		}
		body["imageRef"] = ""
		body["block_device_mapping_v2"] = []client.Record{{"uuid": id, "boot_index": 0, "source_type": "volume", "destination_type": "volume"}}
	}
	if body["networks"], err = serverNetworks(c); err != nil {
		return nil, err
	}
	for flag, key := range map[string]string{"key-name": "key_name", "availability-zone": "availability_zone", "description": "description"} {
		if v := text(flag); v != "" {
			body[key] = v
		}
	}
	if name := text("user-data"); name != "" {
		data, err := kit.ReadArgument(c.InOrStdin(), name, maxUserData)
		if err != nil {
			return nil, kit.UsageErrorf(c.Command, "--user-data: %w", err)
		}
		body["user_data"] = base64.StdEncoding.EncodeToString(data)
	}
	if on, _ := c.Flags().GetBool("use-config-drive"); on {
		body["config_drive"] = true
	}
	words, _ := c.Flags().GetStringArray("property")
	if len(words) > 0 {
		if body["metadata"], err = textPairs(c.Command, "property", words); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// serverNetworks reads --network and --nic: nothing is left to the control plane's choice unless nothing is said.
func serverNetworks(c *kit.Call) (any, error) {
	nets, _ := c.Flags().GetStringArray("network")
	nics, _ := c.Flags().GetStringArray("nic")
	if len(nics) == 1 && (nics[0] == "none" || nics[0] == "auto") && len(nets) == 0 {
		return nics[0], nil
	}
	var out []client.Record
	for _, n := range nets {
		id, err := usableNetworkResource.find(c, n)
		if err != nil {
			return nil, err
		}
		out = append(out, client.Record{"uuid": id})
	}
	for _, n := range nics {
		words, err := textPairs(c.Command, "nic", strings.Split(n, ","))
		if err != nil {
			return nil, err
		}
		nic := client.Record{}
		for key, value := range words {
			switch key {
			case "net-id":
				nic["uuid"] = value
			case "v4-fixed-ip", "v6-fixed-ip":
				nic["fixed_ip"] = value
			default:
				return nil, kit.UsageErrorf(c.Command, "--nic %s: want none, or net-id=UUID[,v4-fixed-ip=ADDRESS]", n)
			}
		}
		out = append(out, nic)
	}
	if len(out) == 0 {
		return "auto", nil
	}
	return out, nil
}

// newServerVolume is "server add volume" and "server remove volume".
func newServerVolume(e *kit.Endpoint, verb string) *cobra.Command {
	group := &cobra.Command{Use: verb, Short: map[string]string{"add": "Attach a volume to a server", "remove": "Detach a volume from a server"}[verb]}
	cmd := &cobra.Command{
		Use: "volume SERVER VOLUME", Short: map[string]string{"add": "Attach a volume to a server", "remove": "Detach a volume from a server"}[verb],
		Args: cobra.ExactArgs(2), Example: "  salvor server " + verb + " volume web1 data1",
		RunE: e.Run(func(c *kit.Call) error {
			server, err := serverResource.find(c, c.Args[0])
			if err != nil {
				return err
			}
			volume, err := volumeResource.find(c, c.Args[1])
			if err != nil {
				return err
			}
			path := "/servers/" + url.PathEscape(server) + "/os-volume_attachments"
			if verb == "remove" {
				return c.API.Ask(c.Context(), client.Compute, http.MethodDelete, path+"/"+url.PathEscape(volume), nil, nil, nil)
			}
			wish := client.Record{"volumeId": volume}
			if device, _ := c.Flags().GetString("device"); device != "" {
				wish["device"] = device
			}
			return c.API.Ask(c.Context(), client.Compute, http.MethodPost, path, nil, client.Record{"volumeAttachment": wish}, nil)
		}),
	}
	if verb == "add" {
		cmd.Flags().String("device", "", "its name in the server, such as /dev/vdb; a hint")
	}
	group.AddCommand(cmd)
	return group
}

func newServerAdopt(e *kit.Endpoint) *cobra.Command {
	o := &kit.Output{}
	cmd := &cobra.Command{
		Use: "adopt", Short: "Adopt a running instance of a Ganeti cluster as a server", Args: cobra.NoArgs,
		Example: "  salvor server adopt --cluster prod --instance web1.example --project web --os debian --os-family linux",
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			cluster, _ := c.Flags().GetString("cluster")
			instance, _ := c.Flags().GetString("instance")
			id, err := clusterResource.find(c, cluster)
			if err != nil {
				return err
			}
			wish := client.Record{"cluster": id, "instance": instance}
			for _, flag := range []string{"name", "project", "os", "os-family"} {
				if v, _ := c.Flags().GetString(flag); v != "" {
					wish[fieldOf(flag)] = v
				}
			}
			var got client.Record
			if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, "/servers/adopt", nil, wish, &got); err != nil {
				return err
			}
			return o.Show(c.OutOrStdout(), got)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().String("cluster", "", "the cluster, by name or UUID")
	cmd.Flags().String("instance", "", "the instance's name there")
	cmd.Flags().String("name", "", "the server's name (default the instance's)")
	cmd.Flags().String("project", "", "the project that owns the server")
	cmd.Flags().String("os", "", "its operating system, by which salvor chooses its rescue image (default what the cluster reports)")
	cmd.Flags().String("os-family", "", "the family of its operating system (default what the cluster reports)")
	_ = cmd.MarkFlagRequired("cluster")
	_ = cmd.MarkFlagRequired("instance")
	return cmd
}

// newServerAbort makes the command that aborts the open operation of servers.
func newServerAbort(e *kit.Endpoint) *cobra.Command {
	w := &waitOption{}
	cmd := &cobra.Command{
		Use: "abort SERVER...", Short: "Abort the open operation of servers, for example while their host is silent", Args: cobra.MinimumNArgs(1),
		Long: `Abort the open operation of servers: the operation fails within 5 s. The host may have carried out orders that it has not answered;
salvor does not undo them. The server shows what is known of them. The host carries out no further order of the operation.`,
		Example: "  salvor server abort web1 --wait\n  salvor why server:web1",
		RunE: e.Run(func(c *kit.Call) error {
			if err := w.check(c); err != nil {
				return err
			}
			return c.Each(func(ident string) error {
				id, err := serverResource.find(c, ident)
				if err != nil {
					return err
				}
				if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, "/servers/"+url.PathEscape(id)+"/abort", nil, client.Record{}, nil); err != nil || !w.asked(c) {
					return err
				}
				return w.server(c, id, ident, []string{"ACTIVE", "SHUTOFF", "RESCUE", "PAUSED", "SUSPENDED", "ERROR"})
			})
		}),
	}
	w.flags(cmd)
	return cmd
}

// newServerModify is the former name of rescue-config, for one release.
func newServerModify(e *kit.Endpoint) *cobra.Command {
	cmd := newServerRescueConfig(e)
	cmd.Use, cmd.Hidden, cmd.Deprecated = "modify SERVER", true, "use: salvor server rescue-config"
	return cmd
}

// newServerRescueConfig is the management command of the specification.
func newServerRescueConfig(e *kit.Endpoint) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rescue-config SERVER", Short: "Rescue or unrescue a stopped server by its settings alone: it stays off", Args: cobra.ExactArgs(1),
		Example: "  salvor server rescue-config web1 --action rescue --rescue-image 3 --key ~/.ssh/id_ed25519.pub --expires-in 24h\n  salvor server rescue-config web1 --action unrescue",
		RunE: e.Run(func(c *kit.Call) error {
			action, _ := c.Flags().GetString("action")
			body := client.Record{"action": action}
			switch image, _ := c.Flags().GetInt64("rescue-image"); {
			case action != "rescue" && action != "unrescue":
				return kit.UsageErrorf(c.Command, "--action %s: want rescue or unrescue", action)
			case image != 0 && action != "rescue":
				return kit.UsageErrorf(c.Command, "--rescue-image goes with --action rescue")
			case image != 0:
				body["rescue_image"] = image
			}
			if action == "rescue" {
				if err := sessionWishes(c, body); err != nil {
					return err
				}
			}
			id, err := serverResource.find(c, c.Args[0])
			if err != nil {
				return err
			}
			return c.API.Ask(c.Context(), client.Native, http.MethodPost, "/servers/"+url.PathEscape(id)+"/modify", nil, body, nil)
		}),
	}
	cmd.Flags().String("action", "", "rescue or unrescue")
	cmd.Flags().Int64("rescue-image", 0, "the rescue image, by its number; without one salvor chooses")
	cmd.Flags().StringArray("key", nil, "a file with an ssh public key to let in beside the server's own; may be repeated")
	cmd.Flags().String("expires-in", "", "end the rescue by itself after so long, as 45m, 24h or seconds")
	_ = cmd.MarkFlagRequired("action")
	return cmd
}

// sessionWishes adds what is asked of the session.
func sessionWishes(c *kit.Call, body client.Record) error {
	if after, _ := c.Flags().GetString("expires-in"); after != "" {
		d, err := parseLifetime(after)
		if err != nil {
			return kit.UsageErrorf(c.Command, "--expires-in %w", err)
		}
		body["expires_in"] = int64(d.Seconds())
	}
	files, _ := c.Flags().GetStringArray("key")
	var keys []string
	for _, name := range files {
		text, err := kit.ReadArgument(c.InOrStdin(), name, kit.MaxArgumentFile)
		if err != nil {
			return kit.UsageErrorf(c.Command, "--key: %w", err)
		}
		if len(strings.TrimSpace(string(text))) == 0 {
			return kit.UsageErrorf(c.Command, "--key %s: the file holds no public key; give a .pub file of ssh-keygen", name)
		}
		keys = append(keys, strings.TrimSpace(string(text)))
	}
	if len(keys) > 0 {
		body["keys"] = keys
	}
	return nil
}
