package main

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/metal"
	"salvor/problem"
)

// whereFlag chooses nodes by their fields.
const whereFlag = "where"

// nodesAtOnce bounds the requests for many nodes that are under way at a time; chosenShown bounds the list of those chosen.
const (
	nodesAtOnce = 8
	chosenShown = 100
)

// dryRunFlag shows which nodes a command would choose.
const dryRunFlag = "dry-run"

// selectNodes lets a command take either names, which may be patterns, or --where.
func selectNodes(cmd *cobra.Command) { selectNodesBefore(cmd, 0) }

// selectNodesBefore is selectNodes for a command that takes further arguments behind the nodes.
func selectNodesBefore(cmd *cobra.Command, more int) {
	defineWhere(cmd, "all nodes with KEY=VALUE instead of names, as: "+
		"--where state=active --where name='rack1-*' --where extra.rack=7; the other keys are the filters of salvor node list; may be repeated")
	cmd.Flags().Bool(dryRunFlag, false, "print which nodes are chosen, and do nothing")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch chosen := cmd.Flags().Changed(whereFlag); {
		case chosen && len(args) > more:
			return fmt.Errorf("name nodes or give --%s, not both", whereFlag)
		case !chosen && len(args) <= more:
			return fmt.Errorf("requires at least %d arg: name a node, or choose some by --%s KEY=VALUE", more+1, whereFlag)
		case len(args) < more:
			return fmt.Errorf("requires %d arg behind --%s", more, whereFlag)
		}
		return nil
	}
}

// clientCondition is a condition that the API has no filter for: the client compares the records.
type clientCondition struct{ field, key, pattern string }

// isClientKey tells whether a key of --where is one that the client compares: name, or extra.KEY.
func isClientKey(key string) bool { return key == "name" || strings.HasPrefix(key, "extra.") }

// holds compares a record, whose field may be a text, a number or a bool, with the pattern.
func (w clientCondition) holds(r client.Record) bool {
	v := r[w.field]
	if w.key != "" {
		inner, _ := v.(map[string]any)
		if v = inner[w.key]; v == nil {
			return false
		}
	}
	fits, err := path.Match(w.pattern, fmt.Sprint(v))
	return err == nil && fits
}

// isPattern tells whether a word is a pattern for names. No node is called so, because names are DNS names.
func isPattern(word string) bool { return strings.ContainsAny(word, "*?[") }

// matchingNodes are the records for which all conditions hold.
func matchingNodes(records []client.Record, conditions []clientCondition) (out []client.Record) {
	for _, r := range records {
		if !slices.ContainsFunc(conditions, func(w clientCondition) bool { return !w.holds(r) }) {
			out = append(out, r)
		}
	}
	return out
}

// defineWhere defines --where, which completes its keys, and the values of those that have few.
func defineWhere(cmd *cobra.Command, usage string) {
	cmd.Flags().StringArray(whereFlag, nil, usage)
	_ = cmd.RegisterFlagCompletionFunc(whereFlag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		keys := selectionKeys()
		key, _, chosen := strings.Cut(typed, "=")
		if !chosen {
			var out []string
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				out = append(out, key+"=")
			}
			out = append(out, "name=", "extra.")
			return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		values := slices.Clone(nodeFilterValues(keys[key]))
		for i := range values {
			values[i] = key + "=" + values[i]
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	})
}

// bmcStates are the values of the filter bmc.
func bmcStates() []string {
	out := make([]string, len(metal.BMCStates))
	for i, state := range metal.BMCStates {
		out[i] = string(state)
	}
	return out
}

// nodeFilterValues are the values that a filter of the list of nodes takes; nil: any.
func nodeFilterValues(parameter string) []string {
	switch {
	case parameter == "provision_state":
		return provisionStates()
	case parameter == "bmc":
		return bmcStates()
	case slices.ContainsFunc(nodeChoices, func(f nodeChoice) bool { return f.parameter == parameter }):
		return []string{"true", "false"}
	}
	return nil
}

