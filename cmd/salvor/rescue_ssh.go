package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
)

// sshAlias stands for the rescue system in the known_hosts of one run of ssh.
const sshAlias = "salvor-rescue"

// hostKeyForm is "TYPE BASE64": what a line of known_hosts has behind the name, and nothing that could make a second line.
var hostKeyForm = regexp.MustCompile(`^([a-z0-9@.-]{1,64}) [A-Za-z0-9+/]+={0,2}$`)

// newRescueSSHCommand is `salvor node ssh` and `salvor server ssh`: the system's ssh into a rescue system, with the host key that its agent
// reported and with no other.
func newRescueSSHCommand(e *kit.Endpoint, kind string) *cobra.Command {
	user, address := "rescue", ""
	ident := strings.ToUpper(kind)
	cmd := &cobra.Command{
		Use: "ssh " + ident + " [ARGUMENT...]", Short: "Log in to the rescue system of a " + kind + " by ssh", Args: cobra.MinimumNArgs(1),
		Long: `Runs the ssh of this machine. It accepts only the host key that the rescue system's agent reported to salvor, which no network between
here and the machine can change. Your known_hosts is neither read nor written; your ssh configuration and your keys are used.

Words behind ` + ident + ` go to ssh: options, or a command for the rescue system. The exit status is that of ssh.`,
		Example: "  salvor " + kind + " ssh " + exampleOf[kind] + "\n  salvor " + kind + " ssh " + exampleOf[kind] + " lsblk -f\n  salvor " + kind + " ssh --user root --address 192.0.2.7 " + exampleOf[kind] + " -i key",
		RunE: e.Run(func(c *kit.Call) error {
			id := c.Args[0]
			if kind == "server" {
				var err error
				if id, err = serverResource.find(c, id); err != nil {
					return err
				}
			}
			entry, err := findEntry(c, kind, c.Args[0], id, address)
			if err != nil {
				return err
			}
			return runSSH(c, entry, user, c.Args[1:])
		}),
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&user, "user", user, "the user of the rescue system")
	cmd.Flags().StringVar(&address, "address", "", "the address of the "+kind+", an IP address or a name; without it, the first that salvor knows")
	return cmd
}

var exampleOf = map[string]string{"node": "rack1-7", "server": "web1"}

// sshEntry is where ssh connects, and which key must answer.
type sshEntry struct{ address, hostKey, keyType string }

// findEntry reads from the rescue session how its system is entered. name is what the user typed; address, if given, wins.
func findEntry(c *kit.Call, kind, name, id, address string) (sshEntry, error) {
	none := sshEntry{}
	name = kit.StripControlChars(name)
	session, err := sessionResource.ask(c, http.MethodGet, "/"+url.PathEscape(id), nil, nil)
	if client.StatusOf(err) == http.StatusNotFound {
		return none, kit.WithStatus(kit.StatusFailed, fmt.Errorf("%s %s is not in rescue, or it is another project's; first run: salvor %s rescue %s --wait", kind, name, kind, name))
	}
	if err != nil {
		return none, err
	}
	if state := session.Text("state"); state != "ready" {
		return none, kit.WithStatus(kit.StatusFailed, fmt.Errorf("the rescue session of %s %s is %s, not ready; see: salvor why %s:%s", kind, name, kit.StripControlChars(state), kind, name))
	}
	if address == "" {
		address = firstAddress(session)
	}
	key, fingerprint := session.Text("host_key"), kit.StripControlChars(session.Text("fingerprint"))
	parts := hostKeyForm.FindStringSubmatch(key)
	switch {
	case parts == nil && fingerprint != "":
		return none, kit.WithStatus(kit.StatusFailed, fmt.Errorf("salvor knows the fingerprint %s of the rescue system of %s %s and not its host key, because its host or its ramdisk is of a former release. Run ssh yourself, and compare the fingerprint that it shows", fingerprint, kind, name))
	case parts == nil:
		return none, kit.WithStatus(kit.StatusFailed, fmt.Errorf("salvor knows no ssh host key of the rescue system of %s %s, so this command cannot tell it from another machine. Only the agent of `salvor ramdisk build` reports it, and only to those who may rescue the %s", kind, name, kind))
	case address == "":
		return none, kit.WithStatus(kit.StatusFailed, fmt.Errorf("salvor does not know the address of the rescue system of %s %s. Give --address ADDRESS, which is the usual address of the %s: look at its port in Neutron, or at the DHCP server of its network", kind, name, kind))
	case strings.HasPrefix(address, "-") || strings.Trim(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:_-%") != "":
		return none, kit.UsageErrorf(c.Command, "--address %q is no address", address)
	}
	return sshEntry{address, key, parts[1]}, nil
}

// firstAddress is the first IP address that a session names; empty: it names none.
func firstAddress(session client.Record) string {
	list, _ := session["addresses"].([]any)
	for _, one := range list {
		text, _ := one.(string)
		if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" { // ssh hands a zone to a shell with ProxyCommand
			return address.String()
		}
	}
	return ""
}

// runSSH runs ssh until it ends. Its first options win over all others, so that no configuration takes another host key.
func runSSH(c *kit.Call, entry sshEntry, user string, rest []string) error {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return kit.WithStatus(kit.StatusFailed, fmt.Errorf("no program ssh is in PATH; install an OpenSSH client, or log in to %s yourself with the host key %s", entry.address, entry.hostKey))
	}
	dir, err := os.MkdirTemp("", "salvor-ssh-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	known := filepath.Join(dir, "known_hosts")
	if err := os.WriteFile(known, []byte(sshAlias+" "+entry.hostKey+"\n"), 0o600); err != nil {
		return err
	}
	var args []string
	for _, option := range []string{
		`UserKnownHostsFile="` + strings.ReplaceAll(known, "%", "%%") + `"`, "GlobalKnownHostsFile=/dev/null", "KnownHostsCommand=none", "HostKeyAlias=" + sshAlias, "HostKeyAlgorithms=" + entry.keyType,
		"StrictHostKeyChecking=yes", "CheckHostIP=no", "VerifyHostKeyDNS=no", "UpdateHostKeys=no", "ControlPath=none",
	} {
		args = append(args, "-o", option)
	}
	args = append(append(args, "-l", user, entry.address), rest...)
	cmd := exec.CommandContext(c.Context(), program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() >= 0 {
		return kit.WithStatus(ended.ExitCode(), fmt.Errorf("ssh ended with the status %d", ended.ExitCode()))
	}
	return err
}
