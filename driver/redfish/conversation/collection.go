package conversation

import (
	"context"
	"errors"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/refusal"
	"salvor/problem"
)

// MaxPages bounds how many pages of a list are read.
const MaxPages = 20

// page is a page of a collection.
type page struct {
	Members Links
	Next    Link `json:"Members@odata.nextLink"`
	OldNext Link `json:"@odata.nextLink"`
}

// Members reads the links of a collection, at most most of them, page by page, and each once.
func (c *Conversation) Members(ref string, most int) ([]Link, error) {
	var out []Link
	seen := map[string]bool{sameResource(ref): true}
	for range MaxPages {
		var one page
		if _, err := c.Get(ref, &one); err != nil {
			if len(out) == 0 {
				return nil, err
			}
			c.noteOnce("a further page of the list %s cannot be read, and its members are left out: %v", driver.Sanitize(ref), err)
			break
		}
		for _, link := range one.Members {
			path := Join(ref, link.Path)
			if path != "" && !seen[sameResource(path)] {
				seen[sameResource(path)] = true
				out = append(out, Link{path})
			}
		}
		next := one.Next.Path
		if next == "" {
			next = one.OldNext.Path
		}
		if next = Join(ref, next); next == "" || len(out) >= most || len(one.Members) == 0 || seen[next] {
			break
		}
		seen[next] = true
		ref = next
	}
	return out[:min(len(out), most)], nil
}

// Each reads the members of a collection, each by itself, and calls fn with path, ETag and content of those that can be read. A member that
// cannot be read is noted once, and left has its error. The error is that of the collection, or of its first member where no member can be
// read. Without a link there are no members.
func Each[T any](c *Conversation, list Link, most int, fn func(path, etag string, doc *T)) (left []error, err error) {
	if list.Path == "" {
		return nil, nil
	}
	members, err := c.Members(list.Path, most)
	if err != nil {
		return nil, err
	}
	return EachOf(c, members, fn)
}

// EachOf is Each for links. A member that the BMC cannot show now is read once more after the others.
func EachOf[T any](c *Conversation, members []Link, fn func(path, etag string, doc *T)) (left []error, err error) {
	read := 0
	var later []Link
	for round := range 2 {
		for _, member := range members {
			doc := new(T)
			etag, err := c.Get(member.Path, doc)
			switch {
			case err == nil:
				read++
				fn(member.Path, etag, doc)
			case isOfAll(err), c.ctx.Err() != nil:
				return left, err
			case round == 0 && problem.Is(err, problem.Unavailable):
				later = append(later, member)
			default:
				left = append(left, err)
			}
		}
		if members = later; len(members) == 0 {
			break
		}
		if round == 0 {
			if err := c.pause(laterPause); err != nil {
				return left, err
			}
		}
	}
	if len(left) > 0 && read == 0 {
		return left, left[0]
	}
	for _, err := range left {
		_ = c.LeaveOut(err)
	}
	return left, nil
}

// laterPause is the time before members are read again that the BMC could not show.
const laterPause = 300 * time.Millisecond

// LeaveOut notes that a part of the machine could not be read, once, and gives nil. An error that would meet every resource of the BMC, or of
// an operation that is cut off, stays.
func (c *Conversation) LeaveOut(err error) error {
	switch {
	case err == nil:
	case isOfAll(err), c.ctx.Err() != nil:
		return err
	default:
		c.noteOnce("a part of the machine is left out, because the BMC does not show it: %v", err)
	}
	return nil
}

// isOfAll tells whether an error would meet every resource of the BMC: a refused login, or a BMC that does not answer.
func isOfAll(err error) bool {
	var r *refusal.Refusal
	return errors.Is(err, driver.ErrLogin) || errors.Is(err, context.Canceled) || problem.Is(err, problem.Unavailable) && !errors.As(err, &r) && !errors.Is(err, errPage)
}
