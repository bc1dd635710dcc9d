package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// inOrder lists the tables so that none stands before one that it refers to.
func (s *databaseSnapshot) inOrder(ctx context.Context) ([]string, error) {
	names, err := s.textRows(ctx, s.list, 1)
	if err != nil {
		return nil, err
	}
	refers, err := s.textRows(ctx, s.refers, 2)
	if err != nil {
		return nil, err
	}
	needs := map[string][]string{}
	for i := 0; i < len(refers); i += 2 {
		needs[refers[i]] = append(needs[refers[i]], refers[i+1])
	}
	var out []string
	seen := map[string]bool{}
	var take func(name string)
	take = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, needed := range needs[name] {
			take(needed)
		}
		out = append(out, name)
	}
	for _, name := range names {
		take(name)
	}
	return out, nil
}

// textRows gives the values of a query of n text columns, one after the other.
func (s *databaseSnapshot) textRows(ctx context.Context, text string, n int) ([]string, error) {
	rows, err := s.tx.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		row := make([]string, n)
		at := make([]any, n)
		for i := range row {
			at[i] = &row[i]
		}
		if err := rows.Scan(at...); err != nil {
			return nil, err
		}
		out = append(out, row...)
	}
	return out, rows.Err()
}

// rowCodec turns rows of one table into what both engines mean by them.
type rowCodec struct {
	columns []string
	boolean []bool
	text    []bool
}

func (s *databaseSnapshot) columnsOf(ctx context.Context, table string) (rowCodec, error) {
	var c rowCodec
	rows, err := s.tx.QueryContext(ctx, s.columns, table)
	if err != nil {
		return c, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, form string
		if err := rows.Scan(&name, &form); err != nil {
			return c, err
		}
		switch form {
		case "text", "bigint", "integer", "boolean":
		default:
			return c, fmt.Errorf("column %s has the type %s, which copies do not know", name, form)
		}
		c.columns, c.boolean, c.text = append(c.columns, name), append(c.boolean, form == "boolean"), append(c.text, form == "text")
	}
	return c, rows.Err()
}

// fresh gives places for the values of a row.
func (c rowCodec) fresh() []any {
	out := make([]any, len(c.columns))
	for i := range out {
		switch {
		case c.boolean[i]:
			out[i] = &sql.NullBool{}
		case c.text[i]:
			out[i] = &sql.NullString{}
		default:
			out[i] = &sql.NullInt64{}
		}
	}
	return out
}

// rowSetDigest adds up the hashes of rows, so that their order does not count.
type rowSetDigest [4]uint64

func (d *rowSetDigest) add(row []any) {
	h := sha256.New()
	var head [9]byte
	for _, v := range row {
		var kind byte
		var n uint64
		text := ""
		switch v := v.(type) {
		case *sql.NullBool:
			if v.Valid {
				kind = 'b'
				if v.Bool {
					n = 1
				}
			}
		case *sql.NullInt64:
			if v.Valid {
				kind, n = 'i', uint64(v.Int64)
			}
		case *sql.NullString:
			if v.Valid {
				kind, n, text = 's', uint64(len(v.String)), v.String
			}
		}
		head[0] = kind
		binary.BigEndian.PutUint64(head[1:], n)
		h.Write(head[:])
		h.Write([]byte(text))
	}
	sum := h.Sum(nil)
	for i := range d {
		d[i] += binary.BigEndian.Uint64(sum[8*i:])
	}
}

