package main

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
)

// subcommandSpec is a command about one part of a node or driver: one request, whose answer is
// shown as one record, as a list, or not at all.
type subcommandSpec struct {
	words  string // of the command: "vif attach"
	short  string
	args   string // its arguments: "NODE VIF"; the first is the node or driver
	method string
	path   string // below the node; {} stands for the next argument
	// query and body are made of the arguments behind those in the path; nil: none.
	body func(c *kit.Call, rest []string) (any, error)
	// columns make the answer a list under the key envelope; one column of a list of strings.
	envelope string
	columns  []string
	shows    bool // the answer is shown as a record
	flags    func(*cobra.Command)
	example  string
}

// nodeParts are in the words of the baremetal command.
var nodeParts = []subcommandSpec{
	{words: "trait list", short: "List the traits of a node", args: "NODE", path: "traits", envelope: "traits", columns: []string{"traits"}},
	{words: "vif list", short: "List the tenants' ports that are attached to a node", args: "NODE", path: "vifs", envelope: "vifs", columns: []string{"id"}},
	{words: "vif attach", short: "Attach a tenant's port to a node", args: "NODE VIF", method: http.MethodPost, path: "vifs", body: vifBody,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().String("port-uuid", "", "the port or port group that takes it")
			cmd.Flags().StringArray("vif-info", nil, "KEY=VALUE that goes with it; may be repeated")
		}},
	{words: "vif detach", short: "Detach a tenant's port from a node", args: "NODE VIF", method: http.MethodDelete, path: "vifs/{}"},
	{words: "bios setting list", short: "List the BIOS settings of a node, as last read", args: "NODE", path: "bios", envelope: "bios", columns: []string{"name", "value"},
		flags: longFlag},
	{words: "bios setting show", short: "Show a BIOS setting of a node", args: "NODE SETTING", path: "bios/{}", shows: true},
	{words: "firmware list", short: "List the firmware of a node's parts, as last read", args: "NODE", path: "firmware", envelope: "firmware",
		columns: []string{"component", "initial_version", "current_version", "last_version_flashed"}},
	{words: "boot mode set", short: "Set the boot mode of a node: uefi or bios", args: "NODE MODE", method: http.MethodPut, path: "states/boot_mode", body: targetBody},
	{words: "secure boot on", short: "Turn secure boot on", args: "NODE", method: http.MethodPut, path: "states/secure_boot", body: constantBody("target", true)},
	{words: "secure boot off", short: "Turn secure boot off", args: "NODE", method: http.MethodPut, path: "states/secure_boot", body: constantBody("target", false)},
	{words: "console show", short: "Show whether the console of a node is on, and where", args: "NODE", path: "states/console", shows: true},
	{words: "console enable", short: "Start the console of a node", args: "NODE", method: http.MethodPut, path: "states/console", body: constantBody("enabled", true)},
	{words: "console disable", short: "Stop the console of a node", args: "NODE", method: http.MethodPut, path: "states/console", body: constantBody("enabled", false)},
	{words: "inject nmi", short: "Interrupt a node's processor (NMI), to make its system dump", args: "NODE", method: http.MethodPut, path: "management/inject_nmi", body: constantBody("", nil)},
	{words: "history get", short: "Show one row of a node's history", args: "NODE EVENT", path: "history/{}", shows: true},
	{words: "inventory show", short: "Show what the last inspection found", args: "NODE", path: "inventory", shows: true},
	{words: "children list", short: "List the nodes that are part of a node", args: "NODE", path: "children", envelope: "children", columns: []string{"child"}},
	{words: "attach virtual media", short: "Insert an image into a node's virtual drive", args: "NODE TYPE IMAGE_URL", method: http.MethodPost, path: "vmedia", body: mediaBody,
		example: "  salvor node attach virtual media rack1-7 cdrom http://images.example/tools.iso"},
	{words: "detach virtual media", short: "Eject the image from a node's virtual drives", args: "NODE", method: http.MethodDelete, path: "vmedia"},
	{words: "get virtual media", short: "List a node's virtual drives", args: "NODE", path: "vmedia", envelope: "vmedia", columns: []string{"media_types", "inserted", "image"}},
	{words: "allocation show", short: "Show the allocation that claims a node", args: "NODE", path: "allocation", shows: true},
	{words: "passthru list", short: "List the vendor methods of a node", args: "NODE", path: "vendor_passthru/methods", shows: true},
}

var driverParts = []subcommandSpec{
	{words: "show", short: "Show a hardware type", args: "DRIVER", path: "", shows: true},
	{words: "property list", short: "List the keys of driver_info that a hardware type understands", args: "DRIVER", path: "properties", shows: true},
	{words: "raid property list", short: "List the properties of a hardware type's logical disks", args: "DRIVER", path: "raid/logical_disk_properties", shows: true},
	{words: "passthru list", short: "List the vendor methods of a hardware type", args: "DRIVER", path: "vendor_passthru/methods", shows: true},
}

