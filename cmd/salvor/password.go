package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
	"salvor/wire/ironic"
)

const maxPassword = 4096

func rescueFlags(cmd *cobra.Command) {
	keyFlags(cmd)
	cmd.Flags().String("rescue-password", "", "the password of the rescue session; other users of this machine may see it, so better:")
	cmd.Flags().String("rescue-password-file", "", "a file with the password in its first line, or - for standard input")
	cmd.MarkFlagsMutuallyExclusive("rescue-password", "rescue-password-file")
	cmd.Long = `Boot nodes into their rescue ramdisk, for repair over ssh.

A password or ssh keys open the rescue system for its user rescue. The password comes from
--rescue-password-file or --rescue-password. Without a password and a key, the command asks for a
password on the terminal. If you give an empty one, or if there is no terminal, salvor makes one and
shows it once. salvor stores only its hash, and no longer than until the ramdisk has it.

Ramdisks with the agent of Ironic take no keys. After the time of --expires-in, a machine boots its own
system again, as after unrescue.`
}

func prepareRescue(c *kit.Call, r *ironic.ProvisionRequest) error {
	password, err := rescuePassword(c)
	if err != nil {
		return err
	}
	given := c.Flags().Changed("rescue-password") || c.Flags().Changed("rescue-password-file")
	if given && strings.TrimSpace(password) == "" {
		return kit.UsageErrorf(c.Command, "the rescue password is empty")
	}
	r.RescuePassword = password
	return nil
}

func rescuePassword(c *kit.Call) (string, error) {
	if c.Flags().Changed("rescue-password") {
		return c.Flags().GetString("rescue-password")
	}
	if name, _ := c.Flags().GetString("rescue-password-file"); name != "" {
		return passwordIn(c, "rescue-password-file", name)
	}
	terminal, ok := c.InOrStdin().(*os.File)
	if !ok || kit.TerminalWidth(terminal) == 0 || c.Flags().Changed("key") || c.Flags().Changed("keypair") {
		return "", nil
	}
	first, err := kit.PromptPassword(terminal, c.ErrOrStderr(), "Rescue password (empty: salvor makes one): ")
	if err != nil || first == "" {
		return "", err
	}
	second, err := kit.PromptPassword(terminal, c.ErrOrStderr(), "Again: ")
	if err != nil {
		return "", err
	}
	if first != second {
		return "", kit.UsageErrorf(c.Command, "the two passwords differ")
	}
	return first, nil
}

// passwordIn is the first line of the file that a flag names, or of standard input for -.
func passwordIn(c *kit.Call, flag, name string) (string, error) {
	text, err := kit.ReadArgument(c.InOrStdin(), name, maxPassword)
	if err != nil {
		return "", kit.UsageErrorf(c.Command, "--%s: %w", flag, err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSuffix(line, "\r"), nil
}
