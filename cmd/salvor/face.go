package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/problem"
	"salvor/record"
)

// resourceSpec is a kind of record of a face beside Ironic's: its commands are create, list, show, set and
// delete, in the grammar of the openstack command.
type resourceSpec struct {
	face   client.Face
	path   string // of the list, below the face
	detail string // of the list with all fields, where that is another one
	one    string // the key around one record; empty: it stands alone
	many   string // the key around the list
	words  []string
	ident  string // RESCUE_IMAGE
	title  string
	plural string
	called string // the field that holds the name, where it is not name
	// keyed: one may be asked for by a word, be it an id that people choose or a name; else by UUID or number only.
	keyed bool
	// named narrows the list to those with a name, or to a few more; nil: the face cannot.
	named func(name string) url.Values
	// everywhere widens that list to all projects, for administrators; nil: the records have no projects.
	everywhere func(query url.Values) url.Values
	// columns of the list, as fields of the record.
	columns []string
	fields  []resourceField
	// first is the argument of create; nil: none.
	first *resourceField
	// make and change are the words for create and set where they are others; "-": there is none.
	make, change, drop string
	filters            []resourceField
	dropWith           []resourceField // what the removal takes, as parameters
	example            string
}

func (k *resourceSpec) call() string { return "  salvor " + strings.Join(k.words, " ") + " " }

// commands makes the commands of the kind.
func (k *resourceSpec) commands(e *apiEndpoint) []*cobra.Command {
	all := []*cobra.Command{k.list(e), k.show(e)}
	if k.make != "-" {
		all = append(all, k.create(e))
	}
	if k.change != "-" {
		all = append(all, k.set(e))
	}
	if k.drop != "-" {
		all = append(all, k.remove(e))
	}
	for _, cmd := range all {
		cmd.Flags().SetNormalizeFunc(normalizeFlagName)
	}
	return all
}

func (k *resourceSpec) command(e *apiEndpoint, short string) *cobra.Command {
	cmd := &cobra.Command{Use: k.words[len(k.words)-1], Short: short, Example: k.example}
	cmd.AddCommand(k.commands(e)...)
	return cmd
}

// wrap puts a record under the key that stands for one.
func (k *resourceSpec) wrap(r client.Record) any {
	if k.one == "" {
		return r
	}
	return client.Record{k.one: r}
}

func (k *resourceSpec) ask(c *clientCall, method, path string, query url.Values, body any) (client.Record, error) {
	var got client.Record
	if err := c.api.Ask(c.context(), k.face, method, k.path+path, query, body, &got); err != nil {
		return nil, err
	}
	if inner, ok := got[k.one].(map[string]any); ok && k.one != "" {
		return inner, nil
	}
	return got, nil
}

// all reads the list.
func (k *resourceSpec) all(c *clientCall, query url.Values) ([]client.Record, error) {
	path := firstOf(k.detail, k.path)
	var out []client.Record
	for {
		var got map[string]any
		if err := c.api.Ask(c.context(), k.face, http.MethodGet, path, query, nil, &got); err != nil {
			return nil, err
		}
		rows, _ := got[k.many].([]any)
		for _, row := range rows {
			if r, ok := row.(map[string]any); ok {
				// Some lists wrap each of their items too.
				if inner, ok := r[k.one].(map[string]any); ok && len(r) == 1 {
					r = inner
				}
				out = append(out, r)
			}
		}
		next, ok := nextPage(got, k.many)
		if !ok {
			return out, nil
		}
		query = next
	}
}

// nextPage is the query of the page that the answer names as the next.
func nextPage(got map[string]any, many string) (url.Values, bool) {
	next, _ := got["next"].(string)
	links, _ := got[many+"_links"].([]any)
	for _, l := range links {
		if link, ok := l.(map[string]any); ok && link["rel"] == "next" {
			next, _ = link["href"].(string)
		}
	}
	at, err := url.Parse(next)
	return at.Query(), err == nil && next != ""
}

// allFields are a record's, in the order of the alphabet.
func allFields(r client.Record) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r)), func(f string) bool { return slices.Contains(hidden, f) })
}

var wholeNumber = regexp.MustCompile(`^[0-9]+$`)

