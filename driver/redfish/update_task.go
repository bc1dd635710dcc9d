package redfish

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// tasksPath is where the TaskService has its tasks, as DSP0266 wants it.
const tasksPath = "/redfish/v1/TaskService/Tasks"

// maxTasks bounds how many tasks of a BMC are looked at.
const maxTasks = 2000

// taskIDs are the ids of the tasks that the BMC has; none if it has no such list.
func (s *bmcSession) taskIDs() (ids []string, err error) {
	all, err := s.members(tasksPath, maxTasks)
	if isMissing(err) || problem.Is(err, problem.Unsupported) {
		return nil, nil
	}
	for _, member := range all {
		if id, ok := strings.CutPrefix(member.Path, tasksPath+"/"); ok && id != "" && !strings.Contains(id, "/") {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// isUpdate tells whether a task is that of an update of firmware.
func (t bmcTask) isUpdate() bool {
	if t.Payload.TargetURI != "" {
		return strings.Contains(t.Payload.TargetURI, "/UpdateService")
	}
	name := strings.ToLower(t.Name + " " + t.Description)
	return strings.Contains(name, "update") || strings.Contains(name, "firmware")
}

// bmcTask is a Task resource.
type bmcTask struct {
	Path        string `json:"@odata.id"`
	Type        string `json:"@odata.type"`
	TaskState   string
	TaskStatus  string
	Name        string
	Description string
	Messages    []struct{ Message string }
	Payload     struct {
		TargetURI string `json:"TargetUri"`
	}
}

// postTask runs an action and gives the path of the task that the BMC made for it; empty: it made none.
func (s *bmcSession) postTask(path string, body any) (string, error) {
	text, header, err := s.exchange(http.MethodPost, path, body)
	if err != nil {
		return "", err
	}
	var task bmcTask
	if json.Unmarshal(text, &task) == nil && strings.Contains(task.Type, "Task.") && isLocalPath(task.Path) {
		return task.Path, nil
	}
	at, err := url.Parse(header.Get("Location"))
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
		if err := s.cycle(ctx, n); err != nil {
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
func (s *bmcSession) endUpdate(ctx context.Context, n *metal.Node, r *updateRecord, images []driver.Update) error {
	image := images[r.Index]
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
	if r.Index < len(images) {
		return s.intendUpdate(n, r, images[r.Index])
	}
	return nil
}
