package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/problem"
	"salvor/wire/native"
)

var serverResource = resourceSpec{
	api: client.Compute, path: "/servers", detail: "/servers/detail", one: "server", many: "servers", make: "-", change: "-", drop: "-",
	words: []string{"server"}, ident: "SERVER", named: byServerName, everywhere: inEveryProject, title: "server", plural: "servers", columns: []string{"id", "name", "status", "addresses"},
	filters: []resourceField{
		{flag: "name", usage: "only those whose name this regular expression finds"},
		{flag: "status", allowed: serverStatuses, usage: "only those with this status, such as ACTIVE or ERROR"},
		{flag: "host", usage: "only those on this host, by UUID or name", named: nameOf(&hostResource)},
		{flag: "all-projects", form: switchForm, name: "all_tenants", usage: "those of every project"},
		{flag: "deleted", form: switchForm, usage: "only deleted ones"},
	},
}

// serverStatuses are Nova's.
var serverStatuses = []string{"ACTIVE", "BUILD", "DELETED", "ERROR", "HARD_REBOOT", "MIGRATING", "PASSWORD", "PAUSED", "REBOOT", "REBUILD", "RESCUE", "RESIZE", "REVERT_RESIZE",
	"SHELVED", "SHELVED_OFFLOADED", "SHUTOFF", "SOFT_DELETED", "SUSPENDED", "UNKNOWN", "VERIFY_RESIZE"}

// serverVerb is an action on servers in the words of the openstack command.
type serverVerb struct {
	word, short, example string
	// body is the action's; nil: {key: null}.
	key  string
	body func(c *kit.Call) (any, error)
	// reached are the states in which --wait ends; empty: there is nothing to wait for.
	reached []string
	flags   func(*cobra.Command)
	// said prints what the answer holds.
	said func(c *kit.Call, answer client.Record)
	// then tells about a server that got where --wait waited for.
	then func(c *kit.Call, id, name string)
}

var serverVerbs = []serverVerb{
	{word: "start", key: "os-start", short: "Start servers", reached: []string{"ACTIVE", "RESCUE"}},
	{word: "stop", key: "os-stop", short: "Stop servers: ask their systems first, then force them", reached: []string{"SHUTOFF"}},
	{word: "reboot", key: "reboot", short: "Reboot servers", reached: []string{"ACTIVE", "RESCUE"}, body: rebootBody, flags: func(cmd *cobra.Command) {
		cmd.Flags().Bool("hard", false, "reboot without asking the system")
		cmd.Flags().Bool("soft", false, "ask the system (the default)")
		cmd.MarkFlagsMutuallyExclusive("hard", "soft")
	}},
	{word: "pause", key: "pause", short: "Stop the processors of servers", reached: []string{"PAUSED"}},
	{word: "unpause", key: "unpause", short: "Let the processors of servers go on", reached: []string{"ACTIVE"}},
	{word: "suspend", key: "suspend", short: "Save servers to disk", reached: []string{"SUSPENDED"}},
	{word: "resume", key: "resume", short: "Let suspended servers go on", reached: []string{"ACTIVE"}},
	{word: "lock", key: "lock", short: "Let only administrators change servers", body: func(c *kit.Call) (any, error) {
		if why, _ := c.Flags().GetString("reason"); why != "" {
			return client.Record{"locked_reason": why}, nil
		}
		return nil, nil
	}, flags: func(cmd *cobra.Command) { cmd.Flags().String("reason", "", "why") }},
	{word: "unlock", key: "unlock", short: "Let owners change servers again"},
	{word: "rescue", key: "rescue", short: "Boot servers from a rescue image, with all their disks attached", reached: []string{"RESCUE"}, body: rescueBody, flags: func(cmd *cobra.Command) {
		cmd.Flags().String("image", "", "the image, by name or UUID, or the rescue image, by number, name or UUID; without one salvor chooses")
		cmd.Flags().String("password", "", "the password; without one salvor makes one and shows it. Other users of this machine may see it, so better:")
		cmd.Flags().String("password-file", "", "a file with the password in its first line, or - for standard input")
		cmd.MarkFlagsMutuallyExclusive("password", "password-file")
		keyFlags(cmd)
	}, said: func(c *kit.Call, answer client.Record) {
		if password := answer.Text("adminPass"); password != "" {
			fmt.Fprintln(c.OutOrStdout(), "adminPass:", password)
		}
	}, then: sayServerEntry, example: `  salvor server rescue web1 --wait                      # shows the password that was made, the ssh host key and the addresses
  salvor server rescue web1 --image debian-live --wait
  salvor server rescue web1 --key ~/.ssh/id_ed25519.pub --expires-in 8h --wait
then: salvor server ssh web1`},
	{word: "unrescue", key: "unrescue", short: "Boot servers back into their own systems", reached: []string{"ACTIVE"}},
	{word: "rebuild", key: "rebuild", short: "Rebuild the root disks of servers; the old disks go into quarantine", reached: []string{"ACTIVE", "SHUTOFF"}, body: func(c *kit.Call) (any, error) {
		name, _ := c.Flags().GetString("image")
		id, err := imageResource.find(c, name)
		body := client.Record{"imageRef": id}
		if discard, _ := c.Flags().GetBool("discard"); discard {
			body["salvor:discard"] = true
		}
		return body, err
	}, flags: func(cmd *cobra.Command) {
		cmd.Flags().String("image", "", "the image, by name or UUID")
		cmd.Flags().Bool("discard", false, "erase the old root disk instead of putting it into quarantine")
		_ = cmd.MarkFlagRequired("image")
	}, example: `  salvor server rebuild web1 --image debian-13 --wait
  salvor server rebuild web1 --image debian-13 --discard     # where the host has no room for both disks`},
}