var conductorParts = []subcommandSpec{{words: "show", short: "Show a conductor", args: "CONDUCTOR", path: "", shows: true}}

func longFlag(cmd *cobra.Command) { cmd.Flags().Bool("long", false, "show every field") }

func constantBody(key string, value any) func(*kit.Call, []string) (any, error) {
	return func(*kit.Call, []string) (any, error) {
		if key == "" {
			return client.Record{}, nil
		}
		return client.Record{key: value}, nil
	}
}

func targetBody(_ *kit.Call, rest []string) (any, error) {
	return client.Record{"target": rest[0]}, nil
}

func vifBody(c *kit.Call, rest []string) (any, error) {
	args, _ := c.Flags().GetStringArray("vif-info")
	body, err := parseKeyValues(c.Command, "vif-info", args)
	if err != nil {
		return nil, err
	}
	body["id"] = rest[0]
	if port, _ := c.Flags().GetString("port-uuid"); port != "" {
		body["port_uuid"] = port
	}
	return body, nil
}

func mediaBody(_ *kit.Call, rest []string) (any, error) {
	return client.Record{"device_type": rest[0], "image_url": rest[1]}, nil
}

// addSubcommands adds the parts to a family of commands, word by word.
func addSubcommands(root *cobra.Command, e *kit.Endpoint, at client.Collection, parts []subcommandSpec) {
	for _, p := range parts {
		path := strings.Fields(p.words)
		cmd := p.command(e, at, "  salvor "+root.Name()+" "+p.words+" "+p.args)
		findOrCreate(root, path[:len(path)-1]).AddCommand(cmd)
	}
}

// groupShorts say what the commands below further words of a node or driver do.
var groupShorts = map[string]string{
	"add": "Add traits to a node", "remove": "Remove traits from a node", "trait": "List the traits of a node",
	"vif": "Attach tenants' ports to a node, detach and list them", "bios": "Show the BIOS settings of a node", "bios setting": "List and show the BIOS settings of a node",
	"firmware": "Show the firmware of a node's parts", "boot mode": "Set whether a node boots by UEFI or BIOS", "secure": "Turn secure boot of a node on or off",
	"secure boot": "Turn secure boot of a node on or off", "console": "Start, stop and show the console of a node", "inject": "Interrupt a node's processor",
	"inventory": "Show the hardware that the last inspection found", "children": "List the nodes that are part of a node",
	"attach": "Insert an image into a node's virtual drive", "attach virtual": "Insert an image into a node's virtual drive",
	"detach": "Eject the image from a node's virtual drives", "detach virtual": "Eject the image from a node's virtual drives",
	"get": "List the virtual drives of a node", "get virtual": "List the virtual drives of a node",
	"allocation": "Show the allocation that claims a node", "passthru": "List and call the methods of a vendor",
	"property": "List the keys of driver_info", "raid": "List the properties of logical disks", "raid property": "List the properties of logical disks",
}

// findOrCreate finds or makes the command that further words stand under.
func findOrCreate(cmd *cobra.Command, path []string) *cobra.Command {
	for i, word := range path {
		at := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == word })
		if at >= 0 {
			cmd = cmd.Commands()[at]
			continue
		}
		next := &cobra.Command{Use: word, Short: groupShorts[strings.Join(path[:i+1], " ")]}
		cmd.AddCommand(next)
		cmd = next
	}
	return cmd
}

func (p subcommandSpec) command(e *kit.Endpoint, at client.Collection, example string) *cobra.Command {
	o := &kit.Output{}
	path := strings.Fields(p.words)
	if p.example == "" {
		p.example = example
	}
	cmd := &cobra.Command{
		Use: path[len(path)-1] + " " + p.args, Short: p.short, Args: cobra.ExactArgs(len(strings.Fields(p.args))), Example: p.example,
		RunE: e.Run(func(c *kit.Call) error { return p.run(c, o, at) }),
	}
	if p.shows || p.columns != nil {
		o.Flags(cmd)
	}
	if p.takesMany(at) {
		cmd.Use += "..."
		selectNodes(cmd)
		cmd.RunE = e.Run(func(c *kit.Call) error {
			return eachNode(c, "", "%s: accepted: "+p.words, func(ident string) error {
				return p.run(&kit.Call{Command: c.Command, API: c.API, Args: []string{ident}}, o, at)
			})
		})
	}
	if p.flags != nil {
		p.flags(cmd)
	}
	return cmd
}

// takesMany tells whether the command is an order that names nodes only.
func (p subcommandSpec) takesMany(at client.Collection) bool {
	return at == client.Nodes && p.args == "NODE" && p.method != "" && p.flags == nil
}

