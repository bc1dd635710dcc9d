package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// resealSlice is how many rows are looked at, and at most written, at a time: who serves meanwhile waits shortly.
const resealSlice = 200

// largeRows are the tables whose rows have up to some MiB each. Their rows are taken one by one, so that the memory stays bounded.
var largeRows = []string{"repair_part"}

// sealedColumn is a column that holds sealed values, whole or in its JSON.
type sealedColumn struct {
	table, column string
	// key finds a row: its columns are texts and unique together.
	key []string
	// where narrows to the rows that hold anything sealed; empty: all may.
	where string
	// reseal seals what is not sealed with the key that seals now; the same text means that nothing was to do.
	reseal func(s keyTables, key []string, text string) (string, error)
}

// rowsAtOnce is how many rows are read, and at most written, at a time.
func (c sealedColumn) rowsAtOnce() int {
	if slices.Contains(largeRows, c.table) {
		return 1
	}
	return resealSlice
}

// sealedColumns are all of them. A column that is missing here keeps an old key from being forgotten: see SealedWith.
func sealedColumns() []sealedColumn {
	out := []sealedColumn{
		{"setting", "value", []string{"name"}, "", func(s keyTables, key []string, text string) (string, error) {
			return s.resealValue(text, "setting:"+key[0])
		}},
		{"job", "secret", []string{"id"}, "secret IS NOT NULL", func(s keyTables, key []string, text string) (string, error) {
			return s.resealValue(text, jobSecretPlace(key[0]))
		}},
		{"host_order", "secret", []string{"id"}, "secret IS NOT NULL", func(s keyTables, key []string, text string) (string, error) {
			return s.resealValue(text, orderPlace(key[0]))
		}},
		{"host_order", "examination", []string{"id"}, "examination <> ''", func(s keyTables, key []string, text string) (string, error) {
			return s.resealValue(text, examinationPlace(key[0]))
		}},
		{"document", "body", []string{"node_id", "kind"}, documentsSealed(), func(s keyTables, key []string, text string) (string, error) {
			return s.resealValue(text, nodeDocuments.place(key[0], key[1]))
		}},
		{"server_document", "body", []string{"server_id", "kind"}, "", func(s keyTables, key []string, text string) (string, error) {
			return s.resealValue(text, serverDocuments.place(key[0], key[1]))
		}},
		{"repair_part", "body", []string{"node_id", "repair_id", "name"}, "", func(s keyTables, key []string, text string) (string, error) {
			return s.resealValue(text, repairPartPlace(key[0], key[1], key[2]))
		}},
		{"node", "body", []string{"id"}, "", func(s keyTables, key []string, text string) (string, error) {
			return s.resealNode(key[0], text)
		}},
	}
	for _, k := range []struct {
		table  string
		secret func(string) bool
	}{
		{portgroups.table, portgroups.secret}, {targets.table, targets.secret}, {deployTemplates.table, deployTemplates.secret},
		{runbooks.table, runbooks.secret}, {inspectionRules.table, inspectionRules.secret}, {clusters.table, clusters.secret},
		{volumes.table, volumes.secret}, {servers.table, servers.secret},
	} {
		out = append(out, sealedColumn{k.table, "body", []string{"id"}, "", func(s keyTables, key []string, text string) (string, error) {
			return s.resealJSON(text, func(v any) (any, error) { return s.resealWalk(v, k.table+":"+key[0], k.secret) })
		}})
	}
	return out
}

func documentsSealed() string {
	var kinds []string
	for kind := range sealedDocuments {
		kinds = append(kinds, "'"+string(kind)+"'")
	}
	return "kind IN (" + strings.Join(kinds, ", ") + ")"
}

// resealValue seals a sealed value anew. What no known key sealed stays as it is: a setting in clear, say.
func (s keyTables) resealValue(text, place string) (string, error) {
	by := secret.SealedBy(text)
	if by == s.key.ID() || by != "" && !slices.Contains(s.key.IDs(), by) {
		return text, nil
	}
	v, err := s.key.Open(text, place)
	if err != nil {
		if by == "" {
			return text, nil
		}
		return "", fmt.Errorf("%s: %w", place, err)
	}
	return s.key.Seal(v, place), nil
}