func rebootBody(c *kit.Call) (any, error) {
	kind := "SOFT"
	if hard, _ := c.Flags().GetBool("hard"); hard {
		kind = "HARD"
	}
	return client.Record{"type": kind}, nil
}

func rescueBody(c *kit.Call) (any, error) {
	body := client.Record{}
	password, err := c.Flags().GetString("password")
	if err != nil {
		return nil, err
	}
	if file, _ := c.Flags().GetString("password-file"); file != "" {
		if password, err = passwordIn(c, "password-file", file); err != nil {
			return nil, err
		}
	}
	if password != "" {
		body["adminPass"] = password
	}
	if name, _ := c.Flags().GetString("image"); name != "" {
		id, err := rescueRef(c, name)
		if err != nil {
			return nil, err
		}
		body["rescue_image_ref"] = id
	}
	session := client.Record{}
	if err := sessionWishes(c, session); err != nil {
		return nil, err
	}
	if err := keypairWishes(c, session); err != nil {
		return nil, err
	}
	for name, value := range session {
		body["salvor:"+name] = value
	}
	return body, nil
}

// rescueRef gives the UUID of what a rescue boots: an image of the image API, else a rescue image.
func rescueRef(c *kit.Call, name string) (string, error) {
	id, err := imageResource.find(c, name)
	if !problem.Is(err, problem.NotFound) {
		return id, err
	}
	num, other := rescueImageResource.find(c, name)
	if other != nil {
		// To whom rescue images are not told, the image is what is missing.
		if status := client.StatusOf(other); status == http.StatusForbidden || status == http.StatusUnauthorized {
			return "", err
		}
		return "", other
	}
	found, err := rescueImageResource.ask(c, http.MethodGet, "/"+url.PathEscape(num), nil, nil)
	if err == nil && found.Text("uuid") == "" {
		err = fmt.Errorf("rescue image %s has no UUID", kit.StripControlChars(name))
	}
	return found.Text("uuid"), err
}

// getRescueSession is the rescue session of a server; nil where it has none, or where it is not told to who asks.
func getRescueSession(c *kit.Call, id string) client.Record {
	found, err := sessionResource.ask(c, http.MethodGet, "/"+url.PathEscape(id), nil, nil)
	if err != nil {
		return nil
	}
	return found
}

// saySession prints the fingerprint that the rescue system told, where it is reached, when it ends, and the command that logs in. Not every one tells all of that:
// what is not to be had is left out, the rescue has succeeded.
func saySession(c *kit.Call, found client.Record, login string) {
	if fingerprint := found.Text("fingerprint"); fingerprint != "" {
		fmt.Fprintln(c.OutOrStdout(), "ssh host key:", kit.StripControlChars(fingerprint))
	}
	if addresses, _ := found["addresses"].([]any); len(addresses) > 0 {
		fmt.Fprintln(c.OutOrStdout(), "addresses:", kit.StripControlChars(strings.Trim(fmt.Sprint(addresses), "[]")))
	}
	if end := found.Text("expires_at"); end != "" {
		fmt.Fprintln(c.OutOrStdout(), "ends by itself at:", kit.StripControlChars(kit.ShownTime(end)))
	}
	if notice := found.Text("notice"); notice != "" {
		fmt.Fprintln(c.OutOrStdout(), "notice:", kit.StripControlChars(notice))
	}
	if found.Text("host_key") != "" {
		fmt.Fprintln(c.OutOrStdout(), "log in:", login)
	}
}

