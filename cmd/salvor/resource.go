package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
)

// fieldForm is how a field is written on the command line.
type fieldForm int

const (
	textForm     fieldForm = iota
	numberForm             // a whole number
	boolForm               // true or false
	switchForm             // true if the flag is there
	offForm                // false if the flag is there
	listForm               // repeated
	objectForm             // KEY=VALUE, repeated
	documentForm           // JSON, a file, or - for standard input
	nodeForm               // a node by UUID or name, sent as its UUID
	fileForm               // a file whose text is sent
	durationForm           // how long something lasts, sent in seconds
)

// resourceField is one field of a resource, with the commands that take it.
type resourceField struct {
	flag, name string // name: the record's, where the flag does not tell
	letter     string // that stands for the flag; empty: none
	form       fieldForm
	usage      string
	required   bool   // on creation
	birth      bool   // on creation only
	kept       bool   // cannot be taken back
	bare       bool   // set takes its flag alone, for true
	filter     string // the list's parameter; empty: no filter
}

func (f resourceField) record() string {
	if f.name != "" {
		return f.name
	}
	return fieldOf(f.flag)
}

// baremetalResource is a kind of record with the commands that all kinds have: create, list,
// show, set, unset and delete, in the grammar of the baremetal command.
type baremetalResource struct {
	at      client.Collection
	words   []string // of the command: volume connector
	ident   string   // VOLUME_CONNECTOR
	title   string   // of one: "volume connector"
	plural  string
	columns []string // of the short list
	fields  []resourceField
	// first is a field that create takes as its argument; nil: none.
	first *resourceField
	// filters are parameters of the list that are no fields.
	filters []resourceField
	example string
	// lookUp is a list's parameter by which show can find one as well.
	lookUp string
}

// commands makes the commands of the kind.
func (r *baremetalResource) commands(e *apiEndpoint) []*cobra.Command {
	all := []*cobra.Command{r.create(e), r.list(e), r.show(e), r.set(e), r.unset(e), r.remove(e)}
	for _, cmd := range all {
		cmd.Flags().SetNormalizeFunc(normalizeFlagName)
	}
	return all
}

// command is the word under which the commands of the kind stand.
func (r *baremetalResource) command(e *apiEndpoint, short string) *cobra.Command {
	cmd := &cobra.Command{Use: r.words[len(r.words)-1], Short: short, Example: r.example}
	cmd.AddCommand(r.commands(e)...)
	return cmd
}

func (r *baremetalResource) call() string { return "  salvor " + strings.Join(r.words, " ") + " " }

// define makes the flag of a field.
func (f resourceField) define(cmd *cobra.Command) {
	flags := cmd.Flags()
	switch f.form {
	case listForm:
		flags.StringArray(f.flag, nil, f.usage+"; may be repeated")
	case objectForm:
		flags.StringArrayP(f.flag, f.letter, nil, "KEY=VALUE of "+f.record()+"; may be repeated")
	case switchForm, offForm:
		flags.Bool(f.flag, false, f.usage)
	case boolForm:
		flags.String(f.flag, "", f.usage+": true or false")
	case documentForm:
		flags.String(f.flag, "", f.usage+": JSON, a file, or - for standard input")
	default:
		flags.String(f.flag, "", f.usage)
	}
}

// value reads the flag of a field; ok is false where it is not given.
func (f resourceField) value(c *clientCall) (v any, ok bool, err error) {
	flags := c.Flags()
	if !flags.Changed(f.flag) {
		return nil, false, nil
	}
	switch f.form {
	case switchForm:
		on, err := flags.GetBool(f.flag)
		return on, true, err
	case offForm:
		off, err := flags.GetBool(f.flag)
		return !off, true, err
	case listForm:
		words, err := flags.GetStringArray(f.flag)
		return words, true, err
	case objectForm:
		args, _ := flags.GetStringArray(f.flag)
		values, err := parseKeyValues(c.Command, f.flag, args)
		return values, true, err
	}
	text, err := flags.GetString(f.flag)
	if err != nil {
		return nil, false, err
	}
	v, err = f.parse(c, text)
	return v, true, err
}

