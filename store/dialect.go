package store

import "github.com/pressly/goose/v3"

// sqlDialect is what the engines do not say alike. $1 of the queries about a table is its name.
type sqlDialect struct {
	name  string // in the names of migrations and in words for people
	goose goose.Dialect
	// serial and text are what the shared migrations leave open.
	serial, text string
	// versioned counts 1 where the steps of the tables are counted already.
	versioned string
	// list names the tables but that of the versions; columns gives name and type of a table's columns in the order of their names;
	// counted names its column of numbers that the engine counts, if it has one, and their counter; refers gives pairs of tables of which the first needs rows of the second.
	list, columns, counted, refers string
	// overriding lets an insert give the serial numbers.
	overriding string
	// last reads the last number that the counter $1 gave; resume sets it to $2.
	last   string
	resume []string
	// size is that of the database in bytes.
	size string
}

var sqliteDialect = sqlDialect{
	name: "sqlite", goose: goose.DialectSQLite3, serial: "INTEGER PRIMARY KEY AUTOINCREMENT", text: "TEXT",
	versioned: `SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'goose_db_version'`,
	list:      `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' AND name <> 'goose_db_version' ORDER BY name`,
	columns:   `SELECT name, lower(type) FROM pragma_table_info($1) ORDER BY name`,
	counted: `SELECT i.name, m.name FROM sqlite_master m, pragma_table_info(m.name) i WHERE m.type = 'table' AND m.name = $1 AND i.pk = 1
		AND m.sql LIKE '%AUTOINCREMENT%'`,
	refers: `SELECT m.name, f."table" FROM sqlite_master m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table'`,
	last:   `SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = $1), 0)`,
	resume: []string{`DELETE FROM sqlite_sequence WHERE name = $1`, `INSERT INTO sqlite_sequence (name, seq) VALUES ($1, $2)`},
	size:   `SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()`,
}

var postgresDialect = sqlDialect{
	name: "postgres", goose: goose.DialectPostgres, serial: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", text: `TEXT COLLATE "C"`,
	versioned: `SELECT COUNT(*) FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = 'goose_db_version'`,
	list: `SELECT c.relname FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
		AND NOT c.relispartition AND c.relname <> 'goose_db_version' ORDER BY c.relname COLLATE "C"`,
	columns: `SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a WHERE a.attrelid = quote_ident($1)::regclass AND a.attnum > 0
		AND NOT a.attisdropped ORDER BY a.attname COLLATE "C"`,
	counted: `SELECT a.attname, q.relname FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		JOIN pg_depend p ON p.refclassid = 'pg_class'::regclass AND (p.classid = 'pg_class'::regclass AND p.refobjid = a.attrelid
			AND p.refobjsubid = a.attnum AND p.deptype = 'i' OR p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid)
		JOIN pg_class q ON q.relkind = 'S' AND q.oid = CASE p.deptype WHEN 'i' THEN p.objid ELSE p.refobjid END
		WHERE a.attrelid = quote_ident($1)::regclass AND a.attnum > 0`,
	refers: `SELECT c.relname, t.relname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class t ON t.oid = k.confrelid
		WHERE k.contype = 'f' AND c.relnamespace = current_schema()::regnamespace`,
	overriding: ` OVERRIDING SYSTEM VALUE`,
	last:       `SELECT COALESCE((SELECT last_value FROM pg_sequences WHERE schemaname = current_schema() AND sequencename = $1), 0)`,
	resume:     []string{`SELECT setval(quote_ident($1)::regclass, GREATEST(CAST($2 AS BIGINT), 1), CAST($2 AS BIGINT) > 0)`},
	size:       `SELECT pg_database_size(current_database())`,
}
