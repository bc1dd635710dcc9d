package redfish

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/driver/redfish/refusal"
	"salvor/metal"
	"salvor/problem"
)

// Updates of firmware by SimpleUpdate of the UpdateService (DSP0268): the BMC fetches the image itself. The images of a step are taken one
// after the other. The BMC's task is followed until it ends, and the version is read until it changes.

// updateKey of internal_info remembers which update is under way.
const updateKey = "redfish_update"

const (
	// startWait is how long a task may say that it starts before the machine is restarted for it: some wait for that without saying so.
	startWait = 30 * time.Second
	// versionWait is how long after the end of an update the former version may still be read: BMCs restart for their own, and a machine
	// shows its BIOS's after POST. An image of the same version never shows another.
	versionWait = 5 * time.Minute
)

// maxUpdateOrders bounds how often the order of one image is given that gets no answer and leaves no trace.
const maxUpdateOrders = 3

// updateRecord is the update under way.
type updateRecord struct {
	Digest string `json:"digest"` // of all images of the step
	Index  int    `json:"index"`  // of the image in work
	Task   string `json:"task,omitempty"`
	Before string `json:"before,omitempty"` // the version before it
	// IntendedAt is when the order was decided on, and Tasks are the ids of those that the BMC had then. Both are stored before the BMC gets
	// the order, so that one that is cut off after that is found and not given again. Only the process that stored an intent gives its order.
	IntendedAt time.Time `json:"intended_at,omitzero"`
	Tasks      []string  `json:"tasks,omitempty"`
	NoTasks    bool      `json:"no_tasks,omitempty"` // the BMC did not show its tasks then, so that none of them can be told from a new one
	Restarted  bool      `json:"restarted,omitempty"`
	Orders     int       `json:"orders,omitempty"` // how often the order was given without an answer
	BegunAt    time.Time `json:"begun_at,omitzero"`
	EndedAt    time.Time `json:"ended_at,omitzero"` // when the task had ended
}

func updateOf(n *metal.Node) (r updateRecord) {
	n.ReadInternal(updateKey, &r)
	return r
}

// imageInWork names the image of an update that is in work.
func imageInWork(n *metal.Node) string {
	if n.InternalInfo[updateKey] == nil {
		return ""
	}
	return "image " + strconv.Itoa(updateOf(n).Index+1)
}

// recordUpdate stores the record in the node; nil removes it.
func recordUpdate(n *metal.Node, r *updateRecord) {
	if r == nil {
		n.SetInternal(updateKey, nil)
		return
	}
	n.KeepInternal(updateKey, r)
}

// update takes the images one step further. wait: it is to be called again.
func (s *bmcSession) update(ctx context.Context, n *metal.Node, images []driver.Update) (wait bool, err error) {
	for _, image := range images {
		u, err := url.Parse(image.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return false, problem.Invalidf("the firmware image %s is no http or https URL", driver.Sanitize(metal.BareURL(image.URL)))
		}
		s.bmc.HideURL(image.URL)
	}
	r := updateOf(n)
	if digest := metal.Digest(images); r.Digest != digest {
		r = updateRecord{Digest: digest}
	}
	if r.Index >= len(images) {
		recordUpdate(n, nil)
		return false, nil
	}
	image := images[r.Index]
	switch {
	case !r.EndedAt.IsZero():
		err = s.endUpdate(ctx, n, &r, images)
	case !r.BegunAt.IsZero():
		err = s.followUpdate(ctx, n, &r, image)
	case !r.IntendedAt.IsZero():
		err = s.beginUpdate(ctx, n, &r, image)
	default:
		err = s.intendUpdate(n, &r, image)
	}
	if problem.Is(err, problem.Unavailable) {
		return false, err // a BMC that restarts for its new firmware is asked again
	}
	if err != nil {
		recordUpdate(n, nil)
		return false, err
	}
	if r.Index >= len(images) {
		recordUpdate(n, nil)
		return false, nil
	}
	recordUpdate(n, &r)
	return true, nil
}

// intendUpdate notes how things are before the BMC gets the order.
func (s *bmcSession) intendUpdate(n *metal.Node, r *updateRecord, image driver.Update) error {
	if _, err := s.updateService(); err != nil {
		return err
	}
	var err error
	if r.Before, err = s.versionOf(image.Component); err != nil {
		return err
	}
	r.Tasks, err = s.taskIDs()
	if r.NoTasks = err != nil; s.bmc.LeaveOut(err) != nil {
		return err
	}
	r.IntendedAt = s.intents.begin(n.ID)
	return nil
}

// updateIntents are the orders that this process intends and has not begun to send, by node.
type updateIntents struct {
	mu sync.Mutex
	at map[string]time.Time
}

// begin notes a new intent and gives its time, which tells it from all others.
func (i *updateIntents) begin(node string) time.Time {
	at := time.Now().UTC()
	i.restore(node, at)
	return at
}

// take removes the intent of a node and tells whether it is the one of that time.
func (i *updateIntents) take(node string, at time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	own, found := i.at[node]
	delete(i.at, node)
	return found && own.Equal(at)
}