// checkNodeFilter refuses a value that a filter of the list of nodes does not take.
func checkNodeFilter(cmd *cobra.Command, flag, parameter, value string) error {
	if allowed := nodeFilterValues(parameter); allowed != nil {
		return kit.CheckAllowed(cmd, flag, value, allowed)
	}
	return nil
}

// provisionStates are those of nodes, in the order of the alphabet.
func provisionStates() []string {
	out := make([]string, len(metal.States))
	for i, s := range metal.States {
		out[i] = string(s.State)
	}
	slices.Sort(out)
	return out
}

// selectionKeys are the keys of --where with the parameters of the list.
func selectionKeys() map[string]string {
	keys := map[string]string{"state": "provision_state"}
	for _, f := range nodeFilters {
		keys[f.flag] = f.record()
	}
	for _, f := range nodeChoices {
		if f.parameter != "include_children" {
			keys[f.yes] = f.parameter
		}
	}
	return keys
}

// selection adds the conditions of --where to out, and gives those that the client compares.
func selection(c *kit.Call, conditions []string, out url.Values) (rest []clientCondition, err error) {
	for _, condition := range conditions {
		key, value, ok := strings.Cut(condition, "=")
		if key = strings.TrimSpace(key); !ok || !isClientKey(key) {
			if err := addFilter(c, condition, out); err != nil {
				return nil, err
			}
			continue
		}
		if _, err := path.Match(value, ""); err != nil {
			return nil, kit.UsageErrorf(c.Command, "--%s %s: want a pattern with *, ? and [a-z]: %w", whereFlag, condition, err)
		}
		field, inner, _ := strings.Cut(key, ".")
		rest = append(rest, clientCondition{field, inner, value})
	}
	return rest, nil
}

// addFilter adds a condition that the API compares.
func addFilter(c *kit.Call, condition string, out url.Values) error {
	keys := selectionKeys()
	key, value, ok := strings.Cut(condition, "=")
	key = strings.ReplaceAll(strings.TrimSpace(key), "_", "-")
	parameter, known := keys[key]
	switch {
	case !ok:
		return kit.UsageErrorf(c.Command, "--%s %s: want KEY=VALUE", whereFlag, condition)
	case !known:
		return kit.UsageErrorf(c.Command, "--%s %s: unknown key %q; %s", whereFlag, condition, key, problem.WantOneOf(append(slices.Collect(maps.Keys(keys)), "name", "extra.KEY")))
	case out.Has(parameter):
		return kit.UsageErrorf(c.Command, "--%s %s: %s is given twice", whereFlag, condition, key)
	}
	if isBool := slices.ContainsFunc(nodeChoices, func(f nodeChoice) bool { return f.parameter == parameter }); isBool {
		on, err := strconv.ParseBool(strings.ToLower(value))
		if err != nil {
			return kit.UsageErrorf(c.Command, "--%s %s: want true or false", whereFlag, condition)
		}
		value = strconv.FormatBool(on)
	}
	if err := checkNodeFilter(c.Command, "--"+whereFlag+" "+key, parameter, value); err != nil {
		return err
	}
	out.Set(parameter, value)
	return nil
}

