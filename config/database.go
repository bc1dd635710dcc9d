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
		"When salvor serve migrates the database at its start: always, only if it is empty, or never, so that salvor db migrate does it. auto means always on SQLite, which only one process uses. On PostgreSQL it means empty, because processes of an older release may use the database too."),
	newOption("database", "witness_file", "", path, func(c *Config) *string { return &c.Database.WitnessFile },
		"A file that records how far the database has come, beside witness.json in the state directory. Choose another disk that no backup or snapshot of the state directory covers. salvor then notices a restored snapshot, and runs none of its open jobs until an administrator has decided about them."),
	newOption("database", "max_pool_size", "0", integerSyntax(0, 1000), func(c *Config) *int { return &c.Database.MaxPoolSize },
		"The most database connections of a process, beside two for its lease and one that listens. 0: 4 readers of SQLite, or 24 connections to PostgreSQL."),
	newOption("database", "pool_mode", PoolNone, oneOf(PoolNone, PoolSession, PoolTransaction), func(c *Config) *string { return &c.Database.PoolMode },
		"The pool_mode of the pooler, such as PgBouncer, between salvor and PostgreSQL; none if salvor connects to PostgreSQL itself."),
	markSecret(newOption("database", "direct_connection", "", postgresURL, func(c *Config) *secret.Value { return &c.Database.DirectConnection },
		"The URL of PostgreSQL itself, if connection leads to a pooler. salvor db uses it, and so does LISTEN, by which processes notify each other at once. Without it a process behind a pooler in transaction mode polls.")),
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