// restore puts an intent back whose order the BMC has refused itself: a gateway before it may have passed the order on.
func (i *updateIntents) restore(node string, at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.at == nil {
		i.at = map[string]time.Time{}
	}
	i.at[node] = at
}

// beginUpdate has the BMC fetch an image. The order of an intent that this process did not note may be on its way: if the BMC does not have
// it, the intent is stored anew. Without this a task of another client, begun after the intent, would be taken for ours.
func (s *bmcSession) beginUpdate(ctx context.Context, n *metal.Node, r *updateRecord, image driver.Update) error {
	service, err := s.updateService()
	if err != nil {
		return err
	}
	if !s.intents.take(n.ID, r.IntendedAt) {
		if taken, err := s.findUpdate(ctx, r, image, service); err != nil || taken {
			return err
		}
		r.IntendedAt = s.intents.begin(n.ID)
		return nil
	}
	now, err := s.versionOf(image.Component)
	if err != nil {
		s.intents.restore(n.ID, r.IntendedAt)
		return err
	}
	r.Before = now
	order, err := s.orderUpdate(image, service)
	switch {
	case err == nil && order.Unsure == nil:
		r.Task, r.BegunAt = order.Task, time.Now()
	case err == nil: // the next look shows whether the BMC has the order
		if r.Orders++; r.Orders >= maxUpdateOrders {
			return problem.Conflictf("the BMC gave no answer to %d orders to take the firmware image, and does not show that it works on one; look at its own pages: %w", maxUpdateOrders, order.Unsure)
		}
	default: // the BMC has surely not taken the order
		s.intents.restore(n.ID, r.IntendedAt)
	}
	return err
}

// orderUpdate gives the BMC the order.
func (s *bmcSession) orderUpdate(image driver.Update, service *updateService) (order conversation.Order, err error) {
	protocol, _, _ := strings.Cut(image.URL, "://")
	members := []refusal.Member{
		{Name: "ImageURI", Values: []any{image.URL}, Required: true},
		{Name: "TransferProtocol", Values: []any{strings.ToUpper(protocol)}},
	}
	_, err = refusal.Negotiate(members, func(body map[string]any) (err error) {
		order, err = s.bmc.Post(service.Actions.Simple.Target, body)
		return err
	})
	return order, err
}

// findUpdate tells whether the BMC has taken the intended order: by its version, by a task of an update that it did not have, or by the
// state of its update service. It notes what it finds in r.
func (s *bmcSession) findUpdate(ctx context.Context, r *updateRecord, image driver.Update, service *updateService) (bool, error) {
	now, err := s.versionOf(image.Component)
	if err != nil {
		return false, err
	}
	found := func(format string, args ...any) (bool, error) {
		driver.Note(ctx, "the firmware image was ordered before this conductor took over, and is not ordered again: "+format, args...)
		r.BegunAt = r.IntendedAt
		return true, nil
	}
	if r.Before != "" && now != "" && now != r.Before {
		r.EndedAt = time.Now()
		return found("the version is %s", driver.Sanitize(now))
	}
	ids, err := s.taskIDs()
	if err != nil && !r.NoTasks {
		return false, err
	}
	if r.NoTasks {
		ids = nil
	}
	for _, id := range ids {
		if slices.Contains(r.Tasks, id) {
			continue
		}
		task, err := s.bmc.Task(conversation.TasksPath + "/" + id)
		if err != nil {
			return false, err
		}
		if isUpdate(task) {
			r.Task = conversation.TasksPath + "/" + id
			return found("task %s works on it", driver.Sanitize(id))
		}
	}
	if service.Status.State == "Updating" {
		return found("the update service works on it")
	}
	return false, nil
}

// updateService is the part of an UpdateService that an update needs.
type updateService struct {
	ServiceEnabled *bool
	Status         struct{ State string }
	Actions        struct {
		Simple struct {
			Target string `json:"target"`
		} `json:"#UpdateService.SimpleUpdate"`
	}
}

// updateService reads the service that takes images by URL.
func (s *bmcSession) updateService() (*updateService, error) {
	var top struct{ UpdateService link.Link }
	if _, err := s.bmc.Get(conversation.RootPath, &top); err != nil {
		return nil, err
	}
	if top.UpdateService.Path == "" {
		return nil, problem.Unsupportedf("the BMC has no update service: %s links to none", conversation.RootPath)
	}
	service := new(updateService)
	if _, err := s.bmc.Get(top.UpdateService.Path, service); err != nil {
		return nil, err
	}
	switch {
	case service.ServiceEnabled != nil && !*service.ServiceEnabled:
		return nil, problem.Unsupportedf("the BMC's update service is switched off")
	case service.Actions.Simple.Target == "":
		return nil, problem.Unsupportedf("the BMC's update service %s takes no image by URL (SimpleUpdate)", s.bmc.Quote(top.UpdateService.Path))
	}
	return service, nil
}

// versionOf reads the version of a component; empty if the BMC does not show it.
func (s *bmcSession) versionOf(component string) (string, error) {
	all, err := s.components()
	for _, c := range all {
		if c.Component == component {
			return c.CurrentVersion, err
		}
	}
	return "", err
}