func (f resourceField) parse(c *clientCall, text string) (any, error) {
	switch f.form {
	case numberForm:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, usageErrorf(c.Command, "--%s %s: want a whole number", f.flag, text)
		}
		return n, nil
	case durationForm:
		d, err := parseLifetime(text)
		if err != nil {
			return nil, usageErrorf(c.Command, "--%s: %w", f.flag, err)
		}
		return int64(d.Seconds()), nil
	case boolForm:
		on, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return nil, usageErrorf(c.Command, "--%s %s: want true or false", f.flag, text)
		}
		return on, nil
	case documentForm:
		return readJSONArgument(c.Command, f.flag, text)
	case fileForm:
		read, err := readArgument(c.InOrStdin(), text, maxArgumentFile)
		if err != nil {
			return nil, usageErrorf(c.Command, "--%s: %w", f.flag, err)
		}
		return strings.TrimSpace(string(read)), nil
	case nodeForm:
		n, err := c.api.Node(c.context(), text, "uuid")
		if err != nil {
			return nil, err
		}
		return n.UUID, nil
	}
	return text, nil
}

func (r *baremetalResource) create(e *apiEndpoint) *cobra.Command {
	o := &outputOptions{}
	use, args := "create", cobra.NoArgs
	if r.first != nil {
		use, args = "create "+strings.ToUpper(r.first.record()), cobra.ExactArgs(1)
	}
	cmd := &cobra.Command{
		Use: use, Short: "Create a " + r.title, Args: args, Example: r.example,
		RunE: e.run(func(c *clientCall) error {
			if err := o.check(c.Command); err != nil {
				return err
			}
			record := client.Record{}
			if r.first != nil {
				record[r.first.record()] = c.args[0]
			}
			for _, f := range r.fields {
				v, ok, err := f.value(c)
				if err != nil {
					return err
				}
				if ok {
					record[f.record()] = v
				}
			}
			made, err := c.api.Create(c.context(), r.at, record)
			if err != nil {
				return err
			}
			return o.show(c.OutOrStdout(), made)
		}),
	}
	o.flags(cmd)
	for _, f := range r.fields {
		f.define(cmd)
		if f.required {
			_ = cmd.MarkFlagRequired(f.flag)
		}
	}
	return cmd
}

func (r *baremetalResource) list(e *apiEndpoint) *cobra.Command {
	l := &listOptions{}
	filters := slices.Clone(r.filters)
	for _, f := range r.fields {
		if f.filter != "" {
			filters = append(filters, resourceField{flag: f.flag, filter: f.filter, usage: f.usage})
		}
	}
	if r.first != nil && r.first.filter != "" {
		filters = append(filters, resourceField{flag: r.first.flag, filter: r.first.filter, usage: r.first.usage})
	}
	cmd := &cobra.Command{
		Use: "list", Short: "List " + r.plural, Example: r.call() + "list\n" + r.call() + "list --long -f json",
		RunE: e.run(func(c *clientCall) error {
			values := url.Values{}
			for _, f := range filters {
				if v, _ := c.Flags().GetString(f.flag); c.Flags().Changed(f.flag) {
					values.Set(f.filter, v)
				}
			}
			q, err := l.query(c.Command, values, c.args)
			if err != nil {
				return err
			}
			found, err := c.api.List(c.context(), r.at, q)
			if err != nil {
				return err
			}
			return l.list(c.OutOrStdout(), l.shown(r.columns, found), found)
		}),
	}
	l.flags(cmd)
	for _, f := range filters {
		cmd.Flags().String(f.flag, "", "only "+r.plural+" with this: "+f.usage)
	}
	cmd.Flags().BoolVar(&l.long, "detail", false, "the same as --long")
	return cmd
}

func (r *baremetalResource) show(e *apiEndpoint) *cobra.Command {
	o, fields, other := &outputOptions{}, []string{}, false
	cmd := &cobra.Command{
		Use: "show " + r.ident, Short: "Show a " + r.title, Args: cobra.MinimumNArgs(1), Example: r.call() + "show " + sampleUUID,
		RunE: e.run(func(c *clientCall) error {
			if err := o.check(c.Command); err != nil {
				return err
			}
			if len(c.args) > 1 && len(fields) == 0 {
				return usageErrorf(c.Command, "unexpected argument %q", c.args[1])
			}
			ident := c.args[0]
			if other {
				found, err := r.find(c, ident)
				if err != nil {
					return err
				}
				ident = found
			}
			found, err := c.api.Get(c.context(), r.at, ident, append(fields, c.args[1:]...)...)
			if err != nil {
				return err
			}
			return o.show(c.OutOrStdout(), found)
		}),
	}
	o.flags(cmd)
	cmd.Flags().StringSliceVar(&fields, "fields", nil, "the fields to show, separated by commas or spaces")
	if r.lookUp != "" {
		cmd.Flags().BoolVar(&other, r.lookUp, false, r.ident+" is its "+r.lookUp)
	}
	return cmd
}

