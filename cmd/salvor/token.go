package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/access"
	"salvor/api/identity"
	"salvor/api/native"
	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/cmd/salvor/serve"
	"salvor/config"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

var tokenResource = resourceSpec{
	api: client.Native, path: "/tokens", many: "tokens", make: "-", change: "-", drop: "revoke",
	words: []string{"token"}, ident: "TOKEN", keyed: true, title: "token", plural: "tokens", named: byName,
	columns: []string{"id", "name", "role", "scope", "project", "expires_at", "used_at"},
	example: `  # The first one, on the machine of the control plane, where nobody can log in yet
  salvor token create root --role admin --local -f value -c token

  # One for a program that works in a project
  salvor token create ci --role member --project lab --expires-in 30d
  SALVOR_TOKEN=salvor_... salvor node list

  salvor token list
  salvor token revoke ci`,
}

// newTokenCommand is `salvor token`.
func newTokenCommand() *cobra.Command {
	e := &kit.Endpoint{}
	cmd := tokenResource.command(e, "Manage the API tokens of programs and people, if no Keystone does")
	e.Flags(cmd)
	cmd.AddCommand(newTokenCreate(e))
	return cmd
}

// wantedToken is what a token shall be.
type wantedToken struct {
	role, project, expires string
	local                  bool
	where                  serveFlags
}

func newTokenCreate(e *kit.Endpoint) *cobra.Command {
	o, w := &kit.Output{}, &wantedToken{}
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a token and show its text, only once", Args: cobra.ExactArgs(1), Example: tokenResource.example,
		Long: `Create a token. The command shows the text of the token only once. salvor does not store the text, only a digest of it.

An administrator (role admin) of the whole system can create any token, and an administrator of a project tokens of that project.
With --local you need no credential, only the right to read the control plane's key and database. Create the first token that
way. --local works whether salvor serve runs or not.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Check(cmd); err != nil {
				return err
			}
			ttl, err := parseLifetime(w.expires)
			if err != nil {
				return kit.UsageErrorf(cmd, "--expires-in %w", err)
			}
			if w.local {
				made, err := w.makeLocally(cmd, e, args[0], ttl)
				if err != nil {
					return err
				}
				return o.Show(cmd.OutOrStdout(), made)
			}
			return e.Run(func(c *kit.Call) error {
				made, err := w.ask(c.Context(), c.API, args[0], ttl)
				if err != nil {
					return err
				}
				return o.Show(c.OutOrStdout(), made)
			})(cmd, args)
		},
	}
	o.Flags(cmd)
	f := cmd.Flags()
	kit.AddEnumFlag(cmd, &w.role, "role", "", "admin, member or reader", string(access.Admin), string(access.Member), string(access.Reader))
	f.StringVar(&w.project, "project", "", "the project that it is for, by name or id; without one it is for the whole system")
	f.StringVar(&w.expires, "expires-in", "90d", "how long it lasts, as 12h, 90d or seconds; 0: until you revoke it")
	f.BoolVar(&w.local, "local", false, "create it with the key and the database of a control plane on this machine")
	w.where.flags(cmd, "database", "with --local: ")
	_ = cmd.MarkFlagRequired("role")
	return cmd
}

// parseLifetime reads 90d, what Go calls a duration, or seconds.
func parseLifetime(word string) (time.Duration, error) {
	if seconds, err := strconv.ParseInt(word, 10, 64); err == nil && seconds >= 0 && seconds <= int64(access.MaxTokenLife/time.Second) {
		return time.Duration(seconds) * time.Second, nil
	}
	if days, ok := strings.CutSuffix(word, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > int(access.MaxTokenLife/(24*time.Hour)) {
			return 0, problem.Invalidf("%.40q is no number of days up to %d", word, access.MaxTokenLife/(24*time.Hour))
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(word)
	if err != nil || d < time.Second || d > access.MaxTokenLife {
		return 0, problem.Invalidf("%.40q: want 45m, 12h, 90d or seconds", word)
	}
	return d, nil
}

// ask has the API make it.
func (w *wantedToken) ask(ctx context.Context, api *client.Client, name string, ttl time.Duration) (client.Record, error) {
	body := client.Record{"name": name, "role": w.role, "expires_in": int64(ttl / time.Second)}
	if w.project != "" {
		body["project"] = w.project
	}
	var made client.Record
	return made, api.Ask(ctx, client.Native, http.MethodPost, tokenResource.path, nil, body, &made)
}

// makeLocally writes the token into the database; where that is SQLite and salvor serve has it, it asks that one, with a token
// that the key of the control plane signs.
func (w *wantedToken) makeLocally(cmd *cobra.Command, e *kit.Endpoint, name string, ttl time.Duration) (client.Record, error) {
	source, err := w.where.source("database")
	if err != nil {
		return nil, err
	}
	cfg, _, err := config.Load(source)
	if err != nil {
		return nil, err
	}
	if cfg.Default.AuthStrategy == config.KeystoneAuth {
		return nil, problem.Unsupportedf("auth_strategy is keystone: tokens are Keystone's")
	}
	ctx := cmd.Context()
	s, key, err := serve.OpenLocal(ctx, cfg)
	if errors.Is(err, serve.ErrServed) {
		return w.askLocally(ctx, cfg, key, e, name, ttl)
	}
	if err != nil {
		return nil, err
	}
	made, text, err := access.NewTokens(s, time.Now).Issue(ctx, name, access.Role(w.role), w.project, ttl, record.Asker{User: identity.LocalUser})
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	shown, err := json.Marshal(native.TokenView(made, text))
	if err != nil {
		return nil, err
	}
	var out client.Record
	return out, json.Unmarshal(shown, &out)
}

// askLocally asks the salvor serve that has the database.
func (w *wantedToken) askLocally(ctx context.Context, cfg *config.Config, key *secret.Key, e *kit.Endpoint, name string, ttl time.Duration) (client.Record, error) {
	where := kit.FirstOf(e.URL, os.Getenv("SALVOR_URL"), serve.OwnURL(cfg, net.TCPAddrFromAddrPort(netip.AddrPortFrom(cfg.API.HostIP, uint16(cfg.API.Port)))))
	transport, err := e.Transport(kit.CloudEntry{})
	if err != nil {
		return nil, err
	}
	// While the key is changed there are several, the newest last; which of them signs the database alone tells, and that has the server.
	for _, id := range slices.Backward(key.IDs()) {
		key.Use(id)
		var text secret.Value
		if text, err = identity.LocalToken(key, time.Now()); err != nil {
			return nil, err
		}
		var api *client.Client
		if api, err = client.New(client.Config{Endpoint: where, Token: text, Transport: transport, Timeout: e.Timeout, UserAgent: "salvor-cli"}); err != nil {
			return nil, err
		}
		var made client.Record
		if made, err = w.ask(ctx, api, name, ttl); err == nil {
			return made, nil
		}
		var refused *client.Error
		if !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized {
			break
		}
	}
	return nil, fmt.Errorf("%w\nsalvor serve has the database and was asked at %s; name its API by --url if that is another place", err, where)
}
