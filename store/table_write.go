package store

import (
	"database/sql"
	"fmt"
	"strings"

	"salvor/job"
	"salvor/problem"
)

// Insert is record.Table's.
func (t recordTable[R, F]) Insert(tx job.Tx, r *R) error {
	x, err := t.s.tx(tx)
	if err != nil {
		return err
	}
	if err := t.seals(x); err != nil {
		return err
	}
	h := t.k.head(r)
	x.keepStamps(h.version, h.created, h.updated)
	if h.created.IsZero() {
		*h.created = t.s.timestamp()
	}
	if *h.version == 0 {
		*h.version = 1
	}
	args, err := t.values(r)
	if err != nil {
		return err
	}
	all := t.k.allColumns()
	var num int64
	err = x.each(func(rows *sql.Rows) error { return rows.Scan(&num) },
		`INSERT INTO `+t.k.table+` (`+strings.Join(all, ", ")+`) VALUES (`+sqlPlaceholders(1, len(all))+`) ON CONFLICT DO NOTHING RETURNING num`, args...)
	if err == nil && num == 0 {
		return t.takenKeyError(x, r)
	}
	if err == nil && t.k.num != nil {
		*t.k.num(r) = num
	}
	return t.refused(err, r, "insert")
}

// takenKeyError says which key of a new record is taken.
func (t recordTable[R, F]) takenKeyError(tx *Tx, r *R) error {
	at := map[string]any{"id": t.k.head(r).id}
	for i, f := range t.k.fields(r) {
		at[t.k.columns[i]] = f
	}
	id := uniqueKey[R]{[]string{"id"}, func(*R) string { return withArticle(t.k.word) + " with UUID " + *t.k.head(r).id + " already exists." }}
	for _, k := range append([]uniqueKey[R]{id}, t.k.keys...) {
		c := &whereClause{}
		for _, column := range k.columns {
			c.and(column + " = " + c.arg(driverValue(at[column])))
		}
		taken := false
		err := tx.each(func(*sql.Rows) error { taken = true; return nil }, `SELECT 1 FROM `+t.k.table+c.where(), c.args...)
		if err != nil {
			return err
		}
		if taken && driverValue(at[k.columns[0]]) != "" {
			return problem.Conflictf("%s", k.says(r))
		}
	}
	return t.k.conflict(*t.k.head(r).id)
}

func withArticle(word string) string {
	if strings.ContainsRune("aeiou", rune(word[0])) {
		return "An " + word
	}
	return "A " + word
}

// refused turns a violated rule into what the user reads.
func (t recordTable[R, F]) refused(err error, r *R, verb string) error {
	if err == nil {
		return nil
	}
	rule := t.s.engine.violated(err)
	if rule == foreignKey && t.k.inUse != nil {
		return conflictError(err, "%s", t.k.inUse(r))
	}
	if rule == foreignKey && t.k.node != nil {
		return problem.NotFoundf("Node %s could not be found.", t.k.node(r))
	}
	for _, k := range t.k.keys {
		if rule == t.k.table+"."+k.columns[0] {
			return conflictError(err, "%s", k.says(r))
		}
	}
	return fmt.Errorf("%s %s %s: %w", verb, t.k.word, *t.k.head(r).id, err)
}

// Save is record.Table's.
func (t recordTable[R, F]) Save(tx job.Tx, r *R) error {
	x, err := t.s.tx(tx)
	if err != nil {
		return err
	}
	if err := t.seals(x); err != nil {
		return err
	}
	h := t.k.head(r)
	x.keepStamps(h.version, h.updated)
	former, at := *h.version, *h.updated
	*h.version, *h.updated = former+1, t.s.timestamp()
	args, err := t.values(r)
	var rows int64
	if err == nil {
		rows, err = x.exec(updateText(t.k.table, t.k.allColumns()), args...)
	}
	if err == nil && rows == 1 {
		return nil
	}
	*h.version, *h.updated = former, at
	if err == nil {
		return t.k.conflict(*h.id)
	}
	return t.refused(err, r, "save")
}

// Delete is record.Table's.
func (t recordTable[R, F]) Delete(tx job.Tx, r *R) error {
	x, err := t.s.tx(tx)
	if err != nil {
		return err
	}
	h := t.k.head(r)
	rows, err := x.exec(`DELETE FROM `+t.k.table+` WHERE id = $1 AND version = $2`, *h.id, *h.version)
	if err == nil && rows == 0 {
		return t.k.conflict(*h.id)
	}
	return t.refused(err, r, "delete")
}
