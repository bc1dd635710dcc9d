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

// resourceSpec is a kind of record with the commands that all kinds have: create, list, show, set, unset and delete. Their grammar is
// that of the baremetal command for the records of the Bare Metal API, and that of the openstack command for all others.
type resourceSpec struct {
	at client.Collection // of the Bare Metal API; empty: the kind is of another API

	api    client.API
	path   string // of the list, below the API's root
	detail string // of the list with all fields, where that is another one
	one    string // the key around one record; empty: it stands alone
	many   string // the key around the list
	called string // the field that holds the name, where it is not name
	// keyed: one may be asked for by a word, be it an id that people choose or a name; else by UUID or number only.
	keyed bool
	// named narrows the list to those with a name, or to a few more; nil: the API cannot.
	named func(name string) url.Values
	// everywhere widens that list to all projects, for administrators; nil: the records have no projects.
	everywhere func(query url.Values) url.Values

	words   []string // of the command: volume connector
	ident   string   // VOLUME_CONNECTOR
	title   string   // of one: "volume connector"
	plural  string
	columns []string // of the short list, as fields of the record
	fields  []resourceField
	// first is a field that create takes as its argument; nil: none.
	first *resourceField
	// filters are parameters of the list that are no fields.
	filters []resourceField
	// make, change and drop are the words for create, set and delete where they are others; "-": there is none.
	make, change, drop string
	dropWith           []resourceField // what the removal takes, as parameters
	example            string
	// lookUp is a list's parameter by which show of the Bare Metal API can find one as well.
	lookUp string
}

// isBaremetal tells whether the kind is of the Bare Metal API.
func (r *resourceSpec) isBaremetal() bool { return r.at.Path != "" }

// commands makes the commands of the kind.
func (r *resourceSpec) commands(e *kit.Endpoint) []*cobra.Command {
	all := []*cobra.Command{r.list(e), r.show(e)}
	if r.make != "-" {
		all = append(all, r.create(e))
	}
	if r.change != "-" {
		all = append(all, r.set(e))
	}
	if r.isBaremetal() {
		all = append(all, r.unset(e))
	}
	if r.drop != "-" {
		all = append(all, r.remove(e))
	}
	for _, cmd := range all {
		cmd.Flags().SetNormalizeFunc(normalizeFlagName)
	}
	return all
}

// command is the word under which the commands of the kind stand.
func (r *resourceSpec) command(e *kit.Endpoint, short string) *cobra.Command {
	cmd := &cobra.Command{Use: r.words[len(r.words)-1], Short: short, Example: r.example}
	cmd.AddCommand(r.commands(e)...)
	return cmd
}

// call is an example of a command of the kind.
func (r *resourceSpec) call(words string) string {
	return "  salvor " + strings.Join(r.words, " ") + " " + words
}

func (r *resourceSpec) create(e *kit.Endpoint) *cobra.Command {
	o := &kit.Output{}
	use, args := kit.FirstOf(r.make, "create"), cobra.NoArgs
	if r.first != nil {
		use, args = use+" "+strings.ToUpper(r.first.record()), cobra.ExactArgs(1)
	}
	cmd := &cobra.Command{
		Use: use, Short: "Create a " + r.title, Args: args, Example: r.example,
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			record, err := readRecord(c, r.fields)
			if err != nil {
				return err
			}
			if r.first != nil {
				record[r.first.record()] = c.Args[0]
			}
			made, err := r.ask(c, http.MethodPost, "", nil, r.wrap(record))
			if err != nil {
				return err
			}
			return o.Show(c.OutOrStdout(), made)
		}),
	}
	o.Flags(cmd)
	defineFlags(cmd, r.fields)
	return cmd
}