// chooseNodes replaces the arguments by the UUIDs of the nodes that --where or patterns of names choose, and shows their names.
func chooseNodes(c *kit.Call) error {
	conditions, _ := c.Flags().GetStringArray(whereFlag)
	patterns := c.Args
	if len(conditions) == 0 && !slices.ContainsFunc(patterns, isPattern) {
		return nil
	}
	filter := url.Values{}
	rest, err := selection(c, conditions, filter)
	if err != nil {
		return err
	}
	fields := []string{"uuid", "name", "provision_state"}
	if slices.ContainsFunc(rest, func(w clientCondition) bool { return w.field == "extra" }) {
		fields = append(fields, "extra")
	}
	nodes, err := c.API.List(c.Context(), client.Nodes, client.Query{Filter: filter, Fields: fields})
	if err == nil && len(nodes) == 0 {
		err = refuseUnknownNames(c, filter, nodeFilters)
	}
	if err != nil {
		return err
	}
	if len(patterns) > 0 {
		nodes = slices.DeleteFunc(nodes, func(n client.Record) bool {
			return !slices.ContainsFunc(patterns, func(p string) bool {
				fits, err := path.Match(p, n.Text("name"))
				return p == n.Text("name") || p == n.Text("uuid") || err == nil && fits
			})
		})
	}
	if nodes = matchingNodes(nodes, rest); len(nodes) == 0 {
		return fmt.Errorf("no node has %s", kit.StripControlChars(strings.Join(append(conditions, patterns...), " and ")))
	}
	c.Args, c.Labels = nil, map[string]string{}
	for i, n := range nodes {
		id := n.Text("uuid")
		c.Args, c.Labels[id] = append(c.Args, id), kit.StripControlChars(kit.FirstOf(n.Text("name"), id))
		if i < chosenShown {
			c.Say("chosen: %s (%s)", c.Labels[id], kit.StripControlChars(n.Text("provision_state")))
		}
	}
	if rest := len(nodes) - chosenShown; rest > 0 {
		c.Say("chosen: %d more", rest)
	}
	c.Say("%d nodes are chosen", len(nodes))
	return nil
}

// inParallel does something for each of n indices, atOnce at a time, and returns when all have ended.
func inParallel(n, atOnce int, do func(i int)) {
	slots := make(chan struct{}, atOnce)
	for i := range n {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			do(i)
		}()
	}
	for range atOnce {
		slots <- struct{}{}
	}
}

// eachNode does something for every node named or chosen, some at a time, all of them even where one fails. Of several it prints a
// line each: many, a format with the name. one is that line where a single node was named; empty: none is printed. c.args becomes those
// for which it did not fail.
func eachNode(c *kit.Call, one, many string, do func(ident string) error) error {
	if err := chooseNodes(c); err != nil {
		return err
	}
	if dry, _ := c.Flags().GetBool(dryRunFlag); dry {
		for _, ident := range c.Args {
			if c.Labels == nil {
				c.Say("chosen: %s", c.Label(ident))
			}
		}
		c.Args = nil
		return nil
	}
	names := make([]string, len(c.Args))
	for i, ident := range c.Args {
		names[i] = c.Label(ident)
	}
	if err := confirm(c.Command, names, c.Labels != nil); err != nil {
		return err
	}
	if len(c.Args) == 1 && c.Labels == nil {
		err := c.Each(do)
		if err != nil {
			c.Args = nil
		} else if one != "" {
			c.Say(one, names[0])
		}
		return err
	}
	results, idents := make([]chan error, len(c.Args)), slices.Clone(c.Args)
	for i := range results {
		results[i] = make(chan error, 1)
	}
	go inParallel(len(idents), nodesAtOnce, func(i int) { results[i] <- do(idents[i]) })
	var failed []error
	var done []string
	for i, result := range results {
		if err := <-result; err != nil {
			failed = append(failed, err)
			c.Say("%s: failed: %s", names[i], strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		done = append(done, c.Args[i])
		c.Say(many, names[i])
	}
	total := len(c.Args)
	if c.Args = done; len(failed) == 0 {
		return nil
	}
	return kit.WithStatus(kit.StatusFailed, manyFailed{errors.Join(failed...), len(failed), total})
}

// manyFailed says how many nodes failed. Why each did was printed on a line of its own.
type manyFailed struct {
	error
	failed, total int
}

func (m manyFailed) Error() string { return fmt.Sprintf("%d of %d nodes failed", m.failed, m.total) }
func (m manyFailed) Unwrap() error { return m.error }
