package config

import (
	"strings"

	"salvor/secret"
)

// The values of [database]auto_migrate.
const (
	MigrateAuto   = "auto"
	MigrateAlways = "always"
	MigrateEmpty  = "empty"
	MigrateNever  = "never"
)

// The values of [database]pool_mode.
const (
	PoolNone        = "none"
	PoolSession     = "session"
	PoolTransaction = "transaction"
)

var databaseOptions = []Option{
	newOption("database", "auto_migrate", MigrateAuto, oneOf(MigrateAuto, MigrateAlways, MigrateEmpty, MigrateNever), func(c *Config) *string { return &c.Database.AutoMigrate },
		"Whether serve changes the tables of the database at its start: always, only in an empty database, or never, so that salvor db migrate does. auto is always on SQLite, which one process serves, and empty on PostgreSQL, where processes of an older release may be at work."),
	newOption("database", "witness_file", "", path, func(c *Config) *string { return &c.Database.WitnessFile },
		"A file that remembers how far the database had come, beside witness.json in the state directory. Name one on another disk, outside of what a backup or a snapshot of the state directory takes: so a snapshot that is put back is noticed, and nothing acts on it before an administrator has decided about its open jobs."),
	newOption("database", "max_pool_size", "0", integerSyntax(0, 1000), func(c *Config) *int { return &c.Database.MaxPoolSize },
		"How many connections a process has to the database at most, beside two for its lease and one that listens. 0 stands for 4 readers of SQLite and for 24 of PostgreSQL."),
	newOption("database", "pool_mode", PoolNone, oneOf(PoolNone, PoolSession, PoolTransaction), func(c *Config) *string { return &c.Database.PoolMode },
		"What a pooler, such as PgBouncer, does between salvor and PostgreSQL: none where connection is PostgreSQL's own, else the pool_mode of the pooler."),
	markSecret(newOption("database", "direct_connection", "", postgresURL, func(c *Config) *secret.Value { return &c.Database.DirectConnection },
		"The URL of PostgreSQL itself where connection is a pooler's: for LISTEN, by which processes hear at once of each other's work, and for salvor db. Without it a process behind a pooler in transaction mode polls.")),
}

// Direct is the URL of the database itself, for tools that must not use a pooler.
func (d Database) Direct() string {
	if !d.DirectConnection.Empty() {
		return d.DirectConnection.Reveal()
	}
	return d.Connection.Reveal()
}

// deriveDatabase fills what depends on the engine.
func (c *Config) deriveDatabase() {
	if c.Database.AutoMigrate != MigrateAuto {
		return
	}
	c.Database.AutoMigrate = MigrateEmpty
	if strings.HasPrefix(c.Database.Connection.Reveal(), "sqlite:") {
		c.Database.AutoMigrate = MigrateAlways
	}
}
