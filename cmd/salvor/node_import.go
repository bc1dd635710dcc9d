package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/fleetfile"
	"salvor/cmd/salvor/kit"
	"salvor/secret"
)

// maxImportFile bounds a file of nodes, in bytes: 100,000 nodes with their ports have about 60 MB.
const maxImportFile = 256 << 20

// importFlags are those of "salvor node import".
type importFlags struct {
	form           string
	dryRun, update bool
	format         kit.TextFormat
}

// newNodeImportCommand is `salvor node import`: the nodes of a file, with their ports.
func newNodeImportCommand(e *kit.Endpoint) *cobra.Command {
	f := &importFlags{}
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Enroll the nodes of a file, with their ports", Args: cobra.ExactArgs(1),
		Long: `Enroll the nodes of a file. - is standard input.

The file is JSON or YAML in the form that "baremetal create FILE" takes, with chassis, ports, port groups and traits, or CSV. The
first line of CSV names the columns. Columns are fields of a node such as name and driver, and keys of an object, as
driver_info.redfish_address or extra.rack. The column mac has the MAC addresses of the node's ports.

A secret may lie in a file of its own: driver_info.redfish_password_file names it, relative to FILE. --driver-info-file gives one to all nodes of the
file that have none.

The whole file is checked first, beside what the control plane has. If anything is wrong, each mistake is printed with its line, and
no node is created. A node that is there already, with what the file says, is left alone, so that an import can be repeated after an
interruption. --update changes a node that is there with other fields.

The command prints a line for each node. If the ports of a new node are refused, the node is removed again.`,
		Example: `  salvor node import racks.yaml --dry-run
  salvor node import racks.csv --driver-info-file redfish_password=/run/secrets/bmc
  salvor node export --where conductor-group=north | salvor node import - --url https://other.example:6385`,
		RunE: e.Run(func(c *kit.Call) error {
			if err := f.format.Check(c.Command); err != nil {
				return err
			}
			return f.run(c)
		}),
	}
	f.format.Flag(cmd, ", with the UUID and the result of each node")
	kit.AddEnumFlag(cmd, &f.form, "input-format", "", "yaml, json or csv (default by the name of the file, else by its text)", fleetfile.Forms...)
	fl := cmd.Flags()
	fl.BoolVar(&f.dryRun, "dry-run", false, "check the file and print what would be done")
	fl.BoolVar(&f.update, "update", false, "change nodes that are there with other fields")
	defineSecretFiles(cmd)
	return cmd
}

// secretFilesFlag keeps a secret out of the command line, and so out of the shell's history and the list of processes.
const secretFilesFlag = "driver-info-file"

func defineSecretFiles(cmd *cobra.Command) {
	cmd.Flags().StringArray(secretFilesFlag, nil, "KEY=FILE of driver_info, whose value is the first line of the file; - is standard input, which a terminal asks for without showing it")
}

// readSecretFiles reads the values of --driver-info-file.
func readSecretFiles(cmd *cobra.Command, args []string) (map[string]secret.Value, error) {
	names, err := textPairs(cmd, secretFilesFlag, args)
	if err != nil {
		return nil, err
	}
	out := map[string]secret.Value{}
	for key, name := range names {
		if out[key], err = readSecretFile(cmd, key, name); err != nil {
			return nil, kit.UsageErrorf(cmd, "--%s: %w", secretFilesFlag, err)
		}
	}
	return out, nil
}

// readSecretFile gives the first line of a file, or of standard input. On a terminal it asks for the line.
func readSecretFile(cmd *cobra.Command, key, name string) (secret.Value, error) {
	var text string
	if in, ok := cmd.InOrStdin().(*os.File); ok && name == "-" && kit.TerminalWidth(in) > 0 {
		typed, err := kit.PromptPassword(in, cmd.ErrOrStderr(), key+": ")
		if err != nil {
			return secret.Value{}, err
		}
		text = typed
	} else {
		read, err := kit.ReadArgument(cmd.InOrStdin(), name, kit.MaxArgumentFile)
		if err != nil {
			return secret.Value{}, err
		}
		text, _, _ = strings.Cut(string(read), "\n")
	}
	if text = strings.TrimSuffix(text, "\r"); text == "" {
		return secret.Value{}, fmt.Errorf("%s: the first line of %s is empty", key, name)
	}
	return secret.New(text), nil
}

