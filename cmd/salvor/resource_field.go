package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
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
	required   bool      // on creation
	createOnly bool      // on creation only
	alwaysSet  bool      // unset cannot reset it
	bare       bool      // set takes its flag alone, for true
	filter     string    // the list's parameter; empty: no filter
	allowed    []string  // the values that there are; nil: any
	named      nameCheck // of a filter whose value names a record; nil: the value names none
}

func (f resourceField) record() string {
	if f.name != "" {
		return f.name
	}
	return fieldOf(f.flag)
}

// defineFlags makes the flags of fields.
func defineFlags(cmd *cobra.Command, fields []resourceField) {
	for _, f := range fields {
		f.define(cmd)
		if f.required {
			_ = cmd.MarkFlagRequired(f.flag)
		}
		if f.bare && cmd.Name() == "set" {
			cmd.Flags().Lookup(f.flag).NoOptDefVal = "true"
		}
	}
}

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
		if f.allowed != nil {
			kit.AddEnumFlag(cmd, nil, f.flag, "", f.usage, f.allowed...)
			return
		}
		flags.String(f.flag, "", f.usage)
	}
}

// value reads the flag of a field; ok is false where it is not given.
func (f resourceField) value(c *kit.Call) (v any, ok bool, err error) {
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

func (f resourceField) parse(c *kit.Call, text string) (any, error) {
	switch f.form {
	case numberForm:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, kit.UsageErrorf(c.Command, "--%s %s: want a whole number", f.flag, text)
		}
		return n, nil
	case durationForm:
		d, err := parseLifetime(text)
		if err != nil {
			return nil, kit.UsageErrorf(c.Command, "--%s %w", f.flag, err)
		}
		return int64(d.Seconds()), nil
	case boolForm:
		on, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return nil, kit.UsageErrorf(c.Command, "--%s %s: want true or false", f.flag, text)
		}
		return on, nil
	case documentForm:
		return readJSONArgument(c.Command, f.flag, text)
	case fileForm:
		read, err := kit.ReadArgument(c.InOrStdin(), text, kit.MaxArgumentFile)
		if err != nil {
			return nil, kit.UsageErrorf(c.Command, "--%s: %w", f.flag, err)
		}
		return strings.TrimSpace(string(read)), nil
	case nodeForm:
		n, err := c.API.Node(c.Context(), text, "uuid")
		if err != nil {
			return nil, err
		}
		return n.UUID, nil
	}
	return text, nil
}

// fieldValue is the value that a flag gave to a field.
type fieldValue struct {
	name  string
	value any
}

// readFields reads the flags that were given, in the order of the fields.
func readFields(c *kit.Call, fields []resourceField) ([]fieldValue, error) {
	var out []fieldValue
	for _, f := range fields {
		v, ok, err := f.value(c)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, fieldValue{f.record(), v})
		}
	}
	return out, nil
}

// readRecord reads the flags that were given into a record.
func readRecord(c *kit.Call, fields []resourceField) (client.Record, error) {
	values, err := readFields(c, fields)
	return recordOf(values), err
}

func recordOf(values []fieldValue) client.Record {
	out := client.Record{}
	for _, v := range values {
		out[v.name] = v.value
	}
	return out
}

// readQuery reads the flags that were given into parameters of a request.
func readQuery(c *kit.Call, fields []resourceField) (url.Values, error) {
	values, err := readFields(c, fields)
	if err != nil {
		return nil, err
	}
	out := url.Values{}
	for _, v := range values {
		out.Set(v.name, fmt.Sprint(v.value))
	}
	return out, nil
}
