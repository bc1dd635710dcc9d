package kit

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// RenameFlag accepts the former name of a flag for one release; help does not show it.
func RenameFlag(cmd *cobra.Command, before, now string) {
	inner := cmd.Flags().GetNormalizeFunc()
	cmd.Flags().SetNormalizeFunc(func(f *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == before {
			name = now
		}
		return inner(f, name)
	})
}