// resealJSON changes a JSON text. Numbers stay as they are written.
func (s keyTables) resealJSON(text string, change func(any) (any, error)) (string, error) {
	if !strings.Contains(text, sealedMark) {
		return text, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	v, err := change(v)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

func (s keyTables) resealWalk(v any, place string, isSecret func(string) bool) (any, error) {
	return replaceSecrets(v, place, isSecret, func(v any, place string) (any, error) {
		box, _ := v.(map[string]any)
		sealed, ok := box[sealedMark].(string)
		if !ok {
			plain, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			return map[string]any{sealedMark: s.key.Seal(secret.New(string(plain)), place)}, nil
		}
		again, err := s.resealValue(sealed, place)
		return map[string]any{sealedMark: again}, err
	})
}

func (s keyTables) resealNode(id, text string) (string, error) {
	return s.resealJSON(text, func(v any) (any, error) {
		body, ok := v.(map[string]any)
		if !ok {
			return v, nil
		}
		for _, o := range new(nodeBody).sealed(&metal.Node{}) {
			if body[o.name] == nil {
				continue
			}
			again, err := s.resealWalk(body[o.name], nodePlace(id, o.name), nodeSecret)
			if err != nil {
				return nil, err
			}
			body[o.name] = again
		}
		if body[planName] != nil {
			again, err := s.resealWalk(body[planName], nodePlace(id, planName), planSecret)
			if err != nil {
				return nil, err
			}
			body[planName] = again
		}
		return body, nil
	})
}

// Reseal seals anew, with the key that seals now, all that another key sealed. It writes in small transactions and may be broken
// off at any point: whoever calls it again goes on with what is left. It returns how many rows it wrote.
func (s keyTables) Reseal(ctx context.Context) (int, error) {
	total := 0
	for _, c := range sealedColumns() {
		at := make([]string, len(c.key))
		for {
			rows, err := s.resealRows(ctx, c, at)
			if err != nil {
				return total, fmt.Errorf("seal %s anew: %w", c.table, err)
			}
			n, err := s.resealBatch(ctx, c, rows)
			total += n
			if err != nil {
				return total, fmt.Errorf("seal %s anew: %w", c.table, err)
			}
			if len(rows) < c.rowsAtOnce() {
				break
			}
			at = rows[len(rows)-1].key
		}
	}
	return total, nil
}

type resealRow struct {
	key  []string
	text string
}

// resealRows reads the slice behind a key.
func (s keyTables) resealRows(ctx context.Context, c sealedColumn, after []string) ([]resealRow, error) {
	keys := strings.Join(c.key, ", ")
	text := `SELECT ` + keys + `, ` + c.column + ` FROM ` + c.table + ` WHERE (` + keys + `) > (` + sqlPlaceholders(1, len(c.key)) + `)`
	if c.where != "" {
		text += ` AND ` + c.where
	}
	cl := &whereClause{}
	for _, k := range after {
		cl.arg(k)
	}
	text += ` ORDER BY ` + keys + ` LIMIT ` + cl.count(c.rowsAtOnce())
	var out []resealRow
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		row := resealRow{key: make([]string, len(c.key))}
		into := make([]any, 0, len(c.key)+1)
		for i := range row.key {
			into = append(into, &row.key[i])
		}
		err := r.Scan(append(into, &row.text)...)
		out = append(out, row)
		return err
	}, text, cl.args...)
	return out, err
}

