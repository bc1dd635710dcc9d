package conversation

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/link"
	"salvor/driver/redfish/refusal"
	"salvor/problem"
)

// MaxPages bounds how many pages of a list are read.
const MaxPages = 20

// page is a page of a collection.
type page struct {
	Type    string `json:"@odata.type"`
	Members any
	Count   *int      `json:"Members@odata.count"`
	Next    link.Link `json:"Members@odata.nextLink"`
	OldNext link.Link `json:"@odata.nextLink"`
}

// links are the members of a page. A page that has no list of members is no page of a collection, unless its type says that it is: AMI's BMCs
// show the collection of a part that the machine lacks without Members. The list is left out then, because it may as well be broken.
func (c *Conversation) links(ref string, one page) (link.Links, error) {
	out, left := link.ListIn(one.Members)
	if left < 0 || one.Members == nil && (one.Count == nil || *one.Count > 0) {
		err := problem.Unavailablef("%w: the list %s has no members that can be read", errPage, driver.Sanitize(ref))
		if one.Members == nil && strings.HasSuffix(one.Type, "Collection") {
			c.leaveOut(err)
			return nil, nil
		}
		return nil, problem.Tries(strangeTries, err)
	}
	if left > 0 {
		c.leaveOut(problem.Unavailablef("%d members of the list %s are no links", left, driver.Sanitize(ref)))
	}
	return out, nil
}

// emptyPause is the pause before a list is read again that is empty for the moment.
const emptyPause = 800 * time.Millisecond

// Members reads the links of a collection, at most most of them, page by page, and each once. A list that is empty, and had members a short
// time ago or may have lost them by an order, is read again after a pause. Lacking knows of a list that stays empty, because it may be empty for the moment.
func (c *Conversation) Members(ref string, most int) ([]link.Link, error) {
	out, err := c.membersOnce(ref, most)
	mayHide := err == nil && len(out) == 0 && (c.Had(ref) || c.settings.Memory.HadOrder(c.settings.Key))
	if mayHide && driver.Pause(c.ctx, emptyPause) == nil {
		out, err = c.membersOnce(ref, most)
	}
	if mayHide && err == nil && len(out) == 0 {
		c.emptied = append(c.emptied, problem.Unavailablef("the list %s is empty, perhaps for the moment", driver.Sanitize(ref)))
	}
	return out, err
}

func (c *Conversation) membersOnce(ref string, most int) ([]link.Link, error) {
	var out []link.Link
	count := -1 // what the BMC says; -1: nothing
	seen := map[string]bool{link.Trim(ref): true}
	for range MaxPages {
		var one page
		_, err := c.Get(ref, &one)
		var members link.Links
		if err == nil {
			members, err = c.links(ref, one)
		}
		if err != nil && len(out) == 0 {
			return nil, err
		}
		if err != nil && count != len(out) { // else the link to a further page is the only thing that is wrong
			c.leaveOut(err)
		}
		if err != nil {
			break
		}
		if one.Count != nil {
			count = *one.Count
		}
		for _, member := range members {
			path := link.Join(ref, member.Path)
			if path == "" || link.Trim(path) == link.Trim(ref) {
				if path != "" {
					c.circles++
				}
				c.leaveOut(problem.Unavailablef("the list %s links to %s, which is no member", driver.Sanitize(ref), c.Quote(member.Path)))
			} else if !seen[link.Trim(path)] {
				seen[link.Trim(path)] = true
				out = append(out, link.Link{Path: path})
			}
		}
		next := link.Join(ref, cmp.Or(one.Next.Path, one.OldNext.Path))
		if next == "" || len(out) >= most || len(members) == 0 || seen[link.Trim(next)] {
			break
		}
		seen[link.Trim(next)] = true
		ref = next
	}
	// Some BMCs count wrongly, so a short list is told and is no error.
	if count > len(out) && len(out) < most && c.circles == 0 {
		c.noteOnce("the list %s counts %d members, and %d of them can be read", driver.Sanitize(ref), count, len(out))
	}
	return out[:min(len(out), most)], nil
}

// Each reads the members of a collection, each by itself, and calls fn with path, ETag and content of those that can be read. A member that
// cannot be read is left out and noted, and left has its error. The error is that of the collection, or of its first member where no member
// can be read. Without a link there are no members.
func Each[T any](c *Conversation, list link.Link, most int, fn func(path, etag string, doc *T)) (left []error, err error) {
	if list.Path == "" {
		return nil, nil
	}
	before := len(c.left)
	members, err := c.Members(list.Path, most)
	if err != nil {
		return nil, problem.New(problem.KindOf(err), "%s: %w", driver.Sanitize(list.Path), err)
	}
	noLinks := slices.Clone(c.left[before:])
	left, err = EachOf(c, members, fn)
	return append(noLinks, left...), err
}

// EachOf is Each for links.
func EachOf[T any](c *Conversation, members []link.Link, fn func(path, etag string, doc *T)) (left []error, err error) {
	silent := 0
	for _, member := range members {
		doc := new(T)
		etag, err := c.Get(member.Path, doc)
		if c.isSilentNow(err) {
			silent++
		}
		switch {
		case err == nil:
			fn(member.Path, etag, doc)
		case isOfAll(err) && !(c.isSilentNow(err) && silent == 1), c.ctx.Err() != nil: // the second silence is that of the BMC
			return left, err
		default:
			left = append(left, problem.New(problem.KindOf(err), "%s: %w", driver.Sanitize(member.Path), err))
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
	if isOfAll(err) && !c.isSilentNow(err) || c.ctx.Err() != nil {
		return err
	}
	c.leaveOut(err)
	return nil
}

func (c *Conversation) leaveOut(err error) {
	c.left = append(c.left, err)
	c.noteOnce("a part of the machine is left out, because the BMC does not show it: %v", err)
}

// Lacking is the error of something that the BMC does not have, with what could not be read in this conversation and may have it. Where that
// heals by waiting, so does the error.
func (c *Conversation) Lacking(err error) error {
	unread := slices.Concat(c.left, c.emptied)
	if len(unread) == 0 {
		return err
	}
	kind := problem.KindOf(err)
	var texts []string
	for _, left := range unread {
		if texts = append(texts, left.Error()); problem.Is(left, problem.Unavailable) {
			kind = problem.Unavailable
		}
	}
	return problem.New(kind, "%w; it may be in what could not be read: %s", err, strings.Join(texts[:min(len(texts), 3)], "; "))
}

// isSilentNow tells whether the BMC gave no answer at one resource, after others had answered.
func (c *Conversation) isSilentNow(err error) bool {
	return c.asked && errors.Is(err, context.DeadlineExceeded) && c.ctx.Err() == nil
}

// isOfAll tells whether an error would meet every resource of the BMC: a refused login, or a BMC that does not answer.
func isOfAll(err error) bool {
	var r *refusal.Refusal
	return errors.Is(err, driver.ErrLogin) || errors.Is(err, context.Canceled) || problem.Is(err, problem.Unavailable) && !errors.As(err, &r) && !errors.Is(err, errPage)
}

// Emptied is the error of the first list that was empty, perhaps for the moment; nil: none was. A caller that changes all members of a list must
// not take such a list for empty.
func (c *Conversation) Emptied() error {
	if len(c.emptied) == 0 {
		return nil
	}
	return c.emptied[0]
}

// Unread is how many parts could not be read so far.
func (c *Conversation) Unread() int { return len(c.left) - c.circles }

// Had tells whether the BMC had a resource below a path a short time ago.
func (c *Conversation) Had(path string) bool { return c.settings.Memory.Had(c.settings.Key, path) }
