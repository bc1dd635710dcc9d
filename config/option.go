package config

import (
	"slices"
	"strings"

	"salvor/problem"
)

// Option is one option: where it stands, what it means, what it takes.
type Option struct {
	Section, Name string
	// Default is written as in a file; empty also where it depends on the machine, which Doc then says.
	Default string
	// Allowed describes the values taken.
	Allowed string
	Doc     string
	// Secret options are shown in no error.
	Secret bool
	// Many options are lists: one that is repeated in a file adds to it.
	Many bool
	// Idle is the reason why only the default is accepted. The option is known only because the files of Ironic contain it.
	Idle string

	set func(c *Config, value string) error
}

func newOption[T any](section, name, def string, form valueSyntax[T], field func(*Config) *T, doc string) Option {
	return Option{Section: section, Name: name, Default: def, Allowed: form.allowed, Many: form.many, Doc: doc, set: func(c *Config, value string) error {
		v, err := form.parse(value)
		if err != nil {
			return err
		}
		*field(c) = v
		return nil
	}}
}

// markSecret marks an option whose value may be secret.
func markSecret(o Option) Option {
	o.Secret = true
	return o
}

// markIdle marks an option of Ironic for which only the default is accepted.
func markIdle(why string, o Option) Option {
	o.Idle = why
	return o
}

// Variable is the environment variable that sets the option.
func (o Option) Variable() string {
	return variablePrefix + strings.ToUpper(o.Section+"_"+o.Name)
}

const variablePrefix = "SALVOR_"

// Options lists every option, section by section.
func Options() []Option {
	return slices.Concat(defaultOptions, processOptions, watchOptions, interfaceOptions(), apiOptions, tlsOptions, conductorOptions, deployOptions, powerOptions, historyOptions, agentOptions, bootOptions, neutronOptions, glanceOptions, novaOptions, keystoneOptions, storageOptions, databaseOptions, computeOptions, volumeOptions, guardOptions, repairOptions)
}

// sectionOptions is what may stand in one section of a file.
type sectionOptions struct {
	options map[string]*Option
	// ignored are options of Ironic's that mean nothing here.
	ignored []string
	// lax sections are mostly Ironic's own: what is unknown there is a warning.
	lax bool
}

func buildSections() map[string]*sectionOptions {
	out := map[string]*sectionOptions{}
	for _, o := range Options() {
		s := out[o.Section]
		if s == nil {
			s = &sectionOptions{options: map[string]*Option{}, ignored: strings.Fields(ignored[o.Section]), lax: o.Section == "pxe"}
			out[o.Section] = s
		}
		s.options[o.Name] = &o
	}
	return out
}

func (s *sectionOptions) names() []string {
	out := make([]string, 0, len(s.options))
	for name := range s.options {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

const maxShown = 80

// apply sets the option or says why not. where is the place of the value.
func (o *Option) apply(c *Config, value, where string) error {
	if err := o.set(c, value); err != nil {
		shown := ""
		if !o.Secret {
			shown = " " + quoteValue(value)
		}
		detail := ""
		if err != errForm {
			detail = ": " + strings.Join(strings.Fields(err.Error()), " ")
		}
		return problem.Invalidf("%s: [%s]%s: the value%s is not allowed%s; allowed: %s", where, o.Section, o.Name, shown, detail, o.Allowed)
	}
	c.origin[o.Section+"."+o.Name] = where
	return nil
}

// quoteValue shows a value in one line of bounded length.
func quoteValue(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "..."
	}
	return `"` + s + `"`
}