// listFilters are the flags of list, named as the parameters.
func (r *resourceSpec) listFilters() []resourceField {
	out := slices.Clone(r.filters)
	for _, f := range r.settable(r.fields) {
		if f.filter != "" {
			out = append(out, resourceField{flag: f.flag, name: f.filter, usage: "only " + r.plural + " with this: " + f.usage, named: f.named})
		}
	}
	return out
}

func (r *resourceSpec) list(e *kit.Endpoint) *cobra.Command {
	l, filters := &listOptions{}, r.listFilters()
	cmd := &cobra.Command{
		Use: "list", Short: "List " + r.plural, Args: cobra.NoArgs, Example: r.call("list\n") + r.call("list -f json"),
		RunE: e.Run(func(c *kit.Call) error {
			values, err := readQuery(c, filters)
			if err != nil {
				return err
			}
			q, err := l.query(c.Command, values, c.Args)
			if err != nil {
				return err
			}
			var found []client.Record
			if r.isBaremetal() {
				found, err = c.API.List(c.Context(), r.at, q)
			} else {
				found, err = r.all(c, values)
			}
			if err == nil && len(found) == 0 {
				err = refuseUnknownNames(c, values, filters)
			}
			if err != nil {
				return err
			}
			columns := l.shown(r.columns, found)
			if l.long && !r.isBaremetal() && len(found) > 0 {
				columns = kit.ColumnsOf(allFields(found[0]))
			}
			return l.List(c.OutOrStdout(), columns, found)
		}),
	}
	if r.isBaremetal() {
		cmd.Args, cmd.Example = nil, r.call("list\n")+r.call("list --long -f json")
		l.flags(cmd)
		cmd.Flags().BoolVar(&l.long, "detail", false, "the same as --long")
	} else {
		l.Output.Flags(cmd)
		cmd.Flags().BoolVar(&l.long, "long", false, "every field")
	}
	completeColumns(cmd, r, r.columns)
	defineFlags(cmd, filters)
	return cmd
}

func (r *resourceSpec) show(e *kit.Endpoint) *cobra.Command {
	o, fields, byLookUp := &kit.Output{}, []string{}, false
	cmd := &cobra.Command{
		Use: "show " + r.ident, Short: "Show a " + r.title, Args: cobra.ExactArgs(1), Example: r.call("show NAME\n") + r.call("show NAME -f json"),
		RunE: e.Run(func(c *kit.Call) error {
			if err := o.Check(c.Command); err != nil {
				return err
			}
			if len(c.Args) > 1 && len(fields) == 0 {
				return kit.UsageErrorf(c.Command, "unexpected argument %q", c.Args[1])
			}
			find := r.find
			if byLookUp {
				find = r.findByLookUp
			}
			id, err := find(c, c.Args[0])
			if err != nil {
				return err
			}
			var query url.Values
			if fields = append(fields, c.Args[1:]...); len(fields) > 0 {
				query = url.Values{"fields": {strings.Join(fields, ",")}}
			}
			found, err := r.ask(c, http.MethodGet, "/"+url.PathEscape(id), query, nil)
			if err != nil {
				return err
			}
			return o.Show(c.OutOrStdout(), found)
		}),
	}
	o.Flags(cmd)
	if r.isBaremetal() {
		cmd.Args, cmd.Example = cobra.MinimumNArgs(1), r.call("show "+sampleUUID)
		cmd.Flags().StringSliceVar(&fields, "fields", nil, "the fields to show, separated by commas or spaces")
	}
	completeColumns(cmd, r, nil)
	if r.lookUp != "" {
		cmd.Flags().BoolVar(&byLookUp, r.lookUp, false, r.ident+" is its "+r.lookUp)
	}
	return cmd
}

// settable adds the argument of create to fields: other commands take it by its flag.
func (r *resourceSpec) settable(fields []resourceField) []resourceField {
	if r.first == nil {
		return fields
	}
	return append([]resourceField{*r.first}, fields...)
}