func (p subcommandSpec) run(c *kit.Call, o *kit.Output, at client.Collection) error {
	if p.shows || p.columns != nil {
		if err := o.Check(c.Command); err != nil {
			return err
		}
	}
	path, rest := p.place(at, c.Args)
	var body any
	if p.body != nil {
		var err error
		if body, err = p.body(c, rest); err != nil {
			return err
		}
	}
	method := p.method
	if method == "" {
		method = http.MethodGet
	}
	var answer client.Record
	into := any(&answer)
	if method != http.MethodGet {
		into = nil
	}
	var query url.Values
	long, _ := c.Flags().GetBool("long")
	if long {
		query = url.Values{"detail": {"true"}}
	}
	if err := c.API.Call(c.Context(), method, path, query, body, into); err != nil || into == nil {
		return err
	}
	if p.columns == nil {
		return o.Show(c.OutOrStdout(), unwrapRecord(answer))
	}
	l := listOptions{Output: *o, long: long}
	found := recordsFromList(answer[p.envelope], p.columns[0])
	return l.List(c.OutOrStdout(), l.shown(p.columns, found), found)
}

// place gives the path of the request and the arguments that are not in it.
func (p subcommandSpec) place(at client.Collection, args []string) (string, []string) {
	path, rest := at.Path+"/"+url.PathEscape(args[0]), args[1:]
	if p.path != "" {
		path += "/" + p.path
	}
	for strings.Contains(path, "{}") && len(rest) > 0 {
		path, rest = strings.Replace(path, "{}", url.PathEscape(rest[0]), 1), rest[1:]
	}
	return path, rest
}

// unwrapRecord takes an answer that is one object under its own name out of it.
func unwrapRecord(r client.Record) client.Record {
	if len(r) == 1 {
		for _, v := range r {
			if inner, ok := v.(map[string]any); ok {
				return inner
			}
		}
	}
	return r
}

// recordsFromList makes records of a list of objects, or of words under the name of a column.
func recordsFromList(list any, name string) []client.Record {
	items, _ := list.([]any)
	out := make([]client.Record, 0, len(items))
	for _, item := range items {
		if r, ok := item.(map[string]any); ok {
			out = append(out, r)
			continue
		}
		out = append(out, client.Record{name: item})
	}
	return out
}

// newTraitCommands are `node add trait` and `node remove trait`, which take several.
func newTraitCommands(e *kit.Endpoint, node *cobra.Command) {
	each := func(method string) func(c *kit.Call) error {
		return func(c *kit.Call) error {
			path := client.Nodes.Path + "/" + url.PathEscape(c.Args[0]) + "/traits"
			if all, _ := c.Flags().GetBool("all"); all {
				return c.API.Call(c.Context(), method, path, nil, nil, nil)
			}
			if len(c.Args) < 2 {
				return kit.UsageErrorf(c.Command, "name a trait")
			}
			for _, trait := range c.Args[1:] {
				if err := c.API.Call(c.Context(), method, path+"/"+url.PathEscape(trait), nil, nil, nil); err != nil {
					return err
				}
			}
			return nil
		}
	}
	add := &cobra.Command{
		Use: "trait NODE TRAIT...", Short: "Add traits to a node", Args: cobra.MinimumNArgs(2),
		Example: "  salvor node add trait rack1-7 CUSTOM_GOLD HW_CPU_X86_VMX", RunE: e.Run(each(http.MethodPut)),
	}
	remove := &cobra.Command{
		Use: "trait NODE [TRAIT...]", Short: "Remove traits from a node", Args: cobra.MinimumNArgs(1),
		Example: "  salvor node remove trait rack1-7 CUSTOM_GOLD\n  salvor node remove trait rack1-7 --all", RunE: e.Run(each(http.MethodDelete)),
	}
	remove.Flags().Bool("all", false, "all of them")
	findOrCreate(node, []string{"add"}).AddCommand(add)
	findOrCreate(node, []string{"remove"}).AddCommand(remove)
}

// newPassthruCall is `passthru call` of a node or a driver.
func newPassthruCall(e *kit.Endpoint, at client.Collection, ident string) *cobra.Command {
	var method string
	var args []string
	cmd := &cobra.Command{
		Use: "call " + ident + " METHOD", Short: "Call a vendor method", Args: cobra.ExactArgs(2),
		Example: "  salvor " + strings.ToLower(ident) + " passthru call " + ident + " METHOD --arg KEY=VALUE",
		RunE: e.Run(func(c *kit.Call) error {
			body, err := parseKeyValues(c.Command, "arg", args)
			if err != nil {
				return err
			}
			path := at.Path + "/" + url.PathEscape(c.Args[0]) + "/vendor_passthru"
			var sent any = body
			if method == http.MethodGet || method == http.MethodDelete {
				sent = nil
			}
			request := client.Request{Method: method, Path: path, Query: url.Values{"method": {c.Args[1]}}, Body: sent}
			answer, err := c.API.Send(c.Context(), request)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(append(answer.Body, '\n'))
			return err
		}),
	}
	kit.AddEnumFlag(cmd, &method, "http-method", http.MethodPost, "GET, POST, PUT, PATCH or DELETE", http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete)
	cmd.Flags().StringArrayVar(&args, "arg", nil, "KEY=VALUE; may be repeated")
	return cmd
}