// sayServerEntry prints how a rescued server is entered.
func sayServerEntry(c *kit.Call, id, name string) {
	saySession(c, getRescueSession(c, id), "salvor server ssh "+kit.StripControlChars(name))
}

func newServerCommand() *cobra.Command {
	e := &kit.Endpoint{}
	cmd := serverResource.command(e, "Virtual machines")
	e.Flags(cmd)
	for _, v := range serverVerbs {
		cmd.AddCommand(v.command(e))
	}
	cmd.AddCommand(newServerCreate(e), newServerDelete(e), newServerSet(e), newServerAdopt(e), newServerRescueConfig(e), newServerModify(e), newServerAbort(e), newServerVolume(e, "add"), newServerVolume(e, "remove"), newRescueSSHCommand(e, "server"))
	return cmd
}

func (v serverVerb) command(e *kit.Endpoint) *cobra.Command {
	w := &waitOption{}
	if v.example == "" {
		v.example = "  salvor server " + v.word + " web1"
		if len(v.reached) > 0 {
			v.example += " --wait"
		}
	}
	cmd := &cobra.Command{
		Use: v.word + " SERVER...", Short: v.short, Args: cobra.MinimumNArgs(1), Example: v.example,
		RunE: e.Run(func(c *kit.Call) error {
			if err := w.check(c); err != nil {
				return err
			}
			var body any
			var err error
			if v.body != nil {
				if body, err = v.body(c); err != nil {
					return err
				}
			}
			return c.Each(func(ident string) error {
				id, err := serverResource.find(c, ident)
				if err != nil {
					return err
				}
				var answer client.Record
				if err := c.API.Ask(c.Context(), client.Compute, http.MethodPost, "/servers/"+url.PathEscape(id)+"/action", nil, client.Record{v.key: body}, &answer); err != nil {
					return err
				}
				if v.said != nil {
					v.said(c, answer)
				}
				if len(v.reached) == 0 || !w.asked(c) {
					return nil
				}
				if err := w.server(c, id, ident, v.reached); err != nil || v.then == nil {
					return err
				}
				v.then(c, id, ident)
				return nil
			})
		}),
	}
	if len(v.reached) > 0 {
		w.flags(cmd)
	}
	if v.flags != nil {
		v.flags(cmd)
	}
	return cmd
}

// server waits until a server has one of the states and nothing works on it. A server in ERROR ends the wait with its fault.
func (w *waitOption) server(c *kit.Call, id, name string, reached []string) error {
	ctx, cancel := w.within(c)
	defer cancel()
	p, began := kit.NewProgress(c.ErrOrStderr(), name), time.Now()
	defer p.End()
	for {
		s, err := serverResource.ask(c, http.MethodGet, "/"+url.PathEscape(id), nil, nil)
		if err != nil {
			return err
		}
		status, task := s.Text("status"), s.Text("OS-EXT-STS:task_state")
		p.PrintStatus(time.Since(began), strings.TrimSpace(status+" "+task))
		if task == "" {
			for _, r := range reached {
				if r == status {
					fmt.Fprintf(c.OutOrStdout(), "%s: %s (%.1f s)\n", kit.StripControlChars(name), status, time.Since(began).Seconds())
					return nil
				}
			}
			if failed := failedAction(c, id); failed != "" && status != "ERROR" {
				return kit.WithStatus(kit.StatusFailed, fmt.Errorf("server %s: the action %s failed and left it %s\nwhat next: salvor why server:%s says the reason", kit.StripControlChars(name), kit.StripControlChars(failed), status, kit.StripControlChars(id)))
			}
			if status == "ERROR" {
				fault, _ := s["fault"].(map[string]any)
				why, _ := fault["message"].(string)
				return kit.WithStatus(kit.StatusFailed, fmt.Errorf("server %s is in ERROR: %s\n%s", kit.StripControlChars(name), kit.StripControlChars(kit.FirstOf(why, "it says no reason")), nextCommandsOfServer(c, id)))
			}
		}
		select {
		case <-ctx.Done():
			return w.late(c, fmt.Errorf("server %s: gave up waiting in %s %s; it has not ended: see salvor server show %[1]s", kit.StripControlChars(name), status, task))
		case <-time.After(serverLook):
		}
	}
}