func (f *importFlags) run(c *kit.Call) error {
	name := c.Args[0]
	text, err := kit.ReadArgument(c.InOrStdin(), name, maxImportFile)
	if err != nil {
		return err
	}
	file, mistakes := fleetfile.Read(kit.FirstOf(f.form, fleetfile.Form(name, text)), text)
	if file == nil {
		return f.refuse(c, mistakes)
	}
	files, _ := c.Flags().GetStringArray(secretFilesFlag)
	secrets, err := readSecretFiles(c.Command, files)
	if err != nil {
		return err
	}
	mistakes = append(mistakes, fillSecrets(c.Command, file, filepath.Dir(name), secrets)...)
	check := &importCheck{call: c, update: f.update}
	rows, more, err := check.rows(file)
	if err != nil {
		return err
	}
	if mistakes = append(mistakes, more...); len(mistakes) > 0 {
		slices.SortStableFunc(mistakes, func(a, b fleetfile.Mistake) int { return a.Line - b.Line })
		return f.refuse(c, mistakes)
	}
	if !f.dryRun {
		if err := createChassis(c, file.Chassis); err != nil {
			return err
		}
	}
	return f.carryOut(c, rows)
}

// fillSecrets puts the secrets of files into the nodes. The names of files are relative to dir.
func fillSecrets(cmd *cobra.Command, file *fleetfile.File, dir string, secrets map[string]secret.Value) (mistakes []fleetfile.Mistake) {
	read := map[string]secret.Value{}
	for _, n := range file.Nodes {
		for key, name := range n.SecretFiles() {
			if !filepath.IsAbs(name) {
				name = filepath.Join(dir, name)
			}
			text, known := read[name]
			if !known {
				var err error
				if text, err = readSecretFile(cmd, key, name); err != nil {
					mistakes = append(mistakes, fleetfile.Mistake{Line: n.Line, What: n.Label() + ": " + err.Error()})
					continue
				}
				read[name] = text
			}
			n.SetSecret(key, text)
		}
		for key, text := range secrets {
			if n.Lacks(key) {
				n.SetSecret(key, text)
			}
		}
	}
	return mistakes
}

// refuse prints what is wrong with the file.
func (f *importFlags) refuse(c *kit.Call, mistakes []fleetfile.Mistake) error {
	for _, m := range mistakes {
		c.Say("%s", kit.StripControlChars(m.String()))
	}
	count := fmt.Sprintf("%d mistakes", len(mistakes))
	if len(mistakes) == 1 {
		count = "1 mistake"
	}
	return kit.WithStatus(kit.StatusFailed, fmt.Errorf("%s has %s: nothing was created", kit.StripControlChars(c.Args[0]), count))
}

// importResult is what became of a node of the file.
type importResult struct {
	Line   int    `json:"line"`
	Name   string `json:"name"`
	UUID   string `json:"uuid,omitempty"`
	Result string `json:"result"`
	Error  string `json:"error,omitempty"`
}

func (r importResult) print(w io.Writer) {
	text := r.Result
	if r.Error != "" {
		text += ": " + strings.ReplaceAll(r.Error, "\n", "; ")
	}
	fmt.Fprintf(w, "line %d: %s: %s\n", r.Line, kit.StripControlChars(r.Name), kit.StripControlChars(text))
}

// carryOut does what the rows say, and prints a line for each in the order of the file. Rows whose nodes are parts of others come after those.
func (f *importFlags) carryOut(c *kit.Call, rows []*importRow) error {
	results := make([]chan importResult, len(rows))
	for i := range results {
		results[i] = make(chan importResult, 1)
	}
	// An interrupt lets the nodes under way come to their end, so that none is left with half of its ports.
	ctx := context.WithoutCancel(c.Context())
	go func() {
		for depth := range maxParents {
			inParallel(len(rows), nodesAtOnce, func(i int) {
				if rows[i].depth == depth {
					results[i] <- f.carryOutRow(ctx, c, rows[i])
				}
			})
		}
	}()
	counts, all := map[string]int{}, []importResult{}
	for _, result := range results {
		r := <-result
		counts[strings.TrimRight(strings.Fields(r.Result)[0], ",:")]++
		if all = append(all, r); !f.format.IsJSON() {
			r.print(c.OutOrStdout())
		}
	}
	if f.format.IsJSON() {
		if err := kit.WriteJSON(c.OutOrStdout(), all); err != nil {
			return err
		}
	}
	if f.dryRun {
		c.Say("%d nodes: %d would be created, %d would change, %d are there already", len(rows), counts["new"], counts["differs"], counts["unchanged"])
		return nil
	}
	c.Say("%d nodes: %d created, %d changed, %d were there already, %d failed", len(rows), counts["created"], counts["changed"], counts["unchanged"], counts["failed"])
	switch {
	case c.Context().Err() != nil:
		return kit.WithStatus(kit.StatusInterrupted, errors.New("interrupted: the same command does the rest"))
	case counts["failed"] > 0:
		return kit.WithStatus(kit.StatusFailed, fmt.Errorf("%d of %d nodes failed: the same command tries them again", counts["failed"], len(rows)))
	}
	return nil
}

