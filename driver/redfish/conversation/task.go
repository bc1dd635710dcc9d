package conversation

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"salvor/driver"
	"salvor/driver/redfish/link"
	"salvor/driver/redfish/refusal"
	"salvor/problem"
	"salvor/wire/loose"
)

// Task is a Task resource.
type Task struct {
	State       string `json:"TaskState"`
	Status      string `json:"TaskStatus"`
	Name        string
	Description string
	Messages    []refusal.Message
	Payload     struct {
		TargetURI string `json:"TargetUri"`
	}
}

// HasFailed tells whether the task has ended without what was asked for.
func (t Task) HasFailed() bool {
	switch t.State {
	case "Exception", "Killed", "Cancelled", "Interrupted":
		return true
	}
	return t.State == "Completed" && t.Status == "Critical"
}

// HasEnded tells whether the task works no more.
func (t Task) HasEnded() bool { return t.State == "Completed" || t.HasFailed() }

// maxOrderAnswer bounds what an Order keeps of the answer, in bytes: the memory of the answer is given back with the order in hand.
const maxOrderAnswer = 256 << 10

// newOrder reads from an answer what the BMC has made of an order: a task, or a resource, which the Location header names, or else the body.
func newOrder(a *reply) Order {
	var doc any
	if len(a.body) > 0 {
		_, _ = loose.DecodeTrimmed(a.body, &doc)
	}
	o := Order{Created: cmp.Or(link.Join(a.path, a.header.Get("Location")), link.Join(a.path, link.In(doc)))}
	if len(a.body) <= maxOrderAnswer {
		o.body = a.body
	}
	members, _ := doc.(map[string]any)
	kind, _ := members["@odata.type"].(string)
	own := link.Join(a.path, link.In(members["@odata.id"]))
	isTask := strings.Contains(kind, "Task.")
	switch {
	case isTask && own != "":
		o.Task = own
	case isTask || a.status == http.StatusAccepted || strings.Contains(o.Created, "/Task"):
		o.Task = o.Created
	}
	return o
}

// Task reads a task. A task that is gone, or whose monitor answers with something else, has ended; a monitor that answers with a refusal
// gives the task's.
func (c *Conversation) Task(path string) (Task, error) {
	ended := Task{State: "Completed"}
	if path == "" {
		return ended, nil
	}
	a, err := c.ask(http.MethodGet, path, nil, nil)
	defer c.share.End()
	var r *refusal.Refusal
	if errors.As(err, &r) && !r.IsTemporary() {
		switch {
		case r.Status == http.StatusNotFound && c.settings.Memory.MissesNow(c.settings.Key, path): // as a BMC does that starts
		case r.Status == http.StatusNotFound, r.Status == http.StatusGone:
			driver.Note(c.ctx, "the BMC's task %s is gone; it counts as ended", driver.Sanitize(path))
			return ended, nil
		case r.Status != http.StatusUnauthorized && r.Status != http.StatusForbidden && r.Status != http.StatusInternalServerError:
			return Task{State: "Exception", Messages: r.TaskMessages()}, nil
		}
	}
	if err != nil {
		return Task{}, c.fault(http.MethodGet, path, err)
	}
	var task Task
	switch _, err := loose.DecodeTrimmed(a.body, &task); {
	case err == nil && task.State != "":
		c.settings.Memory.Saw(c.settings.Key, path)
		return task, nil
	case strings.HasPrefix(notRedfish(a.body), "a page"):
		return Task{}, c.strangePage(a, notRedfish(a.body))
	case a.status == http.StatusAccepted:
		return Task{State: "Running"}, nil
	}
	return ended, nil
}

// Failure is the error of a task that has failed, with the BMC's words; nil: it has not.
func (c *Conversation) Failure(t Task) error {
	if !t.HasFailed() {
		return nil
	}
	r := &refusal.Refusal{Messages: t.Messages}
	text := "the BMC gives no reason"
	if words := r.Words(); words != "" {
		text = c.Quote(words)
	}
	if r.Has(refusal.NotNow) || r.Has(refusal.Unreachable) {
		return problem.Unavailablef("the BMC took the order, and its task is %s: %s", driver.Sanitize(t.State), text)
	}
	return problem.Conflictf("the BMC took the order, and its task is %s: %s", driver.Sanitize(t.State), text)
}

// pollTask tells whether the task of an order has ended, and with which failure.
func (c *Conversation) pollTask(path string) (ended bool, failure, err error) {
	task, err := c.Task(path)
	if err != nil || !task.HasEnded() {
		return false, nil, err
	}
	return true, c.Failure(task), nil
}

// Prove calls look until it sees what was ordered, as driver.PollUntil does, and follows the BMC's task meanwhile: a task that fails ends the
// wait with its words.
func (c *Conversation) Prove(ctx context.Context, o Order, look func(context.Context) (bool, error)) (bool, error) {
	var failure error
	whole := c.ctx
	defer func() { c.ctx = whole }()
	done, err := driver.PollUntil(ctx, func(ctx context.Context) (bool, error) {
		c.ctx = ctx // a look takes no longer than the proof
		done, err := look(ctx)
		if done || o.Task == "" {
			return done, err
		}
		if ended, of, _ := c.pollTask(o.Task); ended {
			o.Task, failure = "", of
		}
		return failure != nil, err
	})
	if failure != nil {
		return false, failure
	}
	return done, err
}

// Taken says in an error what became of an order: the BMC took it, or nobody can tell.
func (c *Conversation) Taken(o Order) string {
	if o.Unsure != nil {
		return "it is not known whether the BMC took the order (" + o.Unsure.Error() + ")"
	}
	return "the BMC took the order"
}

// Follow waits for the end of the task of an order that no look can prove, and gives the task's failure. A task that works longer than one
// proof may take, or that cannot be read, is left to itself: the BMC has the order.
func (c *Conversation) Follow(ctx context.Context, o Order) error {
	if o.Unsure != nil || o.Task == "" {
		return o.Unsure
	}
	var failure error
	_, err := driver.PollUntil(ctx, func(context.Context) (ended bool, err error) {
		ended, failure, err = c.pollTask(o.Task)
		return ended, err
	})
	if err != nil {
		driver.Note(c.ctx, "the BMC took the order, and its task cannot be read: %v", err)
	}
	return failure
}
