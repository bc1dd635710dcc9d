package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"salvor/wire/ironic"
)

const maxPassword = 4096

func rescueFlags(cmd *cobra.Command) {
	cmd.Flags().String("rescue-password", "", "the password of the rescue session; other users of this machine may see it, so better:")
	cmd.Flags().String("rescue-password-file", "", "a file with the password in its first line, or - for standard input")
	cmd.MarkFlagsMutuallyExclusive("rescue-password", "rescue-password-file")
	cmd.Long = `Boot nodes into their rescue ramdisk, for repair over ssh.

The password is for the user rescue of this rescue session. The command takes it from
--rescue-password-file or --rescue-password, or asks for it on the terminal. salvor
stores only its hash, and no longer than until the ramdisk has it.`
}

func prepareRescue(c *clientCall, r *ironic.ProvisionRequest) error {
	password, err := rescuePassword(c)
	if err != nil {
		return err
	}
	if strings.TrimSpace(password) == "" {
		return usageErrorf(c.Command, "the rescue password is empty")
	}
	r.RescuePassword = password
	return nil
}

func rescuePassword(c *clientCall) (string, error) {
	if c.Flags().Changed("rescue-password") {
		return c.Flags().GetString("rescue-password")
	}
	if name, _ := c.Flags().GetString("rescue-password-file"); name != "" {
		return passwordIn(c, "rescue-password-file", name)
	}
	terminal, ok := c.InOrStdin().(*os.File)
	if !ok || terminalWidth(terminal) == 0 {
		return "", usageErrorf(c.Command, "no rescue password: give --rescue-password-file FILE, or - to read it from standard input")
	}
	first, err := promptPassword(terminal, c.ErrOrStderr(), "Rescue password: ")
	if err != nil {
		return "", err
	}
	second, err := promptPassword(terminal, c.ErrOrStderr(), "Again: ")
	if err != nil {
		return "", err
	}
	if first != second {
		return "", usageErrorf(c.Command, "the two passwords differ")
	}
	return first, nil
}

// passwordIn is the first line of the file that a flag names, or of standard input for -.
func passwordIn(c *clientCall, flag, name string) (string, error) {
	text, err := readArgument(c.InOrStdin(), name, maxPassword)
	if err != nil {
		return "", usageErrorf(c.Command, "--%s: %w", flag, err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSuffix(line, "\r"), nil
}
