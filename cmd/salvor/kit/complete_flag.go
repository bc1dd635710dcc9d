package kit

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// completeWithin bounds the time in which the API gives names to a shell.
const completeWithin = time.Second

// CompletingCall prepares a call that a shell waits for; nil where the flags of the command name no API. done ends the call.
func CompletingCall(cmd *cobra.Command) (c *Call, done func()) {
	text := func(flag string) string { v, _ := cmd.Flags().GetString(flag); return v }
	e := &Endpoint{
		URL: text("url"), user: text("user"), version: text("api-version"), cloud: text("os-cloud"), ca: text("cacert"), cert: text("cert"), key: text("cert-key"),
		Timeout: completeWithin,
	}
	ctx, cancel := context.WithTimeout((&Call{Command: cmd}).Context(), completeWithin)
	cmd.SetContext(ctx)
	api, err := e.client(cmd)
	if err != nil {
		cancel()
		return nil, nil
	}
	return &Call{Command: cmd, API: api}, cancel
}

// CompleteFlag offers fixed values for a flag.
func CompleteFlag(cmd *cobra.Command, flag string, values func() []string) {
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
