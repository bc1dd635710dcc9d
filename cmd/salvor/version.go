package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
	"salvor/version"
)

func newVersionCommand() *cobra.Command {
	format := ""
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show which release this program is",
		Long:    "Show the release, the commit that the program was built from, the version of Go and the platform.",
		Example: "  salvor version\n  salvor version -f json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build := version.Current()
			switch format {
			case "text":
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "salvor", build)
				return err
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(build)
			}
			return kit.UsageErrorf(cmd, "-f %s: want text or json", format)
		},
	}
	cmd.Flags().StringVarP(&format, "format", "f", "text", "text or json")
	return cmd
}
