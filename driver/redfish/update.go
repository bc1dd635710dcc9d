package redfish

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"salvor/driver"
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

// updateRecord is the update under way.
type updateRecord struct {
	Digest    string    `json:"digest"` // of all images of the step
	Index     int       `json:"index"`  // of the image in work
	Task      string    `json:"task,omitempty"`
	Before    string    `json:"before,omitempty"` // the version before it
	Restarted bool      `json:"restarted,omitempty"`
	BegunAt   time.Time `json:"begun_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"` // when the task had ended
}

func updateOf(n *metal.Node) (r updateRecord) {
	text, _ := json.Marshal(n.InternalInfo[updateKey])
	if json.Unmarshal(text, &r) != nil {
		return updateRecord{}
	}
	return r
}

// recordUpdate stores the record in the node; nil removes it.
func recordUpdate(n *metal.Node, r *updateRecord) {
	info := maps.Clone(n.InternalInfo)
	if info == nil {
		info = metal.Object{}
	}
	if delete(info, updateKey); r != nil {
		var o map[string]any
		text, _ := json.Marshal(r) // strings, numbers and times: cannot fail
		_ = json.Unmarshal(text, &o)
		info[updateKey] = o
	}
	n.InternalInfo = info
}

// update takes the images one step further. wait: it is to be called again.
func (s *bmcSession) update(ctx context.Context, n *metal.Node, images []driver.Update) (wait bool, err error) {
	for _, image := range images {
		u, err := url.Parse(image.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return false, problem.Invalidf("the firmware image %s is no http or https URL", driver.Sanitize(metal.BareURL(image.URL)))
		}
		s.hide(image.URL)
	}
	r := updateOf(n)
	if digest := digestRequest(images); r.Digest != digest {
		r = updateRecord{Digest: digest}
	}
	if r.Index >= len(images) {
		recordUpdate(n, nil)
		return false, nil
	}
	image := images[r.Index]
	switch {
	case r.BegunAt.IsZero():
		err = s.beginUpdate(&r, image)
	case r.EndedAt.IsZero():
		err = s.followUpdate(ctx, n, &r, image)
	default:
		err = s.endUpdate(ctx, &r, image)
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

// beginUpdate has the BMC fetch an image.
func (s *bmcSession) beginUpdate(r *updateRecord, image driver.Update) error {
	target, err := s.simpleUpdate()
	if err != nil {
		return err
	}
	if r.Before, err = s.versionOf(image.Component); err != nil {
		return err
	}
	protocol, _, _ := strings.Cut(image.URL, "://")
	members := []bodyMember{
		{name: "ImageURI", values: []any{image.URL}, required: true},
		{name: "TransferProtocol", values: []any{strings.ToUpper(protocol)}},
	}
	_, err = negotiate(members, func(body map[string]any) (err error) {
		r.Task, err = s.postTask(target, body)
		return err
	})
	if err == nil {
		r.BegunAt = time.Now()
	}
	return err
}

// simpleUpdate finds the action.
func (s *bmcSession) simpleUpdate() (string, error) {
	var top struct{ UpdateService resourceLink }
	if _, err := s.get(rootPath, &top); err != nil {
		return "", err
	}
	if top.UpdateService.Path == "" {
		return "", problem.Unsupportedf("the BMC has no update service")
	}
	var service struct {
		ServiceEnabled *bool
		Actions        struct {
			Simple struct {
				Target string `json:"target"`
			} `json:"#UpdateService.SimpleUpdate"`
		}
	}
	if _, err := s.get(top.UpdateService.Path, &service); err != nil {
		return "", err
	}
	switch {
	case service.ServiceEnabled != nil && !*service.ServiceEnabled:
		return "", problem.Unsupportedf("the BMC's update service is switched off")
	case service.Actions.Simple.Target == "":
		return "", problem.Unsupportedf("the BMC's update service takes no image by URL (SimpleUpdate)")
	}
	return service.Actions.Simple.Target, nil
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

// bmcTask is a Task resource.
type bmcTask struct {
	Path       string `json:"@odata.id"`
	Type       string `json:"@odata.type"`
	TaskState  string
	TaskStatus string
	Messages   []struct{ Message string }
}

// postTask runs an action and gives the path of the task that the BMC made for it; empty: it made none.
func (s *bmcSession) postTask(path string, body any) (string, error) {
	if !isLocalPath(path) {
		return "", problem.Unavailablef("it links to %s, which is no path on it", s.quote(path))
	}
	resp, err := s.ask(http.MethodPost, path, body, nil)
	if err != nil {
		return "", s.fault(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", s.fault(err)
	}
	var task bmcTask
	if json.Unmarshal(text, &task) == nil && strings.Contains(task.Type, "Task.") && isLocalPath(task.Path) {
		return task.Path, nil
	}
	at, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || !isLocalPath(at.Path) {
		return "", nil
	}
	return at.Path, nil
}

// task reads a task. One that is gone, or whose monitor answers with something else, has ended.
func (s *bmcSession) task(ctx context.Context, path string) (bmcTask, error) {
	ended := bmcTask{TaskState: "Completed"}
	if path == "" {
		return ended, nil
	}
	resp, err := s.ask(http.MethodGet, path, nil, nil)
	if err != nil {
		if err = s.fault(err); isMissing(err) {
			driver.Note(ctx, "the BMC's task %s is gone; it counts as ended", driver.Sanitize(path))
			return ended, nil
		}
		return bmcTask{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return bmcTask{}, s.fault(err)
	}
	var task bmcTask
	switch err := json.Unmarshal(text, &task); {
	case err == nil && task.TaskState != "":
		return task, nil
	case resp.StatusCode == http.StatusAccepted:
		return bmcTask{TaskState: "Running"}, nil
	}
	return ended, nil
}

// followUpdate looks how far the task is, and restarts the machine where the firmware is taken at its next start.
func (s *bmcSession) followUpdate(ctx context.Context, n *metal.Node, r *updateRecord, image driver.Update) error {
	if r.Task == "" {
		// The BMC may still fetch and write the image, and nobody can ask how far it is: a machine must not be cut off in that.
		now, err := s.versionOf(image.Component)
		if err != nil || (now == "" || now == r.Before) && time.Since(r.BegunAt) < versionWait {
			return err
		}
	}
	task, err := s.task(ctx, r.Task)
	if err != nil {
		return err
	}
	restart, ended := false, false
	switch task.TaskState {
	case "Completed":
		if task.TaskStatus == "Critical" {
			return s.failed(task, image)
		}
		restart, ended = true, true // what has not been taken yet is taken at the next start
	case "Exception", "Killed", "Cancelled", "Interrupted":
		return s.failed(task, image)
	case "Pending", "Suspended", "UserIntervention":
		restart = true
	case "New", "Starting":
		restart = time.Since(r.BegunAt) > startWait
	}
	if restart && !r.Restarted && image.Component != "bmc" {
		if err := s.cycle(ctx, n, func() error { return nil }); err != nil {
			return err
		}
		r.Restarted = true
	}
	if ended {
		r.EndedAt = time.Now()
	}
	return nil
}

func (s *bmcSession) failed(task bmcTask, image driver.Update) error {
	text := "it gives no reason"
	for _, m := range task.Messages {
		if m.Message != "" {
			text = s.quote(m.Message) // the last is the newest
		}
	}
	return problem.Conflictf("the BMC did not take the firmware image %s: its task is %s: %s", driver.Sanitize(metal.BareURL(image.URL)), driver.Sanitize(task.TaskState), text)
}

// endUpdate waits until the new version is shown, and goes on to the next image.
func (s *bmcSession) endUpdate(ctx context.Context, r *updateRecord, image driver.Update) error {
	now, err := s.versionOf(image.Component)
	if err != nil {
		return err
	}
	if r.Before != "" && (now == "" || now == r.Before) { // while it starts, a BMC or a BIOS may show no version
		if time.Since(r.EndedAt) < versionWait {
			return nil
		}
		driver.Note(ctx, "the update of %s ended, and the BMC still reads version %s", driver.Sanitize(cmp.Or(image.Component, "the firmware")), driver.Sanitize(now))
	}
	*r = updateRecord{Digest: r.Digest, Index: r.Index + 1}
	return nil
}