func (f *importFlags) carryOutRow(ctx context.Context, c *kit.Call, row *importRow) importResult {
	r := importResult{Line: row.node.Line, Name: row.node.Label(), UUID: row.id, Result: row.say(f.dryRun)}
	if f.dryRun || !row.acts() {
		return r
	}
	if c.Context().Err() != nil {
		r.Result = "left for another time"
		return r
	}
	var err error
	if r.UUID, err = row.do(ctx, c.API); err != nil {
		r.Result, r.Error = "failed", err.Error()
	}
	return r
}

// createChassis creates those chassis of the file that are not there.
func createChassis(c *kit.Call, all []*fleetfile.Part) error {
	for _, part := range all {
		_, err := c.API.Get(c.Context(), client.Chassis, part.Text("uuid"), "uuid")
		if client.StatusOf(err) == http.StatusNotFound {
			_, err = c.API.Create(c.Context(), client.Chassis, part.Fields)
		}
		if err != nil {
			return fmt.Errorf("line %d: chassis: %w", part.Line, err)
		}
	}
	return nil
}

// do creates the node, or adds to it what it lacks, and gives its UUID.
func (r *importRow) do(ctx context.Context, api *client.Client) (id string, err error) {
	if id = r.id; id == "" {
		n, err := api.CreateNode(ctx, r.node.Fields)
		if err != nil {
			return "", err
		}
		if err := r.addParts(ctx, api, n.UUID); err != nil {
			if left := api.DeleteNode(ctx, n.UUID); left != nil {
				return n.UUID, fmt.Errorf("%w; the node was created and could not be removed again: %w", err, left)
			}
			return "", fmt.Errorf("%w; the node was removed again", err)
		}
		return n.UUID, nil
	}
	if len(r.patch) > 0 {
		if _, err := api.PatchNode(ctx, id, r.patch, false); err != nil {
			return id, err
		}
	}
	return id, r.addParts(ctx, api, id)
}

// addParts creates the ports and port groups that a node lacks, and sets its traits.
func (r *importRow) addParts(ctx context.Context, api *client.Client, id string) error {
	if r.setTraits {
		if err := api.Call(ctx, http.MethodPut, client.Nodes.Path+"/"+id+"/traits", nil, map[string]any{"traits": r.node.Traits}, nil); err != nil {
			return fmt.Errorf("traits: %w", err)
		}
	}
	for _, g := range r.groups {
		if g.id == "" {
			g.group.Fields["node_uuid"] = id
			made, err := api.Create(ctx, client.Portgroups, g.group.Fields)
			if err != nil {
				return fmt.Errorf("port group %s: %w", kit.FirstOf(g.group.Text("name"), g.group.Text("address")), err)
			}
			g.id = made.Text("uuid")
		}
		for _, p := range g.ports {
			p.Fields["portgroup_uuid"] = g.id
			if err := addPort(ctx, api, id, p); err != nil {
				return err
			}
		}
	}
	for _, p := range r.ports {
		if err := addPort(ctx, api, id, p); err != nil {
			return err
		}
	}
	return nil
}

func addPort(ctx context.Context, api *client.Client, id string, p *fleetfile.Part) error {
	p.Fields["node_uuid"] = id
	if _, err := api.Create(ctx, client.Ports, p.Fields); err != nil {
		return fmt.Errorf("port %s: %w", p.Text("address"), err)
	}
	return nil
}