// mayBeID tells whether the face can be asked for ident as it is. A path that would end in dots leads elsewhere.
func (k *resourceSpec) mayBeID(ident string) bool {
	return record.IsUUID(ident) || wholeNumber.MatchString(ident) || k.keyed && ident != "." && ident != ".."
}

// idsOf gives the ids of the records in a list whose name is ident.
func (k *resourceSpec) idsOf(c *clientCall, ident string, query url.Values) (ids []string, err error) {
	found, err := k.all(c, query)
	for _, r := range found {
		if r.Text(firstOf(k.called, "name")) == ident {
			ids = append(ids, fmt.Sprint(r["id"]))
		}
	}
	return ids, err
}

// find gives the id of the one that is called ident, or ident itself where it is an id.
func (k *resourceSpec) find(c *clientCall, ident string) (string, error) {
	if ident == "" {
		return "", usageErrorf(c.Command, "an empty word names no %s", k.title)
	}
	if k.mayBeID(ident) {
		err := c.api.Ask(c.context(), k.face, http.MethodGet, k.path+"/"+url.PathEscape(ident), nil, nil, nil)
		if err == nil {
			return ident, nil
		}
		if status := client.StatusOf(err); status != http.StatusNotFound && status != http.StatusBadRequest {
			return "", err
		}
	}
	var query url.Values
	if k.named != nil {
		query = k.named(ident)
	}
	ids, err := k.idsOf(c, ident, query)
	if err == nil && len(ids) == 0 && k.everywhere != nil { // administrators may name servers of other projects
		all, failed := k.idsOf(c, ident, k.everywhere(query))
		if status := client.StatusOf(failed); status != http.StatusForbidden {
			ids, err = all, failed
		}
	}
	if err != nil {
		return "", err
	}
	switch len(ids) {
	case 0:
		return "", problem.NotFoundf("no %s has the id or name %s: see%s list", k.title, stripControlChars(ident), strings.TrimRight(k.call()[1:], " "))
	case 1:
		return ids[0], nil
	}
	return "", withStatus(statusFailed, fmt.Errorf("%d %s are called %s: name one by its id: %s", len(ids), k.plural, stripControlChars(ident), strings.Join(ids, ", ")))
}

// byName narrows a list by the parameter name.
func byName(name string) url.Values { return url.Values{"name": {name}} }

// byLabel narrows a list by the parameter label.
func byLabel(name string) url.Values { return url.Values{"label": {name}} }

// byImageName narrows a list of images. The image API takes what begins with in: for several names.
func byImageName(name string) url.Values {
	if strings.HasPrefix(name, "in:") {
		return nil
	}
	return byName(name)
}

// inEveryProject extends a list of servers to all projects.
func inEveryProject(query url.Values) url.Values {
	out := maps.Clone(query)
	if out == nil {
		out = url.Values{}
	}
	out.Set("all_tenants", "True")
	return out
}

// byServerName narrows a list of servers. Nova's name filter is a regular expression. Dots stay unescaped: they match the
// name too, and a name without other special characters is looked up at once.
func byServerName(name string) url.Values {
	return byName("^" + strings.ReplaceAll(regexp.QuoteMeta(name), `\.`, ".") + "$")
}

// read takes the flags that were given into a record.
func (k *resourceSpec) read(c *clientCall, fields []resourceField) (client.Record, error) {
	record := client.Record{}
	for _, f := range fields {
		v, ok, err := f.value(c)
		if err != nil {
			return nil, err
		}
		if ok {
			record[f.record()] = v
		}
	}
	return record, nil
}

func (k *resourceSpec) create(e *apiEndpoint) *cobra.Command {
	o := &outputOptions{}
	verb := firstOf(k.make, "create")
	use, args := verb, cobra.NoArgs
	if k.first != nil {
		use, args = verb+" "+strings.ToUpper(k.first.record()), cobra.ExactArgs(1)
	}
	cmd := &cobra.Command{
		Use: use, Short: "Create a " + k.title, Args: args, Example: k.example,
		RunE: e.run(func(c *clientCall) error {
			if err := o.check(c.Command); err != nil {
				return err
			}
			record, err := k.read(c, k.fields)
			if err != nil {
				return err
			}
			if k.first != nil {
				record[k.first.record()] = c.args[0]
			}
			made, err := k.ask(c, http.MethodPost, "", nil, k.wrap(record))
			if err != nil {
				return err
			}
			return o.show(c.OutOrStdout(), made)
		}),
	}
	o.flags(cmd)
	for _, f := range k.fields {
		f.define(cmd)
		if f.required {
			_ = cmd.MarkFlagRequired(f.flag)
		}
	}
	return cmd
}