// resealBatch writes rows anew unless they have been written meanwhile, which sealed them anew too.
func (s keyTables) resealBatch(ctx context.Context, c sealedColumn, rows []resealRow) (n int, err error) {
	var where []string
	for i, k := range c.key {
		where = append(where, fmt.Sprintf("%s = $%d", k, i+3))
	}
	update := `UPDATE ` + c.table + ` SET ` + c.column + ` = $1 WHERE ` + c.column + ` = $2 AND ` + strings.Join(where, " AND ")
	err = s.Do(ctx, func(t job.Tx) error {
		n = 0
		tx, err := s.tx(t)
		if err == nil {
			err = tx.seals()
		}
		for _, row := range rows {
			if err != nil {
				return err
			}
			var again string
			if again, err = c.reseal(s, row.key, row.text); err != nil || again == row.text {
				continue
			}
			args := []any{again, row.text}
			for _, k := range row.key {
				args = append(args, k)
			}
			var rows int64
			rows, err = tx.exec(update, args...)
			n += int(rows)
		}
		return err
	})
	return n, err
}

// SealedWith counts the rows that hold something sealed with a key, in any table and column but those of the timeline, to which
// nothing sealed is ever added and which is larger than all others: what the list above might miss is counted too.
func (s keyTables) SealedWith(ctx context.Context, id string) (int, error) {
	columns := `SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!' AND m.name <> 'event' AND upper(p.type) = 'TEXT'`
	if s.shared {
		columns = `SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
			WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			AND c.relname <> 'event' AND a.atttypid = CAST('text' AS regtype)`
	}
	found := map[string][]string{}
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var table, column string
		err := r.Scan(&table, &column)
		found[table] = append(found[table], column)
		return err
	}, columns)
	total := 0
	for table, columns := range found {
		if err != nil {
			break
		}
		var either []string
		for _, column := range columns {
			either = append(either, `"`+column+`" LIKE $1`, `"`+column+`" LIKE $2`)
		}
		err = s.read(ctx, nil, func(r *sql.Rows) error {
			var n int
			err := r.Scan(&n)
			total += n
			return err
		}, `SELECT COUNT(*) FROM "`+table+`" WHERE `+strings.Join(either, " OR "), id+`.%`, `%"`+sealedMark+`":"`+id+`.%`)
	}
	if err != nil {
		return 0, fmt.Errorf("count what is sealed with key %s: %w", id, err)
	}
	return total, nil
}

// KeyUse is what still needs an old key.
type KeyUse struct {
	// Sealed counts rows, Boots the nodes whose ramdisk holds a token of the key, Operations those that began before the change:
	// somebody may hold a token for them.
	Sealed, Boots, Operations int
}

// OldKeyUse tells who may hold tokens of an old key. It leaves out what is sealed with it, which takes longer to count.
func (s keyTables) OldKeyUse(ctx context.Context, k SealKey) (u KeyUse, err error) {
	count := func(into *int, text string, args ...any) {
		if err == nil {
			err = s.read(ctx, nil, func(r *sql.Rows) error { return r.Scan(into) }, text, args...)
		}
	}
	// A boot that stays for good (a ramdisk that is the deployed system, volumes) is given no token.
	count(&u.Boots, `SELECT COUNT(*) FROM node WHERE boot_path <> '' AND body NOT LIKE $1 AND body NOT LIKE '%"Persistent":true%'`,
		`%"KeyID":"`+s.key.ID()+`"%`)
	count(&u.Operations, `SELECT COUNT(*) FROM job WHERE state <> 'ended' AND class = 'operation' AND created_at <= $1`, toMicros(k.Since))
	return u, err
}

// ForgetKey ends the change of the key; problem.Conflict while anything needs the old one.
func (s keyTables) ForgetKey(ctx context.Context, k SealKey) error {
	use, err := s.OldKeyUse(ctx, k)
	if err == nil {
		use.Sealed, err = s.SealedWith(ctx, k.ID)
	}
	if err != nil {
		return err
	}
	if use != (KeyUse{}) {
		return problem.Conflictf("Key %s is in use: %d rows are sealed with it, %d ramdisks and %d operations hold tokens of it.", k.ID, use.Sealed, use.Boots, use.Operations)
	}
	return s.execOnce(ctx, `UPDATE seal_key SET state = 'retired', since = $2 WHERE id = $1 AND state = 'old'`, k.ID, toMicros(s.timestamp()))
}