// changeable are the fields that set takes. None of them is required.
func (r *resourceSpec) changeable() []resourceField {
	var out []resourceField
	for _, f := range r.settable(r.fields) {
		if !f.createOnly {
			f.required = false
			out = append(out, f)
		}
	}
	return out
}

func (r *resourceSpec) set(e *kit.Endpoint) *cobra.Command {
	cmd := &cobra.Command{
		Use: kit.FirstOf(r.change, "set") + " " + r.ident, Short: "Change fields of a " + r.title, Args: cobra.ExactArgs(1), Example: r.example,
		RunE: e.Run(func(c *kit.Call) error {
			values, err := readFields(c, r.changeable())
			if err != nil {
				return err
			}
			if len(values) == 0 {
				return kit.UsageErrorf(c.Command, "nothing to change")
			}
			id, err := r.find(c, c.Args[0])
			if err != nil {
				return err
			}
			body := r.wrap(recordOf(values))
			if r.isBaremetal() {
				if body, err = patchOf(c.Command, values); err != nil {
					return err
				}
			}
			return r.send(c, http.MethodPatch, "/"+url.PathEscape(id), nil, body, nil)
		}),
	}
	if r.isBaremetal() {
		cmd.Example = r.call("set " + sampleUUID + " --extra rack=7")
	}
	defineFlags(cmd, r.changeable())
	return cmd
}

// unset is of the Bare Metal API only.
func (r *resourceSpec) unset(e *kit.Endpoint) *cobra.Command {
	fields := slices.DeleteFunc(r.changeable(), func(f resourceField) bool { return f.alwaysSet || f.form == offForm })
	cmd := &cobra.Command{
		Use: "unset " + r.ident, Short: "Reset fields of a " + r.title + " to their defaults", Args: cobra.ExactArgs(1),
		Example: r.call("unset " + sampleUUID + " --extra rack"),
		RunE: e.Run(func(c *kit.Call) error {
			p := &patchBuilder{}
			for _, f := range fields {
				keys, _ := c.Flags().GetStringArray(f.flag)
				for _, key := range keys {
					p.remove("/" + f.record() + "/" + escapeJSONPointer(key))
				}
				if on, _ := c.Flags().GetBool(f.flag); on {
					p.remove("/" + f.record())
				}
			}
			operations, err := p.done(c.Command)
			if err != nil {
				return err
			}
			return r.send(c, http.MethodPatch, "/"+url.PathEscape(c.Args[0]), nil, operations, nil)
		}),
	}
	for _, f := range fields {
		if f.form == objectForm {
			cmd.Flags().StringArray(f.flag, nil, "KEY to take out of "+f.record()+"; may be repeated")
			continue
		}
		cmd.Flags().Bool(f.flag, false, "unset "+f.record())
	}
	return cmd
}

func (r *resourceSpec) remove(e *kit.Endpoint) *cobra.Command {
	verb, sample := kit.FirstOf(r.drop, "delete"), "NAME"
	if r.isBaremetal() {
		sample = sampleUUID
	}
	cmd := &cobra.Command{
		Use: verb + " " + r.ident + "...", Short: strings.ToUpper(verb[:1]) + verb[1:] + " " + r.plural, Args: cobra.MinimumNArgs(1), Example: r.call(verb + " " + sample),
		RunE: e.Run(func(c *kit.Call) error {
			query, err := readQuery(c, r.dropWith)
			if err != nil {
				return err
			}
			return c.Each(func(ident string) error {
				id, err := r.find(c, ident)
				if err == nil {
					err = r.send(c, http.MethodDelete, "/"+url.PathEscape(id), query, nil, nil)
				}
				if err == nil && r.isBaremetal() {
					c.Say("Deleted %s %s", r.title, kit.StripControlChars(ident))
				}
				return err
			})
		}),
	}
	defineFlags(cmd, r.dropWith)
	return cmd
}

const sampleUUID = "5e8d0b8e-7d9c-4d36-a4f6-0c5f3b5a1a10"
