package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
)

// mostCompleted is how many names are offered to a shell.
const mostCompleted = 100

var nodeResource = resourceSpec{at: client.Nodes, title: "node"}

// completed are the kinds whose names stand for an argument, by its word in the usage of a command.
var completed = map[string][]*resourceSpec{
	"NODE": {&nodeResource}, "SERVER": {&serverResource}, "HOST": {&hostResource}, "PLAN|HOST": {&hostResource},
	"IDENT": {&nodeResource, &serverResource, &hostResource}, "SERVER|NODE": {&sessionResource}, "NODE|SERVER": {&nodeResource, &serverResource},
	"PORT": {&portResource}, "PORT_GROUP": {&portgroupResource}, "CHASSIS": {&chassisResource}, "ALLOCATION": {&allocationResource}, "RUNBOOK": {&runbookResource},
	"CONNECTOR": {&connectorResource}, "TARGET": {&targetResource}, "RULE": {&ruleResource},
	"TEMPLATE": {&deployTemplateResource}, "FLAVOR": {&flavorResource}, "KEYPAIR": {&keypairResource}, "NETWORK": {&networkResource},
	"IMAGE": {&imageResource}, "VOLUME": {&volumeResource}, "RESCUE_IMAGE": {&rescueImageResource}, "CLUSTER": {&clusterResource}, "GROUP": {&hostGroupResource},
	"TOKEN": {&tokenResource}, "SITE": {&siteResource},
}

// addCompletion has every command of a tree complete the names that it takes.
func addCompletion(cmd *cobra.Command) {
	if words := strings.Fields(strings.Trim(cmd.Use, "[]")); len(words) > 1 && cmd.ValidArgsFunction == nil && cmd.RunE != nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			at := len(args) + 1
			if at >= len(words) && strings.Contains(words[len(words)-1], "...") {
				at = len(words) - 1
			}
			if at >= len(words) || cmd.Flags().Lookup("url") == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			kinds, known := completed[strings.Trim(words[at], "[].")]
			if !known {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return namesFor(cmd, kinds, args, typed), cobra.ShellCompDirectiveNoFileComp
		}
	}
	for _, c := range cmd.Commands() {
		addCompletion(c)
	}
}

// addCompletionScripts adds cobra's command that prints scripts for shells. An unknown shell is wrong usage.
func addCompletionScripts(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		var shells []string
		for _, shell := range cmd.Commands() {
			shells = append(shells, shell.Name())
		}
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return kit.CheckAllowed(cmd, "shell", args[0], shells)
		}
	}
}

// completeColumns completes -c, --fields and --sort. own are the columns of a list without --long; nil: the command shows one record, with
// every field. The fields of a record are those of a record that the API has.
func completeColumns(cmd *cobra.Command, kind *resourceSpec, own []string) {
	for _, flag := range []string{"column", "fields", "sort"} {
		if cmd.Flags().Lookup(flag) == nil {
			continue
		}
		_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			long, _ := cmd.Flags().GetBool("long")
			if flag == "column" && own != nil && !long {
				return own, cobra.ShellCompDirectiveNoFileComp
			}
			before, _, _ := cutLast(typed, ",")
			var out []string
			for _, field := range kind.fieldsFor(cmd) {
				out = append(out, before+field)
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// cutLast cuts a text behind the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	return text[:i+1], text[i+1:], i >= 0
}

// fieldsFor asks the API for a record and gives the names of its fields; nothing where it does not answer in time.
func (r *resourceSpec) fieldsFor(cmd *cobra.Command) []string {
	c, done := kit.CompletingCall(cmd)
	if c == nil {
		return nil
	}
	defer done()
	var found []client.Record
	if r.isBaremetal() {
		found, _ = c.API.List(c.Context(), r.at, client.Query{Limit: 1, Detail: true})
	} else {
		found, _ = r.all(c, nil)
	}
	if len(found) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(found[0])), func(f string) bool { return slices.Contains(kit.HiddenFields, f) })
}

// namesFor asks the API for the names of records that begin with what is typed; nothing where it does not answer in time.
func namesFor(cmd *cobra.Command, kinds []*resourceSpec, given []string, typed string) []string {
	c, done := kit.CompletingCall(cmd)
	if c == nil {
		return nil
	}
	defer done()
	ctx, names := c.Context(), map[string]bool{}
	for _, kind := range kinds {
		var found []client.Record
		var err error
		if kind.isBaremetal() {
			found, err = c.API.List(ctx, kind.at, client.Query{})
		} else {
			found, err = kind.all(c, nil)
		}
		for _, one := range found {
			name := kit.FirstOf(one.Text("name"), one.Text("uuid"), one.Text("id"))
			if err == nil && strings.HasPrefix(name, typed) && !slices.Contains(given, name) {
				names[kit.StripControlChars(name)] = true
			}
		}
	}
	out := slices.Sorted(maps.Keys(names))
	return out[:min(len(out), mostCompleted)]
}
