package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// selectNodeMarks reads what a node's view is known by: of the wide row only its key and version.
const selectNodeMarks = `SELECT n.num, n.id, n.version, COALESCE(k.revision, 0)` + lockAndConductor + `
	FROM node n LEFT JOIN contact k ON k.node_id = n.id` + joinLockAndConductor

func (s nodeTables) nodeMarks(ctx context.Context, text string, args ...any) ([]metal.NodeMark, error) {
	var out []metal.NodeMark
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var m metal.NodeMark
		err := r.Scan(&m.Num, &m.ID, &m.Version, &m.ContactRevision, &m.Reservation, &m.Conductor)
		out = append(out, m)
		return err
	}, text, args...)
	if err != nil {
		return nil, fmt.Errorf("read marks of nodes: %w", err)
	}
	return out, nil
}

// NodeMark is metal.NodeMarks's.
func (s nodeTables) NodeMark(ctx context.Context, ident string) (metal.NodeMark, error) {
	if ident == "" {
		return metal.NodeMark{}, problem.NotFoundf("Node %s could not be found.", ident)
	}
	found, err := s.nodeMarks(ctx, selectNodeMarks+nodeByIdent, ident)
	if err == nil && len(found) == 0 {
		err = problem.NotFoundf("Node %s could not be found.", ident)
	}
	if err != nil {
		return metal.NodeMark{}, err
	}
	return found[0], nil
}

// ListNodeMarks is metal.NodeMarks's.
func (s nodeTables) ListNodeMarks(ctx context.Context, f metal.NodeFilter, p record.Page) ([]metal.NodeMark, error) {
	return nodePage(ctx, s.storeCore, nil, f, p, func(tail string, args []any) ([]metal.NodeMark, error) {
		return s.nodeMarks(ctx, selectNodeMarks+tail, args...)
	})
}

// markSlice is how many rows one query of marked records names.
const markSlice = 500

// MarkedNodes is metal.NodeMarks's.
func (s nodeTables) MarkedNodes(ctx context.Context, nums []int64, part metal.NodePart) (map[int64]*metal.Node, error) {
	out := make(map[int64]*metal.Node, len(nums))
	columns := `n.` + strings.Join(nodeFields, ", n.")
	if part == metal.NodeRow {
		columns = strings.TrimSuffix(columns, "n.body") + "'{}'"
	}
	err := inSlices(nums, func(list string, args []any) error {
		return s.read(ctx, nil, func(r *sql.Rows) error {
			var num int64
			n, err := s.scanNode(r, &num)
			out[num] = n
			return err
		}, `SELECT `+columns+lockAndConductor+`, n.num FROM node n`+joinLockAndConductor+` WHERE n.num IN (`+list+`)`, args...)
	})
	if err != nil {
		return nil, fmt.Errorf("read marked nodes: %w", err)
	}
	return out, nil
}

// inSlices hands numbers to read as a list of placeholders and its arguments. Lists have one
// of few lengths, the last number repeated, so that few different statements are prepared.
func inSlices(nums []int64, read func(list string, args []any) error) error {
	for len(nums) > 0 {
		n := min(len(nums), markSlice)
		args := make([]any, 0, markSlice)
		for _, num := range nums[:n] {
			args = append(args, num)
		}
		for _, size := range []int{1, 10, 100, markSlice} {
			if n <= size {
				for len(args) < size {
					args = append(args, nums[n-1])
				}
				break
			}
		}
		if err := read(sqlPlaceholders(1, len(args)), args); err != nil {
			return err
		}
		nums = nums[n:]
	}
	return nil
}

// Marks is record.Table's.
func (t recordTable[R, F]) Marks(ctx context.Context, f F, p record.Page) ([]record.Mark, error) {
	return readPage(ctx, t, nil, f, p, func(tail string, args []any) ([]record.Mark, error) {
		var out []record.Mark
		err := t.s.read(ctx, nil, func(r *sql.Rows) error {
			var m record.Mark
			err := r.Scan(&m.Num, &m.ID, &m.Version)
			out = append(out, m)
			return err
		}, `SELECT t.num, t.id, t.version FROM `+t.k.table+` t`+tail, args...)
		return out, err
	})
}

// Marked is record.Table's.
func (t recordTable[R, F]) Marked(ctx context.Context, nums []int64) (map[int64]*R, error) {
	out := make(map[int64]*R, len(nums))
	err := inSlices(nums, func(list string, args []any) error {
		return t.s.read(ctx, nil, func(rows *sql.Rows) error {
			r, num, err := t.scan(rows)
			out[num] = r
			return err
		}, t.k.selects()+` WHERE t.num IN (`+list+`)`, args...)
	})
	if err != nil {
		return nil, fmt.Errorf("read marked %ss: %w", t.k.word, err)
	}
	return out, nil
}
