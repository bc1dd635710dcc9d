package config

import "strings"

// The values of [database]auto_migrate.
const (
	MigrateAuto   = "auto"
	MigrateAlways = "always"
	MigrateEmpty  = "empty"
	MigrateNever  = "never"
)

var databaseOptions = []Option{
	option("database", "auto_migrate", MigrateAuto, oneOf(MigrateAuto, MigrateAlways, MigrateEmpty, MigrateNever), func(c *Config) *string { return &c.Database.AutoMigrate },
		"Whether serve changes the tables of the database at its start: always, only in an empty database, or never, so that salvor db migrate does. auto is always on SQLite, which one process serves, and empty on PostgreSQL, where processes of an older release may be at work."),
	option("database", "witness_file", "", path, func(c *Config) *string { return &c.Database.WitnessFile },
		"A file that remembers how far the database had come, beside witness.json in the state directory. Name one on another disk, outside of what a backup or a snapshot of the state directory takes: so a snapshot that is put back is noticed, and nothing acts on it before an administrator has decided about its open jobs."),
	option("database", "max_pool_size", "0", integer(0, 1000), func(c *Config) *int { return &c.Database.MaxPoolSize },
		"How many connections a process has to the database at most, beside one that listens. 0 stands for 4 readers of SQLite and for 24 of PostgreSQL."),
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
