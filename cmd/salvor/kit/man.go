package kit

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"salvor/version"
)

// NewManCommand is the hidden command that writes the manual pages of its whole tree, which packages have.
func NewManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a manual page for each command into a directory",
		Long:   "Write a manual page for each command into a directory. SOURCE_DATE_EPOCH is the date of the pages, in seconds since 1970; without it they have today's.",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			date := time.Now()
			if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
				seconds, err := strconv.ParseInt(epoch, 10, 64)
				if err != nil {
					return fmt.Errorf("SOURCE_DATE_EPOCH is %q: want seconds since 1970", epoch)
				}
				date = time.Unix(seconds, 0)
			}
			return writeManPages(cmd.Root(), args[0], date.UTC().Format(time.DateOnly))
		},
	}
}

// writeManPages writes the page of a command and those of all below it.
func writeManPages(cmd *cobra.Command, dir, date string) error {
	if err := os.WriteFile(filepath.Join(dir, manName(cmd)+".1"), []byte(manPage(cmd, date)), 0o644); err != nil {
		return err
	}
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() {
			continue
		}
		if err := writeManPages(below, dir, date); err != nil {
			return err
		}
	}
	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the page of a command in the language of man(7).
func manPage(cmd *cobra.Command, date string) string {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`.TH %s 1 %s "salvor %s" "User Commands"`, roffText(strings.ToUpper(manName(cmd))), date, version.Release)
	line(".SH NAME\n%s \\- %s", roffText(manName(cmd)), roffText(cmd.Short))
	line(".SH SYNOPSIS\n.B %s", roffText(cmd.UseLine()))
	line(".SH DESCRIPTION")
	for i, paragraph := range strings.Split(strings.Trim(FirstOf(cmd.Long, cmd.Short+"."), "\n"), "\n\n") {
		if i > 0 {
			line(".PP")
		}
		if strings.HasPrefix(paragraph, "  ") {
			line(".EX\n%s\n.EE", roffText(paragraph))
		} else {
			line("%s", roffText(paragraph))
		}
	}
	heading := ".SH COMMANDS\n"
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() {
			line(heading+".TP\n.BR %s (1)\n%s", roffText(manName(below)), roffText(below.Short))
			heading = ""
		}
	}
	writeManFlags(&b, "OPTIONS", cmd.NonInheritedFlags())
	writeManFlags(&b, "OPTIONS THAT OTHER COMMANDS SHARE", cmd.InheritedFlags())
	if cmd.Example != "" {
		line(".SH EXAMPLES\n.EX\n%s\n.EE", roffText(cmd.Example))
	}
	if cmd.HasParent() {
		line(".SH SEE ALSO\n.BR %s (1)", roffText(manName(cmd.Parent())))
	}
	return b.String()
}

func writeManFlags(b *strings.Builder, heading string, flags *pflag.FlagSet) {
	heading = ".SH " + heading + "\n"
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		switch {
		case value == "":
		case f.NoOptDefVal != "":
			name += "[=" + value + "]"
		default:
			name += " " + value
		}
		// Many texts name the default in words.
		if isShown := !strings.Contains("|false|0|[]|0s|", "|"+f.DefValue+"|"); f.DefValue != "" && isShown && !strings.Contains(usage, "default") {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "%s.TP\n.B %s\n%s\n", heading, roffText(name), roffText(usage))
		heading = ""
	})
}

// roffCharacters have a meaning of their own in roff, or are printed as typographic ones.
var roffCharacters = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`, "\t", "    ")

// roffText is a text that roff prints as it is.
func roffText(text string) string {
	lines := strings.Split(roffCharacters.Replace(text), "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, " ")
		if strings.HasPrefix(line, ".") {
			line = `\&` + line
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}
