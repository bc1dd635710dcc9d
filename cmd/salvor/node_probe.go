package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/metal"
)

// recordStart is where a recording begins.
const recordStart = "/redfish/v1"

// newNodeProbeCommand is `salvor node probe`: one page about a BMC, or a tree of its resources.
func newNodeProbeCommand(e *kit.Endpoint) *cobra.Command {
	format, dir, most := kit.TextFormat(""), "", 0
	cmd := &cobra.Command{
		Use: "probe NODE", Short: "Show what a node's BMC can do, and where salvor allows for its make", Args: cobra.ExactArgs(1),
		Long: `Asks the BMC of a node for all that salvor uses, and changes nothing. It prints one page: the make, each ability with how it is done or why
it cannot be, and the rows of the table of quirks that hold. "unknown" means that the BMC does not tell; salvor tries it then.

With --record DIR it also reads the resources of a Redfish BMC and writes them as files of JSON below DIR/redfish/v1. Texts and numbers
that are not known to be about the make of the machine become "hidden" and 0, and serial numbers and addresses in paths get other names.
Logs, accounts, sessions and certificates are left out. Send such a tree along when you report that salvor cannot manage a machine.`,
		Example: "  salvor node probe rack1-7\n  salvor node probe rack1-7 -f json | jq '.abilities[] | select(.able == \"no\")'\n  salvor node probe rack1-7 --record ./rack1-7",
		RunE: e.Run(func(c *kit.Call) error {
			if err := format.Check(c.Command); err != nil {
				return err
			}
			if most < 1 {
				return kit.UsageErrorf(c.Command, "--limit %d: want 1 or more", most)
			}
			path := "/nodes/" + url.PathEscape(c.Args[0])
			var found metal.Probe
			if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, path+"/probe", nil, nil, &found); err != nil {
				return err
			}
			if format.IsJSON() {
				if err := kit.WriteJSON(c.OutOrStdout(), found); err != nil {
					return err
				}
			} else {
				writeProbe(c.OutOrStdout(), found)
			}
			if dir == "" {
				return nil
			}
			return recordTree(c, path+"/recording", dir, most)
		}),
	}
	format.Flag(cmd, "")
	cmd.Flags().StringVar(&dir, "record", "", "write the resources of the BMC below this new or empty directory, without what tells of their owner")
	cmd.Flags().IntVar(&most, "limit", 1000, "with --record: at most this many resources")
	return cmd
}

// writeProbe prints the page.
func writeProbe(out io.Writer, p metal.Probe) {
	line := func(name, text string) {
		if text = strings.TrimSpace(kit.StripControlChars(text)); text != "" {
			fmt.Fprintf(out, "%-26s%s\n", name, text)
		}
	}
	line("machine", p.Vendor+" "+p.Model)
	line("BMC", strings.TrimSpace(p.BMCModel+" "+p.Firmware))
	line("protocol", p.Protocol)
	line("login", p.Login)
	fmt.Fprintln(out)
	for _, a := range p.Abilities {
		line(kit.StripControlChars(a.Name), fmt.Sprintf("%-9s%s", a.Able, a.Detail))
	}
	fmt.Fprintln(out)
	if len(p.Quirks) == 0 {
		line("quirks", "none: salvor treats this BMC as the standard says")
	}
	for _, q := range p.Quirks {
		line("quirk", q.Fact)
		line("", "source: "+q.Source)
	}
}

// recordTree reads resource after resource, from the root of the service, and writes each as a file.
func recordTree(c *kit.Call, path, dir string, most int) error {
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		return fmt.Errorf("%s: the directory is not empty; give --record a new one", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	key := make([]byte, 16)
	_, _ = rand.Read(key)
	queue, known, written, failed := []string{recordStart}, map[string]bool{recordStart: true}, 0, 0
	for len(queue) > 0 && written < most {
		var found []metal.RecordedResource
		args := metal.RecordArgs{Paths: queue[:min(len(queue), metal.MaxRecorded, most-written)], Key: hex.EncodeToString(key)}
		if err := c.API.Ask(c.Context(), client.Native, http.MethodPost, path, nil, args, &found); err != nil {
			return fmt.Errorf("%w; %d resources are written below %s", err, written, dir)
		}
		if len(found) == 0 || len(found) > len(args.Paths) {
			return fmt.Errorf("the API answered %d resources where %d were asked for", len(found), len(args.Paths))
		}
		queue = queue[len(found):]
		for _, one := range found {
			if one.Document == nil {
				failed++
				fmt.Fprintf(c.ErrOrStderr(), "left out %s: %s\n", kit.StripControlChars(one.Path), kit.StripControlChars(one.Problem))
				continue
			}
			if err := writeResource(root, one); err != nil {
				return err
			}
			written++
			for _, link := range one.Links {
				if !known[link] {
					known[link], queue = true, append(queue, link)
				}
			}
		}
		fmt.Fprintf(c.ErrOrStderr(), "%d resources written, %d to go\n", written, len(queue))
	}
	if len(queue) > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "%d resources are left out; --limit says how many are written at most\n", len(queue))
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s: %d resources, %d could not be read\n", dir, written, failed)
	return nil
}

// writeResource writes a resource where others who replay trees look for it: in index.json of a directory with its path.
func writeResource(root *os.Root, one metal.RecordedResource) error {
	name := filepath.FromSlash(strings.Trim(one.Name, "/"))
	if !filepath.IsLocal(name) || slices.Contains(strings.Split(one.Name, "/"), "..") {
		return fmt.Errorf("the API named a resource %q, which is no path", one.Name)
	}
	text, err := json.MarshalIndent(one.Document, "", "  ")
	if err != nil {
		return err
	}
	if err := root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	return root.WriteFile(filepath.Join(name, "index.json"), append(text, '\n'), 0o644)
}