// find gives the UUID of the one whose field lookUp has the value.
func (r *baremetalResource) find(c *clientCall, value string) (string, error) {
	found, err := c.api.List(c.context(), r.at, client.Query{Filter: url.Values{r.lookUp: {value}}})
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no %s has the %s %s", r.title, r.lookUp, stripControlChars(value))
	}
	return found[0].Text("uuid"), nil
}

// changeable are the fields that set takes; the argument of create is one by its flag.
func (r *baremetalResource) changeable() []resourceField {
	var out []resourceField
	if r.first != nil {
		out = append(out, *r.first)
	}
	for _, f := range r.fields {
		if !f.birth {
			out = append(out, f)
		}
	}
	return out
}

func (r *baremetalResource) set(e *apiEndpoint) *cobra.Command {
	cmd := &cobra.Command{
		Use: "set " + r.ident, Short: "Change fields of a " + r.title, Args: cobra.ExactArgs(1), Example: r.call() + "set " + sampleUUID + " --extra rack=7",
		RunE: e.run(func(c *clientCall) error {
			p := &patchBuilder{}
			for _, f := range r.changeable() {
				v, ok, err := f.value(c)
				if err != nil {
					return err
				}
				if !ok {
					continue
				}
				values, isObject := v.(client.Record)
				if !isObject {
					p.set("/"+f.record(), v)
				}
				for _, key := range slices.Sorted(maps.Keys(values)) {
					p.set("/"+f.record()+"/"+escapeJSONPointer(key), values[key])
				}
			}
			return r.patch(c, p)
		}),
	}
	for _, f := range r.changeable() {
		f.define(cmd)
		if f.bare {
			cmd.Flags().Lookup(f.flag).NoOptDefVal = "true"
		}
	}
	return cmd
}

func (r *baremetalResource) unset(e *apiEndpoint) *cobra.Command {
	cmd := &cobra.Command{
		Use: "unset " + r.ident, Short: "Reset fields of a " + r.title + " to their defaults", Args: cobra.ExactArgs(1),
		Example: r.call() + "unset " + sampleUUID + " --extra rack",
		RunE: e.run(func(c *clientCall) error {
			p := &patchBuilder{}
			for _, f := range r.changeable() {
				switch {
				case f.kept, f.form == offForm:
				case f.form == objectForm:
					keys, _ := c.Flags().GetStringArray(f.flag)
					for _, key := range keys {
						p.remove("/" + f.record() + "/" + escapeJSONPointer(key))
					}
				default:
					if on, _ := c.Flags().GetBool(f.flag); on {
						p.remove("/" + f.record())
					}
				}
			}
			return r.patch(c, p)
		}),
	}
	for _, f := range r.changeable() {
		switch {
		case f.kept, f.form == offForm:
		case f.form == objectForm:
			cmd.Flags().StringArray(f.flag, nil, "KEY to take out of "+f.record()+"; may be repeated")
		default:
			cmd.Flags().Bool(f.flag, false, "unset "+f.record())
		}
	}
	return cmd
}

func (r *baremetalResource) patch(c *clientCall, p *patchBuilder) error {
	operations, err := p.done(c.Command)
	if err != nil {
		return err
	}
	_, err = c.api.Patch(c.context(), r.at, c.args[0], operations)
	return err
}

func (r *baremetalResource) remove(e *apiEndpoint) *cobra.Command {
	return &cobra.Command{
		Use: "delete " + r.ident + "...", Short: "Delete " + r.plural, Args: cobra.MinimumNArgs(1), Example: r.call() + "delete " + sampleUUID,
		RunE: e.run(func(c *clientCall) error {
			return c.each(func(ident string) error {
				if err := c.api.Delete(c.context(), r.at, ident); err != nil {
					return err
				}
				c.say("Deleted %s %s", r.title, stripControlChars(ident))
				return nil
			})
		}),
	}
}

const sampleUUID = "5e8d0b8e-7d9c-4d36-a4f6-0c5f3b5a1a10"

// escapeJSONPointer escapes a key for a path of a patch.
func escapeJSONPointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
