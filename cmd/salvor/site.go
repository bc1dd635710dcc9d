package main

import (
	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
)

// A site's boot service, which knows no database; and the door of the centre that it speaks to.

var siteResource = resourceSpec{
	api: client.Native, path: "/sites", many: "sites", change: "-", drop: "revoke",
	words: []string{"site"}, ident: "SITE", named: byName, title: "site", plural: "sites", columns: []string{"id", "name", "conductor_group", "created_at"},
	first:  &resourceField{flag: "name", usage: "the name"},
	fields: []resourceField{{flag: "conductor-group", usage: "the conductor group whose nodes it serves; empty: nodes without a group"}},
	example: `  # On the centre: the token is shown once
  salvor site create oslo --conductor-group oslo -f value -c token > site.token

  # At the site
  salvor serve --roles netboot --centre https://salvor.example:6385 --site-token /etc/salvor/site.token

  # It is trusted no more
  salvor site revoke oslo`,
}

func newSiteCommand() *cobra.Command {
	e := &kit.Endpoint{}
	cmd := siteResource.command(e, "Manage sites: boot services that ask the centre instead of the database")
	e.Flags(cmd)
	return cmd
}