func (k *resourceSpec) list(e *apiEndpoint) *cobra.Command {
	o, long := &outputOptions{}, false
	cmd := &cobra.Command{
		Use: "list", Short: "List " + k.plural, Args: cobra.NoArgs, Example: k.call() + "list\n" + k.call() + "list -f json",
		RunE: e.run(func(c *clientCall) error {
			if err := o.check(c.Command); err != nil {
				return err
			}
			query := url.Values{}
			for _, f := range k.filters {
				v, ok, err := f.value(c)
				if err != nil {
					return err
				}
				if ok {
					query.Set(f.filter, fmt.Sprint(v))
				}
			}
			found, err := k.all(c, query)
			if err != nil {
				return err
			}
			columns := columnsOf(k.columns)
			if long && len(found) > 0 {
				columns = columnsOf(allFields(found[0]))
			}
			return o.list(c.OutOrStdout(), columns, found)
		}),
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&long, "long", false, "every field")
	for _, f := range k.filters {
		f.define(cmd)
	}
	return cmd
}

func (k *resourceSpec) show(e *apiEndpoint) *cobra.Command {
	o := &outputOptions{}
	cmd := &cobra.Command{
		Use: "show " + k.ident, Short: "Show a " + k.title, Args: cobra.ExactArgs(1), Example: k.call() + "show NAME\n" + k.call() + "show NAME -f json",
		RunE: e.run(func(c *clientCall) error {
			if err := o.check(c.Command); err != nil {
				return err
			}
			id, err := k.find(c, c.args[0])
			if err != nil {
				return err
			}
			found, err := k.ask(c, http.MethodGet, "/"+url.PathEscape(id), nil, nil)
			if err != nil {
				return err
			}
			return o.show(c.OutOrStdout(), found)
		}),
	}
	o.flags(cmd)
	return cmd
}

func (k *resourceSpec) set(e *apiEndpoint) *cobra.Command {
	var fields []resourceField
	if k.first != nil {
		fields = append(fields, *k.first)
	}
	for _, f := range k.fields {
		if !f.birth {
			fields = append(fields, f)
		}
	}
	verb := firstOf(k.change, "set")
	cmd := &cobra.Command{
		Use: verb + " " + k.ident, Short: "Change fields of a " + k.title, Args: cobra.ExactArgs(1), Example: k.example,
		RunE: e.run(func(c *clientCall) error {
			record, err := k.read(c, fields)
			if err != nil {
				return err
			}
			if len(record) == 0 {
				return usageErrorf(c.Command, "nothing to change")
			}
			id, err := k.find(c, c.args[0])
			if err != nil {
				return err
			}
			_, err = k.ask(c, http.MethodPatch, "/"+url.PathEscape(id), nil, k.wrap(record))
			return err
		}),
	}
	for _, f := range fields {
		f.define(cmd)
	}
	return cmd
}

func (k *resourceSpec) remove(e *apiEndpoint) *cobra.Command {
	verb := firstOf(k.drop, "delete")
	cmd := &cobra.Command{
		Use: verb + " " + k.ident + "...", Short: strings.ToUpper(verb[:1]) + verb[1:] + " " + k.plural, Args: cobra.MinimumNArgs(1), Example: k.call() + verb + " NAME",
		RunE: e.run(func(c *clientCall) error {
			with, err := k.read(c, k.dropWith)
			if err != nil {
				return err
			}
			query := url.Values{}
			for name, v := range with {
				query.Set(name, fmt.Sprint(v))
			}
			return c.each(func(ident string) error {
				id, err := k.find(c, ident)
				if err != nil {
					return err
				}
				return c.api.Ask(c.context(), k.face, http.MethodDelete, k.path+"/"+url.PathEscape(id), query, nil, nil)
			})
		}),
	}
	for _, f := range k.dropWith {
		f.define(cmd)
	}
	return cmd
}
