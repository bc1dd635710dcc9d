package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
)

// completeWithin bounds the time in which the API gives names to a shell, and mostCompleted how many of them are shown.
const (
	completeWithin = time.Second
	mostCompleted  = 100
)

var nodeResource = resourceSpec{at: client.Nodes}

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
			return checkAllowed(cmd, "shell", args[0], shells)
		}
	}
}

// namesFor asks the API for the names of records that begin with what is typed; nothing where it does not answer in time.
func namesFor(cmd *cobra.Command, kinds []*resourceSpec, given []string, typed string) []string {
	text := func(flag string) string { v, _ := cmd.Flags().GetString(flag); return v }
	e := &apiEndpoint{
		url: text("url"), user: text("user"), version: text("api-version"), cloud: text("os-cloud"), ca: text("cacert"), cert: text("cert"), key: text("cert-key"),
		timeout: completeWithin,
	}
	ctx, cancel := context.WithTimeout((&clientCall{Command: cmd}).context(), completeWithin)
	defer cancel()
	cmd.SetContext(ctx)
	api, err := e.client(cmd)
	if err != nil {
		return nil
	}
	c, names := &clientCall{Command: cmd, api: api}, map[string]bool{}
	for _, kind := range kinds {
		var found []client.Record
		if kind.isBaremetal() {
			found, err = api.List(ctx, kind.at, client.Query{})
		} else {
			found, err = kind.all(c, nil)
		}
		for _, one := range found {
			name := firstOf(one.Text("name"), one.Text("uuid"), one.Text("id"))
			if err == nil && strings.HasPrefix(name, typed) && !slices.Contains(given, name) {
				names[stripControlChars(name)] = true
			}
		}
	}
	out := slices.Sorted(maps.Keys(names))
	return out[:min(len(out), mostCompleted)]
}

// completeFlag offers fixed values for a flag.
func completeFlag(cmd *cobra.Command, flag string, values func() []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
}

// cloudNames are those of clouds.yaml; none where it cannot be read.
func cloudNames() []string {
	f, err := readCloudFiles()
	if err != nil || f == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(f.clouds))
}
