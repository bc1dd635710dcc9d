package conversation

import (
	"context"
	"errors"
	"strings"

	"salvor/driver"
	"salvor/driver/redfish/refusal"
	"salvor/problem"
)

// MaxPages bounds how many pages of a list are read.
const MaxPages = 20

// page is a page of a collection.
type page struct {
	Members any
	Count   *int `json:"Members@odata.count"`
	Next    Link `json:"Members@odata.nextLink"`
	OldNext Link `json:"@odata.nextLink"`
}

// links are the members of a page. A page that has no list of members is no page of a collection.
func (c *Conversation) links(ref string, one page) (Links, error) {
	out, left := linksIn(one.Members)
	if left < 0 || one.Members == nil && (one.Count == nil || *one.Count > 0) {
		return nil, problem.Tries(strangeTries, problem.Unavailablef("%w: the list %s has no members that can be read", errPage, driver.Sanitize(ref)))
	}
	if left > 0 {
		c.leaveOut(problem.Unavailablef("%d members of the list %s are no links", left, driver.Sanitize(ref)))
	}
	return out, nil
}

// Members reads the links of a collection, at most most of them, page by page, and each once.
func (c *Conversation) Members(ref string, most int) ([]Link, error) {
	var out []Link
	seen := map[string]bool{sameResource(ref): true}
	for range MaxPages {
		var one page
		_, err := c.Get(ref, &one)
		var members Links
		if err == nil {
			members, err = c.links(ref, one)
		}
		if err != nil && len(out) == 0 {
			return nil, err
		}
		if err != nil {
			c.leaveOut(err)
			break
		}
		for _, link := range members {
			if path := Join(ref, link.Path); path != "" && !seen[sameResource(path)] {
				seen[sameResource(path)] = true
				out = append(out, Link{path})
			}
		}
		next := one.Next.Path
		if next == "" {
			next = one.OldNext.Path
		}
		if next = Join(ref, next); next == "" || len(out) >= most || len(members) == 0 || seen[sameResource(next)] {
			break
		}
		seen[sameResource(next)] = true
		ref = next
	}
	return out[:min(len(out), most)], nil
}

// Each reads the members of a collection, each by itself, and calls fn with path, ETag and content of those that can be read. A member that
// cannot be read is left out and noted, and left has its error. The error is that of the collection, or of its first member where no member
// can be read. Without a link there are no members.
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

// EachOf is Each for links.
func EachOf[T any](c *Conversation, members []Link, fn func(path, etag string, doc *T)) (left []error, err error) {
	for _, member := range members {
		doc := new(T)
		etag, err := c.Get(member.Path, doc)
		switch {
		case err == nil:
			fn(member.Path, etag, doc)
		case isOfAll(err), c.ctx.Err() != nil:
			return left, err
		default:
			left = append(left, err)
		}
	}
	if len(left) > 0 && len(left) == len(members) {
		return left, left[0]
	}
	for _, err := range left {
		c.leaveOut(err)
	}
	return left, nil
}

// LeaveOut notes that a part of the machine could not be read, once, and gives nil. The error of a refused login, of a BMC that does not answer
// at all, and of an operation that is cut off stays.
func (c *Conversation) LeaveOut(err error) error {
	if err == nil {
		return nil
	}
	isSilent := c.asked && errors.Is(err, context.DeadlineExceeded) // at one resource, after others have answered
	if isOfAll(err) && !isSilent || c.ctx.Err() != nil {
		return err
	}
	c.leaveOut(err)
	return nil
}

func (c *Conversation) leaveOut(err error) {
	c.left = append(c.left, err.Error())
	c.noteOnce("a part of the machine is left out, because the BMC does not show it: %v", err)
}

// LeftOut says in an error, behind what is missing, what could not be read in this conversation; empty: nothing.
func (c *Conversation) LeftOut() string {
	if len(c.left) == 0 {
		return ""
	}
	return "; what the BMC does not show may have it: " + strings.Join(c.left[:min(len(c.left), 3)], "; ")
}

// isOfAll tells whether an error would meet every resource of the BMC: a refused login, or a BMC that does not answer.
func isOfAll(err error) bool {
	var r *refusal.Refusal
	return errors.Is(err, driver.ErrLogin) || errors.Is(err, context.Canceled) || problem.Is(err, problem.Unavailable) && !errors.As(err, &r) && !errors.Is(err, errPage)
}