// failedAction names the newest action on a server if that failed; empty: it did not, or nobody tells.
func failedAction(c *kit.Call, id string) string {
	var got struct {
		Actions []struct{ Action, Message string } `json:"instanceActions"`
	}
	err := c.API.Ask(c.Context(), client.Compute, http.MethodGet, "/servers/"+url.PathEscape(id)+"/os-instance-actions", nil, nil, &got)
	if err != nil || len(got.Actions) == 0 || got.Actions[0].Message != "Error" {
		return ""
	}
	return got.Actions[0].Action
}

// nextCommandsOfServer lists the commands that `salvor why` suggests for a server in ERROR.
func nextCommandsOfServer(c *kit.Call, id string) string {
	var why native.Why
	if err := c.API.Ask(c.Context(), client.Native, http.MethodGet, "/servers/"+url.PathEscape(id)+"/why", nil, nil, &why); err != nil || len(why.Next) == 0 {
		return "what next: salvor why server:" + kit.StripControlChars(id) + "  # see its state and what to do"
	}
	return nextCommands(why.Next)
}

// serverLook is how often a server is looked at while somebody waits.
const serverLook = 200 * time.Millisecond

func newServerDelete(e *kit.Endpoint) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use: "delete SERVER...", Short: "Delete servers, with their local disks", Args: cobra.MinimumNArgs(1), Example: "  salvor server delete web1 --wait",
		RunE: e.Run(func(c *kit.Call) error {
			return c.Each(func(ident string) error {
				id, err := serverResource.find(c, ident)
				if err != nil {
					return err
				}
				path := "/servers/" + url.PathEscape(id)
				err = c.API.Ask(c.Context(), client.Compute, http.MethodDelete, path, nil, nil, nil)
				for wait && err == nil {
					if err = c.API.Ask(c.Context(), client.Compute, http.MethodGet, path, nil, nil, nil); err == nil {
						err = pauseFor(c.Context(), serverLook)
					}
				}
				if wait && client.StatusOf(err) == http.StatusNotFound {
					return nil
				}
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until they are gone")
	return cmd
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func newServerSet(e *kit.Endpoint) *cobra.Command {
	cmd := &cobra.Command{
		Use: "set SERVER", Short: "Change fields of a server", Args: cobra.ExactArgs(1), Example: "  salvor server set web1 --name web2 --property tier=front\n  salvor server set web1 --state active",
		RunE: e.Run(func(c *kit.Call) error {
			id, err := serverResource.find(c, c.Args[0])
			if err != nil {
				return err
			}
			path, changes := "/servers/"+url.PathEscape(id), client.Record{}
			for _, flag := range []string{"name", "description"} {
				if c.Flags().Changed(flag) {
					changes[flag], _ = c.Flags().GetString(flag)
				}
			}
			if len(changes) > 0 {
				if err := c.API.Ask(c.Context(), client.Compute, http.MethodPut, path, nil, client.Record{"server": changes}, nil); err != nil {
					return err
				}
			}
			if words, _ := c.Flags().GetStringArray("property"); len(words) > 0 {
				meta, err := textPairs(c.Command, "property", words)
				if err != nil {
					return err
				}
				if err := c.API.Ask(c.Context(), client.Compute, http.MethodPost, path+"/metadata", nil, client.Record{"metadata": meta}, nil); err != nil {
					return err
				}
			}
			if state, _ := c.Flags().GetString("state"); state != "" {
				return c.API.Ask(c.Context(), client.Compute, http.MethodPost, path+"/action", nil, client.Record{"os-resetState": client.Record{"state": state}}, nil)
			}
			return nil
		}),
	}
	cmd.Flags().String("name", "", "the new name")
	cmd.Flags().String("description", "", "the new description")
	cmd.Flags().StringArray("property", nil, "KEY=VALUE; may be repeated")
	kit.AddEnumFlag(cmd, nil, "state", "", "for administrators: correct a wrong state to active or error", "active", "error")
	return cmd
}