func (d *rowSetDigest) String() string {
	var b []byte
	for _, n := range d {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return hex.EncodeToString(b)
}

func (p tableCopy) table(ctx context.Context, table string) (Copied, error) {
	codec, err := p.from.columnsOf(ctx, table)
	if err != nil {
		return Copied{}, err
	}
	theirs, err := p.to.columnsOf(ctx, table)
	if err != nil {
		return Copied{}, err
	}
	if !slices.Equal(codec.columns, theirs.columns) || !slices.Equal(codec.boolean, theirs.boolean) || !slices.Equal(codec.text, theirs.text) {
		return Copied{}, fmt.Errorf("the columns differ: %v here, %v there", codec.columns, theirs.columns)
	}
	total, err := queryNumber(ctx, p.from.tx, "SELECT COUNT(*) FROM "+quoteIdentifier(table))
	if err != nil {
		return Copied{}, err
	}
	p.report(Copied{Table: table, Rows: total}, false)
	have, err := p.rows(ctx, table, codec)
	if err != nil {
		return Copied{}, err
	}
	if err := p.serial(ctx, table); err != nil {
		return Copied{}, err
	}
	there, err := p.to.digestOf(ctx, table, codec)
	if err != nil {
		return Copied{}, err
	}
	if there != have {
		return Copied{}, fmt.Errorf("the copy differs from the source: %d rows with digest %s here, %d with %s there", have.Rows, have.Digest, there.Rows, there.Digest)
	}
	p.report(have, true)
	return have, nil
}

// maxParameters bounds the placeholders of one statement. SQLite looks each name $N up by comparing all names before it, so the cost of
// a statement grows with the square of its placeholders: 16,000 placeholders made a copy six times as slow.
const maxParameters = 1000

func (p tableCopy) rows(ctx context.Context, table string, codec rowCodec) (Copied, error) {
	out := Copied{Table: table}
	var sum rowSetDigest
	n := len(codec.columns)
	batch := max(1, maxParameters/n)
	var args []any
	flush := func() error {
		count := len(args) / n
		if count == 0 {
			return nil
		}
		marks := make([]string, count)
		for i := range marks {
			marks[i] = "(" + sqlPlaceholders(i*n+1, n) + ")"
		}
		_, err := p.to.tx.ExecContext(ctx, "INSERT INTO "+quoteIdentifier(table)+" ("+codec.names()+")"+p.to.overriding+" VALUES "+strings.Join(marks, ", "), args...)
		args = args[:0]
		return err
	}
	err := p.from.each(ctx, table, codec, func(row []any) error {
		out.Rows++
		sum.add(row)
		args = append(args, row...)
		if len(args) == batch*n {
			return flush()
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	out.Digest = sum.String()
	return out, err
}

func (c rowCodec) names() string {
	quoted := make([]string, len(c.columns))
	for i, name := range c.columns {
		quoted[i] = quoteIdentifier(name)
	}
	return strings.Join(quoted, ", ")
}

// each hands the rows of a table to fn, which may keep the values.
func (s *databaseSnapshot) each(ctx context.Context, table string, codec rowCodec, fn func(row []any) error) error {
	rows, err := s.tx.QueryContext(ctx, "SELECT "+codec.names()+" FROM "+quoteIdentifier(table))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		row := codec.fresh()
		if err := rows.Scan(row...); err != nil {
			return err
		}
		if err := fn(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s *databaseSnapshot) digestOf(ctx context.Context, table string, codec rowCodec) (Copied, error) {
	out := Copied{Table: table}
	var sum rowSetDigest
	err := s.each(ctx, table, codec, func(row []any) error {
		out.Rows++
		sum.add(row)
		return nil
	})
	out.Digest = sum.String()
	return out, err
}

// serial has the destination count on where the source stands, so that no number is given twice.
func (p tableCopy) serial(ctx context.Context, table string) error {
	column, counter, err := p.to.counterOf(ctx, table)
	if err != nil || column == "" {
		return err
	}
	newest, err := queryNumber(ctx, p.to.tx, "SELECT COALESCE(MAX("+quoteIdentifier(column)+"), 0) FROM "+quoteIdentifier(table))
	if err != nil {
		return err
	}
	_, theirs, err := p.from.counterOf(ctx, table)
	if err == nil && theirs != "" {
		var last int64
		last, err = queryNumber(ctx, p.from.tx, p.from.last, theirs)
		newest = max(newest, last)
	}
	for _, text := range p.to.resume {
		args := []any{counter, newest}
		if !strings.Contains(text, "$2") {
			args = args[:1]
		}
		if err == nil {
			_, err = p.to.tx.ExecContext(ctx, text, args...)
		}
	}
	if err != nil {
		return fmt.Errorf("count on from %d: %w", newest, err)
	}
	return nil
}

// counterOf names the column of a table that the engine counts, and its counter; empty: there is none.
func (s *databaseSnapshot) counterOf(ctx context.Context, table string) (column, counter string, err error) {
	err = s.tx.QueryRowContext(ctx, s.counted, table).Scan(&column, &counter)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return column, counter, err
}
